//! How a stack was observed, and what its thread does.

use std::borrow::Cow;
use std::time::Duration;

use stackhound_types::FileTime;

/// Whether something was seen, or follows from what was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Certainty {
    /// Somebody looked.
    Observed,
    /// It follows from what was observed at other times.
    Inferred,
}

impl Certainty {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Observed => "observed",
            Certainty::Inferred => "inferred",
        }
    }
}

/// How a stack was observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Evidence {
    /// The thread was made to walk its stack itself.
    Captured {
        /// How long whoever asked waited for it.
        took: Duration,
        /// Whether the thread asked for its own stack.
        own: bool,
        /// Whether there were more kernel frames than room.
        kernel_cut: bool,
        /// Whether there were more user frames than room.
        user_cut: bool,
        /// Whether the user part was read from outside right after, with the thread suspended: the thread was in a critical region,
        /// where it must not read it itself.
        user_later: bool,
    },
    /// Taken at a context switch.
    Switch(SwitchEvidence),
    /// Linux told it in `/proc`.
    Proc,
}

impl Evidence {
    /// Whether the stack was seen at the time that the evidence names, or is concluded from another time.
    pub fn certainty(&self) -> Certainty {
        match self {
            Evidence::Captured { .. } | Evidence::Proc => Certainty::Observed,
            Evidence::Switch(switch) => switch.relation.certainty(),
        }
    }
}

/// The context switch that a stack is of. Such stacks are taken as a thread is switched *to*: it is the one with which it was
/// switched out before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchEvidence {
    /// When the thread was switched to.
    pub time: FileTime,
    /// How old that is at the time in question, in 100 ns; negative if it was later.
    pub age: i64,
    /// What the switch is for the time in question.
    pub relation: SwitchRelation,
    /// Whether events are missing between the two: the thread may have been switched meanwhile, unseen.
    pub lost_between: bool,
}

/// What a switch with a stack is for the time in question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchRelation {
    /// The thread's last switch up to then: it was switched to, and runs since.
    Last,
    /// The thread had been switched out by then, and came back later, with this stack: in between it did not run, so that this
    /// was its stack.
    Resumed,
    /// An older one: the thread has run since, and of its later switches none has a stack.
    Earlier {
        /// How many later switches of the thread there were up to the time in question, to it or away from it.
        later: u64,
        /// Whether one of them lost its stack with a buffer.
        lost: bool,
    },
}

impl SwitchRelation {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            SwitchRelation::Last => "last",
            SwitchRelation::Resumed => "resumed",
            SwitchRelation::Earlier { .. } => "earlier",
        }
    }

    /// A stack with which a thread came back is inferred for the time before; the others were observed when it is said.
    pub fn certainty(self) -> Certainty {
        match self {
            SwitchRelation::Last | SwitchRelation::Earlier { .. } => Certainty::Observed,
            SwitchRelation::Resumed => Certainty::Inferred,
        }
    }
}

/// What a thread does at the time in question, as far as is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ThreadState {
    /// Nothing tells.
    #[default]
    Unknown,
    /// It runs on a processor.
    Running {
        /// Since when.
        since: Option<FileTime>,
    },
    /// It could run, but another one does.
    Ready {
        /// Since when.
        since: Option<FileTime>,
    },
    /// It waits.
    Waiting {
        /// Since when.
        since: Option<FileTime>,
        /// For what, in the system's words.
        reason: Option<Cow<'static, str>>,
    },
    /// It has ended, and is not gone yet.
    Ended,
}

impl ThreadState {
    /// The spelling in output.
    pub fn name(&self) -> &'static str {
        match self {
            ThreadState::Unknown => "unknown",
            ThreadState::Running { .. } => "running",
            ThreadState::Ready { .. } => "ready",
            ThreadState::Waiting { .. } => "waiting",
            ThreadState::Ended => "ended",
        }
    }

    /// Since when, if that is known.
    pub fn since(&self) -> Option<FileTime> {
        match *self {
            ThreadState::Running { since }
            | ThreadState::Ready { since }
            | ThreadState::Waiting { since, .. } => since,
            ThreadState::Unknown | ThreadState::Ended => None,
        }
    }
}
