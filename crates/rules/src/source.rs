//! Texts in files, and locations in them.
//!
//! The condition of a rule is a value of a YAML file, whose line breaks and indentation are not
//! part of the value. [`Source`] finds the location in the file of a location in the value.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text of a file: a condition, or the text of a macro.
#[derive(Clone, Debug)]
pub struct Source {
    file: Arc<File>,
    /// The value without the indentation of the file.
    text: Arc<str>,
    /// The location in the file where the value begins, in bytes.
    start: usize,
}

/// A file with rules.
#[derive(Debug)]
pub(crate) struct File {
    /// The path as the user named it.
    pub name: String,
    /// The content.
    pub text: String,
    /// Where each line begins, in bytes.
    lines: Vec<usize>,
}

/// The limit of characters of a line that are shown, and the number of those before a location in it.
const SHOWN_MAX: usize = 200;
const SHOWN_BEFORE: usize = 80;

/// A part of a [`Source`], in bytes.
#[derive(Clone, Debug)]
pub struct Span {
    /// The text that contains it.
    pub source: Arc<Source>,
    /// The part.
    pub range: Range<usize>,
}

/// A location in a file, for people.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct SourceLocation {
    /// The path of the file as the user named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The line without control characters; of a long line, the part around the location.
    pub text: String,
    /// Number of characters of the line before `text`.
    pub skipped: usize,
    /// Number of characters of the part that is meant; at least 1.
    pub length: usize,
}

impl File {
    pub fn new(name: &str, text: &str) -> File {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        File { name: name.to_owned(), text: text.to_owned(), lines }
    }

    /// The location of a part of the file, in bytes.
    pub fn location(&self, range: Range<usize>) -> SourceLocation {
        let start = self.text.floor_char_boundary(range.start.min(self.text.len()));
        let end = self.text.ceil_char_boundary(range.end.clamp(start, self.text.len()));
        let line = self.lines.partition_point(|first| *first <= start);
        let line_start = self.lines[line - 1];
        let line_end = self.lines.get(line).map_or(self.text.len(), |next| next - 1);
        let column = self.text[line_start..start].chars().count() + 1;
        let skipped = if line_end - line_start > SHOWN_MAX { column.saturating_sub(SHOWN_BEFORE) } else { 0 };
        let shown = self.text[line_start..line_end].chars().skip(skipped).take(SHOWN_MAX);
        let text: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let room = (skipped + text.chars().count() + 1).saturating_sub(column);
        let length =
            self.text[start..end.clamp(start, line_end.max(start))].chars().take(room).count().max(1);
        SourceLocation { file: self.name.clone(), line, column, text, skipped, length }
    }
}

impl Source {
    /// A value that begins at a location of a file, in bytes.
    pub(crate) fn new(file: &Arc<File>, text: &str, start: usize) -> Source {
        Source { file: Arc::clone(file), text: text.into(), start }
    }

    /// The value.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The location of a part of the value in the file; of values with escapes, the location of the value.
    pub fn location(&self, range: Range<usize>) -> SourceLocation {
        let (start, end) = (self.in_file(range.start), self.in_file(range.end.max(range.start + 1) - 1));
        let start = start.unwrap_or(self.start);
        self.file.location(start..end.map_or(start, |end| end + 1))
    }

    /// The location in the file of a location in the value, in bytes. The file differs from the value in
    /// white space only.
    fn in_file(&self, at: usize) -> Option<usize> {
        let raw = self.file.text.get(self.start..)?;
        let header = match raw.chars().next()? {
            '>' | '|' => raw.find('\n')?,
            '\'' | '"' => 1,
            _ => 0,
        };
        let mut left = raw[header..].char_indices().filter(|(_, c)| !c.is_whitespace());
        let mut end = 0;
        for (index, expected) in self.text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            let (offset, found) = left.next()?;
            if found != expected {
                return None;
            }
            if index >= at {
                return Some(self.start + header + offset);
            }
            end = offset + found.len_utf8();
        }
        Some(self.start + header + end)
    }
}

impl Span {
    /// The location in the file.
    pub fn location(&self) -> SourceLocation {
        self.source.location(self.range.clone())
    }

    /// From the start of one part to the end of a later one of the same text.
    pub(crate) fn to(&self, end: &Span) -> Span {
        Span { source: Arc::clone(&self.source), range: self.range.start..end.range.end }
    }
}

impl SourceLocation {
    /// The line with a mark below the part that is meant.
    pub fn marked(&self) -> String {
        let blanks = " ".repeat(self.column - 1 - self.skipped);
        format!("  {}\n  {blanks}{}", self.text, "^".repeat(self.length))
    }
}

/// The file, the line and the column.
impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Arc<File> {
        Arc::new(File::new("a.yml", text))
    }

    #[test]
    fn places_of_folded_values_are_those_of_the_file() {
        let file = file("name: x\ncondition: >\n  a = 'é'\n     and b = 2\n");
        let source = Source::new(&file, "a = 'é'\n   and b = 2\n", 19);
        let at = source.text().find("b =").unwrap();
        let location = source.location(at..at + 1);
        assert_eq!((location.to_string(), location.length), ("a.yml:4:10".to_owned(), 1));
        assert_eq!(location.marked(), "       and b = 2\n           ^");
        assert_eq!(source.location(0..7).to_string(), "a.yml:3:3");
    }

    #[test]
    fn places_of_values_with_escapes_are_their_start() {
        let file = file("condition: \"a = \\\"b\\\" and c\"\n");
        let source = Source::new(&file, "a = \"b\" and c", 11);
        assert_eq!(source.location(12..13).to_string(), "a.yml:1:12");
        assert_eq!(source.location(2..3).to_string(), "a.yml:1:15");
    }

    #[test]
    fn places_outside_of_the_file_are_its_end() {
        let file = file("a");
        assert_eq!(file.location(5..9).to_string(), "a.yml:1:2");
        assert_eq!(Source::new(&file, "bcd", 7).location(1..2).to_string(), "a.yml:1:2");
    }
}
