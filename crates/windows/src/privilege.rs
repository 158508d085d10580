//! Enabling privileges that this process holds.

use std::ffi::OsStr;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_NOT_ALL_ASSIGNED, GetLastError, LUID};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, LUID_AND_ATTRIBUTES, LookupPrivilegeValueW, SE_PRIVILEGE_ENABLED,
    TOKEN_ADJUST_PRIVILEGES, TOKEN_PRIVILEGES, TOKEN_QUERY,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use crate::Error;
use crate::text::to_wide;

/// Enables `SeSystemProfilePrivilege` for this process. Stacks of kernel events, samples and the
/// sampling interval need it. Administrators hold it.
///
/// # Errors
/// [`Error::NoPrivilege`] if the process does not hold it.
pub fn take_system_profile_privilege() -> Result<(), Error> {
    take("SeSystemProfilePrivilege")
}

/// Enables `SeDebugPrivilege` for this process. It allows opening processes of other users and of
/// the system, except for protected ones. Administrators hold it.
///
/// # Errors
/// [`Error::NoPrivilege`] if the process does not hold it.
pub fn take_debug_privilege() -> Result<(), Error> {
    take("SeDebugPrivilege")
}

fn take(name: &'static str) -> Result<(), Error> {
    let wide = to_wide(OsStr::new(name))?;
    let mut token = ptr::null_mut();
    // SAFETY: no arguments are passed, and the call cannot fail.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the process handle is always valid; one handle is written.
    let opened = unsafe { OpenProcessToken(process, TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY, &mut token) };
    if opened == 0 {
        return Err(Error::last("OpenProcessToken"));
    }
    // SAFETY: the handle was just opened and has no other owner.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut id = LUID { LowPart: 0, HighPart: 0 };
    // SAFETY: the name is zero-terminated and outlives the call; one structure is written.
    let found = unsafe { LookupPrivilegeValueW(ptr::null(), wide.as_ptr(), &mut id) };
    if found == 0 {
        return Err(Error::last("LookupPrivilegeValueW"));
    }
    let privileges = TOKEN_PRIVILEGES {
        PrivilegeCount: 1,
        Privileges: [LUID_AND_ATTRIBUTES { Luid: id, Attributes: SE_PRIVILEGE_ENABLED }],
    };
    // SAFETY: the token is open; the structure contains as many privileges as it states, and the
    // previous state is not requested.
    let adjusted = unsafe {
        AdjustTokenPrivileges(token.as_raw_handle(), 0, &privileges, 0, ptr::null_mut(), ptr::null_mut())
    };
    if adjusted == 0 {
        return Err(Error::last("AdjustTokenPrivileges"));
    }
    // SAFETY: reads a number of this thread. The function also succeeds if the token lacks the
    // privilege.
    match unsafe { GetLastError() } {
        ERROR_NOT_ALL_ASSIGNED => Err(Error::NoPrivilege(name)),
        _ => Ok(()),
    }
}
