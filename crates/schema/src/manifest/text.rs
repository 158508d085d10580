//! Decodes the text of a file.

use std::borrow::Cow;

use crate::value::utf16_text;

/// Decodes UTF-8, or UTF-16 with a byte order mark or a `<` at its start.
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match bytes {
        [0xff, 0xfe, text @ ..] => utf16(text),
        [b'<', 0, ..] => utf16(bytes),
        [0xfe, 0xff, text @ ..] => big_endian(text),
        [0, b'<', ..] => big_endian(bytes),
        [0xef, 0xbb, 0xbf, text @ ..] => String::from_utf8_lossy(text),
        _ => String::from_utf8_lossy(bytes),
    }
}

fn utf16(bytes: &[u8]) -> Cow<'_, str> {
    Cow::Owned(utf16_text(bytes))
}

fn big_endian(bytes: &[u8]) -> Cow<'_, str> {
    let swapped: Vec<u8> = bytes.chunks_exact(2).flat_map(|unit| [unit[1], unit[0]]).collect();
    Cow::Owned(utf16_text(&swapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_detected_by_the_first_bytes() {
        let text = "<a ü='€𝄞'/>";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            little.clone(),
            [b"\xff\xfe", &little[..]].concat(),
            big.clone(),
            [b"\xfe\xff", &big[..]].concat(),
        ] {
            assert_eq!(decode(&bytes), text, "{bytes:x?}");
        }
        assert_eq!(decode(b""), "");
        assert_eq!(decode(b"\xff\xfea"), "");
        assert_eq!(decode(b"\xfe\xffa"), "");
    }
}
