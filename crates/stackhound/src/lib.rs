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
//! pipeline.run(|seen| {
//!     println!("{} {:?} {}", seen.name(), seen.process_name(), seen.state().name());
//!     for frame in seen.frames() {
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
mod enrichment;
mod filter;
mod frame;
pub mod hunt;
mod knowledge;
pub mod kstack;
mod label;
mod naming;
mod pipeline;
pub mod pred;
mod predicate;
#[cfg(feature = "profile")]
pub mod profile;
mod seen;
mod slots;
#[cfg(all(windows, feature = "windows"))]
mod system_schemas;
pub mod testing;
mod timeline;

pub use calls::{OpenStacksError, StacksFrom, open_stacks};
pub use consumer::{
    Error, EventError, IntoOutcome, KeptEvent, Provider, Running, StopHandle, Subscription, Trace, TraceStats,
};
pub use enrichment::{Depth, Enrichment};
pub use filter::EventFilter;
pub use frame::FrameView;
pub use knowledge::{Knowledge, SchemaRef};
pub use label::{Label, NameOrigin, ShownName};
pub use naming::Naming;
pub use pipeline::{Counted, Outcome, Passes, Pipeline};
pub use predicate::Predicate;
pub use seen::Seen;
pub use stackhound_calltree as calltree;
pub use stackhound_detect as detect;
pub use stackhound_etl as etl;
pub use stackhound_etl::{
    Address, Clock, ClockKind, FileTime, Guid, Pid, PointerSize, RawTime, TICKS_PER_SECOND, Tid,
};
#[cfg(feature = "profile")]
pub use stackhound_export as export;
pub use stackhound_expr as expr;
pub use stackhound_expr::Filter;
pub use stackhound_frames as frames;
pub use stackhound_frames::Mode;
pub use stackhound_live as live;
pub use stackhound_schema as schema;
pub use stackhound_stacks as stacks;
pub use stackhound_symbols as symbols;
pub use stackhound_system as system;
pub use stackhound_timeline::Counts as TimelineCounts;
pub use stackhound_trace as trace;
#[cfg(all(windows, feature = "windows"))]
pub use system_schemas::{
    describe_provider_of_the_system, find_provider_of_the_system, providers_of_the_system,
};
pub use timeline::{Stacks, TimelineReport, timeline};
