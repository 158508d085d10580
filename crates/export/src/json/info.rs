//! Facts about trace files, as `info` writes them.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::value::{Hex, Time};

/// `info --format json` of one file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FileInfo {
    /// The file, as named by the user.
    pub file: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Name of the session.
    pub session: String,
    /// The path that the session wrote to.
    pub log_file: String,
    /// Version of Windows, such as `10.0`.
    pub windows: String,
    /// Build of Windows.
    pub build: u32,
    /// Version of the header's layout.
    pub layout_version: String,
    /// Size of a pointer in bytes.
    pub pointer_size: u8,
    /// Number of processors of the computer.
    pub processors: u32,
    /// The clock of raw times.
    pub clock: &'static str,
    /// Ticks of the clock per second.
    pub ticks_per_second: u64,
    /// Size of a buffer in bytes.
    pub buffer_size: u32,
    /// `LogFileMode` of the session.
    pub mode: Hex,
    /// Boot time of the computer.
    pub boot_time: Time,
    /// Start time of the session.
    pub start_time: Time,
    /// End time of the session; null if the header does not state it.
    pub end_time: Option<Time>,
    /// Number of buffers in the header; 0 if the session was not closed.
    pub buffers_written: u32,
    /// Number of buffers in the file.
    pub buffers_in_file: u64,
    /// Whether the session was closed properly: the header states its end time and at least as many
    /// buffers as the file has.
    pub closed: bool,
    /// Events that the session counted as lost.
    pub events_lost: u32,
    /// Buffers that the session counted as lost.
    pub buffers_lost: u32,
    /// Bytes of buffers that were read. Together with `bytes_unreadable` this is the size of the
    /// file.
    pub bytes_read: u64,
    /// Bytes that were skipped.
    pub bytes_unreadable: u64,
    /// The skipped ranges, with reasons.
    pub damage: Vec<Damage>,
    /// Present with `--full`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub full: Option<Contents>,
}

/// The results of a scan of all events.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Contents {
    /// Number of events.
    pub events: u64,
    /// Number of events by the type of their header.
    pub by_header_type: BTreeMap<&'static str, u64>,
    /// Number of kernel events by hook id, in four hexadecimal digits.
    pub kernel_hook_ids: BTreeMap<String, u64>,
    /// Number of events of classic providers.
    pub classic_guid_events: u64,
    /// Number of events with an event descriptor.
    pub manifest_events: u64,
    /// Number of buffers with events.
    pub buffers: u64,
    /// Number of compressed buffers with events.
    pub compressed_buffers: u64,
    /// Compression format.
    pub compression: Option<&'static str>,
    /// Number of missing buffers, from gaps in their sequence numbers.
    pub buffers_missing: u64,
    /// Number of buffers without events.
    pub other_buffers: u64,
    /// Providers and classes of kernel events by GUID.
    pub providers: BTreeMap<String, ProviderCount>,
    /// Sessions that were appended to the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub appended_sessions: Vec<AppendedSession>,
    /// Statistics of stacks.
    pub stacks: StackCounts,
    /// Time of the first event.
    pub first_event: Option<Time>,
    /// Time of the last event.
    pub last_event: Option<Time>,
    /// Number of events that are earlier than a previous event of the same processor.
    pub out_of_order: u64,
    /// Number of events without a schema.
    pub schema_misses: u64,
}

/// Number of records of a provider.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProviderCount {
    /// Name of the provider.
    pub name: Option<String>,
    /// Number of its records.
    pub events: u64,
    /// Number of its records that are parts of the stacks of other events, or define stack keys. The
    /// other ones are the events that `events` shows.
    pub stack_records: u64,
    /// Number of its events whose fields are not known, because neither the trace nor a built-in
    /// table describes them.
    pub undescribed: u64,
}

/// A later session of a file to which several sessions were appended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct AppendedSession {
    /// Name of the session.
    pub session: String,
    /// Start time of the session.
    pub start_time: Time,
    /// End time of the session; null if the header does not state it.
    pub end_time: Option<Time>,
    /// The clock of raw times.
    pub clock: &'static str,
    /// Ticks of the clock per second.
    pub ticks_per_second: u64,
    /// Events that the session counted as lost.
    pub events_lost: u32,
    /// Buffers that the session counted as lost.
    pub buffers_lost: u32,
}

/// A range of bytes that cannot be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Number of skipped bytes.
    pub skipped: u64,
    /// Reason.
    pub reason: String,
}

/// Statistics of the stacks of a trace. A part is the kernel or the user stack of an event.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StackCounts {
    /// Parts that were recorded with their frames.
    pub full: u64,
    /// Parts that were recorded as stack keys.
    pub keyed: u64,
    /// Parts in extended data items of their events.
    pub extended: u64,
    /// Definitions of stack keys.
    pub definitions: u64,
    /// Stacks that were joined from parts.
    pub groups: u64,
    /// Parts that were attributed to an event.
    pub attributed_parts: u64,
    /// Parts whose event is not in the trace.
    pub orphaned_parts: u64,
    /// Parts that can belong to more than one event.
    pub ambiguous_parts: u64,
    /// Stack keys without a definition.
    pub unresolved_keys: u64,
    /// Distinct frames.
    pub distinct_frames: u64,
    /// Parts by their triggering event.
    pub by_triggering_event: BTreeMap<String, u64>,
    /// Events by stack state.
    pub by_state: BTreeMap<&'static str, u64>,
}

/// `info --format json` of several files.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Files<'a> {
    /// The files.
    pub files: &'a [FileInfo],
    /// The captures that the files belong to, in the order of analysis. Absent if there is only
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captures: Option<Vec<Capture<'a>>>,
}

/// A capture: traces of one boot of one machine that overlap in time. Facts that its files do not
/// state are null.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Capture<'a> {
    /// Name of the computer.
    pub computer_name: Option<&'a str>,
    /// Boot time of the computer.
    pub boot_time: Option<Time>,
    /// Build of Windows.
    pub build: Option<u32>,
    /// Number of processors.
    pub processors: Option<u32>,
    /// Size of a pointer in bytes.
    pub pointer_size: Option<u8>,
    /// Start time of the first session.
    pub start_time: Time,
    /// End time of the last session.
    pub end_time: Time,
    /// The files.
    pub files: Vec<&'a str>,
}

/// The documents of the captures of an input, if there are several.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "{D}OfCaptures"))]
pub struct OfCaptures<'a, D> {
    /// The captures.
    pub captures: Vec<OfCapture<'a, D>>,
}

/// The document of one of several captures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "Capture{D}"))]
pub struct OfCapture<'a, D> {
    /// The capture.
    #[serde(flatten)]
    pub capture: Capture<'a>,
    /// The document.
    #[serde(flatten)]
    pub document: D,
}
