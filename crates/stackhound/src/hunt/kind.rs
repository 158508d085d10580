//! What kinds of events tell beside their stacks: how the kernel was entered for them, and what was done.
//!
//! A kind that is not listed tells nothing. Sources: the documentation of the kernel's event classes at learn.microsoft.com,
//! the manifests of the providers, and in which functions of the kernel the events are written.

use stackhound_detect::Entry;
use stackhound_etl::Guid;
use stackhound_frames::Operation;
use stackhound_schema::kernel;
use stackhound_trace::Event;

/// Where a kind of event says more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Tells {
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
    pub tells: Tells,
}

impl Kind {
    const OTHER: Kind =
        Kind { entry: Entry::Unknown, operation: Operation::Other, has_causes: false, tells: Tells::Nothing };

    const fn called(operation: Operation) -> Kind {
        Kind { entry: Entry::SystemCall, operation, ..Kind::OTHER }
    }

    const fn interrupted() -> Kind {
        Kind { entry: Entry::Interrupt, ..Kind::OTHER }
    }

    const fn caused(self) -> Kind {
        Kind { has_causes: true, ..self }
    }

    const fn telling(self, tells: Tells) -> Kind {
        Kind { tells, ..self }
    }

    /// Stands for all of it but where it says more: at most 7 bits.
    #[inline]
    pub fn number(self) -> u32 {
        self.entry as u32 | (self.operation as u32) << 2 | u32::from(self.has_causes) << 6
    }

    /// Of an event.
    #[inline]
    pub fn of(event: &Event<'_>) -> Kind {
        if let Some(hook) = event.hook() {
            return Kind::of_hook(hook);
        }
        if event.kind().is_classic() {
            let record = event.record();
            let hook = record.guid().map(|class| (class, record.opcode()));
            return hook
                .and_then(|(class, opcode)| kernel::hook_of(class, opcode))
                .map_or(Kind::OTHER, Kind::of_hook);
        }
        if event.kind().has_descriptor() {
            return event.guid().map_or(Kind::OTHER, |guid| Kind::of_described(guid, event.entry().tag));
        }
        Kind::OTHER
    }

    const fn of_hook(hook: u16) -> Kind {
        match hook {
            // Process/Start, Thread/Start, Thread/SetName
            0x0301 => Kind::called(Operation::ProcessCreate).caused(),
            0x0501 => {
                Kind::called(Operation::ThreadCreate).caused().telling(Tells::ThreadStart(Source::Class))
            }
            0x0548 => Kind::called(Operation::Other),
            // Image/Load
            0x030a | 0x140a => Kind::called(Operation::ImageLoad).telling(Tells::ImageLoad),
            // The thread that is switched to had waited, or been interrupted.
            0x0524 => Kind { operation: Operation::Wait, ..Kind::OTHER },
            // Faults; VirtualAlloc and VirtualFree
            0x020a..=0x020f | 0x0220 => Kind::interrupted(),
            0x0262 => Kind::called(Operation::MemoryAllocate).telling(Tells::Allocation),
            0x0263 => Kind::called(Operation::Other),
            // Opens, changes and queries of files. Reads and writes are also those of faults.
            0x0440 | 0x044e => Kind::called(Operation::Other),
            0x0445..=0x0447 | 0x0452 => Kind::called(Operation::FileChange),
            0x0448 | 0x044a | 0x044b | 0x044d | 0x0454 | 0x0456 => Kind::called(Operation::Other),
            // Keys: create, delete, set value, delete value; then those that only look.
            0x090a | 0x090c | 0x090e | 0x090f => Kind::called(Operation::RegistryChange),
            0x090b | 0x090d | 0x0910..=0x0915 => Kind::called(Operation::Other),
            // Samples of the clock and of counters; interrupts and what is queued by them.
            0x0f2e | 0x0f2f | 0x0f32 | 0x0f42..=0x0f47 | 0x0f5c | 0x0f5f => Kind::interrupted(),
            // SysCallEnter, SysCallExit
            0x0f33 => Kind::called(Operation::Other).telling(Tells::Service),
            0x0f34 => Kind::called(Operation::Other),
            _ => Kind::OTHER,
        }
    }

    fn of_described(provider: Guid, id: u16) -> Kind {
        match (provider, id) {
            (AUDIT, 2) => Kind::called(Operation::Other).telling(Tells::Target),
            (AUDIT, 4) => Kind::called(Operation::ThreadControl),
            (AUDIT, 5 | 6) => Kind::called(Operation::ProcessOpen).telling(Tells::Target),
            (PROCESS, 1) => Kind::called(Operation::ProcessCreate).caused(),
            (PROCESS, 3) => {
                Kind::called(Operation::ThreadCreate).caused().telling(Tells::ThreadStart(Source::Provider))
            }
            (PROCESS, 5) => Kind::called(Operation::ImageLoad),
            (THREATS, 1 | 6) => Kind::called(Operation::MemoryAllocate).telling(Tells::Target),
            (THREATS, 2 | 7) => Kind::called(Operation::MemoryProtect).telling(Tells::Target),
            (THREATS, 3 | 8) => Kind::called(Operation::MapView).telling(Tells::Target),
            (THREATS, 4 | 5) => Kind::called(Operation::ThreadControl).telling(Tells::Target),
            (THREATS, 11..=14) => Kind::called(Operation::MemoryAccess).telling(Tells::Target),
            _ => Kind::OTHER,
        }
    }
}

/// Microsoft-Windows-Kernel-Audit-API-Calls.
const AUDIT: Guid = Guid::new(0xe02a_841c, 0x75a3, 0x4fa7, [0xaf, 0xc8, 0xae, 0x09, 0xcf, 0x9b, 0x7f, 0x23]);
/// Microsoft-Windows-Kernel-Process.
const PROCESS: Guid =
    Guid::new(0x22fb_2cd6, 0x0e7b, 0x422b, [0xa0, 0xc7, 0x2f, 0xad, 0x1f, 0xd0, 0xe7, 0x16]);
/// Microsoft-Windows-Threat-Intelligence.
const THREATS: Guid =
    Guid::new(0xf4e1_897c, 0xbb5d, 0x5668, [0xf1, 0xd8, 0x04, 0x0f, 0x4d, 0x8d, 0xd3, 0x44]);
