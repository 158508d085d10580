//! The exported functions of the known images that occur in stacks.
//!
//! The offsets of stubs, of thread roots, and of the functions through which a process writes an
//! event are those of build 19041.508. All other offsets are invented, as are the return addresses
//! in [`site`](crate::site). Functions between them are not exported: for a return address in such
//! a function, only the nearest preceding export is known, as with real images.

use crate::image::SystemImage;
use crate::problem;

/// A system-call stub, which is also an export.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stub {
    pub image: SystemImage,
    pub rva: u32,
    pub number: u32,
    pub name: &'static str,
}

const fn native(rva: u32, number: u32, name: &'static str) -> Stub {
    Stub { image: SystemImage::Ntdll, rva, number, name }
}

const fn graphics(rva: u32, number: u32, name: &'static str) -> Stub {
    Stub { image: SystemImage::Win32u, rva, number, name }
}

/// The stubs that occur in scenarios.
pub(super) const STUBS: [Stub; 27] = [
    native(0x9_be30, 4, "NtWaitForSingleObject"),
    native(0x9_be70, 6, "NtReadFile"),
    native(0x9_be90, 7, "NtDeviceIoControlFile"),
    native(0x9_beb0, 8, "NtWriteFile"),
    native(0x9_bf70, 14, "NtSetEvent"),
    native(0x9_bf90, 15, "NtClose"),
    native(0x9_bfd0, 17, "NtQueryInformationFile"),
    native(0x9_c090, 23, "NtQueryValueKey"),
    native(0x9_c0b0, 24, "NtAllocateVirtualMemory"),
    native(0x9_c150, 29, "NtCreateKey"),
    native(0x9_c170, 30, "NtFreeVirtualMemory"),
    native(0x9_c270, 38, "NtOpenProcess"),
    native(0x9_c2b0, 40, "NtMapViewOfSection"),
    native(0x9_c2f0, 42, "NtUnmapViewOfSection"),
    native(0x9_c330, 44, "NtTerminateProcess"),
    native(0x9_c430, 52, "NtDelayExecution"),
    native(0x9_c810, 83, "NtTerminateThread"),
    native(0x9_c850, 85, "NtCreateFile"),
    native(0x9_c960, 94, "NtTraceEvent"),
    native(0x9_c9a0, 96, "NtSetValueKey"),
    native(0x9_cf20, 140, "NtAlpcSendWaitReceivePort"),
    native(0x9_d5c0, 193, "NtCreateThreadEx"),
    native(0x9_d6a0, 200, "NtCreateUserProcess"),
    native(0x9_e1a0, 288, "NtOpenKeyEx"),
    native(0x9_f800, 467, "NtWaitForWorkViaWorkerFactory"),
    graphics(0x1110, 4103, "NtUserMessageCall"),
    graphics(0xa0f0, 5254, "NtUserMsgWaitForMultipleObjectsEx"),
];

