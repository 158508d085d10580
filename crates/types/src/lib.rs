//! Types that all layers share: GUIDs, process and thread ids, security identifiers, addresses, times,
//! and the identity of modules.
//!
//! They are plain values with their text form and byte order. Nothing here reads, decodes, looks up
//! or converts times by the clock of a trace. This crate depends on no other crate of the
//! workspace.
#![forbid(unsafe_code)]

mod address;
mod date;
mod guid;
mod hex;
mod id;
mod module;
mod path;
pub mod plain;
mod sid;
mod time;

pub use address::{Address, AddressKind, Mode, PointerSize, Rva};
pub use date::{Rfc3339, start_of_day};
pub use guid::{Guid, GuidError};
pub use hex::{HexBytes, sha256_of_hex};
pub use id::{Pid, Tid};
pub use module::{ImageIdentity, ModuleIdentity, PdbIdentity};
pub use path::{file_name, last_component};
pub use sid::Sid;
pub use time::{FileTime, RawTime, TICKS_PER_SECOND};
