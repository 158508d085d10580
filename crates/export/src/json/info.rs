//! Facts about trace files: what `info` writes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::value::{Hex, Time};

/// `info --format json` of one file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileInfo {
    /// The file, as it was named.
    pub file: String,
    /// Bytes.
    pub size: u64,
    /// The session's name.
    pub session: String,
    /// The path that the session wrote to.
    pub log_file: String,
    /// Version of Windows, such as `10.0`.
    pub windows: String,
    /// Build of Windows.
    pub build: u32,
    /// Version of the header's layout.
    pub layout_version: String,
    /// Bytes of a pointer.
    pub pointer_size: u8,
    /// Processors of the computer.
    pub processors: u32,
    /// What raw times count.
    pub clock: &'static str,
    /// Ticks of that clock in a second.
    pub ticks_per_second: u64,
    /// Bytes of a buffer.
    pub buffer_size: u32,
    /// The session's `LogFileMode`.
    pub mode: Hex,
    /// When the computer was started.
    pub boot_time: Time,
    /// When the session started.
    pub start_time: Time,
    /// When it ended; null if the header does not state it.
    pub end_time: Option<Time>,
    /// Buffers that the header counts; 0 in sessions that were not closed.
    pub buffers_written: u32,
    /// Buffers that are there.
    pub buffers_in_file: u64,
    /// Whether the session was closed properly: the header states its end and counts no fewer buffers than there are.
    pub closed: bool,
    /// Events that the session counted as lost.
    pub events_lost: u32,
    /// Buffers that the session counted as lost.
    pub buffers_lost: u32,
    /// Bytes of buffers that are read. With `bytes_unreadable` it is the size of the file.
    pub bytes_read: u64,
    /// Bytes that are stepped over.
    pub bytes_unreadable: u64,
    /// What is stepped over, and why.
    pub damage: Vec<Damage>,
    /// With `--full`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub full: Option<Contents>,
}

/// What a scan of all events finds.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Contents {
    /// Events.
    pub events: u64,
    /// Events by the kind of their header.
    pub by_header_type: BTreeMap<&'static str, u64>,
    /// Events of the kernel by their hook id, in four hexadecimal digits.
    pub kernel_hook_ids: BTreeMap<String, u64>,
    /// Events of classic providers.
    pub classic_guid_events: u64,
    /// Events with an event descriptor.
    pub manifest_events: u64,
    /// Buffers with events.
    pub buffers: u64,
    /// Those of them that are compressed.
    pub compressed_buffers: u64,
    /// How they are compressed.
    pub compression: Option<&'static str>,
    /// Buffers that are missing by their sequence numbers.
    pub buffers_missing: u64,
    /// Buffers without events.
    pub other_buffers: u64,
    /// Providers by their GUIDs.
    pub providers: BTreeMap<String, ProviderCount>,
    /// Sessions that were appended to the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub appended_sessions: Vec<AppendedSession>,
    /// What became of stacks.
    pub stacks: StackCounts,
    /// Time of the first event.
    pub first_event: Option<Time>,
    /// Time of the last event.
    pub last_event: Option<Time>,
    /// Events whose time is before that of an earlier event of their processor.
    pub out_of_order: u64,
    /// Events without a schema.
    pub schema_misses: u64,
}

/// Events of a provider.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct ProviderCount {
    /// The provider's name.
    pub name: Option<String>,
    /// Its events.
    pub events: u64,
}

/// A later session of a file that several were appended to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AppendedSession {
    /// The session's name.
    pub session: String,
    /// When it started.
    pub start_time: Time,
    /// When it ended; null if the header does not state it.
    pub end_time: Option<Time>,
    /// What raw times count.
    pub clock: &'static str,
    /// Ticks of that clock in a second.
    pub ticks_per_second: u64,
    /// Events that the session counted as lost.
    pub events_lost: u32,
    /// Buffers that the session counted as lost.
    pub buffers_lost: u32,
}

/// Bytes that cannot be read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Damage {
    /// Where they are in the file.
    pub offset: u64,
    /// How many are skipped.
    pub skipped: u64,
    /// Why.
    pub reason: String,
}

/// What became of the stacks of a trace. A part is the kernel or the user stack of an event.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct StackCounts {
    /// Parts that are recorded with their frames.
    pub full: u64,
    /// Parts that are recorded as keys.
    pub keyed: u64,
    /// Parts in extended data of their events.
    pub extended: u64,
    /// Definitions of keys.
    pub definitions: u64,
    /// Stacks that were put together of parts.
    pub groups: u64,
    /// Parts that belong to an event.
    pub attributed_parts: u64,
    /// Parts whose event is not in the trace.
    pub orphaned_parts: u64,
    /// Parts that can belong to more than one event.
    pub ambiguous_parts: u64,
    /// Keys without a definition.
    pub unresolved_keys: u64,
    /// Different frames.
    pub distinct_frames: u64,
    /// Parts by the event that they belong to.
    pub by_triggering_event: BTreeMap<String, u64>,
    /// Events by the state of their stack.
    pub by_state: BTreeMap<&'static str, u64>,
}

/// `info --format json` of several files.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Files<'a> {
    /// The files.
    pub files: &'a [FileInfo],
    /// The captures that they belong to, in the order of analysis. Absent if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captures: Option<Vec<Capture<'a>>>,
}

/// A capture: traces of one boot of one machine whose times overlap. What its files do not state is null.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Capture<'a> {
    /// The computer's name.
    pub computer_name: Option<&'a str>,
    /// When it was started.
    pub boot_time: Option<Time>,
    /// Build of Windows.
    pub build: Option<u32>,
    /// Processors.
    pub processors: Option<u32>,
    /// Bytes of a pointer.
    pub pointer_size: Option<u8>,
    /// When the first session started.
    pub start_time: Time,
    /// When the last one ended.
    pub end_time: Time,
    /// The files.
    pub files: Vec<&'a str>,
}
