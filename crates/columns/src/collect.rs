//! Reads a trace, and passes on rows of the tables that are wanted.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use stackhound_detect::tuning::TuningReport;
use stackhound_hunt::{EventFindings, Hunt, HuntReport, TraceHunt};
use stackhound_pipeline::{EventView, Outcome, Pipeline};
use stackhound_trace::Capture;

use crate::dataset::TraceId;
use crate::rows::Rows;
use crate::tables::{
    Alerts, EventChunk, EventParts, Events, Findings, Losses, ProcessUids, Stacks, TableId, TraceRow, Traces,
    file_name, state_rows,
};

/// Rows on their way to a file or a reader.
pub(crate) enum Message {
    /// Events, whose fields are not yet text, and the texts that were not in an earlier message.
    Events(Box<EventChunk>, Vec<Arc<str>>),
    Rows(TableId, Rows),
}

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub events: Option<EventParts>,
    pub stacks: bool,
    pub symbols: bool,
    pub state: bool,
    pub findings: bool,
}

impl Wanted {
    pub const ALL: Wanted =
        Wanted { events: Some(EventParts::ALL), stacks: true, symbols: true, state: true, findings: true };
}

#[cfg(feature = "arrow")]
impl Wanted {
    /// What the rows of a table need, of which some columns are read.
    pub fn of(table: TableId, columns: &[usize]) -> Wanted {
        let none = Wanted { events: None, stacks: false, symbols: false, state: false, findings: false };
        match table {
            TableId::Events => Wanted { events: Some(EventParts::of(columns)), ..none },
            TableId::Stacks | TableId::Frames => Wanted { stacks: true, ..none },
            TableId::Symbols => Wanted { stacks: true, symbols: true, ..none },
            TableId::Modules | TableId::Processes | TableId::Threads | TableId::Regions => {
                Wanted { state: true, ..none }
            }
            TableId::Findings | TableId::Alerts => Wanted { findings: true, ..none },
            TableId::Losses | TableId::Traces => none,
        }
    }

    /// Whether names of functions are needed. System calls are named by their routines.
    pub fn has_names(self) -> bool {
        self.findings || self.symbols || self.events.is_some_and(|parts| parts.facts)
    }
}

/// The trace of all rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    pub capture: &'a Capture,
    pub trace: TraceId,
    pub host: &'a str,
    /// Which events are selected; empty for all.
    pub selection: &'a str,
}

/// The result of reading a trace.
pub(crate) struct Collected {
    pub outcome: Outcome,
    /// The findings that were suppressed.
    pub tuning: Option<TuningReport>,
    /// The hunt, for the next trace.
    pub hunt: Hunt,
}

/// Reads a trace, and passes on the rows of the tables that are wanted: of the events that `choose`
/// selects until it breaks, and of the whole state of the trace.
///
/// # Errors
/// Those of `send`.
pub(crate) fn collect<E>(
    about: About<'_>,
    pipeline: Pipeline<'_>,
    hunt: Hunt,
    wanted: Wanted,
    mut choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
    mut send: impl FnMut(Message) -> Result<(), E>,
) -> Result<Collected, E> {
    let (capture, trace) = (about.capture, about.trace.0);
    let sources = 0..capture.trace.sources().len();
    let sources: Vec<String> = sources.map(|number| file_name(&capture.trace, number as u16)).collect();
    let files = sources.join("|");
    let (mut pipeline, trace_hunt) = hunt.start(pipeline, sources);
    let mut collector = Collector {
        wanted,
        trace,
        events: Events::new(trace, wanted.events.unwrap_or(EventParts::ALL)),
        stacks: Stacks::new(trace),
        processes: ProcessUids::new(trace, about.host),
        findings: Findings::of(trace),
        hunt: trace_hunt,
        number: 0,
        chosen: 0,
    };
    let mut sent = Ok(());
    let outcome = pipeline.run(|view| {
        collector.number += 1;
        if !choose(view)? {
            collector.skip(view);
            return ControlFlow::Continue(());
        }
        collector.push(view);
        sent = collector.flush(&mut send, false);
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    sent?;
    collector.finish(&mut pipeline, &mut send)?;
    let Collector { hunt, number, chosen, .. } = collector;
    let mut hunt = hunt.finish(pipeline);
    let HuntReport { alerts, tuning, .. } = hunt.take_report();
    let mut rows = |table, rows| send_rows(&mut send, table, rows);
    rows(TableId::Alerts, Alerts::rows(&alerts, trace))?;
    rows(TableId::Losses, Losses::rows(&capture.trace, &outcome, trace))?;
    let row = TraceRow {
        capture,
        files,
        bytes: outcome.trace.bytes,
        selection: about.selection,
        read_events: number,
        events: chosen,
    };
    rows(TableId::Traces, Traces::rows(&row, trace))?;
    Ok(Collected { outcome, tuning, hunt })
}

fn send_rows<E>(
    send: &mut impl FnMut(Message) -> Result<(), E>,
    table: TableId,
    rows: Rows,
) -> Result<(), E> {
    if rows.len() == 0 { Ok(()) } else { send(Message::Rows(table, rows)) }
}

/// Collects rows while a trace is read.
struct Collector {
    wanted: Wanted,
    trace: u64,
    events: Events,
    stacks: Stacks,
    processes: ProcessUids,
    findings: Findings,
    hunt: TraceHunt,
    /// The number of the last event.
    number: u64,
    chosen: u64,
}

impl Collector {
    /// Takes an event that is not selected.
    fn skip(&mut self, view: &EventView<'_>) {
        if self.wanted.findings {
            self.hunt.event(view, false);
        }
    }

    /// Adds an event, its stack and its findings.
    fn push(&mut self, view: &EventView<'_>) {
        self.chosen += 1;
        let Collector { wanted, events, processes, stacks, number, .. } = self;
        let ids = wanted.events.map(|_| events.push(view, *number, processes, stacks));
        if ids.is_none() && wanted.stacks {
            stacks.of(view);
        }
        if wanted.findings
            && let Some(EventFindings { context, findings }) = self.hunt.event(view, true)
        {
            let ids = ids.unwrap_or_else(|| events.ids(view, *number, processes, stacks));
            self.findings.push(ids, &context, &findings);
        }
    }

    /// Passes on the rows of tables that are full, or of all tables.
    fn flush<E>(&mut self, send: &mut impl FnMut(Message) -> Result<(), E>, all: bool) -> Result<(), E> {
        if self.wanted.events.is_some() && (all || self.events.is_full()) {
            let (chunk, texts) = self.events.take();
            send(Message::Events(Box::new(chunk), texts))?;
        }
        if all || self.stacks.is_full() {
            let (stacks, frames) = self.stacks.take();
            send_rows(send, TableId::Stacks, stacks)?;
            send_rows(send, TableId::Frames, frames)?;
        }
        if all || self.findings.is_full() {
            send_rows(send, TableId::Findings, self.findings.take())?;
        }
        Ok(())
    }

    /// Passes on the last rows of events, and those of the state.
    fn finish<E>(
        &mut self,
        pipeline: &mut Pipeline<'_>,
        send: &mut impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush(send, true)?;
        if self.wanted.symbols
            && let (_, _, Some(naming)) = pipeline.parts()
        {
            let symbols = self.stacks.take_symbols().rows(naming.symbolizer(), HashMap::default());
            send_rows(send, TableId::Symbols, symbols)?;
        }
        if self.wanted.state {
            for (table, rows) in state_rows(pipeline, &mut self.processes, self.trace) {
                send_rows(send, table, rows)?;
            }
        }
        Ok(())
    }
}
