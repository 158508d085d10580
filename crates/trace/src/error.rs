//! Why a trace cannot be read. Damage inside a recording is no error: see [`crate::Stats::damage`].

use std::io;
use std::path::PathBuf;

use stackhound_etl::OpenError;

/// Why a trace cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A file is no recording.
    #[error("{0}: {1}")]
    NotATrace(String, OpenError),
    /// A packed file cannot be unpacked.
    #[error("{}: {}", .0.display(), .1)]
    Packed(PathBuf, String),
    /// A path leads to a pipe or a device.
    #[error("{}: neither a file nor a folder", .0.display())]
    NoRegularFile(PathBuf),
    /// A directory holds no recordings.
    #[error("{}: no .etl, .etl.zst or .etl.zip file in this directory", .0.display())]
    NoTraces(PathBuf),
    /// More files than can be told apart.
    #[error("more than 65,535 recordings at once")]
    TooMany,
    /// The files come from several machines, boots or captures, and one trace was asked for.
    #[error("the files are {count} captures, which cannot be read as one trace: {captures}")]
    SeveralCaptures {
        /// How many captures.
        count: usize,
        /// The files of each, in brackets.
        captures: String,
    },
    /// Nothing to read.
    #[error("no recording was given")]
    Nothing,
    /// The threads that read ahead cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}
