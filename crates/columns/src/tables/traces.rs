//! Traces.

use stackhound_trace::Capture;

use super::{Pending, TableId};
use crate::rows::Rows;

columns! {
    pub(super) Columns {
        /// Version of the tables.
        version: number required UInt32,
        /// Version of the program that wrote them.
        program: text required,
        /// Name of the computer.
        computer: text optional,
        /// Boot time.
        boot_time: number optional Time,
        /// Build number of Windows.
        build: number optional UInt32,
        /// Number of processors.
        processors: number optional UInt32,
        /// Start of the trace.
        start_time: number optional Time,
        /// Time of its last event.
        end_time: number optional Time,
        /// Names of its files, separated by `|`.
        files: text required,
        /// Size of its files in bytes.
        bytes: number required UInt64,
        /// Which events were selected; empty for all.
        selection: text required,
        /// Number of events that were read.
        read_events: number required UInt64,
        /// Number of rows of `events`.
        events: number required UInt64,
    }
}

/// The facts about a trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceRow<'a> {
    pub capture: &'a Capture,
    pub files: String,
    pub bytes: u64,
    pub selection: &'a str,
    pub read_events: u64,
    pub events: u64,
}

/// The rows of traces.
#[derive(Debug)]
pub(crate) struct Traces;

impl Traces {
    pub fn rows(of: &TraceRow<'_>, trace: u64) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(TableId::Traces, Columns::of, trace);
        rows.begin();
        rows.number(c.version, super::VERSION);
        rows.text(c.program, env!("CARGO_PKG_VERSION"));
        let Capture { machine, times, .. } = of.capture;
        machine.computer_name.iter().for_each(|name| rows.text(c.computer, name));
        machine.boot_time.iter().for_each(|&time| rows.time(c.boot_time, time));
        machine.build.iter().for_each(|&build| rows.number(c.build, build));
        machine.processors.iter().for_each(|&processors| rows.number(c.processors, processors));
        rows.time(c.start_time, times.0);
        rows.time(c.end_time, times.1);
        rows.text(c.files, &of.files);
        rows.number(c.bytes, of.bytes);
        rows.text(c.selection, of.selection);
        rows.number(c.read_events, of.read_events);
        rows.number(c.events, of.events);
        rows
    }
}