/// An exported function: RVA, size in bytes, name.
pub(super) type Function = (u32, u32, &'static str);

/// The exported functions of an image, without stubs.
pub(super) fn functions(image: SystemImage) -> &'static [Function] {
    match image {
        SystemImage::Ntoskrnl => &[
            (0x2d_1be0, 0x60, "IofCallDriver"),
            (0x5c_0000, 0x40, "KeQueryPerformanceCounter"),
            (0x5d_7e40, 0x2100, "NtTraceEvent"),
            (0x5e_0c70, 0x900, "NtAllocateVirtualMemory"),
            (0x5e_3f90, 0x700, "NtFreeVirtualMemory"),
            (0x5f_0550, 0x200, "NtClose"),
            (0x5f_1a40, 0x180, "NtWaitForSingleObject"),
            (0x5f_2c90, 0x1a0, "NtSetEvent"),
            (0x5f_3f60, 0x100, "NtDelayExecution"),
            (0x5f_6b20, 0x900, "NtReadFile"),
            (0x5f_75e0, 0xa00, "NtWriteFile"),
            (0x5f_9e30, 0xb00, "NtQueryInformationFile"),
            (0x5f_c6b0, 0x400, "ObOpenObjectByName"),
            (0x60_0410, 0x90, "NtCreateFile"),
            (0x60_0c00, 0x500, "IoCreateFileEx"),
            (0x60_2d10, 0x80, "NtDeviceIoControlFile"),
            (0x60_9a30, 0x900, "NtMapViewOfSection"),
            (0x60_b5c0, 0xa0, "NtUnmapViewOfSection"),
            (0x61_25c0, 0x2000, "NtCreateUserProcess"),
            (0x61_70d0, 0x1000, "NtCreateThreadEx"),
            (0x62_0650, 0x200, "NtOpenKeyEx"),
            (0x62_18e0, 0x800, "NtQueryValueKey"),
            (0x62_4b70, 0x200, "NtCreateKey"),
            (0x62_7f30, 0x800, "NtSetValueKey"),
            (0x62_e570, 0x400, "NtAlpcSendWaitReceivePort"),
            (0x63_a150, 0x500, "NtOpenProcess"),
            (0x64_0e40, 0x200, "NtTerminateThread"),
            (0x64_1a80, 0x700, "NtTerminateProcess"),
        ],
        SystemImage::Ntdll => &[
            (0x1_6e80, 0x190, "LdrLoadDll"),
            (0x2_3b90, 0x180, "LdrUnloadDll"),
            (0x3_e030, 0x80, "RtlExitUserThread"),
            (0x4_9280, 0xf0, "EtwEventWrite"),
            (0x4_cea0, 0x40, "RtlUserThreadStart"),
            (0x6_5080, 0xe0, "RtlExitUserProcess"),
            (0x7_6aa0, 0x30, "LdrInitializeThunk"),
        ],
        SystemImage::Kernel32 => &[
            (0x1_6fc0, 0x30, "BaseThreadInitThunk"),
            (0x1_b590, 0x60, "CreateThread"),
            (0x1_cb60, 0x70, "CreateProcessW"),
            (0x1_e0a0, 0x20, "ExitProcess"),
        ],
        SystemImage::Kernelbase => &[
            (0x1_5600, 0x50, "RegOpenKeyExW"),
            (0x1_5d90, 0x300, "RegQueryValueExW"),
            (0x1_6980, 0xe0, "RegCreateKeyExInternalW"),
            (0x1_8900, 0x280, "RegSetValueExW"),
            (0x2_0d90, 0x90, "CloseHandle"),
            (0x2_16b0, 0x40, "SetEvent"),
            (0x2_1850, 0x120, "WaitForSingleObjectEx"),
            (0x2_1ea0, 0x110, "SleepEx"),
            (0x2_3ff0, 0x90, "CreateFileW"),
            (0x2_4af0, 0x150, "ReadFile"),
            (0x2_4c60, 0x180, "WriteFile"),
            (0x2_5150, 0x220, "GetFileInformationByHandleEx"),
            (0x2_5a00, 0x70, "VirtualAlloc"),
            (0x2_5bb0, 0x80, "VirtualFree"),
            (0x2_7bf0, 0x90, "OpenProcess"),
            (0x3_29e0, 0x170, "LoadLibraryExW"),
            (0x3_3190, 0x70, "FreeLibrary"),
            (0x6_5040, 0x3f0, "CreateRemoteThreadEx"),
            (0x8_ae90, 0x80, "CreateProcessW"),
            (0x8_b100, 0x3200, "CreateProcessInternalW"),
        ],
        SystemImage::Advapi32 => &[
            (0x1_73c0, 0x60, "RegOpenKeyExW"),
            (0x1_7a20, 0x60, "RegQueryValueExW"),
            (0x1_9c30, 0x60, "RegSetValueExW"),
        ],
        SystemImage::User32 => {
            &[(0x1_59c0, 0xe0, "SendMessageW"), (0x2_0150, 0x100, "MsgWaitForMultipleObjectsEx")]
        }
        SystemImage::Rpcrt4 => &[(0x4_d000, 0xe0, "I_RpcSendReceive"), (0x5_a0e0, 0x150, "NdrClientCall3")],
        SystemImage::Ws2 => &[(0x1_1ed0, 0xc0, "send"), (0x2_3050, 0x1a0, "WSASend")],
        SystemImage::Wow64 => {
            &[(0x8c50, 0x180, "Wow64SystemServiceEx"), (0xc6f0, 0x180, "Wow64LdrpInitialize")]
        }
        SystemImage::Wow64Cpu => &[(0x1170, 0x60, "BTCpuSimulate")],
        SystemImage::Ntdll32 => &[(0x6_7a40, 0x40, "_RtlUserThreadStart@8"), (0x7_2f00, 0x10, "NtReadFile")],
        SystemImage::Kernel32x32 => &[(0x1_fa10, 0x30, "BaseThreadInitThunk")],
        SystemImage::Kernelbase32 => &[(0x11_4c90, 0x120, "ReadFile")],
        _ => problem::functions(image),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site;

    #[test]
    fn functions_are_sorted_and_do_not_overlap() {
        for image in [
            SystemImage::Ntoskrnl,
            SystemImage::Ntdll,
            SystemImage::Kernel32,
            SystemImage::Kernelbase,
            SystemImage::Advapi32,
        ] {
            let functions = functions(image);
            assert!(functions.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{image:?}");
        }
    }

    #[test]
    fn stubs_match_the_calls() {
        let calls = [
            (&site::NT_CREATE_FILE, "NtCreateFile"),
            (&site::NT_OPEN_PROCESS, "NtOpenProcess"),
            (&site::NT_CREATE_THREAD_EX, "NtCreateThreadEx"),
            (&site::NT_USER_MSG_WAIT, "NtUserMsgWaitForMultipleObjectsEx"),
        ];
        for (call, name) in calls {
            let site = call.stub_return();
            let stub = STUBS.iter().find(|stub| (stub.image, stub.rva + 0x14) == (site.0, site.1));
            assert_eq!(stub.map(|stub| stub.name), Some(name));
        }
    }
}
