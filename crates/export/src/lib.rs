//! Profiles in the formats of the tools that people look at them with, call trees, and findings.
//!
//! A [`ProfileBuilder`] collects processes, threads, stacks, samples, context switches and markers; the [`Profile`] that
//! it becomes is written by one function a format:
//!
//! | module | for |
//! |---|---|
//! | [`firefox`] | profiler.firefox.com |
//! | [`flamegraph`] | any browser, as a picture |
//! | [`folded`] | scripts, and everything that draws flame graphs |
//! | [`perfetto`] | ui.perfetto.dev and its trace processor |
//! | [`speedscope`] | speedscope.app |
//!
//! The calls of a trace around one frame, and all else that its stack model tells, are written by [`tree`]; what evaluating
//! stacks found by [`findings`].
//!
//! Names are untrusted: [`escape`] makes them safe for each kind of output, and everything goes through it.
//!
//! Every sample's weight is in every format: they add up to [`Profile::weight`]. The same profile gives the same bytes.
//!
//! This crate knows neither recordings nor how names of frames are found, and opens no files.
#![forbid(unsafe_code)]

mod builder;
pub mod escape;
pub mod findings;
pub mod firefox;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
pub mod folded;
pub mod json;
mod model;
pub mod perfetto;
mod profile;
pub mod speedscope;
pub mod tree;

pub use builder::{Full, ProfileBuilder};
pub use model::{
    Frame, FrameId, FrameName, Marker, MarkerKind, MarkerKindId, Module, ModuleId, ModuleOffset, Nanos,
    Origin, Process, ProcessId, Sample, SourceLine, StackId, Switch, SwitchReason, TextId, Thread, ThreadId,
    Timing,
};
pub use profile::Profile;
