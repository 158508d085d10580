//! Reads and evaluates files with Sysmon events. The memory is bounded for files of any size.
//!
//! Files are read twice: [`Sysmon::learn`] collects the evidence about processes and files, and
//! [`Sysmon::hunt`] evaluates the other events. The order of the events then does not matter. Pipes
//! are read once, and [`Totals::late`] counts the evidence that arrived too late.

use std::fmt;
use std::io::{self, BufRead, Read, Seek};
use std::ops::ControlFlow;
use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};
use stackhound_detect::report::{EventContext, SourceLocation};
use stackhound_detect::{Detector, Evaluation};
use stackhound_frames::{Frame, Lists};

use crate::blocks::{self, BYTE_ORDER_MARK, Block, ParsedBlock};
use crate::cache::Evaluations;
use crate::case::{Cases, RowCase};
use crate::event_context::event_context;
use crate::known::Loaded;
use crate::processes::{CreatedFiles, Creation, ProcessStatement, ProcessTable, Started, is_executable};
use crate::row::{Action, Row, StatedImage};

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
    /// The number of frames of its stack.
    pub frames: usize,
    /// The answers of all detections.
    pub evaluation: &'a Evaluation,
    file: &'a str,
    record: u64,
    detector: &'a Detector,
    evidence: &'a Evidence,
}

impl Evaluated<'_> {
    /// The number of the line or record, from 1.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// Builds the event context for output. It allocates, so call it only for rows that are shown.
    pub fn event_context(&self) -> EventContext {
        let location = SourceLocation { file: self.file.to_owned(), record: self.record };
        event_context(location, self.row, &self.detector.modules, self.evidence)
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
    /// Events about processes and images whose facts were missing when earlier rows were evaluated.
    /// 0 if [`Sysmon::learn`] has read all files before.
    pub late: u64,
}

/// Evaluates files with Sysmon events. Facts about processes and files apply to all events that are
/// evaluated afterwards, in all files.
#[derive(Debug)]
pub struct Sysmon {
    evidence: Evidence,
    evaluations: Evaluations,
    /// The frames of the last stack.
    frames: Vec<Frame>,
    pool: Option<Arc<ThreadPool>>,
}

/// The facts of all events so far.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub cases: Cases,
    pub processes: ProcessTable,
    pub created: CreatedFiles,
}

impl Sysmon {
    /// Uses these lists. All files must be evaluated by the same detector.
    pub fn new(lists: &Lists) -> Sysmon {
        let evidence = Evidence {
            cases: Cases::new(lists),
            processes: ProcessTable::default(),
            created: CreatedFiles::default(),
        };
        Sysmon { evidence, evaluations: Evaluations::default(), frames: Vec::new(), pool: None }
    }

