//! Escaping of names for each kind of output. Names in traces are untrusted: they must not move the
//! cursor, begin a row, or be a formula or markup.
//!
//! | output | functions | replacement of a control character |
//! |---|---|---|
//! | lines of text, tables, profiles | [`Plain`], [`line()`] | U+FFFD |
//! | cells of CSV | [`cell`], [`row`] | U+FFFD; formulas are prefixed with an apostrophe |
//! | frames of folded stacks | [`folded_name`] | U+FFFD; a semicolon becomes a colon |
//! | HTML | [`Markup`] | U+FFFD |
//! | JSON | [`json`], [`json_pretty`], [`pretty_serializer`] | an escape, so that readers get the
//! original name |

use std::fmt::{self, Arguments, Write as _};
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, PrettyFormatter};
use stackhound_types::plain::Replaced;

pub use stackhound_types::plain::{Plain, needs_escaping};

/// Any value on one line as [`Plain`], cut after this number of characters, followed by the number of omitted ones.
#[derive(Clone, Copy, Debug)]
pub struct Short<T>(pub T, pub usize);

/// Any value as text of an HTML element or attribute.
#[derive(Clone, Copy, Debug)]
pub struct Markup<T>(pub T);

const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

impl<T: fmt::Display> fmt::Display for Short<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { out: f, left: self.1, more: 0 };
        write!(cut, "{}", Plain(&self.0))?;
        match cut.more {
            0 => Ok(()),
            more => write!(f, "… ({more} more characters)"),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Markup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = |c: char| match c {
            '&' => Some("&amp;"),
            '<' => Some("&lt;"),
            '>' => Some("&gt;"),
            '"' => Some("&quot;"),
            '\'' => Some("&#39;"),
            c => needs_escaping(c).then_some("\u{fffd}"),
        };
        write!(Replaced::new(f, instead), "{}", self.0)
    }
}

/// Forwards the first characters of a text and counts the others.
struct Cut<'f, 'a> {
    out: &'f mut fmt::Formatter<'a>,
    left: usize,
    more: usize,
}

impl fmt::Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.char_indices().nth(self.left).map_or(text.len(), |(end, _)| end);
        let rest = text[end..].chars().count();
        self.more += rest;
        self.left -= text.chars().count() - rest;
        self.out.write_str(&text[..end])
    }
}

/// Writes one line, whatever names it contains.
pub fn line(out: &mut dyn Write, text: Arguments<'_>) -> io::Result<()> {
    writeln!(out, "{}", Plain(text))
}

/// A text as a CSV cell that no spreadsheet treats as a formula: formulas are prefixed with an
/// apostrophe, as OWASP's page "CSV Injection" recommends.
pub fn cell(text: &str) -> String {
    const FORMULAS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let is_formula = text.trim_start().starts_with(FORMULAS) || text.starts_with(['\t', '\r', '\n']);
    format!("{}{}", if is_formula { "'" } else { "" }, Plain(text))
}

/// Writes a row of CSV with the quoting of RFC 4180. Untrusted texts must be passed through
/// [`cell`] first.
pub fn row(out: &mut dyn Write, cells: impl IntoIterator<Item = impl AsRef<[u8]>>) -> io::Result<()> {
    let mut row = csv::WriterBuilder::new()
        .buffer_capacity(1 << 10)
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    row.write_record(cells).map_err(io::Error::from)?;
    let bytes = row.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    out.write_all(&bytes)
}

/// A name as a frame of folded stacks, where semicolons separate frames and line ends separate
/// stacks.
pub fn folded_name(name: &str) -> String {
    let plain = |c: char| match c {
        ';' => ':',
        c if needs_escaping(c) => REPLACEMENT,
        c => c,
    };
    name.chars().map(plain).collect()
}

/// Writes a value as JSON on one line, without a line end.
pub fn json(out: &mut (impl Write + ?Sized), value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, Escaped(CompactFormatter));
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// Writes a value as indented JSON, without a line end.
pub fn json_pretty(out: &mut dyn Write, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    value.serialize(&mut pretty_serializer(out)).map_err(io::Error::from)
}

