//! The one model of a frame, and what a stack means.
//!
//! [`Frame`] says what is known of an address on a stack: its [`Code`], the module and the [roles](Role) that the [`Lists`]
//! give it, its [`Region`]. [`FrameResolver`] makes frames of the addresses of a trace, in the address space of the
//! [`StackOwner`]. [`Summary`] says what a stack comes down to. [`Policy`] says which events get stacks and how much of them
//! is named. [`CreateJoin`] says how requests to create files ended.
//!
//! Knows events, stacks and the state of the machine. Must not know verdicts or output.
#![forbid(unsafe_code)]

mod cache;
mod creates;
mod creator;
mod decide;
mod frame;
pub mod lists;
mod module;
mod operation;
mod pattern;
mod policy;
mod process;
mod region;
mod resolve;
mod summary;
pub mod wow64;

pub use creates::{CreateDisposition, CreateEnd, CreateJoin, CreateOutcome, CreateResult, CreateStats};
pub use creator::StackOwner;
pub use decide::{Decisions, EventNames};
pub use frame::{Backing, Code, Frame};
pub use lists::{Lists, Operation};
pub use module::{LoadedModule, Module, ModuleFacts, ModuleIndex, Modules, Role, Roles, identity};
pub use pattern::{EventPattern, PatternError};
pub use policy::{KernelSymbols, Level, OPEN, Origin, Policy, PolicyText, Setting};
pub use process::{CHANGES_MAX, ProcessContext};
pub use region::{Region, RegionKind, RegionSource};
pub use resolve::{First, FrameResolver, Frames, addresses};
pub use summary::{Answer, Summary, final_user_frame};
