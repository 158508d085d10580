//! A recording: the buffers of one `.etl` file, found without reading more than their headers.
//!
//! Opening reads the first buffer only. [`Recording::index`] visits every buffer header, steps over damage and never
//! fails; [`Recording::block`] turns one buffer into a [`Block`]. The rules for stepping over damage are described in
//! `docs/format/damage.md`.

use std::sync::Arc;

use bytes::Bytes;

use crate::block::{Block, Origin};
use crate::buffer::{BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX, BufferHeader, BufferType};
use crate::compress::{self, Algorithm};
use crate::damage::{Damage, DamageReason};
use crate::logfile::{LogFileMode, LogfileHeader, LogfileHeaderError};
use crate::record::Records;
use crate::{Clock, Selection, resync};

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

/// Where a buffer stands and what order it has; 32 bytes, so that an index of any file stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Where it starts in the file.
    pub offset: u64,
    /// Number in the order in which buffers were taken into use.
    pub sequence: i64,
    /// How many header buffers stand before it: sequence numbers start again behind each (append mode).
    pub epoch: u32,
    /// Bytes in the file.
    pub size: u32,
    /// Processor.
    pub processor: u16,
    /// Whether events or buffers were lost just before it: a flag says so, or the number before it is missing.
    pub after_loss: bool,
    /// Whether it is compressed.
    pub compressed: bool,
}

/// All buffers of a recording, in file order, and what was stepped over to find them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Buffers that have records.
    pub buffers: Vec<BufferRef>,
    /// Buffers of kinds without records (context-swap streams, markers).
    pub other_buffers: u64,
    /// What was stepped over.
    pub damage: Vec<Damage>,
}

impl Index {
    /// The buffers as streams, one a processor, each in the order in which it was written.
    ///
    /// Depends on what the headers say only, not on where buffers stand, unless sequence numbers are equal.
    pub fn streams(&self) -> Vec<Vec<BufferRef>> {
        let mut buffers = self.buffers.clone();
        buffers.sort_by_key(|buffer| (buffer.processor, buffer.epoch, buffer.sequence, buffer.offset));
        buffers.chunk_by(|a, b| a.processor == b.processor).map(<[BufferRef]>::to_vec).collect()
    }

    /// Buffers in the order of their sequence numbers, header buffers left out.
    fn by_sequence(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.buffers.len()).filter(|&i| self.buffers[i].sequence > 0).collect();
        order.sort_by_key(|&i| (self.buffers[i].epoch, self.buffers[i].sequence));
        order
    }

    fn mark_gaps(&mut self) {
        for pair in self.by_sequence().windows(2) {
            let before = self.buffers[pair[0]];
            self.buffers[pair[1]].after_loss |= missing_between(&before, &self.buffers[pair[1]]) > 0;
        }
    }

    /// How many sequence numbers between the first and the last one are missing: buffers that were lost or overwritten.
    pub fn missing_buffers(&self) -> u64 {
        let order = self.by_sequence();
        let missing = |pair: &[usize]| missing_between(&self.buffers[pair[0]], &self.buffers[pair[1]]);
        order.windows(2).map(missing).fold(0, u64::saturating_add)
    }
}

/// How many sequence numbers lie between two buffers that follow each other in sequence order.
fn missing_between(before: &BufferRef, after: &BufferRef) -> u64 {
    if before.epoch == after.epoch { after.sequence.abs_diff(before.sequence).saturating_sub(1) } else { 0 }
}

