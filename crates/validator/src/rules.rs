//! The rules, each with its id and a sentence.

/// Declares the rules in one table, so that ids, sentences and [`Rule::ALL`] are consistent.
macro_rules! rules {
    ($($id:ident $holds:literal,)*) => {
        /// A statement that holds in every trace written by Windows.
        ///
        /// The letter of an id is the subject of the rule: the file (F), the header buffer (H), the
        /// logfile header (L), data buffers (D), records (R), or the protocol of kernel traces (K).
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

            /// The statement, as a sentence.
            pub const fn holds(self) -> &'static str {
                match self {
                    $(Rule::$id => $holds,)*
                }
            }
        }
    };
}

rules! {
    F01 "Each buffer starts at the end of the previous one, and none exceeds the file.",
    F02 "The last buffer ends at the end of the file.",
    F03 "Sequence numbers of data buffers start at 1 or later and occur once.",
    F04 "The last data buffer has the flush marker, and no other one has it.",
    F05 "All data buffers contain the same logger id; in a live trace, the header buffer contains it too.",
    F06 "Hook id 0 occurs once, in the header buffer.",
    F07 "A live trace with per-processor buffers ends later than its last record.",

    H01 "The first buffer has the type of a header buffer.",
    H02 "The first record is a logfile header: a SYSTEM header of version 2 with hook id 0, large enough.",
    H03 "Reference count, clock word and links of the header buffer are 0.",
    H04 "The header buffer has sequence number 0.",
    H05 "Since Windows 7, the header buffer has time stamp 0.",
    H06 "The header buffer has processor 0; before Windows 8, with an alignment of 8 in the high byte.",
    H07 "The header buffer has the flush marker; in live traces since Windows 8, also the flag for processor indexes.",
    H08 "The header buffer has state 3, or 0 if the trace is relogged and not compressed.",
    H09 "Since Windows 8, the header buffer's saved offset is a multiple of 8; before Windows 8, it is 0.",
    H10 "The header buffer's current offset is the end of its records in live traces, and 0 in relogged ones.",
    H11 "The header buffer's offset is not less than its saved offset.",
    H12 "The header buffer has the nominal size, or in compressed traces its offset rounded up to 512 bytes.",
    H13 "The header buffer has logger id 0 in relogged traces, and only in these.",
    H14 "Records of the header buffer are SYSTEM or PERFINFO records of group 0.",
    H15 "The records of the header buffer end at its saved offset or at its offset.",
    H16 "The rest of the header buffer is filled with 0xFF.",
    H17 "The record of the logfile header contains a thread and a process.",
    H18 "Two NUL-terminated strings, and nothing else, follow the fixed part of the logfile header.",
    H19 "In live traces since build 16299, the header buffer has a SYSTEM record with hook id 0x0050.",
    H20 "In live traces of system loggers, the header buffer has a SYSTEM record with the group masks.",

    L01 "The nominal buffer size is a positive number of KiB.",
    L02 "The layout is 2.0 if compressed or if buffers exceed 1 MiB, otherwise 1.5 since Windows 7 and 1.4 before.",
    L03 "The boot time is earlier than the start of the session, which is earlier than its end.",
    L04 "The timer resolution is 156,250 or 156,001 units of 100 ns.",
    L05 "The number of start buffers is 1.",
    L06 "The pointer size is that of the record's header.",
    L07 "Processor speed and performance counter frequency are not 0.",
    L08 "The clock is the performance counter.",
    L09 "In live traces, the fields for the two name pointers are not 0.",
    L10 "The time zone has names for standard and daylight time.",
    L11 "The bytes that align the boot time are 0.",
    L12 "The number of buffers is that of the file.",
    L13 "The size of the file is the number of buffers times the nominal buffer size, unless it is compressed.",
    L14 "Since build 17763, the frequency of the performance counter is 10 MHz.",
    L15 "The Windows version and the build are consistent.",

    D01 "Data buffers have type 0.",
    D02 "Data buffers have state 3.",
    D03 "Data buffers have reference count 0.",
    D04 "Saved offset and offset are equal, a multiple of 8, after the header and within the nominal size.",
    D05 "The current offset is a multiple of 8 beyond the nominal size.",
    D06 "Data buffers are compressed exactly if the logging mode has the compression bit.",
    D07 "Data buffers that are not compressed have the nominal size.",
    D08 "The only flags are the flush marker and those for processor indexes and compression.",
    D09 "Since Windows 8, processors are indexes; before Windows 8, the high byte is an alignment of 8.",
    D10 "The processor is less than the number of processors in the logfile header.",
    D11 "Sequence numbers of a processor ascend.",
    D12 "Time stamps of a processor's buffers never descend.",
    D13 "A chunk expands to the size in the saved offset, is smaller, and leaves at most a flag word of ones.",
    D14 "Times never descend within a buffer.",
    D15 "No record is earlier than the logfile header.",
    D16 "The records end at the saved offset.",
    D17 "A data buffer has a record.",
    D18 "The rest of a data buffer that is not compressed is filled with 0xFF.",
    D19 "Times never descend from one buffer of a processor to the next.",
    D20 "In live traces, the time stamp of a buffer is later than its last record.",
    D21 "In relogged traces, the time stamp of a buffer is a FILETIME.",

    R01 "Records have a SYSTEM, PERFINFO, FULL or EVENT header.",
    R02 "A record is at least as long as its header.",
    R03 "Kernel records contain no counters.",
    R04 "Since Windows 8, a kernel event has a header kind, a version and a size that are known for its hook id.",
    R05 "A SYSTEM record contains a thread and a process.",
    R06 "The header of a thread rundown contains the listed thread, except for idle threads.",
    R07 "A stack record is later than its triggering event.",
    R08 "A stack record has one or more complete frames.",
    R09 "A stack-key definition has one or more complete frames.",
    R10 "EVENT headers have no flags other than bits 0 and 2, and no property.",
    R11 "An EVENT header contains a thread and a process.",
    R12 "Extended data items are padded with zeros to 8 bytes, and each except for the last is linked to the next.",
    R13 "The only extended data items are activity, stack, provider traits and schema, each once and in this order.",
    R14 "If the session has 64-bit pointers, stack items are 64-bit.",
    R15 "A FULL header contains a process.",
    R16 "System-configuration events occur in relogged traces only, and contain a thread.",
    R17 "The header of a process start contains the parent, that of a process end the process.",
    R18 "The header of a thread end contains the thread.",
    R19 "The header of an image load or unload contains the process, or System for the kernel.",
    R20 "The Windows folder of a system-paths event ends with a backslash.",

    K01 "For each stack, there is a record with the time of its triggering event.",
    K02 "Each stack key is defined at the time of its use or later.",
    K03 "Of the hook ids 0x0005, 0x0008 and 0x0020, the last one in a kernel trace is 0x0008.",
    K04 "A record with hook id 0x0020 is not later than the end rundown.",
    K05 "The start rundown lists process 0, then process 4.",
    K06 "Records with hook ids 0x0020 and 0x0005 are not later than the start rundown.",
    K07 "If there is a sampling interval at the start, there is one at the end.",
    K08 "Processes 0 and 4 neither start nor end.",
    K09 "No process is its own parent.",
}
