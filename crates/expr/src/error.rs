//! Errors in filters, and their rendering.

use std::fmt::{self, Display, Formatter};

use crate::{MAX_DEPTH, MAX_LENGTH};

/// Why a filter was refused.
///
/// `Display` is the message alone, [`Error::offset`] is the location, and [`Error::render`] shows
/// both. `at` is always a byte offset into the source, on the border of a character.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter has something else where the language requires `expected`.
    #[error("expected {expected}{}", After(after))]
    Expected {
        /// The offset of the unexpected token.
        at: usize,
        /// The expected syntax.
        expected: &'static str,
        /// The source text before it; empty at the beginning.
        after: String,
    },
    /// A quote opens text that nothing closes.
    #[error("text without a closing `{quote}`")]
    Unclosed {
        /// The offset of the quote.
        at: usize,
        /// The quote.
        quote: char,
    },
    /// A symbol that other languages know.
    #[error("`{found}` is not part of this language; write `{instead}`")]
    Foreign {
        /// Its byte offset.
        at: usize,
        /// The symbol.
        found: &'static str,
        /// The equivalent in this language.
        instead: &'static str,
    },
    /// A character that is only allowed in quotes.
    #[error("unexpected character U+{:04X}", u32::from(*found))]
    Character {
        /// Its byte offset.
        at: usize,
        /// The character.
        found: char,
    },
    /// A number that no field can have.
    #[error("number of more than 64 bits; put it in quotes to compare it as text")]
    Number {
        /// Its byte offset.
        at: usize,
    },
    /// No field has this name.
    #[error("unknown field {}{}", Excerpt(name), DidYouMean(suggestion))]
    UnknownField {
        /// Its byte offset.
        at: usize,
        /// The name, without quotes.
        name: String,
        /// The most similar of the known names.
        suggestion: Option<String>,
    },
    /// A bare word where a value is expected, which is neither a number nor a field.
    #[error("{} is not a field; put text in quotes{}", Excerpt(word), DidYouMean(suggestion))]
    Unquoted {
        /// Its byte offset.
        at: usize,
        /// The word.
        word: String,
        /// The most similar of the known names.
        suggestion: Option<String>,
    },
    /// More parentheses and `not` within each other than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// The byte offset at which the excess level begins.
        at: usize,
    },
    /// More bytes than [`MAX_LENGTH`].
    #[error("filter of {length} bytes, at most {MAX_LENGTH} are allowed")]
    TooLong {
        /// Length of the source in bytes.
        length: usize,
    },
}

impl Error {
    /// The byte offset in the source.
    pub fn offset(&self) -> usize {
        match *self {
            Self::Expected { at, .. }
            | Self::Unclosed { at, .. }
            | Self::Foreign { at, .. }
            | Self::Character { at, .. }
            | Self::Number { at }
            | Self::UnknownField { at, .. }
            | Self::Unquoted { at, .. }
            | Self::TooDeep { at } => at,
            Self::TooLong { .. } => MAX_LENGTH,
        }
    }

    /// The message, the affected line, and a caret under the location; without a line break at the end.
    ///
    /// `source` is the text that was parsed. A column is one character; of a long line only the surroundings of the
    /// place are shown, and control characters are replaced.
    ///
    /// ```
    /// let source = "pid = and tid = 3";
    /// let error = stackhound_expr::Filter::parse(source).unwrap_err();
    /// assert_eq!(
    ///     error.render(source),
    ///     "error: expected a value after `=`\n  \
    ///        pid = and tid = 3\n        \
    ///              ^"
    /// );
    /// ```
    pub fn render(&self, source: &str) -> String {
        let at = source.floor_char_boundary(self.offset());
        let (before, after) = source.split_at(at);
        let before = before.rsplit('\n').next().unwrap_or_default();
        let after = after.split('\n').next().unwrap_or_default().trim_end();

        let hidden = before.chars().count().saturating_sub(SHOWN_BEFORE);
        let mut line = String::from(if hidden > 0 { "…" } else { "" });
        let mut padding = String::from(if hidden > 0 { " " } else { "" });
        for character in before.chars().skip(hidden) {
            line.push(visible(character));
            padding.push(if character == '\t' { '\t' } else { ' ' });
        }
        line.extend(after.chars().take(SHOWN_AFTER).map(visible));
        if after.chars().nth(SHOWN_AFTER).is_some() {
            line.push('…');
        }
        format!("error: {self}\n  {line}\n  {padding}^")
    }
}

/// Characters of the line shown before the caret.
const SHOWN_BEFORE: usize = 60;
/// Characters of the line shown from the caret on.
const SHOWN_AFTER: usize = 40;
/// Characters of the source shown within a message.
const SHOWN_IN_MESSAGE: usize = 40;

/// Replaces control characters, so that a terminal does not interpret them.
fn visible(character: char) -> char {
    if character.is_control() && character != '\t' { char::REPLACEMENT_CHARACTER } else { character }
}

/// A piece of the source within a message.
struct Excerpt<'e>(&'e str);

impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown: String = self.0.chars().take(SHOWN_IN_MESSAGE).map(visible).collect();
        let more = if self.0.chars().nth(SHOWN_IN_MESSAGE).is_some() { "…" } else { "" };
        write!(f, "`{shown}{more}`")
    }
}

struct After<'e>(&'e str);

impl Display for After<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " after {}", Excerpt(self.0)) }
    }
}

struct DidYouMean<'e>(&'e Option<String>);

impl Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |name| write!(f, ", did you mean {}?", Excerpt(name)))
    }
}
