//! Output: to standard output, or to a file that is created when its content is complete.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde::Serialize;
use stackhound::symbols::temporary::Temporary;
use stackhound_export::escape::{Plain, json_pretty};
pub use stackhound_export::numbers::{counted, grouped};

use crate::palette;

#[derive(Debug)]
pub struct Sink {
    inner: Inner,
    /// Cuts long rows of text.
    rows: Option<Rows>,
}

#[derive(Debug)]
enum Inner {
    Standard(BufWriter<io::Stdout>),
    /// A pipe or device, which must not be replaced by a file.
    Destination(BufWriter<File>),
    File(NewFile),
}

/// A file that is created when its content is complete: first with a temporary name in the same folder.
#[derive(Debug)]
pub struct NewFile {
    file: BufWriter<Temporary>,
    path: PathBuf,
}

impl NewFile {
    /// Links are followed.
    pub fn create(path: &Path) -> Result<NewFile> {
        let path = path.canonicalize().unwrap_or(path.to_owned());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let file = Temporary::in_folder(directory)
            .with_context(|| format!("cannot write in {}", directory.display()))?;
        Ok(NewFile { file: BufWriter::with_capacity(BUFFER_SIZE, file), path })
    }

    /// Gives the file its name.
    pub fn finish(self) -> Result<()> {
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.persist(&self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for NewFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

const BUFFER_SIZE: usize = 1 << 18;

impl Sink {
    /// Opens standard output or a file. A temporary file in the same folder is written first. Links
    /// are followed. Pipes and devices are written directly.
    pub fn open(path: Option<&Path>) -> Result<Sink> {
        let inner = match path {
            None => Inner::Standard(BufWriter::with_capacity(BUFFER_SIZE, io::stdout())),
            Some(path) if path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) => {
                let device = File::options().write(true).open(path);
                let device = device.with_context(|| format!("cannot write {}", path.display()))?;
                Inner::Destination(BufWriter::with_capacity(BUFFER_SIZE, device))
            }
            Some(path) => Inner::File(NewFile::create(path)?),
        };
        Ok(Sink { inner, rows: None })
    }

    /// Opens the output for rows of text. On a terminal, they are cut to its width.
    pub fn rows(path: Option<&Path>) -> Result<Sink> {
        if let Some(width) = terminal_width().filter(|_| path.is_none()) {
            ROW_WIDTH.store(width, Ordering::Relaxed);
        }
        palette::begin(path);
        Ok(Sink { rows: Some(Rows::new(row_width())), ..Sink::open(path)? })
    }

    /// Opens the output for tables that fit into a row. On a terminal, longer lines are wrapped at
    /// its width.
    pub fn tables(path: Option<&Path>) -> Result<Sink> {
        let mut sink = Sink::rows(path)?;
        if let Some(rows) = &mut sink.rows {
            rows.wraps = true;
        }
        Ok(sink)
    }

    /// Opens the output for text. Only very long lines are cut.
    pub fn text(path: Option<&Path>) -> Result<Sink> {
        palette::begin(path);
        Ok(Sink { rows: Some(Rows::new(ROW_BYTES_MAX)), ..Sink::open(path)? })
    }

    /// Flushes the output and renames the temporary file to its final name.
    pub fn finish(mut self) -> Result<()> {
        if let Some(mut rows) = self.rows.take() {
            rows.end(&mut self.inner)?;
        }
        match self.inner {
            Inner::Standard(mut out) => out.flush()?,
            Inner::Destination(mut out) => out.flush()?,
            Inner::File(file) => file.finish()?,
        }
        Ok(())
    }

    /// Writes a value as indented JSON and a line end.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        json_pretty(self, value)?;
        Ok(writeln!(self)?)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.rows {
            Some(rows) => rows.write(bytes, &mut self.inner),
            None => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Write for Inner {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Inner::Standard(out) => out.write(bytes),
            Inner::Destination(out) => out.write(bytes),
            Inner::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Inner::Standard(out) => out.flush(),
            Inner::Destination(out) => out.flush(),
            Inner::File(file) => file.flush(),
        }
    }
}

/// The limit of bytes of a row of text, wherever it is written.
pub const ROW_BYTES_MAX: usize = 4096;

/// The limit of characters of a row of the output, which a process has one of.
static ROW_WIDTH: AtomicUsize = AtomicUsize::new(ROW_BYTES_MAX);

/// The limit of characters of a row: the width of the terminal if rows are written to one.
pub fn row_width() -> usize {
    ROW_WIDTH.load(Ordering::Relaxed)
}

/// The mark of a text that was cut.
pub const CUT: char = '…';

/// Cuts the end of a text to a number of characters.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => text.into(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain([CUT]).collect(),
    }
}

