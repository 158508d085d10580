//! Events that nobody logged, for tests of whoever handles events: made by name and value, run through a configured
//! [`Trace`](crate::Trace) without a session, or written to a recording.
//!
//! ```
//! use stackhound::schema::SchemaStore;
//! use stackhound::testing::{RecordBuilder, replay};
//! use stackhound::live::Session;
//! use stackhound::{Guid, Provider, Trace};
//! use std::sync::mpsc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The class of images, its type 10 (a load) in version 3: the built-in tables describe it.
//! let images: Guid = "2cb15d1d-5fc1-11d2-abe1-00a0c911f518".parse()?;
//! let load = RecordBuilder::classic(images, 10, 3)
//!     .with("ProcessId", 123)
//!     .with("FileName", r"\Windows\System32\ntdll.dll")
//!     .pack_incomplete(&mut SchemaStore::new())?;
//!
//! // A trace as a program configures it; here no session is started.
//! let (sender, names) = mpsc::channel();
//! let provider = Provider::guid(images).on_event(move |seen| {
//!     let parser = seen.parser()?;
//!     let _ = sender.send((parser.parse::<u32>("ProcessId")?, parser.parse::<String>("FileName")?));
//!     Ok::<(), stackhound::schema::Error>(())
//! });
//! replay(Trace::live(Session::user("images")).enable(provider), [load])?;
//! assert_eq!(names.recv()?, (123, r"\Windows\System32\ntdll.dll".to_owned()));
//! # Ok(())
//! # }
//! ```
//!
//! All events that are made here come from one session of a 64-bit system, whose clock counts UTC.

mod builder;
mod event;
mod output;
#[cfg(test)]
mod tests;

use stackhound_etl::OpenError;
use stackhound_etl::write::WriteError;

pub use builder::RecordBuilder;
pub use event::OwnedEvent;
pub use output::{incoming, replay, write_etl};

/// Why an event cannot be made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The values do not suit the event, or nobody describes it, so that they have no place.
    #[error(transparent)]
    Value(#[from] stackhound_schema::Error),
    /// Classic events have no activities, no stacks of their own and no other extended items.
    #[error("a classic event has no extended items")]
    NoItems,
    /// The record, or the recording, can not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Events whose times are of different clocks cannot stand in one recording.
    #[error("the events were timed by different clocks")]
    Clocks,
    /// What was written cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The trace cannot begin, or a handler panicked.
    #[error(transparent)]
    Trace(#[from] crate::Error),
}
