//! Records as plain data, and their encoding.

#[cfg(test)]
mod tests;

use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};
use zerocopy::IntoBytes;

use super::WriteError;
use super::extended::ItemSpec;
use super::layout::{self, Cursor, HeaderTypes};
use super::stack::StackPayload;
use crate::record::{Descriptor, HeaderKind, MessageOptions};

/// Maximum size of a record in bytes, including its header and items.
pub const RECORD_SIZE_MAX: usize = 0xffff;

/// A record to write. Borrows its payload and allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct RecordSpec<'a> {
    /// The raw timestamp. Headers without one (some WPP messages, ERROR) omit it.
    pub time: RawTime,
    /// Pointer size of the payload, which selects the 32-bit or the 64-bit kind of header.
    pub pointer_size: PointerSize,
    /// The header.
    pub header: HeaderSpec<'a>,
    /// The bytes that follow the header.
    pub payload: Payload<'a>,
}

/// The header of a record.
#[derive(Clone, Copy, Debug)]
pub enum HeaderSpec<'a> {
    /// Kernel event with thread, process and processor times.
    System {
        /// Group << 8 | type.
        hook_id: u16,
        /// Version of the payload's layout.
        version: u8,
        /// The logging thread.
        issuer: Issuer,
    },
    /// Kernel event with thread and process.
    Compact {
        /// Group << 8 | type.
        hook_id: u16,
        /// Version of the payload's layout.
        version: u8,
        /// The logging thread. Processor times are omitted.
        issuer: Issuer,
    },
    /// Kernel event with a timestamp only.
    PerfInfo {
        /// Group << 8 | type.
        hook_id: u16,
        /// Version of the payload's layout.
        version: u8,
        /// The index of a precise sample.
        pebs_index: Option<u64>,
        /// Values of performance counters, at most seven.
        counters: &'a [u64],
    },
    /// Classic event of a provider.
    Full {
        /// Class, type and version of the event.
        class: EventClass,
        /// The logging thread.
        issuer: Issuer,
    },
    /// Classic event of one instance of a provider.
    Instance {
        /// Class, type and version of the event.
        class: EventClass,
        /// The logging thread.
        issuer: Issuer,
        /// The ids of the instance.
        instance: InstanceIds,
    },
    /// Event of a manifest, TraceLogging or EventSource provider.
    Event {
        /// The provider.
        provider: Guid,
        /// Id, version, level and other parts of the event descriptor.
        descriptor: Descriptor,
        /// Property bits, which affect decoding; usually 0.
        property: u16,
        /// The logging thread.
        issuer: Issuer,
        /// The activity to which the event belongs.
        activity: Guid,
        /// Extended data items, in the order in which they are written.
        items: &'a [ItemSpec<'a>],
    },
    /// WPP message.
    Message(MessageSpec),
    /// An error while logging. The layout after the first word is not published; here, all of it is
    /// payload.
    Error,
}

/// The thread that logs a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issuer {
    /// Thread id; `None` is stored as "unknown".
    pub tid: Option<Tid>,
    /// Process id; `None` is stored as "unknown".
    pub pid: Option<Pid>,
    /// Kernel time of the thread, in units of the session's timer resolution.
    pub kernel_time: u32,
    /// User time of the thread, in the same units.
    pub user_time: u32,
}

impl Issuer {
    /// Both thread and process are unknown.
    pub const UNKNOWN: Issuer = Issuer { tid: None, pid: None, kernel_time: 0, user_time: 0 };

    /// A thread that has not used any processor time.
    pub const fn new(pid: Pid, tid: Tid) -> Issuer {
        Issuer { tid: Some(tid), pid: Some(pid), kernel_time: 0, user_time: 0 }
    }

    fn raw_tid(&self) -> u32 {
        self.tid.map_or(u32::MAX, |tid| tid.0)
    }

    fn raw_pid(&self) -> u32 {
        self.pid.map_or(u32::MAX, |pid| pid.0)
    }
}

/// Identifies a classic event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventClass {
    /// The class GUID.
    pub guid: Guid,
    /// The type of the event within the class. Consumers see it as the opcode.
    pub opcode: u8,
    /// Level; 1 is critical, 5 verbose.
    pub level: u8,
    /// Version of the payload's layout.
    pub version: u16,
}

/// Identifies an instance of a classic provider, and its parent instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InstanceIds {
    /// Instance id.
    pub id: u32,
    /// Id of the parent instance.
    pub parent_id: u32,
    /// Class GUID of the parent instance.
    pub parent_guid: Guid,
}

impl InstanceIds {
    pub(super) fn layout(&self) -> layout::Instance {
        layout::Instance {
            id: self.id.into(),
            parent_id: self.parent_id.into(),
            parent_guid: self.parent_guid.0,
        }
    }
}

/// The header of a WPP message. `options` decides which of the values and whether the timestamp are
/// stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSpec {
    /// Number of the message within its GUID.
    pub number: u16,
    /// The parts of the header. A component id replaces the GUID.
    pub options: MessageOptions,
    /// Sequence number.
    pub sequence: u32,
    /// The message GUID.
    pub guid: Guid,
    /// Component id.
    pub component: u32,
    /// The logging thread. Processor times are omitted.
    pub issuer: Issuer,
}

