//! Texts in payloads.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::model::Value;
use crate::value::utf16_chars;

/// UTF-16LE text in a payload, without its terminating zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Utf16<'a>(pub &'a [u8]);

impl<'a> Utf16<'a> {
    /// Whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.0.len() < 2
    }

    /// The characters, with U+FFFD for invalid units.
    pub fn chars(self) -> impl Iterator<Item = char> + 'a {
        utf16_chars(self.0)
    }

    /// Appends the text, with U+FFFD for invalid units. Nearly all texts in traces are ASCII, which
    /// is copied several characters at a time.
    pub fn append_to(self, text: &mut String) {
        const CHUNK: usize = 64;
        let mut rest = self.0.as_chunks::<2>().0;
        let mut ascii = [0; CHUNK];
        while !rest.is_empty() {
            let (units, remaining) = rest.split_at(rest.len().min(CHUNK));
            let mut all = 0;
            for (byte, unit) in ascii.iter_mut().zip(units) {
                let unit = u16::from_le_bytes(*unit);
                all |= unit;
                *byte = unit as u8;
            }
            match std::str::from_utf8(&ascii[..units.len()]) {
                Ok(chunk) if all < 0x80 => text.push_str(chunk),
                _ => return text.extend(utf16_chars(rest.as_flattened())),
            }
            rest = remaining;
        }
    }

    /// The text, with U+FFFD for invalid units. Allocates.
    pub fn to_string_lossy(self) -> String {
        self.chars().collect()
    }

    /// Whether the texts are equal, ignoring the case of ASCII letters.
    pub fn eq_ignore_ascii_case(self, text: &str) -> bool {
        self.chars()
            .map(|char| char.to_ascii_lowercase())
            .eq(text.chars().map(|char| char.to_ascii_lowercase()))
    }
}

impl PartialEq<str> for Utf16<'_> {
    fn eq(&self, text: &str) -> bool {
        self.chars().eq(text.chars())
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

/// 8-bit text in a payload, without its terminating zero. It is read as UTF-8, or as Latin-1 if it
/// is not valid UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ansi<'a>(pub &'a [u8]);

impl<'a> Ansi<'a> {
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
