//! WPP messages: a header of variable length, whose parts are indicated by option bits.

use stackhound_types::{Guid, RawTime};

use super::{HeaderKind, Record, u64_of};

/// Option bits of a WPP message. They indicate the parts between its header and its arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageOptions(pub u16);

impl MessageOptions {
    /// A u32 sequence number.
    pub const SEQUENCE: MessageOptions = MessageOptions(0x01);
    /// The message GUID.
    pub const GUID: MessageOptions = MessageOptions(0x02);
    /// A u32 component id, in place of the GUID.
    pub const COMPONENT_ID: MessageOptions = MessageOptions(0x04);
    /// A raw timestamp.
    pub const TIMESTAMP: MessageOptions = MessageOptions(0x08);
    /// A raw timestamp of the performance counter.
    pub const PERFORMANCE_TIMESTAMP: MessageOptions = MessageOptions(0x10);
    /// Thread id and process id.
    pub const SYSTEM_INFO: MessageOptions = MessageOptions(0x20);
    /// Pointers have four bytes.
    pub const POINTER32: MessageOptions = MessageOptions(0x40);
    /// Pointers have eight bytes.
    pub const POINTER64: MessageOptions = MessageOptions(0x80);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: MessageOptions) -> bool {
        self.0 & other.0 == other.0
    }

    fn component(self) -> bool {
        self.has(MessageOptions::COMPONENT_ID)
    }

    fn guid(self) -> bool {
        self.has(MessageOptions::GUID) && !self.component()
    }

    fn timed(self) -> bool {
        self.has(MessageOptions::TIMESTAMP) || self.has(MessageOptions::PERFORMANCE_TIMESTAMP)
    }

    fn identity_offset(self) -> usize {
        HeaderKind::Message.header_size() + 4 * usize::from(self.has(MessageOptions::SEQUENCE))
    }

    fn time_offset(self) -> usize {
        self.identity_offset() + 4 * usize::from(self.component()) + 16 * usize::from(self.guid())
    }

    fn ids_offset(self) -> usize {
        self.time_offset() + 8 * usize::from(self.timed())
    }

    fn payload_offset(self) -> usize {
        self.ids_offset() + 8 * usize::from(self.has(MessageOptions::SYSTEM_INFO))
    }

    /// The timestamp of a message with these options, if it has one.
    pub(crate) fn time(self, bytes: &[u8]) -> Option<RawTime> {
        let at = self.time_offset();
        let time = bytes.get(at..at + 8).filter(|_| self.timed())?;
        Some(RawTime(u64_of(time) as i64))
    }
}

impl<'a> Record<'a> {
    /// Option bits of a WPP message; no bits for other records.
    pub fn message_options(&self) -> MessageOptions {
        MessageOptions(if self.kind == HeaderKind::Message { self.u16_at(6) } else { 0 })
    }

    /// Number of a WPP message within its GUID.
    pub fn message_number(&self) -> Option<u16> {
        (self.kind == HeaderKind::Message).then(|| self.u16_at(4))
    }

    /// Sequence number of a WPP message.
    pub fn message_sequence(&self) -> Option<u32> {
        self.message_options().has(MessageOptions::SEQUENCE).then(|| self.message_u32(8))?
    }

    /// Component id of a WPP message that has one instead of a GUID.
    pub fn message_component(&self) -> Option<u32> {
        let options = self.message_options();
        options.component().then(|| self.message_u32(options.identity_offset()))?
    }

    pub(super) fn message_guid(&self) -> Option<Guid> {
        let options = self.message_options();
        let at = options.identity_offset();
        let guid = self.bytes.get(at..at + 16).filter(|_| options.guid())?;
        Some(Guid(guid.try_into().expect("sixteen bytes")))
    }

    /// Thread id and process id.
    pub(super) fn message_ids(&self) -> Option<(u32, u32)> {
        let options = self.message_options();
        let at = options.ids_offset();
        options
            .has(MessageOptions::SYSTEM_INFO)
            .then(|| Some((self.message_u32(at)?, self.message_u32(at + 4)?)))?
    }

    pub(super) fn message_payload_offset(&self) -> usize {
        self.message_options().payload_offset()
    }

    fn message_u32(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Records;
    use super::*;
    use stackhound_types::{Pid, Tid};

    /// A message with every part that its options indicate, each with a different value.
    fn message(options: u16) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0x90, 77, 0];
        bytes.extend(options.to_le_bytes());
        if options & 0x01 != 0 {
            bytes.extend(5u32.to_le_bytes());
        }
        if options & 0x04 != 0 {
            bytes.extend(6u32.to_le_bytes());
        } else if options & 0x02 != 0 {
            bytes.extend([0xab; 16]);
        }
        if options & 0x18 != 0 {
            bytes.extend(700i64.to_le_bytes());
        }
        if options & 0x20 != 0 {
            bytes.extend(8u32.to_le_bytes());
            bytes.extend(9u32.to_le_bytes());
        }
        bytes.extend(b"argument");
        let size = bytes.len() as u16;
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn every_combination_of_options_is_read() {
        for options in 0..=0xffu16 {
            let bytes = message(options);
            let record = Records::new(&bytes, 0).next().unwrap();
            let on = |bit: u16| options & bit != 0;
            assert_eq!(record.message_number(), Some(77));
            assert_eq!(record.message_sequence(), on(1).then_some(5), "{options:#x}");
            assert_eq!(record.message_component(), on(4).then_some(6), "{options:#x}");
            assert_eq!(record.guid(), (on(2) && !on(4)).then_some(Guid([0xab; 16])), "{options:#x}");
            assert_eq!(record.time().0, if on(0x18) { 700 } else { 0 }, "{options:#x}");
            assert_eq!(record.tid(), on(0x20).then_some(Tid(8)), "{options:#x}");
            assert_eq!(record.pid(), on(0x20).then_some(Pid(9)), "{options:#x}");
            assert_eq!(record.pointer_size().bytes(), if on(0x40) { 4 } else { 8 });
            assert_eq!(record.payload(), b"argument", "{options:#x}");
        }
    }

    #[test]
    fn a_message_without_time_has_the_time_of_the_previous_record() {
        let mut bytes = message(0x08);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(message(0));
        let times: Vec<_> = Records::new(&bytes, 0).map(|record| record.time().0).collect();
        assert_eq!(times, [700, 700]);
    }

    #[test]
    fn parts_that_are_cut_off_are_absent() {
        let mut bytes = message(0x3b);
        bytes.truncate(20);
        bytes[0] = 20;
        let record = Records::new(&bytes, 0).next().unwrap();
        assert_eq!((record.message_sequence(), record.guid(), record.tid()), (Some(5), None, None));
        assert!(record.payload().is_empty());
    }
}
