//! Reads a trace, and writes its tables.
//!
//! The thread that reads collects numbers. The fields of events become text and columns are encoded
//! in a second thread, whose columns can be encoded in parallel by more threads.

use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};
use stackhound_detect::tuning::TuningReport;
use stackhound_export::json::field_rows::FieldRow;
use stackhound_hunt::Hunt;
use stackhound_pipeline::{EventView, Outcome, Pipeline};
use stackhound_symbols::temporary::Temporary;
use stackhound_trace::Capture;

use crate::Error;
use crate::collect::{About, Collected, Message, Wanted, collect};
use crate::dataset::Dataset;
use crate::part::{self, Part};
use crate::tables::{EventChunk, TableId};

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
    /// The findings that were suppressed; `None` if the policy suppresses none.
    pub tuning: Option<TuningReport>,
    /// The hunt, for the next trace.
    pub hunt: Hunt,
}

impl Converted {
    /// The rows of a table.
    pub fn rows(&self, table: &str) -> u64 {
        self.tables.iter().find(|(name, ..)| *name == table).map_or(0, |(_, rows, _)| *rows)
    }
}

/// Chunks of rows that wait for the second thread.
const CHUNKS: usize = 4;

/// Reads a trace, and writes the tables of the events that `choose` selects until it breaks, and of
/// the whole state of the trace, and the findings of `hunt`. All events are read, because the history
/// of memory matters for findings.
///
/// # Errors
/// If a file cannot be written.
pub fn convert(
    capture: &Capture,
    pipeline: Pipeline<'_>,
    hunt: Hunt,
    choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
    dataset: &Dataset,
    options: &Options,
) -> Result<Converted, Error> {
    let about =
        About { capture, trace: dataset.trace(), host: dataset.host(), selection: &options.selection };
    let writer = Writer::new(dataset, options.threads)?;
    let (collected, tables) = thread::scope(|scope| {
        let mut output = Output::new(scope, writer, options.threads)?;
        let send = |message| output.send(message);
        let collected = collect(about, pipeline, hunt, Wanted::ALL, choose, send);
        // The reason why the second thread ended is better than that it did.
        let writer = output.into_writer()?;
        Ok::<_, Error>((collected?, writer.finish()?))
    })?;
    let Collected { outcome, tuning, hunt } = collected;
    Ok(Converted { outcome, tables, tuning, hunt })
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
