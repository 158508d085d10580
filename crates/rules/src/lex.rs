//! Words, texts, numbers and signs of conditions.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::source::{Source, Span};

/// A token with its location.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub span: Span,
}

/// The kinds of tokens.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    /// A keyword, an operator, a field, a function, a macro, or a name with `$`.
    Word(String),
    /// A text in single quotes, without them.
    Text(String),
    Integer(u64),
    Decimal(f64),
    Address(Ipv4Addr),
    /// A time span such as `1m30s`.
    Duration(Duration),
    Sign(&'static str),
    End,
}

/// The longest first.
const SIGNS: [&str; 14] = ["!=", "<>", "~=", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ",", "|"];

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

/// The tokens of a condition; the last one is [`Kind::End`].
pub(crate) fn tokens(source: &Arc<Source>) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = &source.text()[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &source.text()[at..];
        let Some(first) = rest.chars().next() else {
            let span = Span { source: Arc::clone(source), range: at..at };
            tokens.push(Token { kind: Kind::End, span });
            return Ok(tokens);
        };
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let (kind, length) = match (first, sign) {
            ('\'', _) => text(source, at)?,
            ('"', _) => match rest[1..].find('"') {
                Some(end) => (Kind::Word(rest[1..=end].to_owned()), end + 2),
                None => return Err(error(source, at, 1, ErrorKind::UnclosedText)),
            },
            (_, Some(sign)) => (Kind::Sign(sign), sign.len()),
            (c, _) if is_of_word(c) => {
                let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                let word = &rest[..length];
                let kind = number(word).ok_or_else(|| error(source, at, length, ErrorKind::Number))?;
                (kind, length)
            }
            (c, _) => return Err(error(source, at, c.len_utf8(), ErrorKind::Character(c))),
        };
        let span = Span { source: Arc::clone(source), range: at..at + length };
        tokens.push(Token { kind, span });
        at += length;
    }
}

fn error(source: &Arc<Source>, at: usize, length: usize, kind: ErrorKind) -> Error {
    Error::new(source.location(at..at + length), kind)
}

/// The text that starts with the quote at a location, and its length in the source.
fn text(source: &Arc<Source>, at: usize) -> Result<(Kind, usize), Error> {
    let rest = &source.text()[at..];
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((offset, c)) = chars.next() {
        match c {
            '\'' => return Ok((Kind::Text(text), offset + 1)),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, c @ ('\\' | '"' | '\''))) => text.push(c),
                Some((end, c)) => {
                    let length = end + c.len_utf8() - offset;
                    return Err(error(source, at + offset, length, ErrorKind::Escape(c)));
                }
                None => break,
            },
            c => text.push(c),
        }
    }
    Err(error(source, at, 1, ErrorKind::UnclosedText))
}

/// A word, or the number, address or duration that it spells.
fn number(word: &str) -> Option<Kind> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(Kind::Word(word.to_owned()));
    }
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return word.parse().ok().map(Kind::Integer);
    }
    if let Ok(address) = word.parse() {
        return Some(Kind::Address(address));
    }
    if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return word.parse().ok().map(Kind::Decimal);
    }
    crate::duration::parse(word).map(Kind::Duration)
}
