//! Windows trace events with the call stacks that caused them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound::{Passes, Pipeline, trace::TraceFiles};
//!
//! # fn main() -> Result<(), stackhound::trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
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
//! A [`Pipeline`] joins the stages: [`trace`] reads and orders events, [`stacks`] attributes stacks
//! to events, [`system`] tracks processes and modules, and [`schema`] decodes payloads. Each is a
//! separate crate and can be used alone.
//!
//! [`open_stacks`] opens the call trees of a file: see [`calltree`]. [`CallProfile`] has their functions as a profile.
//!
//! # Profiles
//!
//! [`analysis`] measures what threads did, and collects profiles, which [`export`] writes:
//!
//! ```
//! use std::fs::File;
//! use std::ops::ControlFlow;
//! use stackhound::analysis::{Collector, Limits};
//! use stackhound::{Enrichment, Passes, Pipeline, export, trace::TraceFiles};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two).with(Enrichment::default());
//! let mut collector = Collector::new("trace.etl".to_owned(), &trace, None, Limits::default());
//! let mut full = Ok(());
//! pipeline.run(|event| {
//!     full = collector.observe(event, || event.process_name() == Some("notepad.exe"));
//!     if full.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
//! });
//! full?;
//! let (known, _, naming) = pipeline.parts();
//! collector.end_capture(known, naming);
//! let (profile, _) = collector.finish();
//! export::speedscope::write(&profile, &mut File::create("trace.speedscope.json")?)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! All are enabled by default. Without them, the library is pure Rust and needs neither a C
//! compiler nor TLS.
//!
//! | feature | adds |
//! |---|---|
//! | `authenticode` | checks of signatures and hashes in [`images`] |
//! | `download` | downloads from symbol servers; else reported as [`symbols::Cause::NotBuilt`] |
//! | `pdb` | names, lines and inlined functions from PDB files; without it, only exports |
//! | `profile` | the modules `analysis`, `profile` and `export`: analyses, and profiles for other tools |
//! | `windows` | on Windows: live sessions, process memory, the driver, the Debug Help library |
#![forbid(unsafe_code)]

#[cfg(feature = "profile")]
mod call_profile;
mod calls;
mod consumer;
mod kept;
pub mod testing;

#[cfg(feature = "profile")]
pub use call_profile::{CallPath, CallProfile};
pub use calls::{OpenStacksError, StacksFrom, open_stacks};
pub use consumer::{
    Error, EventError, EventFilter, IntoOutcome, KeptEvent, Provider, Running, StopHandle, Subscription,
    Trace, TraceStats,
};
#[cfg(feature = "profile")]
pub use stackhound_analysis as analysis;
pub use stackhound_calltree as calltree;
pub use stackhound_detect as detect;
pub use stackhound_etl as etl;
pub use stackhound_etl::{Clock, ClockKind};
#[cfg(feature = "profile")]
pub use stackhound_export as export;
pub use stackhound_expr as expr;
pub use stackhound_expr::Filter;
pub use stackhound_facts as facts;
pub use stackhound_frames as frames;
pub use stackhound_hunt as hunt;
pub use stackhound_images as images;
pub use stackhound_live as live;
pub use stackhound_pipeline::{
    Counted, Depth, Enrichment, EventNameId, EventNumbers, EventView, Fact, FactSubject, FilterField,
    FrameView, InlineLabel, Label, Missing, MissingCounts, NameOrigin, Naming, Outcome, Passes, Pipeline,
    Predicate, ProcessView, RegistrySubject, SchemaRef, ShownName, Target, ThreadStart, TraceState, cut,
    pred, visit_fact,
};
#[cfg(all(windows, feature = "windows"))]
pub use stackhound_pipeline::{
    describe_provider_of_the_system, find_provider_of_the_system, providers_of_the_system,
};
#[cfg(feature = "profile")]
pub use stackhound_profile as profile;
pub use stackhound_rules as rules;
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

/// Compiles and runs the examples of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/filters.md")]
struct Page;
