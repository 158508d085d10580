//! `stackhound images`: facts about image files.

mod files;
mod scan;
mod show;
mod trust;

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Subcommand;
use stackhound::FileTime;

use crate::options::Common;
use crate::outcome::Outcome;

pub use files::read;
pub use trust::{TrustArguments, checks};

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Write the facts about all image files in directories, for `hunt --image-facts`: one JSON
    /// object per line
    Scan(scan::Scan),
    /// Show the facts about image files: signatures, version, .NET, PDB, hashes
    Show(show::Show),
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Scan(arguments) => scan::run(arguments, common),
        Verb::Show(arguments) => show::run(arguments),
    }
}

/// The current time, at which certificates must be valid.
fn now() -> FileTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
