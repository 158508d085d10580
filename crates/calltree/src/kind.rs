//! Kinds of stacks and frames, and the certainty of observations.

use std::fmt;

use strum::{IntoStaticStr, VariantArray};

use crate::id::ContextId;

/// How a frame started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "kebab-case")]
pub enum StartType {
    /// By a call instruction or a system call.
    Call = 0,
    /// By an interrupt, an exception or a signal.
    Interrupt = 1,
    /// Created while its stack was not active, or by the system: callbacks from the kernel, signal
    /// handlers.
    Manual = 2,
    /// A substitute for frames whose return addresses were changed while their stack was not
    /// active.
    Damaged = 3,
    /// The frame exists, but its start was not observed.
    Unknown = 4,
}

impl StartType {
    /// All values, indexed by their numbers in files.
    pub(crate) const ALL: &[Self] = Self::VARIANTS;
}

/// How a frame ended. These names are specific to this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "kebab-case")]
pub enum EndType {
    /// A return instruction, to the return address of the call.
    Return = 0,
    /// A return instruction consumed the return address of the frame, but led elsewhere.
    ReturnElsewhere = 1,
    /// A return from an interrupt or a signal. In the exact trace of a system: any return to user mode.
    InterruptReturn = 2,
    /// The stack pointer rose above the frame without a return: `longjmp`, an exception.
    Unwound = 3,
    /// The stack became active again with another return address.
    Replaced = 4,
    /// The memory of the stack was released or reused, or its thread ended.
    Abandoned = 5,
    /// Still open at the end of the trace. This is not an event.
    TraceEnd = 6,
    /// In an event trace: a later snapshot does not contain it.
    Gone = 7,
}

impl EndType {
    /// All values, indexed by their numbers in files.
    pub(crate) const ALL: &[Self] = Self::VARIANTS;
}

/// The use of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "kebab-case")]
pub enum StackKind {
    /// A thread's stack in user mode.
    User = 0,
    /// A thread's stack in the kernel.
    Kernel = 1,
    /// The interrupt service routines of a processor.
    Interrupt = 2,
    /// The deferred procedure calls of a processor.
    Deferred = 3,
    /// A stack for signal handlers, or a stack to which a program switched by itself.
    Alternate = 4,
    /// The stack for 64-bit code of a thread in a 32-bit process, in addition to the 32-bit user
    /// stack.
    Wow64 = 5,
}

impl StackKind {
    /// All values, indexed by their numbers in files.
    pub(crate) const ALL: &[Self] = Self::VARIANTS;

    /// Whether it is a stack of a processor, whose activity begins and ends with interrupts.
    pub fn is_of_processor(self) -> bool {
        matches!(self, Self::Interrupt | Self::Deferred)
    }
}

/// The context of a start or an end, and its certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Exactly this context.
    Observed(ContextId),
    /// A context from `lo` to `hi`. For a start, `hi` is the first context at which the frame was
    /// observed, and the frame did not exist before `lo`. For an end, `lo` is the last context at
    /// which it was observed, and `hi` is its last possible context.
    Inferred {
        /// The earliest context.
        lo: ContextId,
        /// The latest context.
        hi: ContextId,
    },
    /// For a start: before the trace, or before anything is known of the stack. For an end: not
    /// within the trace.
    Open,
}

impl Bound {
    /// The first and the last possible context. `None` if it is open.
    pub(crate) fn contexts(self) -> Option<(u64, u64)> {
        match self {
            Self::Observed(at) => Some((at.0, at.0)),
            Self::Inferred { lo, hi } => Some((lo.0, hi.0)),
            Self::Open => None,
        }
    }
}

/// The evidence for the existence of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "kebab-case")]
pub enum Evidence {
    /// Its call, its interrupt or its return was observed as an instruction.
    Exact = 0,
    /// Its start and its end are events of the trace: a system call, an interrupt routine.
    Boundary = 1,
    /// It was observed in recorded call stacks.
    Snapshot = 2,
    /// It was found by walking memory.
    Walked = 3,
    /// It was observed in a user stack that was recorded later than the event, and joined to it.
    Stitched = 4,
}

impl Evidence {
    /// All values, indexed by their numbers in files.
    pub(crate) const ALL: &[Self] = Self::VARIANTS;
}

/// Whether all observations of a frame are known to be the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Continuity {
    /// The frame was observed continuously from its start to its end.
    Observed,
    /// The frame was observed more than once. Between two observations, the function may have
    /// returned and been called again.
    Assumed,
}

/// A count that can be a lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// The exact number.
    Exactly(u64),
    /// The observed number; there may have been more.
    AtLeast(u64),
    /// The observed number. Some of the observations may be the same call, observed again after an
    /// interruption. There may also have been calls that were not observed.
    Between {
        /// The minimum number.
        least: u64,
        /// The observed number.
        seen: u64,
    },
}

impl StartType {
    /// Returns the name that is used in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl EndType {
    /// Returns the name that is used in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl StackKind {
    /// Returns the name that is used in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Evidence {
    /// Returns the name that is used in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Continuity {
    /// Returns the name that is used in all output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Count {
    /// Returns the observed number.
    pub fn number(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::Between { seen: number, .. } => number,
        }
    }

    /// Returns the minimum number.
    pub fn least(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) | Self::Between { least: number, .. } => number,
        }
    }

    /// Whether there may have been more than the observed number.
    pub fn is_lower_bound(self) -> bool {
        !matches!(self, Self::Exactly(_))
    }
}

/// For example `12`, `>=12` if there may have been more, or `3..12` if some may be the same call.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "{number}"),
            Self::AtLeast(number) => write!(f, ">={number}"),
            Self::Between { least, seen } => write!(f, "{least}..{seen}"),
        }
    }
}

/// For example `#5`, `#5..#9` if it was inferred, or `???`.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(context) => write!(f, "#{}", context.0),
            Self::Inferred { lo, hi } => write!(f, "#{}..#{}", lo.0, hi.0),
            Self::Open => f.write_str("???"),
        }
    }
}
