//! What can go wrong with traces, their indexes and their journals.

use crate::id::{ContextId, StackId, TransitionId};

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A context that the trace does not have.
    #[error("context #{} is outside the trace, whose contexts are #0 to #{}", .asked.0, .last.0)]
    ContextOutside {
        /// The one asked for.
        asked: ContextId,
        /// The last one there is.
        last: ContextId,
    },
    /// A transition that the trace does not have.
    #[error("transition {asked} is outside the trace, which has {count}")]
    TransitionOutside {
        /// The one asked for.
        asked: TransitionId,
        /// How many there are.
        count: u64,
    },
    /// A frame number that the trace does not have.
    #[error("frame number {asked} is not of this trace, which has {count} frames")]
    NoSuchFrame {
        /// The one asked for.
        asked: u64,
        /// How many there are.
        count: u64,
    },
    /// A stack number that the trace does not have.
    #[error("stack number {asked} is not of this trace, which has {count} stacks")]
    NoSuchStack {
        /// The one asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// A range whose end lies before its beginning.
    #[error("a range cannot begin at context #{} and end at #{}", .begin.0, .last.0)]
    EmptyRange {
        /// Its first context.
        begin: ContextId,
        /// Its last context.
        last: ContextId,
    },
    /// A pattern of names that cannot be read.
    #[error("{pattern:?} is no pattern of names: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The bytes are no index.
    #[error("this is no index of stacks: it does not begin with {:?}", String::from_utf8_lossy(.expected))]
    NoIndex {
        /// What indexes begin with.
        expected: &'static [u8],
    },
    /// The index has another version of the format.
    #[error("the index has version {found} of the format, this program reads version {expected}")]
    IndexVersion {
        /// Its version.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// The index is damaged.
    #[error("the index is damaged at byte {offset}: {expected} expected")]
    IndexDamaged {
        /// Where.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// The bytes are no journal.
    #[error(
        "this is no journal of calls: it does not begin with {:?}",
        String::from_utf8_lossy(crate::journal::MAGIC)
    )]
    NoJournal,
    /// The journal has another version of the format.
    #[error("the journal has version {found} of the format, this program reads version {expected}")]
    JournalVersion {
        /// Its version.
        found: u32,
        /// The version that can be read.
        expected: u32,
    },
    /// A page of the journal has the right checksum, but not what it should hold.
    #[error("the journal is damaged at byte {offset}: {expected} expected")]
    JournalDamaged {
        /// Where.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// A change came before one that was made known of the same stack or processor.
    #[error("a change at context #{} comes behind one at context #{}", .at.0, .last.0)]
    Order {
        /// Its context.
        at: ContextId,
        /// The latest context so far.
        last: ContextId,
    },
    /// A frame was closed where none is open.
    #[error("no frame of stack {} is open that could end at context #{}", .stack.0, .at.0)]
    NothingOpen {
        /// The stack.
        stack: StackId,
        /// The context.
        at: ContextId,
    },
    /// There is too much of something.
    #[error("more than {limit} {what} in one trace")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much there can be.
        limit: u64,
    },
}
