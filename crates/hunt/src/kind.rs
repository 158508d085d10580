//! Facts that depend on the kind of an event: how the kernel was entered, and the operation.
//!
//! Kinds that are not listed have none. Sources: the documentation of the kernel's event classes on
//! Microsoft Learn, the manifests of providers, and the functions of the kernel that write the
//! events.

use stackhound_detect::Entry;
use stackhound_frames::Operation;
use stackhound_pipeline::EventView;
use stackhound_schema::event_id::{kernel_audit_api_calls, kernel_process};
use stackhound_schema::kernel::hook_id;
use stackhound_schema::provider_guid;
use stackhound_types::Guid;

use crate::threat::{self, IdFacts, ThreatKind};

/// The facts in the payload of a kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PayloadKind {
    /// None.
    Nothing,
    /// The address of the service's routine.
    Service,
    /// The start of a thread, in the fields of this source.
    ThreadStart(Source),
    /// The mapping of an image.
    ImageLoad,
    /// The allocation of memory, possibly in another process.
    Allocation,
    /// A target process, and possibly the requested access rights.
    Target,
}

/// The source of an event that both the kernel class and a provider can write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// The kernel class.
    Class,
    /// The provider.
    Provider,
}

/// A kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Kind {
    /// How the kernel was entered.
    pub entry: Entry,
    /// The operation, if the kind determines it.
    pub operation: Operation,
    /// Whether only the services that the lists name for this operation cause such events. Most
    /// other routines are also called by drivers and the kernel itself, on behalf of any service.
    pub has_causes: bool,
    /// The facts in the payload.
    pub payload: PayloadKind,
}

impl Kind {
    const OTHER: Kind = Kind {
        entry: Entry::Unknown,
        operation: Operation::Other,
        has_causes: false,
        payload: PayloadKind::Nothing,
    };

    const fn called(operation: Operation) -> Kind {
        Kind { entry: Entry::SystemCall, operation, ..Kind::OTHER }
    }

    const fn interrupted() -> Kind {
        Kind { entry: Entry::Interrupt, ..Kind::OTHER }
    }

    const fn caused(self) -> Kind {
        Kind { has_causes: true, ..self }
    }

    const fn with_payload(self, payload: PayloadKind) -> Kind {
        Kind { payload, ..self }
    }

    /// A number for all fields except for `payload`, of at most 7 bits.
    #[inline]
    pub fn number(self) -> u32 {
        self.entry as u32 | (self.operation as u32) << 2 | u32::from(self.has_causes) << 6
    }

    /// The kind of an event. Reads the bytes of few records, because most events do not have an id
    /// that matters.
    #[inline]
    pub fn of(view: &EventView<'_>) -> Kind {
        let event = view.event();
        if event.kind().has_descriptor() {
            return Kind::of_manifest_event(event.entry().tag, || event.guid());
        }
        view.kernel_id().map_or(Kind::OTHER, Kind::of_hook_id)
    }

