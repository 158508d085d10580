//! Options that all or many verbs share.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::output::Sink;

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Write only errors, and the number of undecided events, to standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub quiet: bool,
    /// Write more details, and log opened files, downloads and sessions to standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub verbose: bool,
    /// Hide the progress bar
    #[arg(long, global = true, help_heading = "Messages")]
    pub no_progress: bool,
    /// Choose when to color output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Messages")]
    pub color: ColorChoice,
    /// Decompress and scan with N threads; the results do not depend on N
    #[arg(long, global = true, value_name = "N", help_heading = "Reading")]
    pub threads: Option<usize>,
    /// Read settings from this TOML file; `stackhound config show` prints all settings
    #[arg(long, global = true, value_name = "FILE", help_heading = "Reading")]
    pub config: Option<PathBuf>,
    /// Exit with code 3 if any byte of the input is damaged
    #[arg(long, global = true, help_heading = "Reading")]
    pub strict: bool,
}

impl Common {
    pub fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(available).max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// Color if the output is a terminal and `NO_COLOR` is not set
    Auto,
    /// Always color
    Always,
    /// Never color
    Never,
}

#[derive(Args, Debug)]
pub struct Output {
    /// Write to this file, which is created when its content is complete
    #[arg(short, long, value_name = "FILE", value_parser = crate::output::output_file())]
    pub output: Option<PathBuf>,
}

/// Extensions of files that programs read. A table is not written to them.
const DATA: [&str; 6] = ["csv", "json", "ndjson", "jsonl", "html", "svg"];

/// The formats that people read.
const TEXTS: [&str; 4] = ["table", "text", "list", "summary"];

impl Output {
    /// The stated format, else that of the file name, else the default. An extension is the name or
    /// an alias of a format.
    pub fn format<F: ValueEnum>(&self, stated: Option<F>, default: F) -> Result<F> {
        let path = self.output.as_deref();
        let extension = path.and_then(Path::extension).and_then(|extension| extension.to_str());
        match stated.or_else(|| of_name(path?)) {
            Some(format) => Ok(format),
            None if extension.is_some_and(|extension| DATA.contains(&&*extension.to_lowercase())) => {
                self.known_format(None)
            }
            None => Ok(default),
        }
    }

    /// The stated format, else that of the file name, without `.gz`.
    pub fn known_format<F: ValueEnum>(&self, stated: Option<F>) -> Result<F> {
        let path = self.output.as_deref().unwrap_or(Path::new(""));
        let unpacked = path.extension().is_some_and(|end| end == "gz").then(|| path.with_extension(""));
        if let Some(format) = stated.or_else(|| of_name(unpacked.as_deref().unwrap_or(path))) {
            return Ok(format);
        }
        let values: Vec<_> = F::value_variants().iter().filter_map(F::to_possible_value).collect();
        let names = values.iter().filter(|value| !TEXTS.contains(&value.get_name()));
        let names: Vec<String> =
            names.flat_map(|value| value.get_name_and_aliases()).map(|name| format!(".{name}")).collect();
        bail!(
            "{}: cannot derive the format from the file name; use --format, or one of the extensions {}",
            path.display(),
            names.join(", ")
        )
    }

    /// Opens the output for rows, which are cut to the width of a terminal unless programs read the
    /// format.
    pub fn rows(&self, format: impl ValueEnum) -> Result<Sink> {
        let path = self.output.as_deref();
        if is_text(&format) { Sink::rows(path) } else { Sink::open(path) }
    }

    /// Opens the output for tables that fit into a terminal. Longer lines, such as their headings, are
    /// wrapped.
    pub fn tables(&self, format: impl ValueEnum) -> Result<Sink> {
        let path = self.output.as_deref();
        if is_text(&format) { Sink::tables(path) } else { Sink::open(path) }
    }

    /// Opens the output for sentences, which are not cut at the width of a terminal.
    pub fn sentences(&self, format: impl ValueEnum) -> Result<Sink> {
        let path = self.output.as_deref();
        if is_text(&format) { Sink::text(path) } else { Sink::open(path) }
    }
}

/// The format whose name is at the end of a file name, after a period.
fn of_name<F: ValueEnum>(path: &Path) -> Option<F> {
    let name = path.file_name()?.to_str()?;
    name.match_indices('.').find_map(|(at, _)| F::from_str(&name[at + 1..], true).ok())
}

fn is_text(format: &impl ValueEnum) -> bool {
    format.to_possible_value().is_some_and(|value| TEXTS.contains(&value.get_name()))
}

/// Output formats of `providers`, `config` and the verbs of `symbols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Human-readable table
    Table,
    /// One JSON array
    Json,
}
