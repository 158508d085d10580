//! Takes the functions for raw buffers out of the library's exports, as on systems before Windows 11: sechost.dll, which
//! forwards to them, has none of that name then.
//!
//! Their names are changed in the last letter, so that nobody finds them; the order of names, in which they are
//! searched, stays.

use std::ffi::CStr;

use windows_sys::Win32::System::Memory::{PAGE_PROTECTION_FLAGS, PAGE_READWRITE, VirtualProtect};

const HIDDEN: [&str; 3] = [
    "sechost_OpenTraceFromRealTimeLogger",
    "sechost_ProcessTraceBufferDecrementReference",
    "sechost_ProcessTraceBufferIncrementReference",
];

/// Reads a number of the library's image.
///
/// # Safety
/// Four bytes can be read there.
unsafe fn number(library: *mut u8, at: usize) -> usize {
    let location = library.wrapping_add(at).cast::<u32>();
    // SAFETY: the caller's promise.
    unsafe { location.read_unaligned() as usize }
}

/// Hides them. What is read stands in the PE format's places for it.
///
/// # Safety
/// `library` is where a 64-bit library lies, and nobody looks up its exports meanwhile.
pub(super) unsafe fn raw_interface(library: *mut u8) {
    // SAFETY: a library starts with the place of its PE header.
    let header = unsafe { number(library, 0x3c) };
    // SAFETY: the export directory is the first of the directories, 0x70 into the optional header of 64-bit images.
    let directory = unsafe { number(library, header + 0x18 + 0x70) };
    // SAFETY: NumberOfNames.
    let count = unsafe { number(library, directory + 0x18) };
    // SAFETY: AddressOfNames.
    let names = unsafe { number(library, directory + 0x20) };
    for index in 0..count {
        // SAFETY: so many places of names stand there.
        let name = unsafe { number(library, names + 4 * index) };
        let location = library.wrapping_add(name);
        // SAFETY: a name ends with a zero.
        let text = unsafe { CStr::from_ptr(location.cast()) };
        if !HIDDEN.iter().any(|hidden| text.to_bytes() == hidden.as_bytes()) {
            continue;
        }
        let last = location.wrapping_add(text.to_bytes().len() - 1);
        let mut before: PAGE_PROTECTION_FLAGS = 0;
        // SAFETY: the byte is part of this library.
        let writable = unsafe { VirtualProtect(last.cast(), 1, PAGE_READWRITE, &mut before) };
        assert!(writable != 0, "the exports stay read-only");
        // SAFETY: writable now, and the loader lets nobody else look meanwhile.
        unsafe { last.write(b'_') };
    }
}
