//! Builds blocks from single records, as a live session delivers them.
//!
//! Each record is written once, in the layout of trace files, so that all later stages read live
//! and recorded events alike.

use std::sync::Arc;

use bytes::Bytes;

use crate::LogfileHeader;
use crate::block::{Block, Origin};
use crate::buffer::{BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX};
use crate::record::{Record, RecordError};
use crate::write::{self, ItemSpec, RECORD_SIZE_MAX, RecordSpec, WriteError};

/// Records start at multiples of this.
const ALIGNMENT: usize = 8;

/// A block of one processor that is being filled.
#[derive(Debug)]
pub struct BlockBuilder {
    session: Arc<LogfileHeader>,
    origin: Origin,
    bytes: Vec<u8>,
    records: u32,
    capacity: usize,
    /// Size of the last block in bytes, as an estimate for the next one.
    expected: usize,
}

/// The initial allocation for the first block, in bytes.
const FIRST_SIZE: usize = 4 << 10;

impl BlockBuilder {
    /// A builder for the records of one processor (`None` if the session does not separate
    /// processors) of one session. `capacity` is the approximate maximum size of a block in bytes.
    /// A finished block has allocated only the bytes that it contains.
    pub fn new(
        session: Arc<LogfileHeader>,
        etl_file: u16,
        processor: Option<u16>,
        capacity: usize,
    ) -> BlockBuilder {
        let origin =
            Origin { etl_file, session: etl_file.into(), processor, file_offset: 0, after_loss: false };
        BlockBuilder { session, origin, bytes: Vec::new(), records: 0, capacity, expected: FIRST_SIZE }
    }

    /// Number of records since the last block.
    pub fn len(&self) -> u32 {
        self.records
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether the block has reached its capacity and should be taken before the next record.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.capacity
    }

    /// Marks that something is missing before the next record of this processor. The block must be
    /// empty, because records from before the loss belong to another block.
    pub fn note_loss(&mut self) {
        debug_assert!(self.is_empty());
        self.origin.after_loss = true;
    }

    /// Reserves `size` bytes for a record at the end.
    #[inline]
    fn reserve(&mut self, size: usize) -> Result<&mut [u8], WriteError> {
        if self.bytes.is_empty() {
            self.bytes.reserve(self.expected.min(self.capacity + RECORD_SIZE_MAX.min(self.capacity / 8)));
            self.bytes.resize(BUFFER_HEADER_SIZE, 0);
        }
        let start = self.bytes.len();
        let end = start + size.next_multiple_of(ALIGNMENT);
        if end > BUFFER_SIZE_MAX as usize {
            return Err(WriteError::BufferTooSmall { size, room: BUFFER_SIZE_MAX as usize - start });
        }
        self.bytes.resize(end, 0);
        self.records += 1;
        Ok(&mut self.bytes[start..start + size])
    }

    /// Appends a record. Costs a copy of its bytes.
    ///
    /// # Errors
    /// If the record is larger than the maximum record size, or the block is too large.
    #[inline]
    pub fn push(&mut self, record: &RecordSpec<'_>) -> Result<(), WriteError> {
        let size = record.size()?;
        record.encode(self.reserve(size)?);
        Ok(())
    }

    /// Appends a record of another block unchanged. Costs a copy of its bytes.
    ///
    /// # Errors
    /// If the block is too large.
    pub fn copy(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        self.reserve(record.bytes().len())?.copy_from_slice(record.bytes());
        Ok(())
    }

