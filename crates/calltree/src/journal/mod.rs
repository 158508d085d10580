//! The journal: the file that a recorder writes while it records. It contains definitions and
//! [`Change`]s in pages. Each page has its length and checksum, so that everything that was written
//! before a crash can be read. See `docs/format/call-journal.md`.
//!
//! A journal is read from beginning to end. For queries, it is converted to a
//! [`Trace`](crate::Trace).

mod followers;
mod read;
mod write;

pub use read::{Reader, Replayed, fingerprint, is_journal, trace};
pub use write::Writer;

use crate::change::{Change, LocationInfo, ModuleInfo, StackInfo};
use crate::id::{LocationId, StackId};

/// The first bytes of every journal.
pub(crate) const MAGIC: &[u8; 8] = b"shcalls\n";
/// The version of the format. Files of earlier versions are read too: the first one lacks the records
/// about stubs, the second one the new names of stacks, the third one the tail calls.
pub(crate) const VERSION: u32 = 4;
/// The first version of the format.
const FIRST_VERSION: u32 = 1;
/// Length of the header: magic, version, and four zero bytes.
const HEADER: usize = 16;
/// Length of a page's header: length and checksum of the content.
const PAGE_HEADER: usize = 8;
/// A page is written when it reaches this length. It is never longer than [`PAGE_MAX`].
const PAGE: usize = 64 << 10;
/// Maximum length of a page. The space after [`PAGE`] is enough for any record.
const PAGE_MAX: usize = 256 << 10;
/// Maximum length of a string. Longer strings are truncated.
const TEXT_MAX: usize = 16 << 10;

/// A record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Defines the next module.
    Module(ModuleInfo),
    /// Defines the next location.
    Location(LocationInfo),
    /// Defines the next location: a function that is entered through a stub.
    Entry {
        /// The location of the function.
        function: LocationId,
        /// The location of the stub.
        stub: LocationId,
    },
    /// Defines the next stack.
    Stack(StackInfo),
    /// Gives a stack another name.
    Named {
        /// The stack.
        stack: StackId,
        /// The name.
        name: String,
    },
    /// A change of a stack.
    Change(Change),
    /// The end of the recording, with the number of transitions.
    End(u64),
}

/// The kind of a record: its first byte.
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
    /// A call on the current stack.
    pub(super) const CALL: u8 = 9;
    /// A return on the current stack.
    pub(super) const RETURN: u8 = 10;
    pub(super) const ENTRY: u8 = 11;
    pub(super) const TARGET: u8 = 12;
    pub(super) const NAMED: u8 = 13;
    pub(super) const TAIL_CALL: u8 = 14;
    /// A tail call on the current stack.
    pub(super) const TAIL_CALL_HERE: u8 = 15;
    /// A tail call on the current stack to the predicted location, at the previous boundary. Greater tags are
    /// those of later boundaries.
    pub(super) const TAIL_CALL_PREDICTED: u8 = 16;
}

#[cfg(test)]
mod tests;
