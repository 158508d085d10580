//! From a trace to events with stacks and meaning.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use stackhound_etl::{Clock, ManifestEvents, Selection};
use stackhound_frames::{CreateJoin, CreateOutcome, CreateStats, FrameResolver, Modules};
use stackhound_live::{LiveMerger, Step};
use stackhound_schema::SchemaStore;
use stackhound_stacks::{Correlator, Kept, StackStats, StackSurvey, Window};
use stackhound_symbols::SymbolStats;
use stackhound_system::SystemStats;
use stackhound_trace::{Flow, LossMap, OpenTrace, Ordered, Stats, TimeBase, TraceTime};
use stackhound_types::TICKS_PER_SECOND;

use crate::enrichment::{Enricher, Enrichment};
use crate::event_view::EventView;
use crate::naming::Naming;
use crate::trace_state::TraceState;

/// How often a trace is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Passes {
    /// Once, as a live session is: what stands later is not known earlier.
    One,
    /// Twice: first for key definitions, names and schemas, which recordings often carry at their end.
    #[default]
    Two,
}

/// EventSource manifests come as events with this id.
const MANIFEST_EVENT: u16 = 0xfffe;

/// Chosen events that are held back while their frames are named.
const AHEAD: usize = 1024;
/// Chosen events whose frames are handed over to be named together.
const BATCH: usize = 128;
/// Events behind a chosen one, after which it is held back no longer.
const FAR: u64 = 1 << 16;

/// Events between two looks at the counters.
const WATCH_EVENTS: u64 = 1 << 10;

/// Of live sessions: what was over so many 100 ns before the oldest event that is still to come out may be forgotten, and
/// how often that is done, in the events' own time.
const REMEMBERED: i64 = 10 * TICKS_PER_SECOND;

/// Where events come from.
#[derive(Debug)]
enum Input<'t> {
    Recorded(&'t OpenTrace),
    /// Taken when it is read, which is possible once.
    Live(Option<Box<LiveMerger>>),
}

/// Events in time order, of either kind.
#[derive(Debug)]
enum Events {
    Recorded(Box<Ordered>),
    Live(Box<LiveMerger>),
    Nothing,
}

impl Events {
    #[inline]
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

/// A trace with everything that is known about it.
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

/// What a run found out beside the events.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was read.
    pub trace: Stats,
    /// What became of the stacks.
    pub stacks: StackStats,
    /// What became of the creations of files.
    pub creates: CreateStats,
    /// Distinct frames (with their callers).
    pub distinct_frames: usize,
    /// Schemas that were looked for in vain.
    pub schema_misses: u64,
    /// What was taken in of processes, modules and names, and what a live session forgot of them.
    pub system: SystemStats,
}

/// What a run has counted up to now. Nothing is copied before it is asked for.
#[derive(Debug)]
pub struct Counted<'r> {
    events: &'r Events,
    correlator: &'r Correlator,
    creates: &'r CreateJoin,
    known: &'r TraceState,
}

impl Counted<'_> {
    /// What was read.
    pub fn trace(&self) -> Stats {
        self.events.stats()
    }

    /// All of it.
    pub fn outcome(&self) -> Outcome {
        outcome(self.trace(), self.correlator, self.creates, self.known)
    }
}

/// An event that was chosen, and the how manieth of all it is.
struct Chosen {
    event: Kept,
    create: Option<CreateOutcome>,
    number: u64,
}

impl<'t> Pipeline<'t> {
    /// Of recordings. With two passes, the first one happens here.
    pub fn new(trace: &'t OpenTrace, passes: Passes) -> Pipeline<'t> {
        Pipeline::with_schemas(trace, passes, SchemaStore::new())
    }

    /// Of recordings, with descriptions of events beside those that they carry.
    pub fn with_schemas(trace: &'t OpenTrace, passes: Passes, schemas: SchemaStore) -> Pipeline<'t> {
        let mut known = TraceState::of(trace, passes, schemas);
        let surveyed = (passes == Passes::Two).then(|| {
            let wanted = TraceState::selection()
                .hook_ids(StackSurvey::HOOK_IDS)
                .classic()
                .manifest_events(ManifestEvents::Id(MANIFEST_EVENT));
            survey(trace, wanted, &mut known)
        });
        let (surveyed, losses) = surveyed.unzip();
        let (clock, bases) = (trace.clock(), trace.time_bases());
        Pipeline {
            losses: losses.unwrap_or_default(),
            ..Pipeline::of(Input::Recorded(trace), clock, bases, known, surveyed)
        }
    }

    /// Of live sessions, with descriptions of events beside those that they carry. What happens is known as far as it
    /// has happened, as with one pass.
    pub fn live(arrivals: LiveMerger, schemas: SchemaStore) -> Pipeline<'static> {
        let (clock, bases) = (arrivals.clock(), arrivals.time_bases());
        #[cfg(all(windows, feature = "windows"))]
        let schemas = crate::system_schemas::asking_windows(schemas);
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

    /// How long events are held back for their stacks; two seconds otherwise.
    pub fn hold(mut self, window: Window) -> Pipeline<'t> {
        self.window = window;
        self
    }

    /// The clock of trace time.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Says how much of stacks is told, and who names functions.
    pub fn with(mut self, enrichment: Enrichment) -> Pipeline<'t> {
        let frames = self.enricher.frames.take();
        self.enricher = Enricher::new(enrichment);
        self.enricher.frames.replace(frames);
        self
    }

