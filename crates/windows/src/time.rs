//! Conversion of Windows times.

use windows_sys::Win32::Foundation::FILETIME;

/// Units of 100 ns since 1601-01-01 UTC.
pub(crate) fn ticks(time: &FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}
