//! Fibratus: registry, files, processes, images, threads, stacks, memory and network of Windows 11.

use super::Event::{self, HookId, NotKernel};
use super::Ours::{self, By, Is, NoValue, Shown, Wrong};
use super::{Decoded, Reading, number, reading};
use crate::decoded::DecodedValue;

const AUDIT_API: Event =
    NotKernel("an event of Microsoft-Windows-Kernel-Audit-API-Calls, which has a manifest");

pub static READINGS: &[Reading] = &[
    reading(0, "TestDecodeRegistry RegSetValue", HookId(0x090E, 2), &[FIBRATUS_REGISTRY]),
    reading(1, "TestDecodeRegistry RegCreateKey", HookId(0x090A, 2), &[FIBRATUS_REGISTRY]),
    reading(
        2,
        "TestDecodeRegSetValueInternal buf",
        NotKernel("an event of Microsoft-Windows-Kernel-Registry, which has a manifest"),
        &[],
    ),
    reading(3, "TestDecodeFile CreateFile", HookId(0x0440, 3), &[FIBRATUS_CREATE, FIBRATUS_FILE]),
    reading(4, "TestDecodeFile FileOpEnd", HookId(0x044C, 3), &[FIBRATUS_FILE]),
    reading(5, "TestDecodeFile MapViewFile", HookId(0x0425, 3), &[FIBRATUS_MAP]),
    reading(6, "TestDecodeFile UnmapViewFile", HookId(0x0426, 3), &[FIBRATUS_MAP]),
    reading(
        7,
        "TestDecodeFile SetFileInformation",
        HookId(0x0445, 3),
        &[
            &[("GetParamAsString(params.FileInfoClass)", Shown("InfoClass", "\"Allocation\"", "Allocation"))],
            FIBRATUS_FILE,
        ],
    ),
    reading(
        8,
        "TestDecodeFile DeleteFile",
        HookId(0x0446, 3),
        &[
            &[(
                "GetParamAsString(params.FileInfoClass)",
                Shown("InfoClass", "\"Disposition Extended\"", "DispositionEx"),
            )],
            FIBRATUS_FILE,
        ],
    ),
    reading(9, "TestDecodeFile ReleaseFile", HookId(0x0442, 3), &[FIBRATUS_FILE]),
    reading(10, "TestDecodeFile WriteFile", HookId(0x0444, 3), &[FIBRATUS_WRITE, FIBRATUS_FILE]),
    reading(11, "TestDecodeFile EnumDirectory", HookId(0x0448, 3), &[FIBRATUS_FILE]),
    reading(12, "TestDecodeFile FileRundown", HookId(0x0424, 2), &[FIBRATUS_FILE]),
    reading(13, "TestDecodeProcess buf", HookId(0x0301, 4), &[FIBRATUS_PROCESS]),
    reading(
        14,
        "TestDecodeProcessInternal buf",
        NotKernel("an event of Microsoft-Windows-Kernel-Process, which has a manifest"),
        &[],
    ),
    reading(15, "TestDecodeModule buf", HookId(0x030A, 3), &[FIBRATUS_MODULE]),
    reading(
        16,
        "TestDecodeModuleInternal buf",
        NotKernel("an event of Microsoft-Windows-Kernel-Process, which has a manifest"),
        &[],
    ),
    reading(17, "TestDecodeOpenProcess buf", AUDIT_API, &[]),
    reading(18, "TestDecodeThread buf", HookId(0x0501, 3), &[FIBRATUS_THREAD]),
    reading(19, "TestDecodeOpenThread buf", AUDIT_API, &[]),
    reading(20, "TestDecodeCreateSymbolicLinkObject buf", AUDIT_API, &[]),
    reading(21, "TestDecodeStackWalk buf", HookId(0x1820, 2), &[FIBRATUS_STACK]),
    reading(22, "TestDecodeMemory buf", HookId(0x0262, 2), &[FIBRATUS_MEMORY]),
    reading(23, "TestDecodeNetwork SendTCPv4", HookId(0x060A, 2), &[FIBRATUS_NETWORK]),
    reading(24, "TestDecodeNetwork ConnectTCPv4", HookId(0x060C, 2), &[FIBRATUS_NETWORK]),
    reading(25, "TestDecodeNetwork RecvUDPv6", HookId(0x081B, 2), &[FIBRATUS_NETWORK]),
    reading(
        26,
        "TestDecodeDNS buf",
        NotKernel("an event of Microsoft-Windows-DNS-Client, which has a manifest"),
        &[],
    ),
];

