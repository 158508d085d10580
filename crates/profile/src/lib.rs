//! Profiles: what threads did, with the stacks that did it.
//!
//! A [`ProfileBuilder`] collects processes, threads, modules, frames and stacks, each once, and
//! samples, context switches and markers, and builds a [`Profile`]. Names become text on one line
//! without control characters when they are added.
//!
//! [`Groups`] sums what was observed with stacks, by module or function. [`Patterns`] group, fold and
//! select the frames of stacks. A [`Butterfly`] has the callers and callees of a function.
//!
//! This crate does not know where the parts come from, and no formats.
#![forbid(unsafe_code)]

mod builder;
mod butterfly;
mod model;
mod patterns;
mod profile;
mod regroup;
mod samples;
mod totals;

pub use builder::{Full, ProfileBuilder};
pub use butterfly::Butterfly;
pub use model::{
    CodeKind, Frame, FrameId, FrameName, InlineName, Marker, MarkerKind, MarkerKindId, Module, ModuleId,
    ModuleOffset, Nanos, Origin, Process, ProcessId, Sample, SourceLine, StackId, Switch, SwitchReason,
    TextId, Thread, ThreadId, Timing, Unit,
};
pub use patterns::{
    PATTERN_LENGTH_MAX, PATTERNS_MAX, PRESETS, Pattern, PatternError, Patterns, Preset, preset,
};
pub use profile::{MarkerRecord, Node, Profile};
pub use regroup::Regrouped;
pub use totals::{Grouping, Groups, Sums, Total};
