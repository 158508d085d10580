//! Zero-terminated UTF-16 texts of Windows.

use std::ffi::OsStr;
use std::os::windows::ffi::OsStrExt;

use crate::Error;

/// Converts a text for a parameter.
pub(crate) fn to_wide(text: &OsStr) -> Result<Vec<u16>, Error> {
    let mut wide: Vec<u16> = text.encode_wide().collect();
    if wide.contains(&0) {
        return Err(Error::ZeroInText);
    }
    wide.push(0);
    Ok(wide)
}

/// Converts a buffer, up to the first zero or its end. Lone surrogates become replacement
/// characters.
pub(crate) fn from_wide(buffer: &[u16]) -> String {
    let end = buffer.iter().position(|&unit| unit == 0).unwrap_or(buffer.len());
    String::from_utf16_lossy(&buffer[..end])
}
