//! A recording: the buffers of one `.etl` file, found without reading more than their headers.
//!
//! Opening reads the first buffer only. [`Recording::index`] visits every buffer header, steps over damage and never
//! fails; [`Recording::block`] turns one buffer into a [`Block`]. The rules for stepping over damage are described in
//! `docs/format/damage.md`.

use std::sync::Arc;

use bytes::Bytes;

use crate::block::{Block, Origin};
use crate::buffer::{BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX, BufferHeader, BufferType};
use crate::compress::{self, Algorithm, DecompressError};
use crate::damage::{Damage, DamageReason};
use crate::index::{self, BufferRef, Index};
use crate::logfile::{LogFileMode, LogfileHeader, LogfileHeaderError};
use crate::record::{Records, is_plausible_start, starts_with_event, trusted_end};
use crate::{Clock, Selection};

/// Why bytes are no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// There are only zeros at the start: a file whose space was reserved and never written.
    #[error("the file starts with zeros; nothing was recorded")]
    Zeros,
    /// The start is not that of an event trace log.
    #[error("not an event trace log ({0})")]
    NotAnEventTraceLog(&'static str),
    /// The file ends inside the first buffer.
    #[error("the first buffer is cut off: {found} of {expected} bytes")]
    FirstBufferCutOff {
        /// Bytes in the file.
        found: u64,
        /// Bytes of the first buffer.
        expected: u64,
    },
    /// The first record cannot be read.
    #[error("not an event trace log ({0})")]
    FirstRecord(#[from] LogfileHeaderError),
}

/// One `.etl` file's bytes and its session.
#[derive(Clone, Debug)]
pub struct Recording {
    bytes: Bytes,
    session: Arc<LogfileHeader>,
    compression: Algorithm,
    /// The session's buffer size, if the first buffers bear it out.
    nominal: Option<u32>,
    number: u16,
}

impl Recording {
    /// Reads the first buffer.
    pub fn open(bytes: Bytes) -> Result<Recording, OpenError> {
        if bytes.is_empty() {
            return Err(OpenError::Empty);
        }
        if bytes.iter().take(BUFFER_HEADER_SIZE).all(|&byte| byte == 0) {
            return Err(OpenError::Zeros);
        }
        let Some(header) = BufferHeader::read(&bytes) else {
            return Err(OpenError::NotAnEventTraceLog("shorter than a buffer header"));
        };
        if header.buffer_type() != Some(BufferType::Header) {
            return Err(OpenError::NotAnEventTraceLog("the first buffer is not a header buffer"));
        }
        if let Some(reason) = header.implausible(None) {
            return Err(OpenError::NotAnEventTraceLog(reason));
        }
        let size = header.buffer_size.get();
        let Some(first) = bytes.get(..size as usize) else {
            return Err(OpenError::FirstBufferCutOff { found: bytes.len() as u64, expected: size.into() });
        };
        let compression = Algorithm::from_state(header.state.get());
        let first = &first[..header.records_end(first.len())];
        let record =
            Records::new(first, BUFFER_HEADER_SIZE).next().ok_or(LogfileHeaderError::NotALogfileHeader)?;
        let session = Arc::new(LogfileHeader::parse(&record)?);
        let nominal = session.nominal_size().filter(|&nominal| index::agrees(&bytes, size, nominal));
        Ok(Recording { bytes, session, compression, nominal, number: 0 })
    }

    /// Gives the recording a number that its blocks carry, to tell several recordings apart.
    pub fn numbered(mut self, number: u16) -> Recording {
        self.number = number;
        self
    }

    /// The number given with [`numbered`](Recording::numbered), otherwise 0.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// What the first record says.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// The session's clock.
    pub fn clock(&self) -> Clock {
        self.session.clock()
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The session's buffer size, unless the first buffers contradict what the logfile header says.
    pub(crate) fn nominal_size(&self) -> Option<u32> {
        self.nominal
    }

    /// How compressed buffers are compressed.
    pub fn compression(&self) -> Algorithm {
        self.compression
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Visits every buffer header.
    ///
    /// Costs one header read a buffer; around damage, a search up to the next buffer.
    pub fn index(&self) -> Index {
        Index::of(self)
    }

    /// Decompresses a buffer, header included. It must expand to exactly the size that its header states.
    ///
    /// The first buffer states the algorithm in a field that has another meaning too, so where that one fails the others
    /// are tried: a chunk that expands to exactly the right length and starts with a record is taken.
    pub(crate) fn inflate(&self, header: &BufferHeader, buffer: &[u8]) -> Result<Bytes, DecompressError> {
        let size = header.inflated_size().clamp(BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX as usize);
        let mut inflated = vec![0; size];
        let (head, body) = inflated.split_at_mut(BUFFER_HEADER_SIZE);
        head.copy_from_slice(&buffer[..BUFFER_HEADER_SIZE]);
        let packed = &buffer[BUFFER_HEADER_SIZE..];
        if let Err(error) = compress::decompress(self.compression, packed, body) {
            let mut fits = self.other_algorithms().map(|other| {
                compress::decompress(other, packed, body).is_ok()
                    && body.first_chunk().is_some_and(|&first| is_plausible_start(u32::from_le_bytes(first)))
            });
            if !fits.any(|fits| fits) {
                return Err(error);
            }
        }
        Ok(inflated.into())
    }

    fn other_algorithms(&self) -> impl Iterator<Item = Algorithm> {
        let stated = self.compression;
        Algorithm::ALL.into_iter().filter(move |&other| other != stated)
    }

    /// Decompresses the beginning of a buffer that [`inflate`](Recording::inflate) refuses: up to the end of the last
    /// record that can be trusted, and why not all of it. `None` if no algorithm gives a beginning with a record.
    ///
    /// At most one attempt for each algorithm.
    #[cold]
    fn inflate_beginning(&self, header: &BufferHeader, buffer: &[u8]) -> Option<(Bytes, DecompressError)> {
        let size = header.inflated_size().clamp(BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX as usize);
        let mut inflated = vec![0; size];
        let (head, body) = inflated.split_at_mut(BUFFER_HEADER_SIZE);
        head.copy_from_slice(&buffer[..BUFFER_HEADER_SIZE]);
        let packed = &buffer[BUFFER_HEADER_SIZE..];
        let error =
            std::iter::once(self.compression).chain(self.other_algorithms()).find_map(|algorithm| {
                let error = compress::decompress(algorithm, packed, body).err()?;
                starts_with_event(&body[..error.written]).then_some(error)
            })?;
        inflated.truncate(BUFFER_HEADER_SIZE + error.written);
        let is_cut_off = (header.buffer_size.get() as usize) > buffer.len();
        inflated.truncate(trusted_end(&inflated, is_cut_off));
        (inflated.len() > BUFFER_HEADER_SIZE).then(|| (inflated.into(), error))
    }

    /// Reads one buffer of the index: decompresses it if need be and finds its records.
    ///
    /// With a `selection`, only records that belong to it are in the block. `Err` if nothing of the buffer can be
    /// read; damage beside the block if a part cannot.
    pub fn block(
        &self,
        buffer: &BufferRef,
        selection: Option<&Selection>,
    ) -> Result<(Block, Option<Damage>), Damage> {
        let start = buffer.offset as usize;
        let whole = start..start + buffer.size as usize;
        let damage =
            |skipped: usize, reason| Damage { offset: buffer.offset, skipped: skipped as u64, reason };
        let Some(header) = self.bytes.get(whole.clone()).and_then(BufferHeader::read) else {
            let reason = DamageReason::Header("outside the file");
            return Err(damage(0, reason));
        };
        let mut partial = None;
        let bytes = if buffer.compressed {
            let packed = &self.bytes[whole.clone()];
            self.inflate(header, packed).or_else(|error| {
                let reason = DamageReason::Inflate(error);
                let (bytes, error) =
                    self.inflate_beginning(header, packed).ok_or(damage(whole.len(), reason))?;
                let skipped = header.inflated_size().saturating_sub(bytes.len());
                partial = Some(damage(skipped, DamageReason::Inflate(error)));
                Ok(bytes)
            })?
        } else {
            self.bytes.slice(whole)
        };
        let end = if partial.is_some() { bytes.len() } else { header.records_end(bytes.len()) };
        let one_stream = self.session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let origin = Origin {
            recording: self.number,
            processor: (!one_stream).then_some(buffer.processor),
            file_offset: buffer.offset,
            after_loss: buffer.after_loss,
        };
        let (block, error) = Block::scan(bytes.slice(..end), self.session.clone(), origin, selection);
        let (saved, offset) = (header.saved_offset.get(), header.offset.get());
        let note = match error {
            _ if partial.is_some() => partial,
            Some((at, error)) => {
                let mut damage = damage(end - at, DamageReason::Record(error));
                if !buffer.compressed {
                    damage.offset += at as u64;
                }
                Some(damage)
            }
            None if saved != offset && header.buffer_type() != Some(BufferType::Header) => {
                Some(damage(0, DamageReason::TwoEnds { saved, offset }))
            }
            None => None,
        };
        Ok((block, note))
    }
}
