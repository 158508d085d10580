//! Verbs about the stack model of a trace: where am I, who called this, what did it call, when did it run?
//!
//! How a trace is opened and what its frames are, the library knows; how they are written, the exports.

pub mod backtrace;
pub mod calls;
pub mod events;
mod list;
mod position;
pub mod ranges;
pub mod stack;
pub mod tree;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use stackhound::calltree::{Pattern, Trace};
use stackhound::trace::Error;
use stackhound::{OpenStacksError, StacksFrom};

use crate::inputs;
use crate::naming::{self, Naming, Use};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::message;

/// Forms of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines
    Text,
    /// One object
    Json,
}

/// What holds the trace.
#[derive(Args, Debug)]
struct Source {
    /// A recording, an exact trace (.calls), or an index of stacks
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take the recordings of a directory or an archive as one capture, even if they come from several machines, boots or
    /// times
    #[arg(long, help_heading = "Reading")]
    merge: bool,
    #[command(flatten)]
    naming: Naming,
}

/// Opens it, and says whether a byte of it could not be read.
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
        StacksFrom::EtlFile(report) => !report.outcome.trace.damage.is_empty(),
    };
    if let (StacksFrom::Journal(replayed, unwritten), false) = (from, common.quiet) {
        if !replayed.finished {
            let lost = replayed.lost_bytes;
            message(format_args!(
                "{} breaks off, its last {lost} bytes cannot be read.",
                source.file.display()
            ));
        }
        if let Some(reason) = unwritten {
            message(format_args!("The index could not be kept: {reason}"));
        }
    }
    Ok((trace, Outcome { damaged, ..Outcome::default() }))
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| error.to_string())
}

/// Reports patterns that cannot fit, since no module is one that they name.
fn report_unknown_modules(trace: &Trace, patterns: &[Pattern], common: &Common) {
    for pattern in patterns.iter().filter(|pattern| !common.quiet && !trace.has_module_of(pattern)) {
        naming::report_unknown_module(pattern);
    }
}
