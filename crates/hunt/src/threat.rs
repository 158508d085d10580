//! Operations that Microsoft-Windows-Threat-Intelligence reports.
//!
//! The ids state the operation, whether it concerns another process, and whether kernel-mode code
//! made the call. Sources: the manifest of the provider from Windows 10, version 1703, to Windows
//! 11, version 26H1. No trace of the provider was available, so nothing here was checked against
//! Windows. The payload's `OriginalProcess` fields are not used, because their meaning is not
//! documented.

use stackhound_frames::Operation;
use stackhound_pipeline::EventView;
use stackhound_schema::provider_guid;
use stackhound_trace::Event;
use stackhound_types::{Address, Pid, Tid};

use crate::memory_change::PageProtection;

/// An operation with the facts that its event states. Facts are `None` if the version of the event
/// does not have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreatEvent {
    /// The operation.
    pub kind: ThreatKind,
    /// Whether the id states that the target is another process; `None` if it states nothing.
    pub is_remote: Option<bool>,
    /// Whether the id states a caller in kernel mode.
    pub is_by_kernel: bool,
    /// The process of the calling thread.
    pub actor: Option<Pid>,
    /// The calling thread.
    pub actor_thread: Option<Tid>,
    /// The process whose memory or thread is concerned.
    pub target: Option<Pid>,
    /// The thread that is concerned.
    pub target_thread: Option<Tid>,
    /// The address of the region; the routine of an asynchronous procedure call; the instruction
    /// pointer of a changed context.
    pub base: Option<Address>,
    /// The size of the region in bytes, or the number of bytes that were copied.
    pub size: Option<u64>,
    /// The protection after the operation.
    pub protection: Option<PageProtection>,
    /// The protection before it was changed.
    pub old_protection: Option<PageProtection>,
    /// The protection with which the region was allocated.
    pub allocation_protection: Option<PageProtection>,
    /// The kind of the region (`MEM_PRIVATE`, `MEM_MAPPED`, `MEM_IMAGE`).
    pub region_type: Option<u32>,
    /// The NTSTATUS of the operation.
    pub status: Option<u32>,
}

/// An operation of the provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThreatKind {
    /// Executable memory was allocated.
    Allocate,
    /// Memory became executable, or was executable before.
    Protect,
    /// A section was mapped as executable.
    MapView,
    /// An asynchronous procedure call was queued.
    QueueApc,
    /// The context of a thread was set.
    SetContext,
    /// Memory of a process was read.
    ReadMemory,
    /// Memory of a process was written.
    WriteMemory,
    /// A thread was suspended.
    SuspendThread,
    /// A thread was resumed.
    ResumeThread,
    /// A process was suspended.
    SuspendProcess,
    /// A process was resumed.
    ResumeProcess,
    /// A process was frozen.
    FreezeProcess,
    /// A process was thawed.
    ThawProcess,
    /// A driver was loaded.
    LoadDriver,
    /// A driver was unloaded.
    UnloadDriver,
    /// A device was created or deleted, opened or closed; sources differ.
    Device,
    /// A thread began, changed or ended an impersonation.
    Impersonate,
    /// A process without administrative rights used a selected system call for the first time.
    FirstUse,
}

/// What the id of an event states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IdFacts {
    pub kind: ThreatKind,
    pub is_remote: Option<bool>,
    pub is_by_kernel: bool,
}

/// The highest known id.
pub(crate) const ID_MAX: u16 = 36;

/// What an id states; `None` for unknown ids.
pub(crate) const fn facts_of(id: u16) -> Option<IdFacts> {
    use ThreatKind as K;
    const LOCAL: Option<bool> = Some(false);
    const REMOTE: Option<bool> = Some(true);
    let (kind, is_remote, is_by_kernel) = match id {
        1 => (K::Allocate, REMOTE, false),
        6 => (K::Allocate, LOCAL, false),
        21 => (K::Allocate, REMOTE, true),
        26 => (K::Allocate, LOCAL, true),
        2 => (K::Protect, REMOTE, false),
        7 => (K::Protect, LOCAL, false),
        22 => (K::Protect, REMOTE, true),
        27 => (K::Protect, LOCAL, true),
        3 => (K::MapView, REMOTE, false),
        8 => (K::MapView, LOCAL, false),
        23 => (K::MapView, REMOTE, true),
        28 => (K::MapView, LOCAL, true),
        4 => (K::QueueApc, REMOTE, false),
        9 => (K::QueueApc, LOCAL, false),
        24 => (K::QueueApc, REMOTE, true),
        5 => (K::SetContext, REMOTE, false),
        10 => (K::SetContext, LOCAL, false),
        25 => (K::SetContext, REMOTE, true),
        11 => (K::ReadMemory, LOCAL, false),
        13 => (K::ReadMemory, REMOTE, false),
        12 => (K::WriteMemory, LOCAL, false),
        14 => (K::WriteMemory, REMOTE, false),
        15 => (K::SuspendThread, None, false),
        16 => (K::ResumeThread, None, false),
        17 => (K::SuspendProcess, None, false),
        18 => (K::ResumeProcess, None, false),
        19 => (K::FreezeProcess, None, false),
        20 => (K::ThawProcess, None, false),
        29 => (K::LoadDriver, None, false),
        30 => (K::UnloadDriver, None, false),
        31 | 32 => (K::Device, None, false),
        33 | 34 | 36 => (K::Impersonate, None, false),
        35 => (K::FirstUse, None, false),
        _ => return None,
    };
    Some(IdFacts { kind, is_remote, is_by_kernel })
}

