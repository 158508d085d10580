//! From a trace to events with stacks and meaning.

use stackhound_etl::{Described, Selection};
use stackhound_stacks::{Correlator, KeyDefinitions, StackStats, Window};
use stackhound_trace::{Flow, OpenTrace, Stats};

use crate::knowledge::Knowledge;
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

/// A trace with everything that is known about it.
#[derive(Debug)]
pub struct Pipeline<'t> {
    trace: &'t OpenTrace,
    known: Knowledge,
    definitions: Option<KeyDefinitions>,
}

/// What a run found out beside the events.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was read.
    pub trace: Stats,
    /// What became of the stacks.
    pub stacks: StackStats,
    /// Distinct frames (with their callers).
    pub distinct_frames: usize,
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
        Pipeline { trace, known, definitions }
    }

    /// What is known: all of the trace after two passes, what was read so far with one.
    pub fn knowledge(&self) -> &Knowledge {
        &self.known
    }

    /// Hands every event to `handle`, in time order and with its stack, until it breaks.
    pub fn run(&mut self, mut handle: impl FnMut(&Seen<'_>) -> Flow) -> Outcome {
        let window = Window::of(&self.trace.clock());
        let bases = self.trace.time_bases();
        let (mut correlator, learning) = match self.definitions.take() {
            Some(definitions) => (Correlator::two_pass(window, bases, definitions), false),
            None => (Correlator::one_pass(window, bases), true),
        };
        let mut events = self.trace.ordered();
        'all: loop {
            let ended = match events.next() {
                Some(event) => {
                    if learning {
                        self.known.observe(&event);
                    }
                    correlator.push(&event);
                    false
                }
                None => {
                    correlator.end();
                    true
                }
            };
            while let Some(delivered) = correlator.pop() {
                if handle(&Seen::new(delivered, &self.known)).is_break() {
                    break 'all;
                }
            }
            if ended {
                break;
            }
        }
        Outcome {
            trace: events.into_stats(),
            stacks: correlator.stats().clone(),
            distinct_frames: correlator.table().len(),
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
