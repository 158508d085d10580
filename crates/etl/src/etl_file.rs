//! A trace file: the buffers of one `.etl` file, found by their headers.
//!
//! Opening reads only the first buffer. [`EtlFile::index`] visits every buffer header, skips damage
//! and never fails. [`EtlFile::block`] reads one buffer as a [`Block`]. `docs/format/damage.md`
//! describes how damage is skipped.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use stackhound_types::RawTime;

use crate::block::{Block, Origin};
use crate::buffer::{BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX, BufferHeader, BufferType};
use crate::compress::{self, Algorithm, DecompressError};
use crate::damage::{Damage, DamageReason};
use crate::index::{self, BufferRef, Index};
use crate::logfile::{LogFileMode, LogfileHeader, LogfileHeaderError};
use crate::record::{Records, is_plausible_start, starts_with_event, time_of_first, trusted_end};
use crate::time_check::TimeBounds;
use crate::{Clock, Selection};

/// The reason why bytes are not a trace file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// The file starts with zeros: its space was reserved, but nothing was written.
    #[error("the file starts with zeros; nothing was recorded")]
    Zeros,
    /// The file does not start as an event trace log. The value is the reason.
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

/// The bytes and the sessions of one `.etl` file.
#[derive(Clone, Debug)]
pub struct EtlFile {
    bytes: Bytes,
    first: SessionStart,
    /// All sessions, by epoch; set with the index.
    sessions: Arc<OnceLock<Vec<SessionStart>>>,
    number: u16,
    first_session: u32,
}

/// The settings in a header buffer that apply to the buffers after it.
#[derive(Clone, Debug)]
pub(crate) struct SessionStart {
    pub header: Arc<LogfileHeader>,
    pub compression: Algorithm,
    /// The session's buffer size, if the first buffers confirm it.
    pub nominal: Option<u32>,
}

impl SessionStart {
    /// Reads the header buffer of `size` bytes at the start of `bytes`. `bytes` extends to the end
    /// of the file.
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

    /// The session of an unreadable header buffer: a copy of this one without its losses and its
    /// buffer size.
    pub fn unknown_next(&self) -> SessionStart {
        let header = LogfileHeader { events_lost: 0, buffers_lost: 0, ..LogfileHeader::clone(&self.header) };
        SessionStart { header: Arc::new(header), compression: self.compression, nominal: None }
    }
}

impl EtlFile {
    /// Opens a file by reading its first buffer.
    ///
    /// # Errors
    /// If the bytes do not start with a header buffer of an event trace log, or end inside it.
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

    /// Sets the number of the file, which its blocks carry to distinguish several files.
    pub fn numbered(mut self, number: u16) -> EtlFile {
        self.number = number;
        self
    }

    /// The number set with [`numbered`](EtlFile::numbered), otherwise 0.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Sets the number of the first session, which its blocks carry. Later sessions are numbered
    /// consecutively.
    pub fn sessions_from(mut self, number: u32) -> EtlFile {
        self.first_session = number;
        self
    }

    /// The first session, from the first record. An appended file has more: [`Index::sessions`].
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.first.header
    }

    pub(crate) fn first_session(&self) -> &SessionStart {
        &self.first
    }

    /// The session of the buffers of an epoch.
    fn session_of(&self, epoch: u32) -> &SessionStart {
        if epoch == 0 {
            return &self.first;
        }
        let sessions = self.sessions.get_or_init(|| Index::of(self).1);
        sessions.get(epoch as usize).unwrap_or(&self.first)
    }

    /// The clock of the first session.
    pub fn clock(&self) -> Clock {
        self.first.header.clock()
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The compression algorithm of the first session.
    pub fn compression(&self) -> Algorithm {
        self.first.compression
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Visits every buffer header.
    ///
    /// Costs the read of one header per buffer, and a search up to the next buffer at damage.
    pub fn index(&self) -> Index {
        let (index, sessions) = Index::of(self);
        self.sessions.get_or_init(|| sessions);
        index
    }

    /// Decompresses a buffer, including its header. It must expand to exactly the size in its
    /// header.
    ///
    /// The field of the first buffer that states the algorithm also has another meaning. If the
    /// stated algorithm fails, the others are tried: the result is accepted if it has exactly the
    /// right length and starts with a record.
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

    /// Decompresses the beginning of a buffer that [`inflate`](EtlFile::inflate) rejects, up to the
    /// end of the last trusted record. Also returns the error. `None` if no algorithm yields a
    /// record.
    ///
    /// Makes at most one attempt per algorithm.
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

    /// Reads one buffer of the index: decompresses it if necessary and finds its records.
    ///
    /// With a `selection`, the block contains only the selected records. If only a part of the
    /// buffer can be read, or the times of some records cannot be right, the damage is returned
    /// together with the block.
    ///
    /// # Errors
    /// If nothing of the buffer can be read.
    pub fn block(
        &self,
        buffer: &BufferRef,
        selection: Option<&Selection>,
    ) -> Result<(Block, Vec<Damage>), Damage> {
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
        let (block, misfits) = match TimeBounds::of(buffer, header, &session.header) {
            Some(bounds) => block.checked(&bounds)?,
            None => (block, None),
        };
        Ok((block, misfits.into_iter().chain(note).collect()))
    }

    /// The time of the first record of a buffer. Expands the beginning of a compressed buffer.
    pub(crate) fn first_time(&self, buffer: &BufferRef, compression: Algorithm) -> Option<RawTime> {
        let start = buffer.offset as usize;
        let content = self.bytes.get(start + BUFFER_HEADER_SIZE..start + buffer.size as usize)?;
        if !buffer.compressed {
            return time_of_first(content);
        }
        let mut beginning = [0; 128];
        let written = match compress::decompress(compression, content, &mut beginning) {
            Ok(()) => beginning.len(),
            Err(error) => error.written,
        };
        time_of_first(&beginning[..written])
    }
}
