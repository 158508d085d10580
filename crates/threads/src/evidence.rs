//! How a stack was observed, and the state of its thread.

use std::borrow::Cow;
use std::time::Duration;

use stackhound_types::FileTime;

/// Whether a stack was observed or inferred.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Certainty {
    /// Observed at the stated time.
    Observed,
    /// Inferred from observations at other times.
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
    /// The thread walked its own stack on request.
    Captured {
        /// How long the caller waited for it.
        took: Duration,
        /// Whether the thread requested its own stack.
        own: bool,
        /// Whether there were more kernel frames than fit in the buffer.
        kernel_cut: bool,
        /// Whether there were more user frames than fit in the buffer.
        user_cut: bool,
        /// Whether the user stack was read by another thread right afterwards, with the thread
        /// suspended: the thread was in a critical region, where it must not read its user stack
        /// itself.
        user_later: bool,
    },
    /// Captured at a context switch.
    Switch(SwitchEvidence),
    /// Read from `/proc` on Linux.
    Proc,
}

impl Evidence {
    /// Whether the stack was observed at the time that the evidence states, or is inferred from
    /// another time.
    pub fn certainty(&self) -> Certainty {
        match self {
            Evidence::Captured { .. } | Evidence::Proc => Certainty::Observed,
            Evidence::Switch(switch) => switch.relation.certainty(),
        }
    }
}

/// The context switch that carries a stack. ETW captures such stacks when a thread is switched
/// *to*: the stack is the one with which the thread was switched out before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchEvidence {
    /// The time of the switch to the thread.
    pub time: FileTime,
    /// The age of the switch at the requested time, in units of 100 ns; negative if the switch came
    /// later.
    pub age: i64,
    /// The relation of the switch to the requested time.
    pub relation: SwitchRelation,
    /// Whether events are missing between the two times: the thread may have been switched
    /// meanwhile.
    pub lost_between: bool,
}

/// The relation of a switch with a stack to the requested time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwitchRelation {
    /// The last switch of the thread up to the requested time: it was switched to and has been
    /// running since.
    Last,
    /// The thread had been switched out by the requested time and came back later with this stack:
    /// it did not run in between, so this was its stack.
    Resumed,
    /// An earlier switch: the thread has run since, and none of its later switches has a stack.
    Earlier {
        /// The number of later switches to or from the thread up to the requested time.
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

    /// A stack with which the thread came back is inferred for the time before; the others were
    /// observed at their stated time.
    pub fn certainty(self) -> Certainty {
        match self {
            SwitchRelation::Last | SwitchRelation::Earlier { .. } => Certainty::Observed,
            SwitchRelation::Resumed => Certainty::Inferred,
        }
    }
}

/// The state of a thread at the requested time, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ThreadState {
    /// No event shows the state.
    #[default]
    Unknown,
    /// The thread runs on a processor.
    Running {
        /// Start of the state.
        since: Option<FileTime>,
    },
    /// The thread is ready to run, but the processor runs another thread.
    Ready {
        /// Start of the state.
        since: Option<FileTime>,
    },
    /// The thread waits.
    Waiting {
        /// Start of the state.
        since: Option<FileTime>,
        /// The wait reason, as the system spells it.
        reason: Option<Cow<'static, str>>,
    },
    /// The thread has ended but still exists.
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

    /// The start of the state, if it is known.
    pub fn since(&self) -> Option<FileTime> {
        match *self {
            ThreadState::Running { since }
            | ThreadState::Ready { since }
            | ThreadState::Waiting { since, .. } => since,
            ThreadState::Unknown | ThreadState::Ended => None,
        }
    }
}
