//! Buffers that are being filled, and their form in the file.

use std::fmt;

use stackhound_types::RawTime;
use zerocopy::IntoBytes;

use super::session::{Form, Session};
use crate::buffer::{BUFFER_HEADER_SIZE, BufferFlags, BufferHeader};
use crate::compress::xpress;

/// The unused end of a buffer is filled with this byte.
const FILLER: u8 = 0xff;
/// State of a buffer that is being flushed. Also the number of XPRESS in the buffer whose state is
/// the compression format.
const STATE_FLUSH: u32 = 3;
const TYPE_GENERIC: u16 = 0;
const TYPE_HEADER: u16 = 4;
/// Records start at multiples of this.
const ALIGNMENT: usize = 8;
/// The header buffer of a compressed file ends at a multiple of this.
const COMPRESSED_HEADER_UNIT: usize = 512;

/// The bytes of one buffer, filled from the front.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    used: usize,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.used, self.bytes.len())
    }
}

impl Buffer {
    pub(super) fn new(size: usize) -> Buffer {
        Buffer { bytes: vec![FILLER; size], used: BUFFER_HEADER_SIZE }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// Offset of the next record.
    pub(super) fn end(&self) -> usize {
        self.used
    }

    /// Appends a record of `size` bytes, which `encode` fills. `size` must be at most the remaining
    /// space.
    #[inline]
    pub(super) fn push(&mut self, size: usize, encode: impl FnOnce(&mut [u8])) {
        let end = self.used + size;
        encode(&mut self.bytes[self.used..end]);
        // Buffer sizes are multiples of the alignment, so the padding fits.
        self.used = end.next_multiple_of(ALIGNMENT);
        self.bytes[end..self.used].fill(0);
    }

    /// Replaces bytes.
    pub(super) fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn clear(&mut self) {
        self.used = BUFFER_HEADER_SIZE;
    }

    /// The complete header buffer of a file. `saved_offset` is the first of the two ends that it
    /// states.
    pub(super) fn seal_as_header(&mut self, session: &Session, saved_offset: usize) -> &[u8] {
        if session.compressed {
            self.bytes.truncate(self.used.next_multiple_of(COMPRESSED_HEADER_UNIT));
        }
        let (saved_offset, current_offset, state) = match session.form {
            Form::Live => (saved_offset, saved_offset, STATE_FLUSH),
            Form::Windows7 => (0, self.used, STATE_FLUSH),
            Form::Merged => (saved_offset, 0, if session.compressed { STATE_FLUSH } else { 0 }),
        };
        let header = BufferHeader {
            buffer_size: (self.bytes.len() as u32).into(),
            saved_offset: (saved_offset as u32).into(),
            current_offset: (current_offset as u32).into(),
            reference_count: 0.into(),
            time_stamp: 0.into(),
            sequence_number: 0.into(),
            clock: 0.into(),
            processor: session.processor_field(0).into(),
            logger_id: session.file_logger_id().into(),
            state: state.into(),
            offset: (self.used as u32).into(),
            flags: session.header_buffer_flags().into(),
            buffer_type: TYPE_HEADER.into(),
            links: [0; 16],
        };
        self.overwrite(0, header.as_bytes());
        &self.bytes
    }
}

/// The stream of buffers of one processor.
#[derive(Debug)]
pub(super) struct Stream {
    processor: u16,
    buffer: Option<Buffer>,
    /// Sequence number of the open buffer; `None` between two buffers.
    sequence: Option<i64>,
    /// The time of the last record.
    last: Option<RawTime>,
    /// Whether records are missing before the open buffer, or before the next one.
    is_after_loss: bool,
}

impl Stream {
    pub(super) fn new(processor: u16) -> Stream {
        Stream { processor, buffer: None, sequence: None, last: None, is_after_loss: false }
    }

    pub(super) fn last(&self) -> Option<RawTime> {
        self.last
    }

    pub(super) fn is_open(&self) -> bool {
        self.sequence.is_some()
    }

