//! Reads a trace and delivers its events with stacks and schemas.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use stackhound_etl::{Clock, Selection};
use stackhound_frames::{
    CallJoin, CallOutcome, CallStats, CreateJoin, CreateOutcome, CreateStats, FrameResolver, Modules,
};
use stackhound_live::{LiveMerger, Step};
use stackhound_schema::SchemaStore;
use stackhound_stacks::{Correlator, Kept, StackStats, StackSurvey, Window};
use stackhound_symbols::SymbolStats;
use stackhound_system::SystemStats;
use stackhound_trace::{Flow, LossMap, OpenTrace, Ordered, Stats, TimeBase, TraceTime};
use stackhound_types::TICKS_PER_SECOND;

use crate::enrichment::{Enricher, Enrichment};
use crate::event_view::{EventView, Outcomes};
use crate::facts::ProcessView;
use crate::naming::Naming;
use crate::trace_state::{Passes, TraceState};

/// The maximum number of chosen events that are held back while their frames are named.
const AHEAD: usize = 1024;
/// The number of chosen events whose frames are passed to the symbolizer together.
const BATCH: usize = 128;
/// The number of events after a chosen one, after which it is no longer held back.
const FAR: u64 = 1 << 16;

/// The number of events between two calls of `watch`.
const WATCH_EVENTS: u64 = 1 << 10;

/// For live sessions: state that ended more than this time (in 100 ns) before the oldest pending
/// event may be removed. Also the interval of the removal, in event time.
const REMEMBERED: i64 = 10 * TICKS_PER_SECOND;

/// The source of the events.
#[derive(Debug)]
enum Input<'t> {
    Recorded(&'t OpenTrace),
    /// Moved out when it is read, which is possible once.
    Live(Option<Box<LiveMerger>>),
}

/// Events in time order, from a trace or from live sessions.
#[derive(Debug)]
enum Events {
    Recorded(Box<Ordered>),
    Live(Box<LiveMerger>),
    Nothing,
}

impl Events {
    #[inline(always)] // As `Ordered::next`.
    fn next(&mut self) -> Step<'_> {
        match self {
            Events::Recorded(ordered) => ordered.next().map_or(Step::End, Step::Event),
            Events::Live(arrivals) => arrivals.next(),
            Events::Nothing => Step::End,
        }
    }

    fn stats(&self) -> Stats {
        match self {
            Events::Recorded(ordered) => ordered.stats().clone(),
            Events::Live(arrivals) => arrivals.stats(),
            Events::Nothing => Stats::default(),
        }
    }

    fn into_stats(self) -> Stats {
        match self {
            Events::Recorded(ordered) => ordered.into_stats(),
            other => other.stats(),
        }
    }
}

/// Reads a trace or live sessions, and holds the known state.
#[derive(Debug)]
pub struct Pipeline<'t> {
    input: Input<'t>,
    clock: Clock,
    bases: Vec<TimeBase>,
    window: Window,
    known: TraceState,
    losses: LossMap,
    surveyed: Option<StackSurvey>,
    enricher: Enricher,
}

/// The counters of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Counters of the input.
    pub trace: Stats,
    /// Counters of the stacks.
    pub stacks: StackStats,
    /// Counters of file creations.
    pub creates: CreateStats,
    /// Counters of system calls.
    pub calls: CallStats,
    /// The number of distinct frames (with their callers).
    pub distinct_frames: usize,
    /// The number of failed schema look-ups.
    pub schema_misses: u64,
    /// Counters of the processed events about processes, modules and names, and of the state that a
    /// live session removed.
    pub system: SystemStats,
}

/// The current counters of a run. Copied only on request.
#[derive(Debug)]
pub struct Counted<'r> {
    events: &'r Events,
    correlator: &'r Correlator,
    joins: &'r Joins,
    known: &'r TraceState,
}

