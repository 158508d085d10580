//! What the linker would otherwise take from a C runtime.

use core::ffi::c_void;

// The standard library is compiled for programs whose panics unwind and that calculate with floating point, and names both symbols
// for it. Nothing of that is in the image: `tests/image.rs` finds no function but the guarded walk that has a handler.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".globl __CxxFrameHandler3",
    "__CxxFrameHandler3: int3",
    ".p2align 4, 0xcc",
    ".globl _fltused",
    ".set _fltused, 0",
);

// What the compiler calls of its own accord; ntoskrnl.exe has them. Declared so that the linker finds them, and called from nowhere
// in these sources.
#[expect(dead_code, reason = "the compiler calls them")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, count: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: i32, count: usize) -> *mut c_void;
    fn memcmp(one: *const c_void, other: *const c_void, count: usize) -> i32;
}
