//! The results that a correct tracker must find in a generated execution.

use stackhound_calltree::ContextId;
use stackhound_calltree::tracker::Counts;
use stackhound_calltree::{EndType, StartType};
use stackhound_types::Address;

/// The truth about an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// The number of transitions.
    pub transitions: u64,
    /// All stacks, in the order of their first activity.
    pub stacks: Vec<TrueStack>,
    /// The active stacks, with their first contexts.
    pub active: Vec<Active>,
    /// All jumps that left a function for another one, which returns in its place.
    pub jumps: Vec<TrueJump>,
    /// Counts of events without frames.
    pub counts: Counts,
}

/// A stack that was active.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrueStack {
    /// Its frames in the order in which they started, except for [`TrueFrame::below`].
    pub frames: Vec<TrueFrame>,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueFrame {
    /// Its first context.
    pub first: ContextId,
    /// Its last context, or the last context of the trace if it is still open.
    pub last: ContextId,
    /// How it started.
    pub start: StartType,
    /// How it ended.
    pub end: EndType,
    /// Its function, if it can be known.
    pub function: Option<Address>,
    /// The frame is older than the trace and was found by a return into it. Such frames are listed
    /// when they are found, and contain all frames that are listed before.
    pub below: bool,
}

/// A jump by which a frame continues in another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrueJump {
    /// The stack, by its index in [`Truth::stacks`].
    pub stack: usize,
    /// The first context in the other function.
    pub first: ContextId,
    /// The function in which the frame started, or that the last jump led to, if it can be known.
    pub from: Option<Address>,
    /// The other function.
    pub function: Address,
}

/// A period of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Its first context.
    pub first: ContextId,
    /// The stack, by its index in [`Truth::stacks`]. `None` if no active stack is known.
    pub stack: Option<usize>,
}
