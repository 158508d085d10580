//! The model of a stack frame, which all sources and detections share.
//!
//! [`Frame`] contains what is known about an address on a stack: its [`Code`], the module and the
//! [roles](Role) that the [`Lists`] assign to it, and its [`Region`]. [`FrameResolver`] resolves
//! the addresses of a trace to frames, in the address space of the [`StackOwner`]. [`Summary`]
//! reduces a stack to its modules. [`Policy`] decides which events get stacks and how much of them
//! is named. [`CreateJoin`] joins requests to create files with their results, [`CallJoin`] the
//! entries of system calls with their exits.
//!
//! This crate depends on events, stacks and the state of the machine. It must not depend on
//! verdicts or output.
#![forbid(unsafe_code)]

mod cache;
mod calls;
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
mod runtime;
mod summary;
pub mod wow64;

pub use calls::{CallEnd, CallJoin, CallOutcome, CallStats, ServiceKind};
pub use creates::{
    CreateDisposition, CreateEnd, CreateEnds, CreateJoin, CreateOutcome, CreateResult, CreateStats,
};
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

type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;
