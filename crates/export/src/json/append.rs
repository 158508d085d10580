//! Appends JSON values to bytes, several times faster than through `serde` and `core::fmt`. The
//! bytes are those of [`json`](crate::escape::json), which the tests compare.
//!
//! Rows of events are written with these functions, because their number is unbounded. All other
//! documents are written from their types.

use std::fmt::{self, Write as _};

use stackhound_types::plain::needs_escaping;
use stackhound_types::{FileTime, Guid, Rfc3339, TICKS_PER_SECOND};

/// Appends an integer.
pub fn integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends an integer, or null.
pub fn optional_integer(out: &mut Vec<u8>, number: Option<impl itoa::Integer>) {
    match number {
        Some(number) => integer(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends a truth value.
pub fn boolean(out: &mut Vec<u8>, truth: bool) {
    out.extend_from_slice(if truth { b"true" } else { b"false" });
}

/// Appends an integer as text.
pub fn decimal_text(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.push(b'"');
    integer(out, number);
    out.push(b'"');
}

const HEX_DIGITS: [u8; 16] = *b"0123456789abcdef";

/// Appends the text `"0x…"`.
pub fn hex(out: &mut Vec<u8>, number: u64) {
    let mut text = *b"\"0x0000000000000000\"";
    let digits = (16 - number.leading_zeros() as usize / 4).max(1);
    for (index, digit) in text[3..].iter_mut().take(digits).enumerate() {
        *digit = HEX_DIGITS[(number >> (4 * (digits - 1 - index)) & 0xf) as usize];
    }
    text[3 + digits] = b'"';
    out.extend_from_slice(&text[..4 + digits]);
}

/// Appends bytes as text of two hexadecimal digits each.
pub fn hex_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.reserve(2 * bytes.len());
    bytes.iter().for_each(|byte| out.extend_from_slice(&hex_pair(*byte)));
    out.push(b'"');
}

fn hex_pair(byte: u8) -> [u8; 2] {
    [HEX_DIGITS[usize::from(byte >> 4)], HEX_DIGITS[usize::from(byte & 0xf)]]
}

/// Appends a GUID as text.
pub fn guid(out: &mut Vec<u8>, guid: Guid) {
    // The positions of the bytes in written order, and of the hyphens.
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    const STARTS: [usize; 16] = [1, 3, 5, 7, 10, 12, 15, 17, 20, 22, 25, 27, 29, 31, 33, 35];
    let mut text = *b"\"00000000-0000-0000-0000-000000000000\"";
    for (byte, start) in ORDER.into_iter().zip(STARTS) {
        [text[start], text[start + 1]] = hex_pair(guid.0[byte]);
    }
    out.extend_from_slice(&text);
}

/// Appends a value as the text of its `Display`.
pub fn shown(out: &mut Vec<u8>, value: impl fmt::Display) {
    out.push(b'"');
    // Appending cannot fail.
    let _ = write!(Content(out), "{value}");
    out.push(b'"');
}

/// Appends a text.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    content(out, text);
    out.push(b'"');
}

/// The content of a text.
struct Content<'o>(&'o mut Vec<u8>);

impl fmt::Write for Content<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        content(self.0, text);
        Ok(())
    }
}

/// Whether a character of ASCII is written as it is. DEL and all larger units are not.
fn is_plain(unit: u16) -> bool {
    // Without branches, so that several units are compared at once.
    (unit.wrapping_sub(0x20) < 0x5f) & (unit != 0x22) & (unit != 0x5c)
}

/// Units that are compared at once.
const CHUNK: usize = 16;

/// Appends the characters of a text with escapes.
fn content(out: &mut Vec<u8>, text: &str) {
    let (chunks, rest) = text.as_bytes().as_chunks::<CHUNK>();
    let are_plain = |bytes: &[u8]| bytes.iter().fold(true, |all, byte| all & is_plain((*byte).into()));
    if chunks.iter().fold(true, |all, chunk| all & are_plain(chunk)) && are_plain(rest) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    // The start of the characters that are written as they are.
    let mut start = 0;
    for (at, c) in text.char_indices() {
        if c.is_ascii() && is_plain(c as u16) || !c.is_ascii() && !needs_escaping(c) {
            continue;
        }
        out.extend_from_slice(&text.as_bytes()[start..at]);
        escape(out, c);
        start = at + c.len_utf8();
    }
    out.extend_from_slice(&text.as_bytes()[start..]);
}