    /// Parses with this number of threads. The results do not depend on it.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Sysmon {
        // Without further threads, the calling thread parses.
        let pool = || ThreadPoolBuilder::new().num_threads(threads).build().ok();
        self.pool = (threads > 1).then(pool).flatten().map(Arc::new);
        self
    }

    /// Collects the evidence about processes and files in a file that is evaluated later: the first
    /// of two passes. Unreadable lines and records are skipped, because the second pass reports
    /// them.
    ///
    /// # Errors
    /// If the format is unknown, or the file cannot be read completely.
    pub fn learn(&mut self, mut input: impl BufRead + Seek) -> Result<(), Error> {
        match detect_format(input.fill_buf()?) {
            Some(Format::Json) => Ok(self.learn_blocks(blocks::lines(input))?),
            Some(Format::Evtx) => {
                let mut parser = blocks::records(input, self.threads()).map_err(evtx_error)?;
                Ok(self.learn_blocks(blocks::listed(&mut parser))?)
            }
            None => Err(Error::UnknownFormat),
        }
    }

    /// The same for JSON with one object per line from an input that cannot seek.
    ///
    /// # Errors
    /// If the input cannot be read completely.
    pub fn learn_json(&mut self, input: impl BufRead) -> Result<(), Error> {
        Ok(self.learn_blocks(blocks::lines(input))?)
    }

    fn learn_blocks(&mut self, source: impl FnMut() -> io::Result<Option<Block>>) -> io::Result<()> {
        let Sysmon { evidence, pool, .. } = self;
        blocks::for_each(pool.as_deref(), false, source, |block| {
            let texts = &block.texts;
            for fields in block.records.iter().filter_map(|record| record.fields.as_ref().ok()) {
                if let Ok(Some(row)) = Row::of(fields, texts) {
                    evidence.learn(&row);
                }
            }
            ControlFlow::Continue(())
        })
    }

    fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads())
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
        input: impl BufRead,
        name: &str,
        detector: &mut Detector,
        on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        let pool = self.pool.clone();
        Ok(self.hunt_blocks(pool.as_deref(), blocks::lines(input), name, detector, on)?.0)
    }

    /// The same for a pipe: each line is evaluated as soon as it arrives.
    ///
    /// # Errors
    /// If the input cannot be read completely.
    pub fn hunt_pipe(
        &mut self,
        input: impl BufRead,
        name: &str,
        detector: &mut Detector,
        on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        Ok(self.hunt_blocks(None, blocks::lines(input), name, detector, on)?.0)
    }

    fn hunt_evtx(
        &mut self,
        mut input: impl Read + Seek,
        name: &str,
        detector: &mut Detector,
        mut on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Error> {
        let damage = crate::chunks::damage(&mut input)?;
        let mut parser = blocks::records(input, self.threads()).map_err(evtx_error)?;
        let (pool, source) = (self.pool.clone(), blocks::listed(&mut parser));
        let (mut totals, flow) = self.hunt_blocks(pool.as_deref(), source, name, detector, &mut on)?;
        if flow.is_break() {
            return Ok(totals);
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

    fn hunt_blocks(
        &mut self,
        pool: Option<&ThreadPool>,
        source: impl FnMut() -> io::Result<Option<Block>>,
        name: &str,
        detector: &mut Detector,
        mut on: impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> io::Result<(Totals, ControlFlow<()>)> {
        let (mut totals, mut lines) = (Totals::default(), 0);
        let mut flow = ControlFlow::Continue(());
        let late = self.evidence.late();
        blocks::for_each(pool, true, source, |block| {
            let ParsedBlock { texts, records, lines: count } = block;
            flow = records.into_iter().try_for_each(|record| {
                totals.records += 1;
                let row = match &record.fields {
                    Ok(fields) => Row::of(fields, &texts).map_err(|error| error.to_string()),
                    Err(reason) => Err(reason.clone()),
                };
                self.record(row, (name, lines + record.number), detector, &mut totals, &mut on)
            });
            lines += count;
            flow
        })?;
        totals.late = self.evidence.late() - late;
        Ok((totals, flow))
    }

    /// Evaluates one line or record.
    fn record(
        &mut self,
        row: Result<Option<Row<'_>>, String>,
        (file, record): (&str, u64),
        detector: &mut Detector,
        totals: &mut Totals,
        on: &mut impl FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let unreadable =
            |reason| Unreadable { location: SourceLocation { file: file.to_owned(), record }, reason };
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
        let Sysmon { evidence, evaluations, frames, .. } = self;
        evidence.learn(&row);
        if !row.action.is_evaluated() {
            totals.context += 1;
            return ControlFlow::Continue(());
        }
        evidence.processes.mention(row.actor.guid);
        totals.evaluated += 1;
        totals.events = totals.events.saturating_add(row.count);
        if let Action::ProcessAccess { call_trace, .. } = row.action {
            totals.without_stack += u64::from(call_trace.is_empty());
        }
        let new;
        let (evaluation, damage, frames) = match evaluations.find(&row, evidence.cases.modules.generation()) {
            Some(known) => (evaluations.evaluation(known), known.damage, known.frames),
            None => {
                let Some(RowCase { case, damage, is_by_process }) =
                    evidence.cases.case(detector, &row, frames)
                else {
                    return ControlFlow::Continue(());
                };
                new = detector.evaluate(&case);
                let frames = case.stack.frames.len();
                if !is_by_process {
                    evaluations.keep(&new, damage, frames);
                }
                (&new, damage, frames)
            }
        };
        if let Some(damage) = damage {
            totals.damaged_stacks += 1;
            on(Found::Unreadable(&unreadable(damage.to_string())))?;
        }
        on(Found::Evaluated(Evaluated { row: &row, frames, evaluation, file, record, detector, evidence }))
    }
}

impl Evidence {
    /// The number of events whose facts earlier answers lacked.
    fn late(&self) -> u64 {
        self.cases.modules.late() + self.processes.late()
    }

    /// Adds the facts that an event states. Adding the same event again changes nothing.
    fn learn(&mut self, row: &Row<'_>) {
        let Row { host, time, actor, action, .. } = row;
        let mut process = |fact| self.processes.learn(host, actor, fact);
        let created = |sha256| {
            let creation = |time| Creation { time, pid: actor.pid, image: actor.image.into(), sha256 };
            time.map(creation)
        };
        match *action {
            Action::ImageLoad { path, sha256, stated } => {
                let process = actor.guid;
                self.cases.modules.learn(Loaded { host, process, path, sha256, stated, is_driver: false });
            }
            Action::DriverLoad { path, sha256, signer } => {
                let (process, stated) = ("", StatedImage::signed_by(signer));
                self.cases.modules.learn(Loaded { host, process, path, sha256, stated, is_driver: true });
            }
            Action::ProcessCreate { command_line, parent_pid, user, integrity } => {
                process(ProcessStatement::Started(Started {
                    time: *time,
                    command_line: command_line.into(),
                    parent_pid,
                    user: user.into(),
                    integrity: integrity.into(),
                }));
            }
            Action::ProcessTerminate => process(ProcessStatement::Ended(*time)),
            Action::ProcessTampering { kind } => process(ProcessStatement::Tampered(*time, kind.into())),
            Action::FileCreate { path } if is_executable(path) => {
                created(None).into_iter().for_each(|creation| self.created.learn(host, path, creation));
            }
            Action::FileExecutableDetected { path, sha256 } => {
                created(sha256).into_iter().for_each(|creation| self.created.learn(host, path, creation));
            }
            Action::FileCreate { .. } | Action::ProcessAccess { .. } | Action::RemoteThread { .. } => {}
        }
    }
}

pub(crate) fn evtx_error(error: evtx::err::EvtxError) -> Error {
    Error::Evtx(error.to_string())
}

/// An error with its causes in one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
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

#[cfg(test)]
mod tests;
