//! Schemas of events and the decoding of payloads.
//!
//! A [`Schema`] describes the fields of one kind of event. Schemas come from a built-in table of
//! kernel classes, from TraceLogging metadata, from metadata embedded in traces, from manifests and
//! images of providers, and from a built-in table of providers. All sources produce the same type.
//! One decoder reads payloads with it and borrows from the payload.
//!
//! This crate does not read traces or sessions; the caller supplies the payloads.
#![forbid(unsafe_code)]

mod builtin;
#[cfg(test)]
mod constants;
mod decode;
mod embedded;
mod error;
pub mod event_id;
#[doc(hidden)]
pub mod fuzz;
mod identity;
pub mod kernel;
pub mod kernel_process;
mod limits;
mod manifest;
pub mod method;
mod model;
mod naming;
mod notation;
mod pack;
mod parser;
mod plan;
mod provider;
pub mod provider_guid;
mod render;
mod store;
pub mod system;
mod tdh;
#[cfg(test)]
mod testing;
mod text;
mod tracelogging;
mod value;
mod wevt;

pub use decode::{Array, ArrayElements, Decoded, Decoder, Item};
pub use embedded::{EmbeddedEvent, EmbeddedIdentity, EmbeddedNames, parse_map};
pub use error::{Error, Expected, FieldType};
pub use identity::Identity;
pub use limits::{MAX_EMPTY_ELEMENTS, MAX_NESTING};
pub use manifest::{ManifestChunks, is_manifest_chunk, looks_like_manifest, providers_of_manifest};
pub use model::{Count, Field, InType, Length, Map, MapKind, OutType, Schema, SchemaSource, Value};
pub use pack::OwnedValue;
pub use parser::{ConversionError, EnumText, Flags, FromEtw, Parser, PropertyId, Structure, SystemTime};
pub use plan::Plan;
pub use provider::{EventDescription, Named, OpcodeDescription, ProviderDescription, readable};
pub use render::{ItemText, render};
pub use stackhound_types::Sid;
pub use store::{Fallback, SchemaStore};
pub use text::{Ansi, Utf16};
pub use tracelogging::{EventMetadata, ProviderTraits};
pub use wevt::providers_of_image;
