//! The stack model: at every point of a trace, which functions were being executed on which stack, who called them, and
//! what they called.
//!
//! A [`Trace`] is a sequence of transitions with a [`Context`] between any two. At a context, a processor has an active
//! [`Stack`]; a stack has [`Frame`]s; a frame has a parent, children, [events](StackEvent) below it and ranges of
//! contexts in which it was executed. Frames come from exact traces, where every call was seen, or from recordings that
//! show the stacks now and then; what was observed and what was inferred are told apart ([`Bound`], [`Continuity`],
//! [`Count`]).
//!
//! Traces are made by a [`Builder`] from [`Change`]s and kept in an index that is read where it lies. The crate knows
//! nothing of where changes come from.
#![forbid(unsafe_code)]

mod builder;
mod change;
mod class;
mod distinct;
mod error;
mod frame;
mod id;
mod index;
pub mod journal;
mod kind;
mod location;
mod pattern;
mod succinct;
mod trace;
pub mod tracker;

pub use builder::{Builder, LabelId};
pub use change::{Change, LocationInfo, ModuleInfo, StackInfo};
pub use error::Error;
pub use frame::{CallRange, CallRanges, Frame, StackEvent, StackEvents};
pub use id::{ContextId, Cpu, FrameId, LocationId, ModuleId, StackId, TransitionId};
pub use kind::{Bound, Continuity, Count, EndType, Evidence, StackKind, StartType};
pub use location::{Location, Module, Name};
pub use pattern::Pattern;
pub use trace::{Axis, Context, ContextRange, Stack, Trace, Transition, TransitionKind};
