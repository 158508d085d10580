//! Windows trace events with the call stacks that caused them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound::{Passes, Pipeline, trace::Recordings};
//!
//! # fn main() -> Result<(), stackhound::trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = Recordings::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two);
//! pipeline.run(|event| {
//!     println!("{} {:?} {}", event.name(), event.process_name(), event.state().name());
//!     for frame in event.frames() {
//!         println!("    {frame}");
//!     }
//!     ControlFlow::Continue(())
//! });
//! # Ok(())
//! # }
//! ```
//!
//! A [`Pipeline`] joins the stages: [`trace`] reads and orders, [`stacks`] attributes, [`system`] knows what was loaded
//! where, [`schema`] says what payloads mean. Each is a crate of its own and can be used alone.
//!
//! [`open_stacks`] opens a file for its call trees: see [`calltree`].
//!
//! # Features
//!
//! All are on by default. Without them, the library is Rust alone: no C compiler, no TLS.
//!
//! | feature | what it adds |
//! |---|---|
//! | `download` | files of symbol servers, by HTTP; without it they count as [`symbols::Cause::NotBuilt`] |
//! | `pdb` | names, lines and inlined functions of PDB files; without it, exports are named |
//! | `profile` | `profile` and `export`: profiles for other tools |
//! | `windows` | on Windows: live sessions, memory of processes, the driver, the Debug Help library |
#![forbid(unsafe_code)]

mod calls;
mod consumer;
#[cfg(feature = "profile")]
pub mod profile;
pub mod testing;

pub use calls::{OpenStacksError, StacksFrom, open_stacks};
pub use consumer::{
    Error, EventError, EventFilter, IntoOutcome, KeptEvent, Provider, Running, StopHandle, Subscription,
    Trace, TraceStats,
};
pub use stackhound_calltree as calltree;
pub use stackhound_detect as detect;
pub use stackhound_etl as etl;
pub use stackhound_etl::{Clock, ClockKind};
#[cfg(feature = "profile")]
pub use stackhound_export as export;
pub use stackhound_expr as expr;
pub use stackhound_expr::Filter;
pub use stackhound_frames as frames;
pub use stackhound_hunt as hunt;
pub use stackhound_live as live;
pub use stackhound_pipeline::{
    Counted, Depth, Enrichment, EventView, FrameView, Label, NameOrigin, Naming, Outcome, Passes, Pipeline,
    Predicate, SchemaRef, ShownName, TraceState, pred,
};
#[cfg(all(windows, feature = "windows"))]
pub use stackhound_pipeline::{
    describe_provider_of_the_system, find_provider_of_the_system, providers_of_the_system,
};
pub use stackhound_schema as schema;
pub use stackhound_stacks as stacks;
pub use stackhound_symbols as symbols;
pub use stackhound_system as system;
pub use stackhound_threads as threads;
pub use stackhound_timeline::Counts as TimelineCounts;
pub use stackhound_timeline::etw::{Stacks, TimelineReport, timeline};
pub use stackhound_trace as trace;
pub use stackhound_types as types;
pub use stackhound_types::{Address, FileTime, Guid, Mode, Pid, PointerSize, RawTime, TICKS_PER_SECOND, Tid};

/// Has the examples of the page compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/filters.md")]
struct Page;
