//! The state of the traced machine at any time of its trace: processes, threads, modules, memory,
//! files and registry keys.
//!
//! ```
//! use stackhound_types::Pid;
//! use stackhound_system::System;
//! use stackhound_trace::TraceFiles;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
//! let mut system = System::of(&trace);
//! let mut events = trace.selected(System::selection());
//! while let Some(event) = events.next() {
//!     system.observe(&event);
//! }
//! let mut events = trace.ordered();
//! while let Some(event) = events.next() {
//!     let process = event.header_pid().and_then(|pid| system.process_at(pid, event.time()));
//!     println!("{}", process.map_or("?", |process| process.image_name()));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`System`] records statements ("at this time, this module was loaded there", "this process
//! existed when the trace ended") and answers queries about a time. Everything is valid over a
//! [`Span`] of trace time, which states the evidence for both of its ends.
//!
//! There are two ways to use it. They give the same answers, except for facts that are recorded
//! only at the end of a trace:
//! - Record all events first, then query any time. The contents of a rundown at the end are known
//!   at every time.
//! - Query the current time, with all events up to it recorded.
//!
//! The state of a whole trace is kept by default. A live session can
//! [forget](System::forget_before) state that is over, and can set [limits](System::limited).
//!
//! This crate handles times, addresses and names. It does not handle symbols or verdicts.
#![forbid(unsafe_code)]

mod address_spaces;
mod caller;
mod completeness;
mod disjoint;
mod file;
mod forget;
mod image_version;
mod lifetimes;
mod managed_module;
mod method;
mod module;
mod multiversion;
mod name_history;
mod newest;
mod observe;
mod process;
mod ranges;
mod region;
mod registry;
mod slab;
mod span;
mod system;
mod text;
mod thread;
mod thread_owners;
mod validity;
mod view;
mod volume;

pub use caller::Caller;
pub use completeness::{Completeness, Gap};
pub use file::{FileKey, FileNameEvent, FileObject};
pub use forget::{ForgottenEarly, Limits};
pub use image_version::ImageVersion;
pub use method::{MethodFacts, MethodId, MethodRef, Runtime};
pub use module::{ModuleFacts, ModuleId, ModuleRef};
pub use process::{
    ProcessDetails, ProcessEntity, ProcessFacts, ProcessId, ProcessRef, is_same_name, with_one_path,
};
pub use ranges::ValidityId;
pub use region::{Allocation, AllocationFacts, Region};
pub use registry::{KeyControlBlock, KeyNameEvent, RegistryPath};
pub use span::{Evidence, Phase, Span};
pub use system::{AllocationEvent, StatedName, System, SystemStats};
pub use thread::{StackExtent, ThreadFacts, ThreadId, ThreadRef};
pub use validity::ValidityRange;
pub use view::{Protection, View, ViewFacts};
pub use volume::Volumes;
