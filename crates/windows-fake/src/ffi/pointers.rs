//! Converts the pointer arguments of a call to values.

use windows_sys::Win32::Foundation::SetLastError;

/// A zero-terminated text; empty for null.
///
/// # Safety
/// `text` is null or points to a zero-terminated text.
pub(super) unsafe fn text(text: *const u16) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the offset is within the text, including its terminating zero.
    let unit = |at: usize| unsafe { text.wrapping_add(at).read_unaligned() };
    let units: Vec<u16> = (0..).map(unit).take_while(|&unit| unit != 0).collect();
    String::from_utf16_lossy(&units)
}

/// A value; `None` for null.
///
/// # Safety
/// `value` is null or points to a valid value.
pub(super) unsafe fn copy<T: Copy>(value: *const T) -> Option<T> {
    if value.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { value.read_unaligned() })
}

/// Bytes; empty for null.
///
/// # Safety
/// `bytes` is null or points to `size` bytes, which are not modified while the slice is in use.
pub(super) unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> &'a [u8] {
    if bytes.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(bytes, size) }
}

/// A block of session properties, which begins with its size; `None` for null.
///
/// # Safety
/// `block` is null or points to a valid block, which is not used otherwise while the slice is in
/// use.
pub(super) unsafe fn properties<'a>(block: *mut u8) -> Option<&'a mut [u8]> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { copy(block.cast::<u32>()) }?;
    // SAFETY: guaranteed by the caller.
    Some(unsafe { std::slice::from_raw_parts_mut(block, size as usize) })
}

/// The handle; on failure the invalid handle, with the error set for GetLastError.
pub(super) fn or_last_error(answer: Result<u64, u32>) -> u64 {
    answer.unwrap_or_else(|code| {
        // SAFETY: no preconditions.
        unsafe { SetLastError(code) };
        super::INVALID_TRACE
    })
}
