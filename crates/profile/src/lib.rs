//! Profiles: what threads did, with the stacks that did it.
//!
//! A [`ProfileBuilder`] collects processes, threads, modules, frames and stacks, each once, and
//! samples, context switches and markers, and builds a [`Profile`]. Names become text on one line
//! without control characters when they are added.
//!
//! [`Groups`] sums what was observed with stacks, by module or function.
//!
//! This crate does not know where the parts come from, and no formats.
#![forbid(unsafe_code)]

mod builder;
mod model;
mod profile;
mod totals;

pub use builder::{Full, ProfileBuilder};
pub use model::{
    CodeKind, Frame, FrameId, FrameName, InlineName, Marker, MarkerKind, MarkerKindId, Module, ModuleId,
    ModuleOffset, Nanos, Origin, Process, ProcessId, Sample, SourceLine, StackId, Switch, SwitchReason,
    TextId, Thread, ThreadId, Timing,
};
pub use profile::{MarkerRecord, Node, Profile};
pub use totals::{Grouping, Groups, Sums, Total};
