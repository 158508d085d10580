//! Facts about image files, which support or contradict what a stack suggests about a module.
//!
//! [`ImageFile::read`] reads the bytes of a file: hashes, identity, version resource, CLI header,
//! and Authenticode signatures with their digest, signer, chain and time stamp. [`ImageFacts`] are
//! the facts about one image from one [source](FactSource), which can also be an event.
//! [`ImageEvidence`] keeps the facts of all sources side by side. [`ImageTable`] finds the facts
//! about a module by the hash of its file or by the identity in its header, and reads and writes
//! side-car files.
//!
//! Images and certificates are hostile input: every size, number and depth has a named limit. No
//! function reads the system clock or files.
//!
//! This crate must not know events, processes or stacks.
//!
//! # Features
//!
//! Without `authenticode`, no hashes are computed, and the state of embedded signatures is
//! [`SignatureState::Unknown`].
#![forbid(unsafe_code)]

#[cfg(feature = "authenticode")]
mod authenticode;
mod facts;
mod file;
mod headers;
mod report;
mod table;
mod trust;
mod version;

pub use facts::{
    FactSource, ImageEvidence, ImageFacts, Signature, SignatureReason, SignatureState, VersionInfo,
};
pub use file::ImageFile;
pub use report::{Hashes, SignatureReport, Timestamp};
pub use table::{ImageTable, TableError};
pub use trust::{Checks, Trust, TrustError};
