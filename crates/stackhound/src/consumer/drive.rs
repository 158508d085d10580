//! Opens a trace and passes its events to the handlers.

use std::any::Any;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stackhound_live::{LiveMerger, LiveSession, ProviderSettings};
use stackhound_pipeline::{Counted, Enrichment, EventView, Outcome, Passes, Pipeline};
use stackhound_schema::SchemaStore;
use stackhound_stacks::Window;
use stackhound_trace::OpenTrace;

use crate::consumer::dispatch::Dispatch;
use crate::consumer::error::Error;
use crate::consumer::running::{Running, Shared, TraceStats};
use crate::consumer::{Input, LiveInput, Trace, handler};

/// Interval at which counters are published.
const PUBLISH: Duration = Duration::from_millis(50);

/// Interval at which the counters of sessions are queried.
const POLL: Duration = Duration::from_secs(1);

/// A trace whose sources are open.
pub(crate) struct Opened {
    source: Source,
    window: Window,
    dispatch: Dispatch,
    schemas: SchemaStore,
    enrichment: Enrichment,
    passes: Passes,
    shared: Arc<Shared>,
}

enum Source {
    Recorded(OpenTrace),
    Live(LiveMerger),
}

impl Opened {
    pub fn open(mut trace: Trace) -> Result<Opened, Error> {
        trace.dispatch.check()?;
        let mut sessions = Vec::new();
        let source = match std::mem::replace(&mut trace.input, Input::Blocks(Vec::new())) {
            Input::TraceFiles(trace_files) => Source::Recorded(trace_files.open()?),
            Input::Blocks(blocks) => Source::Live(LiveMerger::new(blocks)?),
            Input::Live(inputs) => Source::Live(open_sessions(inputs, &trace, &mut sessions)?),
        };
        let clock = match &source {
            Source::Recorded(recorded) => recorded.clock(),
            Source::Live(merger) => merger.clock(),
        };
        Ok(Opened {
            window: trace.window(&clock),
            source,
            dispatch: trace.dispatch,
            schemas: trace.schemas,
            enrichment: trace.enrichment,
            passes: trace.passes,
            shared: Shared::of(sessions),
        })
    }

    /// Runs on the current thread.
    pub fn run(self, all: &mut dyn FnMut(&EventView<'_>) -> handler::Outcome) -> Result<TraceStats, Error> {
        let shared = self.shared.clone();
        shared.enter();
        let driven = catch_unwind(AssertUnwindSafe(|| self.drive(all)));
        // The reader has ended: later events are dropped and counted.
        shared.stop_sessions();
        let (sessions, error) = shared.ended();
        match (driven, error) {
            (Err(panic), _) => Err(Error::Panicked(message(&*panic))),
            (Ok(_), Some(error)) => Err(error.into()),
            (Ok(stats), None) => {
                let stats = TraceStats { sessions, ..stats };
                shared.publish(stats.clone());
                Ok(stats)
            }
        }
    }

    /// Runs on a separate thread.
    pub fn start(self) -> Result<Running, Error> {
        let shared = self.shared.clone();
        let name = "stackhound-events".to_owned();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(|| self.run(&mut |_| Ok(ControlFlow::Continue(()))))
            .map_err(Error::Thread)?;
        Ok(Running::new(shared, thread))
    }

    fn drive(self, all: &mut dyn FnMut(&EventView<'_>) -> handler::Outcome) -> TraceStats {
        let Opened { source, window, dispatch, schemas, enrichment, passes, shared } = self;
        match source {
            Source::Recorded(trace) => {
                let pipeline = Pipeline::with_schemas(&trace, passes, schemas);
                feed(pipeline.hold(window).with(enrichment), dispatch, all, &shared)
            }
            Source::Live(merger) => {
                let pipeline = Pipeline::live(merger, schemas);
                feed(pipeline.hold(window).with(enrichment), dispatch, all, &shared)
            }
        }
    }
}

/// Starts or attaches to all sessions. If one fails, those that were started end.
fn open_sessions(
    inputs: Vec<LiveInput>,
    trace: &Trace,
    sessions: &mut Vec<LiveSession>,
) -> Result<LiveMerger, Error> {
    let mut groups = trace.dispatch.groups();
    let providers = trace.dispatch.for_etw();
    // Providers are enabled in a kernel session only if there is no other session.
    let is_user = |input: &LiveInput| matches!(input, LiveInput::Session(session) if !session.is_kernel());
    let for_kernel: &[ProviderSettings] = if inputs.iter().any(is_user) { &[] } else { &providers };
    let mut incoming = Vec::new();
    for input in inputs {
        let (session, blocks) = match input {
            LiveInput::Attach(name) => LiveSession::attach(&name, trace.queue)?,
            LiveInput::Session(session) if session.is_kernel() => {
                let session = match groups.take() {
                    Some(groups) => session.kernel_groups(groups),
                    None => *session,
                };
                LiveSession::start(&session, for_kernel, trace.queue)?
            }
            LiveInput::Session(session) => LiveSession::start(&session, &providers, trace.queue)?,
        };
        sessions.push(session);
        incoming.push(blocks);
    }
    if groups.is_some() && sessions.iter().all(|session| !session.is_attached()) {
        return Err(Error::NoKernelSession);
    }
    Ok(LiveMerger::new(incoming)?)
}

fn feed(
    mut pipeline: Pipeline<'_>,
    dispatch: Dispatch,
    all: &mut dyn FnMut(&EventView<'_>) -> handler::Outcome,
    shared: &Shared,
) -> TraceStats {
    let dispatch = RefCell::new(dispatch);
    let (mut published, mut polled) = (Instant::now(), Instant::now());
    let choose = |view: &EventView<'_>| ControlFlow::Continue(dispatch.borrow().wants(view));
    let handle = |view: &EventView<'_>| {
        dispatch.borrow_mut().call(view, all)?;
        shared.go_on()
    };
    let watch = |counted: &Counted<'_>| {
        if polled.elapsed() >= POLL {
            polled = Instant::now();
            shared.poll_sessions();
        }
        if published.elapsed() >= PUBLISH {
            published = Instant::now();
            shared.publish(stats_of(counted.outcome(), &dispatch.borrow()));
            if let Some(publisher) = &mut dispatch.borrow_mut().publisher {
                publisher.flush()?;
            }
        }
        shared.go_on()
    };
    let outcome = pipeline.run_watched(choose, handle, watch);
    let mut dispatch = dispatch.into_inner();
    if let Some(publisher) = &mut dispatch.publisher {
        let _ = publisher.flush();
    }
    stats_of(outcome, &dispatch)
}

fn stats_of(outcome: Outcome, dispatch: &Dispatch) -> TraceStats {
    TraceStats {
        trace: outcome.trace,
        stacks: outcome.stacks,
        delivered: dispatch.delivered,
        unclaimed: dispatch.unclaimed_events,
        errors: dispatch.errors(),
        schema_misses: outcome.schema_misses,
        system: outcome.system,
        subscription: dispatch.publisher.as_ref().map(|publisher| publisher.counts()).unwrap_or_default(),
        sessions: Vec::new(),
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
