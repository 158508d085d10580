//! What a stack means.
//!
//! [`Policy`] says which events get stacks and how much of them is named. [`StackOwner`] says whose stack it is,
//! [`Frames`] in which module and what memory each of its frames lies.
//!
//! Knows events, stacks and the state of the machine. Must not know verdicts or output.
#![forbid(unsafe_code)]

mod creator;
mod decide;
mod frame;
mod pattern;
mod policy;
mod region;

pub use creator::StackOwner;
pub use decide::{Decisions, EventNames};
pub use frame::{Backing, Frame, Frames, Mode};
pub use pattern::{EventPattern, PatternError};
pub use policy::{KernelSymbols, Level, OPEN, Origin, Policy, PolicyText, Setting};
pub use region::{Region, RegionKind, RegionSource};
