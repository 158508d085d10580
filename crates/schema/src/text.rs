//! Texts in payloads.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::model::Value;
use crate::value::{append_utf16, utf16_chars, utf16_text};

/// UTF-16LE text in a payload, without its terminating zero. It borrows from the payload. Prints as text,
/// with U+FFFD for invalid units.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Utf16<'a>(pub &'a [u8]);

impl<'a> Utf16<'a> {
    /// The bytes, two per unit.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The number of UTF-16 units.
    pub fn len(self) -> usize {
        self.0.len() / 2
    }

    /// Whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The UTF-16 units.
    pub fn units(self) -> impl Iterator<Item = u16> + 'a {
        self.0.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit))
    }

    /// The characters, with U+FFFD for invalid units.
    pub fn chars(self) -> impl Iterator<Item = char> + 'a {
        utf16_chars(self.0)
    }

    /// Appends the text, with U+FFFD for invalid units.
    pub fn append_to(self, text: &mut String) {
        append_utf16(text, self.0);
    }

    /// The text, with U+FFFD for invalid units. Allocates.
    pub fn to_string_lossy(self) -> String {
        utf16_text(self.0)
    }

    /// Whether the texts are equal, ignoring the case of ASCII letters.
    pub fn eq_ignore_ascii_case(self, text: &str) -> bool {
        self.chars()
            .map(|char| char.to_ascii_lowercase())
            .eq(text.chars().map(|char| char.to_ascii_lowercase()))
    }
}

/// The index of the first unit that is zero, if any. An incomplete unit at the end does not count.
#[inline]
pub(crate) fn terminator(bytes: &[u8]) -> Option<usize> {
    const LOWEST: u64 = 0x0001_0001_0001_0001;
    const HIGHEST: u64 = LOWEST << 15;
    // Four units at a time: the lowest bit that remains is in the first unit that is zero.
    let (groups, rest) = bytes.as_chunks::<8>();
    for (number, group) in groups.iter().enumerate() {
        let units = u64::from_le_bytes(*group);
        let zeros = units.wrapping_sub(LOWEST) & !units & HIGHEST;
        if zeros != 0 {
            return Some(4 * number + zeros.trailing_zeros() as usize / 16);
        }
    }
    let in_rest = rest.as_chunks::<2>().0.iter().position(|unit| *unit == [0, 0])?;
    Some(4 * groups.len() + in_rest)
}

/// Compares without an allocation.
impl PartialEq<str> for Utf16<'_> {
    fn eq(&self, text: &str) -> bool {
        self.units().eq(text.encode_utf16())
    }
}

impl PartialEq<&str> for Utf16<'_> {
    fn eq(&self, text: &&str) -> bool {
        *self == **text
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chars().try_for_each(|char| f.write_char(char))
    }
}

impl fmt::Debug for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

/// 8-bit text in a payload, without its terminating zero. Traces do not specify its code page: it is read as
/// UTF-8, or as Latin-1 if it is not valid UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ansi<'a>(pub &'a [u8]);

impl<'a> Ansi<'a> {
    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The text. Allocates only if it is not valid UTF-8.
    pub fn to_string_lossy(self) -> Cow<'a, str> {
        Value::Ansi(self.0).text().unwrap_or_default()
    }
}

impl PartialEq<str> for Ansi<'_> {
    fn eq(&self, text: &str) -> bool {
        self.to_string_lossy() == text
    }
}

impl PartialEq<&str> for Ansi<'_> {
    fn eq(&self, text: &&str) -> bool {
        *self == **text
    }
}

impl fmt::Display for Ansi<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for Ansi<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_at_the_first_zero() {
        let units = [1, 0x100, 0x8000, 0x7fff, 0x8001, 0xff00, 0xffff, 0];
        let mut seed = 1u64;
        for length in (0..40).cycle().take(4000) {
            let bytes: Vec<u8> = (0..length)
                .flat_map(|_| {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let unit: u16 = units[(seed >> 60) as usize % 8];
                    let unit = if seed >> 56 & 7 == 0 { unit } else { unit | 0x40 };
                    unit.to_le_bytes()
                })
                .chain([0].into_iter().take(length % 2))
                .collect();
            let expected = bytes.as_chunks::<2>().0.iter().position(|unit| *unit == [0, 0]);
            assert_eq!(terminator(&bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn texts_are_compared_and_printed() {
        let bytes: Vec<u8> = "Grün".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let text = Utf16(&bytes);
        assert_eq!(text, "Grün");
        assert_ne!(text, "Gru");
        assert!(text.eq_ignore_ascii_case("GRüN") && !text.eq_ignore_ascii_case("GRÜN"));
        assert_eq!(format!("{text} {text:?}"), "Grün \"Grün\"");
        assert_eq!(Utf16(&[0x00, 0xd8, b'x', 0, 7]).to_string_lossy(), "\u{fffd}x");
        assert!(Utf16(&[7]).is_empty());
        for length in [0, 1, 63, 64, 65, 200] {
            let whole: String = std::iter::repeat_n('a', length).chain("ü𝄞b".chars()).collect();
            for (at, _) in whole.char_indices().filter(|&(at, _)| at == 0 || at >= length) {
                let bytes: Vec<u8> = whole[..at].encode_utf16().flat_map(u16::to_le_bytes).collect();
                let mut text = "before ".to_owned();
                Utf16(&bytes).append_to(&mut text);
                assert_eq!(text, format!("before {}", &whole[..at]));
            }
        }

        assert_eq!(Ansi("Grün".as_bytes()), "Grün");
        assert_eq!(Ansi(b"Gr\xfcn"), "Grün");
        assert_eq!(format!("{} {:?}", Ansi(b"a"), Ansi(b"b")), "a \"b\"");
    }
}
