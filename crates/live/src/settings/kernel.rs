//! The events that the kernel logs: groups of events, and single events with stacks.
//!
//! Flags are those of Microsoft's page "EVENT_TRACE_PROPERTIES structure" (`EVENT_TRACE_FLAG_*`).
//! Other groups can be enabled by group masks only: one bit each in eight words. Microsoft names
//! these groups (page "System Providers") but not their values, which are in older public headers
//! and in G. Chappell's description of `PERFINFO_GROUPMASK`. The word is in the upper three bits,
//! the bit in the other 29. Newer builds have more groups, whose values are not published.

use std::ops::{BitOr, BitOrAssign};

use stackhound_schema::kernel;
use stackhound_schema::kernel::class_guid::{
    ALPC, DBG_PRINT, DISK_IO, FILE_IO, IMAGE, OBJECT, PAGE_FAULT, PERF_INFO, PROCESS, REGISTRY, SPLIT_IO,
    TCP_IP, THREAD,
};
use stackhound_schema::kernel::hook_id;
use stackhound_types::Guid;

use crate::Error;

/// Groups of kernel events, combined with `|`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KernelGroups {
    flags: u32,
    groups: [u32; 8],
}

const fn flag(flags: u32) -> KernelGroups {
    KernelGroups { flags, groups: [0; 8] }
}

impl KernelGroups {
    /// No groups. The session contains only its own events.
    pub const NONE: KernelGroups = flag(0);
    /// Starts and ends of processes.
    pub const PROCESS: KernelGroups = flag(0x0000_0001);
    /// Starts and ends of threads.
    pub const THREAD: KernelGroups = flag(0x0000_0002);
    /// Loads and unloads of images.
    pub const IMAGE_LOAD: KernelGroups = flag(0x0000_0004);
    /// Counters of processes at their end.
    pub const PROCESS_COUNTERS: KernelGroups = flag(0x0000_0008);
    /// Context switches of threads.
    pub const CONTEXT_SWITCH: KernelGroups = flag(0x0000_0010);
    /// Deferred procedure calls.
    pub const DPC: KernelGroups = flag(0x0000_0020);
    /// Interrupts.
    pub const INTERRUPT: KernelGroups = flag(0x0000_0040);
    /// Starts and ends of system calls.
    pub const SYSTEM_CALL: KernelGroups = flag(0x0000_0080);
    /// Completed disk operations.
    pub const DISK_IO: KernelGroups = flag(0x0000_0100);
    /// Names of the files of disk operations; needs [`KernelGroups::DISK_IO`].
    pub const DISK_FILE_IO: KernelGroups = flag(0x0000_0200);
    /// Starts of disk operations.
    pub const DISK_IO_INIT: KernelGroups = flag(0x0000_0400);
    /// Threads that become ready to run.
    pub const DISPATCHER: KernelGroups = flag(0x0000_0800);
    /// All page faults.
    pub const PAGE_FAULTS: KernelGroups = flag(0x0000_1000);
    /// Page faults that read from a disk.
    pub const HARD_FAULTS: KernelGroups = flag(0x0000_2000);
    /// Allocation and release of memory.
    pub const VIRTUAL_ALLOC: KernelGroups = flag(0x0000_4000);
    /// Mapping and unmapping of files.
    pub const VAMAP: KernelGroups = flag(0x0000_8000);
    /// TCP and UDP.
    pub const NETWORK_TCPIP: KernelGroups = flag(0x0001_0000);
    /// The registry.
    pub const REGISTRY: KernelGroups = flag(0x0002_0000);
    /// Debug output of drivers.
    pub const DEBUG_PRINT: KernelGroups = flag(0x0004_0000);
    /// Jobs.
    pub const JOB: KernelGroups = flag(0x0008_0000);
    /// Local procedure calls.
    pub const ALPC: KernelGroups = flag(0x0010_0000);
    /// Disk operations of volumes that are split over disks.
    pub const SPLIT_IO: KernelGroups = flag(0x0020_0000);
    /// Debug events.
    pub const DEBUG_EVENTS: KernelGroups = flag(0x0040_0000);
    /// Operations of drivers.
    pub const DRIVER: KernelGroups = flag(0x0080_0000);
    /// Samples of the processors' instruction pointers.
    pub const PROFILE: KernelGroups = flag(0x0100_0000);
    /// Completed file operations.
    pub const FILE_IO: KernelGroups = flag(0x0200_0000);
    /// Starts of file operations.
    pub const FILE_IO_INIT: KernelGroups = flag(0x0400_0000);
    /// Omits the description of the machine that a session otherwise ends with.
    pub const NO_SYSTEM_CONFIG: KernelGroups = flag(0x1000_0000);
    /// Opening and closing of handles.
    pub const OBJECT_HANDLE: KernelGroups = KernelGroups::NONE.group(0x8000_0040);