fn shown(decoded: &Decoded<'_>, name: &str) -> DecodedValue {
    DecodedValue::Text(decoded.shown[name].clone())
}

const FIBRATUS_REGISTRY: &[(&str, Ours)] = &[
    ("Params.MustGetString(params.RegPath)", Is("KeyName")),
    ("Params.MustGetUint32(params.NTStatus)", Is("Status")),
    ("Params.MustGetUint64(params.RegKCB)", Is("KeyHandle")),
];

const FIBRATUS_FILE: &[(&str, Ours)] = &[
    ("Params.MustGetUint64(params.FileIrpPtr)", Is("IrpPtr")),
    ("Params.MustGetUint64(params.FileObject)", Is("FileObject")),
    ("Params.MustGetUint64(params.FileKey)", Is("FileKey")),
    ("Params.MustGetUint64(params.FileExtraInfo)", Is("ExtraInfo")),
    ("Params.MustGetUint64(params.FileOffset)", Is("Offset")),
    ("Params.MustGetTid()", Is("TTID")),
    ("Params.MustGetUint32(params.NTStatus)", Is("NtStatus")),
    ("Params.MustGetString(params.FilePath)", Is("FileName")),
    ("GetParamAsString(params.FileAttributes)", Shown("FileAttributes", "\"NORMAL\"", "Normal")),
];

const FIBRATUS_CREATE: &[(&str, Ours)] = &[
    ("Params.MustGetString(params.FilePath)", Is("OpenPath")),
    // The rest of the number is the disposition.
    (
        "GetParamAsString(params.FileCreateOptions)",
        Shown(
            "CreateOptions",
            "\"SEQUENTIAL_ONLY|SYNCHRONOUS_IO_NONALERT|NO_COMPRESSION\"",
            "SequentialOnly|SynchronousIoNonalert|NoCompression|0x3000000",
        ),
    ),
    (
        "GetParamAsString(params.FileOperation)",
        Wrong(
            "CreateOptions",
            0x0300_8024,
            "its upper byte is open or create; Fibratus uses an extended data item, which this event lacks",
        ),
    ),
    ("GetParamAsString(params.NTStatus)", NoValue),
];

/// The layout is the same in both directions.
const FIBRATUS_MAP: &[(&str, Ours)] = &[
    ("Params.MustGetUint64(params.FileKey)", Is("FileObject")),
    ("Params.MustGetUint64(params.FileOffset)", Is("ByteOffset")),
    ("Params.MustGetUint32(params.ProcessID)", Is("ProcessId")),
    ("Params.MustGetUint64(params.FileViewBase)", Is("ViewBase")),
    ("Params.MustGetUint64(params.FileViewSize)", Is("ViewSize")),
    ("GetParamAsString(params.MemProtect)", By(|d| protection(number(d, "MiscInfo") >> 48 & 7))),
    ("GetParamAsString(params.FileViewSectionType)", By(|d| section(number(d, "MiscInfo") >> 52))),
];

/// The names that Fibratus uses for the protections in the payloads.
fn protection(number: i128) -> DecodedValue {
    DecodedValue::Text(match number {
        1 => "READONLY".into(),
        4 => "READWRITE".into(),
        other => other.to_string(),
    })
}

/// The name that Fibratus uses for the kind of section in the payloads.
fn section(number: i128) -> DecodedValue {
    DecodedValue::Text(if number == 12 { "PAGEFILE".into() } else { number.to_string() })
}

const FIBRATUS_WRITE: &[(&str, Ours)] = &[(
    "Params.MustGetUint32(params.FileIoSize)",
    Wrong("IoSize", 81_920, "Fibratus reads it two bytes too early"),
)];

