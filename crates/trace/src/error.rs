//! Errors of opening traces. Damage inside a trace file is not an error: see
//! [`crate::Stats::damage`].

use std::io;
use std::path::PathBuf;

use stackhound_etl::OpenError;

/// The reason why a trace cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A file is not an .etl file.
    #[error("{0}: {1}")]
    NotATrace(String, OpenError),
    /// A compressed file or an archive cannot be unpacked.
    #[error("{}: {}", .0.display(), .1)]
    Packed(PathBuf, String),
    /// A path names a pipe or a device.
    #[error("{}: neither a file nor a folder", .0.display())]
    NoRegularFile(PathBuf),
    /// A directory contains no trace files.
    #[error("{}: no .etl, .etl.zst or .etl.zip file in this directory", .0.display())]
    NoTraces(PathBuf),
    /// There are more trace files than source numbers.
    #[error("more than 65,535 .etl files at once; pass fewer files")]
    TooMany,
    /// The files form several captures, where a single trace was requested.
    #[error("the files are {count} captures, which cannot be read as one trace: {captures}")]
    SeveralCaptures {
        /// The number of captures.
        count: usize,
        /// The files of each capture, in parentheses.
        captures: String,
    },
    /// No path or source was given.
    #[error("no .etl file was given")]
    Nothing,
    /// The threads that read ahead cannot be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}
