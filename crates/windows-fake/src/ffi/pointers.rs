//! From the pointers of a call to values.

use windows_sys::Win32::Foundation::SetLastError;

/// A text that ends with a zero; empty for null.
///
/// # Safety
/// `text` is null or points to such a text.
pub(super) unsafe fn text(text: *const u16) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: within the text, up to its end.
    let unit = |at: usize| unsafe { text.wrapping_add(at).read_unaligned() };
    let units: Vec<u16> = (0..).map(unit).take_while(|&unit| unit != 0).collect();
    String::from_utf16_lossy(&units)
}

/// A value; `None` for null.
///
/// # Safety
/// `value` is null or points to one.
pub(super) unsafe fn copy<T: Copy>(value: *const T) -> Option<T> {
    if value.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { value.read_unaligned() })
}

/// Bytes; none for null.
///
/// # Safety
/// `bytes` is null or points to `size` bytes, which nobody changes meanwhile.
pub(super) unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> &'a [u8] {
    if bytes.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes, size) }
}

/// A block of a session's properties, which begins with its size; `None` for null.
///
/// # Safety
/// `block` is null or points to such a block, which nobody else uses meanwhile.
pub(super) unsafe fn properties<'a>(block: *mut u8) -> Option<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    let size = unsafe { copy(block.cast::<u32>()) }?;
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts_mut(block, size as usize) })
}

/// The value, or the invalid handle with the error where GetLastError finds it.
pub(super) fn or_last_error(answer: Result<u64, u32>) -> u64 {
    answer.unwrap_or_else(|code| {
        // SAFETY: has no conditions.
        unsafe { SetLastError(code) };
        super::INVALID_TRACE
    })
}
