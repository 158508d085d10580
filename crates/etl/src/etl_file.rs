//! A recording: the buffers of one `.etl` file, found without reading more than their headers.
//!
//! Opening reads the first buffer only. [`EtlFile::index`] visits every buffer header, steps over damage and never
//! fails; [`EtlFile::block`] turns one buffer into a [`Block`]. The rules for stepping over damage are described in
//! `docs/format/damage.md`.

use std::sync::{Arc, OnceLock};

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

/// One `.etl` file's bytes and its sessions.
#[derive(Clone, Debug)]
pub struct EtlFile {
    bytes: Bytes,
    first: SessionStart,
    /// All sessions, by epoch; found with the index.
    sessions: Arc<OnceLock<Vec<SessionStart>>>,
    number: u16,
    first_session: u32,
}

/// What a header buffer states about the buffers after it.
#[derive(Clone, Debug)]
pub(crate) struct SessionStart {
    pub header: Arc<LogfileHeader>,
    pub compression: Algorithm,
    /// The session's buffer size, if the first buffers bear it out.
    pub nominal: Option<u32>,
}

impl SessionStart {
    /// Reads the header buffer of `size` bytes at the start of `bytes`, which go on to the end of the file.
    pub fn read(bytes: &[u8], size: u32) -> Result<SessionStart, LogfileHeaderError> {
        let first = &bytes[..bytes.len().min(size as usize)];
        let header = BufferHeader::read(first).ok_or(LogfileHeaderError::NotALogfileHeader)?;
        let compression = Algorithm::from_state(header.state.get());
        let first = &first[..header.records_end(first.len())];
        let record =
            Records::new(first, BUFFER_HEADER_SIZE).next().ok_or(LogfileHeaderError::NotALogfileHeader)?;
        let header = Arc::new(LogfileHeader::parse(&record)?);
        let nominal = header.nominal_size().filter(|&nominal| index::agrees(bytes, size, nominal));
        Ok(SessionStart { header, compression, nominal })
    }

    /// A session whose header buffer cannot be read: as this one, without its losses and its buffer size.
    pub fn unknown_next(&self) -> SessionStart {
        let header = LogfileHeader { events_lost: 0, buffers_lost: 0, ..LogfileHeader::clone(&self.header) };
        SessionStart { header: Arc::new(header), compression: self.compression, nominal: None }
    }
}

impl EtlFile {
    /// Reads the first buffer.
    pub fn open(bytes: Bytes) -> Result<EtlFile, OpenError> {
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
        if bytes.len() < size as usize {
            return Err(OpenError::FirstBufferCutOff { found: bytes.len() as u64, expected: size.into() });
        }
        let first = SessionStart::read(&bytes, size)?;
        Ok(EtlFile { bytes, first, sessions: Arc::default(), number: 0, first_session: 0 })
    }

    /// Gives the recording a number that its blocks carry, to tell several recordings apart.
    pub fn numbered(mut self, number: u16) -> EtlFile {
        self.number = number;
        self
    }

    /// The number given with [`numbered`](EtlFile::numbered), otherwise 0.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Gives the first session a number that its blocks carry; those of later sessions count up from it.
    pub fn sessions_from(mut self, number: u32) -> EtlFile {
        self.first_session = number;
        self
    }

