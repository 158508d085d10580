//! Output: to standard output, or to a file that is created when its content is complete.

use std::error::Error;
use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde::Serialize;
use stackhound::symbols::temporary::Temporary;
use stackhound_export::escape::{Plain, json_pretty};
pub use stackhound_export::numbers::{counted, grouped};

#[derive(Debug)]
pub struct Sink {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Standard(BufWriter<io::Stdout>),
    /// A pipe or device, which must not be replaced by a file.
    Destination(BufWriter<File>),
    File(BufWriter<Temporary>, PathBuf),
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

    /// Flushes the output and renames the temporary file to its final name.
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

/// A parser of the names of output files. Refuses what cannot become a file before any input is read.
pub fn output_file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() {
            Err(format!("expected a file, found the directory `{}`", path.display()))
        } else if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            Err(format!("expected a file in an existing directory, `{}` is none", folder.display()))
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
                let prefix = if number == 0 { "error: " } else { "" };
                anstream::eprintln!("{prefix}{}", Plain(line));
            }
        }
        None => message(format_args!("error: {error:#}")),
    }
}