/// Appends a character, as an escape if necessary.
fn character(out: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => escape(out, c),
        c if needs_escaping(c) => escape(out, c),
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends an escape: the short one if there is one.
fn escape(out: &mut Vec<u8>, c: char) {
    let short = match c {
        '"' | '\\' => c as u8,
        '\u{8}' => b'b',
        '\t' => b't',
        '\n' => b'n',
        '\u{c}' => b'f',
        '\r' => b'r',
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let ([a, b], [c, d]) = (hex_pair((*unit >> 8) as u8), hex_pair(*unit as u8));
                out.extend_from_slice(&[b'\\', b'u', a, b, c, d]);
            }
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends UTF-16LE text. Invalid units become U+FFFD. An odd last byte is ignored.
pub fn utf16(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let (mut rest, _) = bytes.as_chunks::<2>();
    while let Some((units, after)) = rest.split_first_chunk::<CHUNK>() {
        let (mut narrow, mut are_plain) = ([0; CHUNK], true);
        for (narrow, unit) in narrow.iter_mut().zip(units) {
            let unit = u16::from_le_bytes(*unit);
            *narrow = unit as u8;
            are_plain &= is_plain(unit);
        }
        if are_plain {
            out.extend_from_slice(&narrow);
            rest = after;
        } else {
            rest = utf16_characters(out, rest, CHUNK);
        }
    }
    utf16_characters(out, rest, rest.len());
    out.push(b'"');
}

/// Appends the characters of at least this number of units. Returns the units after them.
fn utf16_characters<'u>(out: &mut Vec<u8>, units: &'u [[u8; 2]], least: usize) -> &'u [[u8; 2]] {
    let mut done = 0;
    while done < least {
        let unit = u16::from_le_bytes(units[done]);
        if is_plain(unit) {
            out.push(unit as u8);
            done += 1;
            continue;
        }
        // A character has at most two units.
        let next = units[done..].iter().take(2).map(|unit| u16::from_le_bytes(*unit));
        let c = char::decode_utf16(next).next().and_then(Result::ok);
        character(out, c.unwrap_or(char::REPLACEMENT_CHARACTER));
        done += c.map_or(1, char::len_utf16);
    }
    &units[done..]
}

/// Appends 8-bit text, read as UTF-8, or as Latin-1 if it is not valid UTF-8.
pub fn ansi(out: &mut Vec<u8>, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(valid) => text(out, valid),
        Err(_) => {
            out.push(b'"');
            bytes.iter().for_each(|byte| character(out, char::from(*byte)));
            out.push(b'"');
        }
    }
}

/// Appends times. The text of the last second is kept, because consecutive times share it.
#[derive(Clone, Debug)]
pub struct Times {
    /// Seconds since 1601.
    second: i64,
    /// A quotation mark and the text up to the decimal point.
    text: Vec<u8>,
}

impl Default for Times {
    fn default() -> Times {
        Times { second: i64::MIN, text: Vec::new() }
    }
}

/// The number of bytes after the decimal point: seven digits, the zone and a quotation mark.
const FRACTION: usize = 9;

impl Times {
    /// Appends a UTC time as text in RFC 3339 with seven fractional digits.
    pub fn time(&mut self, out: &mut Vec<u8>, time: FileTime) {
        let second = time.0.div_euclid(TICKS_PER_SECOND);
        if second != self.second {
            self.text.clear();
            shown(&mut self.text, Rfc3339(time));
            self.text.truncate(self.text.len() - FRACTION);
            self.second = second;
        }
        let mut fraction: [u8; FRACTION] = *b"0000000Z\"";
        let mut rest = time.0.rem_euclid(TICKS_PER_SECOND) as u32;
        for digit in fraction[..7].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&self.text);
        out.extend_from_slice(&fraction);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;
    use stackhound_types::HexBytes;

