//! Finding all buffers of a recording, over damage.
//!
//! Buffers follow each other without gaps; each says where the next one starts. Where a header cannot be believed, or
//! does not lead to another one, the walk searches for the next buffer and notes what it stepped over. The rules are
//! described in `docs/format/damage.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::LogfileHeader;
use crate::buffer::{BUFFER_HEADER_SIZE, BufferHeader, BufferType};
use crate::damage::{Damage, DamageReason};
use crate::etl_file::{EtlFile, SessionStart};
use crate::logfile::LogFileMode;
use crate::{repeat, resync};

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
    /// Whether a flag says that records or buffers of its processor were lost just before it.
    pub is_marked_lossy: bool,
    /// Whether it is compressed.
    pub compressed: bool,
}

/// Consecutive sequence numbers of one session that no buffer of the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingBuffers {
    /// As [`BufferRef::epoch`].
    pub epoch: u32,
    /// The first missing number.
    pub first: i64,
    /// The last missing number.
    pub last: i64,
}

impl MissingBuffers {
    fn count(&self) -> u64 {
        self.last.abs_diff(self.first).saturating_add(1)
    }
}

/// All buffers of a recording, in file order, and what was stepped over to find them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Buffers that have records; of copies of one buffer, the first.
    pub buffers: Vec<BufferRef>,
    /// The session of each epoch: one, or more in an appended recording.
    pub sessions: Vec<Arc<LogfileHeader>>,
    /// Buffers of kinds without records (context-swap streams, markers).
    pub other_buffers: u64,
    /// What was stepped over.
    pub damage: Vec<Damage>,
    /// Bytes of the buffers, and of zeros behind the last one. With what was stepped over, that is all of the file.
    pub bytes_read: u64,
    /// Buffers that the session counted as written and that are not in the file, where the sequence numbers show no
    /// gap: the first or the last ones.
    unaccounted: u64,
}

impl Index {
    /// Walks from buffer to buffer. Gives the sessions, too, with all that reading their buffers takes.
    pub(crate) fn of(etl_file: &EtlFile) -> (Index, Vec<SessionStart>) {
        let session = etl_file.first_session().clone();
        let mut walk = Walk { etl_file, session, position: 0, zeros: 0, damage: Vec::new() };
        let mut index = Index::default();
        let mut sessions = vec![walk.session.clone()];
        let mut inflated = Inflated::default();
        while let Some((location, header)) = walk.next() {
            let Some(buffer_type) = header.buffer_type() else { break };
            if buffer_type == BufferType::Header && location.start != 0 {
                walk.begin_session(&location);
                sessions.push(walk.session.clone());
            }
            let compressed = header.is_compressed() && buffer_type != BufferType::Header;
            if compressed && !inflated.fits(header) {
                let reason = DamageReason::TooManyStreams;
                walk.damage.push(Damage {
                    offset: location.start as u64,
                    skipped: location.len() as u64,
                    reason,
                });
                continue;
            }
            index.bytes_read += location.len() as u64;
            if buffer_type.has_records() {
                index.buffers.push(BufferRef {
                    offset: location.start as u64,
                    sequence: header.sequence_number.get(),
                    epoch: sessions.len() as u32 - 1,
                    size: location.len() as u32,
                    processor: header.processor(),
                    after_loss: header.flags().tells_of_loss(),
                    is_marked_lossy: header.flags().tells_of_loss(),
                    // Header buffers never are, whatever a damaged flag says.
                    compressed,
                });
            } else {
                index.other_buffers += 1;
            }
        }
        index.bytes_read += walk.zeros as u64;
        index.damage = walk.damage;
        let repeated = repeat::remove(etl_file.bytes(), &mut index.buffers);
        index.bytes_read -= repeated.iter().map(|damage| damage.skipped).sum::<u64>();
        index.damage.extend(repeated);
        index.damage.sort_by_key(|damage| damage.offset);
        index.mark_gaps();
        let missing = index.written_and_gone(etl_file.session());
        index.unaccounted = missing.saturating_sub(index.in_gaps_beyond(etl_file.session()));
        if missing > 0 {
            let reason = DamageReason::Incomplete { written: etl_file.session().buffers_written, missing };
            index.damage.push(Damage { offset: etl_file.size(), skipped: 0, reason });
        }
        index.sessions = sessions.iter().map(|session| session.header.clone()).collect();
        (index, sessions)
    }