/// Cuts the middle of a text to a number of characters: of a path, the folders.
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= width {
        return text.into();
    }
    let end = width.saturating_sub(1) * 2 / 3;
    let start = width.saturating_sub(1 + end);
    text.chars().take(start).chain([CUT]).chain(text.chars().skip(length - end)).collect()
}

/// Collects each row until its end, and cuts it. Escape sequences of colors have no width, and are
/// never cut.
#[derive(Debug)]
struct Rows {
    /// The limit of characters.
    width: usize,
    /// The start of the current row.
    row: Vec<u8>,
    /// The number of its further characters.
    more: usize,
    /// Whether long rows are wrapped, not cut.
    wraps: bool,
}

impl Rows {
    fn new(width: usize) -> Rows {
        Rows { width, row: Vec::new(), more: 0, wraps: false }
    }

    /// Adds bytes up to the next end of a row. Returns their number.
    fn write(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<usize> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        // One byte more than the limit shows that the row is too long.
        let kept = part.len().min((ROW_BYTES_MAX + 1).saturating_sub(self.row.len()));
        self.row.extend_from_slice(&part[..kept]);
        self.more += part[kept..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        if end.is_some() {
            self.end(out)?;
            out.write_all(b"\n")?;
        }
        Ok(part.len() + usize::from(end.is_some()))
    }

    /// Writes the current row.
    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        let is_short = self.row.len() <= ROW_BYTES_MAX;
        match is_short && (self.row.len() <= self.width || shown_width(&self.row) <= self.width) {
            true => out.write_all(&self.row)?,
            false if self.wraps && is_short => {
                let text = String::from_utf8_lossy(&self.row);
                let indentation = text.len() - text.trim_start().len() + 2;
                let lines = wrapped(text.trim(), self.width.saturating_sub(indentation).max(WRAPPED_MIN));
                let start = &text[..indentation - 2];
                write!(out, "{start}{}", lines.join(&format!("\n{:indentation$}", "")))?;
            }
            false => out.write_all(fitted(&self.row, self.more, self.width).as_bytes())?,
        }
        self.row.clear();
        self.more = 0;
        Ok(())
    }
}

/// The number of characters of a row without escape sequences.
fn shown_width(row: &[u8]) -> usize {
    let mut in_escape = false;
    let is_shown = |byte: &&u8| {
        in_escape |= **byte == 0x1b;
        let is_shown = !in_escape && **byte & 0xc0 != 0x80;
        in_escape &= **byte != b'm';
        is_shown
    };
    row.iter().filter(is_shown).count()
}

/// The least width of wrapped text.
const WRAPPED_MIN: usize = 20;

/// The lines of a text, divided between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines
}

/// The bytes for the mark that a row was cut, with a number and the end of colors.
const MARK_BYTES: usize = 64;

/// The start of a row that fits. If only the limit of bytes is exceeded, the number of omitted
/// characters follows.
fn fitted(row: &[u8], more: usize, width: usize) -> String {
    let text = String::from_utf8_lossy(row);
    let (mut kept, mut shown, mut omitted, mut in_escape) = (String::new(), 0, more, false);
    // The end of the text before the last character that fits.
    let mut last = 0;
    for c in text.chars() {
        in_escape |= c == '\u{1b}';
        if in_escape {
            kept.push(c);
            in_escape = c != 'm';
        } else if omitted > more || shown == width || kept.len() + c.len_utf8() > ROW_BYTES_MAX - MARK_BYTES {
            omitted += 1;
        } else {
            last = kept.len();
            kept.push(c);
            shown += 1;
        }
    }
    match omitted {
        0 => {}
        _ if shown == width => {
            let end = last + kept[last..].chars().next().map_or(0, char::len_utf8);
            kept.replace_range(last..end, "…");
        }
        _ => kept += &format!("… ({omitted} more characters)"),
    }
    kept
}

/// A parser of the names of output files. Refuses what cannot become a file before any input is read.
pub fn output_file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() {
            Err(format!("expected a file, found the directory `{}`", path.display()))
        } else if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            Err(format!(
                "expected a file in an existing directory, found the missing directory `{}`",
                folder.display()
            ))
        } else {
            Ok(path)
        }
    })
}