    /// Starts an empty buffer. No other buffer may be open.
    pub(super) fn open(&mut self, size: usize, sequence: i64) {
        debug_assert!(!self.is_open());
        self.sequence = Some(sequence);
        self.buffer.get_or_insert_with(|| Buffer::new(size)).clear();
    }

    /// Appends a record of `size` bytes, which `encode` fills, to the open buffer; `false` if there
    /// is no open buffer or it is full.
    #[inline]
    pub(super) fn push(
        &mut self,
        size: usize,
        time: Option<RawTime>,
        encode: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(buffer) = &mut self.buffer else { return false };
        if self.sequence.is_none() || size > buffer.room() {
            return false;
        }
        buffer.push(size, encode);
        self.last = time.or(self.last);
        true
    }

    /// States in the next buffer that records before it are missing. No buffer may be open.
    pub(super) fn mark_loss(&mut self) {
        debug_assert!(!self.is_open());
        self.is_after_loss = true;
    }

    /// Discards the open buffer with all its records.
    pub(super) fn discard(&mut self) {
        self.sequence = None;
    }

    /// Closes the open buffer. The parts are written to the file in order; `None` if no buffer is
    /// open.
    pub(super) fn seal(&mut self, session: &Session, cause: Cause) -> Option<Sealed<'_>> {
        let sequence = self.sequence.take()?;
        let last = self.last.unwrap_or(session.start);
        let time_stamp = match session.form {
            // A live buffer is closed after its last record was logged.
            Form::Live | Form::Windows7 => last.0.saturating_add(1),
            Form::Merged => session.clock().to_file_time(last).0,
        };
        let index = if session.form == Form::Windows7 { 0 } else { BufferFlags::PROCESSOR_INDEX.0 };
        let marker = if cause == Cause::End { BufferFlags::FLUSH_MARKER.0 } else { 0 };
        let processor = session.processor_field(self.processor);
        let loss = if self.is_after_loss { BufferFlags::EVENTS_LOST.0 } else { 0 };
        let flags = index | marker | loss;
        self.is_after_loss = false;
        let buffer = self.buffer.as_mut()?;
        // The kernel closes a buffer by reserving more than the remaining space: the record that
        // does not fit, or the whole buffer.
        let reserved = match cause {
            Cause::Full { record } => record.next_multiple_of(ALIGNMENT),
            Cause::Flush | Cause::End => session.buffer_size as usize,
        };

        let records = &buffer.bytes[BUFFER_HEADER_SIZE..buffer.used];
        let chunk = if session.compressed { xpress::compress(records) } else { Vec::new() };
        // A chunk that is not smaller is not used.
        let compressed = session.compressed && chunk.len() < records.len();
        let size = if compressed { BUFFER_HEADER_SIZE + chunk.len() } else { buffer.bytes.len() };
        let header = BufferHeader {
            buffer_size: (size as u32).into(),
            saved_offset: (buffer.used as u32).into(),
            current_offset: ((buffer.used + reserved) as u32).into(),
            reference_count: 0.into(),
            time_stamp: time_stamp.into(),
            sequence_number: sequence.into(),
            clock: 0.into(),
            processor: processor.into(),
            logger_id: session.file_logger_id().into(),
            state: STATE_FLUSH.into(),
            offset: (buffer.used as u32).into(),
            flags: (flags | if compressed { BufferFlags::COMPRESSED.0 } else { 0 }).into(),
            buffer_type: TYPE_GENERIC.into(),
            links: [0; 16],
        };
        buffer.overwrite(0, header.as_bytes());
        if compressed {
            return Some(Sealed { plain: &buffer.bytes[..BUFFER_HEADER_SIZE], chunk });
        }
        buffer.bytes[buffer.used..].fill(FILLER);
        Some(Sealed { plain: &buffer.bytes, chunk: Vec::new() })
    }
}

/// The reason for closing a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A record of this many bytes does not fit.
    Full { record: usize },
    /// The records must reach the file.
    Flush,
    /// It is the last buffer of the file.
    End,
}

/// A buffer as stored in the file.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    /// The whole buffer, or the header of a compressed buffer.
    pub(super) plain: &'a [u8],
    /// The compressed content after the header.
    pub(super) chunk: Vec<u8>,
}
