//! Wine's functions, from the copy of its library.

use super::{Boolean, Object};

#[link(name = "ntosr.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub fn IoCreateDevice(
        driver: Object,
        extension: u32,
        name: *const UnicodeString,
        kind: u32,
        characteristics: u32,
        exclusive: Boolean,
        device: *mut Object,
    ) -> i32;
    pub fn IoCreateSymbolicLink(link: *const UnicodeString, target: *const UnicodeString) -> i32;
    pub fn IofCompleteRequest(packet: Object, boost: i8);
    pub fn MmGetSystemRoutineAddress(name: *const UnicodeString) -> *const std::ffi::c_void;
    pub fn ObfDereferenceObject(object: Object) -> isize;
    pub fn ObOpenObjectByPointer(
        object: Object,
        attributes: u32,
        access_state: Object,
        access: u32,
        kind: Object,
        mode: i8,
        handle: *mut Object,
    ) -> i32;
    pub fn PsGetCurrentProcessId() -> usize;
    pub fn PsGetThreadId(thread: Object) -> usize;
    pub fn PsGetThreadProcessId(thread: Object) -> usize;
    pub fn PsIsSystemThread(thread: Object) -> Boolean;
    pub fn PsLookupProcessByProcessId(pid: usize, process: *mut Object) -> i32;
    pub fn PsLookupThreadByThreadId(tid: usize, thread: *mut Object) -> i32;
}

#[link(name = "ntdll.dll", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub fn NtSetSecurityObject(handle: Object, information: u32, descriptor: Object) -> i32;
    pub fn RtlPcToFileHeader(address: *const std::ffi::c_void, base: *mut Object) -> Object;
}

/// UNICODE_STRING, a counted string of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UnicodeString {
    /// In bytes.
    length: u16,
    _capacity: u16,
    text: *const u16,
}

/// The text of a counted string; empty for null.
///
/// # Safety
/// The pointer is null or points to a string as drivers pass it to the kernel.
pub unsafe fn text(string: *const UnicodeString) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the contract of the caller.
    let string = unsafe { *string };
    if string.text.is_null() {
        return String::new();
    }
    // SAFETY: the contract of the caller: the text has the length of the string.
    let units = unsafe { std::slice::from_raw_parts(string.text, usize::from(string.length / 2)) };
    String::from_utf16_lossy(units)
}