    /// Adds a group of [`GROUP_MASKS`], or one whose value is known from another source: the number
    /// of the word in the upper three bits, bits of the word in the others.
    pub const fn group(self, value: u32) -> KernelGroups {
        KernelGroups { groups: with_group(self.groups, value), ..self }
    }

    /// The groups of a provider of [`KernelProvider::ALL`], or a group of [`GROUP_MASKS`], by name.
    pub fn named(name: &str) -> Result<KernelGroups, Error> {
        let provider = KernelProvider::ALL.iter().find(|provider| provider.name.eq_ignore_ascii_case(name));
        let bare =
            name.get(..5).filter(|start| start.eq_ignore_ascii_case("PERF_")).map_or(name, |_| &name[5..]);
        let by_mask = || {
            let mask = GROUP_MASKS.iter().find(|mask| mask.name.eq_ignore_ascii_case(bare))?;
            Some(KernelGroups::NONE.group(mask.value))
        };
        let found = provider.map(|provider| provider.groups).or_else(by_mask);
        found.ok_or_else(|| Error::UnknownGroup(name.into()))
    }

    /// The value of `EnableFlags` in the properties of the session.
    pub fn enable_flags(&self) -> u32 {
        self.flags
    }

    /// The eight words of the group mask, including flags; `None` if the flags are sufficient.
    pub fn group_words(&self) -> Option<[u32; 8]> {
        (self.groups != [0; 8]).then(|| words(self))
    }

    /// The eight words of the group mask, including flags.
    pub fn all_words(&self) -> [u32; 8] {
        words(self)
    }

    /// Whether all groups of `other` are included.
    pub fn contains(&self, other: KernelGroups) -> bool {
        (*self | other) == *self
    }
}

impl BitOr for KernelGroups {
    type Output = KernelGroups;

    fn bitor(self, other: KernelGroups) -> KernelGroups {
        let mut groups = self.groups;
        for (word, more) in groups.iter_mut().zip(other.groups) {
            *word |= more;
        }
        KernelGroups { flags: self.flags | other.flags, groups }
    }
}

impl BitOrAssign for KernelGroups {
    fn bitor_assign(&mut self, other: KernelGroups) {
        *self = *self | other;
    }
}

/// One group by its published name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMask {
    /// The name without the prefix `PERF_`.
    pub name: &'static str,
    /// The word and its bits.
    pub value: u32,
}

const fn group(name: &'static str, value: u32) -> GroupMask {
    GroupMask { name, value }
}