    /// How many buffers were written and are not in the file. Unfinished sessions have not stated how many they wrote,
    /// appended ones state it for one part of the file.
    fn written_and_gone(&self, session: &LogfileHeader) -> u64 {
        let is_appended = self.buffers.iter().any(|buffer| buffer.epoch > 0);
        if session.end_time.is_none() || is_appended {
            return 0;
        }
        // The header buffer counts as written.
        let gone = u64::from(session.buffers_written).saturating_sub(self.found());
        let first = self.by_sequence().first().map_or(1, |&first| self.buffers[first].sequence);
        // A circular session overwrites its first buffers.
        let overwritten = if session.mode.has(LogFileMode::CIRCULAR) { first.abs_diff(1) } else { 0 };
        gone.saturating_sub(overwritten)
    }

    /// How many buffers are missing between the sequence numbers that the session's own losses do not explain.
    fn in_gaps_beyond(&self, session: &LogfileHeader) -> u64 {
        self.in_gaps().saturating_sub(session.buffers_lost.into())
    }

    /// Buffers of all kinds that are in the file.
    pub fn found(&self) -> u64 {
        self.buffers.len() as u64 + self.other_buffers
    }

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

    /// Sequence numbers between the first and the last one of a session that no buffer has.
    fn gaps(&self) -> Vec<MissingBuffers> {
        let order = self.by_sequence();
        let pairs = order.windows(2).map(|pair| (&self.buffers[pair[0]], &self.buffers[pair[1]]));
        let gaps = pairs.filter(|(before, after)| missing_between(before, after) > 0);
        let gap = |(before, after): (&BufferRef, &BufferRef)| {
            let (epoch, first, last) = (before.epoch, before.sequence + 1, after.sequence - 1);
            MissingBuffers { epoch, first, last }
        };
        gaps.map(gap).collect()
    }

    fn in_gaps(&self) -> u64 {
        self.gaps().iter().map(MissingBuffers::count).fold(0, u64::saturating_add)
    }

    /// Buffers that are not in the file, in the order of their numbers: gaps in the sequence numbers, and what the
    /// session counted as written beyond them. Such buffers come before the first one or after the last one, so both
    /// places are given unless the sequence begins with 1.
    pub fn missing(&self) -> Vec<MissingBuffers> {
        let mut missing = self.gaps();
        let count = i64::try_from(self.unaccounted).unwrap_or(i64::MAX);
        let order = self.by_sequence();
        if count > 0 {
            let ends = order.first().zip(order.last());
            let (first, last) =
                ends.map_or((1, 0), |(&a, &b)| (self.buffers[a].sequence, self.buffers[b].sequence));
            if first > 1 {
                let from = first.saturating_sub(count).max(1);
                missing.insert(0, MissingBuffers { epoch: 0, first: from, last: first - 1 });
            }
            if first.abs_diff(1) < self.unaccounted {
                let from = last.saturating_add(1);
                missing.push(MissingBuffers { epoch: 0, first: from, last: last.saturating_add(count) });
            }
        }
        missing
    }

    /// How many buffers are not in the file: those whose numbers are missing between the first and the last one, and
    /// those that the session counted as written beyond that.
    pub fn missing_buffers(&self) -> u64 {
        self.in_gaps().saturating_add(self.unaccounted)
    }
}

/// How many sequence numbers lie between two buffers that follow each other in sequence order.
fn missing_between(before: &BufferRef, after: &BufferRef) -> u64 {
    if before.epoch == after.epoch { after.sequence.abs_diff(before.sequence).saturating_sub(1) } else { 0 }
}

/// Whether the first buffers bear out what the logfile header says of the session's buffer size.
///
/// The header buffer has that size, except in merged recordings, where it is smaller; there the next buffer has it, or
/// is compressed and so tells nothing. A damaged logfile header must not make all other buffers impossible.
pub(crate) fn agrees(bytes: &[u8], first_size: u32, nominal: u32) -> bool {
    let second = bytes.get(first_size as usize..).and_then(BufferHeader::read);
    first_size == nominal
        || second.is_none_or(|second| second.is_compressed() || second.buffer_size.get() == nominal)
}

/// What the streams' current buffers take when they are inflated: one of each is in memory at a time.
#[derive(Default)]
struct Inflated {
    largest: BTreeMap<u16, usize>,
    total: usize,
}

/// 1,024 processors with buffers of 1 MiB.
const INFLATED_TOTAL_MAX: usize = 1 << 30;

impl Inflated {
    /// Counts a compressed buffer in, unless all streams together would then take too much.
    fn fits(&mut self, header: &BufferHeader) -> bool {
        let largest = self.largest.get(&header.processor()).copied().unwrap_or(0);
        let growth = header.inflated_size().saturating_sub(largest);
        if self.total + growth > INFLATED_TOTAL_MAX {
            return false;
        }
        self.total += growth;
        self.largest.insert(header.processor(), largest + growth);
        true
    }
}

