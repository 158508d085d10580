//! Reads little-endian numbers at an offset. Bytes beyond the end are 0; the rules about sizes
//! report missing bytes.

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.len().min(N);
    found[..length].copy_from_slice(&rest[..length]);
    found
}

pub(crate) fn u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn i64(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(bytes, at))
}

/// An unsigned number of `size` bytes, 4 or 8.
pub(crate) fn pointer(bytes: &[u8], at: usize, size: usize) -> u64 {
    if size == 4 { u64::from(u32(bytes, at)) } else { u64(bytes, at) }
}
