//! The journal: what a recorder writes while it records. Definitions and [`Change`]s in pages, each with its length and
//! checksum, so that whatever was written before a crash can be read. See `docs/format/call-journal.md`.
//!
//! A journal is read from its beginning to its end; to be asked, it is made into a [`Trace`](crate::Trace).

mod read;
mod write;

pub use read::{Reader, Replayed, fingerprint, is_journal, trace};
pub use write::Writer;

use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};

/// The first bytes of every journal.
pub(crate) const MAGIC: &[u8; 8] = b"shcalls\n";
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// Magic, version, and four bytes that are zero.
const HEADER: usize = 16;
/// Length and checksum of a page.
const PAGE_HEADER: usize = 8;
/// A page is written when it has become so long, and may be no longer than [`PAGE_MAX`].
const PAGE: usize = 64 << 10;
/// No page is longer; a record fits into what is left beyond [`PAGE`].
const PAGE_MAX: usize = 256 << 10;
/// No string is longer; what is longer is cut.
const TEXT_MAX: usize = 16 << 10;

/// What a journal is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Defines the next module.
    Module(ModuleInfo),
    /// Defines the next location.
    Location(LocationInfo),
    /// Defines the next stack.
    Stack(StackInfo),
    /// Something happened.
    Change(Change),
    /// The recording ends, after so many transitions.
    End(u64),
}

/// What a record is, in its first byte.
mod tag {
    pub(super) const END: u8 = 0;
    pub(super) const MODULE: u8 = 1;
    pub(super) const LOCATION: u8 = 2;
    pub(super) const STACK: u8 = 3;
    pub(super) const ENTER: u8 = 4;
    pub(super) const LEAVE: u8 = 5;
    pub(super) const OPEN: u8 = 6;
    pub(super) const CLOSE: u8 = 7;
    pub(super) const BELOW: u8 = 8;
    /// A call on the stack of the record before.
    pub(super) const CALL: u8 = 9;
    /// A return on the stack of the record before.
    pub(super) const RETURN: u8 = 10;
}

#[cfg(test)]
mod tests;
