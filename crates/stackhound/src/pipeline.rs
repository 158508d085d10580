//! From a trace to events with stacks and meaning.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use stackhound_enrich::{CreateJoin, CreateOutcome, CreateStats};
use stackhound_etl::{Described, Selection};
use stackhound_stacks::{Correlator, Kept, KeyDefinitions, StackStats, Window};
use stackhound_symbols::SymbolStats;
use stackhound_trace::{Flow, OpenTrace, Stats};

use crate::enrichment::{Enricher, Enrichment};
use crate::knowledge::Knowledge;
use crate::naming::Naming;
use crate::seen::Seen;

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

/// A trace with everything that is known about it.
#[derive(Debug)]
pub struct Pipeline<'t> {
    trace: &'t OpenTrace,
    known: Knowledge,
    definitions: Option<KeyDefinitions>,
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
}

/// An event that was chosen, and the how manieth of all it is.
struct Chosen {
    event: Kept,
    create: Option<CreateOutcome>,
    number: u64,
}

impl<'t> Pipeline<'t> {
    /// With two passes, the first one happens here.
    pub fn new(trace: &'t OpenTrace, passes: Passes) -> Pipeline<'t> {
        let mut known = Knowledge::new(trace);
        let definitions = (passes == Passes::Two).then(|| {
            let wanted = Knowledge::selection()
                .hooks(KeyDefinitions::HOOKS)
                .classic()
                .described(Described::Id(MANIFEST_EVENT));
            survey(trace, wanted, &mut known)
        });
        Pipeline { trace, known, definitions, enricher: Enricher::new(Enrichment::default()) }
    }

    /// Says how much of stacks is told, and who names functions.
    pub fn with(mut self, enrichment: Enrichment) -> Pipeline<'t> {
        self.enricher = Enricher::new(enrichment);
        self
    }

    /// What is known: all of the trace after two passes, what was read so far with one.
    pub fn knowledge(&self) -> &Knowledge {
        &self.known
    }

    /// What is known, and the names of frames if a symbolizer was given: for naming frames after a run.
    pub fn parts(&mut self) -> (&Knowledge, Option<&mut Naming>) {
        (&self.known, self.enricher.naming.as_mut().map(RefCell::get_mut))
    }

    /// The work on symbols up to now, if a symbolizer was given.
    pub fn symbol_stats(&self) -> Option<SymbolStats> {
        self.enricher.naming.as_ref().map(|naming| naming.borrow().stats())
    }

    /// Hands every event to `handle`, in time order and with its stack, until it breaks.
    ///
    /// Asking for the names of a frame waits for them. Who asks for many events' names uses
    /// [`run_chosen`](Pipeline::run_chosen), or keeps the frames' numbers and asks at the end.
    pub fn run(&mut self, handle: impl FnMut(&Seen<'_>) -> Flow) -> Outcome {
        self.feed(0, |_| ControlFlow::Continue(true), handle)
    }

    /// Hands the events that `choose` chooses to `handle`, in time order, until one of them breaks. Other threads name
    /// the frames of chosen events before it is their turn.
    pub fn run_chosen(
        &mut self,
        choose: impl FnMut(&Seen<'_>) -> ControlFlow<(), bool>,
        handle: impl FnMut(&Seen<'_>) -> Flow,
    ) -> Outcome {
        let ahead = if self.enricher.naming.is_some() { AHEAD } else { 0 };
        self.feed(ahead, choose, handle)
    }

    fn feed(
        &mut self,
        ahead: usize,
        mut choose: impl FnMut(&Seen<'_>) -> ControlFlow<(), bool>,
        mut handle: impl FnMut(&Seen<'_>) -> Flow,
    ) -> Outcome {
        let window = Window::of(&self.trace.clock());
        let bases = self.trace.time_bases();
        let (mut correlator, learning) = match self.definitions.take() {
            Some(definitions) => (Correlator::two_pass(window, bases, definitions), false),
            None => (Correlator::one_pass(window, bases), true),
        };
        let mut creates = CreateJoin::new(window);
        let mut events = self.trace.ordered();
        let mut chosen: VecDeque<Chosen> = VecDeque::new();
        let (mut passed, mut unnamed) = (0, 0);
        let mut ended = false;
        'all: while !ended {
            match events.next() {
                Some(event) => {
                    if learning {
                        self.known.observe(&event);
                    }
                    creates.push(&event);
                    correlator.push(&event);
                }
                None => {
                    creates.end();
                    correlator.end();
                    ended = true;
                }
            };
            while let Some(delivered) = correlator.pop() {
                passed += 1;
                let create = creates.outcome(&delivered.event);
                let seen = Seen::new(delivered, &self.known, &self.enricher, create);
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
                && (ended || chosen.len() > ahead || passed - first.number > FAR)
            {
                let event = first.event.delivered(correlator.table());
                if handle(&Seen::new(event, &self.known, &self.enricher, first.create)).is_break() {
                    break 'all;
                }
                chosen.pop_front();
            }
        }
        Outcome {
            trace: events.into_stats(),
            stacks: correlator.stats().clone(),
            distinct_frames: correlator.table().len(),
            creates: creates.stats(),
        }
    }
}

/// The first pass: looks only at records that something is learned from.
fn survey(trace: &OpenTrace, wanted: Selection, known: &mut Knowledge) -> KeyDefinitions {
    let mut definitions = KeyDefinitions::default();
    let mut events = trace.selected(wanted);
    while let Some(event) = events.next() {
        definitions.observe(&event);
        known.observe(&event);
    }
    definitions
}
