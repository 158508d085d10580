//! How Fibratus spells enumerated values and flags. Source: its public documentation and tables.

/// Numbers with their names.
pub type Names = &'static [(u64, &'static str)];

/// The name of a number.
pub fn name(names: Names, number: u64) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The names of the flags in a number, in the order of the table. What a name covers is not named
/// again; a flag of 0 is only named if the whole number is 0.
pub fn flags(names: Names, number: u64) -> impl Iterator<Item = &'static str> {
    let (mut left, is_zero) = (number, number == 0);
    names.iter().filter_map(move |(flag, name)| {
        let is_set = if *flag == 0 { is_zero } else { left & flag == *flag };
        if is_set {
            left &= !flag;
        }
        is_set.then_some(*name)
    })
}

/// How the kernel found the signature of an image.
pub const SIGNATURE_TYPES: Names = &[
    (0, "NONE"),
    (1, "EMBEDDED"),
    (2, "CACHED"),
    (3, "CATALOG_CACHED"),
    (4, "CATALOG_UNCACHED"),
    (5, "CATALOG_HINT"),
    (6, "PACKAGE_CATALOG"),
    (7, "FILE_VERIFIED"),
];

/// Signing levels of images.
pub const SIGNATURE_LEVELS: Names = &[
    (0, "UNCHECKED"),
    (1, "UNSIGNED"),
    (2, "ENTERPRISE"),
    (3, "DEVELOPER"),
    (4, "AUTHENTICODE"),
    (5, "STORE_PPL"),
    (6, "STORE"),
    (7, "ANTIMALWARE"),
    (8, "MICROSOFT"),
    (9, "CUSTOM_4"),
    (10, "CUSTOM_5"),
    (11, "DYNAMIC_CODEGEN"),
    (12, "WINDOWS"),
    (13, "CUSTOM_7"),
    (14, "WINDOWS_TCB"),
    (15, "CUSTOM_6"),
];

/// Access that other opens of a file may have.
pub const SHARES: Names = &[(0, "DENY"), (1, "READ"), (2, "WRITE"), (4, "DELETE")];

/// Attributes of files.
pub const FILE_ATTRIBUTES: Names = &[
    (0x1, "READ_ONLY"),
    (0x2, "HIDDEN"),
    (0x4, "SYSTEM"),
    (0x10, "DIRECTORY"),
    (0x20, "ARCHIVE"),
    (0x40, "DEVICE"),
    (0x80, "NORMAL"),
    (0x100, "TEMPORARY"),
    (0x200, "SPARSE"),
    (0x400, "JUNCTION"),
    (0x800, "COMPRESSED"),
    (0x1000, "OFFLINE"),
    (0x2000, "UNINDEXED"),
    (0x4000, "ENCRYPTED"),
    (0x8000, "STREAM"),
    (0x1_0000, "VIRTUAL"),
    (0x2_0000, "NO_SCRUB"),
    (0x4_0000, "RECALL_OPEN"),
    (0x8_0000, "PINNED"),
    (0x10_0000, "UNPINNED"),
    (0x40_0000, "RECALL_ACCESS"),
];

/// Options of an open.
pub const CREATE_OPTIONS: Names = &[
    (0x1, "DIRECTORY_FILE"),
    (0x2, "WRITE_THROUGH"),
    (0x4, "SEQUENTIAL_ONLY"),
    (0x8, "NO_INTERMEDIATE_BUFFERING"),
    (0x10, "SYNCHRONOUS_IO_ALERT"),
    (0x20, "SYNCHRONOUS_IO_NONALERT"),
    (0x40, "NON_DIRECTORY_FILE"),
    (0x80, "CREATE_TREE_CONNECTION"),
    (0x100, "COMPLETE_IF_OPLOCKED"),
    (0x200, "NO_EA_KNOWLEDGE"),
    (0x400, "OPEN_REMOTE_INSTANCE"),
    (0x800, "RANDOM_ACCESS"),
    (0x1000, "DELETE_ON_CLOSE"),
    (0x2000, "OPEN_BY_FILE_ID"),
    (0x4000, "FOR_BACKUP_INTENT"),
    (0x8000, "NO_COMPRESSION"),
    (0x1_0000, "OPEN_REQUIRING_OPLOCK"),
    (0x2_0000, "DISALLOW_EXCLUSIVE"),
    (0x10_0000, "RESERVE_OPFILTER"),
    (0x20_0000, "OPEN_REPARSE_POINT"),
    (0x40_0000, "OPEN_NO_RECALL"),
    (0x80_0000, "OPEN_FOR_FREE_SPACE_QUERY"),
];

