//! Sources of trace events, and one time-ordered stream out of all of them.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_trace::Trace;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let stats = Trace::file("trace.etl").run(|event| {
//!     println!("{} {}", event.raw_time().0, event.kind().name());
//!     ControlFlow::Continue(())
//! })?;
//! println!("{} events, {} damaged places", stats.events, stats.damage.len());
//! # Ok(())
//! # }
//! ```
//!
//! A [`Trace`] says what to read; [`OpenTrace`] can be read any number of times, in time order ([`Ordered`]) or block
//! by block as stored. Knows files, clocks and order; does not know stacks or what an event means.
#![deny(unsafe_code)]

mod error;
mod event;
mod feed;
mod filter;
mod merge;
mod session;
mod source;
mod stats;
mod trace;

pub use error::Error;
pub use event::{Event, TraceTime};
pub use filter::{HeaderFilter, ProviderFilter};
pub use merge::{Ordered, TimeBase};
pub use session::{
    Buffers, ClassicEvent, EnableParameters, EnableProperties, EtwFilter, FilterBytes, FlushTimer,
    GROUP_MASKS, GroupMask, IfExists, KernelGroups, KernelProvider, NT_KERNEL_LOGGER, ProviderSettings,
    Session, SessionClock, SessionNumbers, SettingError,
};
pub use source::{Source, UNPACKED_SIZE_MAX, bytes_of};
pub use stats::Stats;
pub use trace::{Flow, OpenTrace, Trace};
