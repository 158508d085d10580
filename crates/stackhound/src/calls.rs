//! Opens the call trees of a file: an index, the journal of an exact trace, or a trace of events.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stackhound_calltree::{self as calltree, Trace, journal};
use stackhound_pipeline::Enrichment;
use stackhound_timeline::etw::{Stacks, TimelineReport, timeline};
use stackhound_trace::{Grouping, TraceFiles};

use crate::kept::{Place, write_whole};

/// The reason why the call trees of a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStacksError {
    /// The file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// The call trees are damaged, have an unsupported version, or exceed a limit.
    #[error("{}: {}", .0.display(), .1)]
    Trace(PathBuf, calltree::Error),
    /// The file is an index of another version.
    #[error("{}: {}; {}", .path.display(), .error, how_to_rebuild(.path))]
    OtherVersion {
        /// Path of the index.
        path: PathBuf,
        /// The error, with the version of the index.
        error: calltree::Error,
    },
    /// The file is neither an index, nor a journal, nor a trace.
    #[error("{0}; also not an index of stacks or a journal of calls")]
    Nothing(stackhound_trace::Error),
    /// The file is a trace, or a folder or an archive of traces, and cannot be read.
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

/// How to rebuild an index.
fn how_to_rebuild(path: &Path) -> String {
    match source(path) {
        Some(source) => format!("run `stackhound stack {} --at '#0'` to rebuild it", source.display()),
        None => "open the file from which it was made to rebuild it".to_owned(),
    }
}

/// The source of call trees.
#[derive(Clone, Debug)]
pub enum StacksFrom {
    /// An index, used unchanged.
    Index,
    /// A journal, through the existing index of it.
    IndexOfJournal,
    /// A journal, which was read, and the reason if its index could not be written.
    Journal(journal::Replayed, Option<String>),
    /// A trace of events, through its kept index.
    IndexOfEtlFile {
        /// Whether bytes of the trace could not be read.
        is_damaged: bool,
    },
    /// A trace of events, which was read, the report about its call trees, and the reason if its index
    /// could not be kept.
    EtlFile(Box<TimelineReport>, Option<String>),
}

/// Opens the call trees of a file. The type of the file is recognized by its first bytes.
///
/// - An index is mapped and used directly.
/// - For a journal, the index in the same folder, with `.index` appended to the journal's name, is
///   used if it was made from this journal. Otherwise, an index is built, and written unless the
///   journal is unfinished.
/// - Any other file is a trace of events, or a folder or an archive of traces of one capture.
///   `enrichment` determines the names of functions, `grouping` the captures. Its index in the
///   cache folder of the symbol store is used if it is that of the same trace, options and symbols.
///   Otherwise, the trace is read, and its index is written there. Without symbols or a cache folder,
///   no index is kept.
///
/// # Errors
/// If the file cannot be read, is damaged, is an index of another version of the format, or
/// contains several captures.
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
    let place = Place::of(path, &enrichment, grouping);
    if let Some((trace, is_damaged)) = place.as_ref().and_then(Place::open) {
        return Ok((trace, StacksFrom::IndexOfEtlFile { is_damaged }));
    }
    let etl_file = TraceFiles::file(path).grouping(grouping).open()?;
    let (trace, report) = timeline(&etl_file, enrichment, Stacks::Recorded)
        .map_err(|error| OpenStacksError::Trace(path.to_owned(), error))?;
    let kept = place.map(|place| place.keep(&trace, !report.outcome.trace.damage.is_empty()));
    let unwritten = kept.and_then(Result::err).map(|error| error.to_string());
    Ok((trace, StacksFrom::EtlFile(Box::new(report), unwritten)))
}

fn of_journal(path: &Path, bytes: &[u8]) -> Result<(Trace, StacksFrom), calltree::Error> {
    let index = index_of(path);
    // An unusable index is rebuilt, whatever the reason.
    let kept = stackhound_trace::bytes_of(&index).ok().and_then(|bytes| Trace::open(bytes).ok());
    if let Some(kept) = kept.filter(|kept| kept.made_from() == Some(journal::fingerprint(bytes))) {
        return Ok((kept, StacksFrom::IndexOfJournal));
    }
    let (trace, replayed) = journal::trace(bytes)?;
    let unwritten = match replayed.finished {
        true => write_whole(&index, &[trace.as_bytes()])
            .err()
            .map(|error| format!("{}: {error}", index.display())),
        false => None,
    };
    Ok((trace, StacksFrom::Journal(replayed, unwritten)))
}

/// The path of a journal's index.
fn index_of(journal: &Path) -> PathBuf {
    journal.with_added_extension("index")
}

/// The journal of an index, if it exists.
fn source(index: &Path) -> Option<PathBuf> {
    (index.extension()? == "index").then(|| index.with_extension("")).filter(|journal| journal.is_file())
}