/// The width of the terminal: `COLUMNS` if it is set, otherwise that of the terminal of standard output.
pub fn terminal_width() -> Option<usize> {
    let stated = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    stated.or_else(terminal).filter(|width| *width > 0)
}

/// Writes one line to standard error. Control characters in names are replaced.
pub fn message(text: Arguments<'_>) {
    anstream::eprintln!("{}", Plain(text));
}

/// Writes an error as one line to standard error.
pub fn error(text: Arguments<'_>) {
    let style = palette::ERROR;
    anstream::eprintln!("{style}error:{style:#} {}", Plain(text));
}

/// Lines for the end of the run.
static AT_END: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps a line for standard error until the result has been written.
pub fn at_end(text: Arguments<'_>) {
    AT_END.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_string());
}

/// Writes the lines that were kept.
pub fn write_end() {
    for text in AT_END.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        message(format_args!("{text}"));
    }
}

/// The error in a filter expression, in three lines: the error, the expression, and a caret below
/// the position of the error.
#[derive(Debug)]
pub struct RefusedFilter(pub String);

impl fmt::Display for RefusedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RefusedFilter {}

/// Writes an error with its causes in one line. A [`RefusedFilter`] keeps its three lines.
pub fn report_error(error: &anyhow::Error) {
    match error.downcast_ref::<RefusedFilter>() {
        Some(RefusedFilter(text)) => {
            for (number, line) in text.lines().enumerate() {
                match number {
                    0 => self::error(format_args!("{line}")),
                    _ => message(format_args!("{line}")),
                }
            }
        }
        None => self::error(format_args!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: usize, pieces: &[&str]) -> String {
        let (mut rows, mut out) = (Rows::new(width), Vec::new());
        for piece in pieces {
            let mut left = piece.as_bytes();
            while !left.is_empty() {
                let written = rows.write(left, &mut out).unwrap();
                left = &left[written..];
            }
        }
        rows.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_cut_and_never_dropped() {
        for (width, pieces, expected) in [
            (5, &["12345\n123456\n"][..], "12345\n1234…\n"),
            (5, &["12", "34", "5\n\n", "äöüßé\näöüßéî"], "12345\n\näöüßé\näöüß…"),
            (5, &["\u{1b}[1mabcde\u{1b}[0m\n"], "\u{1b}[1mabcde\u{1b}[0m\n"),
            (5, &["\u{1b}[1mabcdefg\u{1b}[0m\n"], "\u{1b}[1mabcd…\u{1b}[0m\n"),
            (1, &["ab"], "…"),
            (5, &[], ""),
        ] {
            assert_eq!(written(width, pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensibilities", 8), ["incomprehensibilities"]);
        assert_eq!(wrapped("", 8), [""]);
    }

    #[test]
    fn rows_that_fit_are_not_wrapped() {
        let mut rows = Rows { wraps: true, ..Rows::new(9) };
        for (row, expected) in [
            ("  é  b  …", "  é  b  …\n"),
            ("\u{1b}[1m  a  b  c\u{1b}[0m", "\u{1b}[1m  a  b  c\u{1b}[0m\n"),
            ("one two three four five six", "one two three four\n  five six\n"),
        ] {
            let (text, mut out) = (format!("{row}\n"), Vec::new());
            rows.write(text.as_bytes(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn no_row_exceeds_the_limit_of_bytes() {
        for c in ["x", "é", "€", "😀"] {
            for count in [1000, 4000, 4096, 5000, 100_000] {
                let row = c.repeat(count);
                let cut = written(ROW_BYTES_MAX, &[&row, "\n"]);
                assert!(cut.len() <= ROW_BYTES_MAX + 1, "{c} {count}: {}", cut.len());
                if row.len() <= ROW_BYTES_MAX {
                    assert_eq!(cut, row + "\n");
                } else {
                    let more = format!("… ({} more characters)\n", count - cut.matches(c).count());
                    assert!(cut.ends_with(&more), "{c} {count}: {}", &cut[cut.len() - 40..]);
                }
            }
        }
    }

    #[test]
    fn texts_are_cut_at_the_end_or_in_the_middle() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut_middle(r"C:\Windows\System32\ntdll.dll", 16), r"C:\Wi…\ntdll.dll");
        assert_eq!(cut_middle("abc", 3), "abc");
    }
}