/// One `.etl` file's bytes and its session.
#[derive(Clone, Debug)]
pub struct Recording {
    bytes: Bytes,
    session: Arc<LogfileHeader>,
    compression: Algorithm,
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
        Ok(Recording { bytes, session, compression, number: 0 })
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
        let mut index = Index::default();
        let mut position = 0;
        let mut epoch = 0;
        while let Some(buffer) = self.buffer_at(&mut position, &mut index.damage) {
            let Some(header) = BufferHeader::read(&self.bytes[buffer.start..]) else { break };
            let Some(buffer_type) = header.buffer_type() else { break };
            if buffer_type == BufferType::Header && buffer.start != 0 {
                epoch += 1;
            }
            if buffer_type.has_records() {
                index.buffers.push(BufferRef {
                    offset: buffer.start as u64,
                    sequence: header.sequence_number.get(),
                    epoch,
                    size: buffer.len() as u32,
                    processor: header.processor(),
                    after_loss: header.flags().tells_of_loss(),
                    compressed: header.is_compressed(),
                });
            } else {
                index.other_buffers += 1;
            }
        }
        index.mark_gaps();
        index
    }

    /// The next buffer from `position` on, which is moved behind it; `None` at the end of the data.
    fn buffer_at(&self, position: &mut usize, damage: &mut Vec<Damage>) -> Option<std::ops::Range<usize>> {
        let nominal = self.session.nominal_size();
        loop {
            let start = *position;
            let left = self.bytes.get(start..).filter(|left| !left.is_empty())?;
            let problem = match BufferHeader::read(left) {
                None => {
                    // Up to 71 bytes that cannot be a header. Zeros are the unused end of a reserved file.
                    if left.iter().any(|&byte| byte != 0) {
                        let (found, expected) = (left.len() as u64, BUFFER_HEADER_SIZE as u64);
                        let reason = DamageReason::Truncated { found, expected };
                        damage.push(Damage { offset: start as u64, skipped: found, reason });
                    }
                    return None;
                }
                Some(header) => match header.implausible(nominal) {
                    None => {
                        let size = header.buffer_size.get() as usize;
                        match self.accept(header, left, nominal) {
                            Verdict::Whole => {
                                *position = start + size;
                                return Some(start..*position);
                            }
                            Verdict::Truncated => {
                                let (found, expected) = (left.len() as u64, size as u64);
                                let reason = DamageReason::Truncated { found, expected };
                                let skipped = if header.is_compressed() { found } else { 0 };
                                damage.push(Damage { offset: start as u64, skipped, reason });
                                *position = self.bytes.len();
                                return (!header.is_compressed()).then_some(start..self.bytes.len());
                            }
                            Verdict::WrongSize => DamageReason::Size { size: size as u32 },
                        }
                    }
                    Some(what) => DamageReason::Header(what),
                },
            };
            // The unused end of a preallocated or unfinished file is no damage.
            if left[..BUFFER_HEADER_SIZE].iter().all(|&byte| byte == 0) && left.iter().all(|&byte| byte == 0)
            {
                return None;
            }
            let next = resync::find(left, 1, nominal).unwrap_or(left.len());
            damage.push(Damage { offset: start as u64, skipped: next as u64, reason: problem });
            *position = start + next;
        }
    }

    /// Whether the size of a plausible header can be believed.
    fn accept(&self, header: &BufferHeader, left: &[u8], nominal: Option<u32>) -> Verdict {
        let size = header.buffer_size.get() as usize;
        // The size of an uncompressed buffer was checked against the session's already.
        let certain = !header.is_compressed() && nominal.is_some();
        let Some(next) = left.get(size..) else {
            let found = !certain && resync::find(left, BUFFER_HEADER_SIZE, nominal).is_some();
            return if found { Verdict::WrongSize } else { Verdict::Truncated };
        };
        if certain || resync::continues(next, nominal) {
            return Verdict::Whole;
        }
        // Either this size or the next header is wrong. A compressed buffer that inflates exactly proves its size.
        if header.is_compressed() && self.inflate(header, &left[..size]).is_err() {
            Verdict::WrongSize
        } else {
            Verdict::Whole
        }
    }

    fn inflate(&self, header: &BufferHeader, buffer: &[u8]) -> Result<Bytes, DamageReason> {
        let size = header.inflated_size().clamp(BUFFER_HEADER_SIZE, BUFFER_SIZE_MAX as usize);
        let mut inflated = vec![0; size];
        let (head, body) = inflated.split_at_mut(BUFFER_HEADER_SIZE);
        head.copy_from_slice(&buffer[..BUFFER_HEADER_SIZE]);
        match compress::decompress(self.compression, &buffer[BUFFER_HEADER_SIZE..], body) {
            Ok(()) => Ok(inflated.into()),
            Err(error) => Err(DamageReason::Inflate(error)),
        }
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
        let bytes = if header.is_compressed() {
            self.inflate(header, &self.bytes[whole.clone()]).map_err(|reason| damage(whole.len(), reason))?
        } else {
            self.bytes.slice(whole)
        };
        let end = header.records_end(bytes.len());
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
            Some((at, error)) => {
                let mut damage = damage(end - at, DamageReason::Record(error));
                if !header.is_compressed() {
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

/// What to make of a plausible header's size.
enum Verdict {
    Whole,
    Truncated,
    WrongSize,
}