impl Counted<'_> {
    /// Counters of the input.
    pub fn trace(&self) -> Stats {
        self.events.stats()
    }

    /// All counters.
    pub fn outcome(&self) -> Outcome {
        outcome(self.trace(), self.correlator, self.joins, self.known)
    }
}

/// The joins of events with later ones.
#[derive(Debug)]
struct Joins {
    creates: CreateJoin,
    calls: CallJoin,
}

/// A chosen event and its sequence number among all events.
struct Chosen {
    event: Kept,
    create: Option<CreateOutcome>,
    call: Option<CallOutcome>,
    number: u64,
}

impl<'t> Pipeline<'t> {
    /// Reads a trace. With two passes, the first one happens in this call.
    pub fn new(trace: &'t OpenTrace, passes: Passes) -> Pipeline<'t> {
        Pipeline::with_schemas(trace, passes, SchemaStore::new())
    }

    /// Reads a trace, with schemas in addition to those that the trace contains.
    pub fn with_schemas(trace: &'t OpenTrace, passes: Passes, schemas: SchemaStore) -> Pipeline<'t> {
        let mut known = TraceState::of(trace, passes, schemas);
        let surveyed = (passes == Passes::Two).then(|| {
            let wanted = TraceState::selection().hook_ids(StackSurvey::HOOK_IDS);
            survey(trace, wanted, &mut known)
        });
        let (surveyed, losses) = surveyed.unzip();
        let (clock, bases) = (trace.clock(), trace.time_bases());
        Pipeline {
            losses: losses.unwrap_or_default(),
            ..Pipeline::of(Input::Recorded(trace), clock, bases, known, surveyed)
        }
    }

    /// Reads live sessions, with schemas in addition to those that the sessions contain. As with
    /// one pass, only the events so far are known.
    pub fn live(arrivals: LiveMerger, schemas: SchemaStore) -> Pipeline<'static> {
        let (clock, bases) = (arrivals.clock(), arrivals.time_bases());
        #[cfg(all(windows, feature = "windows"))]
        let schemas = crate::system_schemas::with_system_fallback(schemas);
        let known = TraceState::live(&arrivals, schemas);
        Pipeline::of(Input::Live(Some(Box::new(arrivals))), clock, bases, known, None)
    }

    fn of<'i>(
        input: Input<'i>,
        clock: Clock,
        bases: Vec<TimeBase>,
        known: TraceState,
        surveyed: Option<StackSurvey>,
    ) -> Pipeline<'i> {
        let (window, enricher) = (Window::of(&clock), Enricher::new(Enrichment::default()));
        Pipeline { input, clock, bases, window, known, losses: LossMap::live(), surveyed, enricher }
    }

    /// Sets how long events are held back for their stacks; the default is two seconds.
    pub fn hold(mut self, window: Window) -> Pipeline<'t> {
        self.window = window;
        self
    }

    /// The clock of trace times.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How long events are held back for their stacks.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Sets the depth of stacks and the source of function names.
    pub fn with(mut self, enrichment: Enrichment) -> Pipeline<'t> {
        let frames = self.enricher.frames.take();
        self.enricher = Enricher::new(enrichment);
        self.enricher.frames.replace(frames);
        self
    }

    /// The known state: of the whole trace after two passes, of the events so far with one pass.
    pub fn trace_state(&self) -> &TraceState {
        &self.known
    }

    /// The known processes, each with the facts of its last observed time.
    pub fn processes(&self) -> impl Iterator<Item = ProcessView<'_>> {
        self.known.system().processes().map(|process| {
            let time = process.observed().map_or(process.span().from, |(_, last)| last);
            ProcessView::at(process, time, &self.known, &self.enricher)
        })
    }

    /// Sets modules that were found in other traces, and lists that assign roles to modules.
    pub fn with_modules(mut self, modules: Modules) -> Pipeline<'t> {
        self.enricher.frames = RefCell::new(FrameResolver::new(modules));
        self
    }

    /// The modules that were found, for use with another trace.
    pub fn into_modules(self) -> Modules {
        self.enricher.frames.into_inner().into_modules()
    }

    /// The known state, the frame resolver, and the names of frames if a symbolizer is set. Used to
    /// name frames after a run.
    pub fn parts(&mut self) -> (&TraceState, &mut FrameResolver, Option<&mut Naming>) {
        let Enricher { frames, naming, .. } = &mut self.enricher;
        (&self.known, frames.get_mut(), naming.as_mut().map(RefCell::get_mut))
    }

    /// The current symbol counters, if a symbolizer is set.
    pub fn symbol_stats(&self) -> Option<SymbolStats> {
        self.enricher.naming.as_ref().map(|naming| naming.borrow().stats())
    }

    /// Passes every event to `handle`, in time order and with its stack, until `handle` breaks.
    ///
    /// A request for the names of a frame waits for them. To name the frames of many events, use
    /// [`run_chosen`](Pipeline::run_chosen), or keep the frame numbers and request the names at the
    /// end.
    pub fn run(&mut self, handle: impl FnMut(&EventView<'_>) -> Flow) -> Outcome {
        self.feed(0, |_| ControlFlow::Continue(true), handle, |_| ControlFlow::Continue(()))
    }

    /// Passes the events that `choose` selects to `handle`, in time order, until one of the two
    /// breaks. The frames of selected events are named on other threads before the events are
    /// passed on.
    pub fn run_chosen(
        &mut self,
        choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        handle: impl FnMut(&EventView<'_>) -> Flow,
    ) -> Outcome {
        self.run_watched(choose, handle, |_| ControlFlow::Continue(()))
    }

    /// Same as [`run_chosen`](Pipeline::run_chosen), with access to the counters. `watch` is called
    /// about every thousand events and, for live sessions, also when no event arrives. It can end
    /// the run too.
    pub fn run_watched(
        &mut self,
        choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        handle: impl FnMut(&EventView<'_>) -> Flow,
        watch: impl FnMut(&Counted<'_>) -> Flow,
    ) -> Outcome {
        let ahead = if self.enricher.naming.is_some() { AHEAD } else { 0 };
        self.feed(ahead, choose, handle, watch)
    }

    fn feed(
        &mut self,
        ahead: usize,
        mut choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        mut handle: impl FnMut(&EventView<'_>) -> Flow,
        mut watch: impl FnMut(&Counted<'_>) -> Flow,
    ) -> Outcome {
        let (window, bases) = (self.window, self.bases.clone());
        let (mut correlator, learning) = match self.surveyed.take() {
            Some(survey) => {
                let losses = std::mem::take(&mut self.losses);
                (Correlator::two_pass(window, bases, losses, survey), false)
            }
            None => match self.input {
                Input::Recorded(trace) => (Correlator::one_pass(window, bases, LossMap::of(trace)), true),
                Input::Live(_) => (Correlator::live(window, bases, Correlator::FRAMES_MAX), true),
            },
        };
        self.enricher.frames.get_mut().keep_frames(!learning);
        let calls = CallJoin::new(window, self.clock.ticks_per_second());
        let mut joins = Joins { creates: CreateJoin::new(window), calls };
        let joined = Correlator::select(CreateJoin::select(CallJoin::select(Selection::none())));
        let mut events = match &mut self.input {
            Input::Recorded(trace) => Events::Recorded(Box::new(trace.ordered())),
            Input::Live(arrivals) => arrivals.take().map_or(Events::Nothing, Events::Live),
        };
        let mut chosen: VecDeque<Chosen> = VecDeque::new();
        let (mut passed, mut unnamed) = (0, 0);
        let is_live = matches!(self.input, Input::Live(_));
        let remembered = self.clock.span_to_raw(REMEMBERED).max(1);
        let mut forgotten = TraceTime(i64::MIN);
        let (mut ended, mut taken) = (false, 0_u64);
        'all: while !ended {
            let mut idle = false;
            // By reference: copies of what was just written in other sizes stall the processor.
            match &events.next() {
                Step::Event(event) => {
                    if learning {
                        self.known.observe_now(event);
                    }
                    if event.index() != 0 && !event.has_extended_items() && !joined.has(&event.entry()) {
                        correlator.push_plain(event);
                    } else {
                        joins.creates.push(event);
                        correlator.push(event);
                        let (known, enricher) = (self.known.system(), &self.enricher);
                        joins.calls.push(event, correlator.losses(), |routine| {
                            enricher.service_kind(known, routine, event.time())
                        });
                    }
                }
                Step::Idle(until) => {
                    correlator.advance(*until);
                    idle = true;
                }
                Step::End => {
                    joins.creates.end();
                    joins.calls.end();
                    correlator.end();
                    ended = true;
                }
            };
            taken += 1;
            if is_live && taken.is_multiple_of(WATCH_EVENTS) {
                let oldest = chosen.front().map(|first| first.event.time()).or(correlator.oldest());
                let until = oldest.map(|oldest| TraceTime(oldest.0.saturating_sub(remembered)));
                if let Some(until) = until
                    && until.0 > forgotten.0.saturating_add(remembered)
                {
                    self.known.forget_before(until);
                    forgotten = until;
                }
            }
            if idle || taken.is_multiple_of(WATCH_EVENTS) {
                let (correlator, joins, known) = (&correlator, &joins, &self.known);
                if watch(&Counted { events: &events, correlator, joins, known }).is_break() {
                    break;
                }
            }
            while let Some(delivered) = &correlator.pop() {
                passed += 1;
                let create = joins.creates.outcome(&delivered.event);
                let call = joins.calls.outcome(&delivered.event, delivered.tid(), delivered.losses());
                let outcomes = Outcomes { create: create.as_ref(), call: call.as_ref() };
                let view = EventView::new(delivered, &self.known, &self.enricher, outcomes);
                match choose(&view) {
                    ControlFlow::Break(()) => {
                        ended = true;
                        break;
                    }
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Continue(true) if ahead == 0 => {
                        if handle(&view).is_break() {
                            break 'all;
                        }
                    }
                    ControlFlow::Continue(true) => {
                        view.request_names();
                        chosen.push_back(Chosen { event: delivered.keep(), create, call, number: passed });
                        unnamed += 1;
                        if unnamed == BATCH {
                            unnamed = 0;
                            self.enricher.naming.iter().for_each(|naming| naming.borrow_mut().flush());
                        }
                    }
                }
            }
            while let Some(first) = chosen.front()
                && (ended || idle || chosen.len() > ahead || passed - first.number > FAR)
            {
                let event = first.event.delivered(correlator.table());
                let outcomes = Outcomes { create: first.create.as_ref(), call: first.call.as_ref() };
                if handle(&EventView::new(&event, &self.known, &self.enricher, outcomes)).is_break() {
                    break 'all;
                }
                chosen.pop_front();
            }
        }
        outcome(events.into_stats(), &correlator, &joins, &self.known)
    }
}

fn outcome(trace: Stats, correlator: &Correlator, joins: &Joins, known: &TraceState) -> Outcome {
    Outcome {
        trace,
        stacks: correlator.stats().clone(),
        distinct_frames: correlator.table().len(),
        creates: joins.creates.stats(),
        calls: joins.calls.stats(),
        schema_misses: known.schema_misses(),
        system: known.system().stats(),
    }
}

/// The first pass: reads only records that contain state or definitions.
fn survey(trace: &OpenTrace, wanted: Selection, known: &mut TraceState) -> (StackSurvey, LossMap) {
    let mut stacks = StackSurvey::default();
    let mut events = trace.selected(wanted);
    while let Some(event) = events.next() {
        if event.index() == 0 {
            known.expect(event.block());
        }
        stacks.observe(&event);
        known.observe(&event);
    }
    let losses = LossMap::surveyed(trace, events);
    known.set_losses(losses.clone());
    tracing::debug!(damaged_buffers = losses.damaged_buffers(), "first pass done");
    (stacks, losses)
}
