//! Extended data items: optional data between an EVENT_HEADER and its payload.

use stackhound_types::{Guid, PointerSize};

use super::u64_of;

/// Type of an extended data item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedType(pub u16);

impl ExtendedType {
    /// GUID of the related activity.
    pub const RELATED_ACTIVITY_ID: ExtendedType = ExtendedType(0x01);
    /// SID of the user.
    pub const SID: ExtendedType = ExtendedType(0x02);
    /// Terminal session.
    pub const TERMINAL_SESSION_ID: ExtendedType = ExtendedType(0x03);
    /// Instance ids.
    pub const INSTANCE_INFO: ExtendedType = ExtendedType(0x04);
    /// Match id and 32-bit addresses.
    pub const STACK_TRACE32: ExtendedType = ExtendedType(0x05);
    /// Match id and 64-bit addresses.
    pub const STACK_TRACE64: ExtendedType = ExtendedType(0x06);
    /// Last-branch-record index.
    pub const PEBS_INDEX: ExtendedType = ExtendedType(0x07);
    /// Performance counters.
    pub const PMC_COUNTERS: ExtendedType = ExtendedType(0x08);
    /// Packaged application.
    pub const PSM_KEY: ExtendedType = ExtendedType(0x09);
    /// A number unique to the event.
    pub const EVENT_KEY: ExtendedType = ExtendedType(0x0a);
    /// TraceLogging metadata.
    pub const SCHEMA: ExtendedType = ExtendedType(0x0b);
    /// Provider name and traits.
    pub const PROVIDER_TRAITS: ExtendedType = ExtendedType(0x0c);
    /// A number unique to the process.
    pub const PROCESS_START_KEY: ExtendedType = ExtendedType(0x0d);
    /// The control GUID of the provider.
    pub const CONTROL_GUID: ExtendedType = ExtendedType(0x0e);
    /// Offset of the performance counter.
    pub const QPC_DELTA: ExtendedType = ExtendedType(0x0f);
    /// Container id as text.
    pub const CONTAINER_ID: ExtendedType = ExtendedType(0x10);
    /// Match id and 32-bit stack key.
    pub const STACK_KEY32: ExtendedType = ExtendedType(0x11);
    /// Match id and 64-bit stack key.
    pub const STACK_KEY64: ExtendedType = ExtendedType(0x12);
}

/// One extended data item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedItem<'a> {
    /// The type of the item.
    pub item_type: ExtendedType,
    /// The data, without padding.
    pub data: &'a [u8],
}

impl<'a> ExtendedItem<'a> {
    /// The pointer size of a stack or stack key item; `None` for other types.
    pub fn stack_pointer_size(&self) -> Option<PointerSize> {
        match self.item_type {
            ExtendedType::STACK_TRACE32 | ExtendedType::STACK_KEY32 => Some(PointerSize::Four),
            ExtendedType::STACK_TRACE64 | ExtendedType::STACK_KEY64 => Some(PointerSize::Eight),
            _ => None,
        }
    }

    /// Match id and address bytes of a stack item.
    pub fn stack(&self) -> Option<(u64, &'a [u8])> {
        match self.item_type {
            ExtendedType::STACK_TRACE32 | ExtendedType::STACK_TRACE64 => {
                Some((u64_of(self.data.get(..8)?), &self.data[8..]))
            }
            _ => None,
        }
    }

    /// Match id and key of a stack key item.
    pub fn stack_key(&self) -> Option<(u64, u64)> {
        let key = match self.item_type {
            ExtendedType::STACK_KEY32 => {
                u64::from(u32::from_le_bytes(self.data.get(8..12)?.try_into().expect("four bytes")))
            }
            ExtendedType::STACK_KEY64 => u64_of(self.data.get(8..16)?),
            _ => return None,
        };
        Some((u64_of(self.data.get(..8)?), key))
    }

    /// The first 16 bytes of the data as a GUID; `None` if there are fewer.
    pub fn guid(&self) -> Option<Guid> {
        Some(Guid(self.data.get(..16)?.try_into().expect("sixteen bytes")))
    }
}