const FIBRATUS_PROCESS: &[(&str, Ours)] = &[
    ("Params.MustGetString(params.Cmdline)", Is("CommandLine")),
    ("Params.MustGetUint64(params.DTB)", Is("DirectoryTableBase")),
    ("Params.MustGetUint32(params.ExitStatus)", Is("ExitStatus")),
    ("Params.MustGetUint64(params.ProcessObject)", Is("UniqueProcessKey")),
    ("Params.MustGetString(params.ProcessName)", Is("ImageFileName")),
    ("Params.MustGetPid()", Is("ProcessId")),
    ("Params.MustGetPpid()", Is("ParentId")),
    // The real parent is the process in the header. The test sets both to the same number.
    ("Params.MustGetUint32(params.ProcessRealParentID)", NoValue),
    ("Params.MustGetUint32(params.SessionID)", Is("SessionId")),
    ("GetParamAsString(params.UserSID)", By(|d| shown(d, "UserSID"))),
];

const FIBRATUS_MODULE: &[(&str, Ours)] = &[
    ("Params.MustGetUint64(params.ModuleBase)", Is("ImageBase")),
    ("Params.MustGetUint32(params.ModuleCheckSum)", Is("ImageChecksum")),
    ("Params.MustGetUint64(params.ModuleDefaultBase)", Is("DefaultBase")),
    ("Params.MustGetString(params.ModulePath)", Is("FileName")),
    ("Params.MustGetUint64(params.ModuleSize)", Is("ImageSize")),
    ("Params.MustGetPid()", Is("ProcessId")),
    ("GetParamAsString(params.ModuleSignatureLevel)", Shown("SignatureLevel", "\"WINDOWS\"", "Windows")),
    (
        "GetParamAsString(params.ModuleSignatureType)",
        Shown("SignatureType", "\"FILE_VERIFIED\"", "FileVerified"),
    ),
];

/// Two bytes of the affinity are missing in this payload. Both decoders read the fields at their
/// regular offsets.
const FIBRATUS_THREAD: &[(&str, Ours)] = &[
    ("Params.MustGetUint8(params.BasePrio)", Is("BasePriority")),
    ("Params.MustGetUint8(params.IOPrio)", Is("IoPriority")),
    ("Params.MustGetUint8(params.PagePrio)", Is("PagePriority")),
    ("Params.MustGetUint64(params.KstackBase)", Is("StackBase")),
    ("Params.MustGetUint64(params.KstackLimit)", Is("StackLimit")),
    ("Params.MustGetPid()", Is("ProcessId")),
    ("Params.MustGetTid()", Is("TThreadId")),
    ("Params.MustGetUint64(params.StartAddress)", Is("Win32StartAddr")),
    ("Params.MustGetUint64(params.TEB)", Is("TebBase")),
    ("Params.MustGetUint64(params.UstackBase)", Is("UserStackBase")),
    ("Params.MustGetUint64(params.UstackLimit)", Is("UserStackLimit")),
];

const FIBRATUS_STACK: &[(&str, Ours)] = &[
    ("Params.MustGetUint64(params.CallstackTimestamp)", Is("EventTimeStamp")),
    ("Params.MustGetPid()", Is("StackProcess")),
    ("Params.MustGetTid()", Is("StackThread")),
    ("Params.MustGetSlice(params.Callstack)", Is("Stack")),
];

const FIBRATUS_MEMORY: &[(&str, Ours)] = &[
    ("Params.MustGetPid()", Is("ProcessId")),
    ("Params.MustGetUint64(params.MemRegionSize)", Is("RegionSize")),
    ("Params.MustGetUint64(params.MemBaseAddress)", Is("BaseAddress")),
    ("GetParamAsString(params.MemAllocType)", Shown("Flags", "\"COMMIT\"", "Commit")),
];

const FIBRATUS_NETWORK: &[(&str, Ours)] = &[
    ("GetParamAsString(params.NetDIP)", By(|d| shown(d, "daddr"))),
    ("Params.MustGetUint16(params.NetDport)", By(|d| port(d, "dport"))),
    ("GetParamAsString(params.NetSIP)", By(|d| shown(d, "saddr"))),
    ("Params.MustGetUint16(params.NetSport)", By(|d| port(d, "sport"))),
    ("Params.MustGetPid()", Is("PID")),
    ("Params.MustGetUint32(params.NetSize)", Is("size")),
];

fn port(decoded: &Decoded<'_>, name: &str) -> DecodedValue {
    DecodedValue::Number(decoded.shown[name].parse().expect("a number"))
}
