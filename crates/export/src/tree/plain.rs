//! Names as they may stand in text and in HTML.

use std::fmt::{self, Write};

/// Anything on one line: characters of names that terminals would obey are replaced, so that nothing is moved, hidden or
/// turned around.
#[derive(Clone, Copy, Debug)]
pub struct Plain<T>(pub T);

/// Anything as text of an HTML element or attribute.
pub(super) struct Escaped<T>(pub(super) T);

const REPLACEMENT: &str = "\u{fffd}";

/// Control characters, separators of lines, and marks that change the direction of what follows.
fn is_obeyed(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_direction || matches!(c, '\u{2028}' | '\u{2029}')
}

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Replaced(f, |c: char| is_obeyed(c).then_some(REPLACEMENT)), "{}", self.0)
    }
}

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replaced = |c: char| match c {
            '&' => Some("&amp;"),
            '<' => Some("&lt;"),
            '>' => Some("&gt;"),
            '"' => Some("&quot;"),
            '\'' => Some("&#39;"),
            c if is_obeyed(c) => Some(REPLACEMENT),
            _ => None,
        };
        write!(Replaced(f, replaced), "{}", self.0)
    }
}

/// Hands on what is written, some characters replaced.
struct Replaced<'f, 'a, R>(&'f mut fmt::Formatter<'a>, R);

impl<R: Fn(char) -> Option<&'static str>> Write for Replaced<'_, '_, R> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
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