/// Numbers of `FILE_INFORMATION_CLASS`, with the names that Fibratus gives them.
pub const INFO_CLASSES: Names = &[
    (1, "Directory"),
    (2, "Full Directory"),
    (3, "Both Directory"),
    (4, "Basic"),
    (5, "Standard"),
    (6, "Internal"),
    (7, "EA"),
    (8, "Access"),
    (9, "Name"),
    (10, "Rename"),
    (11, "Link"),
    (12, "Names"),
    (13, "Disposition"),
    (14, "Position"),
    (15, "Full EA"),
    (16, "Mode"),
    (17, "Alignment"),
    (18, "All"),
    (19, "Allocation"),
    (20, "EOF"),
    (21, "Alternative Name"),
    (22, "Stream"),
    (23, "Pipe"),
    (24, "Pipe Local"),
    (25, "Pipe Remote"),
    (26, "Mailslot Query"),
    (27, "Mailslot Set"),
    (28, "Compression"),
    (29, "Object ID"),
    (30, "Completion"),
    (31, "Move Cluster"),
    (32, "Quota"),
    (33, "Reparse Point"),
    (34, "Network Open"),
    (35, "Attribute Tag"),
    (36, "Tracking"),
    (37, "ID Both Directory"),
    (38, "ID Full Directory"),
    (39, "Valid Data Length"),
    (40, "Short Name"),
    (64, "Disposition Extended"),
    (65, "Rename Extended"),
];

/// The class that sets the size on disk.
pub const INFO_ALLOCATION: u64 = 19;
/// The class that sets the size.
pub const INFO_END_OF_FILE: u64 = 20;
/// The class that deletes the file.
pub const INFO_DISPOSITION: u64 = 13;

/// Kinds of mapped sections.
pub const VIEW_TYPES: Names =
    &[(0x0, "DATA"), (0x4, "IMAGE"), (0x8, "IMAGE_NO_EXECUTE"), (0xc, "PAGEFILE"), (0xd, "PHYSICAL")];

/// The numbers overlap, and are tested in this order.
pub const VIEW_PROTECTIONS: Names = &[
    (0x6_0000, "EXECUTE_READWRITE"),
    (0x7_0000, "EXECUTE_WRITECOPY"),
    (0x8_0000, "NOCACHE"),
    (0x9_0000, "WRITECOMBINE"),
    (0x1_0000, "READONLY"),
    (0x2_0000, "EXECUTE"),
    (0x3_0000, "EXECUTE_READ"),
    (0x4_0000, "READWRITE"),
    (0x5_0000, "WRITECOPY"),
];

/// Kinds of allocations.
pub const ALLOCATIONS: Names = &[
    (0x1000, "COMMIT"),
    (0x2000, "RESERVE"),
    (0x8_0000, "RESET"),
    (0x100_0000, "RESET_UNDO"),
    (0x40_0000, "PHYSICAL"),
    (0x2000_0000, "LARGE_PAGES"),
    (0x10_0000, "TOP_DOWN"),
    (0x8000, "RELEASE"),
    (0x4000, "DECOMMIT"),
    (0x20_0000, "WRITE_WATCH"),
];

