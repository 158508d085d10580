//! What frames and stacks can be, and how well something is known.

use std::fmt;

use crate::id::ContextId;

/// How a frame started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StartType {
    /// By a call instruction, or, in a recording, by what counts as one (a system call).
    Call = 0,
    /// By an interrupt, an exception or a signal.
    Interrupt = 1,
    /// Set up while its stack was not the active one, or by the system: callbacks from the kernel, signal handlers.
    Manual = 2,
    /// Stands for frames whose return addresses were changed while their stack was not active.
    Damaged = 3,
    /// It is there, but its start was not seen.
    Unknown = 4,
}

impl StartType {
    /// All of them, by their numbers in files.
    pub(crate) const ALL: [Self; 5] =
        [Self::Call, Self::Interrupt, Self::Manual, Self::Damaged, Self::Unknown];
}

/// How a frame ended. These names are this project's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndType {
    /// A return instruction, to the address the call had left.
    Return = 0,
    /// A return instruction took the frame's return address away, but led elsewhere.
    ReturnElsewhere = 1,
    /// A return from an interrupt or a signal.
    InterruptReturn = 2,
    /// The stack pointer rose above the frame without a return: `longjmp`, an exception.
    Unwound = 3,
    /// The stack became active again and the return address was another one.
    Replaced = 4,
    /// The stack's memory was given up or used for something else, or its thread ended.
    Abandoned = 5,
    /// Still open at the end of the trace. This is no event.
    TraceEnd = 6,
    /// In a recording: a later snapshot no longer shows it.
    Gone = 7,
}

impl EndType {
    /// All of them, by their numbers in files.
    pub(crate) const ALL: [Self; 8] = [
        Self::Return,
        Self::ReturnElsewhere,
        Self::InterruptReturn,
        Self::Unwound,
        Self::Replaced,
        Self::Abandoned,
        Self::TraceEnd,
        Self::Gone,
    ];
}

/// What a stack is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StackKind {
    /// A thread's stack in user mode.
    User = 0,
    /// A thread's stack in the kernel.
    Kernel = 1,
    /// What a processor does in interrupt service routines.
    Interrupt = 2,
    /// What a processor does in deferred procedure calls.
    Deferred = 3,
    /// A stack for signal handlers, or one a program switches to by itself.
    Alternate = 4,
    /// The stack of 64-bit code of a thread of a 32-bit program, beside its user stack, which is the 32-bit one.
    Wow64 = 5,
}

impl StackKind {
    /// All of them, by their numbers in files.
    pub(crate) const ALL: [Self; 6] =
        [Self::User, Self::Kernel, Self::Interrupt, Self::Deferred, Self::Alternate, Self::Wow64];
}

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Exactly here.
    Observed(ContextId),
    /// Somewhere from `lo` to `hi`. For a start: `hi` is the first context at which the frame was seen, and it was not
    /// there before `lo`. For an end: `lo` is the last context at which it was seen, `hi` the last one it can have had.
    Inferred {
        /// The earliest context.
        lo: ContextId,
        /// The latest context.
        hi: ContextId,
    },
    /// Before the trace or before anything is known of the stack; for ends, not within the trace.
    Open,
}

/// What a frame's existence rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Evidence {
    /// Its call, its interrupt or its return was seen as an instruction.
    Exact = 0,
    /// Both its ends are events of the recording: a system call, an interrupt routine.
    Boundary = 1,
    /// It was seen in recorded call stacks.
    Snapshot = 2,
    /// It was found by walking memory.
    Walked = 3,
    /// It was seen in a user part that was recorded later than the event, and joined to it.
    Stitched = 4,
}

impl Evidence {
    /// All of them, by their numbers in files.
    pub(crate) const ALL: [Self; 5] =
        [Self::Exact, Self::Boundary, Self::Snapshot, Self::Walked, Self::Stitched];
}

/// Whether a frame is known to be the same one all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Continuity {
    /// Nothing between its ends went unseen.
    Observed,
    /// It was seen more than once; between two of those times the function may have returned and been called again.
    Assumed,
}

/// A number that may be a lower bound only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// So many.
    Exactly(u64),
    /// So many were seen; there may have been more.
    AtLeast(u64),
    /// So many were seen, and some of them may be the same one, seen again after it was lost sight of. There may have been
    /// more that were not seen.
    Between {
        /// They are no fewer than this.
        least: u64,
        /// How many were seen.
        seen: u64,
    },
}

impl StartType {
    /// As it is written in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Interrupt => "interrupt",
            Self::Manual => "manual",
            Self::Damaged => "damaged",
            Self::Unknown => "unknown",
        }
    }
}

impl EndType {
    /// As it is written in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::ReturnElsewhere => "return-elsewhere",
            Self::InterruptReturn => "interrupt-return",
            Self::Unwound => "unwound",
            Self::Replaced => "replaced",
            Self::Abandoned => "abandoned",
            Self::TraceEnd => "trace-end",
            Self::Gone => "gone",
        }
    }
}

impl StackKind {
    /// As it is written in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Interrupt => "interrupt",
            Self::Deferred => "deferred",
            Self::Alternate => "alternate",
            Self::Wow64 => "wow64",
        }
    }
}

impl Evidence {
    /// As it is written in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Boundary => "boundary",
            Self::Snapshot => "snapshot",
            Self::Walked => "walked",
            Self::Stitched => "stitched",
        }
    }
}

impl Continuity {
    /// As it is written in all output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Assumed => "assumed",
        }
    }
}

impl Count {
    /// How many were seen.
    pub fn number(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::Between { seen: number, .. } => number,
        }
    }

    /// How many there were at the least.
    pub fn least(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::Between { least: number, .. } => number,
        }
    }

    /// Whether there may have been more than were seen.
    pub fn is_lower_bound(self) -> bool {
        !matches!(self, Self::Exactly(_))
    }
}

/// As in `12`, `>=12` where there may have been more, or `3..12` where some may be the same.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "{number}"),
            Self::AtLeast(number) => write!(f, ">={number}"),
            Self::Between { least, seen } => write!(f, "{least}..{seen}"),
        }
    }
}

/// As in `#5`, `#5..#9` where it was inferred, and `???`.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(context) => write!(f, "#{}", context.0),
            Self::Inferred { lo, hi } => write!(f, "#{}..#{}", lo.0, hi.0),
            Self::Open => f.write_str("???"),
        }
    }
}
