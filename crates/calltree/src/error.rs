//! Errors of traces, their indexes and their journals.

use crate::id::{ContextId, StackId, TransitionId};

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The context is outside the trace.
    #[error("context #{} is outside the trace, whose contexts are #0 to #{}", .requested.0, .last.0)]
    ContextOutside {
        /// The requested context.
        requested: ContextId,
        /// The last context of the trace.
        last: ContextId,
    },
    /// The transition is outside the trace.
    #[error("transition {requested} is outside the trace, which has {count}")]
    TransitionOutside {
        /// The requested transition.
        requested: TransitionId,
        /// The number of transitions in the trace.
        count: u64,
    },
    /// The trace has no frame with this number.
    #[error("frame number {requested} is outside the trace, which has {count}")]
    NoSuchFrame {
        /// The requested number.
        requested: u64,
        /// The number of frames in the trace.
        count: u64,
    },
    /// The trace has no stack with this number.
    #[error("stack number {requested} is outside the trace, which has {count}")]
    NoSuchStack {
        /// The requested number.
        requested: u32,
        /// The number of stacks in the trace.
        count: u32,
    },
    /// The end of a range is before its start.
    #[error("a range cannot begin at context #{} and end at #{}", .begin.0, .last.0)]
    EmptyRange {
        /// The first context.
        begin: ContextId,
        /// The last context.
        last: ContextId,
    },
    /// A name pattern is not valid.
    #[error("{pattern:?} is not a valid name pattern: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// The first and the last transition are too far apart for sums of durations.
    #[error("the trace lasts {years} years, of which durations cannot be added up; is its clock damaged?")]
    TooLong {
        /// The length in years.
        years: u64,
    },
    /// The bytes are not an index.
    #[error("not a stack index: expected the file to begin with {:?}", String::from_utf8_lossy(.expected))]
    NoIndex {
        /// The bytes at the start of every index.
        expected: &'static [u8],
    },
    /// The index has another version of the format.
    #[error("the index has format version {found}; this program reads version {expected}")]
    IndexVersion {
        /// The version of the index.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// The index is damaged.
    #[error("the index is damaged at byte {offset}: expected {expected}")]
    IndexDamaged {
        /// The offset of the damage, in bytes.
        offset: u64,
        /// The data that was expected at the offset.
        expected: &'static str,
    },
    /// The bytes are not a journal.
    #[error(
        "not a call journal: expected the file to begin with {:?}",
        String::from_utf8_lossy(crate::journal::MAGIC)
    )]
    NoJournal,
    /// The journal has another version of the format.
    #[error("the journal has format version {found}; this program reads version {expected}")]
    JournalVersion {
        /// The version of the journal.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// A page of the journal has a correct checksum, but its content is not valid.
    #[error("the journal is damaged at byte {offset}: expected {expected}")]
    JournalDamaged {
        /// The offset of the damage, in bytes.
        offset: u64,
        /// The data that was expected at the offset.
        expected: &'static str,
    },
    /// A change was added after a later change of the same stack or processor.
    #[error("the change at context #{} is out of order: the previous change is at context #{}", .at.0, .last.0)]
    Order {
        /// The context of the change.
        at: ContextId,
        /// The context of the latest change so far.
        last: ContextId,
    },
    /// A frame was closed on a stack without an open frame.
    #[error("stack {} has no open frame that could end at context #{}", .stack.0, .at.0)]
    NothingOpen {
        /// The stack.
        stack: StackId,
        /// The last context of the frame.
        at: ContextId,
    },
    /// A limit of the format was exceeded.
    #[error("more than {limit} {items} in one trace")]
    TooMany {
        /// The limited items.
        items: &'static str,
        /// The maximum number of items.
        limit: u64,
    },
}
