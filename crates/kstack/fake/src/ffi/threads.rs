//! What the kernel says of threads, as far as Wine does not.

use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    GetThreadTimes, OpenThread, THREAD_QUERY_LIMITED_INFORMATION, THREAD_SYNCHRONIZE, WaitForSingleObject,
};

use super::log::log;
use super::{Boolean, Object, own, status, targets};
use crate::report::Behaviour;

/// The number of a thread.
pub(super) fn number(thread: Object) -> u32 {
    // SAFETY: a thread that the driver has referenced.
    unsafe { own::PsGetThreadId(thread) as u32 }
}

/// The number of a thread's process.
pub(super) fn process(thread: Object) -> u32 {
    // SAFETY: a thread that the driver has referenced.
    unsafe { own::PsGetThreadProcessId(thread) as u32 }
}

/// Does something with a handle to a thread.
fn with_handle<T>(thread: Object, what: impl FnOnce(HANDLE) -> T) -> Option<T> {
    let access = THREAD_QUERY_LIMITED_INFORMATION | THREAD_SYNCHRONIZE;
    // SAFETY: no pointers.
    let handle = unsafe { OpenThread(access, 0, number(thread)) };
    if handle.is_null() {
        return None;
    }
    let result = what(handle);
    // SAFETY: the handle was just opened, and is not used again.
    unsafe { CloseHandle(handle) };
    Some(result)
}

/// # Safety
/// As PsLookupThreadByThreadId.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsLookupThreadByThreadId(tid: usize, thread: *mut Object) -> i32 {
    // SAFETY: the caller's promise.
    let status = unsafe { own::PsLookupThreadByThreadId(tid, thread) };
    if status == status::SUCCESS {
        // SAFETY: the caller's promise; filled in just now.
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
    if targets::behaviour(number(thread)) == Some(Behaviour::Ending) {
        return 1;
    }
    // SAFETY: a handle to a thread, and no wait.
    let over = with_handle(thread, |handle| unsafe { WaitForSingleObject(handle, 0) } == WAIT_OBJECT_0);
    over.unwrap_or(false).into()
}

/// # Safety
/// As PsIsSystemThread: a referenced thread.
#[unsafe(no_mangle)]
unsafe extern "system" fn fake_PsIsSystemThread(thread: Object) -> Boolean {
    match targets::behaviour(number(thread)) {
        // Of Wine's, every thread beside the driver's own is one of the system.
        Some(behaviour) => (behaviour == Behaviour::System).into(),
        // SAFETY: the caller's promise.
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
        // SAFETY: all four are there to be filled in.
        unsafe { GetThreadTimes(handle, &mut created, &mut ended, &mut kernel, &mut user) };
        i64::from(created.dwHighDateTime) << 32 | i64::from(created.dwLowDateTime)
    });
    created.unwrap_or(0)
}
