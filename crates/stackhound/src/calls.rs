//! Opening whatever holds call trees.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use stackhound_calltree::{Error, Trace};

/// Why the call trees of a file cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum OpenStacksError {
    /// The file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// It holds no call trees, or damaged ones.
    #[error("{}: {}", .0.display(), .1)]
    Trace(PathBuf, Error),
}

/// What a file is. Its first bytes decide, not its name.
enum Form {
    /// The index of a trace.
    Index,
    /// Nothing that has call trees.
    Unknown,
}

impl Form {
    fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(Trace::MAGIC) { Self::Index } else { Self::Unknown }
    }
}

/// Opens the trace of a file. An index is mapped and read where it lies.
///
/// # Errors
/// The file cannot be read, has no call trees, is damaged, or is of another version of the format.
pub fn open_stacks(path: &Path) -> Result<Trace, OpenStacksError> {
    let read = || stackhound_trace::bytes_of(File::open(path)?);
    let bytes = read().map_err(|error| OpenStacksError::Io(path.to_owned(), error))?;
    let trace = match Form::of(&bytes) {
        Form::Index => Trace::open(bytes),
        Form::Unknown => Err(Error::NoIndex),
    };
    trace.map_err(|error| OpenStacksError::Trace(path.to_owned(), error))
}
