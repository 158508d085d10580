//! The user stack of a thread of another process, walked from outside: by its context and its memory.
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

/// Where Windows wants one: at a multiple of 16 bytes.
#[repr(C, align(16))]
#[derive(Default)]
struct Context(CONTEXT);

/// Runs on when this goes.
struct Suspended<'t>(&'t OwnedHandle);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        // SAFETY: the thread is open, and was suspended once for this value.
        unsafe { ResumeThread(self.0.as_raw_handle()) };
    }
}

impl Session {
    /// Addresses of a thread's user stack, innermost first, at most so many: where it will go on in user mode, then return
    /// addresses. The thread is suspended meanwhile, for a millisecond or so; pages are read in at this program's expense. A
    /// thread that waits in the kernel goes on waiting.
    ///
    /// # Errors
    /// No thread of this process; no right to look into it; a 32-bit process. [`Error::NotFromOutside`] for the process
    /// itself, one of whose threads might hold what this needs.
    pub fn user_stack(&self, process_id: u32, thread_id: u32, most: usize) -> Result<Vec<u64>, Error> {
        if process_id == std::process::id() || !self.is_live() {
            return Err(Error::NotFromOutside);
        }
        let mut is_32_bit = 0;
        // SAFETY: the process is open; writes a number.
        if unsafe { IsWow64Process(self.handle(), &mut is_32_bit) } == 0 {
            return Err(Error::last("IsWow64Process"));
        }
        if is_32_bit != 0 {
            return Err(Error::NotFromOutside);
        }
        let rights = THREAD_GET_CONTEXT | THREAD_SUSPEND_RESUME | THREAD_QUERY_LIMITED_INFORMATION;
        // SAFETY: takes numbers only.
        let handle = unsafe { OpenThread(rights, 0, thread_id) };
        if handle.is_null() {
            return Err(Error::last("OpenThread"));
        }
        // SAFETY: just opened, and nobody else has it.
        let thread = unsafe { OwnedHandle::from_raw_handle(handle) };
        // SAFETY: the thread is open.
        if unsafe { GetProcessIdOfThread(handle) } != process_id {
            return Err(Error::NotFromOutside);
        }
        // Before the thread stands still.
        let locked = library::lock()?;
        let functions = locked.functions();
        // SAFETY: the thread is open, and none of this process.
        if unsafe { SuspendThread(handle) } == u32::MAX {
            return Err(Error::last("SuspendThread"));
        }
        let _suspended = Suspended(&thread);
        let mut context = Context::default();
        context.0.ContextFlags = CONTEXT_FULL_AMD64;
        // SAFETY: the thread is open and suspended; the context is aligned and says what is wanted.
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
            // SAFETY: the lock is held; process and thread are open; frame and context are those of this walk. Memory is read by
            // ReadProcessMemory, which is what null stands for.
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
