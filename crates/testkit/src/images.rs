//! The images of the cases: the libraries of Windows that occur in stacks, and benign and malicious
//! programs.
//!
//! All offsets and identities are invented. Names, folders and the order of calls are those of
//! Windows.

use super::code::Body::{Calls, Jump, Raw, Stub, Stub32, Tail};
use super::code::{ImageRegion, Spec};

/// The callees of a program: the system calls and library functions that the cases need.
const BASE: &[&str] = &[
    "kernelbase!OpenProcess",
    "kernelbase!VirtualProtect",
    "kernelbase!SleepEx",
    "kernelbase!WaitForSingleObjectEx",
    "kernelbase!LoadLibraryExW",
    "kernelbase!CreateRemoteThreadEx",
    "kernelbase!CreateFileW",
    "kernel32!CreateThread",
    "user32!GetMessageW",
    "user32!DispatchMessageW",
    "user32!EnumWindows",
    "ntdll!NtOpenProcess",
    "ntdll!NtClose",
    "ntdll!NtDelayExecution",
    "helper",
    "*",
];

/// `mov r10, rcx`, `mov eax, 26h`, `syscall`, `ret`: a private stub.
const OWN_SYSCALL: &[u8] = &[0x4c, 0x8b, 0xd1, 0xb8, 0x26, 0, 0, 0, 0x0f, 0x05, 0xc3];
/// Offset of the return address of its `syscall`.
pub(super) const OWN_SYSCALL_RETURN: u32 = 10;
/// A private stub with `jmp r11` to the `syscall` of `ntdll.dll`.
const OWN_STUB: &[u8] = &[
    0x4c, 0x8b, 0xd1, 0xb8, 0x26, 0, 0, 0, 0x49, 0xbb, 0x14, 0x10, 0x00, 0x0d, 0xf8, 0x7f, 0, 0, 0x41, 0xff,
    0xe3,
];
/// `mov r11, [rip+…]`, `jmp r11`, and `push r11`, `ret`: other forms of that jump.
const OWN_STUB_LOADED: &[u8] =
    &[0x4c, 0x8b, 0xd1, 0xb8, 0x26, 0, 0, 0, 0x4c, 0x8b, 0x1d, 0x10, 0x30, 0, 0, 0x41, 0xff, 0xe3];
const OWN_STUB_PUSHED: &[u8] = &[
    0x4c, 0x8b, 0xd1, 0xb8, 0x26, 0, 0, 0, 0x49, 0xbb, 0x14, 0x10, 0x00, 0x0d, 0xf8, 0x7f, 0, 0, 0x41, 0x53,
    0xc3,
];

/// The functions of all programs.
const PROGRAM: &[(&str, super::code::Body)] = &[
    ("entry", Calls(&["main", "*"])),
    (
        "main",
        Calls(&[
            "work",
            "via_thunk",
            "via_own",
            "via_loaded",
            "via_pushed",
            "direct",
            "via_tail",
            "callback",
            "*",
        ]),
    ),
    ("work", Calls(BASE)),
    ("callback", Calls(BASE)),
    ("helper", Calls(&["*"])),
    ("via_thunk", Calls(&["thunk_open", "thunk_close"])),
    ("via_own", Calls(&["own_stub"])),
    ("via_loaded", Calls(&["own_stub_loaded"])),
    ("via_pushed", Calls(&["own_stub_pushed"])),
    ("direct", Calls(&["own_syscall"])),
    ("via_tail", Calls(&["tail"])),
    ("tail", Tail("work")),
    ("own_stub", Raw(OWN_STUB)),
    ("own_stub_loaded", Raw(OWN_STUB_LOADED)),
    ("own_stub_pushed", Raw(OWN_STUB_PUSHED)),
    ("own_syscall", Raw(OWN_SYSCALL)),
    ("thunk_open", Jump("ntdll!NtOpenProcess")),
    ("thunk_close", Jump("ntdll!NtClose")),
    // A call, followed by a jump through a register or a change of the stack pointer.
    ("jump_rbx", Raw(&[0x90, 0x90, 0x90, 0xff, 0xd0, 0xff, 0x23])),
    ("after_call", Raw(&[0x48, 0x8b, 0xcb, 0xff, 0xd0, 0x48, 0x83, 0xc4, 0x28, 0xc3])),
];

