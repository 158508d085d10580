//! Finds all buffers of a trace, also after damage.
//!
//! Buffers follow each other without gaps, and the size of each leads to the next one. If a header
//! is implausible or does not lead to another buffer, the walk searches for the next buffer and
//! reports the skipped bytes. The rules are described in `docs/format/damage.md`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use stackhound_types::RawTime;

use crate::LogfileHeader;
use crate::buffer::{BUFFER_HEADER_SIZE, BufferHeader, BufferType};
use crate::damage::{Damage, DamageReason};
use crate::etl_file::{EtlFile, SessionStart};
use crate::logfile::LogFileMode;
use crate::{repeat, resync};

/// Location and order of a buffer, in 48 bytes, so that the index of any file stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Sequence number, in the order in which the session started to fill its buffers.
    pub sequence: i64,
    /// Number of its session in the file, from 0. Sequence numbers restart in each session (append
    /// mode).
    pub epoch: u32,
    /// Size in the file, in bytes.
    pub size: u32,
    /// Processor index.
    pub processor: u16,
    /// Whether events or buffers were lost immediately before it: a flag is set, or the previous
    /// sequence number is missing, also that of the first buffer.
    pub after_loss: bool,
    /// Whether a flag reports a loss of records or buffers of its processor immediately before it.
    pub is_marked_lossy: bool,
    /// Whether the content is compressed.
    pub compressed: bool,
    /// The time of the first record of the next buffer of its stream, if it has one.
    pub next_time: Option<RawTime>,
}

/// A range of sequence numbers of one session that no buffer of the file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingBuffers {
    /// See [`BufferRef::epoch`].
    pub epoch: u32,
    /// The first missing sequence number.
    pub first: i64,
    /// The last missing sequence number.
    pub last: i64,
}

/// The first Windows version (7) whose sessions begin their sequence of buffers with 1.
const FIRST_IS_ONE: (u8, u8) = (6, 1);
/// The first sequence number of sessions of Windows Vista.
const FIRST_OF_VISTA: i64 = 2;

impl MissingBuffers {
    fn count(&self) -> u64 {
        self.last.abs_diff(self.first).saturating_add(1)
    }
}

/// All buffers of a trace in file order, and the damage that was skipped to find them.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Buffers with records. Of several copies of one buffer, only the first.
    pub buffers: Vec<BufferRef>,
    /// The session of each epoch. Only appended files have more than one.
    pub sessions: Vec<Arc<LogfileHeader>>,
    /// Number of buffers without records (context-swap streams, markers).
    pub other_buffers: u64,
    /// The damage, in file order.
    pub damage: Vec<Damage>,
    /// Bytes of the buffers, and of the zeros after the last one. Together with the skipped bytes,
    /// this is the size of the file.
    pub bytes_read: u64,
    /// Buffers that the session counted as written and that are missing at the start or the end of
    /// the file, where the sequence numbers show no gap.
    unaccounted: u64,
}

