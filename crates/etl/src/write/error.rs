//! Errors of the writer.

use stackhound_types::RawTime;

/// The reason why a session or record cannot be written. A rejected record does not reach the file.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The description of the session is inconsistent, or exceeds a limit of the format.
    #[error("invalid session: {0}")]
    Session(&'static str),
    /// The record is for a processor that the session does not have.
    #[error("there is no processor {processor}: the session has {processors}")]
    Processor {
        /// The requested processor.
        processor: u16,
        /// Number of processors of the session.
        processors: u16,
    },
    /// The record is older than the previous one on the same processor.
    #[error("record out of order: its time {} is before {}, the time of the previous record on this processor", time.0, last.0)]
    OutOfOrder {
        /// Time of the record.
        time: RawTime,
        /// Time of the previous record.
        last: RawTime,
    },
    /// The record with its header and items exceeds the range of its size field.
    #[error("the record has {size} bytes; the maximum is 65,535")]
    RecordTooLarge {
        /// Size of the whole record in bytes.
        size: usize,
    },
    /// The record does not fit, not even into an empty buffer.
    #[error("the record of {size} bytes does not fit into a buffer, which has space for {room} bytes")]
    BufferTooSmall {
        /// Size of the whole record in bytes.
        size: usize,
        /// Free space in bytes.
        room: usize,
    },
    /// A record has more performance counters than its header allows.
    #[error("the record has {count} performance counters; the maximum is 7")]
    TooManyCounters {
        /// Number of counters.
        count: usize,
    },
    /// A record for the header buffer was given after that buffer had been written.
    #[error("the header buffer was already written; write its records before the first data buffer")]
    HeaderBufferWritten,
    /// The output reported an error.
    #[error("cannot write to the output")]
    Output(#[from] std::io::Error),
}
