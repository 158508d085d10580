//! Formats values as their displayed text, without an allocation.

use std::fmt::{self, Display, Write};
use std::ops::ControlFlow;

use stackhound_expr::{Value, Visitor};
use stackhound_types::Guid;

/// The maximum length in bytes of text that is formatted on the stack.
const SHORT: usize = 128;

struct Short {
    bytes: [u8; SHORT],
    length: usize,
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        rest.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// Visits the displayed text of a value.
pub(super) fn shown(value: impl Display, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let mut short = Short { bytes: [0; SHORT], length: 0 };
    if write!(short, "{value}").is_err() {
        return visit(Value::Text(&value.to_string()));
    }
    visit(Value::Text(str::from_utf8(&short.bytes[..short.length]).unwrap_or_default()))
}

/// Visits the text of a GUID. Equivalent to [`shown`], about ten times as fast.
pub(super) fn guid(guid: Guid, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    visit(Value::Text(str::from_utf8(&digits(guid)).unwrap_or_default()))
}

fn digits(guid: Guid) -> [u8; 36] {
    /// The offset of the digits of each byte: the first three groups are little-endian.
    const OFFSETS: [usize; 16] = [6, 4, 2, 0, 11, 9, 16, 14, 19, 21, 24, 26, 28, 30, 32, 34];
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    for (byte, offset) in guid.0.into_iter().zip(OFFSETS) {
        text[offset] = DIGITS[usize::from(byte >> 4)];
        text[offset + 1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(show: impl FnOnce(&mut Visitor<'_>) -> ControlFlow<()>) -> String {
        let mut found = None;
        let _ = show(&mut |value| {
            match value {
                Value::Text(text) => found = Some(text.to_owned()),
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        });
        found.expect("a value")
    }

    #[test]
    fn short_and_long_values_are_shown_whole() {
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 1000] {
            let text = "ä".repeat(length / 2) + &"x".repeat(length % 2);
            assert_eq!(text_of(|visit| shown(&text, visit)), text);
        }
    }

    #[test]
    fn guid_text_equals_its_display() {
        let counted = Guid(std::array::from_fn(|index| index as u8 * 17));
        for id in [counted, Guid::ZERO, Guid([0x9e; 16])] {
            assert_eq!(text_of(|visit| guid(id, visit)), id.to_string());
        }
    }
}