/// All groups with published values, except for those of the first word, which are flags of
/// [`KernelGroups`].
pub const GROUP_MASKS: [GroupMask; 93] = [
    group("MEMORY", 0x2000_0001),
    group("PROFILE", 0x2000_0002),
    group("CONTEXT_SWITCH", 0x2000_0004),
    group("FOOTPRINT", 0x2000_0008),
    group("DRIVERS", 0x2000_0010),
    group("REFSET", 0x2000_0020),
    group("POOL", 0x2000_0040),
    group("DPC", 0x2000_0080),
    group("COMPACT_CSWITCH", 0x2000_0100),
    group("DISPATCHER", 0x2000_0200),
    group("PMC_PROFILE", 0x2000_0400),
    group("PROCESS_INSWAP", 0x2000_0800),
    group("AFFINITY", 0x2000_1000),
    group("PRIORITY", 0x2000_2000),
    group("INTERRUPT", 0x2000_4000),
    group("VIRTUAL_ALLOC", 0x2000_8000),
    group("SPINLOCK", 0x2001_0000),
    group("SYNC_OBJECTS", 0x2002_0000),
    group("DPC_QUEUE", 0x2004_0000),
    group("MEMINFO", 0x2008_0000),
    group("CONTMEM_GEN", 0x2010_0000),
    group("SPINLOCK_CNTRS", 0x2020_0000),
    group("SESSION", 0x2040_0000),
    group("PFSECTION", 0x2040_0000),
    group("MEMINFO_WS", 0x2080_0000),
    group("KERNEL_QUEUE", 0x2100_0000),
    group("INTERRUPT_STEER", 0x2200_0000),
    group("SHOULD_YIELD", 0x2400_0000),
    group("WS", 0x2800_0000),
    group("ANTI_STARVATION", 0x4000_0001),
    group("PROCESS_FREEZE", 0x4000_0002),
    group("PFN_LIST", 0x4000_0004),
    group("WS_DETAIL", 0x4000_0008),
    group("WS_ENTRY", 0x4000_0010),
    group("HEAP", 0x4000_0020),
    group("SYSCALL", 0x4000_0040),
    group("UMS", 0x4000_0080),
    group("BACKTRACE", 0x4000_0100),
    group("VULCAN", 0x4000_0200),
    group("OBJECTS", 0x4000_0400),
    group("EVENTS", 0x4000_0800),
    group("FULLTRACE", 0x4000_1000),
    group("DFSS", 0x4000_2000),
    group("PREFETCH", 0x4000_4000),
    group("PROCESSOR_IDLE", 0x4000_8000),
    group("CPU_CONFIG", 0x4001_0000),
    group("TIMER", 0x4002_0000),
    group("CLOCK_INTERRUPT", 0x4004_0000),
    group("LOAD_BALANCER", 0x4008_0000),
    group("CLOCK_TIMER", 0x4010_0000),
    group("IDLE_SELECTION", 0x4020_0000),
    group("IPI", 0x4040_0000),
    group("IO_TIMER", 0x4080_0000),
    group("REG_HIVE", 0x4100_0000),
    group("REG_NOTIF", 0x4200_0000),
    group("PPM_EXIT_LATENCY", 0x4400_0000),
    group("WORKER_THREAD", 0x4800_0000),
    group("OPTICAL_IO", 0x8000_0001),
    group("OPTICAL_IO_INIT", 0x8000_0002),
    group("DLL_INFO", 0x8000_0008),
    group("DLL_FLUSH_WS", 0x8000_0010),
    group("OB_HANDLE", 0x8000_0040),
    group("OB_OBJECT", 0x8000_0080),
    group("WAKE_DROP", 0x8000_0200),
    group("WAKE_EVENT", 0x8000_0400),
    group("DEBUGGER", 0x8000_0800),
    group("PROC_ATTACH", 0x8000_1000),
    group("WAKE_COUNTER", 0x8000_2000),
    group("POWER", 0x8000_8000),
    group("SOFT_TRIM", 0x8001_0000),
    group("CC", 0x8002_0000),
    group("FLT_IO_INIT", 0x8008_0000),
    group("FLT_IO", 0x8010_0000),
    group("FLT_FASTIO", 0x8020_0000),
    group("FLT_IO_FAILURE", 0x8040_0000),
    group("HV_PROFILE", 0x8080_0000),
    group("WDF_DPC", 0x8100_0000),
    group("WDF_INTERRUPT", 0x8200_0000),
    group("CACHE_FLUSH", 0x8400_0000),
    group("HIBER_RUNDOWN", 0xA000_0001),
    group("PHYSICAL_MEMORY", 0xA000_0040),
    group("SYSCFG_SYSTEM", 0xC000_0001),
    group("SYSCFG_GRAPHICS", 0xC000_0002),
    group("SYSCFG_STORAGE", 0xC000_0004),
    group("SYSCFG_NETWORK", 0xC000_0008),
    group("SYSCFG_SERVICES", 0xC000_0010),
    group("SYSCFG_PNP", 0xC000_0020),
    group("SYSCFG_OPTICAL", 0xC000_0040),
    group("CLUSTER_OFF", 0xE000_0001),
    group("MEMORY_CONTROL", 0xE000_0002),
    group("POOLTRACE", 0x2000_0041),
    group("PROFILING", 0x2000_0402),
    group("SPININSTR", 0x2021_0000),
];

