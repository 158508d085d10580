//! Code locations of Windows that occur in stacks: return addresses, and system calls with their
//! stubs.
//!
//! The offsets of system-call stubs, of the two outermost frames of threads, and of the frames
//! through which a process writes an event are those of build 19041.508. All other offsets are
//! invented.

use crate::image::SystemImage;

/// A return address: the image and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site(pub SystemImage, pub u32);

/// A system call.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Call {
    stub: Site,
    /// The routine in the kernel, whose address is in the event.
    pub routine: Site,
    /// The functions between the program and the stub, innermost first.
    pub wrappers: &'static [Site],
}

impl Call {
    /// The return address of the stub's `syscall` instruction.
    pub fn stub_return(&self) -> Site {
        Site(self.stub.0, self.stub.1 + 0x14)
    }

    /// A return address in the routine.
    pub fn in_routine(&self, variant: u32) -> Site {
        Site(self.routine.0, self.routine.1 + 0x4b + 0x1a * variant)
    }
}

const fn native(stub: u32, routine: u32, wrappers: &'static [Site]) -> Call {
    Call { stub: Site(SystemImage::Ntdll, stub), routine: Site(SystemImage::Ntoskrnl, routine), wrappers }
}

const fn graphics(stub: u32, routine: u32, wrappers: &'static [Site]) -> Call {
    Call { stub: Site(SystemImage::Win32u, stub), routine: Site(SystemImage::Win32kfull, routine), wrappers }
}

const fn base(offset: u32) -> Site {
    Site(SystemImage::Kernelbase, offset)
}

const fn nt(offset: u32) -> Site {
    Site(SystemImage::Ntoskrnl, offset)
}

/// The start of a function that only scenarios for comparisons call. It is above all other exports
/// of its image.
pub(crate) const LAYOUT: Site = Site(SystemImage::OfficeCore, 0xc0_0000);

pub(crate) static NT_WAIT_FOR_SINGLE_OBJECT: Call = native(0x9_be30, 0x5f_1a40, &[base(0x2_18ee)]);
pub(crate) static NT_READ_FILE: Call = native(0x9_be70, 0x5f_6b20, &[base(0x2_4ba6)]);
pub(crate) static NT_DEVICE_IO_CONTROL_FILE: Call = native(
    0x9_be90,
    0x60_2d10,
    &[
        Site(SystemImage::Mswsock, 0x1_1c5b),
        Site(SystemImage::Ws2, 0x2_30a1),
        Site(SystemImage::Ws2, 0x1_1f44),
    ],
);
pub(crate) static NT_WRITE_FILE: Call = native(0x9_beb0, 0x5f_75e0, &[base(0x2_4d15)]);
pub(crate) static NT_SET_EVENT: Call = native(0x9_bf70, 0x5f_2c90, &[base(0x2_16cd)]);
pub(crate) static NT_CLOSE: Call = native(0x9_bf90, 0x5f_0550, &[base(0x2_0dcf)]);
pub(crate) static NT_QUERY_INFORMATION_FILE: Call = native(0x9_bfd0, 0x5f_9e30, &[base(0x2_51d8)]);
pub(crate) static NT_QUERY_VALUE_KEY: Call =
    native(0x9_c090, 0x62_18e0, &[base(0x1_66e2), base(0x1_5f04), Site(SystemImage::Advapi32, 0x1_7a3e)]);
