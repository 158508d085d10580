//! Text matching without allocation: ignoring case, globs, and the decimal text of numbers.

use std::fmt::{self, Display, Write};
use std::str::Chars;

use crate::encoding::Text;
use crate::syntax::Case;

impl Case {
    /// The form in which a literal is kept, so that only the event's text is folded per event.
    pub(crate) fn prepare(self, literal: &str) -> Box<str> {
        literal.chars().map(|character| self.fold(character)).collect::<String>().into()
    }

    pub(crate) fn fold(self, character: char) -> char {
        match self {
            Self::Sensitive => character,
            Self::Ignored => fold(character),
        }
    }
}

/// Folds as Windows compares file names: each character by itself, to its upper-case form.
///
/// Characters whose upper-case form is longer (`ß`) stay, and nothing outside ASCII becomes ASCII
/// (`ı` is not `I`), so an ASCII literal matches ASCII text only.
fn fold(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_uppercase();
    }
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) if !single.is_ascii() => single,
        _ => character,
    }
}

/// Whether `value` is written exactly as `literal`, which comes from [`Case::prepare`].
pub(crate) fn is_written(value: impl Display, literal: &str, case: Case) -> bool {
    /// Consumes written text as long as it matches the rest of the literal.
    struct Remaining<'l> {
        literal: Chars<'l>,
        case: Case,
    }
    impl Write for Remaining<'_> {
        fn write_str(&mut self, written: &str) -> fmt::Result {
            let mut written = written.chars().map(|character| self.case.fold(character));
            if written.all(|character| self.literal.next() == Some(character)) {
                Ok(())
            } else {
                Err(fmt::Error)
            }
        }
    }
    let mut remaining = Remaining { literal: literal.chars(), case };
    write!(remaining, "{value}").is_ok() && remaining.literal.next().is_none()
}

/// A compiled pattern of characters, `?` and `*`.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    pieces: Box<[Piece]>,
    case: Case,
}

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Piece {
    /// In the form of the pattern's case.
    Character(char),
    AnyCharacter,
    AnyText,
}

impl Glob {
    /// A pattern in which `*` matches any text and `?` matches any one character.
    pub(crate) fn new(pattern: &str, case: Case) -> Self {
        let pieces = pattern.chars().map(|character| match character {
            '*' => Piece::AnyText,
            '?' => Piece::AnyCharacter,
            other => Piece::Character(case.fold(other)),
        });
        Self::of_pieces(pieces.collect(), case)
    }

    pub(crate) fn of_pieces(pieces: Box<[Piece]>, case: Case) -> Self {
        Self { pieces, case }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(crate) fn case(&self) -> Case {
        self.case
    }

    /// Whether the whole of `text` matches. Time is at most the product of both lengths, with no
    /// memory.
    pub(crate) fn matches(&self, text: Text<'_>) -> bool {
        self.starts_as(self.pieces.len(), text.characters())
    }

    /// Whether the whole text matches the first pieces.
    pub(crate) fn starts_as(&self, length: usize, text: impl Iterator<Item = char> + Clone) -> bool {
        let pieces = &self.pieces[..length];
        let mut rest = text;
        let mut at = 0;
        // Only the last `*` needs to be tried again: whatever an earlier one could reach, the last
        // one can, too.
        let mut last_star = None;
        loop {
            let mut ahead = rest.clone();
            match (pieces.get(at), ahead.next()) {
                (Some(Piece::AnyText), _) => {
                    at += 1;
                    if at == pieces.len() {
                        return true;
                    }
                    last_star = Some((at, rest.clone()));
                    continue;
                }
                (Some(piece), Some(character)) if self.accepts(*piece, character) => {
                    at += 1;
                    rest = ahead;
                    continue;
                }
                (None, None) => return true,
                (Some(_), None) => return false,
                (_, Some(_)) => {}
            }
            let Some((after_star, covered)) = &mut last_star else { return false };
            covered.next();
            at = *after_star;
            rest = covered.clone();
        }
    }

    fn accepts(&self, piece: Piece, character: char) -> bool {
        match piece {
            Piece::Character(expected) => self.case.fold(character) == expected,
            Piece::AnyCharacter | Piece::AnyText => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn folding_is_idempotent_and_keeps_ascii_apart() {
        for character in '\0'..=char::MAX {
            let folded = fold(character);
            assert_eq!(fold(folded), folded, "{character:?}");
            assert_eq!(folded.is_ascii(), character.is_ascii(), "{character:?}");
        }
    }

    fn glob(pattern: &str, case: Case, text: &str) -> bool {
        Glob::new(pattern, case).matches(Text::Utf8(text))
    }

    #[test]
    fn globs() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(glob(pattern, Case::Sensitive, text), expected, "{pattern:?} {text:?}");
        };
        check("", "", true);
        check("", "a", false);
        check("*", "", true);
        check("*", "abc", true);
        check("**", "abc", true);
        check("?", "", false);
        check("?", "ä", true);
        check("?", "ab", false);
        check("a*c", "abbc", true);
        check("a*c", "abcb", false);
        check("a*?c", "ac", false);
        check("*.dll", "a.dll.dll", true);
        check("*.dll", "a.dll.exe", false);
        check(r"C:\*\nt?ll.dll", r"C:\Windows\System32\ntdll.dll", true);
        check("[a]", "[a]", true);
        check("A", "a", false);
    }

    #[test]
    fn a_pattern_of_many_stars_stays_fast() {
        let glob = Glob::new(&"a*".repeat(50), Case::Sensitive);
        let text = "a".repeat(20_000);
        assert!(glob.matches(Text::Utf8(&text)));
        let glob = Glob::new(&format!("{}b", "a*".repeat(50)), Case::Sensitive);
        assert!(!glob.matches(Text::Utf8(&text)));
    }

    /// The definition of a glob, in exponential time.
    fn matches_by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                (0..=text.len()).any(|taken| matches_by_definition(rest, &text[taken..]))
            }
            (['?', pattern @ ..], [_, text @ ..]) => matches_by_definition(pattern, text),
            ([expected, pattern @ ..], [found, text @ ..]) => {
                expected == found && matches_by_definition(pattern, text)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn globs_match_by_definition(pattern in "[abä*?]{0,8}", text in "[abä]{0,10}") {
            let expected =
                matches_by_definition(&pattern.chars().collect::<Vec<_>>(), &text.chars().collect::<Vec<_>>());
            prop_assert_eq!(glob(&pattern, Case::Sensitive, &text), expected);
            let ignoring = glob(&pattern.to_uppercase(), Case::Ignored, &text);
            let units: Vec<[u8; 2]> = text.encode_utf16().map(u16::to_le_bytes).collect();
            prop_assert_eq!(Glob::new(&pattern, Case::Sensitive).matches(Text::Utf16(&units)), expected);
            prop_assert_eq!(ignoring, expected);
        }

        #[test]
        fn written_numbers_are_recognised(value: i64, float: f64, other in "[0-9.-]{0,4}") {
            prop_assert!(is_written(value, &value.to_string(), Case::Sensitive));
            prop_assert!(is_written(float, &float.to_string(), Case::Sensitive));
            prop_assert_eq!(is_written(value, &other, Case::Ignored), value.to_string() == other);
        }
    }
}
