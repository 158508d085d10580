//! GUIDs as Windows stores them: a little-endian u32, two little-endian u16 and eight raw bytes.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A GUID in its on-disk byte order. Prints in lowercase without braces.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// The all-zero GUID.
    pub const ZERO: Guid = Guid([0; 16]);

    /// Creates a GUID from the four groups in which it is usually written in C.
    pub const fn new(a: u32, b: u16, c: u16, d: [u8; 8]) -> Guid {
        let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
        Guid([a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]])
    }

    /// Creates a GUID from its 32 hexadecimal digits in written order.
    pub const fn from_u128(digits: u128) -> Guid {
        let (a, b, c) = ((digits >> 96) as u32, (digits >> 80) as u16, (digits >> 64) as u16);
        Guid::new(a, b, c, (digits as u64).to_be_bytes())
    }

    /// The five groups of digits in written order.
    fn groups(self) -> [u64; 5] {
        let [a0, a1, a2, a3, b0, b1, c0, c1, d0, d1, e @ ..] = self.0;
        let [e0, e1, e2, e3, e4, e5] = e;
        [
            u32::from_le_bytes([a0, a1, a2, a3]).into(),
            u16::from_le_bytes([b0, b1]).into(),
            u16::from_le_bytes([c0, c1]).into(),
            u16::from_be_bytes([d0, d1]).into(),
            u64::from_be_bytes([0, 0, e0, e1, e2, e3, e4, e5]),
        ]
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = self.groups();
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

/// 32 uppercase digits without hyphens, as in the directories of symbol stores.
impl fmt::UpperHex for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = self.groups();
        write!(f, "{a:08X}{b:04X}{c:04X}{d:04X}{e:012X}")
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// The error for text that is not a GUID: 32 hexadecimal digits in groups of 8-4-4-4-12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a GUID such as 9e814aad-3204-11d2-9a82-006008a86939")]
pub struct GuidError;

impl FromStr for Guid {
    type Err = GuidError;

    /// Accepts uppercase and lowercase digits, with or without braces.
    fn from_str(text: &str) -> Result<Guid, GuidError> {
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        if text.len() != 36 || !text.is_ascii() {
            return Err(GuidError);
        }
        let group = |from: usize, to: usize| {
            let digits = &text[from..to];
            if digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                u64::from_str_radix(digits, 16).map_err(|_| GuidError)
            } else {
                Err(GuidError)
            }
        };
        if [8, 13, 18, 23].iter().any(|&at| text.as_bytes()[at] != b'-') {
            return Err(GuidError);
        }
        let tail = group(19, 23)? << 48 | group(24, 36)?;
        Ok(Guid::new(group(0, 8)? as u32, group(9, 13)? as u16, group(14, 18)? as u16, tail.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_agree() {
        let text = "9e814aad-3204-11d2-9a82-006008a86939";
        let guid: Guid = text.parse().unwrap();
        assert_eq!(guid.to_string(), text);
        assert_eq!(guid.0[..4], [0xad, 0x4a, 0x81, 0x9e]);
        assert_eq!(Guid::from_u128(0x9e814aad_3204_11d2_9a82_006008a86939), guid);
        assert_eq!(format!("{guid:X}"), "9E814AAD320411D29A82006008A86939");
        assert_eq!(format!("{{{}}}", text.to_uppercase()).parse::<Guid>().unwrap(), guid);
    }

    #[test]
    fn invalid_guids_are_rejected() {
        for text in
            ["", "9e814aad", "9e814aad-3204-11d2-9a82-00600_a86939", "9e814aad+3204-11d2-9a82-006008a86939"]
        {
            assert_eq!(text.parse::<Guid>(), Err(GuidError), "{text}");
        }
    }
}
