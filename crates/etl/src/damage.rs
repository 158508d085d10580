//! What is wrong with a recording, where, and how much was given up for it.

use crate::LogfileHeaderError;
use crate::compress::DecompressError;
use crate::record::RecordError;

/// One damaged place. Nothing but the bytes it names is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where, from the start of the file. In a compressed buffer: the start of the buffer.
    pub offset: u64,
    /// Bytes of the file (or of the inflated buffer) that were given up.
    pub skipped: u64,
    /// What is wrong.
    pub reason: DamageReason,
}

/// What is wrong at a damaged place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageReason {
    /// A buffer header that Windows would not write.
    #[error("not a buffer header ({0}); resynchronised at the next one")]
    Header(&'static str),
    /// The buffer's size does not lead to another buffer, but another buffer was found by searching.
    #[error("the buffer's size of {size} bytes does not lead to a buffer; resynchronised at the next one")]
    Size {
        /// The size the buffer claims.
        size: u32,
    },
    /// The file ends inside a buffer.
    #[error("the file ends inside a buffer: {found} of {expected} bytes")]
    Truncated {
        /// Bytes up to the end of the file.
        found: u64,
        /// Bytes of the whole buffer.
        expected: u64,
    },
    /// The buffer's content does not decompress.
    #[error("{0}")]
    Inflate(DecompressError),
    /// Compressed buffers of so many processors that reading them in order would take more than 1 GiB of memory.
    #[error("too many streams of compressed buffers")]
    TooManyStreams,
    /// A further header buffer whose logfile header cannot be read. The session before it stands in for its session.
    #[error("{0}; the times of this session's records are read by the clock of the session before it")]
    Session(LogfileHeaderError),
    /// A further copy of a buffer: equal session, processor, sequence number and beginning. It is not read.
    #[error("a copy of the buffer at {first:#x}, which is read instead")]
    Repeated {
        /// Where the buffer starts that is read.
        first: u64,
    },
    /// Another buffer than that at `first`, with its session, processor and sequence number. Both are read.
    #[error("the buffer has the sequence number of the buffer at {first:#x}; both are read")]
    SameNumber {
        /// Where the first buffer with this number starts.
        first: u64,
    },
    /// A record that cannot be; the rest of its buffer is given up.
    #[error("{0}; the rest of the buffer is skipped")]
    Record(RecordError),
    /// Both fields that say where the records end disagree; all records up to the larger are read.
    #[error("the buffer states two ends of its records, {saved:#x} and {offset:#x}")]
    TwoEnds {
        /// SavedOffset.
        saved: u32,
        /// Offset.
        offset: u32,
    },
    /// The session counted more buffers as written than the file has, beyond those that it lost itself.
    #[error(
        "the file is incomplete: {missing} of the {written} buffers that the session wrote are not in it"
    )]
    Incomplete {
        /// Buffers that the session wrote.
        written: u32,
        /// Those of them that are not in the file.
        missing: u64,
    },
    /// Something of a packed file cannot be unpacked. Where it is, and how much, is counted in the packed file.
    #[error("packed: {0}")]
    Packed(&'static str),
}