    /// The first session, as the first record states it. An appended file has more: [`Index::sessions`].
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.first.header
    }

    pub(crate) fn first_session(&self) -> &SessionStart {
        &self.first
    }

    /// The session of buffers of this epoch.
    fn session_of(&self, epoch: u32) -> &SessionStart {
        if epoch == 0 {
            return &self.first;
        }
        let sessions = self.sessions.get_or_init(|| Index::of(self).1);
        sessions.get(epoch as usize).unwrap_or(&self.first)
    }

    /// The first session's clock.
    pub fn clock(&self) -> Clock {
        self.first.header.clock()
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How compressed buffers of the first session are compressed.
    pub fn compression(&self) -> Algorithm {
        self.first.compression
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Visits every buffer header.
    ///
    /// Costs one header read a buffer; around damage, a search up to the next buffer.
    pub fn index(&self) -> Index {
        let (index, sessions) = Index::of(self);
        self.sessions.get_or_init(|| sessions);
        index
    }

    /// Decompresses a buffer, header included. It must expand to exactly the size that its header states.
    ///
    /// The first buffer states the algorithm in a field that has another meaning too, so where that one fails the others
    /// are tried: a chunk that expands to exactly the right length and starts with a record is taken.
    pub(crate) fn inflate(
        stated: Algorithm,
        header: &BufferHeader,
        buffer: &[u8],
    ) -> Result<Bytes, DecompressError> {
        let size = header.inflated_size().clamp(BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX as usize);
        let mut inflated = vec![0; size];
        let (head, body) = inflated.split_at_mut(BUFFER_HEADER_SIZE);
        head.copy_from_slice(&buffer[..BUFFER_HEADER_SIZE]);
        let packed = &buffer[BUFFER_HEADER_SIZE..];
        if let Err(error) = compress::decompress(stated, packed, body) {
            let mut fits = Self::all_but(stated).map(|other| {
                compress::decompress(other, packed, body).is_ok()
                    && body.first_chunk().is_some_and(|&first| is_plausible_start(u32::from_le_bytes(first)))
            });
            if !fits.any(|fits| fits) {
                return Err(error);
            }
        }
        Ok(inflated.into())
    }

    fn all_but(stated: Algorithm) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |&other| other != stated)
    }

    /// Decompresses the beginning of a buffer that [`inflate`](EtlFile::inflate) refuses: up to the end of the last
    /// record that can be trusted, and why not all of it. `None` if no algorithm gives a beginning with a record.
    ///
    /// At most one attempt for each algorithm.
    #[cold]
    fn inflate_beginning(
        stated: Algorithm,
        header: &BufferHeader,
        buffer: &[u8],
    ) -> Option<(Bytes, DecompressError)> {
        let size = header.inflated_size().clamp(BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX as usize);
        let mut inflated = vec![0; size];
        let (head, body) = inflated.split_at_mut(BUFFER_HEADER_SIZE);
        head.copy_from_slice(&buffer[..BUFFER_HEADER_SIZE]);
        let packed = &buffer[BUFFER_HEADER_SIZE..];
        let error = std::iter::once(stated).chain(Self::all_but(stated)).find_map(|algorithm| {
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
        let session = self.session_of(buffer.epoch);
        let mut partial = None;
        let bytes = if buffer.compressed {
            let packed = &self.bytes[whole.clone()];
            Self::inflate(session.compression, header, packed).or_else(|error| {
                let reason = DamageReason::Inflate(error);
                let (bytes, error) = Self::inflate_beginning(session.compression, header, packed)
                    .ok_or(damage(whole.len(), reason))?;
                let skipped = header.inflated_size().saturating_sub(bytes.len());
                partial = Some(damage(skipped, DamageReason::Inflate(error)));
                Ok(bytes)
            })?
        } else {
            self.bytes.slice(whole)
        };
        let end = if partial.is_some() { bytes.len() } else { header.records_end(bytes.len()) };
        let one_stream = session.header.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let origin = Origin {
            etl_file: self.number,
            session: self.first_session + buffer.epoch,
            processor: (!one_stream).then_some(buffer.processor),
            file_offset: buffer.offset,
            after_loss: buffer.after_loss,
        };
        let (block, error) = Block::scan(bytes.slice(..end), session.header.clone(), origin, selection);
        let (saved, offset) = (header.saved_offset.get(), header.offset.get());
        // The file ends before the records do.
        let is_cut = partial.is_some() || saved.min(offset) as usize > bytes.len();
        let block = if is_cut { block.cut() } else { block };
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
