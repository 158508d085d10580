//! The vocabulary that all layers share: GUIDs, processes, threads, addresses, times, and what
//! identifies a module.
//!
//! Plain values with their spelling and their order of bytes. Nothing here reads, decodes, looks up or converts with the
//! clock of a trace. Knows no other crate.
#![forbid(unsafe_code)]

mod address;
mod date;
mod guid;
mod hex;
mod id;
mod module;
mod time;

pub use address::{Address, AddressKind, Mode, PointerSize, Rva};
pub use date::Rfc3339;
pub use guid::{Guid, GuidError};
pub use hex::HexBytes;
pub use id::{Pid, Tid};
pub use module::{ImageIdentity, ModuleIdentity, PdbIdentity};
pub use time::{FileTime, RawTime, TICKS_PER_SECOND};
