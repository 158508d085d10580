//! Options that all verbs have, or many of them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Only errors on standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub quiet: bool,
    /// More on standard error
    #[arg(short, long, global = true, help_heading = "Messages")]
    pub verbose: bool,
    /// No progress bar
    #[arg(long, global = true, help_heading = "Messages")]
    pub no_progress: bool,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Messages")]
    pub color: ColorChoice,
    /// Threads that decompress and scan; results do not depend on it
    #[arg(long, global = true, value_name = "N", help_heading = "Reading")]
    pub threads: Option<usize>,
    /// Settings in TOML; `stackhound config show` prints them all
    #[arg(long, global = true, value_name = "FILE", help_heading = "Reading")]
    pub config: Option<PathBuf>,
    /// Exit with 3 if any byte of the input is damaged
    #[arg(long, global = true, help_heading = "Reading")]
    pub strict: bool,
}

impl Common {
    /// How many threads to use.
    pub fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(available).max(1)
    }
}

/// When to colour output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// If it goes to a terminal and `NO_COLOR` is not set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Where to write.
#[derive(Args, Debug)]
pub struct Output {
    /// Write to this file, which appears when it is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Forms of what verbs of `symbols` and `config` write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// A list with one object each
    Json,
}
