//! Group masks: what the kernel can log, one bit each in eight words.
//!
//! Microsoft names the groups (page "System Providers") but not their values; those stand in older public headers and in
//! G. Chappell's description of `PERFINFO_GROUPMASK`. The word is in the upper three bits, the bit in the other 29.
//! Newer builds have more groups, whose values are not published.

use super::kernel::KernelGroups;

/// One group by its published name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMask {
    /// The name behind `PERF_`.
    pub name: &'static str,
    /// Word and bits.
    pub value: u32,
}

const fn group(name: &'static str, value: u32) -> GroupMask {
    GroupMask { name, value }
}

/// All groups with published values, but for those of the first word, which are flags of [`KernelGroups`].
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

/// Flags that are only other names for groups of later words, and those groups. The kernel moves them there when a session
/// starts.
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

/// Sets a group's bits in its word.
pub(super) const fn with_group(mut words: [u32; 8], value: u32) -> [u32; 8] {
    words[(value >> 29) as usize] |= value & 0x1FFF_FFFF;
    words
}

/// The words that `TraceSetInformation` takes (`TraceSystemTraceEnableFlagsInfo`). Flags stand in both places: whether the
/// kernel moves them here too is not documented, and the bits of the first word have no other meaning.
pub(super) fn words(groups: &KernelGroups) -> [u32; 8] {
    let mut words = groups.groups;
    words[0] |= groups.flags;
    for (flag, group) in MOVED {
        if groups.flags & flag != 0 {
            words = with_group(words, group);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_each_their_own() {
        for (at, one) in GROUP_MASKS.iter().enumerate() {
            assert!(one.value >> 29 != 0 && one.value & 0x1FFF_FFFF != 0, "{}", one.name);
            for other in &GROUP_MASKS[..at] {
                assert_ne!(one.name, other.name);
                // Two names of one group, as published.
                assert!(one.value != other.value || one.name == "PFSECTION", "{} {}", one.name, other.name);
            }
        }
    }

    #[test]
    fn a_group_goes_into_the_word_that_its_upper_bits_name() {
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