/// ROP gadgets in the libraries of Windows: a jump through a register, or a change of the stack
/// pointer. Each starts with five bytes that are not a call.
const GADGETS: [(&str, super::code::Body); 6] = [
    ("GadgetJumpRbx", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0xff, 0x23])),
    ("GadgetJumpRdi", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0xff, 0x27])),
    ("GadgetJumpRsi", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0xff, 0x26])),
    ("GadgetJumpR13", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0x41, 0xff, 0x65, 0x00])),
    ("GadgetPivot", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0x48, 0x83, 0xc4, 0x68, 0xc3])),
    ("GadgetPop", Raw(&[0x48, 0x8b, 0xcb, 0x33, 0xc0, 0x5f, 0x5e, 0x5b, 0xc3])),
];
/// Offset of the gadget in each of these functions.
pub(super) const GADGET: u32 = 5;

/// `syscall` and `ret` outside of a stub, 8 bytes from the start.
const STRAY: &[u8] = &[0x48, 0x8b, 0xcb, 0xb8, 0x26, 0, 0, 0, 0x0f, 0x05, 0xc3];
pub(super) const STRAY_RETURN: u32 = 10;

const SYSTEM32: &[(&str, super::code::Body)] = &[
    ("NtClose", Stub(0x0f)),
    ("NtAllocateVirtualMemory", Stub(0x18)),
    ("NtOpenProcess", Stub(0x26)),
    ("NtMapViewOfSection", Stub(0x28)),
    ("NtDelayExecution", Stub(0x34)),
    ("NtQuerySystemInformation", Stub(0x36)),
    ("NtWriteVirtualMemory", Stub(0x3a)),
    ("NtDuplicateObject", Stub(0x3c)),
    ("NtProtectVirtualMemory", Stub(0x50)),
    ("NtCreateFile", Stub(0x55)),
    ("NtWaitForSingleObject", Stub(0x04)),
    ("NtCreateThreadEx", Stub(0xc1)),
    ("NtGetNextProcess", Stub(0xf2)),
    ("NtWaitForWorkViaWorkerFactory", Stub(0x1d3)),
    ("RtlUserThreadStart", Calls(&["*"])),
    ("RtlUserFiberStart", Calls(&["*"])),
    ("LdrInitializeThunk", Calls(&["LdrpInitialize"])),
    ("LdrpInitialize", Calls(&["LdrLoadDll", "*"])),
    ("LdrLoadDll", Calls(&["LdrpMapView"])),
    ("LdrpMapView", Calls(&["NtMapViewOfSection"])),
    (
        "TppWorkerThread",
        Calls(&["TppWorkpExecuteCallback", "TppTimerpExecuteCallback", "NtWaitForWorkViaWorkerFactory"]),
    ),
    ("TppWorkpExecuteCallback", Calls(&["*"])),
    ("TppTimerpExecuteCallback", Calls(&["*"])),
    ("RtlpTpWorkCallback", Calls(&["*"])),
    ("RtlpTpTimerCallback", Calls(&["*"])),
    ("KiUserApcDispatcher", Calls(&["RtlDispatchAPC", "*"])),
    ("RtlDispatchAPC", Calls(&["*"])),
    ("KiUserCallbackDispatcher", Calls(&["*"])),
    ("KiUserExceptionDispatcher", Calls(&["RtlDispatchException"])),
    ("RtlDispatchException", Calls(&["RtlpCallVectoredHandlers", "*"])),
    ("RtlpCallVectoredHandlers", Calls(&["*"])),
    ("RtlExitUserThread", Calls(&["NtClose"])),
    ("RtlpPlain", Calls(&["*"])),
    ("StrayOne", Raw(STRAY)),
    ("StrayTwo", Raw(STRAY)),
    ("StrayThree", Raw(STRAY)),
    ("StrayFour", Raw(STRAY)),
    ("StrayFive", Raw(STRAY)),
    GADGETS[0],
    GADGETS[3],
    GADGETS[4],
    ("EtwEventWrite", Calls(&["NtTraceEvent"])),
    ("NtTraceEvent", Stub(0x5e)),
];

/// The functions of libraries that write memory dumps.
const DUMP: &[(&str, super::code::Body)] = &[("MiniDumpWriteDump", Calls(&["kernelbase!OpenProcess", "*"]))];

