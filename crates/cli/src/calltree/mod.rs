//! Verbs about the stack model of a trace: where am I, who called this, what did it call, when did it run?
//!
//! How a trace is opened and what its frames are, the library knows; how they are written, the exports.

pub mod backtrace;
pub mod calls;
pub mod events;
mod list;
mod place;
pub mod ranges;
pub mod stack;
pub mod tree;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use stackhound::FileTime;
use stackhound::calltree::{Context, Pattern, Trace};

use crate::render::utc;

/// Forms of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines
    Text,
    /// One object
    Json,
}

fn open(path: &Path) -> Result<Trace> {
    Ok(stackhound::open_stacks(path)?)
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| error.to_string())
}

/// The time of a context, if the trace has times.
fn time(context: Context<'_>) -> Option<String> {
    Some(utc(FileTime(i64::try_from(context.time()?).ok()?)))
}

/// A context as JSON.
#[derive(Serialize)]
struct At {
    context: u64,
    cpu: u16,
    time: Option<String>,
}

impl At {
    fn new(context: Context<'_>) -> Self {
        Self { context: context.id().0, cpu: context.cpu().0, time: time(context) }
    }
}
