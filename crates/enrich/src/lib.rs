//! What a stack means.
//!
//! [`Policy`] says which events get stacks and how much of them is named. [`StackOwner`] says whose stack it is,
//! [`Frames`] in which module and what memory each of its frames lies, [`Summary`] what that comes down to. [`CreateJoin`]
//! says what became of files that were asked for.
//!
//! Knows events, stacks and the state of the machine. Must not know verdicts or output.
#![forbid(unsafe_code)]

mod cache;
mod creates;
mod creator;
mod decide;
mod frame;
mod native;
mod operation;
mod pattern;
mod policy;
mod region;
mod summary;

pub use cache::FrameCache;
pub use creates::{CreateEnd, CreateJoin, CreateOutcome, CreateStats, Disposition, Happened};
pub use creator::StackOwner;
pub use decide::{Decisions, EventNames};
pub use frame::{Backing, First, Frame, Frames, Mode};
pub use pattern::{EventPattern, PatternError};
pub use policy::{KernelSymbols, Level, OPEN, Origin, Policy, PolicyText, Setting};
pub use region::{Region, RegionKind, RegionSource};
pub use summary::{Answer, FinalUser, Summary};
