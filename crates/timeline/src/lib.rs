//! Recordings as traces: turns events and their stacks into the stack model of `stackhound-calltree`.
//!
//! A recording's events, in the order of time, are the transitions of a trace: event `n` is transition `n`, and context
//! `n` is the instant just before it. Stacks are those of each thread in user mode and in the kernel, and two for each
//! processor: of interrupt service routines and of deferred procedure calls.
//!
//! # What is exact
//!
//! - Threads go from and to processors with switches, if the recording has them.
//! - System calls are frames on the thread's kernel stack, from the event of the enter to that of the exit. The events
//!   name no thread; it is the one that runs on their processor.
//! - Interrupt routines and deferred calls are frames on the processor's own stacks. They are logged when they end, with
//!   the time of their start. The start is no transition of its own: the routine owns the contexts from the first one
//!   on at which it had started.
//!
//! # What is inferred
//!
//! - Recorded stacks show frames at one context each. Frames that two of them have in common are taken for the same
//!   ones (a frame goes on if its function is the same and so are all return addresses further out), frames that the
//!   later one lacks have ended in between. So the ends of these frames are inferred, with the bounds that evidence
//!   gives: a thread that is switched away from does not change, nor does its user stack during a system call, and all
//!   kernel frames of a system call lie inside it.
//! - Without events of system calls, whether a thread is in user mode or in the kernel is known only where a stack was
//!   recorded. From there on it counts as being there until evidence says something else. The same holds for the
//!   running thread where the recording has no switches.
//! - At the bottom of each thread's stack there is a frame of type `Unknown`, for all that no event tells.
//!
//! Where events of a processor are missing, nothing is claimed across the gap: its thread is not known, and the frames
//! of all threads that may have run there are given up.
//!
//! # What cannot be told
//!
//! - The kernel calls some threads back into user mode, inside of a system call. No event tells of it; it is noticed by
//!   the kernel's function for it in a recorded stack ([`SampledFrame::calls_back`]), or by a user stack that has grown since
//!   the entry. A call inside of a callback stands on top of the one that called back. Where neither shows, the user
//!   part of a stack is taken to be that of the entry.
//! - A system call that never returns (the end of a callback, the restart of a thread at another place) has no exit. It
//!   ends when a user stack shows that it must have; until then, later calls stand on top of it.
//! - Stacks during an interruption are told from the thread's by its event, which comes at its end. If that is missing,
//!   they count as the thread's.
//! - A frame whose function is not known is identified by its module: frames of two functions of one module, called
//!   from the same place, count as one.
//!
//! Takes constant time for an event, apart from the depth of its stack and the nesting of interruptions, and memory for
//! the threads that exist and up to 32,768 events that are held back. [`etw`] has the stack_events of ETW traces. Does not know
//! output.
#![forbid(unsafe_code)]

mod counts;
pub mod etw;
mod reorder;
mod side;
mod stack_event;
mod step;
mod thread;
mod tracker;

use stackhound_calltree::Cpu;

pub use counts::Counts;
pub use stack_event::{EventKind, Interruption, Part, SampledFrame, Snapshot, StackEvent};
pub use step::{NOT_KNOWN, Step};

use reorder::{Item, Next, ReorderBuffer};
use tracker::Tracker;

/// How a recording is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ticks for which events are held back, so that interrupt routines that took no longer get their exact place.
    pub reorder: i64,
    /// Whether recorded stacks are merged. Without them the result is exact.
    pub snapshots: bool,
}

/// Turns stack_events into steps.
#[derive(Debug)]
pub struct Timeline {
    reorder: ReorderBuffer,
    tracker: Tracker,
}

impl Timeline {
    /// Before the first event.
    pub fn new(options: Options) -> Timeline {
        Timeline { reorder: ReorderBuffer::new(options.reorder), tracker: Tracker::new(options.snapshots) }
    }

    /// Takes the next event.
    pub fn push(&mut self, stack_event: StackEvent) {
        self.reorder.push(stack_event);
        self.process();
    }

    /// From here on, a processor's events are missing.
    pub fn lose(&mut self, cpu: Cpu) {
        self.reorder.mark(Item::Lost(cpu.0));
    }

    /// The processor's events are there again.
    pub fn regain(&mut self, cpu: Cpu) {
        self.reorder.mark(Item::Regained(cpu.0));
    }

    /// The recording is over. Gives the number of transitions.
    pub fn end(&mut self) -> u64 {
        self.reorder.end();
        self.process();
        let transitions = self.reorder.count();
        self.tracker.end(transitions);
        transitions
    }

    /// The steps up to here, which are then gone from here. Their memory is used again.
    pub fn steps(&mut self) -> impl Iterator<Item = Step> + '_ {
        self.tracker.steps.drain(..)
    }

    /// What was used up to here, and what was not.
    pub fn counts(&self) -> Counts {
        Counts { clipped_interruptions: self.reorder.clipped, ..self.tracker.counts }
    }

    fn process(&mut self) {
        while let Some(next) = self.reorder.pop() {
            match next {
                Next::Start(start) => self.tracker.start(start),
                Next::Item(id, item) => self.tracker.item(id, item),
            }
        }
    }
}