/// All images.
pub(super) const IMAGES: &[Spec] = &[
    Spec {
        key: "ntoskrnl",
        path: r"\SystemRoot\system32\ntoskrnl.exe",
        location: ImageRegion::Kernel,
        functions: &[
            ("NtClose", Calls(&["*"])),
            ("NtAllocateVirtualMemory", Calls(&["*"])),
            ("NtOpenProcess", Calls(&["*"])),
            ("NtMapViewOfSection", Calls(&["*"])),
            ("NtDelayExecution", Calls(&["*"])),
            ("NtQuerySystemInformation", Calls(&["*"])),
            ("NtWriteVirtualMemory", Calls(&["*"])),
            ("NtDuplicateObject", Calls(&["*"])),
            ("NtProtectVirtualMemory", Calls(&["*"])),
            ("NtCreateFile", Calls(&["*"])),
            ("NtWaitForSingleObject", Calls(&["*"])),
            ("NtCreateThreadEx", Calls(&["*"])),
            ("NtGetNextProcess", Calls(&["*"])),
            ("NtWaitForWorkViaWorkerFactory", Calls(&["*"])),
            ("NtUserGetMessage", Calls(&["*"])),
            ("KiSystemServiceCopyEnd", Calls(&["*"])),
            ("KiPageFault", Calls(&["*"])),
            ("KiSwapContext", Calls(&["*"])),
            ("KeUserModeCallback", Calls(&["*"])),
            ("EtwTraceStack", Calls(&["*"])),
        ],
    },
    Spec {
        key: "driver",
        path: r"\SystemRoot\System32\drivers\contoso.sys",
        location: ImageRegion::Kernel,
        functions: &[("Filter", Calls(&["*"])), ("Dispatch", Calls(&["*"]))],
    },
    Spec {
        key: "ntdll",
        path: r"C:\Windows\System32\ntdll.dll",
        location: ImageRegion::Library,
        functions: SYSTEM32,
    },
    Spec {
        key: "kernel32",
        path: r"C:\Windows\System32\kernel32.dll",
        location: ImageRegion::Library,
        functions: &[
            ("BaseThreadInitThunk", Calls(&["*"])),
            ("CreateThread", Calls(&["kernelbase!CreateRemoteThreadEx"])),
            ("LoadLibraryA", Calls(&["kernelbase!LoadLibraryExW"])),
            ("LoadLibraryW", Calls(&["kernelbase!LoadLibraryExW"])),
            ("RegisterWaitCallback", Calls(&["*"])),
        ],
    },
    Spec {
        key: "kernelbase",
        path: r"C:\Windows\System32\KernelBase.dll",
        location: ImageRegion::Library,
        functions: &[
            ("OpenProcess", Calls(&["ntdll!NtOpenProcess", "*"])),
            ("VirtualProtect", Calls(&["ntdll!NtProtectVirtualMemory", "*"])),
            ("SleepEx", Calls(&["ntdll!NtDelayExecution"])),
            ("WaitForSingleObjectEx", Calls(&["ntdll!NtWaitForSingleObject"])),
            ("LoadLibraryExW", Calls(&["ntdll!LdrLoadDll"])),
            ("LoadLibraryA", Calls(&["LoadLibraryExW"])),
            ("CreateRemoteThreadEx", Calls(&["ntdll!NtCreateThreadEx"])),
            ("CreateFileW", Calls(&["ntdll!NtCreateFile"])),
            ("CtrlRoutine", Calls(&["*"])),
            GADGETS[1],
            GADGETS[2],
            GADGETS[5],
        ],
    },
    Spec {
        key: "win32u",
        path: r"C:\Windows\System32\win32u.dll",
        location: ImageRegion::Library,
        functions: &[("NtUserGetMessage", Stub(0x1006)), ("NtUserMessageCall", Stub(0x1007))],
    },
    Spec {
        key: "user32",
        path: r"C:\Windows\System32\user32.dll",
        location: ImageRegion::Library,
        functions: &[
            ("GetMessageW", Calls(&["win32u!NtUserGetMessage"])),
            ("SendMessageW", Calls(&["win32u!NtUserMessageCall"])),
            ("DispatchMessageW", Calls(&["*"])),
            ("EnumWindows", Calls(&["*"])),
            ("ClientCallback", Calls(&["*"])),
        ],
    },
    Spec {
        key: "dbgcore",
        path: r"C:\Windows\System32\dbgcore.dll",
        location: ImageRegion::Library,
        functions: DUMP,
    },
    Spec {
        key: "comsvcs",
        path: r"C:\Windows\System32\comsvcs.dll",
        location: ImageRegion::Library,
        functions: DUMP,
    },
    // The copy of the library that a tool brings.
    Spec {
        key: "dbghelp",
        path: r"C:\ProgramData\Contoso\dbghelp.dll",
        location: ImageRegion::Library,
        functions: DUMP,
    },
    Spec {
        key: "clr",
        path: r"C:\Windows\Microsoft.NET\Framework64\v4.0.30319\clr.dll",
        location: ImageRegion::Library,
        functions: &[("CallDescrWorker", Calls(&["*"])), ("ThreadStart", Calls(&["CallDescrWorker"]))],
    },
    Spec {
        key: "hook",
        path: r"C:\Program Files\Contoso Defence\ctiuser.dll",
        location: ImageRegion::Library,
        functions: &[("OnCall", Calls(&["*"]))],
    },
    Spec {
        key: "agent",
        path: r"C:\ProgramData\Contoso\agent.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "tool",
        path: r"C:\Program Files\Contoso Tools\tool.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "temp",
        path: r"C:\Windows\Temp\setup.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "inbox",
        path: r"C:\Windows\System32\inbox.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "werfault",
        path: r"C:\Windows\System32\WerFault.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    // Not signed, unlike the programs of Windows.
    Spec {
        key: "planted",
        path: r"C:\Windows\System32\planted.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "lsass",
        path: r"C:\Windows\System32\lsass.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "svclib",
        path: r"C:\Windows\System32\contososvc.dll",
        location: ImageRegion::Library,
        functions: PROGRAM,
    },
    Spec {
        key: "plugin",
        path: r"C:\ProgramData\Contoso\plugin.dll",
        location: ImageRegion::Library,
        functions: PROGRAM,
    },
    Spec {
        key: "amsi",
        path: r"C:\Windows\System32\amsi.dll",
        location: ImageRegion::Library,
        functions: &[("AmsiOpenSession", Calls(&["*"])), ("AmsiScanBuffer", Calls(&["*"]))],
    },
    Spec {
        key: "csrss",
        path: r"C:\Windows\System32\csrss.exe",
        location: ImageRegion::Program,
        functions: PROGRAM,
    },
    Spec {
        key: "csrsrv",
        path: r"C:\Windows\System32\csrsrv.dll",
        location: ImageRegion::Library,
        functions: &[
            ("CsrApiRequestThread", Calls(&["CsrOpen", "ntdll!NtWaitForSingleObject"])),
            ("CsrOpen", Calls(&["ntdll!NtOpenProcess"])),
        ],
    },
    // A second `ntdll.dll`, which a program mapped to use stubs without inline hooks.
    Spec {
        key: "copy",
        path: r"C:\Users\Public\ntdll.dll",
        location: ImageRegion::Library,
        functions: SYSTEM32,
    },
    Spec {
        key: "copy2",
        path: r"C:\ProgramData\Contoso\ntdll.dll",
        location: ImageRegion::Library,
        functions: SYSTEM32,
    },
    Spec {
        key: "wow64",
        path: r"C:\Windows\System32\wow64.dll",
        location: ImageRegion::Library,
        functions: &[
            ("Wow64SystemServiceEx", Calls(&["ntdll!NtOpenProcess", "ntdll!NtDelayExecution"])),
            ("Wow64LdrpInitialize", Calls(&["*"])),
        ],
    },
    Spec {
        key: "wow64cpu",
        path: r"C:\Windows\System32\wow64cpu.dll",
        location: ImageRegion::Library,
        functions: &[
            ("ServiceNoTurbo", Calls(&["wow64!Wow64SystemServiceEx"])),
            ("BTCpuSimulate", Calls(&["ServiceNoTurbo"])),
        ],
    },
    Spec {
        key: "ntdll32",
        path: r"C:\Windows\SysWOW64\ntdll.dll",
        location: ImageRegion::Bits32,
        functions: &[
            ("NtOpenProcess", Stub32(0x26)),
            ("NtDelayExecution", Stub32(0x34)),
            ("__RtlUserThreadStart", Calls(&["*"])),
            ("_RtlUserThreadStart", Calls(&["__RtlUserThreadStart"])),
        ],
    },
    Spec {
        key: "kernel32x32",
        path: r"C:\Windows\SysWOW64\kernel32.dll",
        location: ImageRegion::Bits32,
        functions: &[("BaseThreadInitThunk", Calls(&["*"]))],
    },
    Spec {
        key: "kernelbase32",
        path: r"C:\Windows\SysWOW64\KernelBase.dll",
        location: ImageRegion::Bits32,
        functions: &[
            ("OpenProcess", Calls(&["ntdll32!NtOpenProcess"])),
            ("SleepEx", Calls(&["ntdll32!NtDelayExecution"])),
        ],
    },
    Spec {
        key: "host32",
        path: r"C:\Program Files (x86)\Contoso Sync\sync.exe",
        location: ImageRegion::Bits32,
        functions: &[
            ("entry", Calls(&["main"])),
            ("main", Calls(&["kernelbase32!OpenProcess", "kernelbase32!SleepEx", "*"])),
            ("gate", Calls(&["*"])),
        ],
    },
];
