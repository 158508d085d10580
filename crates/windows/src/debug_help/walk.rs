//! Walks the user stack of a thread of another process, using its context and its memory.
//!
//! Sources: Microsoft's pages of `StackWalk64`, `SuspendThread` and `GetThreadContext`. x64 only.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::System::Diagnostics::Debug::{
    AddrModeFlat, CONTEXT, CONTEXT_FULL_AMD64, GetThreadContext, STACKFRAME64,
};
use windows_sys::Win32::System::SystemInformation::IMAGE_FILE_MACHINE_AMD64;
use windows_sys::Win32::System::Threading::{
    GetProcessIdOfThread, IsWow64Process, OpenThread, ResumeThread, SuspendThread, THREAD_GET_CONTEXT,
    THREAD_QUERY_LIMITED_INFORMATION, THREAD_SUSPEND_RESUME,
};

use super::library;
use super::session::Session;
use crate::Error;

/// Windows requires an alignment of 16 bytes.
#[repr(C, align(16))]
#[derive(Default)]
struct Context(CONTEXT);

/// Resumes the thread when it is dropped.
struct Suspended<'t>(&'t OwnedHandle);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        // SAFETY: the thread is open, and was suspended once for this value.
        unsafe { ResumeThread(self.0.as_raw_handle()) };
    }
}

impl Session {
    /// The addresses of the user stack of a thread, innermost first, at most `most`: the address at
    /// which the thread continues in user mode, then return addresses. The thread is suspended
    /// during the call, for about a millisecond. Pages that are read in are charged to this
    /// program. A thread that waits in the kernel continues to wait.
    ///
    /// # Errors
    /// The thread does not belong to the process; access is missing; the process is a 32-bit
    /// process. [`Error::NotFromOutside`] for this process itself, because one of its threads might
    /// hold a lock that the walk needs.
    pub fn user_stack(&self, process_id: u32, thread_id: u32, most: usize) -> Result<Vec<u64>, Error> {
        if process_id == std::process::id() || !self.is_live() {
            return Err(Error::NotFromOutside);
        }
        let mut is_32_bit = 0;
        // SAFETY: the process is open; a number is written.
        if unsafe { IsWow64Process(self.handle(), &mut is_32_bit) } == 0 {
            return Err(Error::last("IsWow64Process"));
        }
        if is_32_bit != 0 {
            return Err(Error::NotFromOutside);
        }
        let rights = THREAD_GET_CONTEXT | THREAD_SUSPEND_RESUME | THREAD_QUERY_LIMITED_INFORMATION;
        // SAFETY: only numbers are passed.
        let handle = unsafe { OpenThread(rights, 0, thread_id) };
        if handle.is_null() {
            return Err(Error::last("OpenThread"));
        }
        // SAFETY: the handle was just opened and has no other owner.
        let thread = unsafe { OwnedHandle::from_raw_handle(handle) };
        // SAFETY: the thread is open.
        if unsafe { GetProcessIdOfThread(handle) } != process_id {
            return Err(Error::NotFromOutside);
        }
        // The lock is acquired before the thread is suspended.
        let locked = library::lock()?;
        let functions = locked.functions();
        // SAFETY: the thread is open, and does not belong to this process.
        if unsafe { SuspendThread(handle) } == u32::MAX {
            return Err(Error::last("SuspendThread"));
        }
        let _suspended = Suspended(&thread);
        let mut context = Context::default();
        context.0.ContextFlags = CONTEXT_FULL_AMD64;
        // SAFETY: the thread is open and suspended; the context is aligned and states the requested
        // parts.
        if unsafe { GetThreadContext(handle, &mut context.0) } == 0 {
            return Err(Error::last("GetThreadContext"));
        }
        let mut frame = STACKFRAME64::default();
        for (address, offset) in [
            (&mut frame.AddrPC, context.0.Rip),
            (&mut frame.AddrStack, context.0.Rsp),
            (&mut frame.AddrFrame, context.0.Rbp),
        ] {
            (address.Offset, address.Mode) = (offset, AddrModeFlat);
        }
        let mut addresses = Vec::new();
        while addresses.len() < most {
            // SAFETY: the lock is held; process and thread are open; frame and context belong to
            // this walk. Null for the read function means ReadProcessMemory.
            let walked = unsafe {
                (functions.walk)(
                    IMAGE_FILE_MACHINE_AMD64.into(),
                    self.handle(),
                    handle,
                    &mut frame,
                    ptr::from_mut(&mut context.0).cast(),
                    None,
                    Some(functions.function_table),
                    Some(functions.module_base),
                    None,
                )
            };
            if walked == 0 || frame.AddrPC.Offset == 0 {
                break;
            }
            addresses.push(frame.AddrPC.Offset);
        }
        Ok(addresses)
    }
}
