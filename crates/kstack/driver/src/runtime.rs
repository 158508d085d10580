//! Symbols that the linker would otherwise take from a C runtime.

use core::ffi::c_void;

// The standard library is compiled for programs with unwinding panics and floating-point
// arithmetic, and references both symbols for them. The image contains neither: `tests/image`
// checks that only the guarded walk has an exception handler.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl __CxxFrameHandler3",
    "__CxxFrameHandler3: int3",
    ".p2align 4, 0xcc",
    ".globl _fltused",
    ".set _fltused, 0",
);

// Functions that compiler-generated code calls. ntoskrnl.exe exports them. They are declared for
// the linker, and are not called in these sources.
#[expect(dead_code, reason = "the compiler calls them")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: i32, count: usize) -> *mut c_void;
    fn memcmp(one: *const c_void, other: *const c_void, count: usize) -> i32;
}