pub(crate) static NT_ALLOCATE_VIRTUAL_MEMORY: Call = native(0x9_c0b0, 0x5e_0c70, &[base(0x2_5a48)]);
pub(crate) static NT_CREATE_KEY: Call = native(0x9_c150, 0x62_4b70, &[base(0x1_6d8f), base(0x1_6a12)]);
pub(crate) static NT_FREE_VIRTUAL_MEMORY: Call = native(0x9_c170, 0x5e_3f90, &[base(0x2_5bf9)]);
pub(crate) static NT_OPEN_PROCESS: Call = native(0x9_c270, 0x63_a150, &[base(0x2_7c4e)]);
pub(crate) static NT_MAP_VIEW_OF_SECTION: Call = native(
    0x9_c2b0,
    0x60_9a30,
    &[
        Site(SystemImage::Ntdll, 0x1_7d2b),
        Site(SystemImage::Ntdll, 0x1_7a8c),
        Site(SystemImage::Ntdll, 0x1_745f),
        Site(SystemImage::Ntdll, 0x1_6f04),
        base(0x3_2a4d),
    ],
);
pub(crate) static NT_UNMAP_VIEW_OF_SECTION: Call = native(
    0x9_c2f0,
    0x60_b5c0,
    &[Site(SystemImage::Ntdll, 0x2_41b7), Site(SystemImage::Ntdll, 0x2_3c65), base(0x3_31be)],
);
pub(crate) static NT_TERMINATE_PROCESS: Call =
    native(0x9_c330, 0x64_1a80, &[Site(SystemImage::Ntdll, 0x6_5128), Site(SystemImage::Kernel32, 0x1_e0ab)]);
pub(crate) static NT_DELAY_EXECUTION: Call = native(0x9_c430, 0x5f_3f60, &[base(0x2_1f3e)]);
pub(crate) static NT_CREATE_THREAD_EX: Call =
    native(0x9_d5c0, 0x61_70d0, &[base(0x6_52be), Site(SystemImage::Kernel32, 0x1_b5d1)]);
pub(crate) static NT_CREATE_USER_PROCESS: Call =
    native(0x9_d6a0, 0x61_25c0, &[base(0x8_ddb4), base(0x8_aef6), Site(SystemImage::Kernel32, 0x1_cbb4)]);
pub(crate) static NT_TERMINATE_THREAD: Call =
    native(0x9_c810, 0x64_0e40, &[Site(SystemImage::Ntdll, 0x3_e07d)]);
pub(crate) static NT_CREATE_FILE: Call = native(0x9_c850, 0x60_0410, &[base(0x2_4365), base(0x2_4066)]);
pub(crate) static NT_TRACE_EVENT: Call =
    native(0x9_c960, 0x5d_7e40, &[Site(SystemImage::Ntdll, 0x4_946e), Site(SystemImage::Ntdll, 0x4_92e9)]);
pub(crate) static NT_SET_VALUE_KEY: Call =
    native(0x9_c9a0, 0x62_7f30, &[base(0x1_8a47), Site(SystemImage::Advapi32, 0x1_9c52)]);
pub(crate) static NT_ALPC_SEND_WAIT_RECEIVE_PORT: Call =
    native(0x9_cf20, 0x62_e570, &[Site(SystemImage::Rpcrt4, 0x4_d09c), Site(SystemImage::Rpcrt4, 0x5_a1c8)]);
pub(crate) static NT_OPEN_KEY_EX: Call =
    native(0x9_e1a0, 0x62_0650, &[base(0x1_5a3b), base(0x1_5628), Site(SystemImage::Advapi32, 0x1_73e1)]);
pub(crate) static NT_WAIT_FOR_WORK: Call = native(0x9_f800, 0x5d_0b90, &[]);
pub(crate) static NT_USER_MESSAGE_CALL: Call =
    graphics(0x1110, 0x4_2f80, &[Site(SystemImage::User32, 0x1_5c4e), Site(SystemImage::User32, 0x1_5a3f)]);
pub(crate) static NT_USER_MSG_WAIT: Call = graphics(0xa0f0, 0x3_b2d0, &[Site(SystemImage::User32, 0x2_01f5)]);

/// The attacker's own stub and the function that calls it. They are outside of its call graph.
pub(crate) const OWN_STUB: Site = Site(SystemImage::Updater, 0x2_8000);
pub(crate) const OWN_CALLER: Site = Site(SystemImage::Updater, 0x2_8040);
/// The return address of the call of the stub.
pub(crate) const OWN_CALL: Site = Site(SystemImage::Updater, 0x2_8040 + 12);
/// A `syscall` instruction in `ntdll.dll` outside of the stubs, and its return address.
pub(crate) const STRAY_SYSCALL: Site = Site(SystemImage::Ntdll, 0xa_1040);
pub(crate) const STRAY_RETURN: Site = Site(SystemImage::Ntdll, 0xa_1042);

