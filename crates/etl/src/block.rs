//! Blocks: one buffer's bytes and a column of where its records are.
//!
//! A block is the unit of work of everything behind the container. Its bytes are shared by reference count with the
//! file they come from.

use std::sync::Arc;

use bytes::Bytes;
use stackhound_types::RawTime;

use crate::record::{HeaderKind, Record, RecordError, Records};
use crate::{LogfileHeader, Selection};

/// One record of a block: its time, its place and what it is, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Raw timestamp.
    pub time: RawTime,
    /// Offset in units of 8 bytes, above the kind in the low byte.
    location: u32,
    size: u16,
    /// The hook of a kernel event, the opcode of a classic one, the id of a manifest one, the number of a message.
    pub tag: u16,
}

/// Where the tag stands in each kind of record, and which bits of it count.
const TAGS: [(u8, u16); HeaderKind::ALL.len()] = {
    let mut tags = [(0, 0); HeaderKind::ALL.len()];
    let mut index = 0;
    while index < tags.len() {
        let kind = HeaderKind::ALL[index];
        tags[index] = match kind {
            kind if kind.has_hook_id() => (6, 0xffff),
            kind if kind.has_descriptor() => (0x28, 0xffff),
            kind if kind.is_classic() => (4, 0xff),
            HeaderKind::Message => (4, 0xffff),
            _ => (0, 0),
        };
        index += 1;
    }
    tags
};

impl Entry {
    #[inline]
    fn new(record: &Record<'_>, offset: usize) -> Entry {
        let bytes = record.bytes();
        // Without a branch: which kind comes next, nobody can predict.
        let (at, mask) = TAGS[record.kind() as usize];
        let tag = u16::from_le_bytes([bytes[usize::from(at)], bytes[usize::from(at) + 1]]) & mask;
        // Buffers have at most 64 MiB, so an eighth of an offset has 23 bits.
        let location = (offset as u32 / 8) << 8 | record.kind() as u32;
        Entry { time: record.time(), location, size: bytes.len() as u16, tag }
    }

    /// The kind of header.
    #[inline]
    pub fn kind(&self) -> HeaderKind {
        HeaderKind::ALL[(self.location & 0xff) as usize]
    }

    /// The hook, if this is a kernel event.
    #[inline]
    pub fn hook_id(&self) -> Option<u16> {
        self.kind().has_hook_id().then_some(self.tag)
    }

    /// Where the record starts in its block.
    #[inline]
    pub fn offset(&self) -> usize {
        (self.location >> 8) as usize * 8
    }
}

/// One buffer of a recording, its records found.
#[derive(Debug)]
pub struct Block {
    bytes: Bytes,
    entries: Vec<Entry>,
    session: Arc<LogfileHeader>,
    origin: Origin,
    extent: Extent,
}

/// Which records of its buffer a block stands for, those outside of a selection included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Raw times of the first and the last record; `None` if there are no records.
    pub times: Option<(RawTime, RawTime)>,
    /// Whether damage hides records after the last one.
    pub is_cut: bool,
    /// Whether the buffer before it in its stream cannot be read at all.
    pub follows_unreadable: bool,
}

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which of several recordings.
    pub etl_file: u16,
    /// Which of all sessions: an appended recording has several.
    pub session: u32,
    /// The processor whose records these are; `None` where the session did not keep them apart.
    pub processor: Option<u16>,
    /// Where the buffer starts in its file.
    pub file_offset: u64,
    /// Whether events or buffers were lost just before it, by the session or to damage.
    pub after_loss: bool,
}

impl Block {
    /// Finds the records of `bytes`, which start with a buffer header and end where the records end.
    ///
    /// With a `selection`, the others are stepped over. The second value tells why the walk ended before the end, and
    /// where. One allocation.
    pub(crate) fn scan(
        bytes: Bytes,
        session: Arc<LogfileHeader>,
        origin: Origin,
        selection: Option<&Selection>,
    ) -> (Block, Option<(usize, RecordError)>) {
        let mut records = Records::new(&bytes, crate::buffer::BUFFER_HEADER_SIZE);
        // Real recordings average 127 bytes a record.
        let mut entries = Vec::with_capacity(if selection.is_some() { 0 } else { bytes.len() / 96 });
        let mut sorted = true;
        let mut last = RawTime(i64::MIN);
        let mut times: Option<(RawTime, RawTime)> = None;
        loop {
            let offset = records.position();
            let Some(record) = records.next() else { break };
            let time = record.time();
            let (first, latest) = times.get_or_insert((time, time));
            if time < last {
                sorted = false;
                (*first, *latest) = (time.min(*first), last.max(*latest));
            }
            last = time;
            if selection.is_some_and(|selection| !selection.has(&record)) {
                continue;
            }
            entries.push(Entry::new(&record, offset));
        }
        // Writers on several processors that share one stream overtake each other by a little.
        if !sorted && origin.processor.is_none() {
            entries.sort_by_key(|entry| entry.time);
        }
        let error = records.error().map(|error| (records.position(), error));
        let extent = Extent {
            times: times.map(|(first, latest)| (first, latest.max(last))),
            is_cut: error.is_some(),
            follows_unreadable: false,
        };
        (Block { bytes, entries, session, origin, extent }, error)
    }

    /// All records, in the order in which they stand (by time in a stream that processors share).
    #[inline]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The record of an entry of this block.
    #[inline]
    pub fn record(&self, entry: &Entry) -> Record<'_> {
        let at = entry.offset();
        Record::found(&self.bytes[at..at + usize::from(entry.size)], entry.time, entry.kind())
    }

    /// Which records of its buffer the block stands for.
    #[inline]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The same block, whose buffer has further records that cannot be read.
    pub(crate) fn cut(mut self) -> Block {
        self.extent.is_cut = true;
        self
    }

    /// The same block, before which a buffer of its stream cannot be read.
    pub fn after_unreadable(mut self) -> Block {
        self.extent.follows_unreadable = true;
        self
    }

    pub(crate) fn with_origin(mut self, change: impl FnOnce(&mut Origin)) -> Block {
        change(&mut self.origin);
        self
    }

    /// Where the block comes from.
    #[inline]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The session that wrote the block.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// The block's bytes, buffer header included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of memory that it takes, those of a file that it only refers to included.
    pub fn memory(&self) -> usize {
        size_of::<Block>() + self.bytes.len() + self.entries.capacity() * size_of::<Entry>()
    }
}
