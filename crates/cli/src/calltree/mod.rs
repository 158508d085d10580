//! Verbs about call trees: the threads of a trace, the current function, its caller, its calls, and the
//! times when it ran.
//!
//! The library opens traces and provides the frames. The crate for exports writes them.

pub mod backtrace;
pub mod calls;
pub mod events;
pub mod fold;
mod list;
pub mod position;
pub mod ranges;
pub mod stack;
pub mod threads;
pub mod tree;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::calltree::{Pattern, Trace};
use stackhound::trace::Error;
use stackhound::{OpenStacksError, StacksFrom};

use crate::inputs;
use crate::naming::{self, Naming, Use};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, message};

/// Output formats of a single stack or backtrace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable text
    Text,
    /// One JSON object
    Json,
}

/// The input of all verbs about call trees.
#[derive(Args, Debug)]
struct Source {
    /// Read this trace (.etl), exact trace (.calls) or index
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Merge the files of a directory or archive into one capture, even if they are of several
    /// machines, boots or times
    #[arg(long, help_heading = "Reading")]
    merge: bool,
    #[command(flatten)]
    naming: Naming,
}

/// Opens the trace. The outcome states whether a byte of it could not be read.
fn open(source: &Source, common: &Common) -> Result<(Trace, Outcome)> {
    let enrichment = naming::enrichment(&source.naming, common, Use::Summary, None)?;
    let opened = stackhound::open_stacks(&source.file, enrichment, inputs::grouping(source.merge));
    let (trace, from) = opened.map_err(|error| match error {
        OpenStacksError::EtlFile(error @ Error::SeveralCaptures { .. }) => inputs::refusal(&error),
        error => error.into(),
    })?;
    let damaged = match &from {
        StacksFrom::Index | StacksFrom::IndexOfJournal => false,
        StacksFrom::Journal(replayed, _) => !replayed.finished,
        StacksFrom::IndexOfEtlFile { is_damaged } => *is_damaged,
        StacksFrom::EtlFile(report, _) => !report.outcome.trace.damage.is_empty(),
    };
    if !common.quiet {
        report(&from, &source.file);
    }
    Ok((trace, Outcome { damaged, ..Outcome::default() }))
}

/// Reports what of a file could not be read, and why its index could not be saved.
fn report(from: &StacksFrom, file: &Path) {
    if let StacksFrom::Journal(replayed, _) = from
        && !replayed.finished
    {
        let lost = counted(replayed.lost_bytes, "byte", "bytes");
        message(format_args!("{} is incomplete: its last {lost} cannot be read.", file.display()));
    }
    if let StacksFrom::Journal(_, Some(reason)) | StacksFrom::EtlFile(_, Some(reason)) = from {
        message(format_args!("The index could not be saved: {reason}"));
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| error.to_string())
}

/// Reports patterns whose module is not in the trace.
fn report_unknown_modules(trace: &Trace, patterns: &[Pattern], common: &Common) {
    for pattern in patterns.iter().filter(|pattern| !common.quiet && !trace.has_module_of(pattern)) {
        naming::report_unknown_module(pattern);
    }
}
