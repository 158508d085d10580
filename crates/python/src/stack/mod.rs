//! `stackhound.stack`: stacks, frames, what happens below them, and where their functions are.

mod call_range;
mod event;
mod frame;
mod location;
#[allow(clippy::module_inception)]
mod stack;

pub(crate) use call_range::CallRange;
pub(crate) use event::{FrameEnd, FrameStart, StackEnter, StackEventIterator, StackLeave};
pub(crate) use frame::StackFrame;
pub(crate) use location::{Binary, Location};
pub(crate) use stack::Stack;