/// Creates a serializer for values that are written in parts.
pub fn pretty_serializer(
    out: &mut dyn Write,
) -> Serializer<&mut dyn Write, Escaped<PrettyFormatter<'static>>> {
    Serializer::with_formatter(out, Escaped(PrettyFormatter::new()))
}

/// JSON with additional escapes for all characters that [`needs_escaping`] matches.
#[derive(Clone, Debug, Default)]
pub struct Escaped<F>(F);

impl<F: Formatter> Formatter for Escaped<F> {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        // JSON's own rules escape all ASCII control characters except DEL, and nearly all texts
        // contain no others.
        if text.bytes().all(|byte| byte < 0x7f) {
            return out.write_all(text.as_bytes());
        }
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| needs_escaping(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(&mut self, out: &mut W, escape: CharEscape) -> io::Result<()> {
        self.0.write_char_escape(out, escape)
    }

    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, is_first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, is_first)
    }

    fn end_object_key<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_key(out)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[31m\n\r\u{7f}\u{9b}\u{202e}\u{feff}\u{fffe}\u{2028};\"=é😀";

    #[test]
    fn text_has_one_line_without_control_characters() {
        let mut out = Vec::new();
        line(&mut out, format_args!("{HOSTILE}")).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "a\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd};\"=é😀\n"
        );
        assert_eq!(format!("[{:<4}]", Plain("a\n")), "[a\u{fffd}  ]");
        assert_eq!(Short("äöü\n", 4).to_string(), "äöü\u{fffd}");
        assert_eq!(Short(format_args!("{}{}", "äö", "ü\n"), 3).to_string(), "äöü… (1 more characters)");
    }

    #[test]
    fn cells_are_not_formulas() {
        for (name, expected) in [
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("@SUM(1)", "'@SUM(1)"),
            ("-2+3", "'-2+3"),
            (" \t=1", "' \u{fffd}=1"),
            ("＝1", "'＝1"),
            ("evil.exe", "evil.exe"),
            ("", ""),
        ] {
            assert_eq!(cell(name), expected);
        }
        let mut out = Vec::new();
        row(&mut out, ["a,b", "\"", "c"]).unwrap();
        assert_eq!(out, b"\"a,b\",\"\"\"\",c\r\n");
    }

    #[test]
    fn markup_and_folded_names() {
        assert_eq!(
            Markup("<a href='x'>\u{fffe}&\"").to_string(),
            "&lt;a href=&#39;x&#39;&gt;\u{fffd}&amp;&quot;"
        );
        assert_eq!(folded_name("a;b\nc\u{202e}"), "a:b\u{fffd}c\u{fffd}");
    }

    proptest! {
        #[test]
        fn json_preserves_values_and_escapes_control_characters(text in any::<String>(), key in any::<String>()) {
            let hostile = format!("{text}{HOSTILE}{text}");
            let value = serde_json::json!({ key: [hostile, 1, { "a": null }] });
            for is_pretty in [false, true] {
                let mut out = Vec::new();
                if is_pretty { json_pretty(&mut out, &value) } else { json(&mut out, &value) }.unwrap();
                let written = String::from_utf8(out).unwrap();
                prop_assert!(!written.chars().any(|c| needs_escaping(c) && !(is_pretty && c == '\n')), "{:?}", written);
                prop_assert_eq!(&serde_json::from_str::<serde_json::Value>(&written).unwrap(), &value);
                let plain = if is_pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
                prop_assert_eq!(written.lines().count(), plain.unwrap().lines().filter(|line| !line.is_empty()).count().max(1));
            }
        }

        #[test]
        fn control_characters_are_replaced(text in any::<String>()) {
            for safe in [Plain(&text).to_string(), Markup(&text).to_string(), cell(&text), folded_name(&text), Short(&text, 3).to_string()] {
                prop_assert!(!safe.contains(needs_escaping), "{:?}", safe);
            }
        }
    }
}
