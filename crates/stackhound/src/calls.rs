//! Opening whatever holds call trees: an index, the journal of an exact trace, a recording.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stackhound_calltree::{self as calltree, Trace, journal};
use stackhound_pipeline::Enrichment;
use stackhound_symbols::temporary::Temporary;
use stackhound_timeline::etw::{Stacks, TimelineReport, timeline};
use stackhound_trace::{Grouping, TraceFiles};

/// Why the call trees of a file cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum OpenStacksError {
    /// The file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// Its call trees are damaged, of another version, or more than can be held.
    #[error("{}: {}", .0.display(), .1)]
    Trace(PathBuf, calltree::Error),
    /// It is an index of another version.
    #[error("{}: {}; {} anew", .path.display(), .error, anew(.path))]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Which version it has.
        error: calltree::Error,
    },
    /// It is neither an index nor a journal, and no recording either.
    #[error("{0}; nor an index of stacks or a journal of calls")]
    Nothing(stackhound_trace::Error),
    /// It is a recording, or a folder or an archive of some, and cannot be read.
    #[error(transparent)]
    EtlFile(stackhound_trace::Error),
}

impl From<stackhound_trace::Error> for OpenStacksError {
    fn from(error: stackhound_trace::Error) -> Self {
        match error {
            stackhound_trace::Error::NotATrace(..) => Self::Nothing(error),
            _ => Self::EtlFile(error),
        }
    }
}

/// How an index is made anew.
fn anew(path: &Path) -> String {
    match source(path) {
        Some(source) => format!("`stackhound stack {} --at '#0'` makes it", source.display()),
        None => "open the file that it was made from, and it is made".to_owned(),
    }
}

/// Where call trees came from.
#[derive(Clone, Debug)]
pub enum StacksFrom {
    /// An index, used as it is.
    Index,
    /// A journal, through the index beside it.
    IndexOfJournal,
    /// A journal, and what became of it. Says why the index could not be written beside it.
    Journal(journal::Replayed, Option<String>),
    /// A recording, and what became of it.
    EtlFile(Box<TimelineReport>),
}

/// Opens the trace of a file; its first bytes say what it is.
///
/// - An index is mapped and read where it lies.
/// - Of a journal, the index beside it, called `.index` behind the journal's whole name, is used if it was made from just
///   this journal. Otherwise it is made anew, and written unless the journal is unfinished.
/// - Anything else is taken for a recording, or a folder or an archive of the recordings of one capture, and read, named as
///   the enrichment says. `grouping` says what a capture is.
///
/// # Errors
/// The file cannot be read, is damaged, is an index of another version of the format, or holds several captures.
pub fn open_stacks(
    path: &Path,
    enrichment: Enrichment,
    grouping: Grouping,
) -> Result<(Trace, StacksFrom), OpenStacksError> {
    let unreadable = |error| OpenStacksError::Io(path.to_owned(), error);
    if fs::metadata(path).map_err(unreadable)?.is_file() {
        let bytes = stackhound_trace::bytes_of(path).map_err(unreadable)?;
        if bytes.starts_with(Trace::MAGIC) {
            return match Trace::open(bytes) {
                Ok(trace) => Ok((trace, StacksFrom::Index)),
                Err(error @ calltree::Error::IndexVersion { .. }) => {
                    Err(OpenStacksError::OtherVersion { path: path.to_owned(), error })
                }
                Err(error) => Err(OpenStacksError::Trace(path.to_owned(), error)),
            };
        }
        if journal::is_journal(&bytes) {
            return of_journal(path, &bytes).map_err(|error| OpenStacksError::Trace(path.to_owned(), error));
        }
    }
    let etl_file = TraceFiles::file(path).grouping(grouping).open()?;
    match timeline(&etl_file, enrichment, Stacks::Recorded) {
        Ok((trace, report)) => Ok((trace, StacksFrom::EtlFile(Box::new(report)))),
        Err(error) => Err(OpenStacksError::Trace(path.to_owned(), error)),
    }
}

fn of_journal(path: &Path, bytes: &[u8]) -> Result<(Trace, StacksFrom), calltree::Error> {
    let index = index_of(path);
    // Whatever is wrong with it, it can be made anew.
    let kept = stackhound_trace::bytes_of(&index).ok().and_then(|bytes| Trace::open(bytes).ok());
    if let Some(kept) = kept.filter(|kept| kept.made_from() == Some(journal::fingerprint(bytes))) {
        return Ok((kept, StacksFrom::IndexOfJournal));
    }
    let (trace, replayed) = journal::trace(bytes)?;
    let unwritten = match replayed.finished {
        true => write(&index, trace.as_bytes()).err().map(|error| format!("{}: {error}", index.display())),
        false => None,
    };
    Ok((trace, StacksFrom::Journal(replayed, unwritten)))
}

/// Writes beside and renames, so that there is never half an index.
fn write(index: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = index.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = Temporary::in_folder(folder.unwrap_or(Path::new(".")))?;
    file.write_all(bytes)?;
    file.persist(index)
}

/// The index beside a journal.
fn index_of(journal: &Path) -> PathBuf {
    journal.with_added_extension("index")
}

/// The journal beside an index.
fn source(index: &Path) -> Option<PathBuf> {
    (index.extension()? == "index").then(|| index.with_extension("")).filter(|journal| journal.is_file())
}