    use super::super::value::{Bytes, Hex, Text, Time};
    use super::*;
    use crate::escape::json;

    fn expected(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        json(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn appended(append: impl FnOnce(&mut Vec<u8>)) -> String {
        // Whatever precedes the value stays.
        let mut out = b"[".to_vec();
        append(&mut out);
        assert_eq!(out.remove(0), b'[');
        String::from_utf8(out).unwrap()
    }

    /// Units of UTF-16 of all kinds, mostly plain ones.
    fn units() -> impl Strategy<Value = Vec<u16>> {
        let unit = prop_oneof![
            20 => 0x20_u16..0x7f,
            1 => 0_u16..0x100,
            1 => any::<u16>(),
            1 => 0xd800_u16..0xe000,
            1 => 0x2000_u16..0x2070,
        ];
        prop::collection::vec(unit, 0..70)
    }

    #[test]
    fn all_characters_are_escaped_alike() {
        // The planes after the first two have no other kinds of characters.
        let ends = (0x2..=0x10).flat_map(|plane| [0, 0xfffd, 0xfffe, 0xffff].map(|unit| plane << 16 | unit));
        for c in (0..0x2_0000).chain(ends).filter_map(char::from_u32) {
            let alone = c.to_string();
            assert_eq!(appended(|out| text(out, &alone)), expected(&alone), "{c:?}");
            let bytes: Vec<u8> = alone.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert_eq!(appended(|out| utf16(out, &bytes)), expected(&alone), "{c:?}");
        }
    }

    #[test]
    fn times_of_all_years() {
        let mut times = Times::default();
        for ticks in [0, 1, -1, i64::MIN, i64::MAX, 2_650_467_743_999_999_999, 2_650_467_744_000_000_000] {
            let time = FileTime(ticks);
            assert_eq!(appended(|out| times.time(out, time)), expected(&Time(time)));
        }
    }

    proptest! {
        #[test]
        fn texts_are_those_of_serde(units in units(), odd in prop::option::of(any::<u8>())) {
            let whole = String::from_utf16_lossy(&units);
            let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).chain(odd).collect();
            prop_assert_eq!(appended(|out| text(out, &whole)), expected(&whole));
            prop_assert_eq!(appended(|out| shown(out, &whole)), expected(&whole));
            prop_assert_eq!(appended(|out| utf16(out, &bytes)), expected(&whole));
            let latin: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            let read = str::from_utf8(&bytes).map_or(latin, str::to_owned);
            prop_assert_eq!(appended(|out| ansi(out, &bytes)), expected(&read));
            prop_assert_eq!(appended(|out| hex_bytes(out, &bytes)), expected(&Bytes(&bytes)));
        }

        #[test]
        fn numbers_are_those_of_serde(number: u64, shift in 0_u32..64, bytes: [u8; 16]) {
            let number = number >> shift;
            prop_assert_eq!(appended(|out| integer(out, number)), expected(&number));
            prop_assert_eq!(appended(|out| integer(out, number as i64)), expected(&(number as i64)));
            prop_assert_eq!(appended(|out| decimal_text(out, number)), expected(&Text(number)));
            prop_assert_eq!(appended(|out| hex(out, number)), expected(&Hex(number)));
            prop_assert_eq!(appended(|out| guid(out, Guid(bytes))), expected(&Text(Guid(bytes))));
            prop_assert_eq!(appended(|out| hex_bytes(out, &bytes)), expected(&Text(HexBytes(&bytes))));
        }

        #[test]
        fn times_are_those_of_serde(ticks: i64, later in prop::collection::vec(0_i64..30_000_000, 0..20)) {
            let mut times = Times::default();
            for offset in later {
                let time = FileTime(ticks.wrapping_add(offset));
                prop_assert_eq!(appended(|out| times.time(out, time)), expected(&Time(time)));
            }
        }
    }
}
