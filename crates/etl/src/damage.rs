//! Damage in a trace: its offset, its reason and the number of skipped bytes.

use crate::LogfileHeaderError;
use crate::compress::DecompressError;
use crate::record::RecordError;

/// Damage at one offset. Only the stated number of bytes is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file, in bytes. In a compressed buffer: the start of the buffer.
    pub offset: u64,
    /// Number of skipped bytes of the file (or of the decompressed buffer).
    pub skipped: u64,
    /// The kind of damage.
    pub reason: DamageReason,
}

/// The kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageReason {
    /// A buffer header that Windows would not write. The value is the reason.
    #[error("not a buffer header ({0}); resynchronized at the next buffer")]
    Header(&'static str),
    /// The size does not lead to another buffer, but a search found one.
    #[error("no buffer follows the stated size of {size} bytes; resynchronized at the next buffer")]
    Size {
        /// The size in the buffer header.
        size: u32,
    },
    /// The file ends inside a buffer.
    #[error("the file ends inside a buffer: {found} of {expected} bytes")]
    Truncated {
        /// Bytes up to the end of the file.
        found: u64,
        /// Size of the whole buffer in bytes.
        expected: u64,
    },
    /// The content of the buffer does not decompress.
    #[error("{0}")]
    Inflate(DecompressError),
    /// Compressed buffers of so many processors that reading them in order would need more than 1
    /// GiB of memory.
    #[error("too many streams of compressed buffers")]
    TooManyStreams,
    /// A further header buffer whose logfile header cannot be read. The previous session is used in
    /// its place.
    #[error("{0}; this session's times are converted with the clock of the previous session")]
    Session(LogfileHeaderError),
    /// A further copy of a buffer: equal session, processor, sequence number and beginning. It is
    /// not read.
    #[error("a copy of the buffer at {first:#x}, which is read instead")]
    Repeated {
        /// Offset of the buffer that is read.
        first: u64,
    },
    /// A buffer with the session, processor and sequence number of the buffer at `first`, but with
    /// other content. Both are read.
    #[error("the buffer has the sequence number of the buffer at {first:#x}; both are read")]
    SameNumber {
        /// Offset of the first buffer with this number.
        first: u64,
    },
    /// An invalid record. The rest of its buffer is skipped.
    #[error("{0}; the rest of the buffer is skipped")]
    Record(RecordError),
    /// The two fields for the end of the records disagree. All records up to the larger offset are
    /// read.
    #[error("the buffer header states two different ends of the records: {saved:#x} and {offset:#x}")]
    TwoEnds {
        /// The field SavedOffset.
        saved: u32,
        /// The field Offset.
        offset: u32,
    },
    /// Records whose times contradict the other records of their buffer, the time at which the
    /// buffer was written, the start of the session, or the buffers around it. They are skipped.
    #[error("{} whose time contradicts those around it, the first with the raw time {time}; skipped", records_text(*.records))]
    Time {
        /// Number of records.
        records: u32,
        /// The raw time of the first of them.
        time: i64,
    },
    /// The first buffer of the file is not the session's first, and the session did not lose the
    /// buffers before it.
    #[error("the first buffer has the number {first}; the buffers before it are missing")]
    MissingStart {
        /// The sequence number of the first buffer.
        first: i64,
    },
    /// The session counted more buffers as written than the file has, beyond the buffers that the
    /// session lost.
    #[error(
        "the file is incomplete: {missing} of the {written} buffers that the session wrote are not in it"
    )]
    Incomplete {
        /// Number of buffers that the session wrote.
        written: u32,
        /// Number of these buffers that are not in the file.
        missing: u64,
    },
    /// A part of a packed file cannot be unpacked. Offset and size refer to the packed file.
    #[error("packed file: {0}")]
    Packed(&'static str),
}

fn records_text(records: u32) -> String {
    if records == 1 { "a record".to_owned() } else { format!("{records} records") }
}