/// Flags that are only other names for groups of later words, and these groups. The kernel moves
/// the flags there when a session starts.
const MOVED: [(u32, u32); 8] = [
    (0x0000_0010, 0x2000_0004), // context switches
    (0x0000_0020, 0x2000_0080), // deferred procedure calls
    (0x0000_0040, 0x2000_4000), // interrupts
    (0x0000_0080, 0x4000_0040), // system calls
    (0x0000_0800, 0x2000_0200), // dispatcher
    (0x0000_4000, 0x2000_8000), // memory allocation
    (0x0080_0000, 0x2000_0010), // drivers
    (0x0100_0000, 0x2000_0002), // profile
];

/// Sets the bits of a group in its word.
const fn with_group(mut words: [u32; 8], value: u32) -> [u32; 8] {
    words[(value >> 29) as usize] |= value & 0x1FFF_FFFF;
    words
}

/// The words that `TraceSetInformation` accepts (`TraceSystemTraceEnableFlagsInfo`). Flags are set
/// in both locations: it is not documented whether the kernel also moves them for this call, and
/// the bits of the first word have no other meaning.
fn words(groups: &KernelGroups) -> [u32; 8] {
    let mut words = groups.groups;
    words[0] |= groups.flags;
    for (flag, group) in MOVED {
        if groups.flags & flag != 0 {
            words = with_group(words, group);
        }
    }
    words
}

/// A kernel provider as krabsetw defines it: a name, groups, and the events that these groups log.
#[derive(Clone, Copy, Debug)]
pub struct KernelProvider {
    /// The name in krabsetw, without `_provider`.
    pub name: &'static str,
    /// The groups that the provider enables.
    pub groups: KernelGroups,
    /// The class of its events. Several providers can have the same class.
    pub class: Guid,
    /// The hook ids of its events, as first and last of each range; empty for all events of the
    /// class. Some belong to other classes.
    pub hook_ids: &'static [(u16, u16)],
}

const fn provider(
    name: &'static str,
    groups: KernelGroups,
    class: Guid,
    hook_ids: &'static [(u16, u16)],
) -> KernelProvider {
    KernelProvider { name, groups, class, hook_ids }
}

impl KernelProvider {
    /// A provider of [`KernelProvider::ALL`] by its name. The case is ignored.
    pub fn named(name: &str) -> Result<KernelProvider, Error> {
        let found = KernelProvider::ALL.into_iter().find(|provider| provider.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::UnknownGroup(name.into()))
    }

    /// Whether an event with this hook id belongs to the provider.
    pub fn logs(&self, hook_id: u16) -> bool {
        match self.hook_ids {
            [] => kernel::class_of_hook_id(hook_id) == Some(self.class),
            hook_ids => hook_ids.iter().any(|(first, last)| (*first..=*last).contains(&hook_id)),
        }
    }

