//! Why something cannot be written.

use stackhound_types::RawTime;

/// Why something cannot be written. Nothing of a refused record reaches the file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The session's description contradicts itself or a limit of the format.
    #[error("the session cannot be written: {0}")]
    Session(&'static str),
    /// The record is for a processor that the session does not have.
    #[error("processor {processor}, but the session has {processors}")]
    Processor {
        /// The processor asked for.
        processor: u16,
        /// How many there are.
        processors: u16,
    },
    /// The record is older than the one before it on the same processor.
    #[error("a record at {} follows one at {} on the same processor", time.0, last.0)]
    OutOfOrder {
        /// The record's time.
        time: RawTime,
        /// The time of the record before.
        last: RawTime,
    },
    /// The record with its header and items is larger than its size field can say.
    #[error("a record of {size} bytes; 65,535 is the most")]
    RecordTooLarge {
        /// Bytes of the whole record.
        size: usize,
    },
    /// The record does not fit into what is free, not even into an empty buffer.
    #[error("a record of {size} bytes, where a buffer takes {room}")]
    BufferTooSmall {
        /// Bytes of the whole record.
        size: usize,
        /// Bytes that are free.
        room: usize,
    },
    /// A record has more performance counters than its header can count.
    #[error("{count} performance counters; 7 is the most")]
    TooManyCounters {
        /// How many were given.
        count: usize,
    },
    /// A record for the header buffer comes after that buffer was written.
    #[error("the header buffer was written already")]
    HeaderBufferWritten,
    /// The output failed.
    #[error("the output failed")]
    Output(#[from] std::io::Error),
}