/// The items of one record, in file order.
#[derive(Clone, Copy, Debug)]
pub struct ExtendedItems<'a> {
    rest: &'a [u8],
    more: bool,
}

const ITEM_HEADER: usize = 8;

impl<'a> ExtendedItems<'a> {
    pub(super) fn new(after_header: &'a [u8]) -> ExtendedItems<'a> {
        ExtendedItems { rest: after_header, more: !after_header.is_empty() }
    }

    /// Size of all items with their padding in bytes, up to the start of the payload.
    pub(super) fn total_size(&self) -> usize {
        let mut walk = *self;
        walk.by_ref().for_each(drop);
        self.rest.len() - walk.rest.len()
    }

    /// The data of the first item of a type.
    pub fn find(mut self, item_type: ExtendedType) -> Option<&'a [u8]> {
        self.find_map(|item| (item.item_type == item_type).then_some(item.data))
    }
}

impl<'a> Iterator for ExtendedItems<'a> {
    type Item = ExtendedItem<'a>;

    fn next(&mut self) -> Option<ExtendedItem<'a>> {
        if !self.more {
            return None;
        }
        let word = |at: usize| self.rest.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let (Some(item_type), Some(linkage), Some(size)) = (word(2), word(4), word(6)) else {
            self.more = false;
            return None;
        };
        let end = ITEM_HEADER + usize::from(size);
        let Some(data) = self.rest.get(ITEM_HEADER..end) else {
            // The stated size is larger than the record, so all bytes after it are untrusted.
            (self.more, self.rest) = (false, &[]);
            return None;
        };
        self.more = linkage & 1 != 0;
        self.rest = self.rest.get(end.next_multiple_of(8)..).unwrap_or_default();
        Some(ExtendedItem { item_type: ExtendedType(item_type), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(item_type: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let stride = (8 + data.len()).next_multiple_of(8) as u16;
        let mut bytes: Vec<u8> = [stride, item_type, more.into(), data.len() as u16]
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect();
        bytes.extend(data);
        bytes.resize(stride.into(), 0);
        bytes
    }

    #[test]
    fn items_are_read_up_to_the_last_one() {
        let mut bytes = item(1, true, &[7; 16]);
        bytes.extend(item(6, true, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]));
        bytes.extend(item(0x10, true, b""));
        bytes.extend(item(0x0b, false, b"meta!"));
        let size = bytes.len();
        bytes.extend(b"payload after");
        let items = ExtendedItems::new(&bytes);
        assert_eq!(items.total_size(), size);
        let seen: Vec<_> = items.map(|item| (item.item_type.0, item.data.len())).collect();
        assert_eq!(seen, [(1, 16), (6, 16), (0x10, 0), (0x0b, 5)]);
        assert_eq!(items.find(ExtendedType::SCHEMA), Some(&b"meta!"[..]));
        let stack = items.clone().nth(1).unwrap();
        assert_eq!(stack.stack(), Some((1, &[2, 0, 0, 0, 0, 0, 0, 0][..])));
        assert_eq!(stack.stack_pointer_size(), Some(PointerSize::Eight));
    }

    #[test]
    fn stack_keys_have_two_sizes() {
        let match_id = [9, 0, 0, 0, 0, 0, 0, 0];
        for (item_type, key) in [(0x11, &[4, 3, 2, 1, 0, 0, 0, 0]), (0x12, &[4, 3, 2, 1, 0, 0, 0, 1])] {
            let bytes = item(item_type, false, &[&match_id[..], &key[..]].concat());
            let found = ExtendedItems::new(&bytes).next().unwrap().stack_key().unwrap();
            assert_eq!(found, (9, if item_type == 0x11 { 0x0102_0304 } else { 0x0100_0000_0102_0304 }));
        }
    }

    #[test]
    fn an_oversized_item_ends_the_list() {
        let mut bytes = item(1, true, &[7; 16]);
        let mut second = item(2, false, &[0; 8]);
        second[6] = 200;
        bytes.extend(second);
        let items = ExtendedItems::new(&bytes);
        assert_eq!(items.count(), 1);
        assert_eq!(items.total_size(), bytes.len());
    }
}
