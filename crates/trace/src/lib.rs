//! Files of trace events, and one time-ordered stream out of all of them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_trace::TraceFiles;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let stats = TraceFiles::file("trace.etl").run(|event| {
//!     println!("{} {}", event.raw_time().0, event.kind().name());
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} events, {} damaged regions", stats.events, stats.damage.len());
//! # Ok(())
//! # }
//! ```
//!
//! A [`TraceFiles`] lists the paths to read. An [`OpenTrace`] can be read any number of times, in time
//! order ([`Ordered`]) or block by block as stored. Sources of different machines or boots, or that do
//! not overlap in time, are separate [`Capture`]s.
//!
//! The crate handles files, clocks, machines and order. It does not handle live sessions or stacks,
//! and does not interpret events, except for the one that contains the computer name.
#![deny(unsafe_code)]

mod ahead;
mod capture;
mod error;
mod event;
mod feed;
mod filter;
mod loss;
mod merge;
mod ordered;
mod source;
mod stats;
mod trace_files;

pub use capture::{Capture, Grouping, Machine, several_captures};
pub use error::Error;
pub use event::{Event, EventKey, TraceTime};
pub use filter::{HeaderFilter, ProviderFilter};
pub use loss::{LossMap, LossPeriod};
pub use merge::TimeBase;
pub use ordered::Ordered;
#[cfg(unix)]
pub use source::on_shrunk_file;
pub use source::{Source, UNPACKED_SIZE_MAX, bytes_of, is_trace_name, trace_paths};
pub use stats::Stats;
pub use trace_files::{Captures, Flow, OpenTrace, TraceFiles};
