//! Bytes as hexadecimal text.

use std::fmt;

/// Bytes as hexadecimal text in their order, with two digits per byte and no separators: lowercase
/// with `{}` and `{:x}`, uppercase with `{:X}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HexBytes<'a>(pub &'a [u8]);

impl fmt::LowerHex for HexBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::UpperHex for HexBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

impl fmt::Display for HexBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        let bytes = HexBytes(&[0x00, 0x0a, 0xff]);
        assert_eq!((bytes.to_string().as_str(), format!("{bytes:X}").as_str()), ("000aff", "000AFF"));
    }
}