    const fn of_hook_id(hook_id: u16) -> Kind {
        match hook_id {
            // Process/Start, Thread/Start, Thread/SetName
            hook_id::PROCESS_START => Kind::called(Operation::ProcessCreate).caused(),
            hook_id::THREAD_START => Kind::called(Operation::ThreadCreate)
                .caused()
                .with_payload(PayloadKind::ThreadStart(Source::Class)),
            hook_id::THREAD_SET_NAME => Kind::called(Operation::Other),
            // Image/Load
            hook_id::IMAGE_LOAD | hook_id::IMAGE_LOAD_140A => {
                Kind::called(Operation::ImageLoad).with_payload(PayloadKind::ImageLoad)
            }
            // The thread that is switched to had waited or been interrupted.
            hook_id::THREAD_C_SWITCH => Kind { operation: Operation::Wait, ..Kind::OTHER },
            // Faults; VirtualAlloc and VirtualFree
            hook_id::PAGE_FAULT_TRANSITION_FAULT..=hook_id::PAGE_FAULT_ACCESS_VIOLATION
            | hook_id::PAGE_FAULT_HARD_FAULT => Kind::interrupted(),
            hook_id::PAGE_FAULT_VIRTUAL_ALLOC => {
                Kind::called(Operation::MemoryAllocate).with_payload(PayloadKind::Allocation)
            }
            hook_id::PAGE_FAULT_VIRTUAL_FREE => Kind::called(Operation::Other),
            // Opens, changes and queries of files. Reads and writes can also be caused by faults.
            hook_id::FILE_IO_CREATE | hook_id::FILE_IO_CREATE_NEW => Kind::called(Operation::Other),
            hook_id::FILE_IO_SET_INFO..=hook_id::FILE_IO_RENAME | hook_id::FILE_IO_SET_LINK => {
                Kind::called(Operation::FileChange)
            }
            hook_id::FILE_IO_DIR_ENUM
            | hook_id::FILE_IO_QUERY_INFO
            | hook_id::FILE_IO_FS_CONTROL
            | hook_id::FILE_IO_DIR_NOTIFY
            | hook_id::FILE_IO_QUERY_SECURITY
            | hook_id::FILE_IO_QUERY_EA => Kind::called(Operation::Other),
            // Keys: create, delete, set value, delete value; then operations that only read.
            hook_id::REGISTRY_CREATE
            | hook_id::REGISTRY_DELETE
            | hook_id::REGISTRY_SET_VALUE
            | hook_id::REGISTRY_DELETE_VALUE => Kind::called(Operation::RegistryChange),
            hook_id::REGISTRY_OPEN
            | hook_id::REGISTRY_QUERY
            | hook_id::REGISTRY_QUERY_VALUE..=hook_id::REGISTRY_FLUSH => Kind::called(Operation::Other),
            // Samples of clocks and counters; interrupts and deferred procedure calls.
            hook_id::PERF_INFO_SAMPLED_PROFILE
            | hook_id::PERF_INFO_PMC_COUNTER_PROFILE
            | hook_id::PERF_INFO_ISR_MSI
            | hook_id::PERF_INFO_THREADED_DPC..=hook_id::PERF_INFO_SAMPLED_PROFILE_NMI
            | hook_id::PERF_INFO_ISR_UNEXPECTED
            | hook_id::PERF_INFO_ISR_PASS => Kind::interrupted(),
            // SysCallEnter, SysCallExit
            hook_id::PERF_INFO_SYS_CALL_ENTER => {
                Kind::called(Operation::Other).with_payload(PayloadKind::Service)
            }
            hook_id::PERF_INFO_SYS_CALL_EXIT => Kind::called(Operation::Other),
            _ => Kind::OTHER,
        }
    }

    #[inline]
    fn of_manifest_event(id: u16, provider: impl FnOnce() -> Option<Guid>) -> Kind {
        // The other providers have lower ids.
        if id > threat::ID_MAX {
            return Kind::OTHER;
        }
        match (provider(), id) {
            (Some(AUDIT), kernel_audit_api_calls::TERMINATE_PROCESS) => {
                Kind::called(Operation::Other).with_payload(PayloadKind::Target)
            }
            (Some(AUDIT), kernel_audit_api_calls::SET_THREAD_CONTEXT) => {
                Kind::called(Operation::ThreadControl)
            }
            (Some(AUDIT), kernel_audit_api_calls::OPEN_PROCESS | kernel_audit_api_calls::OPEN_THREAD) => {
                Kind::called(Operation::ProcessOpen).with_payload(PayloadKind::Target)
            }
            (Some(PROCESS), kernel_process::PROCESS_START) => Kind::called(Operation::ProcessCreate).caused(),
            (Some(PROCESS), kernel_process::THREAD_START) => Kind::called(Operation::ThreadCreate)
                .caused()
                .with_payload(PayloadKind::ThreadStart(Source::Provider)),
            (Some(PROCESS), kernel_process::IMAGE_LOAD) => Kind::called(Operation::ImageLoad),
            (Some(THREATS), id) => threat::facts_of(id).map_or(Kind::OTHER, Kind::of_threat),
            _ => Kind::OTHER,
        }
    }

    fn of_threat(IdFacts { kind, is_by_kernel, .. }: IdFacts) -> Kind {
        // Drivers call on behalf of any service, and other threads finish the rest.
        let is_requested = !is_by_kernel
            && !matches!(
                kind,
                ThreatKind::FreezeProcess
                    | ThreatKind::ThawProcess
                    | ThreatKind::LoadDriver
                    | ThreatKind::UnloadDriver
                    | ThreatKind::Device
                    | ThreatKind::Impersonate
            );
        let entry = if is_requested { Entry::SystemCall } else { Entry::Unknown };
        Kind { entry, operation: kind.operation(), ..Kind::OTHER }.with_payload(PayloadKind::Target)
    }
}

/// Microsoft-Windows-Kernel-Audit-API-Calls.
const AUDIT: Guid = provider_guid::KERNEL_AUDIT_API_CALLS;
/// Microsoft-Windows-Kernel-Process.
const PROCESS: Guid = provider_guid::KERNEL_PROCESS;
/// Microsoft-Windows-Threat-Intelligence.
const THREATS: Guid = provider_guid::THREAT_INTELLIGENCE;
