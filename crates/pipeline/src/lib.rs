//! Events of a trace or of live sessions, with their stacks, states, names and predicates.
//!
//! A [`Pipeline`] connects the stages: [`trace`](stackhound_trace) or [`live`](stackhound_live)
//! reads and orders the events, [`stacks`](stackhound_stacks) attributes stacks,
//! [`system`](stackhound_system) tracks loaded modules, [`schema`](stackhound_schema) decodes
//! payloads, [`frames`](stackhound_frames) resolves addresses, and [`symbols`](stackhound_symbols)
//! names functions. The handler receives each event as an [`EventView`].
//!
//! This crate does not depend on the consumers of events, on detections, or on output formats.
#![forbid(unsafe_code)]

pub mod cut;
mod cut_note;
mod enrichment;
mod event_names;
mod event_view;
mod facts;
mod frame;
mod label;
mod naming;
mod owner_cache;
mod pipeline;
pub mod pred;
mod predicate;
mod pseudonyms;
mod services;
pub mod slots;
#[cfg(all(windows, feature = "windows"))]
mod system_schemas;
mod trace_state;

pub use enrichment::{Depth, Enrichment};
pub use event_names::{EventNameId, EventNumbers};
pub use event_view::{EventView, StatedIds};
pub use facts::{Missing, MissingCounts, ProcessView, RegistrySubject, Target, ThreadStart};
pub use frame::FrameView;
pub use label::{InlineLabel, Label, NameOrigin, ShownName, stem};
pub use naming::Naming;
pub use owner_cache::{OwnerCache, Place};
pub use pipeline::{Counted, Outcome, Pipeline};
pub use predicate::{Fact, FactSubject, FilterField, Predicate, visit_fact};
#[cfg(all(windows, feature = "windows"))]
pub use system_schemas::{
    describe_provider_of_the_system, find_provider_of_the_system, providers_of_the_system,
};
pub use trace_state::{Passes, SchemaRef, TraceState};