impl MessageSpec {
    fn has_time(&self) -> bool {
        self.options.has(MessageOptions::TIMESTAMP) || self.options.has(MessageOptions::PERFORMANCE_TIMESTAMP)
    }

    fn size(&self) -> usize {
        let part = |option, size| if self.options.has(option) { size } else { 0 };
        let identity = if self.options.has(MessageOptions::COMPONENT_ID) {
            size_of::<u32>()
        } else {
            part(MessageOptions::GUID, size_of::<Guid>())
        };
        size_of::<layout::MessageHeader>()
            + part(MessageOptions::SEQUENCE, size_of::<u32>())
            + identity
            + if self.has_time() { size_of::<i64>() } else { 0 }
            + part(MessageOptions::SYSTEM_INFO, 2 * size_of::<u32>())
    }

    fn encode(&self, size: u16, time: RawTime, out: &mut Cursor<'_>) {
        let header = layout::MessageHeader {
            size: size.into(),
            reserved: 0,
            flags: layout::WPP_MESSAGE,
            number: self.number.into(),
            options: self.options.0.into(),
        };
        out.put(header.as_bytes());
        if self.options.has(MessageOptions::SEQUENCE) {
            out.put(&self.sequence.to_le_bytes());
        }
        if self.options.has(MessageOptions::COMPONENT_ID) {
            out.put(&self.component.to_le_bytes());
        } else if self.options.has(MessageOptions::GUID) {
            out.put(&self.guid.0);
        }
        if self.has_time() {
            out.put(&time.0.to_le_bytes());
        }
        if self.options.has(MessageOptions::SYSTEM_INFO) {
            out.put(&self.issuer.raw_tid().to_le_bytes());
            out.put(&self.issuer.raw_pid().to_le_bytes());
        }
    }
}

