//! Reads a trace, and writes its tables.
//!
//! The thread that reads collects numbers. The fields of events become text and columns are encoded
//! in a second thread, whose columns can be encoded in parallel by more threads.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};
use stackhound_detect::alert::{self, Alerts as AlertCollector};
use stackhound_detect::report::{Finding, SourceLocation};
use stackhound_detect::{Detector, Severity};
use stackhound_export::json::field_rows::FieldRow;
use stackhound_hunt::HuntSession;
use stackhound_pipeline::{EventView, Outcome, Pipeline};
use stackhound_symbols::temporary::Temporary;
use stackhound_trace::Capture;

use crate::Error;
use crate::dataset::Dataset;
use crate::part::{self, Part};
use crate::rows::Rows;
use crate::tables::{
    Alerts, EventChunk, Events, Findings, Losses, ProcessUids, Stacks, State, TableId, TraceRow, Traces,
    file_name,
};

/// How a trace is converted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of threads; the files do not depend on it.
    pub threads: usize,
    /// Which events are selected; empty for all. Part of the id of the trace.
    pub selection: String,
}

/// What was written.
#[derive(Debug)]
pub struct Converted {
    /// The counters of the run.
    pub outcome: Outcome,
    /// The rows and bytes of each table.
    pub tables: Vec<(&'static str, u64, u64)>,
    /// The detector, for the next trace.
    pub detector: Detector,
}

impl Converted {
    /// The rows of a table.
    pub fn rows(&self, table: &str) -> u64 {
        self.tables.iter().find(|(name, ..)| *name == table).map_or(0, |(_, rows, _)| *rows)
    }
}

/// Findings below this severity are not written, as in the formats of `hunt` that programs read.
const MIN_SEVERITY: Severity = Severity::Low;

/// Chunks of rows that wait for the second thread.
const CHUNKS: usize = 4;

/// Reads a trace, and writes the tables of the events that `choose` selects until it breaks, and of
/// the whole state of the trace. All events are read, because the history of memory matters for
/// findings.
///
/// # Errors
/// If a file cannot be written.
pub fn convert(
    capture: &Capture,
    pipeline: Pipeline<'_>,
    detector: Detector,
    mut choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
    dataset: &Dataset,
    options: &Options,
) -> Result<Converted, Error> {
    let trace = dataset.trace().0;
    let Detector { modules, binaries } = detector;
    let alerts = AlertCollector::new(modules.lists().alert_window());
    let mut pipeline = pipeline.with_modules(modules);
    let hunt = HuntSession::new(binaries, pipeline.clock());
    let mut collector = Collector {
        trace,
        events: Events::new(trace),
        stacks: Stacks::new(trace),
        processes: ProcessUids::new(trace, dataset.host()),
        findings: Findings::new(trace),
        hunt,
        alerts,
        number: 0,
        events_written: 0,
    };
    let writer = Writer::new(dataset, options.threads)?;
    let (outcome, tables) = thread::scope(|scope| {
        let mut output = Output::new(scope, writer, options.threads)?;
        let written = run(capture, &mut pipeline, &mut collector, &mut choose, &mut output, options);
        // The reason why the second thread ended is better than that it did.
        let writer = output.into_writer()?;
        Ok::<_, Error>((written?, writer.finish()?))
    })?;
    let detector = Detector { modules: pipeline.into_modules(), binaries: collector.hunt.into_binaries() };
    Ok(Converted { outcome, tables, detector })
}

/// Reads the trace, and passes on the rows of all tables.
fn run(
    capture: &Capture,
    pipeline: &mut Pipeline<'_>,
    collector: &mut Collector,
    choose: &mut impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
    output: &mut Output<'_>,
    options: &Options,
) -> Result<Outcome, Error> {
    let sources = 0..capture.trace.sources().len();
    let sources: Vec<String> = sources.map(|number| file_name(&capture.trace, number as u16)).collect();
    // Counted per file, as in `hunt`.
    let mut records = vec![0; sources.len()];
    let mut flushed = Ok(());
    let outcome = pipeline.run(|view| {
        collector.number += 1;
        let source = usize::from(view.event().source());
        records[source] += 1;
        collector.hunt.observe(view);
        if !choose(view)? {
            return ControlFlow::Continue(());
        }
        let location = || SourceLocation { file: sources[source].clone(), record: records[source] };
        collector.push(view, location);
        flushed = collector.flush(output, false);
        if flushed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    flushed?;
    finish(collector, pipeline, output)?;
    let trace = collector.trace;
    output.rows(TableId::Losses, Losses::rows(&capture.trace, &outcome, trace))?;
    let row = TraceRow {
        computer: capture.machine.computer_name.as_deref(),
        boot_time: capture.machine.boot_time,
        build: capture.machine.build,
        processors: capture.machine.processors,
        times: capture.times,
        files: sources.join("|"),
        bytes: outcome.trace.bytes,
        selection: &options.selection,
        read_events: collector.number,
        events: collector.events_written,
    };
    output.rows(TableId::Traces, Traces::rows(&row, trace))?;
    Ok(outcome)
}

/// Collects the rows of all tables while a trace is read.
struct Collector {
    trace: u64,
    events: Events,
    stacks: Stacks,
    processes: ProcessUids,
    findings: Findings,
    hunt: HuntSession,
    alerts: AlertCollector,
    /// The number of the last event.
    number: u64,
    events_written: u64,
}

impl Collector {
    /// Adds an event and its findings.
    fn push(&mut self, view: &EventView<'_>, location: impl FnOnce() -> SourceLocation) {
        let ids = self.events.push(view, self.number, &mut self.processes, &mut self.stacks);
        self.events_written += 1;
        if !HuntSession::can_evaluate(view) {
            return;
        }
        let evaluation = self.hunt.evaluate(view);
        let found = evaluation.findings().filter(|(_, outcome)| outcome.severity >= MIN_SEVERITY);
        let mut findings: Vec<Finding> = found.map(|(id, outcome)| Finding::new(id, *outcome)).collect();
        if findings.is_empty() {
            return;
        }
        let event_context = self.hunt.event_context(view, location());
        self.alerts.add(&event_context, &mut findings);
        self.findings.push(ids, &event_context, &findings);
    }

    /// Passes on the rows of tables that are full, or of all tables.
    fn flush(&mut self, output: &mut Output<'_>, all: bool) -> Result<(), Error> {
        if all || self.events.is_full() {
            let (chunk, texts) = self.events.take();
            output.send(Message::Events(Box::new(chunk), texts))?;
        }
        if all || self.stacks.is_full() {
            let (stacks, frames) = self.stacks.take();
            output.rows(TableId::Stacks, stacks)?;
            output.rows(TableId::Frames, frames)?;
        }
        if all || self.findings.is_full() {
            output.rows(TableId::Findings, self.findings.take())?;
        }
        Ok(())
    }
}

/// Passes on the last rows of a trace, and those of its state.
fn finish(
    collector: &mut Collector,
    pipeline: &mut Pipeline<'_>,
    output: &mut Output<'_>,
) -> Result<(), Error> {
    collector.flush(output, true)?;
    let trace = collector.trace;
    let symbols = collector.stacks.take_symbols();
    if let (_, _, Some(naming)) = pipeline.parts() {
        output.rows(TableId::Symbols, symbols.rows(naming.symbolizer(), HashMap::default()))?;
    }
    let state = State::of(pipeline, &mut collector.processes, trace);
    output.rows(TableId::Processes, state.processes)?;
    output.rows(TableId::Threads, state.threads)?;
    output.rows(TableId::Modules, state.modules)?;
    output.rows(TableId::Regions, state.regions)?;
    let mut alerts = std::mem::replace(&mut collector.alerts, AlertCollector::new(0)).finish();
    alert::sort(&mut alerts);
    output.rows(TableId::Alerts, Alerts::rows(&alerts, trace))
}

/// Rows on their way to files.
enum Message {
    Events(Box<EventChunk>, Vec<Arc<str>>),
    Rows(TableId, Rows),
}

/// Where rows are written.
enum Output<'scope> {
    /// In this thread.
    Writer(Box<Writer>),
    /// In the second thread.
    Thread(SyncSender<Message>, ScopedJoinHandle<'scope, Result<Writer, Error>>),
}

impl<'scope> Output<'scope> {
    fn new(scope: &'scope Scope<'scope, '_>, writer: Writer, threads: usize) -> Result<Self, Error> {
        if threads <= 1 {
            return Ok(Output::Writer(Box::new(writer)));
        }
        let (sender, receiver) = sync_channel(CHUNKS);
        let thread = thread::Builder::new().name("stackhound-columns".to_owned());
        let thread = thread.spawn_scoped(scope, || writer.run(receiver)).map_err(Error::Thread)?;
        Ok(Output::Thread(sender, thread))
    }

    fn send(&mut self, message: Message) -> Result<(), Error> {
        match self {
            Output::Writer(writer) => writer.write(message),
            // The second thread has ended; its result has the reason.
            Output::Thread(sender, _) => {
                sender.send(message).map_err(|_| Error::Thread(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    fn rows(&mut self, table: TableId, rows: Rows) -> Result<(), Error> {
        if rows.len() == 0 { Ok(()) } else { self.send(Message::Rows(table, rows)) }
    }

    /// Waits until all rows are written.
    fn into_writer(self) -> Result<Writer, Error> {
        match self {
            Output::Writer(writer) => Ok(*writer),
            Output::Thread(sender, thread) => {
                drop(sender);
                // A panic of the second thread continues here.
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            }
        }
    }
}

/// Writes the files of a trace.
struct Writer {
    parts: Vec<(Part<Temporary>, PathBuf)>,
    schemas: Vec<Arc<FieldRow>>,
    /// For more than two threads.
    pool: Option<ThreadPool>,
}

impl Writer {
    fn new(dataset: &Dataset, threads: usize) -> Result<Writer, Error> {
        let part = |table: TableId| {
            let path = dataset.path(table);
            Ok((part::create(table, &path)?, path))
        };
        let parts: Result<Vec<_>, Error> = TableId::ALL.into_iter().map(part).collect();
        let pool = || ThreadPoolBuilder::new().num_threads(threads - 1).build();
        let pool = (threads > 2).then(pool).transpose();
        let pool = pool.map_err(|error| Error::Thread(io::Error::other(error)))?;
        Ok(Writer { parts: parts?, schemas: Vec::new(), pool })
    }

    /// Writes all rows that arrive.
    fn run(mut self, receiver: Receiver<Message>) -> Result<Writer, Error> {
        receiver.into_iter().try_for_each(|message| self.write(message))?;
        Ok(self)
    }

    fn write(&mut self, message: Message) -> Result<(), Error> {
        let (table, rows) = match message {
            Message::Rows(table, rows) => (table, rows),
            Message::Events(chunk, texts) => {
                let EventChunk { mut rows, fields } = *chunk;
                let (part, path) = &mut self.parts[TableId::Events as usize];
                part.add_texts(&texts);
                fields
                    .append(&mut self.schemas, &mut rows)
                    .map_err(|error| Error::Io { path: path.clone(), error })?;
                (TableId::Events, rows)
            }
        };
        let (part, path) = &mut self.parts[table as usize];
        part.append(rows, self.pool.as_ref()).map_err(|error| Error::Parquet { path: path.clone(), error })
    }

    /// Completes the files. The last one makes the trace complete.
    fn finish(self) -> Result<Vec<(&'static str, u64, u64)>, Error> {
        let parts = self.parts.into_iter().zip(TableId::ALL);
        let written = parts.map(|((part, path), table)| {
            part::persist(part, &path).map(|(rows, bytes)| (table.name(), rows, bytes))
        });
        written.collect()
    }
}
