//! Privileges of callers, and the access list of the device.

use std::ffi::c_void;

use windows_sys::Win32::Foundation::{CloseHandle, LUID, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::{
    DACL_SECURITY_INFORMATION, LUID_AND_ATTRIBUTES, PRIVILEGE_SET, PrivilegeCheck, TOKEN_QUERY,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION,
};

use super::log::log;
use super::{Boolean, Object, objects, own, status};
use crate::settings::Settings;

/// Whether the caller holds the privilege, and has it enabled. Wine's own function always returns
/// true.
///
/// # Safety
/// As SeSinglePrivilegeCheck, which takes no pointers.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_SeSinglePrivilegeCheck(privilege: LUID, mode: i8) -> Boolean {
    const KERNEL: i8 = 0;
    let held = mode == KERNEL || !Settings::current().no_privilege && caller_holds(privilege);
    log(format_args!(
        "SeSinglePrivilegeCheck {}:{} mode {mode} = {}",
        privilege.HighPart,
        privilege.LowPart,
        u8::from(held)
    ));
    held.into()
}

/// Whether a privilege is enabled in the token of the process that calls the driver.
fn caller_holds(privilege: LUID) -> bool {
    // In Wine, the current process is that of the caller.
    //
    // SAFETY: no pointers.
    let pid = unsafe { own::PsGetCurrentProcessId() as u32 };
    // SAFETY: no pointers.
    let process = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if process.is_null() {
        return false;
    }
    let mut token = std::ptr::null_mut();
    // SAFETY: `token` is a variable.
    let opened = unsafe { OpenProcessToken(process, TOKEN_QUERY, &mut token) } != 0;
    // SAFETY: opened above, and not used again.
    unsafe { CloseHandle(process) };
    if !opened {
        return false;
    }
    const ALL_NECESSARY: u32 = 1;
    let mut set = PRIVILEGE_SET {
        PrivilegeCount: 1,
        Control: ALL_NECESSARY,
        Privilege: [LUID_AND_ATTRIBUTES { Luid: privilege, Attributes: 0 }],
    };
    let mut held = 0;
    // SAFETY: the set has one privilege, as its count states; `held` is a variable.
    let succeeded = unsafe { PrivilegeCheck(token, &mut set, &mut held) };
    // SAFETY: opened above, and not used again.
    unsafe { CloseHandle(token) };
    succeeded != 0 && held != 0
}

/// # Safety
/// As ObOpenObjectByPointer.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_ObOpenObjectByPointer(
    object: Object,
    attributes: u32,
    access_state: Object,
    access: u32,
    kind: Object,
    mode: i8,
    handle: *mut Object,
) -> i32 {
    if !objects::is_device(object) {
        let open = own::ObOpenObjectByPointer;
        // SAFETY: the contract of the caller.
        return unsafe { open(object, attributes, access_state, access, kind, mode, handle) };
    }
    log(format_args!("ObOpenObjectByPointer device {attributes:#x} access {access:#x} mode {mode}"));
    // Wine has no handles to device objects. An event replaces the device, because it has a
    // security descriptor, too.
    //
    // SAFETY: only null pointers.
    let event = unsafe { CreateEventW(std::ptr::null(), 1, 0, std::ptr::null()) };
    if event.is_null() {
        return status::UNSUCCESSFUL;
    }
    // SAFETY: the contract of the caller: space for a handle.
    unsafe { handle.write(event) };
    status::SUCCESS
}

/// # Safety
/// As ZwSetSecurityObject.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_ZwSetSecurityObject(
    handle: Object,
    information: u32,
    descriptor: *mut c_void,
) -> i32 {
    if Settings::current().fails("ZwSetSecurityObject") {
        return status::UNSUCCESSFUL;
    }
    // SAFETY: the contract of the caller.
    let status = unsafe { own::NtSetSecurityObject(handle, information, descriptor) };
    // SAFETY: the contract of the caller.
    let list = unsafe { list_of(descriptor) };
    log(format_args!("ZwSetSecurityObject {information:#x} {list} = {status:#x}"));
    status
}

/// The access list of a descriptor in SDDL.
///
/// # Safety
/// A valid security descriptor.
unsafe fn list_of(descriptor: *mut c_void) -> String {
    let mut units = std::ptr::null_mut();
    let mut length = 0;
    let convert = ConvertSecurityDescriptorToStringSecurityDescriptorW;
    let kind = DACL_SECURITY_INFORMATION;
    // SAFETY: the contract of the caller; both results are variables.
    if unsafe { convert(descriptor, SDDL_REVISION_1, kind, &mut units, &mut length) } == 0 || units.is_null()
    {
        return "?".to_owned();
    }
    // SAFETY: the function returned this number of characters, with or without the final zero.
    let text = String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(units, length as usize) });
    // SAFETY: allocated by the function for LocalFree, and not used again.
    unsafe { LocalFree(units.cast()) };
    text.trim_end_matches('\0').to_owned()
}
