//! Hides the functions for raw buffers in the exports of the library, as on systems before Windows
//! 11: sechost.dll, which forwards to them, then has no functions of these names.
//!
//! The last letter of each name is changed, so that look-ups do not find it. The names stay sorted,
//! which the search of names requires.

use std::ffi::CStr;

use windows_sys::Win32::System::Memory::{PAGE_PROTECTION_FLAGS, PAGE_READWRITE, VirtualProtect};

const HIDDEN: [&str; 3] = [
    "sechost_OpenTraceFromRealTimeLogger",
    "sechost_ProcessTraceBufferDecrementReference",
    "sechost_ProcessTraceBufferIncrementReference",
];

/// Reads a number at an offset in the library's image.
///
/// # Safety
/// Four bytes at the offset must be readable.
unsafe fn number(library: *mut u8, at: usize) -> usize {
    let pointer = library.wrapping_add(at).cast::<u32>();
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.read_unaligned() as usize }
}

/// Hides the functions. The offsets are those of the PE format.
///
/// # Safety
/// `library` is the base of a 64-bit library, and no other thread looks up its exports at the same
/// time.
pub(super) unsafe fn raw_interface(library: *mut u8) {
    // SAFETY: the DOS header contains the offset of the PE header.
    let header = unsafe { number(library, 0x3c) };
    // SAFETY: the export directory is the first of the directories, at 0x70 in the optional header
    // of 64-bit images.
    let directory = unsafe { number(library, header + 0x18 + 0x70) };
    // SAFETY: NumberOfNames.
    let count = unsafe { number(library, directory + 0x18) };
    // SAFETY: AddressOfNames.
    let names = unsafe { number(library, directory + 0x20) };
    for index in 0..count {
        // SAFETY: the table has `count` offsets of names.
        let name = unsafe { number(library, names + 4 * index) };
        let start = library.wrapping_add(name);
        // SAFETY: names are zero-terminated.
        let text = unsafe { CStr::from_ptr(start.cast()) };
        if !HIDDEN.iter().any(|hidden| text.to_bytes() == hidden.as_bytes()) {
            continue;
        }
        let last = start.wrapping_add(text.to_bytes().len() - 1);
        let mut before: PAGE_PROTECTION_FLAGS = 0;
        // SAFETY: the byte is part of this library.
        let writable = unsafe { VirtualProtect(last.cast(), 1, PAGE_READWRITE, &mut before) };
        assert!(writable != 0, "cannot make the exports writable");
        // SAFETY: the byte is writable now, and the loader lock prevents concurrent look-ups.
        unsafe { last.write(b'_') };
    }
}
