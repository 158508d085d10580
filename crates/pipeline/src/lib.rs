//! The stages joined: events of a trace or of live sessions with their stacks, states, names and predicates.
//!
//! A [`Pipeline`] has [`trace`](stackhound_trace) or [`live`](stackhound_live) read and order, [`stacks`](stackhound_stacks)
//! attribute, [`system`](stackhound_system) know what was loaded where, [`schema`](stackhound_schema) say what payloads mean,
//! [`frames`](stackhound_frames) resolve, and [`symbols`](stackhound_symbols) name. Its handler gets each event as [`EventView`].
//!
//! Knows events and what is known of them; must not know who consumes them, what detections ask, or how events are shown.
#![forbid(unsafe_code)]

mod enrichment;
mod event_view;
mod frame;
mod label;
mod naming;
mod pipeline;
pub mod pred;
mod predicate;
pub mod slots;
#[cfg(all(windows, feature = "windows"))]
mod system_schemas;
mod trace_state;

pub use enrichment::{Depth, Enrichment};
pub use event_view::EventView;
pub use frame::FrameView;
pub use label::{Label, NameOrigin, ShownName};
pub use naming::Naming;
pub use pipeline::{Counted, Outcome, Passes, Pipeline};
pub use predicate::Predicate;
#[cfg(all(windows, feature = "windows"))]
pub use system_schemas::{
    describe_provider_of_the_system, find_provider_of_the_system, providers_of_the_system,
};
pub use trace_state::{SchemaRef, TraceState};
