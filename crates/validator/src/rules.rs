//! The rules, each with its id and one sentence of what holds.

/// Declares the rules in one table, so that an id, its sentence and its place in [`Rule::ALL`] cannot differ.
macro_rules! rules {
    ($($id:ident $holds:literal,)*) => {
        /// A statement that holds in every trace that Windows wrote.
        ///
        /// The letter of an id says what the rule is about: the file (F), the header buffer (H), the logfile header
        /// (L), data buffers (D), records (R), or the protocol of kernel traces (K).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {
            $(#[doc = $holds] $id,)*
        }

        impl Rule {
            /// All rules, in the order of their ids within a letter.
            pub const ALL: &[Rule] = &[$(Rule::$id,)*];

            /// The id, such as `F01`. Ids do not change.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Rule::$id => stringify!($id),)*
                }
            }

            /// What holds.
            pub const fn holds(self) -> &'static str {
                match self {
                    $(Rule::$id => $holds,)*
                }
            }
        }
    };
}

rules! {
    F01 "Each buffer starts where the previous one ends, and none exceeds the file.",
    F02 "The last buffer ends where the file ends.",
    F03 "Sequence numbers of data buffers start at 1 or later and occur once.",
    F04 "The last data buffer has the flush marker, and no other one has it.",
    F05 "All data buffers name the same logger; in a live trace the header buffer names it, too.",
    F06 "Hook id 0 occurs once, in the header buffer.",
    F07 "A live trace with buffers per processor ends later than its last record.",

    H01 "The first buffer has the type of a header buffer.",
    H02 "The first record is a logfile header: a SYSTEM header of version 2 with hook id 0, large enough.",
    H03 "Reference count, clock word and links of the header buffer are 0.",
    H04 "The header buffer has sequence number 0.",
    H05 "From Windows 7 on, the header buffer has timestamp 0.",
    H06 "The header buffer names processor 0, before Windows 8 with an alignment of 8 in the high byte.",
    H07 "The header buffer has the flush marker, in live traces from Windows 8 on also the flag for processor indexes.",
    H08 "The header buffer has state 3, or 0 if the trace is relogged and not compressed.",
    H09 "From Windows 8 on, the header buffer's saved offset is a multiple of 8; before, it is 0.",
    H10 "The header buffer's current offset is the end of its records in live traces, and 0 in relogged ones.",
    H11 "The header buffer's offset is not before its saved offset.",
    H12 "The header buffer has the nominal size, or in compressed traces its offset rounded up to 512 bytes.",
    H13 "The header buffer names logger 0 in relogged traces, and only there.",
    H14 "Records of the header buffer are SYSTEM or PERFINFO records of group 0.",
    H15 "The records of the header buffer end at its saved offset or at its offset.",
    H16 "The header buffer is filled up with 0xFF.",
    H17 "The logfile header's record names a thread and a process.",
    H18 "Two NUL-terminated strings, and nothing else, follow the fixed part of the logfile header.",
    H19 "In live traces from build 16299 on, the header buffer has a SYSTEM record with hook id 0x0050.",
    H20 "In live traces of system loggers, the header buffer has a SYSTEM record with the group masks.",

    L01 "The nominal buffer size is a positive number of KiB.",
    L02 "The layout is 2.0 if compressed or with buffers over 1 MiB, otherwise 1.5 from Windows 7 on and 1.4 before.",
    L03 "The machine was started before the session, and the session before its end.",
    L04 "The timer resolution is 156,250 or 156,001 units of 100 ns.",
    L05 "One start buffer is stated.",
    L06 "The stated pointer size is that of the record's header.",
    L07 "Processor speed and performance counter frequency are not 0.",
    L08 "The clock is the performance counter.",
    L09 "In live traces, the fields for the two name pointers are not 0.",
    L10 "The time zone has names for standard and daylight time.",
    L11 "The bytes that align the boot time are 0.",
    L12 "The stated number of buffers is that of the file.",
    L13 "The file's length is that number times the nominal buffer size, unless it is compressed.",
    L14 "From build 17763 on, the performance counter ticks at 10 MHz.",
    L15 "Windows version and build belong together.",

    D01 "Data buffers have type 0.",
    D02 "Data buffers have state 3.",
    D03 "Data buffers have reference count 0.",
    D04 "Saved offset and offset are equal, a multiple of 8, after the header and within the nominal size.",
    D05 "The current offset is a multiple of 8 beyond the nominal size.",
    D06 "Data buffers are compressed exactly if the logging mode says so.",
    D07 "Data buffers that are not compressed have the nominal size.",
    D08 "No flags occur but the flush marker and those for processor indexes and compression.",
    D09 "From Windows 8 on, processors are indexes; before, the high byte is an alignment of 8.",
    D10 "The processor is one of those that the logfile header counts.",
    D11 "Sequence numbers of a processor ascend.",
    D12 "Timestamps of a processor's buffers never descend.",
    D13 "A chunk expands to what the saved offset states, saves space, and at most a flag word of ones is left over.",
    D14 "Times never descend within a buffer.",
    D15 "No record is earlier than the logfile header.",
    D16 "The records end at the saved offset.",
    D17 "A data buffer has a record.",
    D18 "Data buffers that are not compressed are filled up with 0xFF.",
    D19 "Times never descend from one buffer of a processor to its next.",
    D20 "In live traces, a buffer's timestamp is later than its last record.",
    D21 "In relogged traces, a buffer's timestamp is a FILETIME.",

    R01 "Records have a SYSTEM, PERFINFO, FULL or EVENT header.",
    R02 "A record is at least as long as its header.",
    R03 "Kernel records carry no counters.",
    R04 "From Windows 8 on, a kernel event has a header kind, a version and a size that is known of its hook id.",
    R05 "A SYSTEM record names a thread and a process.",
    R06 "The header of a thread rundown names the listed thread, except for idle threads.",
    R07 "A stack record is later than its trigger.",
    R08 "A stack record has one whole frame or more.",
    R09 "A stack-key definition has one whole frame or more.",
    R10 "EVENT headers have no flags but bits 0 and 2, and no property.",
    R11 "An EVENT header names a thread and a process.",
    R12 "Extended items are padded with zeros to 8 bytes, and each but the last is linked to the next.",
    R13 "Only activity, stack, provider traits and schema occur as extended items, each once and in this order.",
    R14 "With 64-bit pointers in the session, stack items are 64 bits wide.",
    R15 "A FULL header names a process.",
    R16 "System-configuration events occur in relogged traces only, and name a thread.",
    R17 "The header of a process start names the parent, that of a process end the process.",
    R18 "The header of a thread end names the thread.",
    R19 "The header of an image load or unload names the process, or System for the kernel.",
    R20 "The Windows folder of a system-paths event ends with a backslash.",

    K01 "Each stack has a record of its trigger's time.",
    K02 "Each stack key is defined at the time of its use or later.",
    K03 "Of the hook ids 0x0005, 0x0008 and 0x0020, a kernel trace has 0x0008 last.",
    K04 "A record with hook id 0x0020 is not later than the rundown at the end.",
    K05 "The rundown at the start lists process 0 and then process 4.",
    K06 "Records with hook ids 0x0020 and 0x0005 are not later than the rundown at the start.",
    K07 "A sampling interval at the start has one at the end.",
    K08 "Process ids 0 and 4 never start nor end.",
    K09 "No process is its own parent.",
}