impl Index {
    /// Walks from buffer to buffer. Also returns the sessions, with everything that is needed to
    /// read their buffers.
    pub(crate) fn of(etl_file: &EtlFile) -> (Index, Vec<SessionStart>) {
        let session = etl_file.first_session().clone();
        let mut walk = Walk { etl_file, session, position: 0, zeros: 0, damage: Vec::new() };
        let mut index = Index::default();
        let mut sessions = vec![walk.session.clone()];
        let mut inflated = Inflated::default();
        while let Some((range, header)) = walk.next() {
            let Some(buffer_type) = header.buffer_type() else { break };
            if buffer_type == BufferType::Header && range.start != 0 {
                walk.begin_session(&range);
                sessions.push(walk.session.clone());
            }
            let compressed = header.is_compressed() && buffer_type != BufferType::Header;
            if compressed && !inflated.fits(header) {
                let reason = DamageReason::TooManyStreams;
                walk.damage.push(Damage { offset: range.start as u64, skipped: range.len() as u64, reason });
                continue;
            }
            index.bytes_read += range.len() as u64;
            if buffer_type.has_records() {
                index.buffers.push(BufferRef {
                    offset: range.start as u64,
                    sequence: header.sequence_number.get(),
                    epoch: sessions.len() as u32 - 1,
                    size: range.len() as u32,
                    processor: header.processor(),
                    after_loss: header.flags().indicates_loss(),
                    is_marked_lossy: header.flags().indicates_loss(),
                    // Header buffers are never compressed, even if a damaged flag is set.
                    compressed,
                    next_time: None,
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
        index.sessions = sessions.iter().map(|session| session.header.clone()).collect();
        index.note_next_times(etl_file, &sessions);
        index.mark_gaps();
        let missing = index.written_and_gone(etl_file.session());
        index.unaccounted = missing.saturating_sub(index.in_gaps_beyond(etl_file.session()));
        if missing > 0 {
            let reason = DamageReason::Incomplete { written: etl_file.session().buffers_written, missing };
            index.damage.push(Damage { offset: etl_file.size(), skipped: 0, reason });
        } else if let Some(damage) = index.missing_start() {
            index.damage.insert(0, damage);
        }
        (index, sessions)
    }

    /// Notes for each buffer the time of the first record of the next one of its stream.
    fn note_next_times(&mut self, etl_file: &EtlFile, sessions: &[SessionStart]) {
        let mut order = self.by_sequence();
        order.sort_by_key(|&number| self.buffers[number].processor);
        for pair in order.windows(2) {
            let next = self.buffers[pair[1]];
            let before = &mut self.buffers[pair[0]];
            if (before.processor, before.epoch) == (next.processor, next.epoch) {
                before.next_time = etl_file.first_time(&next, sessions[next.epoch as usize].compression);
            }
        }
    }

    /// Whether the sequence of a session begins with 1, so that larger numbers prove that its first
    /// buffers are missing.
    fn begins_with_one(&self, epoch: u32) -> bool {
        let Some(session) = self.sessions.get(epoch as usize) else { return false };
        let mode = session.mode;
        // A circular file overwrites its first buffers when it has reached its maximum size. The
        // two buffers are a margin: no source describes which of the sizes is the last.
        let largest = session.maximum_file_bytes().saturating_sub(2 * u64::from(session.buffer_size));
        let is_overwritten = mode.has(LogFileMode::CIRCULAR) && self.bytes_read > largest;
        let starts_later = mode.has(LogFileMode::NEW_FILE) || mode.has(LogFileMode::BUFFERING);
        session.windows_version >= FIRST_IS_ONE && !is_overwritten && !starts_later
    }

    /// The damage that buffers before the first one are missing, beyond those that the session
    /// itself lost.
    fn missing_start(&self) -> Option<Damage> {
        let gaps = self.gaps();
        let (after, _) = gaps.iter().find(|(_, gap)| gap.first == 1)?;
        let first = &self.buffers[*after];
        let session = &self.sessions[first.epoch as usize];
        let reason = DamageReason::MissingStart { first: first.sequence };
        let is_lost = self.in_gaps_beyond(session) == 0;
        (!is_lost).then_some(Damage { offset: first.offset, skipped: 0, reason })
    }

    /// Number of buffers that were written and are not in the file. The count of an unfinished
    /// session may be too low, but not too high. It is 0 for appended files, where the count covers
    /// only a part of the file.
    fn written_and_gone(&self, session: &LogfileHeader) -> u64 {
        let is_appended = self.buffers.iter().any(|buffer| buffer.epoch > 0);
        if is_appended {
            return 0;
        }
        // The header buffer counts as written.
        let gone = u64::from(session.buffers_written).saturating_sub(self.found());
        let first = self.by_sequence().first().map_or(1, |&first| self.buffers[first].sequence);
        // A circular session overwrites its first buffers.
        let is_circular = session.mode.has(LogFileMode::CIRCULAR) && !self.begins_with_one(0);
        let overwritten = if is_circular { first.abs_diff(1) } else { 0 };
        gone.saturating_sub(overwritten)
    }

    /// Number of buffers missing in gaps of the sequence numbers, minus the buffers that the
    /// session itself lost.
    fn in_gaps_beyond(&self, session: &LogfileHeader) -> u64 {
        self.in_gaps().saturating_sub(session.buffers_lost.into())
    }

    /// Number of buffers of all kinds in the file.
    pub fn found(&self) -> u64 {
        self.buffers.len() as u64 + self.other_buffers
    }

    /// The buffers as streams, one per processor, each in the order in which it was written.
    ///
    /// The order depends only on the headers. Offsets decide only between equal sequence numbers.
    pub fn streams(&self) -> Vec<Vec<BufferRef>> {
        let mut buffers = self.buffers.clone();
        buffers.sort_by_key(|buffer| (buffer.processor, buffer.epoch, buffer.sequence, buffer.offset));
        buffers.chunk_by(|a, b| a.processor == b.processor).map(<[BufferRef]>::to_vec).collect()
    }

    /// Indexes of the buffers in the order of their sequence numbers, without header buffers.
    fn by_sequence(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.buffers.len()).filter(|&i| self.buffers[i].sequence > 0).collect();
        order.sort_by_key(|&i| (self.buffers[i].epoch, self.buffers[i].sequence));
        order
    }

    fn mark_gaps(&mut self) {
        for (after, _) in self.gaps() {
            self.buffers[after].after_loss = true;
        }
    }

    /// Gaps up to the last sequence number of a session, each with the index of the buffer after
    /// it.
    fn gaps(&self) -> Vec<(usize, MissingBuffers)> {
        let (mut gaps, mut last) = (Vec::new(), None);
        for number in self.by_sequence() {
            let BufferRef { epoch, sequence, .. } = self.buffers[number];
            let before = match last {
                Some((same, before)) if same == epoch => before,
                _ if self.begins_with_one(epoch) => 0,
                _ => sequence - 1,
            };
            if sequence.abs_diff(before) > 1 {
                gaps.push((number, MissingBuffers { epoch, first: before + 1, last: sequence - 1 }));
            }
            last = Some((epoch, sequence));
        }
        gaps
    }

    fn in_gaps(&self) -> u64 {
        self.gaps().iter().map(|(_, gap)| gap.count()).fold(0, u64::saturating_add)
    }

    /// Buffers that are not in the file, in the order of their sequence numbers: gaps, buffers that
    /// the session counted as written beyond them, and those before the first one if it is not
    /// known to be the session's first: overwritten ones, those of earlier files of a series.
    pub fn missing(&self) -> Vec<MissingBuffers> {
        let mut missing: Vec<MissingBuffers> = self.gaps().into_iter().map(|(_, gap)| gap).collect();
        missing.extend(self.unknown_starts());
        missing.sort_by_key(|gap| (gap.epoch, gap.first));
        if self.unaccounted > 0 {
            let count = i64::try_from(self.unaccounted).unwrap_or(i64::MAX);
            let last = self.by_sequence().last().map_or(0, |&last| self.buffers[last].sequence);
            let first = last.saturating_add(1);
            missing.push(MissingBuffers { epoch: 0, first, last: last.saturating_add(count) });
        }
        missing
    }

    /// The numbers before the first buffer of each session that may not begin with 1.
    fn unknown_starts(&self) -> Vec<MissingBuffers> {
        let (mut starts, mut last) = (Vec::new(), None);
        for number in self.by_sequence() {
            let BufferRef { epoch, sequence, .. } = self.buffers[number];
            let is_first = last != Some(epoch);
            last = Some(epoch);
            let is_whole = sequence == FIRST_OF_VISTA && self.is_complete(epoch);
            if is_first && sequence > 1 && !self.begins_with_one(epoch) && !is_whole {
                starts.push(MissingBuffers { epoch, first: 1, last: sequence - 1 });
            }
        }
        starts
    }

    /// Whether the file has all buffers of a session according to the session's count.
    fn is_complete(&self, epoch: u32) -> bool {
        let Some(session) = self.sessions.get(epoch as usize) else { return false };
        let is_all = [LogFileMode::CIRCULAR, LogFileMode::NEW_FILE, LogFileMode::BUFFERING]
            .iter()
            .all(|&mode| !session.mode.has(mode));
        let is_only = self.sessions.len() == 1;
        is_only && is_all && session.end_time.is_some() && u64::from(session.buffers_written) == self.found()
    }

    /// Number of buffers that are not in the file: gaps in the sequence numbers, and buffers that
    /// the session counted as written beyond them.
    pub fn missing_buffers(&self) -> u64 {
        self.in_gaps().saturating_add(self.unaccounted)
    }
}

/// Whether the first buffers confirm the buffer size in the logfile header.
///
/// The header buffer has that size, except in merged traces, where it is smaller. There, the next
/// buffer has that size, or it is compressed and gives no evidence. Without this check, a damaged
/// logfile header would make all other buffers implausible.
pub(crate) fn agrees(bytes: &[u8], first_size: u32, nominal: u32) -> bool {
    let second = bytes.get(first_size as usize..).and_then(BufferHeader::read);
    first_size == nominal
        || second.is_none_or(|second| second.is_compressed() || second.buffer_size.get() == nominal)
}

/// Memory for the current buffers of all streams after decompression. One buffer of each stream is
/// in memory at a time.
#[derive(Default)]
struct Inflated {
    largest: BTreeMap<u16, usize>,
    total: usize,
}

/// Enough for 1,024 processors with buffers of 1 MiB.
const INFLATED_TOTAL_MAX: usize = 1 << 30;

impl Inflated {
    /// Adds a compressed buffer, unless all streams together would then need too much memory.
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
    /// The session of the following buffers.
    session: SessionStart,
    position: usize,
    /// Number of zeros at the end.
    zeros: usize,
    damage: Vec<Damage>,
}

/// The result of the check of a header.
enum Verdict {
    /// The buffer has the stated size.
    Whole,
    /// The file ends inside the buffer.
    Truncated,
    /// The header or its size is wrong.
    Wrong(DamageReason),
}

impl<'r> Walk<'r> {
    /// Range and header of the next buffer; `None` at the end of the data.
    fn next(&mut self) -> Option<(Range<usize>, &'r BufferHeader)> {
        loop {
            let start = self.position;
            let left = self.etl_file.bytes().get(start..).filter(|left| !left.is_empty())?;
            let Some(header) = BufferHeader::read(left) else {
                // Up to 71 bytes that cannot be a header. Zeros are the unused end of a
                // preallocated file.
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
                    // A header alone must not cause a large allocation.
                    let may_expand = !header.is_compressed() || header.expands_in_proportion(left.len());
                    let skipped = if may_expand { 0 } else { left.len() };
                    self.note_truncation(skipped, left.len(), size);
                    self.position = start + left.len();
                    return (skipped == 0).then_some((start..self.position, header));
                }
                Verdict::Wrong(reason) => reason,
            };
            // Zeros up to the end of a preallocated or unfinished file are not damage.
            if left[..BUFFER_HEADER_SIZE].iter().all(|&byte| byte == 0) && left.iter().all(|&byte| byte == 0)
            {
                self.zeros = left.len();
                return None;
            }
            let next = resync::find(left, 1, self.session.nominal).unwrap_or(left.len());
            self.position = start + next;
            if start == 0 {
                // The first record was already read, so this is a buffer, regardless of its size.
                self.damage.push(Damage { offset: 0, skipped: 0, reason });
                return Some((0..next, header));
            }
            self.damage.push(Damage { offset: start as u64, skipped: next as u64, reason });
        }
    }

    /// Reads the session of a further header buffer, which applies to the buffers after it.
    fn begin_session(&mut self, range: &Range<usize>) {
        let next = SessionStart::read(&self.etl_file.bytes()[range.start..], range.len() as u32);
        self.session = next.unwrap_or_else(|error| {
            let reason = DamageReason::Session(error);
            self.damage.push(Damage { offset: range.start as u64, skipped: 0, reason });
            self.session.unknown_next()
        });
    }

    fn note_truncation(&mut self, skipped: usize, found: usize, expected: usize) {
        let reason = DamageReason::Truncated { found: found as u64, expected: expected as u64 };
        self.damage.push(Damage { offset: self.position as u64, skipped: skipped as u64, reason });
    }

    /// Whether a header and its size are plausible. `left` starts at the header.
    fn evaluate(&self, header: &BufferHeader, left: &[u8]) -> Verdict {
        let mut nominal = self.session.nominal;
        if let Some(reason) = header.implausible(nominal) {
            return Verdict::Wrong(DamageReason::Header(reason));
        }
        let size = header.buffer_size.get();
        let wrong = Verdict::Wrong(DamageReason::Size { size });
        let is_header = header.buffer_type() == Some(BufferType::Header);
        if is_header {
            nominal = SessionStart::read(left, size).ok().and_then(|session| session.nominal);
        }
        // The size of an uncompressed data buffer was already compared with that of the session.
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
        // Either this size or the next header is wrong. The size is wrong if there is a buffer
        // inside the stated range, or if the content does not decompress.
        let proven = resync::find(left, BUFFER_HEADER_SIZE, nominal)
            .is_none_or(|found| found > size as usize)
            && (!header.is_compressed()
                || EtlFile::inflate(self.session.compression, header, &left[..size as usize]).is_ok());
        if proven { Verdict::Whole } else { wrong }
    }
}
