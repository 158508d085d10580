//! Numbers in as few bytes as each needs: seven bits in each byte, lowest first. The highest bit of a
//! byte is set if more follow.

/// Appends a number.
pub(crate) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
