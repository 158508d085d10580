//! Changes of the memory of processes, as events report them.
//!
//! Sources: the class PageFault (VirtualAlloc, VirtualFree) and the class FileIo (MapFile,
//! UnmapFile) of the kernel logger, and Microsoft-Windows-Threat-Intelligence. The kernel logger
//! reports every allocation, without its protection. Windows writes the events of the provider only
//! for memory that is or becomes executable, and reports writes only for processes that were
//! selected. The meaning of the provider's fields was never checked against Windows.

use stackhound_pipeline::EventView;
use stackhound_schema::kernel::{hook_id, view};
use stackhound_types::{Address, Pid, Tid};

use crate::threat::{self, ThreatEvent, ThreatKind};

/// A change of the memory of a process that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryChange {
    /// The kind of change.
    pub kind: MemoryChangeKind,
    /// The process that owns the memory.
    pub target: Pid,
    /// The address of the first byte.
    pub base: Address,
    /// The size in bytes. For [`MemoryChangeKind::Free`], 0 means the whole region that was
    /// reserved at `base`.
    pub size: u64,
    /// The protection after the change; `None` if the event does not state it.
    pub protection: Option<PageProtection>,
    /// The protection before the change, which only [`MemoryChangeKind::Protect`] has.
    pub old_protection: Option<PageProtection>,
    /// The protection with which the region was allocated, from newer versions of the provider.
    pub allocation_protection: Option<PageProtection>,
    /// The kind of the region: `MEM_PRIVATE` 0x20000, `MEM_MAPPED` 0x40000, `MEM_IMAGE` 0x1000000;
    /// from newer versions of the provider.
    pub region_type: Option<u32>,
    /// The process of the calling thread; `None` if the event does not state it.
    pub actor: Option<Pid>,
    /// The calling thread.
    pub actor_thread: Option<Tid>,
    /// Whether kernel-mode code made the call, such as a driver; `None` if the event does not state
    /// it.
    pub is_by_kernel: Option<bool>,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryChangeKind {
    /// Memory was reserved or committed.
    Allocate,
    /// Memory was decommitted or released.
    Free,
    /// The protection was changed.
    Protect,
    /// A section was mapped: a file, an image or memory of the page file.
    Map,
    /// A section was unmapped.
    Unmap,
    /// Bytes were written through a system call for memory of any process. The size is that of the
    /// bytes that were written.
    Write,
}

/// The protection of pages, as a constant `PAGE_*` with its modifiers, such as `PAGE_GUARD`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageProtection(pub u32);

impl PageProtection {
    /// The constant for the number that the memory manager uses in MapFile events.
    fn of_section(number: u8) -> PageProtection {
        PageProtection([0x01, 0x02, 0x10, 0x20, 0x04, 0x08, 0x40, 0x80][usize::from(number & 7)])
    }
}

/// The kinds of events that report changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChangeEvent {
    /// Of the kernel logger, about private memory.
    Allocation(MemoryChangeKind),
    /// Of the kernel logger, about a section.
    Section(MemoryChangeKind),
    /// Of Microsoft-Windows-Threat-Intelligence.
    Threat,
}

impl ChangeEvent {
    /// The kind of an event, by its ids. `kernel_id` is that of the event.
    #[inline]
    pub(crate) fn of(view: &EventView<'_>, kernel_id: Option<u16>) -> Option<ChangeEvent> {
        let Some(hook_id) = kernel_id else {
            // The id is in the entry. The provider is in the record, which is not read for most events.
            change_kind(threat::facts_of(view.event().entry().tag)?.kind)?;
            return threat::of_event(view.event()).map(|_| ChangeEvent::Threat);
        };
        match hook_id {
            hook_id::PAGE_FAULT_VIRTUAL_ALLOC => Some(ChangeEvent::Allocation(MemoryChangeKind::Allocate)),
            hook_id::PAGE_FAULT_VIRTUAL_FREE => Some(ChangeEvent::Allocation(MemoryChangeKind::Free)),
            hook_id::FILE_IO_MAP_FILE => Some(ChangeEvent::Section(MemoryChangeKind::Map)),
            hook_id::FILE_IO_UNMAP_FILE => Some(ChangeEvent::Section(MemoryChangeKind::Unmap)),
            _ => None,
        }
    }
}

/// The change that an operation is, if any.
fn change_kind(kind: ThreatKind) -> Option<MemoryChangeKind> {
    match kind {
        ThreatKind::Allocate => Some(MemoryChangeKind::Allocate),
        ThreatKind::Protect => Some(MemoryChangeKind::Protect),
        ThreatKind::MapView => Some(MemoryChangeKind::Map),
        ThreatKind::WriteMemory => Some(MemoryChangeKind::Write),
        _ => None,
    }
}

impl MemoryChange {
    /// The change that an event reports. `None` for other events, for calls that failed, and for
    /// payloads that cannot be read. Rundown events are not changes. Costs a comparison of ids for
    /// most events.
    pub fn of(view: &EventView<'_>) -> Option<MemoryChange> {
        MemoryChange::read(view, ChangeEvent::of(view, view.kernel_id())?)
    }

    /// The change that an event of a kind reports.
    pub(crate) fn read(event: &EventView<'_>, kind: ChangeEvent) -> Option<MemoryChange> {
        let record = event.event().record();
        let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
        // Without an id in the header or the stack, the id of an event is that of the target.
        let (actor, actor_thread) = (event.delivered().pid(), event.delivered().tid());
        let (kind, target, base, size, protection) = match kind {
            ChangeEvent::Allocation(kind) => {
                let memory = view::VirtualAllocation::parse(payload, version, pointer).ok()?;
                (kind, memory.process_id, memory.base_address, memory.region_size, None)
            }
            ChangeEvent::Section(kind) => {
                let section = view::MapFile::parse(payload, version, pointer).ok()?;
                let protection = PageProtection::of_section(section.protection());
                let protection = (kind == MemoryChangeKind::Map).then_some(protection);
                (kind, section.process_id, section.view_base, section.view_size, protection)
            }
            ChangeEvent::Threat => return MemoryChange::of_threat(&ThreatEvent::of(event)?),
        };
        Some(MemoryChange {
            kind,
            target: Pid::known(target.0)?,
            base,
            size,
            protection,
            old_protection: None,
            allocation_protection: None,
            region_type: None,
            actor,
            actor_thread,
            is_by_kernel: None,
        })
    }

    fn of_threat(event: &ThreatEvent) -> Option<MemoryChange> {
        let kind = change_kind(event.kind)?;
        let size = event.size?;
        // A failed write can have copied the first pages.
        if size == 0 || (kind != MemoryChangeKind::Write && event.has_failed()) {
            return None;
        }
        Some(MemoryChange {
            kind,
            target: event.target?,
            base: event.base?,
            size,
            protection: event.protection,
            old_protection: event.old_protection,
            allocation_protection: event.allocation_protection,
            region_type: event.region_type,
            actor: event.actor,
            actor_thread: event.actor_thread,
            is_by_kernel: Some(event.is_by_kernel),
        })
    }
}
