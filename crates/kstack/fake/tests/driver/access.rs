//! Access control: opening the device, and using an open handle.

use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::process::Command;

use windows_sys::Win32::Foundation::{
    CloseHandle, ERROR_ACCESS_DENIED, GetLastError, HANDLE_FLAG_INHERIT, LUID, SetHandleInformation,
};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES,
    TOKEN_PRIVILEGES,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use crate::device::Device;
use crate::world::{World, calls};

/// The argument of a process that inherits an open file.
pub const CHILD: &str = "--child";

/// SeDebugPrivilege, which has the same number on every Windows.
const DEBUG: LUID = LUID { LowPart: 20, HighPart: 0 };

/// Enables or disables the privilege.
pub fn switch_privilege(on: bool) {
    let mut token = std::ptr::null_mut();
    // SAFETY: no pointers.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: `token` is a variable.
    let opened = unsafe { OpenProcessToken(process, TOKEN_ADJUST_PRIVILEGES, &mut token) };
    assert_ne!(opened, 0);
    let attributes = if on { SE_PRIVILEGE_ENABLED } else { 0 };
    let privileges = TOKEN_PRIVILEGES {
        PrivilegeCount: 1,
        Privileges: [LUID_AND_ATTRIBUTES { Luid: DEBUG, Attributes: attributes }],
    };
    let none = std::ptr::null_mut();
    // SAFETY: the structure has one privilege, as its count states; the previous state is not
    // requested.
    let adjusted = unsafe { AdjustTokenPrivileges(token, 0, &privileges, 0, none, std::ptr::null_mut()) };
    // SAFETY: no pointers. The last error shows whether all privileges were adjusted.
    assert_eq!((adjusted, unsafe { GetLastError() }), (1, 0), "the account has the privilege");
    // SAFETY: opened above, and not used again.
    unsafe { CloseHandle(token) };
}

pub fn access_list_is_set(_: &mut World) {
    let calls = calls();
    let at =
        |text: &str| calls.iter().rposition(|call| call.contains(text)).unwrap_or_else(|| panic!("{text}"));
    let created = at("IoCreateDevice \\Device\\StackhoundKstack 0x22 0x100 0");
    let opened = at("ObOpenObjectByPointer device 0x200 access 0x40000 mode 0");
    let list = at("ZwSetSecurityObject 0x4 D:P(A;;FA;;;SY)(A;;FA;;;BA) = 0x0");
    let linked = at("IoCreateSymbolicLink \\DosDevices\\Global\\StackhoundKstack");
    assert!(created < opened && opened < list && list < linked);
}

pub fn the_privilege_is_needed(world: &mut World) {
    let refused = |world: &mut World| {
        let (opened, calls) = world.calls(|_| Device::open());
        assert_eq!(opened.err(), Some(ERROR_ACCESS_DENIED));
        assert_eq!(
            calls[..2],
            ["SeSinglePrivilegeCheck 0:20 mode 1 = 0", "completed 0x0 status 0xc0000022 bytes 0"]
        );
    };
    switch_privilege(false);
    refused(world);
    switch_privilege(true);
    world.with(|settings| settings.no_privilege = true, refused);
    assert!(Device::open().is_ok());
}

/// An open handle can be passed to another process, but the driver refuses its requests.
pub fn another_process_is_refused(world: &mut World) {
    let handle = world.device.0.as_raw_handle();
    // SAFETY: an open handle.
    assert_ne!(unsafe { SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) }, 0);
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program).args([CHILD, &(handle as usize).to_string()]).status();
    assert_eq!(child.expect("it starts").code(), Some(ERROR_ACCESS_DENIED as i32));
    assert!(world.device.version().is_ok());
}

/// The other process: its exit code is the error of its request.
pub fn child(handle: &str) {
    let handle = handle.parse::<usize>().expect("a handle");
    // SAFETY: the parent passes the handle of an open file that this process has inherited.
    let device = Device(unsafe { std::fs::File::from_raw_handle(handle as *mut _) });
    let error = device.version().err().unwrap_or(0);
    std::process::exit(error as i32)
}

pub fn fewer_rights_are_refused(_: &mut World) {
    for (read, write) in [(true, false), (false, true)] {
        let device = Device::open_for(read, write).expect("opens for less");
        assert_eq!(device.version(), Err(ERROR_ACCESS_DENIED), "read {read}, write {write}");
    }
}
