//! Writes, replays, selects and evaluates generated events.

use std::io::{Cursor, Seek, Write};
use std::ops::ControlFlow;

use stackhound_detect::{Binaries, Evaluation};
use stackhound_etl::write::{EtlWriter, Session, Totals};
use stackhound_etl::{EtlFile, LogfileHeader};
use stackhound_hunt::{FindingSelection, Hunt, Policy};
use stackhound_live::{Incoming, Overflow, Queue, channel};
use stackhound_pipeline::{Passes, Pipeline, Predicate};
use stackhound_trace::{OpenTrace, Source};

use super::Error;
use super::event::{OwnedEvent, SESSION};
use crate::consumer::{Trace, TraceStats};

/// Writes events to a trace, in time order. The trace has the session of the first event.
///
/// # Errors
/// [`Error::Clocks`], [`Error::Write`].
pub fn write_etl<W: Write + Seek>(
    output: W,
    events: impl IntoIterator<Item = OwnedEvent>,
) -> Result<(W, Totals), Error> {
    let mut events: Vec<OwnedEvent> = events.into_iter().collect();
    events.sort_by_key(|event| event.event().raw_time());
    let first = events.first().map(|event| event.event().block().session().clone());
    let header = first.unwrap_or_else(|| SESSION.clone());
    let processors = events.iter().map(processor).max().unwrap_or(0) + 1;
    let mut writer = EtlWriter::new(session(&header, processors), output)?;
    for event in &events {
        let clock = event.event().block().session().clock();
        if clock != header.clock() {
            return Err(Error::Clocks);
        }
        writer.copy(processor(event), &event.event().record())?;
    }
    Ok(writer.finish()?)
}

/// Uses processor 0 for a session with a single stream.
fn processor(event: &OwnedEvent) -> u16 {
    event.event().processor().unwrap_or(0)
}

fn session(header: &LogfileHeader, processors: u16) -> Session {
    Session { processors, ..Session::of(header) }
}

/// Provides events as a session delivers them, all at once and then the end, for
/// [`Trace::blocks`](crate::Trace::blocks), which passes them to handlers in time order. All events
/// are held in memory.
///
/// # Errors
/// As [`write_etl`], and [`Error::Open`].
pub fn incoming(events: impl IntoIterator<Item = OwnedEvent>) -> Result<Incoming, Error> {
    let (file, _) = write_etl(Cursor::new(Vec::new()), events)?;
    let etl_file = EtlFile::open(file.into_inner().into())?;
    let index = etl_file.index();
    // The first buffer contains only the session.
    let buffers = index.buffers.get(1..).unwrap_or_default();
    let queue = Queue { blocks: buffers.len().max(1), ..Queue::new(Overflow::Block) };
    let (mut capture, incoming) = channel(etl_file.session().clone(), queue);
    for buffer in buffers {
        let start = buffer.offset as usize;
        let bytes = &etl_file.bytes()[start..start + buffer.size as usize];
        // The receiver exists, so that the capture cannot break.
        let _ = capture.raw_buffer(bytes);
    }
    Ok(incoming)
}

/// Runs events through a configured trace, in place of its session or trace files. Nothing is
/// started or opened.
///
/// # Errors
/// As [`incoming`] and [`Trace::run`].
pub fn replay(trace: Trace, events: impl IntoIterator<Item = OwnedEvent>) -> Result<TraceStats, Error> {
    Ok(trace.taking(incoming(events)?).run(|_| ())?)
}

/// The events that a filter selects, in time order. Fields are known only for events whose schema
/// is built in or part of the event; for others, use [`incoming`] with
/// [`Trace::schemas`](crate::Trace::schemas).
///
/// # Errors
/// As [`incoming`] and [`Trace::run`].
pub fn select(
    filter: &Predicate,
    events: impl IntoIterator<Item = OwnedEvent>,
) -> Result<Vec<OwnedEvent>, Error> {
    let mut selected = Vec::new();
    Trace::blocks(incoming(events)?).run(|event| {
        if filter.matches(event) {
            selected.push(OwnedEvent::of(event.event()));
        }
    })?;
    Ok(selected)
}

/// Evaluates all detections, without image files, for each event that has a stack, or facts that
/// detections use without one. The result has one entry for each of these events, in time order.
///
/// # Errors
/// As [`write_etl`], and [`Error::Open`].
pub fn evaluate(events: impl IntoIterator<Item = OwnedEvent>) -> Result<Vec<Evaluation>, Error> {
    let (file, _) = write_etl(Cursor::new(Vec::new()), events)?;
    let source = Source::new("", EtlFile::open(file.into_inner().into())?);
    let trace = OpenTrace::new(vec![source], 1).map_err(crate::Error::from)?;
    let hunt = Hunt::new(Policy::default(), Binaries::none(), FindingSelection::default());
    let (mut pipeline, mut trace_hunt) = hunt.start(Pipeline::new(&trace, Passes::One), Vec::new());
    let mut evaluated = Vec::new();
    pipeline.run(|view| {
        evaluated.extend(trace_hunt.evaluate(view).copied());
        ControlFlow::Continue(())
    });
    Ok(evaluated)
}
