//! The state of the traced machine at any time of its trace: which processes, threads, modules, memory, files and
//! registry keys there were.
//!
//! ```
//! use stackhound_types::Pid;
//! use stackhound_system::System;
//! use stackhound_trace::Recordings;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = Recordings::file("trace.etl").open()?;
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
//! A [`System`] takes in statements ("at this time, this module was loaded there", "this process was there when the
//! recording ended") and answers questions about a time. Everything is valid over a [`Span`] of trace time, and says
//! how the span's ends are known.
//!
//! There are two ways to use it, and both give the same answers but for what only the end of a recording tells:
//! - All events first, then questions about any time. What a rundown at the end lists is known at every time.
//! - Questions about the current time, with all events up to it taken in.
//!
//! Recordings are remembered as a whole. A session without end forgets what is over, where that is
//! [asked for](System::forget_before), and has [limits](System::limited).
//!
//! Knows time, addresses and names of things; does not know symbols or verdicts.
#![forbid(unsafe_code)]

mod address_spaces;
mod caller;
mod completeness;
mod file;
mod forget;
mod lifetimes;
mod method;
mod module;
mod multiversion;
mod name_history;
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
mod validity;
mod view;
mod volume;

pub use caller::Caller;
pub use completeness::{Completeness, Gap, Losses};
pub use file::{FileKey, FileNameEvent, FileObject};
pub use forget::{ForgottenEarly, Limits};
pub use method::{MethodFacts, MethodId, MethodRef, Runtime};
pub use module::{ModuleFacts, ModuleId, ModuleRef};
pub use process::{ProcessEntity, ProcessFacts, ProcessId, ProcessRef};
pub use ranges::ValidityId;
pub use region::{Allocation, AllocationFacts, Region};
pub use registry::{KeyControlBlock, KeyNameEvent, RegistryPath};
pub use span::{Evidence, Phase, Span};
pub use system::{AllocationEvent, System, SystemStats};
pub use thread::{StackExtent, ThreadFacts, ThreadId, ThreadRef};
pub use validity::ValidityRange;
pub use view::{Protection, View, ViewFacts};
pub use volume::Volumes;
