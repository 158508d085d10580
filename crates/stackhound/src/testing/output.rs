//! Events on their way to a file or to a trace.

use std::io::{Cursor, Seek, Write};

use stackhound_detect::{Binaries, Evaluation};
use stackhound_etl::write::{EtlWriter, Session, Totals};
use stackhound_etl::{EtlFile, LogfileHeader};
use stackhound_hunt::HuntSession;
use stackhound_live::{Incoming, Overflow, Queue, channel};
use stackhound_pipeline::Predicate;

use super::Error;
use super::event::{OwnedEvent, SESSION};
use crate::consumer::{Trace, TraceStats};

/// Writes events to a recording, in the order of their times. It states the session of the first of them.
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

/// Without a number of its own for a session that had one stream.
fn processor(event: &OwnedEvent) -> u16 {
    event.event().processor().unwrap_or(0)
}

fn session(header: &LogfileHeader, processors: u16) -> Session {
    Session { processors, ..Session::of(header) }
}

/// Events as a session hands them over, all at once and then nothing more: for [`Trace::blocks`](crate::Trace::blocks),
/// which hands them to handlers in the order of their times. All of them are held in memory.
///
/// # Errors
/// As [`write_etl`].
pub fn incoming(events: impl IntoIterator<Item = OwnedEvent>) -> Result<Incoming, Error> {
    let (file, _) = write_etl(Cursor::new(Vec::new()), events)?;
    let etl_file = EtlFile::open(file.into_inner().into())?;
    let index = etl_file.index();
    // The first buffer only states the session.
    let buffers = index.buffers.get(1..).unwrap_or_default();
    let queue = Queue { blocks: buffers.len().max(1), ..Queue::new(Overflow::Block) };
    let (mut capture, incoming) = channel(etl_file.session().clone(), queue);
    for buffer in buffers {
        let start = buffer.offset as usize;
        let bytes = &etl_file.bytes()[start..start + buffer.size as usize];
        // The reader exists, so there is nothing that could break.
        let _ = capture.raw_buffer(bytes);
    }
    Ok(incoming)
}

/// Runs events through a trace as it is configured, in place of its session or recordings. Nothing is started or opened.
///
/// # Errors
/// As [`incoming`] and [`Trace::run`].
pub fn replay(trace: Trace, events: impl IntoIterator<Item = OwnedEvent>) -> Result<TraceStats, Error> {
    Ok(trace.taking(incoming(events)?).run(|_| ())?)
}

/// The events that a filter selects, in the order of their times. Fields are known of events whose schema is built in or part of
/// the event; for others, use [`incoming`] with [`Trace::schemas`](crate::Trace::schemas).
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

/// Evaluates all detections, without image files, for each event that has a stack or facts that detections use without one.
/// The result has one entry for each of these events, in the order of their times.
///
/// # Errors
/// As [`incoming`] and [`Trace::run`].
pub fn evaluate(events: impl IntoIterator<Item = OwnedEvent>) -> Result<Vec<Evaluation>, Error> {
    let (mut hunt_session, mut evaluated) = (None, Vec::new());
    Trace::blocks(incoming(events)?).run(|event| {
        let clock = || event.event().block().session().clock();
        let hunt_session = hunt_session.get_or_insert_with(|| HuntSession::new(Binaries::none(), clock()));
        if HuntSession::can_evaluate(event) {
            evaluated.push(*hunt_session.evaluate(event));
        }
    })?;
    Ok(evaluated)
}
