//! Where results go: standard output, or a file that appears when it is complete.

use std::error::Error;
use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use stackhound::symbols::temporary::Temporary;
use stackhound_export::escape::{Plain, json_pretty};

/// A destination for data.
#[derive(Debug)]
pub struct Sink {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Standard(BufWriter<io::Stdout>),
    /// A pipe or device, which nothing must replace.
    Destination(BufWriter<File>),
    File(BufWriter<Temporary>, PathBuf),
}

const BUFFER_SIZE: usize = 1 << 18;

impl Sink {
    /// Standard output, or a file beside which a temporary one is written first. Links are followed; pipes and devices are
    /// written to as they are.
    pub fn open(path: Option<&Path>) -> Result<Sink> {
        let inner = match path {
            None => Inner::Standard(BufWriter::with_capacity(BUFFER_SIZE, io::stdout())),
            Some(path) if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) => {
                let location = File::options().write(true).open(path);
                let location = location.with_context(|| format!("cannot write {}", path.display()))?;
                Inner::Destination(BufWriter::with_capacity(BUFFER_SIZE, location))
            }
            Some(path) => {
                let path = path.canonicalize().unwrap_or(path.to_owned());
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let directory = directory.unwrap_or(Path::new("."));
                let file = Temporary::in_folder(directory)
                    .with_context(|| format!("cannot write in {}", directory.display()))?;
                Inner::File(BufWriter::with_capacity(BUFFER_SIZE, file), path)
            }
        };
        Ok(Sink { inner })
    }

    /// Writes what is left; gives the file its name.
    pub fn finish(self) -> Result<()> {
        match self.inner {
            Inner::Standard(mut out) => out.flush()?,
            Inner::Destination(mut out) => out.flush()?,
            Inner::File(out, path) => {
                let file = out.into_inner().map_err(|error| error.into_error())?;
                file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
            }
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
        match &mut self.inner {
            Inner::Standard(out) => out.write(bytes),
            Inner::Destination(out) => out.write(bytes),
            Inner::File(out, _) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Standard(out) => out.flush(),
            Inner::Destination(out) => out.flush(),
            Inner::File(out, _) => out.flush(),
        }
    }
}

/// Writes one line to standard error, whatever the names in it are.
pub fn message(text: Arguments<'_>) {
    anstream::eprintln!("{}", Plain(text));
}

/// What is wrong with an expression, with the place below it, in three lines.
#[derive(Debug)]
pub struct RefusedFilter(pub String);

impl fmt::Display for RefusedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for RefusedFilter {}

/// Writes an error with its causes; a filter that was refused keeps the line that it is in and the caret below it.
pub fn report_error(error: &anyhow::Error) {
    match error.downcast_ref::<RefusedFilter>() {
        Some(RefusedFilter(text)) => {
            for (number, line) in text.lines().enumerate() {
                let prefix = if number == 0 { "error: " } else { "" };
                anstream::eprintln!("{prefix}{}", Plain(line));
            }
        }
        None => message(format_args!("error: {error:#}")),
    }
}

/// A number with thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
