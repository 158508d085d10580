//! Reads and evaluates files with Sysmon events, row by row. The memory is bounded for files of any
//! size.

use std::fmt;
use std::io::{self, BufRead, Read, Seek};
use std::ops::ControlFlow;

use evtx::{EvtxParser, ParserSettings};
use stackhound_detect::report::{EventContext, SourceLocation};
use stackhound_detect::{Case, Detector, Evaluation};
use stackhound_frames::Lists;

use crate::case::Cases;
use crate::event_context::event_context;
use crate::json::Fields;
use crate::known::{ProcessTable, Started};
use crate::row::{Action, Row};

/// The limit of the length of a line, in bytes.
const LINE_MAX: u64 = 4 << 20;

/// A file format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A Windows event log, `.evtx`.
    Evtx,
    /// JSON, one object on each line.
    Json,
}

/// Recognizes the format of a file by its first bytes, of which 64 are enough. `None` if it is
/// neither format.
pub fn detect_format(start: &[u8]) -> Option<Format> {
    if start.starts_with(b"ElfFile\0") {
        return Some(Format::Evtx);
    }
    let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
    start.starts_with(b"{").then_some(Format::Json)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The error about a file that cannot be read, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed.
    #[error("the file cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The format is unknown.
    #[error("expected an event log (.evtx) or JSON with one object per line")]
    UnknownFormat,
    /// The header of the event log is invalid.
    #[error("the event log cannot be read: {0}")]
    Evtx(String),
}

/// A line, record or stack that could not be read completely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// The location of the line or record.
    pub location: SourceLocation,
    /// The reason, for people.
    pub reason: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.location.file, self.location.record, self.reason)
    }
}

/// An evaluated row.
#[derive(Clone, Copy, Debug)]
pub struct Evaluated<'a> {
    /// The row.
    pub row: &'a Row<'a>,
    /// The evaluated case.
    pub case: &'a Case<'a>,
    /// The answers of all detections.
    pub evaluation: &'a Evaluation,
    file: &'a str,
    record: u64,
    detector: &'a Detector,
    processes: &'a ProcessTable,
}

impl Evaluated<'_> {
    /// The number of the line or record, from 1.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// Builds the event context for output. It allocates, so call it only for rows that are shown.
    pub fn event_context(&self) -> EventContext {
        let location = SourceLocation { file: self.file.to_owned(), record: self.record };
        event_context(location, self.row, self.case, &self.detector.modules, self.processes)
    }
}

/// An item of a file.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A row that was evaluated.
    Evaluated(Evaluated<'a>),
    /// A line, record or stack that could not be read completely.
    Unreadable(&'a Unreadable),
}

/// The counts of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Lines or records.
    pub records: u64,
    /// Rows that were evaluated.
    pub evaluated: u64,
    /// Events in these rows.
    pub events: u64,
    /// Evaluated accesses without a stack. Thread starts never have one.
    pub without_stack: u64,
    /// Evaluated stacks of which a part could not be read.
    pub damaged_stacks: u64,
    /// Events about processes and images.
    pub context: u64,
    /// Events of other kinds or other providers.
    pub other: u64,
    /// Lines and records that could not be read.
    pub unreadable: u64,
    /// Missing or changed parts of an event log.
    pub damaged_parts: u64,
}

/// Evaluates files with Sysmon events. Facts about processes and images apply to all later events,
/// including those in later files.
#[derive(Debug)]
pub struct Sysmon {
    fields: Fields,
    known: SysmonState,
}

#[derive(Debug)]
struct SysmonState {
    cases: Cases,
    processes: ProcessTable,
}

impl Sysmon {
    /// Uses these lists. All files must be evaluated by the same detector.
    pub fn new(lists: &Lists) -> Sysmon {
        let known = SysmonState { cases: Cases::new(lists), processes: ProcessTable::default() };
        Sysmon { fields: Fields::default(), known }
    }

    /// Evaluates all rows of a file, whose format is recognized by its content. `name` is the name
    /// of the file in findings. Calls `on` for each item in the order of the file, until it breaks.
    ///
    /// # Errors
    /// If the format is unknown, or the file cannot be read completely. Unreadable lines and
    /// records are not errors: they are passed to `on` and counted.
    pub fn hunt(
        &mut self,
        mut input: impl BufRead + Seek,
        name: &str,
        detector: &mut Detector,
        on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        match detect_format(input.fill_buf()?) {
            Some(Format::Evtx) => self.hunt_evtx(input, name, detector, on),
            Some(Format::Json) => self.hunt_json(input, name, detector, on),
            None => Err(Error::UnknownFormat),
        }
    }

