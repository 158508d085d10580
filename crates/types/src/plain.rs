//! Text from traces on one line, without characters that move, hide or reverse other text.
//!
//! Names in traces are untrusted. Other kinds of output, such as HTML and CSV, have more rules:
//! those of the crate `export`.

use std::fmt::{self, Write as _};

/// Any value on one line: control characters are replaced, so that text is not moved, hidden or
/// reversed.
#[derive(Clone, Copy, Debug)]
pub struct Plain<T>(pub T);

/// Whether terminals, editors or parsers interpret a character instead of showing it: control
/// characters, line separators, direction marks, and noncharacters, which XML does not allow.
pub fn needs_escaping(c: char) -> bool {
    // Nearly all names are ASCII.
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let is_direction =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    let is_noncharacter = u32::from(c) & 0xfffe == 0xfffe || matches!(c, '\u{fdd0}'..='\u{fdef}');
    c.is_control() || is_direction || is_separator || is_noncharacter
}

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = |c: char| needs_escaping(c).then_some("\u{fffd}");
        // Widths of tables count the displayed characters.
        if f.width().is_some() || f.precision().is_some() {
            let mut text = String::new();
            write!(Replaced(&mut text, instead), "{}", self.0)?;
            return f.pad(&text);
        }
        write!(Replaced(f, instead), "{}", self.0)
    }
}

/// Forwards text with some characters replaced.
#[derive(Debug)]
pub struct Replaced<'o, O: ?Sized, R>(&'o mut O, R);

impl<'o, O: ?Sized, R: Fn(char) -> Option<&'static str>> Replaced<'o, O, R> {
    /// `instead` returns the replacement of a character, if it is replaced.
    pub fn new(out: &'o mut O, instead: R) -> Self {
        Replaced(out, instead)
    }
}

impl<O: fmt::Write + ?Sized, R: Fn(char) -> Option<&'static str>> fmt::Write for Replaced<'_, O, R> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        // Nearly all texts are ASCII and unchanged.
        if text.bytes().all(|byte| byte.is_ascii() && self.1(byte.into()).is_none()) {
            return self.0.write_str(text);
        }
        while let Some((at, c, instead)) =
            text.char_indices().find_map(|(at, c)| self.1(c).map(|instead| (at, c, instead)))
        {
            self.0.write_str(&text[..at])?;
            self.0.write_str(instead)?;
            text = &text[at + c.len_utf8()..];
        }
        self.0.write_str(text)
    }
}

/// Changes a name in place as [`Plain`] does. Costs one pass over the characters if nothing is
/// replaced.
pub fn make_plain(name: &mut String) {
    if name.contains(needs_escaping) {
        *name = name.replace(needs_escaping, "\u{fffd}");
    }
}
