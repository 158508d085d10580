//! The folders and files of tables: `TABLE/date=YYYY-MM-DD/host=NAME/ID.parquet`.
//!
//! A file has its name from the content of the trace, so that converting a trace again replaces its
//! files. Engines read `date` and `host` as columns.

use std::path::{Path, PathBuf};
use std::{fs, io};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use stackhound_trace::{Capture, OpenTrace};
use stackhound_types::Rfc3339;
use twox_hash::XxHash3_128;

use crate::id::IdParts;
use crate::tables::TableId;

/// The id of a trace: that of the bytes of its files and of the selection of its events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TraceId(pub u64);

impl TraceId {
    /// The id of a trace, of which the events are selected that a text describes. Reads all bytes.
    pub fn of(opened: &OpenTrace, selection: &str) -> TraceId {
        let sources = opened.sources().iter();
        let mut hashes: Vec<u128> =
            sources.map(|source| XxHash3_128::oneshot(source.etl_file.bytes())).collect();
        hashes.sort_unstable();
        let parts = IdParts::new("trace").text(selection);
        let parts = hashes
            .into_iter()
            .fold(parts, |parts, hash| parts.number((hash >> 64) as u64).number(hash as u64));
        TraceId(parts.finish())
    }
}

/// The place of the files of one trace in a folder of tables.
#[derive(Clone, Debug)]
pub struct Dataset {
    root: PathBuf,
    host: String,
    date: String,
    trace: TraceId,
}

impl Dataset {
    /// The place for a trace. `host` is the name of the computer, if the trace does not state it.
    pub fn new(root: &Path, capture: &Capture, trace: TraceId, host: Option<&str>) -> Dataset {
        Dataset {
            root: root.to_owned(),
            host: self::host(capture, host).to_owned(),
            date: date(capture),
            trace,
        }
    }

    /// The id of the trace.
    pub fn trace(&self) -> TraceId {
        self.trace
    }

    /// The name of the computer.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The file of a table.
    pub(crate) fn path(&self, table: TableId) -> PathBuf {
        let host = utf8_percent_encode(&self.host, ESCAPED);
        let file = format!("{:016x}.parquet", self.trace.0);
        self.root
            .join(table.name())
            .join(format!("date={}", self.date))
            .join(format!("host={host}"))
            .join(file)
    }

    /// Whether all files of the trace are complete.
    pub fn is_complete(&self) -> bool {
        TableId::ALL.iter().all(|table| self.path(*table).is_file())
    }
}

/// The files of a table in a folder of tables, in the order of their paths.
///
/// # Errors
/// If a folder cannot be read.
pub fn files(root: &Path, table: TableId) -> io::Result<Vec<PathBuf>> {
    let mut paths = vec![root.join(table.name())];
    // `date=…/host=…/ID.parquet`
    for _ in 0..3 {
        let mut deeper = Vec::new();
        for folder in paths.iter().filter(|path| path.is_dir()) {
            for entry in fs::read_dir(folder)? {
                deeper.push(entry?.path());
            }
        }
        paths = deeper;
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    paths.sort_unstable();
    Ok(paths)
}

/// The value of the column `host`: the name of the computer, or `stated` if the trace does not have
/// it.
pub(crate) fn host<'c>(capture: &'c Capture, stated: Option<&'c str>) -> &'c str {
    capture.machine.computer_name.as_deref().or(stated).unwrap_or("unknown")
}

/// The value of the column `date`: the day (UTC) on which the trace starts, as `YYYY-MM-DD`.
pub(crate) fn date(capture: &Capture) -> String {
    let start = Rfc3339(capture.times.0).to_string();
    start.split('T').next().unwrap_or(&start).to_owned()
}

/// What engines expect to be escaped in the name of a folder.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_names_of_folders() {
        for (name, expected) in [("PC-7.lan", "PC-7.lan"), ("a/b=ä", "a%2Fb%3D%C3%A4"), ("..", "..")] {
            assert_eq!(utf8_percent_encode(name, ESCAPED).to_string(), expected);
        }
    }
}