    /// All kernel providers, ordered by name. The hook ids of a flag are those of "Kernel logger"
    /// and of the names in `ntwmi.h`. Names of files are logged with the groups of file operations
    /// and of disk operations.
    pub const ALL: [KernelProvider; 26] = [
        provider("alpc", KernelGroups::ALPC, ALPC, &[(hook_id::ALPC_SEND_MESSAGE, hook_id::ALPC_CLOSE_PORT)]),
        provider(
            "context_switch",
            KernelGroups::CONTEXT_SWITCH,
            THREAD,
            &[(hook_id::THREAD_C_SWITCH, hook_id::THREAD_COMPACT_C_SWITCH)],
        ),
        provider(
            "debug_print",
            KernelGroups::DEBUG_PRINT,
            DBG_PRINT,
            &[(hook_id::DBG_PRINT_DEBUG_PRINT, hook_id::DBG_PRINT_DEBUG_PRINT)],
        ),
        // File names are logged with disk operations only.
        provider(
            "disk_file_io",
            flag(0x0000_0300),
            DISK_IO,
            &[
                (hook_id::DISK_IO_READ, hook_id::DISK_IO_WRITE),
                (hook_id::DISK_IO_FLUSH_BUFFERS, hook_id::DISK_IO_FLUSH_BUFFERS),
                (hook_id::FILE_IO_NAME, hook_id::FILE_IO_FILE_RUNDOWN),
            ],
        ),
        provider(
            "disk_init_io",
            KernelGroups::DISK_IO_INIT,
            DISK_IO,
            &[
                (hook_id::DISK_IO_READ_INIT, hook_id::DISK_IO_WRITE_INIT),
                (hook_id::DISK_IO_FLUSH_INIT, hook_id::DISK_IO_FLUSH_INIT),
            ],
        ),
        provider(
            "disk_io",
            KernelGroups::DISK_IO,
            DISK_IO,
            &[
                (hook_id::DISK_IO_READ, hook_id::DISK_IO_WRITE),
                (hook_id::DISK_IO_FLUSH_BUFFERS, hook_id::DISK_IO_FLUSH_BUFFERS),
            ],
        ),
        provider(
            "dpc",
            KernelGroups::DPC,
            PERF_INFO,
            &[
                (hook_id::PERF_INFO_THREADED_DPC, hook_id::PERF_INFO_THREADED_DPC),
                (hook_id::PERF_INFO_DPC, hook_id::PERF_INFO_IO_TIMER),
            ],
        ),
        provider(
            "driver",
            KernelGroups::DRIVER,
            DISK_IO,
            &[
                (hook_id::DISK_IO_DRIVER_INIT, hook_id::DISK_IO_DRIVER_START_IO_RETURN),
                (hook_id::DISK_IO_DRIVER_COMPLETE_REQUEST, hook_id::DISK_IO_DRIVER_COMPLETE_REQUEST_RETURN),
            ],
        ),
        provider(
            "file_init_io",
            KernelGroups::FILE_IO_INIT,
            FILE_IO,
            &[
                (hook_id::FILE_IO_CREATE, hook_id::FILE_IO_FS_CONTROL),
                (hook_id::FILE_IO_DIR_NOTIFY, hook_id::FILE_IO_QUERY_EA),
            ],
        ),
        provider(
            "file_io",
            KernelGroups::FILE_IO,
            FILE_IO,
            &[
                (hook_id::FILE_IO_NAME, hook_id::FILE_IO_FILE_RUNDOWN),
                (hook_id::FILE_IO_OPERATION_END, hook_id::FILE_IO_OPERATION_END),
            ],
        ),
        provider(
            "image_load",
            KernelGroups::IMAGE_LOAD,
            IMAGE,
            &[
                (hook_id::IMAGE_LOAD, hook_id::IMAGE_LOAD),
                (hook_id::IMAGE_UNLOAD, hook_id::IMAGE_LOAD_140A),
                (hook_id::IMAGE_KERNEL_BASE, hook_id::IMAGE_HYPERCALL_PAGE),
            ],
        ),
        provider(
            "interrupt",
            KernelGroups::INTERRUPT,
            PERF_INFO,
            &[
                (hook_id::PERF_INFO_ISR_MSI, hook_id::PERF_INFO_ISR_MSI),
                (hook_id::PERF_INFO_ISR, hook_id::PERF_INFO_ISR),
                (hook_id::PERF_INFO_ISR_UNEXPECTED, hook_id::PERF_INFO_ISR_UNEXPECTED),
                (hook_id::PERF_INFO_ISR_PASS, hook_id::PERF_INFO_ISR_PASS),
            ],
        ),
        provider(
            "memory_hard_fault",
            KernelGroups::HARD_FAULTS,
            PAGE_FAULT,
            &[(hook_id::PAGE_FAULT_HARD_FAULT, hook_id::PAGE_FAULT_HARD_FAULT)],
        ),
        provider(
            "memory_page_fault",
            KernelGroups::PAGE_FAULTS,
            PAGE_FAULT,
            &[(hook_id::PAGE_FAULT_TRANSITION_FAULT, hook_id::PAGE_FAULT_ACCESS_VIOLATION)],
        ),
        provider("network_tcpip", KernelGroups::NETWORK_TCPIP, TCP_IP, &[(0x0600, 0x06FF), (0x0800, 0x08FF)]),
        provider(
            "object_manager",
            KernelGroups::OBJECT_HANDLE,
            OBJECT,
            &[(hook_id::OBJECT_CREATE_HANDLE, hook_id::OBJECT_HANDLE_DC_END)],
        ),
        provider(
            "process",
            KernelGroups::PROCESS,
            PROCESS,
            &[
                (hook_id::PROCESS_START, hook_id::PROCESS_DC_END),
                (hook_id::PROCESS_TERMINATE, hook_id::PROCESS_TERMINATE),
                (hook_id::PROCESS_DEFUNCT, hook_id::PROCESS_DEFUNCT),
            ],
        ),
        provider(
            "process_counter",
            KernelGroups::PROCESS_COUNTERS,
            PROCESS,
            &[(hook_id::PROCESS_PERF_CTR, hook_id::PROCESS_PERF_CTR_RUNDOWN)],
        ),
        provider(
            "profile",
            KernelGroups::PROFILE,
            PERF_INFO,
            &[
                (hook_id::PERF_INFO_SAMPLED_PROFILE, hook_id::PERF_INFO_SAMPLED_PROFILE),
                (
                    hook_id::PERF_INFO_SAMPLED_PROFILE_NMI,
                    hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END,
                ),
            ],
        ),
        provider(
            "registry",
            KernelGroups::REGISTRY,
            REGISTRY,
            &[(hook_id::REGISTRY_CREATE, hook_id::REGISTRY_HIVE_DIRTY)],
        ),
        provider(
            "split_io",
            KernelGroups::SPLIT_IO,
            SPLIT_IO,
            &[(hook_id::SPLIT_IO_VOL_MGR, hook_id::SPLIT_IO_VOL_MGR)],
        ),
        provider(
            "system_call",
            KernelGroups::SYSTEM_CALL,
            PERF_INFO,
            &[(hook_id::PERF_INFO_SYS_CALL_ENTER, hook_id::PERF_INFO_SYS_CALL_EXIT)],
        ),
        provider(
            "thread",
            KernelGroups::THREAD,
            THREAD,
            &[
                (hook_id::THREAD_START, hook_id::THREAD_DC_END),
                (hook_id::THREAD_SET_NAME, hook_id::THREAD_SET_NAME),
            ],
        ),
        provider(
            "thread_dispatch",
            KernelGroups::DISPATCHER,
            THREAD,
            &[(hook_id::THREAD_READY_THREAD, hook_id::THREAD_READY_THREAD)],
        ),
        provider(
            "vamap",
            KernelGroups::VAMAP,
            FILE_IO,
            &[(hook_id::FILE_IO_MAP_FILE, hook_id::FILE_IO_MAP_FILE_DC_END)],
        ),
        provider(
            "virtual_alloc",
            KernelGroups::VIRTUAL_ALLOC,
            PAGE_FAULT,
            &[
                (hook_id::PAGE_FAULT_VIRTUAL_ALLOC, hook_id::PAGE_FAULT_VIRTUAL_FREE),
                (hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_START, hook_id::PAGE_FAULT_VIRTUAL_ALLOC_DC_END),
            ],
        ),
    ];
}