/// The bytes that follow the header of a record.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// The given bytes.
    Bytes(&'a [u8]),
    /// A stack; see [`super::stack`].
    Stack(StackPayload<'a>),
}

impl RecordSpec<'_> {
    /// Size of the whole record in bytes, without the padding that follows it in a buffer.
    ///
    /// # Errors
    /// If the record is too large, or has more than seven performance counters.
    pub fn size(&self) -> Result<usize, WriteError> {
        let header = match &self.header {
            HeaderSpec::System { .. } => HeaderKind::System64.header_size(),
            HeaderSpec::Compact { .. } => HeaderKind::Compact64.header_size(),
            HeaderSpec::PerfInfo { pebs_index, counters, .. } => {
                if counters.len() > 7 {
                    return Err(WriteError::TooManyCounters { count: counters.len() });
                }
                HeaderKind::PerfInfo64.header_size()
                    + 8 * (usize::from(pebs_index.is_some()) + counters.len())
            }
            HeaderSpec::Full { .. } => HeaderKind::Full64.header_size(),
            HeaderSpec::Instance { .. } => HeaderKind::Instance64.header_size(),
            HeaderSpec::Event { items, .. } => {
                HeaderKind::Event64.header_size() + items.iter().map(ItemSpec::stride).sum::<usize>()
            }
            HeaderSpec::Message(message) => message.size(),
            HeaderSpec::Error => HeaderKind::Error.header_size(),
        };
        let payload = match &self.payload {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Stack(stack) => stack.size(self.pointer_size),
        };
        let size = header + payload;
        if size > RECORD_SIZE_MAX { Err(WriteError::RecordTooLarge { size }) } else { Ok(size) }
    }

    /// The timestamp, if the header has one.
    pub(super) fn stored_time(&self) -> Option<RawTime> {
        let stored = match &self.header {
            HeaderSpec::Message(message) => message.has_time(),
            HeaderSpec::Error => false,
            _ => true,
        };
        stored.then_some(self.time)
    }

    /// Encodes the record into `bytes`, whose length must be its size.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        let size = bytes.len() as u16;
        let out = &mut Cursor::new(bytes);
        match self.header {
            HeaderSpec::System { hook_id, version, issuer } => {
                let header = layout::SystemHeader {
                    compact: self.compact(layout::SYSTEM, hook_id, version, &issuer, size),
                    kernel_time: issuer.kernel_time.into(),
                    user_time: issuer.user_time.into(),
                };
                out.put(header.as_bytes());
            }
            HeaderSpec::Compact { hook_id, version, issuer } => {
                out.put(self.compact(layout::COMPACT, hook_id, version, &issuer, size).as_bytes());
            }
            HeaderSpec::PerfInfo { hook_id, version, pebs_index, counters } => {
                let extras = u8::from(pebs_index.is_some()) << 7 | counters.len() as u8;
                let packet = self.packet(layout::PERF_INFO, hook_id, version, extras, size);
                out.put(layout::PerfInfoHeader { packet, time: self.time.0.into() }.as_bytes());
                out.put_u64s(pebs_index.as_slice());
                out.put_u64s(counters);
            }
            HeaderSpec::Full { class, issuer } => {
                out.put(self.full(layout::FULL, &class, &issuer, size).as_bytes());
            }
            HeaderSpec::Instance { class, issuer, instance } => {
                let full = self.full(layout::INSTANCE, &class, &issuer, size);
                out.put(layout::InstanceHeader { full, instance: instance.layout() }.as_bytes());
            }
            HeaderSpec::Event { provider, descriptor, property, issuer, activity, items } => {
                let header = layout::EventHeader {
                    size: size.into(),
                    header_type: layout::EVENT.of(self.pointer_size),
                    marker_flags: layout::FIXED_HEADER,
                    flags: u16::from(!items.is_empty()).into(),
                    property: property.into(),
                    tid: issuer.raw_tid().into(),
                    pid: issuer.raw_pid().into(),
                    time: self.time.0.into(),
                    provider: provider.0,
                    id: descriptor.id.into(),
                    version: descriptor.version,
                    channel: descriptor.channel,
                    level: descriptor.level,
                    opcode: descriptor.opcode,
                    task: descriptor.task.into(),
                    keyword: descriptor.keyword.into(),
                    kernel_time: issuer.kernel_time.into(),
                    user_time: issuer.user_time.into(),
                    activity: activity.0,
                };
                out.put(header.as_bytes());
                let mut items = items.iter();
                while let Some(item) = items.next() {
                    item.encode(!items.as_slice().is_empty(), out);
                }
            }
            HeaderSpec::Message(message) => message.encode(size, self.time, out),
            HeaderSpec::Error => {
                let [low, high] = size.to_le_bytes();
                let header_type = layout::ERROR.of(self.pointer_size);
                out.put(&[low, high, header_type, layout::FIXED_HEADER, 0, 0, 0, 0]);
            }
        }
        match &self.payload {
            Payload::Bytes(payload) => out.put(payload),
            Payload::Stack(stack) => stack.encode(self.pointer_size, out),
        }
        out.finish();
    }

    fn packet(&self, types: HeaderTypes, hook_id: u16, version: u8, extras: u8, size: u16) -> layout::Packet {
        layout::Packet {
            version,
            extras,
            header_type: types.of(self.pointer_size),
            flags: layout::FIXED_HEADER,
            size: size.into(),
            hook_id: hook_id.into(),
        }
    }

    fn compact(
        &self,
        types: HeaderTypes,
        hook_id: u16,
        version: u8,
        issuer: &Issuer,
        size: u16,
    ) -> layout::CompactHeader {
        layout::CompactHeader {
            packet: self.packet(types, hook_id, version, 0, size),
            tid: issuer.raw_tid().into(),
            pid: issuer.raw_pid().into(),
            time: self.time.0.into(),
        }
    }

    fn full(&self, types: HeaderTypes, class: &EventClass, issuer: &Issuer, size: u16) -> layout::FullHeader {
        layout::FullHeader {
            size: size.into(),
            header_type: types.of(self.pointer_size),
            flags: layout::FIXED_HEADER,
            opcode: class.opcode,
            level: class.level,
            version: class.version.into(),
            tid: issuer.raw_tid().into(),
            pid: issuer.raw_pid().into(),
            time: self.time.0.into(),
            guid: class.guid.0,
            kernel_time: issuer.kernel_time.into(),
            user_time: issuer.user_time.into(),
        }
    }
}

/// Size of an EVENT_HEADER in bytes.
pub(crate) const EVENT_HEADER_SIZE: usize = HeaderKind::Event64.header_size();

/// Size in bytes of the record of an event with these items and this payload.
#[inline]
pub(crate) fn event_size(items: &[ItemSpec<'_>], payload: &[u8]) -> Result<usize, WriteError> {
    let size = EVENT_HEADER_SIZE + items.iter().map(ItemSpec::stride).sum::<usize>() + payload.len();
    if size > RECORD_SIZE_MAX { Err(WriteError::RecordTooLarge { size }) } else { Ok(size) }
}

/// Encodes an event from its in-memory EVENT_HEADER. Only the flags that trace files contain are
/// kept.
#[inline]
pub(crate) fn encode_event(
    header: &[u8; EVENT_HEADER_SIZE],
    items: &[ItemSpec<'_>],
    payload: &[u8],
    bytes: &mut [u8],
) {
    const POINTER32: u16 = 0x0020;
    const STRING_ONLY: u16 = 0x0004;
    let size = bytes.len() as u16;
    let out = &mut Cursor::new(bytes);
    let flags = u16::from_le_bytes([header[4], header[5]]);
    let pointer_size = if flags & POINTER32 != 0 { PointerSize::Four } else { PointerSize::Eight };
    let kept = flags & STRING_ONLY | u16::from(!items.is_empty());
    let [size_low, size_high] = size.to_le_bytes();
    let [flags_low, flags_high] = kept.to_le_bytes();
    let header_type = layout::EVENT.of(pointer_size);
    out.put(&[size_low, size_high, header_type, layout::FIXED_HEADER, flags_low, flags_high]);
    out.put(&header[6..]);
    let mut items = items.iter();
    while let Some(item) = items.next() {
        item.encode(!items.as_slice().is_empty(), out);
    }
    out.put(payload);
}
