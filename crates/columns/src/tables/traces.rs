//! Traces.

use stackhound_types::FileTime;

use super::{Pending, TableId};
use crate::layout::{Column, NumberColumn, Table, TextColumn, Type};
use crate::rows::Rows;

#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    version: NumberColumn,
    program: TextColumn,
    computer: TextColumn,
    boot_time: NumberColumn,
    build: NumberColumn,
    processors: NumberColumn,
    start_time: NumberColumn,
    end_time: NumberColumn,
    files: TextColumn,
    bytes: NumberColumn,
    selection: TextColumn,
    read_events: NumberColumn,
    events: NumberColumn,
}

pub(super) fn table() -> (Table, Columns) {
    let mut t = Table::new(
        TableId::Traces.name(),
        "A trace. Its row exists if and only if all its other files are complete.",
    );
    let optional = |name, r#type, doc| Column::optional(name, r#type, doc);
    let required = |name, r#type, doc| Column::required(name, r#type, doc);
    let columns = Columns {
        version: t.number(required("version", Type::UInt32, "Version of the tables.")),
        program: t.text(required("program", Type::Text, "Version of the program that wrote them.")),
        computer: t.text(optional("computer", Type::Text, "Name of the computer.")),
        boot_time: t.number(optional("boot_time", Type::Time, "Boot time.")),
        build: t.number(optional("build", Type::UInt32, "Build number of Windows.")),
        processors: t.number(optional("processors", Type::UInt32, "Number of processors.")),
        start_time: t.number(optional("start_time", Type::Time, "Start of the trace.")),
        end_time: t.number(optional("end_time", Type::Time, "Time of its last event.")),
        files: t.text(required("files", Type::Text, "Names of its files, separated by `|`.")),
        bytes: t.number(required("bytes", Type::UInt64, "Size of its files in bytes.")),
        selection: t.text(required("selection", Type::Text, "Which events were selected; empty for all.")),
        read_events: t.number(required("read_events", Type::UInt64, "Number of events that were read.")),
        events: t.number(required("events", Type::UInt64, "Number of rows of `events`.")),
    };
    (t, columns)
}

/// The facts about a trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceRow<'a> {
    pub computer: Option<&'a str>,
    pub boot_time: Option<FileTime>,
    pub build: Option<u32>,
    pub processors: Option<u32>,
    pub times: (FileTime, FileTime),
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
        let Pending { mut rows, columns: c, .. } = Pending::new(table(), trace);
        rows.begin();
        rows.number(c.version, super::VERSION);
        rows.text(c.program, env!("CARGO_PKG_VERSION"));
        of.computer.iter().for_each(|name| rows.text(c.computer, name));
        of.boot_time.iter().for_each(|&time| rows.time(c.boot_time, time));
        of.build.iter().for_each(|&build| rows.number(c.build, build));
        of.processors.iter().for_each(|&processors| rows.number(c.processors, processors));
        rows.time(c.start_time, of.times.0);
        rows.time(c.end_time, of.times.1);
        rows.text(c.files, &of.files);
        rows.number(c.bytes, of.bytes);
        rows.text(c.selection, of.selection);
        rows.number(c.read_events, of.read_events);
        rows.number(c.events, of.events);
        rows
    }
}
