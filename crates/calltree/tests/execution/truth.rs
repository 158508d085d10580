//! What a correct tracker must find in a generated execution.

use stackhound_calltree::ContextId;
use stackhound_calltree::tracker::Counts;
use stackhound_calltree::{EndType, StartType};
use stackhound_types::Address;

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// How many transitions there were.
    pub transitions: u64,
    /// All stacks, in the order in which they were active first.
    pub stacks: Vec<TrueStack>,
    /// Which stack was active, from when on.
    pub active: Vec<Active>,
    /// What is no frame.
    pub counts: Counts,
}

/// A stack that was active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrueStack {
    /// Its frames in the order in which they started, but see [`TrueFrame::below`].
    pub frames: Vec<TrueFrame>,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueFrame {
    /// Its first context.
    pub first: ContextId,
    /// Its last context; the last one of the trace if it was still open.
    pub last: ContextId,
    /// How it started.
    pub start: StartType,
    /// How it ended.
    pub end: EndType,
    /// Its function, where that can be known.
    pub function: Option<Address>,
    /// It is older than the trace, and was found by a return into it. Such frames are listed when they are found, and
    /// lie around all that is listed before.
    pub below: bool,
}

/// A period of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Its first context.
    pub first: ContextId,
    /// The stack, by its place in [`Truth::stacks`]; `None` while none was known.
    pub stack: Option<usize>,
}
