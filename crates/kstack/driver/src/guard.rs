//! A stack walk that survives faults: a page of the program that cannot be read ends the walk, not
//! the system.
//!
//! Rust has no structured exception handling. Therefore, the only call that may fault is made in
//! assembly, with a scope table for the system's `__C_specific_handler`: after a fault between the
//! two labels, execution continues after them. The guard applies to addresses of programs. A fault
//! at a kernel address stops the system, guarded or not.
//!
//! `RtlWalkFrameChain` is known to have its own handler: at a page that cannot be read it ends, and
//! returns the frames so far. So the guard is a precaution that is hardly ever reached.

use core::ffi::c_void;
use core::sync::atomic::AtomicU64;

use crate::nt;

unsafe extern "system" {
    /// Calls `RtlWalkFrameChain` with its three parameters. Returns a number with all bits set if
    /// the call faulted.
    ///
    /// # Safety
    /// As for `RtlWalkFrameChain`: `callers` has space for `count` addresses.
    fn stackhound_guarded_walk(callers: *mut *mut c_void, count: u32, flags: u32) -> u32;
}

core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl stackhound_guarded_walk",
    ".def stackhound_guarded_walk; .scl 2; .type 32; .endef",
    "stackhound_guarded_walk:",
    ".seh_proc stackhound_guarded_walk",
    ".seh_handler {handler}, @except",
    // The home space of the callee, and alignment.
    "sub rsp, 40",
    ".seh_stackalloc 40",
    ".seh_endprologue",
    ".Lstackhound_guard_begin:",
    "call {walk}",
    // The return address is within the guarded range.
    "nop",
    ".Lstackhound_guard_end:",
    "add rsp, 40",
    "ret",
    ".Lstackhound_guard_fault:",
    "mov eax, -1",
    "add rsp, 40",
    "ret",
    // One entry: the guarded range, 1 (EXCEPTION_EXECUTE_HANDLER) instead of a filter, and the
    // address to continue at.
    ".seh_handlerdata",
    ".long 1",
    ".long .Lstackhound_guard_begin@IMGREL",
    ".long .Lstackhound_guard_end@IMGREL",
    ".long 1",
    ".long .Lstackhound_guard_fault@IMGREL",
    ".text",
    ".seh_endproc",
    handler = sym nt::__C_specific_handler,
    walk = sym nt::RtlWalkFrameChain,
);

/// The stack that `RtlWalkFrameChain` walks.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Part {
    Kernel = 0,
    User = 1,
}

/// Walks the stack of the calling thread into `frames`. Returns `None` if reading it faulted.
pub fn walk(frames: &[AtomicU64], part: Part) -> Option<usize> {
    let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    let callers = frames.as_ptr().cast_mut().cast::<*mut c_void>();
    // SAFETY: there is space for `count` addresses, and atomics may be written through shared
    // references. The frames of a stack are not read before the capture has published it. An
    // address is as large as an `AtomicU64`.
    let walked = unsafe { stackhound_guarded_walk(callers, count, part as u32) };
    (walked <= count).then_some(walked as usize)
}
