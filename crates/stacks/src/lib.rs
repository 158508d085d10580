//! Joins every event to the call stack that was captured for it.
//!
//! Windows records a stack in one or more records after the event (kernel part, user part; with frames
//! or by stack key), or inside the event. A [`Correlator`] joins them: it takes events in time order
//! and returns them in the same order with their whole stacks, interned in a [`StackTable`].
//!
//! ```
//! use stackhound_stacks::{Correlator, Window};
//! use stackhound_trace::{LossMap, TraceFiles};
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
//! let (window, losses) = (Window::of(&trace.clock()), LossMap::of(&trace));
//! let mut stacks = Correlator::one_pass(window, trace.time_bases(), losses);
//! let mut events = trace.ordered();
//! loop {
//!     let more = events.next().map(|event| stacks.push(&event)).is_some();
//!     if !more {
//!         stacks.end();
//!     }
//!     while let Some(delivered) = stacks.pop() {
//!         println!("{:?} {}", delivered.tid(), delivered.state().name());
//!     }
//!     if !more {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The crate handles records and time. It does not resolve names.
#![forbid(unsafe_code)]

mod block_pool;
mod correlator;
mod delivered;
mod gaps;
mod keys;
mod needed;
mod part;
mod partial;
mod roots;
mod state;
mod survey;
mod table;
mod trigger;

pub use correlator::{Correlator, Window};
pub use delivered::{Delivered, Kept};
pub use gaps::{Before, Gaps};
pub use needed::{NeededStacks, is_stack_record};
pub use part::{EventKey, Frames, StackRecord, WALK_FRAMES_MAX};
pub use state::{StackState, StackStates, StackStats};
pub use survey::StackSurvey;
pub use table::{StackId, StackTable};
pub use trigger::TriggerKind;
