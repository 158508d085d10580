//! What kinds of events tell beside their stacks: how the kernel was entered for them, and what was done.
//!
//! A kind that is not listed tells nothing. Sources: the documentation of the kernel's event classes at learn.microsoft.com,
//! the manifests of the providers, and in which functions of the kernel the events are written.

use stackhound_detect::Entry;
use stackhound_frames::Operation;
use stackhound_schema::kernel::hook_id;
use stackhound_schema::{kernel, provider_guid};
use stackhound_trace::Event;
use stackhound_types::Guid;

/// Where a kind of event says more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum PayloadKind {
    /// Nowhere.
    Nothing,
    /// The payload has the address of the service's routine.
    Service,
    /// A thread starts; by which fields it is read.
    ThreadStart(Source),
    /// An image is mapped.
    ImageLoad,
    /// Memory is allocated, maybe in another process.
    Allocation,
    /// The payload names a process that something is done to, and perhaps the rights that were asked for.
    Target,
}

/// Who wrote an event that both the kernel's class and a provider have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// The class.
    Class,
    /// The provider.
    Provider,
}

/// A kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Kind {
    /// How the kernel was entered.
    pub entry: Entry,
    /// What was done, if the kind alone tells.
    pub operation: Operation,
    /// Whether nothing but the services that the lists name for this operation causes such events. Drivers and the kernel
    /// itself call the routines of most others, on behalf of any service.
    pub has_causes: bool,
    /// Where it says more.
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

    /// Stands for all of it but where it says more: at most 7 bits.
    #[inline]
    pub fn number(self) -> u32 {
        self.entry as u32 | (self.operation as u32) << 2 | u32::from(self.has_causes) << 6
    }

    /// Of an event.
    #[inline]
    pub fn of(event: &Event<'_>) -> Kind {
        if let Some(hook_id) = event.hook_id() {
            return Kind::of_hook_id(hook_id);
        }
        if event.kind().is_classic() {
            let record = event.record();
            let hook_id = record.guid().map(|class| (class, record.opcode()));
            return hook_id
                .and_then(|(class, opcode)| kernel::hook_id_of(class, opcode))
                .map_or(Kind::OTHER, Kind::of_hook_id);
        }
        if event.kind().has_descriptor() {
            return event.guid().map_or(Kind::OTHER, |guid| Kind::of_described(guid, event.entry().tag));
        }
        Kind::OTHER
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
            // The thread that is switched to had waited, or been interrupted.
            hook_id::THREAD_C_SWITCH => Kind { operation: Operation::Wait, ..Kind::OTHER },
            // Faults; VirtualAlloc and VirtualFree
            hook_id::PAGE_FAULT_TRANSITION_FAULT..=hook_id::PAGE_FAULT_ACCESS_VIOLATION
            | hook_id::PAGE_FAULT_HARD_FAULT => Kind::interrupted(),
            hook_id::PAGE_FAULT_VIRTUAL_ALLOC => {
                Kind::called(Operation::MemoryAllocate).with_payload(PayloadKind::Allocation)
            }
            hook_id::PAGE_FAULT_VIRTUAL_FREE => Kind::called(Operation::Other),
            // Opens, changes and queries of files. Reads and writes are also those of faults.
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
            // Keys: create, delete, set value, delete value; then those that only look.
            hook_id::REGISTRY_CREATE
            | hook_id::REGISTRY_DELETE
            | hook_id::REGISTRY_SET_VALUE
            | hook_id::REGISTRY_DELETE_VALUE => Kind::called(Operation::RegistryChange),
            hook_id::REGISTRY_OPEN
            | hook_id::REGISTRY_QUERY
            | hook_id::REGISTRY_QUERY_VALUE..=hook_id::REGISTRY_FLUSH => Kind::called(Operation::Other),
            // Samples of the clock and of counters; interrupts and what is queued by them.
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

    fn of_described(provider: Guid, id: u16) -> Kind {
        match (provider, id) {
            (AUDIT, 2) => Kind::called(Operation::Other).with_payload(PayloadKind::Target),
            (AUDIT, 4) => Kind::called(Operation::ThreadControl),
            (AUDIT, 5 | 6) => Kind::called(Operation::ProcessOpen).with_payload(PayloadKind::Target),
            (PROCESS, 1) => Kind::called(Operation::ProcessCreate).caused(),
            (PROCESS, 3) => Kind::called(Operation::ThreadCreate)
                .caused()
                .with_payload(PayloadKind::ThreadStart(Source::Provider)),
            (PROCESS, 5) => Kind::called(Operation::ImageLoad),
            (THREATS, 1 | 6) => Kind::called(Operation::MemoryAllocate).with_payload(PayloadKind::Target),
            (THREATS, 2 | 7) => Kind::called(Operation::MemoryProtect).with_payload(PayloadKind::Target),
            (THREATS, 3 | 8) => Kind::called(Operation::MapView).with_payload(PayloadKind::Target),
            (THREATS, 4 | 5) => Kind::called(Operation::ThreadControl).with_payload(PayloadKind::Target),
            (THREATS, 11..=14) => Kind::called(Operation::MemoryAccess).with_payload(PayloadKind::Target),
            _ => Kind::OTHER,
        }
    }
}

/// Microsoft-Windows-Kernel-Audit-API-Calls.
const AUDIT: Guid = provider_guid::KERNEL_AUDIT_API_CALLS;
/// Microsoft-Windows-Kernel-Process.
const PROCESS: Guid = provider_guid::KERNEL_PROCESS;
/// Microsoft-Windows-Threat-Intelligence.
const THREATS: Guid = provider_guid::THREAT_INTELLIGENCE;
