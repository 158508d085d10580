//! The input: one [`StackEvent`] for each event of a trace, in time order.

use std::sync::Arc;

use stackhound_calltree::{Cpu, LocationId};
use stackhound_types::Tid;

use crate::thread::UserMode;

/// The stack-related part of an event. The `n`th one is transition `n` of the model, and context
/// `n` is the state just before it.
#[derive(Clone, Debug, Default)]
pub struct StackEvent {
    /// The time, in ticks of the trace's clock.
    pub time: i64,
    /// The processor that logged the event; `None` if the session did not use per-processor
    /// buffers.
    pub cpu: Option<Cpu>,
    /// The running thread, if the event or its stack states it; not the thread that the event
    /// describes. 0 is the idle thread of the processor.
    pub thread: Option<Tid>,
    /// The effect of the event on threads and processors.
    pub what: EventKind,
    /// The thread's stack just before the event; for a context switch, the new thread's.
    pub stack: Option<Arc<Snapshot>>,
}

/// The effect of an event on stacks, in addition to its recorded stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// The running thread enters a system call.
    SystemCallEnter {
        /// The start of the kernel's routine.
        routine: Option<LocationId>,
    },
    /// The running thread is about to return from a system call.
    SystemCallExit,
    /// A context switch.
    Switch {
        /// The thread that is switched out.
        old: Tid,
        /// The thread that is switched in.
        new: Tid,
        /// Whether the old thread waits, and so is in the kernel; `false` if it was preempted.
        old_waits: bool,
    },
    /// An interrupt service routine or a deferred procedure call has ended.
    Interrupted {
        /// Which of the two.
        by: Interruption,
        /// The start time, in ticks of the trace's clock.
        since: i64,
        /// The start of the routine.
        routine: Option<LocationId>,
    },
    /// A thread was created.
    ThreadStart(Tid),
    /// A thread begins to terminate. It runs until it is switched out.
    ThreadEnd(Tid),
    /// Any other event.
    #[default]
    Other,
}

/// The kinds of interruptions of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// An interrupt service routine.
    Service,
    /// A deferred procedure call.
    Deferred,
}

/// A stack that was recorded with an event. Shared by all events with an equal stack.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The kernel part.
    pub kernel: Part,
    /// The part of 64-bit code in a thread of a 32-bit program. It is on a separate stack, and is
    /// called by the user part.
    pub wow64: Part,
    /// The user part.
    pub user: Part,
}

impl Snapshot {
    /// The part of a stack in user mode.
    pub(crate) fn in_user_mode(&self, mode: UserMode) -> Option<&[SampledFrame]> {
        match mode {
            UserMode::Plain => self.user.frames(),
            UserMode::Wow64 => self.wow64.frames(),
        }
    }

    /// The stack on which the innermost frame of user mode is.
    pub(crate) fn innermost_user_mode(&self) -> Option<UserMode> {
        [UserMode::Wow64, UserMode::Plain].into_iter().find(|&mode| self.in_user_mode(mode).is_some())
    }
}

/// One part of a recorded stack.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Part {
    /// There is no such part: the event happened in user mode, or the thread has none.
    Absent,
    /// There may be such a part, but it was not recorded completely.
    #[default]
    Unknown,
    /// All frames, outermost first.
    Frames(Box<[SampledFrame]>),
}

impl Part {
    pub(crate) fn frames(&self) -> Option<&[SampledFrame]> {
        match self {
            Part::Frames(frames) => Some(frames),
            Part::Absent | Part::Unknown => None,
        }
    }
}

/// A frame in a recorded stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledFrame {
    /// The return address into this function; for the innermost frame, the instruction pointer.
    pub address: u64,
    /// The identity of the function: its start if that is known, and otherwise only the module, so
    /// that all its unknown functions count as one. Two addresses in one function must never look
    /// like two functions.
    pub function: Option<LocationId>,
    /// Whether it calls back into user mode, so that the user stack further in differs from that at
    /// the entry into the kernel.
    pub calls_back: bool,
    /// The location to show: the function's start, or this address if the start is not known.
    pub location: Option<LocationId>,
}
