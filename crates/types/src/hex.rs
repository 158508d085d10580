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

/// The bytes of a SHA-256 in 64 hexadecimal digits of any case; `None` for other texts.
pub fn sha256_of_hex(digits: &str) -> Option<[u8; 32]> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
    let mut sum = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in sum.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_64_digits() {
        let sum = [0xaf; 32];
        for (digits, expected) in [
            (HexBytes(&sum).to_string(), Some(sum)),
            (format!("{:X}", HexBytes(&sum)), Some(sum)),
            ("af".repeat(31), None),
            ("ag".repeat(32), None),
            (String::new(), None),
        ] {
            assert_eq!(sha256_of_hex(&digits), expected, "{digits}");
        }
    }

    #[test]
    fn each_byte_has_two_digits() {
        let bytes = HexBytes(&[0x00, 0x0a, 0xff]);
        assert_eq!((bytes.to_string().as_str(), format!("{bytes:X}").as_str()), ("000aff", "000AFF"));
    }
}
