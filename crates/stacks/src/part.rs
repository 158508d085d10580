//! Stack records as recorded: parts, key references and key definitions.
//!
//! Layouts: `docs/format/stacks.md`.

use stackhound_schema::kernel::hook_id;
use stackhound_trace::Event;
use stackhound_types::{Address, PointerSize, RawTime};

/// Maximum number of frames of a stack walk by Windows. A longer stack is truncated.
pub const WALK_FRAMES_MAX: u16 = 192;

/// The recorded frames of a part, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    pointer: PointerSize,
}

impl<'a> Frames<'a> {
    /// The whole pointers in `bytes`; remaining bytes are ignored.
    pub fn new(bytes: &'a [u8], pointer: PointerSize) -> Frames<'a> {
        let whole = bytes.len() - bytes.len() % pointer.bytes();
        Frames { bytes: &bytes[..whole], pointer }
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.pointer.bytes()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The addresses.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Address> + Clone + use<'a> {
        let pointer = self.pointer;
        self.bytes.chunks_exact(pointer.bytes()).map(move |bytes| {
            Address(match pointer {
                PointerSize::Four => u32::from_le_bytes(bytes.try_into().expect("four bytes")).into(),
                PointerSize::Eight => u64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            })
        })
    }

    /// The innermost frame.
    pub fn first(&self) -> Option<Address> {
        self.iter().next()
    }

    /// The outermost frame.
    pub fn last(&self) -> Option<Address> {
        self.iter().next_back()
    }
}

/// The triggering event that a part names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKey {
    /// The raw time of the event.
    pub time: RawTime,
    /// The process id, as recorded.
    pub pid: u32,
    /// The thread id, as recorded.
    pub tid: u32,
}

/// One stack record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackRecord<'a> {
    /// A part with its frames.
    Part(EventKey, Frames<'a>),
    /// A part by key; the flag says whether it is a kernel key.
    Reference(EventKey, u64, bool),
    /// The definition of a key: its number and frames.
    Definition(u64, Frames<'a>),
    /// A stack record that is too short to be read.
    Malformed,
}

/// Whether a hook id is that of a stack record.
#[inline]
pub fn is_stack_hook_id(hook_id: u16) -> bool {
    matches!(
        hook_id,
        hook_id::STACK_WALK_STACK | hook_id::STACK_WALK_KEY_CREATE..=hook_id::STACK_WALK_KEY_USER
    )
}

impl<'a> StackRecord<'a> {
    /// Reads an event with the hook id of a stack record.
    pub(crate) fn parse(event: &Event<'a>, hook_id: u16) -> StackRecord<'a> {
        let record = event.record();
        let (payload, pointer) = (record.payload(), record.pointer_size());
        StackRecord::read(hook_id, payload, pointer).unwrap_or(StackRecord::Malformed)
    }

    fn read(hook_id: u16, payload: &'a [u8], pointer: PointerSize) -> Option<StackRecord<'a>> {
        if matches!(
            hook_id,
            hook_id::STACK_WALK_KEY_CREATE | hook_id::STACK_WALK_KEY_DELETE | hook_id::STACK_WALK_KEY_RUNDOWN
        ) {
            let key = Frames::new(payload.get(..pointer.bytes())?, pointer).first()?;
            return Some(StackRecord::Definition(key.0, Frames::new(&payload[pointer.bytes()..], pointer)));
        }
        let u32_at = |at: usize| Some(u32::from_le_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        let time = RawTime(i64::from_le_bytes(payload.get(..8)?.try_into().ok()?));
        let trigger = EventKey { time, pid: u32_at(8)?, tid: u32_at(12)? };
        let frames = Frames::new(&payload[16..], pointer);
        Some(match hook_id {
            hook_id::STACK_WALK_STACK => StackRecord::Part(trigger, frames),
            _ => {
                StackRecord::Reference(trigger, frames.first()?.0, hook_id == hook_id::STACK_WALK_KEY_KERNEL)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_records_are_read_with_both_pointer_sizes() {
        let head: Vec<u8> = [&7i64.to_le_bytes()[..], &[5, 0, 0, 0], &[6, 0, 0, 0]].concat();
        let trigger = EventKey { time: RawTime(7), pid: 5, tid: 6 };
        let frames_64: Vec<u8> = [0x11u64, 0x22].iter().flat_map(|a| a.to_le_bytes()).collect();
        let frames_32: Vec<u8> = [0x11u32, 0x22].iter().flat_map(|a| a.to_le_bytes()).collect();
        for (pointer, frames) in [(PointerSize::Eight, &frames_64), (PointerSize::Four, &frames_32)] {
            let payload = [&head[..], frames].concat();
            let whole = Frames::new(frames, pointer);
            assert_eq!(
                StackRecord::read(hook_id::STACK_WALK_STACK, &payload, pointer),
                Some(StackRecord::Part(trigger, whole))
            );
            for (hook_id, kernel) in
                [(hook_id::STACK_WALK_KEY_KERNEL, true), (hook_id::STACK_WALK_KEY_USER, false)]
            {
                let expected = Some(StackRecord::Reference(trigger, 0x11, kernel));
                assert_eq!(StackRecord::read(hook_id, &payload, pointer), expected);
            }
            let rest = Frames::new(&frames[pointer.bytes()..], pointer);
            assert_eq!(rest.iter().collect::<Vec<_>>(), [Address(0x22)]);
            assert_eq!(
                StackRecord::read(hook_id::STACK_WALK_KEY_DELETE, frames, pointer),
                Some(StackRecord::Definition(0x11, rest))
            );
        }
    }

    #[test]
    fn short_records_are_malformed() {
        for (hook_id, size) in [
            (hook_id::STACK_WALK_STACK, 15),
            (hook_id::STACK_WALK_KEY_KERNEL, 16),
            (hook_id::STACK_WALK_KEY_USER, 23),
            (hook_id::STACK_WALK_KEY_DELETE, 7),
        ] {
            assert_eq!(StackRecord::read(hook_id, &vec![0; size], PointerSize::Eight), None, "{hook_id:#x}");
        }
    }
}
