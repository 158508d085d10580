//! Privileges of callers, and the list of who may open the device.

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

/// Whether the caller holds the privilege, and has it enabled. Wine's own function says yes to everybody.
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

/// Whether the token of the process that calls the driver has a privilege enabled.
fn caller_holds(privilege: LUID) -> bool {
    // SAFETY: no pointers. Wine says that the current process is the caller's.
    let pid = unsafe { own::PsGetCurrentProcessId() as u32 };
    // SAFETY: no pointers.
    let process = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, pid) };
    if process.is_null() {
        return false;
    }
    let mut token = std::ptr::null_mut();
    // SAFETY: there is room for the handle.
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
    // SAFETY: one privilege, as the set says, and room for the result.
    let told = unsafe { PrivilegeCheck(token, &mut set, &mut held) };
    // SAFETY: opened above, and not used again.
    unsafe { CloseHandle(token) };
    told != 0 && held != 0
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
        // SAFETY: the caller's promise.
        return unsafe { open(object, attributes, access_state, access, kind, mode, handle) };
    }
    log(format_args!("ObOpenObjectByPointer device {attributes:#x} access {access:#x} mode {mode}"));
    // Wine gives no handles to devices: an event stands for this one, since that has a security descriptor,
    // too. SAFETY: no pointers but null.
    let event = unsafe { CreateEventW(std::ptr::null(), 1, 0, std::ptr::null()) };
    if event.is_null() {
        return status::UNSUCCESSFUL;
    }
    // SAFETY: the caller's promise: room for a handle.
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
    // SAFETY: the caller's promise.
    let status = unsafe { own::NtSetSecurityObject(handle, information, descriptor) };
    // SAFETY: the caller's promise.
    let list = unsafe { list_of(descriptor) };
    log(format_args!("ZwSetSecurityObject {information:#x} {list} = {status:#x}"));
    status
}

/// A descriptor's access list in Microsoft's notation.
///
/// # Safety
/// A valid security descriptor.
unsafe fn list_of(descriptor: *mut c_void) -> String {
    let mut units = std::ptr::null_mut();
    let mut length = 0;
    let convert = ConvertSecurityDescriptorToStringSecurityDescriptorW;
    let what = DACL_SECURITY_INFORMATION;
    // SAFETY: the caller's promise; room for both results.
    if unsafe { convert(descriptor, SDDL_REVISION_1, what, &mut units, &mut length) } == 0 || units.is_null()
    {
        return "?".to_owned();
    }
    // SAFETY: the function has given so many characters, the final zero among them or not.
    let text = String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(units, length as usize) });
    // SAFETY: to be freed so, and not used again.
    unsafe { LocalFree(units.cast()) };
    text.trim_end_matches('\0').to_owned()
}
