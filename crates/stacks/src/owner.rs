//! Who can own a stack, and which thread an event without a thread in its header belongs to.
//!
//! The rules are those of `docs/format/stacks.md`; they only ever look at events that have exactly the time a stack part
//! names, so they may read payloads.

use std::fmt;

use stackhound_etl::record::HeaderKind;
use stackhound_etl::{Guid, PointerSize, Tid};
use stackhound_trace::Event;

/// What kind of event owns a stack: as much as can be said without a schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnerKind {
    /// A kernel event's hook.
    Hook(u16),
    /// A classic event's class and opcode.
    Classic(Guid, u8),
    /// A provider and event id.
    Described(Guid, u16),
    /// A WPP message or an error.
    Other,
}

impl fmt::Debug for OwnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerKind::Hook(hook) => write!(f, "Hook({hook:#06x})"),
            OwnerKind::Classic(class, opcode) => write!(f, "Classic({class}, {opcode})"),
            OwnerKind::Described(provider, id) => write!(f, "Described({provider}, {id})"),
            OwnerKind::Other => write!(f, "Other"),
        }
    }
}

impl OwnerKind {
    /// The kind of an event.
    pub fn of(event: &Event<'_>) -> OwnerKind {
        let entry = event.entry();
        match entry.kind() {
            kind if kind.has_hook() => OwnerKind::Hook(entry.tag),
            kind if kind.is_classic() => {
                OwnerKind::Classic(event.guid().unwrap_or(Guid::ZERO), entry.tag as u8)
            }
            HeaderKind::Event32 | HeaderKind::Event64 => {
                OwnerKind::Described(event.guid().unwrap_or(Guid::ZERO), entry.tag)
            }
            _ => OwnerKind::Other,
        }
    }
}

/// Events that merging tools write beside real ones, with the times of real ones: image identities, embedded metadata,
/// system paths and volumes; and the markers of lost events.
const SYNTHETIC: [Guid; 4] = [
    Guid::new(0xb3e675d7, 0x2554, 0x4f18, [0x83, 0x0b, 0x27, 0x62, 0x73, 0x25, 0x60, 0xde]),
    Guid::new(0xbbccf6c1, 0x6cd1, 0x48c4, [0x80, 0xff, 0x83, 0x94, 0x82, 0xe3, 0x76, 0x71]),
    Guid::new(0x9b79ee91, 0xb5fd, 0x41c0, [0xa2, 0x43, 0x42, 0x48, 0xe2, 0x66, 0xe9, 0xd0]),
    Guid::new(0x6a399ae0, 0x4bc6, 0x4de9, [0x87, 0x0b, 0x36, 0x57, 0xf8, 0x94, 0x7e, 0x7e]),
];

/// Whether events of a class are written by merging tools beside real ones: their threads are those of the tool.
pub fn is_added_by_tools(class: Guid) -> bool {
    SYNTHETIC.contains(&class)
}

/// Whether an event can be the one a stack part was taken for.
pub(crate) fn can_own(event: &Event<'_>) -> bool {
    let entry = event.entry();
    if entry.kind().is_classic() {
        return event.guid().is_none_or(|class| !is_added_by_tools(class));
    }
    match entry.hook() {
        // Session header, system configuration, stack records.
        Some(hook) if matches!(hook >> 8, 0x00 | 0x0b | 0x18) => false,
        // Completions: the stack belongs to the event that issued the transfer.
        Some(0x010a | 0x010b | 0x010e | 0x0137 | 0x0138 | 0x0139) => false,
        // Rundown of processes, counters, threads, images, files, mappings, keys, hives, regions, objects.
        Some(0x0303 | 0x0304 | 0x0321 | 0x0327 | 0x0503 | 0x0504 | 0x1403 | 0x1404 | 0x1421 | 0x1422) => {
            false
        }
        Some(0x0424 | 0x0427 | 0x0428 | 0x0918 | 0x0919 | 0x0927 | 0x0280 | 0x0281 | 0x1124..=0x1127) => {
            false
        }
        Some(0x0f49..=0x0f4e) => false,
        _ => true,
    }
}

/// The thread of an event: the header's, or the payload's for kernel events that have it there only.
pub(crate) fn thread_of(event: &Event<'_>) -> Option<Tid> {
    let record = event.record();
    if let Some(tid) = record.tid() {
        return Some(tid);
    }
    let wide = record.pointer_size() == PointerSize::Eight;
    let at = match event.hook()? {
        // Sampled profile and counter interrupt: behind the instruction pointer.
        0x0f2e | 0x0f2f => record.pointer_size().bytes(),
        // Hard fault: behind time, offset and two pointers.
        0x0220 => {
            if wide {
                0x20
            } else {
                0x18
            }
        }
        // Context switch: the new thread.
        0x0524 => 0,
        _ => return None,
    };
    let bytes = record.payload().get(at..at + 4)?;
    Tid::known(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The instruction pointer of a sample.
pub(crate) fn sampled_address(event: &Event<'_>) -> Option<stackhound_etl::Address> {
    let record = event.record();
    matches!(event.hook()?, 0x0f2e | 0x0f2f)
        .then(|| crate::part::Frames::new(record.payload(), record.pointer_size()).first())?
}
