//! What goes in: one stack_event for each event of a recording, in the order of time.

use std::sync::Arc;

use stackhound_calltree::{Cpu, LocationId};
use stackhound_types::Tid;

use crate::thread::UserMode;

/// An event as far as it tells of stacks. The `n`th one is transition `n` of the trace, and context `n` is the state
/// just before it.
#[derive(Clone, Debug, Default)]
pub struct StackEvent {
    /// When, in ticks of the recording's clock.
    pub time: i64,
    /// The processor that logged it, if the recording keeps processors apart.
    pub cpu: Option<Cpu>,
    /// The thread that runs there, as far as the event itself or its stack tells: not whom the event is about. 0 is the
    /// idle thread of the processor.
    pub thread: Option<Tid>,
    /// EventKind happens.
    pub what: EventKind,
    /// The thread's stack just before the event; of a switch, the new thread's.
    pub stack: Option<Arc<Snapshot>>,
}

/// What an event tells of stacks beside the one that was recorded with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// The running thread enters the kernel by a system call.
    SystemCallEnter {
        /// The start of the kernel's routine.
        routine: Option<LocationId>,
    },
    /// The running thread is about to return from a system call.
    SystemCallExit,
    /// A processor goes from one thread to another.
    Switch {
        /// The thread that ran up to here.
        old: Tid,
        /// The thread that runs from here on.
        new: Tid,
        /// Whether the old one waits for something, and so is in the kernel, rather than having used up its time.
        old_waits: bool,
    },
    /// An interrupt service routine or a deferred procedure call has ended.
    Interrupted {
        /// Which of the two.
        by: Interruption,
        /// When it had started.
        since: i64,
        /// The start of the routine.
        routine: Option<LocationId>,
    },
    /// A thread was created.
    ThreadStart(Tid),
    /// A thread begins to end. It runs until it is switched away from.
    ThreadEnd(Tid),
    /// Anything else.
    #[default]
    Other,
}

/// What interrupts threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// An interrupt service routine.
    Service,
    /// A deferred procedure call.
    Deferred,
}

/// A stack that was recorded with an event. Shared by all events that have it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The kernel's part.
    pub kernel: Part,
    /// The part of 64-bit code, of a thread of a 32-bit program: it lies on a stack of its own, and is called by the
    /// user's part.
    pub wow64: Part,
    /// The user's part.
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

/// One half of a recorded stack.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Part {
    /// There is no such half: the event came in user mode, or the thread has none.
    Absent,
    /// There may be one, but not all of it was recorded.
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
    /// Its return address into this function; of the innermost frame, where the thread was.
    pub address: u64,
    /// What tells this function from others: its start where that is known. Where it is not, the module alone, so that
    /// all its unknown functions count as one: two places in one function must never look like two functions.
    pub function: Option<LocationId>,
    /// Whether it calls back into user mode, so that the user stack further in is another one than at the entry into
    /// the kernel.
    pub calls_back: bool,
    /// What to show: the function's start, or this place where that is not known.
    pub location: Option<LocationId>,
}
