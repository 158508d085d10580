//! Generated events for tests of programs and filters.
//!
//! A [`TraceBuilder`] builds a trace of processes with their modules and of events with their
//! stacks. A [`RecordBuilder`] builds a single event from the names and values of its fields.
//! [`replay`] runs the events through a configured [`Trace`](crate::Trace) without a session,
//! [`incoming`] provides them as a trace in memory, and [`write_etl`] writes them to an `.etl`
//! file. [`select`] applies a filter, and [`evaluate`] evaluates all detections.
//!
//! ```
//! use std::sync::mpsc;
//!
//! use stackhound::live::{KernelGroups, Session};
//! use stackhound::schema::kernel::class_guid;
//! use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, replay};
//! use stackhound::{Provider, Trace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const NTOSKRNL: u64 = 0xffff_f801_2000_0000;
//! const APP: u64 = 0x7ff6_4000_0000;
//!
//! // A kernel event, Registry/SetValue (type 14, version 2), with its kernel stack and user stack.
//! let set_value = RecordBuilder::classic(class_guid::REGISTRY, 14, 2);
//! let set_value = set_value.pid(4242).tid(4244).with("KeyName", "Run");
//! let events = TraceBuilder::new()
//!     .process(0, "Idle", &[(NTOSKRNL, 0x100_0000, r"\SystemRoot\system32\ntoskrnl.exe")])
//!     .process(4242, "app.exe", &[(APP, 0x1_0000, r"\Device\HarddiskVolume3\App\app.exe")])
//!     .event_with_stack(set_value, StackForm::Walk, &[NTOSKRNL + 0x6f3a10], &[APP + 0x1234])
//!     .build()?;
//!
//! // A trace as a program configures it. No session is started.
//! let (sender, stacks) = mpsc::channel();
//! let registry = Provider::guid(class_guid::REGISTRY).on_event(move |event| {
//!     let frames: Vec<String> = event.frames().map(|frame| frame.to_string()).collect();
//!     let _ = sender.send((event.process_name().map(str::to_owned), frames));
//! });
//! let session = Session::nt_kernel_logger(KernelGroups::REGISTRY);
//! replay(Trace::live(session).enable(registry), events)?;
//! let (process, frames) = stacks.recv()?;
//! assert_eq!(process.as_deref(), Some("app.exe"));
//! assert_eq!(frames, ["ntoskrnl.exe+0x6f3a10", "app.exe+0x1234"]);
//! # Ok(())
//! # }
//! ```
//!
//! All generated events belong to one session of a 64-bit system, whose clock is UTC.

mod builder;
mod event;
mod output;
#[cfg(test)]
mod tests;
mod trace;

use stackhound_etl::OpenError;
use stackhound_etl::write::WriteError;
use stackhound_types::Address;

pub use builder::RecordBuilder;
pub use event::OwnedEvent;
pub use output::{evaluate, incoming, replay, select, write_etl};
pub use trace::{StackForm, TraceBuilder};

/// The reason why an event cannot be built or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The values do not match the event's schema, or no schema is known.
    #[error(transparent)]
    Value(#[from] stackhound_schema::Error),
    /// Classic events have no activities, no extended stacks and no other extended data items.
    #[error("a classic event cannot have extended data items")]
    NoItems,
    /// Stack records contain the process id and the thread id of their event.
    #[error("an event with a stack must state its process and its thread")]
    NoThread,
    /// An address of a kernel stack is not in the kernel half of the address space.
    #[error("{0} is not a kernel address")]
    NotKernel(Address),
    /// An address of a user stack is not in the user half of the address space.
    #[error("{0} is not a user address")]
    NotUser(Address),
    /// The record or the trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Events with different clocks cannot be in one trace.
    #[error("the events have different clocks; all events of a trace must have the same clock")]
    Clocks,
    /// The written trace cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The trace cannot start, or a handler panicked.
    #[error(transparent)]
    Trace(#[from] crate::Error),
}
