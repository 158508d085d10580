//! Which events can trigger a stack, and the thread of an event without a thread id in its header.
//!
//! The rules are those of `docs/format/stacks.md`. They are applied only to events with exactly the
//! time that a stack part names, so they can afford to read payloads.

use std::fmt;

use stackhound_etl::record::HeaderKind;
use stackhound_schema::kernel::{hook_id, is_added_by_tools, is_disk_completion, is_sample};
use stackhound_trace::Event;
use stackhound_types::{Guid, PointerSize, Tid};

/// The kind of a triggering event, as far as it can be determined without a schema.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TriggerKind {
    /// A kernel event, by its hook id.
    Hook(u16),
    /// A classic event, by its class and opcode.
    Classic(Guid, u8),
    /// A manifest event, by its provider and event id.
    Manifest(Guid, u16),
    /// A WPP message or an error.
    Other,
}

impl fmt::Debug for TriggerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TriggerKind::Hook(hook_id) => write!(f, "Hook({hook_id:#06x})"),
            TriggerKind::Classic(class, opcode) => write!(f, "Classic({class}, {opcode})"),
            TriggerKind::Manifest(provider, id) => write!(f, "Manifest({provider}, {id})"),
            TriggerKind::Other => write!(f, "Other"),
        }
    }
}

impl TriggerKind {
    /// The kind of an event.
    pub fn of(event: &Event<'_>) -> TriggerKind {
        let entry = event.entry();
        match entry.kind() {
            kind if kind.has_hook_id() => TriggerKind::Hook(entry.tag),
            kind if kind.is_classic() => {
                TriggerKind::Classic(event.guid().unwrap_or(Guid::ZERO), entry.tag as u8)
            }
            HeaderKind::Event32 | HeaderKind::Event64 => {
                TriggerKind::Manifest(event.guid().unwrap_or(Guid::ZERO), entry.tag)
            }
            _ => TriggerKind::Other,
        }
    }
}

/// Whether an event can be the one a stack part was taken for.
pub(crate) fn can_trigger(event: &Event<'_>) -> bool {
    let entry = event.entry();
    if entry.kind().is_classic() {
        return event.guid().is_none_or(|class| !is_added_by_tools(class));
    }
    match entry.hook_id() {
        // Session header, system configuration, stack records.
        Some(hook_id) if matches!(hook_id >> 8, 0x00 | 0x0b | 0x18) => false,
        // Completions: the stack belongs to the event that issued the transfer.
        Some(hook_id) if is_disk_completion(hook_id) => false,
        // Rundown of processes, counters, threads, images, files, mappings, keys, hives, regions,
        // objects.
        Some(
            hook_id::PROCESS_DC_START
            | hook_id::PROCESS_DC_END
            | hook_id::PROCESS_PERF_CTR_RUNDOWN
            | hook_id::PROCESS_DEFUNCT
            | hook_id::THREAD_DC_START
            | hook_id::THREAD_DC_END
            | hook_id::IMAGE_DC_START
            | hook_id::IMAGE_DC_END
            | hook_id::IMAGE_KERNEL_BASE
            | hook_id::IMAGE_HYPERCALL_PAGE,
        ) => false,
        Some(
            hook_id::FILE_IO_FILE_RUNDOWN
            | hook_id::FILE_IO_MAP_FILE_DC_START
            | hook_id::FILE_IO_MAP_FILE_DC_END
            | hook_id::REGISTRY_KCB_RUNDOWN_BEGIN
            | hook_id::REGISTRY_KCB_RUNDOWN_END
            | hook_id::REGISTRY_HIVE_DC_END
            | hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_START
            | hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_END
            | hook_id::OBJECT_TYPE_DC_START..=hook_id::OBJECT_HANDLE_DC_END,
        ) => false,
        Some(
            hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START
                ..=hook_id::PERF_INFO_E_RESOURCE_DC_END,
        ) => false,
        _ => true,
    }
}

/// The thread of an event: the header's, or the payload's for kernel events that have it there
/// only.
pub(crate) fn thread_of(event: &Event<'_>) -> Option<Tid> {
    let record = event.record();
    if let Some(tid) = record.tid() {
        return Some(tid);
    }
    let wide = record.pointer_size() == PointerSize::Eight;
    let at = match event.hook_id()? {
        // Sampled profile and counter interrupt: after the instruction pointer.
        hook_id if is_sample(hook_id) => record.pointer_size().bytes(),
        // Hard fault: after time, offset and two pointers.
        hook_id::PAGE_FAULT_HARD_FAULT => {
            if wide {
                0x20
            } else {
                0x18
            }
        }
        // Context switch: the new thread.
        hook_id::THREAD_C_SWITCH => 0,
        _ => return None,
    };
    let bytes = record.payload().get(at..at + 4)?;
    Tid::known(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The instruction pointer of a sample.
pub(crate) fn sampled_address(event: &Event<'_>) -> Option<stackhound_types::Address> {
    let record = event.record();
    is_sample(event.hook_id()?)
        .then(|| crate::part::Frames::new(record.payload(), record.pointer_size()).first())?
}