/// One kind of kernel event, as used to request stacks: the class under which it is recorded, and
/// its type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClassicEvent {
    /// The class.
    pub class: Guid,
    /// The type, which consumers see as the opcode.
    pub kind: u8,
}

impl ClassicEvent {
    /// The start of a system call.
    pub const SYSTEM_CALL_ENTER: ClassicEvent = ClassicEvent { class: PERF_INFO, kind: 0x33 };
    /// The load of an image. It is recorded with the events of processes, and its stacks are
    /// requested there.
    pub const IMAGE_LOAD: ClassicEvent = ClassicEvent { class: PROCESS, kind: 10 };

    /// The event with this hook id; `None` if its class is not known.
    pub fn from_hook_id(hook_id: u16) -> Option<ClassicEvent> {
        let [kind, group] = hook_id.to_le_bytes();
        Some(ClassicEvent { class: kernel::class_of_group(group)?, kind })
    }

    /// The event with this name in traces, such as `PerfInfo/SysCallEnter`.
    pub fn named(name: &str) -> Result<ClassicEvent, Error> {
        // Image loads have an old form in addition to the current one, which has the lower hook id.
        let hook_ids = kernel::events().filter(|event| event.name == name).filter_map(|event| event.hook_id);
        let found = hook_ids.min().and_then(ClassicEvent::from_hook_id);
        found.ok_or_else(|| Error::UnknownEvent(name.into()))
    }