/// Steps from buffer to buffer.
struct Walk<'r> {
    etl_file: &'r EtlFile,
    /// The session whose buffers follow.
    session: SessionStart,
    position: usize,
    /// Zeros at the end.
    zeros: usize,
    damage: Vec<Damage>,
}

/// What to make of a header.
enum Verdict {
    /// The buffer has the size it says.
    Whole,
    /// The file ends inside it.
    Truncated,
    /// It is not what it says.
    Wrong(DamageReason),
}

impl<'r> Walk<'r> {
    /// The place and header of the next buffer; `None` at the end of the data.
    fn next(&mut self) -> Option<(Range<usize>, &'r BufferHeader)> {
        loop {
            let start = self.position;
            let left = self.etl_file.bytes().get(start..).filter(|left| !left.is_empty())?;
            let Some(header) = BufferHeader::read(left) else {
                // Up to 71 bytes that cannot be a header. Zeros are the unused end of a reserved file.
                if left.iter().any(|&byte| byte != 0) {
                    self.note_truncation(left.len(), left.len(), BUFFER_HEADER_SIZE);
                } else {
                    self.zeros = left.len();
                }
                return None;
            };
            let size = header.buffer_size.get() as usize;
            let reason = match self.evaluate(header, left) {
                Verdict::Whole => {
                    self.position = start + size;
                    return Some((start..self.position, header));
                }
                Verdict::Truncated => {
                    // A header alone must not demand memory.
                    let may_expand = !header.is_compressed() || header.expands_in_proportion(left.len());
                    let skipped = if may_expand { 0 } else { left.len() };
                    self.note_truncation(skipped, left.len(), size);
                    self.position = start + left.len();
                    return (skipped == 0).then_some((start..self.position, header));
                }
                Verdict::Wrong(reason) => reason,
            };
            // The unused end of a preallocated or unfinished file is no damage.
            if left[..BUFFER_HEADER_SIZE].iter().all(|&byte| byte == 0) && left.iter().all(|&byte| byte == 0)
            {
                self.zeros = left.len();
                return None;
            }
            let next = resync::find(left, 1, self.session.nominal).unwrap_or(left.len());
            self.position = start + next;
            if start == 0 {
                // The first record was read already, so the first buffer is one, whatever its size should be.
                self.damage.push(Damage { offset: 0, skipped: 0, reason });
                return Some((0..next, header));
            }
            self.damage.push(Damage { offset: start as u64, skipped: next as u64, reason });
        }
    }

    /// Takes what a further header buffer states about the buffers after it.
    fn begin_session(&mut self, location: &Range<usize>) {
        let next = SessionStart::read(&self.etl_file.bytes()[location.start..], location.len() as u32);
        self.session = next.unwrap_or_else(|error| {
            let reason = DamageReason::Session(error);
            self.damage.push(Damage { offset: location.start as u64, skipped: 0, reason });
            self.session.unknown_next()
        });
    }

    fn note_truncation(&mut self, skipped: usize, found: usize, expected: usize) {
        let reason = DamageReason::Truncated { found: found as u64, expected: expected as u64 };
        self.damage.push(Damage { offset: self.position as u64, skipped: skipped as u64, reason });
    }

    /// Whether a header and its size can be believed. `left` starts at the header.
    fn evaluate(&self, header: &BufferHeader, left: &[u8]) -> Verdict {
        let mut nominal = self.session.nominal;
        if let Some(what) = header.implausible(nominal) {
            return Verdict::Wrong(DamageReason::Header(what));
        }
        let size = header.buffer_size.get();
        let wrong = Verdict::Wrong(DamageReason::Size { size });
        let is_header = header.buffer_type() == Some(BufferType::Header);
        if is_header {
            nominal = SessionStart::read(left, size).ok().and_then(|session| session.nominal);
        }
        // The size of an uncompressed data buffer was checked against the session's already.
        let certain = !header.is_compressed() && !is_header && nominal.is_some();
        let Some(next) = left.get(size as usize..) else {
            let found = !certain && resync::find(left, BUFFER_HEADER_SIZE, nominal).is_some();
            return if found { wrong } else { Verdict::Truncated };
        };
        if is_header && nominal.is_some_and(|nominal| size > nominal) {
            return wrong;
        }
        if certain || resync::continues(next, nominal) {
            return Verdict::Whole;
        }
        // Either this size or the next header is wrong. A buffer inside the claimed extent, or a chunk that does not
        // inflate, speak against the size.
        let proven = resync::find(left, BUFFER_HEADER_SIZE, nominal)
            .is_none_or(|found| found > size as usize)
            && (!header.is_compressed()
                || EtlFile::inflate(self.session.compression, header, &left[..size as usize]).is_ok());
        if proven { Verdict::Whole } else { wrong }
    }
}