/// The outermost kernel frame of a system call.
pub(crate) const SYSTEM_SERVICE: Site = nt(0x40_58b5);
/// The kernel frames of the event for the entry of a system call.
pub(crate) const SYSTEM_SERVICE_ENTRY: [Site; 2] = [nt(0x5c_e1a9), nt(0x40_56d3)];
/// The kernel frames of the page-fault handler.
pub(crate) const PAGE_FAULT: [Site; 3] = [nt(0x22_9f16), nt(0x22_8b3d), nt(0x40_205e)];
/// The kernel frames at the start of a user thread.
pub(crate) const USER_THREAD_START: [Site; 2] = [nt(0x61_5c07), nt(0x3f_d8f5)];
/// The outermost frames of a system thread, which call its routine.
pub(crate) const SYSTEM_THREAD_START: [Site; 2] = [nt(0x31_7e25), nt(0x3f_d3c8)];
/// Routines of system threads.
pub(crate) const SYSTEM_ROUTINES: [Site; 3] = [nt(0x2b_4a08), nt(0x35_5e1f), nt(0x62_9b73)];
/// The frames of an idle processor. The first one is the sampled instruction.
pub(crate) const IDLE: [Site; 3] = [Site(SystemImage::Intelppm, 0x1_3a52), nt(0x28_20cf), nt(0x3f_cd14)];
/// Start address of idle threads.
pub(crate) const IDLE_START: Site = nt(0x3f_ccd0);
/// The frames of a switch to a thread that has waited.
pub(crate) const RESUMED: [Site; 4] = [nt(0x3f_d41e), nt(0x24_1c80), nt(0x24_06df), nt(0x24_0433)];
/// The frames of a switch to a thread whose quantum had ended.
pub(crate) const PREEMPTED: [Site; 4] = [nt(0x3f_d41e), nt(0x24_1c80), nt(0x24_3b21), nt(0x3f_f0a4)];
/// The kernel frames through which the kernel calls a window procedure.
pub(crate) const CALLBACK: [Site; 4] = [
    nt(0x3f_e6a9),
    Site(SystemImage::Win32kfull, 0x6_18c3),
    Site(SystemImage::Win32kfull, 0x4_5b07),
    nt(0x61_e2c4),
];

/// The user frames between the kernel and a window procedure.
pub(crate) const CALLED_BACK: [Site; 3] = [
    Site(SystemImage::User32, 0xe858),
    Site(SystemImage::User32, 0x2_48a3),
    Site(SystemImage::Ntdll, 0xa_0c54),
];

/// The two outermost frames of a thread of a program.
pub(crate) const THREAD_ROOT: [Site; 2] = [Site(SystemImage::Kernel32, 0x1_6fd4), NATIVE_THREAD_ROOT];
/// The outermost frame of a thread of a process without the Windows subsystem.
pub(crate) const NATIVE_THREAD_ROOT: Site = Site(SystemImage::Ntdll, 0x4_cec1);
/// Start address of thread-pool threads.
pub(crate) const POOL_START: Site = Site(SystemImage::Ntdll, 0x2_2910);
/// The frames of the thread pool between a callback and the root of its thread.
pub(crate) const POOL: [Site; 2] = [Site(SystemImage::Ntdll, 0x2_2c26), Site(SystemImage::Ntdll, 0x2_3f5a)];
/// The frame of a thread-pool thread that waits for work.
pub(crate) const POOL_IDLE: Site = Site(SystemImage::Ntdll, 0x2_2b0e);
/// The frames of the loader in a new process.
pub(crate) const LOADER: [Site; 3] = [
    Site(SystemImage::Ntdll, 0x7_6d04),
    Site(SystemImage::Ntdll, 0x7_6aeb),
    Site(SystemImage::Ntdll, 0x7_6ab3),
];
/// The 64-bit frames of a system call in a 32-bit process, innermost first: the WoW64 layer.
pub(crate) const WOW64_CALL: [Site; 3] = [
    Site(SystemImage::Wow64, 0x8d4b),
    Site(SystemImage::Wow64Cpu, 0x1783),
    Site(SystemImage::Wow64Cpu, 0x1199),
];
/// The outermost 64-bit frames of a thread in a 32-bit process.
pub(crate) const WOW64_ROOT: [Site; 4] = [
    Site(SystemImage::Wow64, 0xc8fa),
    Site(SystemImage::Wow64, 0xc7bd),
    Site(SystemImage::Ntdll, 0x7_5c8b),
    Site(SystemImage::Ntdll, 0x7_6ab3),
];
/// The 32-bit frames of a system call in a 32-bit process.
pub(crate) const WOW64_STUB: [Site; 2] =
    [Site(SystemImage::Ntdll32, 0x7_2f0c), Site(SystemImage::Kernelbase32, 0x11_4d29)];
