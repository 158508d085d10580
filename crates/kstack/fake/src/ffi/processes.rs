//! Functions on processes that Wine does not have.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use super::{Boolean, Object, own, status, threads};
use crate::settings::Settings;

/// The process object of a thread. Windows returns it without a reference. Here a reference is kept
/// as long as the driver runs, because Wine frees objects without references.
fn of_thread(thread: Object) -> Object {
    static KEPT: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());
    let pid = threads::process(thread);
    let Ok(mut kept) = KEPT.lock() else { return std::ptr::null_mut() };
    if let Some(&process) = kept.get(&pid) {
        return process as Object;
    }
    let mut process = std::ptr::null_mut();
    // SAFETY: `process` is a variable.
    if unsafe { own::PsLookupProcessByProcessId(pid as usize, &mut process) } == status::SUCCESS {
        kept.insert(pid, process as usize);
    }
    process
}

/// # Safety
/// As PsGetThreadProcess: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsGetThreadProcess(thread: Object) -> Object {
    of_thread(thread)
}

/// # Safety
/// As IoThreadToProcess: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_IoThreadToProcess(thread: Object) -> Object {
    of_thread(thread)
}

/// # Safety
/// As PsIsProtectedProcess.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsIsProtectedProcess(_process: Object) -> Boolean {
    Settings::current().protected.into()
}

/// # Safety
/// As PsIsProtectedProcessLight.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsIsProtectedProcessLight(_process: Object) -> Boolean {
    Settings::current().protected.into()
}

/// The mode from which the system was called.
#[unsafe(no_mangle)]
extern "system" fn fake_ExGetPreviousMode() -> i8 {
    /// UserMode: in Wine, only programs call.
    const USER: i8 = 1;
    USER
}

/// # Safety
/// As IoGetRequestorProcessId: a request packet.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_IoGetRequestorProcessId(_packet: *mut c_void) -> u32 {
    // Wine passes packets to the driver one after another, with the caller's process as the current
    // process.
    //
    // SAFETY: no pointers.
    unsafe { own::PsGetCurrentProcessId() as u32 }
}