    /// Appends an event of a manifest, TraceLogging or EventSource provider, given its EVENT_HEADER
    /// in the in-memory layout (`EVENT_HEADER` in evntcons.h). Size, type and flags are converted
    /// to those of trace files.
    ///
    /// # Errors
    /// If the record would be larger than the maximum record size, or the block is too large.
    #[inline]
    pub fn push_event(
        &mut self,
        header: &[u8; write::EVENT_HEADER_SIZE],
        items: &[ItemSpec<'_>],
        payload: &[u8],
    ) -> Result<(), WriteError> {
        let size = write::event_size(items, payload)?;
        write::encode_event(header, items, payload, self.reserve(size)?);
        Ok(())
    }

    /// Returns the block, and the reason if its records end early; `None` if there are no records.
    /// The next record starts a new block.
    pub fn take(&mut self) -> Option<(Block, Option<RecordError>)> {
        if self.is_empty() {
            return None;
        }
        self.records = 0;
        let mut bytes = std::mem::take(&mut self.bytes);
        // The next block is expected to have this size and an eighth more. Unused memory is
        // released.
        self.expected = bytes.len() + bytes.len() / 8;
        bytes.shrink_to_fit();
        let bytes = Bytes::from(bytes);
        let (block, error) = Block::scan(bytes, self.session.clone(), self.origin, None);
        self.origin.after_loss = false;
        Some((block, error.map(|(_, error)| error)))
    }
}

impl Block {
    /// A whole buffer of a live session, including its header, as Windows 11 delivers it. `None` if
    /// the buffer has no records, or if it is a batch of small buffers, whose format is unknown.
    ///
    /// The second value is the reason if the records end early.
    pub fn of_buffer(
        bytes: Bytes,
        session: Arc<LogfileHeader>,
        etl_file: u16,
    ) -> Option<(Block, Option<RecordError>)> {
        let header = crate::BufferHeader::read(&bytes)?;
        let buffer_type = header.buffer_type().filter(|&found| found != crate::BufferType::Batched)?;
        if !buffer_type.has_records() || header.is_compressed() {
            return None;
        }
        let one_stream = session.mode.has(crate::LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let processor = (!one_stream).then(|| header.processor());
        let after_loss = header.flags().indicates_loss();
        let origin = Origin { etl_file, session: etl_file.into(), processor, file_offset: 0, after_loss };
        let end = header.filled(bytes.len())?;
        let (block, error) = Block::scan(bytes.slice(..end), session, origin, None);
        Some((block, error.map(|(_, error)| error)))
    }

    /// The same block, marked as following a loss.
    pub fn after_loss(self) -> Block {
        self.with_origin(|origin| origin.after_loss = true)
    }

    /// The same block, as part of another file with one session.
    pub fn of_file(self, number: u16) -> Block {
        self.with_origin(|origin| (origin.etl_file, origin.session) = (number, number.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EtlFile;
    use crate::write::{EtlWriter, HeaderSpec, Issuer, Payload, Session};
    use stackhound_types::{Pid, PointerSize, RawTime, Tid};

    fn session() -> (Session, Arc<LogfileHeader>) {
        let session = Session { processors: 2, ..Session::default() };
        let writer = EtlWriter::new(session.clone(), std::io::Cursor::new(Vec::new())).unwrap();
        let (file, _) = writer.finish().unwrap();
        (session, EtlFile::open(file.into_inner().into()).unwrap().session().clone())
    }

    fn record(time: i64, payload: &[u8]) -> RecordSpec<'_> {
        RecordSpec {
            time: RawTime(time),
            pointer_size: PointerSize::Eight,
            header: HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: Issuer::new(Pid(8), Tid(9)) },
            payload: Payload::Bytes(payload),
        }
    }

    #[test]
    fn built_records_match_written_records() {
        let (settings, header) = session();
        let mut writer = EtlWriter::new(settings.clone(), std::io::Cursor::new(Vec::new())).unwrap();
        let mut builder = BlockBuilder::new(header, 3, Some(1), 1 << 12);
        let payload = [7; 100];
        for n in 0..50 {
            let record = record(settings.start.0 + n, &payload[..n as usize]);
            writer.write(1, &record).unwrap();
            builder.push(&record).unwrap();
        }
        let (file, _) = writer.finish().unwrap();
        let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
        let buffer = etl_file.index().buffers[1];
        let (written, _) = etl_file.block(&buffer, None).unwrap();
        let (block, error) = builder.take().unwrap();
        assert_eq!(error, None);
        assert_eq!(block.entries(), written.entries());
        for (ours, theirs) in block.entries().iter().zip(written.entries()) {
            assert_eq!(block.record(ours).bytes(), written.record(theirs).bytes());
        }
        assert_eq!((block.origin().etl_file, block.origin().processor), (3, Some(1)));
    }

    #[test]
    fn a_loss_is_noted_on_the_next_block_only() {
        let (settings, header) = session();
        let mut builder = BlockBuilder::new(header, 0, None, 1 << 12);
        assert!(builder.take().is_none());
        builder.note_loss();
        let mut losses = Vec::new();
        for n in 0..3 {
            builder.push(&record(settings.start.0 + n, b"x")).unwrap();
            losses.push(builder.take().unwrap().0.origin().after_loss);
        }
        assert_eq!(losses, [true, false, false]);
    }
}