    /// Evaluates JSON with one object per line from an input that cannot seek.
    ///
    /// # Errors
    /// If the input cannot be read completely.
    pub fn hunt_json(
        &mut self,
        mut input: impl BufRead,
        name: &str,
        detector: &mut Detector,
        mut on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        let mut totals = Totals::default();
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            let is_whole = match next_line(&mut input, &mut line)? {
                Line::End => return Ok(totals),
                Line::Whole => true,
                Line::TooLong => false,
            };
            number += 1;
            let mut text = line.trim_ascii();
            if number == 1 {
                text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
            }
            if text.is_empty() {
                continue;
            }
            let text = match is_whole {
                true => Ok(text),
                false => Err(format!("expected a line of at most {LINE_MAX} bytes, found a longer one")),
            };
            if self.record(text, (name, number), detector, &mut totals, &mut on).is_break() {
                return Ok(totals);
            }
        }
    }

    fn hunt_evtx(
        &mut self,
        mut input: impl Read + Seek,
        name: &str,
        detector: &mut Detector,
        mut on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        let damage = crate::chunks::damage(&mut input)?;
        let parser = EvtxParser::from_read_seek(input).map_err(|error| Error::Evtx(error.to_string()))?;
        let mut parser = parser.with_configuration(ParserSettings::default());
        let mut totals = Totals::default();
        for (number, record) in (1..).zip(parser.records_json_bytes()) {
            let record = match &record {
                Ok(record) => Ok(&record.data[..]),
                Err(error) => Err(one_line(error)),
            };
            if self.record(record, (name, number), detector, &mut totals, &mut on).is_break() {
                return Ok(totals);
            }
        }
        for reason in damage {
            totals.damaged_parts += 1;
            let location = SourceLocation { file: name.to_owned(), record: totals.records };
            if on(Found::Unreadable(&Unreadable { location, reason })).is_break() {
                break;
            }
        }
        Ok(totals)
    }

    /// Evaluates one line or record.
    fn record(
        &mut self,
        json: Result<&[u8], String>,
        (file, record): (&str, u64),
        detector: &mut Detector,
        totals: &mut Totals,
        on: &mut impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        totals.records += 1;
        let unreadable =
            |reason| Unreadable { location: SourceLocation { file: file.to_owned(), record }, reason };
        let fields = &mut self.fields;
        let row = json
            .and_then(|json| {
                fields.read(json).map_err(|error| format!("expected one JSON object per line: {error}"))
            })
            .and_then(|()| Row::of(fields).map_err(|error| error.to_string()));
        let row = match row {
            Ok(Some(row)) => row,
            Ok(None) => {
                totals.other += 1;
                return ControlFlow::Continue(());
            }
            Err(reason) => {
                totals.unreadable += 1;
                return on(Found::Unreadable(&unreadable(reason)));
            }
        };
        let SysmonState { cases, processes } = &mut self.known;
        match row.action {
            Action::ImageLoad { path, sha256, signer, stated } => {
                cases.modules.learn(detector, (row.host, path), sha256, signer, &stated);
            }
            Action::ProcessCreate { command_line, parent_pid } => {
                let started = Started { command_line: command_line.into(), parent_pid, time: row.time };
                processes.learn(row.actor.guid, started);
            }
            Action::ProcessAccess { .. } | Action::RemoteThread { .. } => {}
        }
        let Some((case, damage)) = cases.case(detector, &row) else {
            totals.context += 1;
            return ControlFlow::Continue(());
        };
        totals.evaluated += 1;
        totals.events = totals.events.saturating_add(row.count);
        if let Action::ProcessAccess { call_trace, .. } = row.action {
            totals.without_stack += u64::from(call_trace.is_empty());
        }
        if let Some(damage) = damage {
            totals.damaged_stacks += 1;
            on(Found::Unreadable(&unreadable(damage.to_string())))?;
        }
        let evaluation = detector.evaluate(&case);
        let evaluated =
            Evaluated { row: &row, case: &case, evaluation: &evaluation, file, record, detector, processes };
        on(Found::Evaluated(evaluated))
    }
}

/// An error with its causes in one line.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

enum Line {
    End,
    Whole,
    /// Only the start of the line was kept.
    TooLong,
}

fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    if input.by_ref().take(LINE_MAX + 1).read_until(b'\n', line)? == 0 {
        return Ok(Line::End);
    }
    if line.ends_with(b"\n") || line.len() as u64 <= LINE_MAX {
        return Ok(Line::Whole);
    }
    let mut rest = Vec::new();
    loop {
        rest.clear();
        if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut rest)? == 0 || rest.ends_with(b"\n") {
            return Ok(Line::TooLong);
        }
    }
}

#[cfg(test)]
mod tests;