/// What the id of an event states; `None` for events of other providers and unknown ids.
pub(crate) fn of_event(event: &Event<'_>) -> Option<IdFacts> {
    if !event.kind().has_descriptor() {
        return None;
    }
    let facts = facts_of(event.entry().tag)?;
    (event.guid() == Some(provider_guid::THREAT_INTELLIGENCE)).then_some(facts)
}

impl ThreatKind {
    /// The operation that detections know.
    pub const fn operation(self) -> Operation {
        match self {
            ThreatKind::Allocate => Operation::MemoryAllocate,
            ThreatKind::Protect => Operation::MemoryProtect,
            ThreatKind::MapView => Operation::MapView,
            ThreatKind::ReadMemory | ThreatKind::WriteMemory => Operation::MemoryAccess,
            ThreatKind::QueueApc
            | ThreatKind::SetContext
            | ThreatKind::SuspendThread
            | ThreatKind::ResumeThread
            | ThreatKind::SuspendProcess
            | ThreatKind::ResumeProcess
            | ThreatKind::FreezeProcess
            | ThreatKind::ThawProcess => Operation::ThreadControl,
            ThreatKind::LoadDriver => Operation::DriverLoad,
            ThreatKind::UnloadDriver
            | ThreatKind::Device
            | ThreatKind::Impersonate
            | ThreatKind::FirstUse => Operation::Other,
        }
    }
}

impl ThreatEvent {
    /// The operation that an event reports; `None` for events of other providers, unknown ids, and
    /// payloads that cannot be read.
    pub fn of(view: &EventView<'_>) -> Option<ThreatEvent> {
        let IdFacts { kind, is_remote, is_by_kernel } = of_event(view.event())?;
        let number = |field: &str| view.field(field)?.1.as_u64();
        let small = |field: &str| u32::try_from(number(field)?).ok();
        let protection = |field: &str| small(field).map(PageProtection);
        // Without a successful query, the fields about the region contain nothing.
        let has_region = small("VaVadQueryResult") == Some(0);
        let of_region = |field: &str| if has_region { small(field) } else { None };
        let (base, size) = match kind {
            ThreatKind::QueueApc => ("ApcRoutine", ""),
            ThreatKind::SetContext => ("Pc", ""),
            ThreatKind::MapView => ("BaseAddress", "ViewSize"),
            ThreatKind::ReadMemory | ThreatKind::WriteMemory => ("BaseAddress", "BytesCopied"),
            _ => ("BaseAddress", "RegionSize"),
        };
        Some(ThreatEvent {
            kind,
            is_remote,
            is_by_kernel,
            actor: small("CallingProcessId").and_then(Pid::known),
            actor_thread: small("CallingThreadId").and_then(Tid::known),
            target: small("TargetProcessId").and_then(Pid::known),
            target_thread: small("TargetThreadId").and_then(Tid::known),
            base: number(base).map(Address),
            size: number(size),
            protection: protection("ProtectionMask"),
            old_protection: protection("LastProtectionMask"),
            allocation_protection: of_region("VaVadAllocationProtect").map(PageProtection),
            region_type: of_region("VaVadRegionType"),
            status: small("OperationStatus"),
        })
    }

    /// Whether the event states that the operation failed. Events without a status are written only
    /// for operations that succeeded.
    pub fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| status >> 31 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_above_the_highest_is_known() {
        let highest = (0..=u16::MAX).filter(|id| facts_of(*id).is_some()).max();
        assert_eq!(highest, Some(ID_MAX));
    }
}
