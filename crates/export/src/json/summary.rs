//! The first answers about a trace, as `summary` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::info::Capture;
use super::top::{CpuRow, Row};

/// `summary --format json`: an array with one object for each capture. Durations are nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Summary<'a> {
    /// The machine, the times and the files.
    #[serde(flatten)]
    pub capture: Capture<'a>,
    /// Size of the files in bytes.
    pub size: u64,
    /// Length of the trace.
    pub duration: u64,
    /// Number of events.
    pub events: u64,
    /// Number of events with at least a part of a stack.
    pub with_stack: u64,
    /// Number of lost events, as the session counted them.
    pub events_lost: u64,
    /// Number of lost buffers.
    pub buffers_lost: u64,
    /// Number of ranges that cannot be read.
    pub damaged_ranges: u64,
    /// Kinds of events that the trace contains.
    pub contains: Vec<KindCount>,
    /// Kinds of events that it does not contain.
    pub missing: Vec<&'static str>,
    /// Events of other providers, the most frequent first.
    pub providers: Vec<ProviderEvents<'a>>,
    /// Events of further providers, which were not counted one by one.
    pub other_providers: u64,
    /// Processor time. Null without samples and context switches.
    pub cpu: Option<Cpu<'a>>,
    /// Transfers of disks. Null if the trace contains none.
    pub disk: Option<Disk<'a>>,
    /// Bytes that reads and writes of file systems requested. Null if the trace contains none.
    pub file_requests: Option<FileRequests<'a>>,
    /// Modules, and names of functions.
    pub symbols: Symbols,
    /// Garbage collections of .NET processes. Null if the trace contains none.
    pub garbage_collections: Option<GarbageCollections>,
    /// Findings of detections by severity.
    pub findings: Vec<SeverityCount>,
    /// Alerts, the one with the highest score first.
    pub alerts: Vec<AlertTitle<'a>>,
    /// Commands that answer the next questions about this trace.
    pub next: Vec<String>,
}

/// A kind of event.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct KindCount {
    /// Its name.
    pub kind: &'static str,
    /// Number of events.
    pub events: u64,
}

/// A provider.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProviderEvents<'a> {
    /// Its name, or its GUID.
    pub provider: &'a str,
    /// Its GUID.
    pub guid: String,
    /// Number of events.
    pub events: u64,
}

/// Processor time.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Cpu<'a> {
    /// The time of all processors.
    pub available: u64,
    /// Time of threads and interrupts: by samples, or without samples by context switches.
    pub busy: u64,
    /// Whether `busy` is measured by samples.
    pub by_samples: bool,
    /// The processes that used most time.
    pub processes: Vec<Row<'a, CpuRow>>,
    /// The functions in which most time was spent. Empty without samples.
    pub functions: Vec<Row<'a, CpuRow>>,
}

/// Transfers of disks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Disk<'a> {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Number of files. More than 65,536 are not counted one by one.
    pub file_count: usize,
    /// The files with the most bytes.
    pub largest_files: Vec<FileBytes<'a>>,
}

/// Reads and writes of file systems, without those of paging, which repeat bytes of others.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FileRequests<'a> {
    /// Bytes read and written.
    pub bytes: u64,
    /// Number of files. More than 65,536 are not counted one by one.
    pub file_count: usize,
    /// The files with the most bytes.
    pub largest_files: Vec<FileBytes<'a>>,
}

/// A file.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FileBytes<'a> {
    /// Its path, or a remark in brackets.
    pub file: &'a str,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Modules, and names of functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Symbols {
    /// Number of different modules in the trace.
    pub modules: u64,
    /// Number of those whose PDB is identified.
    pub with_pdb_identity: u64,
    /// Number of different frames in the stacks of samples.
    pub frames: u64,
    /// Number of those that were named with the files at hand or by their runtime. The name of the
    /// nearest export does not count.
    pub named_frames: u64,
}

/// Garbage collections of .NET processes.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GarbageCollections {
    /// Number of collections of generation 0, 1, and 2 or older.
    pub generations: [u64; 3],
    /// Number of pauses.
    pub pauses: u64,
    /// Total length of the pauses.
    pub paused: u64,
    /// Length of the longest pause.
    pub longest: u64,
}

/// A number of findings.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SeverityCount {
    /// Their severity.
    pub severity: &'static str,
    /// Number of findings.
    pub findings: u64,
}

/// An alert.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct AlertTitle<'a> {
    /// The highest severity of its findings.
    pub severity: &'static str,
    /// From 1 to 100.
    pub score: u32,
    /// The title of its most severe detection or rule.
    pub title: &'a str,
    /// The acting process.
    pub process: &'a str,
    /// Its id.
    pub pid: Option<u32>,
    /// Number of events with findings.
    pub events: u64,
}
