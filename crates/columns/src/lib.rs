//! Traces as tables in Parquet files: events, stacks, frames, the state of the system, findings and
//! losses.
//!
//! [`convert`] reads a trace once and writes one file for each [table](tables) into a [`Dataset`]:
//! a folder that any engine that reads Parquet can query together with the traces of other
//! machines. Ids are derived from content, so that equal stacks have equal ids everywhere, and
//! converting the same trace again replaces its files with equal ones.
//!
//! This crate does not know the command line, and reads nothing but the pipeline's events and
//! state.
#![forbid(unsafe_code)]

#[cfg(feature = "arrow")]
pub mod arrow;
mod collect;
mod convert;
mod dataset;
mod id;
pub mod layout;
mod naming;
mod part;
mod read;
mod rows;
pub mod tables;

use std::path::PathBuf;

pub use convert::{Converted, Options, convert};
pub use dataset::{Dataset, TraceId, files};
pub use naming::{AddedNames, add_names};

/// Why tables could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The content of a file cannot be encoded or written.
    #[error("{}: {error}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: parquet::errors::ParquetError,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}