    /// The `CLASSIC_EVENT_ID` that `TraceSetInformation` accepts.
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.class.0);
        bytes[16] = self.kind;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_is_found_by_its_name_and_has_a_known_class() {
        for provider in KernelProvider::ALL {
            let found = KernelProvider::named(&provider.name.to_uppercase()).unwrap();
            assert_eq!((found.name, found.groups), (provider.name, provider.groups));
            assert_eq!(KernelGroups::named(provider.name), Ok(provider.groups));
            assert_ne!(provider.groups, KernelGroups::NONE, "{}", provider.name);
            for (first, last) in provider.hook_ids {
                assert!(first <= last && kernel::name(*first).is_some() | (*first & 0xFF == 0), "{first:#x}");
            }
            let known = (0..=0x1E).any(|group| kernel::class_of_group(group) == Some(provider.class));
            assert!(known, "{}", provider.name);
        }
        assert!(KernelProvider::ALL.is_sorted_by_key(|provider| provider.name));
    }

    /// Compares the class of each provider with the hook ids of the class tables.
    #[test]
    fn classes_are_those_of_the_events() {
        let rows = [
            ("alpc", "ALPC/SendMessage"),
            ("context_switch", "Thread/CSwitch"),
            ("disk_io", "DiskIo/Read"),
            ("file_init_io", "FileIo/Create"),
            ("memory_hard_fault", "PageFault/HardFault"),
            ("network_tcpip", "TcpIp/SendIPV4"),
            ("object_manager", "Object/CreateHandle"),
            ("process", "Process/Start"),
            ("profile", "PerfInfo/SampledProfile"),
            ("registry", "Registry/Create"),
            ("system_call", "PerfInfo/SysCallEnter"),
            ("virtual_alloc", "PageFault/VirtualAlloc"),
        ];
        for (provider, event) in rows {
            let provider = KernelProvider::ALL.iter().find(|found| found.name == provider).unwrap();
            assert_eq!(ClassicEvent::named(event).map(|event| event.class), Ok(provider.class), "{event}");
            let hook_ids =
                kernel::events().filter(|known| known.name == event).filter_map(|known| known.hook_id);
            assert!(hook_ids.into_iter().any(|hook_id| provider.logs(hook_id)), "{event}");
        }
    }

    #[test]
    fn groups_are_found_by_published_names() {
        let rows = [("OB_OBJECT", 4, 0x80), ("PERF_REFSET", 1, 0x20), ("perf_syscall", 2, 0x40)];
        for (name, word, bits) in rows {
            let words = KernelGroups::named(name).unwrap().group_words().unwrap();
            let mut expected = [0; 8];
            expected[word] = bits;
            assert_eq!(words, expected, "{name}");
        }
        assert_eq!(KernelGroups::named("nothing"), Err(Error::UnknownGroup("nothing".into())));
    }

    #[test]
    fn flags_are_set_in_both_locations() {
        let flags = KernelGroups::PROCESS
            | KernelGroups::CONTEXT_SWITCH
            | KernelGroups::DPC
            | KernelGroups::INTERRUPT
            | KernelGroups::SYSTEM_CALL
            | KernelGroups::DISPATCHER
            | KernelGroups::VIRTUAL_ALLOC
            | KernelGroups::DRIVER
            | KernelGroups::PROFILE;
        assert_eq!(flags.enable_flags(), 0x0180_48F1);
        assert_eq!(flags.group_words(), None);
        let both = flags | KernelGroups::OBJECT_HANDLE;
        assert_eq!(both.enable_flags(), 0x0180_48F1);
        assert_eq!(both.group_words(), Some([0x0180_48F1, 0xC296, 0x40, 0, 0x40, 0, 0, 0]));
    }

    #[test]
    fn kinds_of_events_are_named_as_recorded() {
        let rows = [
            ("Image/Load", ClassicEvent::IMAGE_LOAD),
            ("PerfInfo/SysCallEnter", ClassicEvent::SYSTEM_CALL_ENTER),
            ("Process/Start", ClassicEvent { class: PROCESS, kind: 1 }),
            ("PageFault/VirtualAlloc", ClassicEvent { class: PAGE_FAULT, kind: 98 }),
            ("Registry/SetValue", ClassicEvent { class: REGISTRY, kind: 14 }),
        ];
        for (name, expected) in rows {
            assert_eq!(ClassicEvent::named(name), Ok(expected), "{name}");
        }
        assert_eq!(ClassicEvent::named("Process"), Err(Error::UnknownEvent("Process".into())));
    }

    /// Microsoft's example (page "CLASSIC_EVENT_ID structure"): disk reads.
    #[test]
    fn an_event_is_passed_as_class_and_type() {
        let read = ClassicEvent { class: DISK_IO, kind: 10 };
        let mut expected = [0; 24];
        expected[..8].copy_from_slice(&[0xd4, 0xa8, 0x6f, 0x3d, 0x05, 0xfe, 0xd0, 0x11]);
        expected[8..16].copy_from_slice(&[0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);
        expected[16] = 10;
        assert_eq!(read.to_bytes(), expected);
    }

    #[test]
    fn group_names_and_values_are_unique() {
        for (at, one) in GROUP_MASKS.iter().enumerate() {
            assert!(one.value >> 29 != 0 && one.value & 0x1FFF_FFFF != 0, "{}", one.name);
            for other in &GROUP_MASKS[..at] {
                assert_ne!(one.name, other.name);
                // One published group has two names.
                assert!(one.value != other.value || one.name == "PFSECTION", "{} {}", one.name, other.name);
            }
        }
    }

    #[test]
    fn the_upper_bits_of_a_group_select_its_word() {
        let rows = [
            (0x2000_0004, 1, 4),
            (0x4000_0040, 2, 0x40),
            (0x8000_0040, 4, 0x40),
            (0xA000_0001, 5, 1),
            (0xE000_0002, 7, 2),
            (0x2021_0000, 1, 0x21_0000),
        ];
        for (value, word, bits) in rows {
            let mut expected = [0; 8];
            expected[word] = bits;
            assert_eq!(with_group([0; 8], value), expected, "{value:#x}");
        }
    }
}
