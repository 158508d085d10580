//! Snapshots of the Tool Help library: the processes and threads at one moment.
//!
//! Sources: Microsoft's pages of `CreateToolhelp32Snapshot`, `Process32FirstW`, `Thread32First` and
//! their structures.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{ERROR_NO_MORE_FILES, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CREATE_TOOLHELP_SNAPSHOT_FLAGS, CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW,
    Process32NextW, TH32CS_SNAPPROCESS, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::core::BOOL;

use crate::Error;

/// All processes.
pub(crate) fn processes() -> Result<Vec<PROCESSENTRY32W>, Error> {
    let snapshot = take(TH32CS_SNAPPROCESS)?;
    let empty = || PROCESSENTRY32W { dwSize: size_of::<PROCESSENTRY32W>() as u32, ..Default::default() };
    // SAFETY: the snapshot is open; one structure is written, which contains its size.
    let first = |snapshot, entry: &mut _| unsafe { Process32FirstW(snapshot, entry) };
    // SAFETY: as above.
    let next = |snapshot, entry: &mut _| unsafe { Process32NextW(snapshot, entry) };
    all(&snapshot, empty, ("Process32FirstW", first), ("Process32NextW", next))
}

/// All threads of all processes.
pub(crate) fn threads() -> Result<Vec<THREADENTRY32>, Error> {
    let snapshot = take(TH32CS_SNAPTHREAD)?;
    let empty = || THREADENTRY32 { dwSize: size_of::<THREADENTRY32>() as u32, ..Default::default() };
    // SAFETY: the snapshot is open; one structure is written, which contains its size.
    let first = |snapshot, entry: &mut _| unsafe { Thread32First(snapshot, entry) };
    // SAFETY: as above.
    let next = |snapshot, entry: &mut _| unsafe { Thread32Next(snapshot, entry) };
    all(&snapshot, empty, ("Thread32First", first), ("Thread32Next", next))
}

fn take(flags: CREATE_TOOLHELP_SNAPSHOT_FLAGS) -> Result<OwnedHandle, Error> {
    // SAFETY: only numbers are passed.
    let snapshot = unsafe { CreateToolhelp32Snapshot(flags, 0) };
    if snapshot == INVALID_HANDLE_VALUE {
        return Err(Error::last("CreateToolhelp32Snapshot"));
    }
    // SAFETY: the handle was just created and has no other owner.
    Ok(unsafe { OwnedHandle::from_raw_handle(snapshot) })
}

fn all<T>(
    snapshot: &OwnedHandle,
    empty: impl Fn() -> T,
    first: (&'static str, impl Fn(HANDLE, &mut T) -> BOOL),
    next: (&'static str, impl Fn(HANDLE, &mut T) -> BOOL),
) -> Result<Vec<T>, Error> {
    let snapshot = snapshot.as_raw_handle();
    let mut found = Vec::new();
    loop {
        let mut entry = empty();
        let (name, done) = match found.is_empty() {
            true => (first.0, first.1(snapshot, &mut entry)),
            false => (next.0, next.1(snapshot, &mut entry)),
        };
        if done != 0 {
            found.push(entry);
            continue;
        }
        let error = Error::last(name);
        return match error.code() {
            Some((_, ERROR_NO_MORE_FILES)) => Ok(found),
            _ => Err(error),
        };
    }
}
