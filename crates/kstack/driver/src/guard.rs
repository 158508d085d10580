//! Walking a stack so that a page of the program that cannot be read ends the walk, and not the system.
//!
//! Rust has no structured exception handling. So the one call that may fault is made in assembler, with a scope table for
//! the system's own `__C_specific_handler`: a fault between the two labels continues behind them. The guard is for addresses of
//! programs; a fault at an address of the kernel stops the system, guarded or not.
//!
//! `RtlWalkFrameChain` is known to have a handler of its own: at a page that cannot be read it ends, and gives the frames so far. So the
//! guard is a precaution, and all but never reached.

use core::ffi::c_void;
use core::sync::atomic::AtomicU64;

use crate::nt;

unsafe extern "system" {
    /// Calls `RtlWalkFrameChain` with its three parameters. All bits set if that faulted.
    ///
    /// # Safety
    /// As for `RtlWalkFrameChain`: there is room for `count` addresses.
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
    // The callee's home space, and alignment.
    "sub rsp, 40",
    ".seh_stackalloc 40",
    ".seh_endprologue",
    ".Lstackhound_guard_begin:",
    "call {walk}",
    // The call returns inside of what is guarded.
    "nop",
    ".Lstackhound_guard_end:",
    "add rsp, 40",
    "ret",
    ".Lstackhound_guard_fault:",
    "mov eax, -1",
    "add rsp, 40",
    "ret",
    // One entry: from where to where, 1 for EXCEPTION_EXECUTE_HANDLER in the place of a filter, and where to go on.
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

/// Which part of the stack `RtlWalkFrameChain` walks.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Part {
    Kernel = 0,
    User = 1,
}

/// Walks the calling thread's stack into `frames`. `None` if reading it faulted.
pub fn walk(frames: &[AtomicU64], part: Part) -> Option<usize> {
    let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    let callers = frames.as_ptr().cast_mut().cast::<*mut c_void>();
    // SAFETY: there is room for `count` addresses, and atomics may be written through shared references. Nobody reads those of a part
    // before the capture has said that this part is there. An address is as large as an `AtomicU64`.
    let walked = unsafe { stackhound_guarded_walk(callers, count, part as u32) };
    (walked <= count).then_some(walked as usize)
}
