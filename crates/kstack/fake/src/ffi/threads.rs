//! Functions on threads that Wine does not have.

use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION, THREAD_SYNCHRONIZE, WaitForSingleObject,
};

use super::log::log;
use super::{Boolean, Object, own, status, targets};
use crate::report::Behavior;

/// The id of a thread.
pub(super) fn number(thread: Object) -> u32 {
    // SAFETY: a thread that the driver has referenced.
    unsafe { own::PsGetThreadId(thread) as u32 }
}

/// The id of a thread's process.
pub(super) fn process(thread: Object) -> u32 {
    // SAFETY: a thread that the driver has referenced.
    unsafe { own::PsGetThreadProcessId(thread) as u32 }
}

/// Calls a function with a handle to a thread.
fn with_handle<T>(thread: Object, run: impl FnOnce(HANDLE) -> T) -> Option<T> {
    let access = THREAD_QUERY_LIMITED_INFORMATION | THREAD_SYNCHRONIZE;
    // SAFETY: no pointers.
    let handle = unsafe { OpenThread(access, 0, number(thread)) };
    if handle.is_null() {
        return None;
    }
    let result = run(handle);
    // SAFETY: the handle was just opened, and is not used again.
    unsafe { CloseHandle(handle) };
    Some(result)
}

/// # Safety
/// As PsLookupThreadByThreadId.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsLookupThreadByThreadId(tid: usize, thread: *mut Object) -> i32 {
    // SAFETY: the contract of the caller.
    let status = unsafe { own::PsLookupThreadByThreadId(tid, thread) };
    if status == status::SUCCESS {
        // SAFETY: the contract of the caller; just written by the call.
        let thread = unsafe { *thread };
        super::objects::referenced(thread);
        log(format_args!("PsLookupThreadByThreadId {tid}"));
    }
    status
}

/// # Safety
/// As PsIsThreadTerminating: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsIsThreadTerminating(thread: Object) -> Boolean {
    if targets::behavior(number(thread)) == Some(Behavior::Ending) {
        return 1;
    }
    // SAFETY: a handle to a thread, and no wait.
    let has_ended = with_handle(thread, |handle| unsafe { WaitForSingleObject(handle, 0) } == WAIT_OBJECT_0);
    has_ended.unwrap_or(false).into()
}

/// # Safety
/// As PsIsSystemThread: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsIsSystemThread(thread: Object) -> Boolean {
    match targets::behavior(number(thread)) {
        // In Wine, every thread except the driver's own is a system thread.
        Some(behavior) => (behavior == Behavior::System).into(),
        // SAFETY: the contract of the caller.
        None => unsafe { own::PsIsSystemThread(thread) },
    }
}

/// # Safety
/// As PsGetThreadCreateTime: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsGetThreadCreateTime(thread: Object) -> i64 {
    let created = with_handle(thread, |handle| {
        let zero = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
        let [mut created, mut ended, mut kernel, mut user] = [zero; 4];
        // SAFETY: all four are variables.
        unsafe { GetThreadTimes(handle, &mut created, &mut ended, &mut kernel, &mut user) };
        i64::from(created.dwHighDateTime) << 32 | i64::from(created.dwLowDateTime)
    });
    created.unwrap_or(0)
}
