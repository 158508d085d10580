//! Call timelines: converts events and their stacks into the stack model of `stackhound-calltree`.
//!
//! The events of an ETW trace, in time order, are the transitions of the model: event `n` is
//! transition `n`, and context `n` is the instant just before it. There are stacks for each thread
//! in user mode and in the kernel, and two for each processor: for interrupt service routines and
//! for deferred procedure calls.
//!
//! # Exact information
//!
//! - Context switches assign threads to processors, if the trace has them. While they are not recorded,
//!   because their session ended before another one, it is not known which threads run.
//! - System calls are frames on the thread's kernel stack, from the enter event to the exit event. These
//!   events contain no thread id; the thread is the one that runs on their processor.
//! - Interrupt routines and deferred calls are frames on the processor's own stacks. They are logged
//!   when they end, with their start time. The start is not a transition of its own: the routine is
//!   active from the first context at which it had started.
//!
//! # Inferred information
//!
//! - A recorded stack shows frames at one context. Frames that two recorded stacks have in common are
//!   regarded as the same frames (a frame continues if its function and all return addresses further out
//!   are the same); frames that the later stack lacks have ended in between. The ends of these frames are
//!   therefore inferred, within bounds: a thread that is switched out does not change, its user stack does
//!   not change during a system call, and all kernel frames of a system call lie inside it.
//! - Without system call events, the mode of a thread is known only where a stack was recorded. The
//!   thread is assumed to stay in that mode until there is evidence of another one. The same holds for
//!   the running thread if the trace has no context switches.
//! - At the bottom of each thread's stack is a frame of type `Unknown`, for everything that no event
//!   shows.
//!
//! Where events of a processor are missing, no frame continues across the gap: its thread is
//! unknown, and the frames of all threads that may have run there are discarded.
//!
//! # Limitations
//!
//! - User-mode callbacks from the kernel, inside a system call, are not logged as events. They are
//!   recognized by the kernel's callback function in a recorded stack ([`SampledFrame::calls_back`]), or by
//!   a user stack that has grown since the entry. A call inside a callback is placed on top of the call
//!   that called back. If neither is visible, the user part of a stack is regarded as that of the entry.
//! - A system call that never returns (the end of a callback, or a thread that is resumed at another
//!   address) has no exit event. It ends when a user stack shows that it must have ended; until then, later
//!   calls are placed on top of it.
//! - Stacks during an interruption are separated from the thread's stacks by the event at its end. If that
//!   event is missing, they count as the thread's.
//! - A frame whose function is unknown is identified by its module: frames of two functions of one module
//!   that are called from the same address count as one.
//!
//! Each event takes constant time, apart from the depth of its stack and the nesting of
//! interruptions. Memory is proportional to the number of existing threads, plus up to 32,768 held
//! events. The module [`etw`] derives the input from ETW traces. The crate does not write output.
#![forbid(unsafe_code)]

mod counts;
pub mod etw;
mod reorder;
mod side;
mod stack_event;
mod step;
mod thread;
mod tracker;

use stackhound_calltree::{ContextId, Cpu};
use stackhound_types::Tid;

pub use counts::Counts;
pub use stack_event::{EventKind, Interruption, Part, SampledFrame, Snapshot, StackEvent};
pub use step::{NOT_KNOWN, Step};

use reorder::{Item, Next, ReorderBuffer};
use tracker::Tracker;

/// Options of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ticks for which events are held, so that interrupt routines up to this duration start at
    /// their exact context.
    pub reorder: i64,
    /// Whether recorded stacks are merged. Without them, the result is exact.
    pub snapshots: bool,
}

/// Converts [`StackEvent`]s into [`Step`]s.
#[derive(Debug)]
pub struct Timeline {
    reorder: ReorderBuffer,
    tracker: Tracker,
}

impl Timeline {
    /// A timeline before the first event.
    pub fn new(options: Options) -> Timeline {
        let (reorder, tracker) = (ReorderBuffer::new(options.reorder), Tracker::new(options.snapshots));
        Timeline { reorder, tracker }
    }

    /// Adds the next event.
    pub fn push(&mut self, stack_event: StackEvent) {
        self.reorder.push(stack_event);
        self.process();
    }

    /// Declares that events of a processor are missing from here on.
    pub fn lose(&mut self, cpu: Cpu) {
        self.reorder.mark(Item::Lost(cpu.0));
    }

    /// Declares that the events of a processor are complete again from here on.
    pub fn regain(&mut self, cpu: Cpu) {
        self.reorder.mark(Item::Regained(cpu.0));
    }

    /// Declares that another thread has this id from here on, although neither the end of the earlier
    /// one nor the start of this one was recorded.
    pub fn replace(&mut self, tid: Tid) {
        self.reorder.mark(Item::Replaced(tid));
    }

    /// Declares that from here on the session with context switches records nothing, although others
    /// continue. `last` is the context before its last event. Which threads run is then not known.
    pub fn switches_end(&mut self, last: ContextId) {
        self.reorder.mark(Item::SwitchesEnd(last));
    }

    /// Declares that the session with context switches continues from here on.
    pub fn switches_go_on(&mut self) {
        self.reorder.mark(Item::SwitchesGoOn);
    }

    /// Ends the trace and returns the number of transitions.
    pub fn end(&mut self) -> u64 {
        self.reorder.end();
        self.process();
        let transitions = self.reorder.count();
        self.tracker.end(transitions);
        transitions
    }

    /// Removes and returns the steps so far. Their memory is reused.
    pub fn steps(&mut self) -> impl Iterator<Item = Step> + '_ {
        self.tracker.steps.drain(..)
    }

    /// The counters so far.
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
