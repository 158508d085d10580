//! Text to tokens.
//!
//! Groups characters into tokens, and does not interpret words.

use crate::error::Error;

/// A piece of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    /// The source text, quotes included; empty at the end.
    pub(crate) text: &'s str,
    /// Byte offset of the first character.
    pub(crate) start: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A run of bare characters: a field, a keyword, an operator or a value.
    Word,
    /// Text in quotes, closed.
    Quoted,
    /// An operator made of punctuation.
    Symbol,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// Behind the last token.
    End,
}

impl Token<'_> {
    /// The byte offset after the last character.
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether this is the given keyword, in any case.
    pub(crate) fn is_keyword(&self, keyword: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    /// The content of a quoted token: a doubled quote represents one.
    pub(crate) fn unquote(&self) -> String {
        let quote = &self.text[..1];
        self.text[1..self.text.len() - 1].replace(&quote.repeat(2), quote)
    }
}

/// Symbols in the order in which they are tried, with the replacement for symbols of other
/// languages.
const SYMBOLS: [(&str, Kind, Option<&str>); 24] = [
    ("==", Kind::Symbol, Some("=")),
    ("=~", Kind::Symbol, Some("~")),
    ("=<", Kind::Symbol, Some("<=")),
    ("=>", Kind::Symbol, Some(">=")),
    ("<>", Kind::Symbol, Some("!=")),
    ("&&", Kind::Symbol, Some("and")),
    ("||", Kind::Symbol, Some("or")),
    ("!=", Kind::Symbol, None),
    ("<=", Kind::Symbol, None),
    (">=", Kind::Symbol, None),
    ("=", Kind::Symbol, None),
    ("<", Kind::Symbol, None),
    (">", Kind::Symbol, None),
    ("~", Kind::Symbol, None),
    ("(", Kind::Open, None),
    (")", Kind::Close, None),
    (",", Kind::Comma, None),
    ("!", Kind::Symbol, Some("not")),
    ("&", Kind::Symbol, Some("and")),
    ("|", Kind::Symbol, Some("or")),
    // Word processors replace straight quotes by these.
    ("“", Kind::Symbol, Some("\"")),
    ("”", Kind::Symbol, Some("\"")),
    ("‘", Kind::Symbol, Some("'")),
    ("’", Kind::Symbol, Some("'")),
];

/// Whether `text` can be a field or a value without quotes.
pub(crate) fn is_bare(text: &str) -> bool {
    !text.is_empty() && bare_length(text) == text.len() && !is_reserved(text)
}

/// Makes a bare word text: names of events have it, names of fields have not.
pub(crate) const TEXT_MARK: char = '/';

/// Length in bytes of the word at the head of `text`, reserved or not.
pub(crate) fn bare_length(text: &str) -> usize {
    text.find(|character| !is_bare_character(character)).unwrap_or(text.len())
}

/// Whether `word` is one of those that are neither a field nor a value unless quoted.
pub(crate) fn is_reserved(word: &str) -> bool {
    ["and", "or", "not"].iter().any(|reserved| word.eq_ignore_ascii_case(reserved))
}

fn is_bare_character(character: char) -> bool {
    let punctuation = matches!(
        character,
        '(' | ')' | ',' | '=' | '!' | '<' | '>' | '~' | '&' | '|' | '\'' | '"' | '“' | '”' | '‘' | '’'
    );
    !punctuation && !character.is_whitespace() && !character.is_control()
}

/// Reads one token after the other.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    /// Trailing white space is dropped, so that the end of the source is where the text ends.
    pub(crate) fn new(source: &'s str) -> Self {
        Self { source: source.trim_end(), at: 0 }
    }

    /// The next token; always [`Kind::End`] after the last one.
    pub(crate) fn next(&mut self) -> Result<Token<'s>, Error> {
        let rest = self.source[self.at..].trim_start();
        let start = self.source.len() - rest.len();
        let (kind, length) = scan(rest, start)?;
        self.at = start + length;
        Ok(Token { kind, text: &rest[..length], start })
    }
}

/// Kind and length in bytes of the token at the head of `rest`.
fn scan(rest: &str, start: usize) -> Result<(Kind, usize), Error> {
    let Some(first) = rest.chars().next() else { return Ok((Kind::End, 0)) };
    if first == '\'' || first == '"' {
        let length = quoted_length(rest, first).ok_or(Error::Unclosed { at: start, quote: first })?;
        return Ok((Kind::Quoted, length));
    }
    for (symbol, kind, instead) in SYMBOLS {
        if rest.starts_with(symbol) {
            return match instead {
                Some(instead) => Err(Error::Foreign { at: start, found: symbol, instead }),
                None => Ok((kind, symbol.len())),
            };
        }
    }
    match bare_length(rest) {
        0 => Err(Error::Character { at: start, found: first }),
        length => Ok((Kind::Word, length)),
    }
}

/// Length of the quoted text at the head of `rest`, both quotes included.
fn quoted_length(rest: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += rest[at..].find(quote)? + 1;
        if !rest[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}