    /// What is known: all of the trace after two passes, what was read so far with one.
    pub fn trace_state(&self) -> &TraceState {
        &self.known
    }

    /// With modules that were met in other traces, and lists that give modules their roles.
    pub fn with_modules(mut self, modules: Modules) -> Pipeline<'t> {
        self.enricher.frames = RefCell::new(FrameResolver::new(modules));
        self
    }

    /// The modules that were met, for another trace.
    pub fn into_modules(self) -> Modules {
        self.enricher.frames.into_inner().into_modules()
    }

    /// What is known, what resolves frames, and the names of frames if a symbolizer was given: for naming frames after a run.
    pub fn parts(&mut self) -> (&TraceState, &mut FrameResolver, Option<&mut Naming>) {
        let Enricher { frames, naming, .. } = &mut self.enricher;
        (&self.known, frames.get_mut(), naming.as_mut().map(RefCell::get_mut))
    }

    /// The work on symbols up to now, if a symbolizer was given.
    pub fn symbol_stats(&self) -> Option<SymbolStats> {
        self.enricher.naming.as_ref().map(|naming| naming.borrow().stats())
    }

    /// Hands every event to `handle`, in time order and with its stack, until it breaks.
    ///
    /// Asking for the names of a frame waits for them. Who asks for many events' names uses
    /// [`run_chosen`](Pipeline::run_chosen), or keeps the frames' numbers and asks at the end.
    pub fn run(&mut self, handle: impl FnMut(&EventView<'_>) -> Flow) -> Outcome {
        self.feed(0, |_| ControlFlow::Continue(true), handle, |_| ControlFlow::Continue(()))
    }

    /// Hands the events that `choose` chooses to `handle`, in time order, until one of them breaks. Other threads name
    /// the frames of chosen events before it is their turn.
    pub fn run_chosen(
        &mut self,
        choose: impl FnMut(&EventView<'_>) -> ControlFlow<(), bool>,
        handle: impl FnMut(&EventView<'_>) -> Flow,
    ) -> Outcome {
        self.run_watched(choose, handle, |_| ControlFlow::Continue(()))
    }

    /// As [`run_chosen`](Pipeline::run_chosen). `watch` looks at the counters every thousand events or so, and of live
    /// sessions also whenever nothing happens; it can end the run too.
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
        let mut creates = CreateJoin::new(window);
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
            let mut quiet = false;
            match events.next() {
                Step::Event(event) => {
                    if learning {
                        self.known.observe_now(&event);
                    }
                    creates.push(&event);
                    correlator.push(&event);
                }
                Step::Idle(until) => {
                    correlator.advance(until);
                    quiet = true;
                }
                Step::End => {
                    creates.end();
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
            if quiet || taken.is_multiple_of(WATCH_EVENTS) {
                let (correlator, creates, known) = (&correlator, &creates, &self.known);
                if watch(&Counted { events: &events, correlator, creates, known }).is_break() {
                    break;
                }
            }
            while let Some(delivered) = correlator.pop() {
                passed += 1;
                let create = creates.outcome(&delivered.event);
                let seen = EventView::new(delivered, &self.known, &self.enricher, create);
                match choose(&seen) {
                    ControlFlow::Break(()) => {
                        ended = true;
                        break;
                    }
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Continue(true) if ahead == 0 => {
                        if handle(&seen).is_break() {
                            break 'all;
                        }
                    }
                    ControlFlow::Continue(true) => {
                        seen.request_names();
                        chosen.push_back(Chosen { event: delivered.keep(), create, number: passed });
                        unnamed += 1;
                        if unnamed == BATCH {
                            unnamed = 0;
                            self.enricher.naming.iter().for_each(|naming| naming.borrow_mut().flush());
                        }
                    }
                }
            }
            while let Some(first) = chosen.front()
                && (ended || quiet || chosen.len() > ahead || passed - first.number > FAR)
            {
                let event = first.event.delivered(correlator.table());
                if handle(&EventView::new(event, &self.known, &self.enricher, first.create)).is_break() {
                    break 'all;
                }
                chosen.pop_front();
            }
        }
        outcome(events.into_stats(), &correlator, &creates, &self.known)
    }
}

fn outcome(trace: Stats, correlator: &Correlator, creates: &CreateJoin, known: &TraceState) -> Outcome {
    Outcome {
        trace,
        stacks: correlator.stats().clone(),
        distinct_frames: correlator.table().len(),
        creates: creates.stats(),
        schema_misses: known.schema_misses(),
        system: known.system().stats(),
    }
}

/// The first pass: looks only at records that something is learned from.
fn survey(trace: &OpenTrace, wanted: Selection, known: &mut TraceState) -> (StackSurvey, LossMap) {
    let mut stacks = StackSurvey::default();
    let mut events = trace.selected(wanted);
    while let Some(event) = events.next() {
        stacks.observe(&event);
        known.observe(&event);
    }
    let losses = LossMap::surveyed(trace, events);
    known.add_lost_buffers(losses.damaged_buffers());
    (stacks, losses)
}