/// Access rights to processes.
pub const PROCESS_ACCESS: Names = &[
    (0x1f_ffff, "ALL_ACCESS"),
    (0x1_0000, "DELETE"),
    (0x2_0000, "READ_CONTROL"),
    (0x10_0000, "SYNCHRONIZE"),
    (0x4_0000, "WRITE_DAC"),
    (0x8_0000, "WRITE_OWNER"),
    (0x8000_0000, "GENERIC_READ"),
    (0x100_0000, "ACCESS_SYSTEM_SECURITY"),
    (0x1, "TERMINATE"),
    (0x2, "CREATE_THREAD"),
    (0x8, "VM_OPERATION"),
    (0x10, "VM_READ"),
    (0x20, "VM_WRITE"),
    (0x40, "DUP_HANDLE"),
    (0x80, "CREATE_PROCESS"),
    (0x100, "SET_QUOTA"),
    (0x200, "SET_INFORMATION"),
    (0x400, "QUERY_INFORMATION"),
    (0x800, "SUSPEND_RESUME"),
    (0x1000, "QUERY_LIMITED_INFORMATION"),
];

/// Access rights to threads.
pub const THREAD_ACCESS: Names = &[
    (0x1f_ffff, "ALL_ACCESS"),
    (0x1_0000, "DELETE"),
    (0x2_0000, "READ_CONTROL"),
    (0x10_0000, "SYNCHRONIZE"),
    (0x4_0000, "WRITE_DAC"),
    (0x8_0000, "WRITE_OWNER"),
    (0x1, "TERMINATE"),
    (0x2, "SUSPEND_THREAD"),
    (0x8, "GET_CONTEXT"),
    (0x10, "SET_CONTEXT"),
    (0x20, "SET_INFORMATION"),
    (0x40, "QUERY_INFORMATION"),
    (0x80, "SET_THREAD_TOKEN"),
    (0x100, "IMPERSONATE"),
    (0x200, "DIRECT_IMPERSONATION"),
    (0x400, "SET_LIMITED_INFORMATION"),
    (0x800, "QUERY_LIMITED_INFORMATION"),
];

/// Access rights to other objects.
pub const OBJECT_ACCESS: Names = &[
    (0x1_0000, "DELETE"),
    (0x2_0000, "READ_CONTROL"),
    (0x4_0000, "WRITE_DAC"),
    (0x8_0000, "WRITE_OWNER"),
    (0x10_0000, "SYNCHRONIZE"),
    (0x100_0000, "ACCESS_SYSTEM_SECURITY"),
    (0x200_0000, "MAXIMUM_ALLOWED"),
    (0x8000_0000, "GENERIC_READ"),
    (0x4000_0000, "GENERIC_WRITE"),
    (0x2000_0000, "GENERIC_EXECUTE"),
    (0x1000_0000, "GENERIC_ALL"),
];

/// Types of DNS records.
pub const DNS_TYPES: Names = &[
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TEXT"),
    (28, "AAAA"),
    (33, "SRV"),
    (35, "NAPTR"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (255, "ANY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of the public tests of Fibratus: texts of numbers in the upper half of the field.
    #[test]
    fn protections_of_views() {
        let text = |number: u64| flags(VIEW_PROTECTIONS, number).collect::<Vec<_>>().join("|");
        assert_eq!(text(4_653_056), "EXECUTE_READWRITE|READONLY");
        assert_eq!(text(12_845_056), "READWRITE");
        assert_eq!(text(0x3_0000), "READONLY|EXECUTE");
    }

    #[test]
    fn flags_are_named_once() {
        let text = |names, number| flags(names, number).collect::<Vec<_>>().join("|");
        assert_eq!(text(PROCESS_ACCESS, 0x1f_ffff), "ALL_ACCESS");
        assert_eq!(text(PROCESS_ACCESS, 0x1410), "VM_READ|QUERY_INFORMATION|QUERY_LIMITED_INFORMATION");
        assert_eq!(text(SHARES, 0), "DENY");
        assert_eq!(text(SHARES, 7), "READ|WRITE|DELETE");
    }
}
