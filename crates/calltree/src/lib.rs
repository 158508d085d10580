//! The call tree model: which functions are executing on which stack at every point of a trace,
//! their callers and their callees.
//!
//! A [`Trace`] is a sequence of transitions with a [`Context`] between each pair. At a context, a
//! processor has an active [`Stack`]; a stack has [`Frame`]s; a frame has a parent, children,
//! [events](StackEvent) below it and ranges of contexts in which it was executing. Frames come from
//! exact traces, where every call was observed, or from event traces, which sample stacks.
//! [`Bound`], [`Continuity`] and [`Count`] distinguish observation from inference.
//!
//! A [`Builder`] makes traces from [`Change`]s. A trace is an index that is queried in place,
//! without loading it. The crate does not produce changes: it does not read event traces and does
//! not follow programs.
#![forbid(unsafe_code)]

mod activity;
mod builder;
mod change;
mod class;
mod distinct;
mod error;
mod fold;
mod frame;
mod id;
mod index;
pub mod journal;
mod kind;
mod location;
mod pattern;
mod stepping;
mod succinct;
mod tail_call;
mod trace;
pub mod tracker;
mod varint;

pub use activity::{Activity, GroupBy, StackGroup};
pub use builder::{Builder, LabelId};
pub use change::{Change, LocationInfo, ModuleInfo, StackInfo};
pub use error::Error;
pub use frame::{CallRange, CallRanges, Frame, StackEvent, StackEvents};
pub use id::{ContextId, Cpu, FrameId, LocationId, ModuleId, StackId, TransitionId};
pub use kind::{Bound, Continuity, Count, EndType, Evidence, StackKind, StartType};
pub use location::{Location, Module, Name};
pub use pattern::Pattern;
pub use tail_call::TailCall;
pub use trace::{Axis, Context, ContextRange, Stack, Trace, Transition, TransitionKind};
