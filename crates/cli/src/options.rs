//! Options that all or many verbs share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Write only errors to standard error
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

/// Output formats of `providers`, `config` and the verbs of `symbols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Human-readable table
    Table,
    /// One JSON array
    Json,
}