/// The outermost 32-bit frames of a thread in a 32-bit process.
pub(crate) const WOW64_THREAD_ROOT: [Site; 3] = [
    Site(SystemImage::Kernel32x32, 0x1_fa29),
    Site(SystemImage::Ntdll32, 0x6_7a9e),
    Site(SystemImage::Ntdll32, 0x6_7a6e),
];

/// The innermost kernel frames of each kind of event, innermost first.
pub(crate) mod below {
    use super::{Site, SystemImage, nt};

    const FILTER: [Site; 2] = [Site(SystemImage::Fltmgr, 0x5f9a), nt(0x2d_1c35)];
    const DISK: [Site; 6] = [
        Site(SystemImage::Partmgr, 0x2b4d),
        nt(0x2d_1c35),
        Site(SystemImage::Volmgr, 0x1109),
        nt(0x2d_1c35),
        Site(SystemImage::Ntfs, 0x1_0a5e),
        Site(SystemImage::Ntfs, 0xc1f2),
    ];

    pub const FILE: &[Site] = &[FILTER[0], Site(SystemImage::Fltmgr, 0x5c07), FILTER[1]];
    pub const FILE_OPEN: &[Site] =
        &[Site(SystemImage::Fltmgr, 0x3_9d12), FILTER[1], nt(0x60_c9a3), nt(0x5f_c814), nt(0x60_0d92)];
    pub const DISK_FOR_FILE: &[Site] =
        &[DISK[0], DISK[1], DISK[2], DISK[3], DISK[4], DISK[5], FILTER[0], FILTER[1]];
    pub const DISK_FOR_PAGE: &[Site] =
        &[DISK[0], DISK[1], DISK[4], DISK[5], FILTER[0], FILTER[1], nt(0x22_f7d1)];
    pub const FAULT: &[Site] = &[nt(0x22_c043), nt(0x22_b911)];
    pub const REGISTRY: &[Site] = &[nt(0x62_1f38), nt(0x62_1b07)];
    pub const REGISTRY_OPEN: &[Site] = &[nt(0x60_f6d9), nt(0x60_e14a), nt(0x5f_c814), nt(0x62_09d6)];
    pub const MEMORY: &[Site] = &[nt(0x5e_0e1c)];
    pub const IMAGE: &[Site] = &[nt(0x61_0b3c), nt(0x60_a2de), nt(0x60_9f17)];
    pub const THREAD: &[Site] = &[nt(0x61_7a52), nt(0x61_743b)];
    pub const PROCESS: &[Site] = &[nt(0x61_3c8e), nt(0x61_2b19)];
    pub const END: &[Site] = &[nt(0x64_2b5f), nt(0x64_1fd4)];
    pub const SEND: &[Site] = &[
        Site(SystemImage::Tcpip, 0x2_4f81),
        Site(SystemImage::Tcpip, 0x2_1d60),
        Site(SystemImage::Afd, 0x1_8c44),
        Site(SystemImage::Afd, 0x1_71ab),
        nt(0x60_31d8),
    ];
    pub const READY: &[Site] = &[nt(0x23_f6b4), nt(0x5f_2d51)];
    pub const PROVIDER: &[Site] = &[nt(0x5d_a2c7), nt(0x5d_9e31)];
    pub const AUDIT: &[Site] = &[nt(0x5d_a2c7), nt(0x5d_9e31), nt(0x63_a4f0)];
    pub const WRITE_BEHIND: &[Site] =
        &[DISK[0], DISK[1], DISK[4], DISK[5], FILTER[0], FILTER[1], nt(0x2f_30aa), nt(0x2f_1e96)];
}
