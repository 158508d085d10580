//! Blocks: the bytes of one buffer, and a column with the offsets of its records.
//!
//! A block is the unit of work of all stages that follow the container. It shares its bytes with
//! the file by reference count.

use std::sync::Arc;

use bytes::Bytes;
use stackhound_types::RawTime;

use crate::buffer::{BufferHeader, BufferType};
use crate::damage::{Damage, DamageReason};
use crate::record::{HeaderKind, Record, RecordError, Records};
use crate::select::BufferSelection;
use crate::time_check::{Misfits, TimeBounds};
use crate::{LogfileHeader, Selection};

/// One record of a block: its time, offset, size and kind, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Raw timestamp.
    pub time: RawTime,
    /// The offset in units of 8 bytes in the upper 24 bits; below it, whether there are extended
    /// items, and the kind in four bits.
    offset_and_kind: u32,
    size: u16,
    /// The hook id of a kernel event, the opcode of a classic event, the event id of a manifest
    /// event, or the number of a WPP message.
    pub tag: u16,
}

/// Offset of the tag in each kind of record, and the mask of its valid bits.
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

/// The bits of the kind in an entry.
const KIND: u32 = 0x0f;
/// The bit for extended items.
const EXTENDED: u32 = 0x10;

impl Entry {
    #[inline]
    fn new(record: &Record<'_>, offset: usize) -> Entry {
        let bytes = record.bytes();
        // Without a branch, because the kind of the next record cannot be predicted.
        let (at, mask) = TAGS[record.kind() as usize];
        let tag = u16::from_le_bytes([bytes[usize::from(at)], bytes[usize::from(at) + 1]]) & mask;
        // The lowest of the header's flags.
        let has_extended = bytes[4] & 1 & u8::from(record.kind().has_descriptor());
        // Buffers have at most 64 MiB, so an eighth of an offset fits into 23 bits.
        let kind = record.kind() as u32 | (u32::from(has_extended) * EXTENDED);
        let offset_and_kind = (offset as u32 / 8) << 8 | kind;
        Entry { time: record.time(), offset_and_kind, size: bytes.len() as u16, tag }
    }

    /// The kind of header.
    #[inline]
    pub fn kind(&self) -> HeaderKind {
        HeaderKind::ALL[(self.offset_and_kind & KIND) as usize]
    }

    /// Whether an EVENT_HEADER states that extended items follow it.
    #[inline]
    pub fn has_extended_items(&self) -> bool {
        self.offset_and_kind & EXTENDED != 0
    }

    /// The hook id, if this is a kernel event.
    #[inline]
    pub fn hook_id(&self) -> Option<u16> {
        self.kind().has_hook_id().then_some(self.tag)
    }

    /// Offset of the record in its block, in bytes.
    #[inline]
    pub fn offset(&self) -> usize {
        (self.offset_and_kind >> 8) as usize * 8
    }
}

/// One buffer of a trace, with the list of its records.
#[derive(Debug)]
pub struct Block {
    bytes: Bytes,
    entries: Vec<Entry>,
    session: Arc<LogfileHeader>,
    origin: Origin,
    extent: Extent,
    /// Whether the records of the buffer are in the order of their times.
    is_sorted: bool,
}

/// The times of all records of a block's buffer, including those outside the selection, and gaps
/// around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Raw times of the first and the last record; `None` if there are no records.
    pub times: Option<(RawTime, RawTime)>,
    /// Whether records after the last one are missing because of damage.
    pub is_cut: bool,
    /// Whether records before the first one are missing because of damage: of this buffer, or the
    /// whole previous buffer of the same stream.
    pub follows_unreadable: bool,
    /// Raw times between which other records are missing because of damage.
    pub gap: Option<(RawTime, RawTime)>,
}

/// The origin of a block: file, session, processor and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the file, if there are several.
    pub etl_file: u16,
    /// Number of the session among all sessions. An appended file has several.
    pub session: u32,
    /// The processor of the records; `None` if the session did not separate processors.
    pub processor: Option<u16>,
    /// Offset of the buffer in its file, in bytes.
    pub file_offset: u64,
    /// Whether events or buffers were lost immediately before this block, by the session or because
    /// of damage.
    pub after_loss: bool,
}

impl Block {
    /// Finds the records of `bytes`, which start with a buffer header and end with the last record.
    ///
    /// With a `selection`, other records are skipped. The second value is the offset and the reason
    /// if the walk ended before the end of the bytes. Allocates once.
    pub(crate) fn scan(
        bytes: Bytes,
        session: Arc<LogfileHeader>,
        origin: Origin,
        selection: Option<&Selection>,
    ) -> (Block, Option<(usize, RecordError)>) {
        let mut records = Records::new(&bytes, crate::buffer::BUFFER_HEADER_SIZE);
        // Records of real traces have 127 bytes on average.
        let mut entries = Vec::with_capacity(if selection.is_some() { 0 } else { bytes.len() / 96 });
        let mut sorted = true;
        let mut last = RawTime(i64::MIN);
        let mut times: Option<(RawTime, RawTime)> = None;
        let mut selection = selection.map(BufferSelection::new);
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
            let entry = Entry::new(&record, offset);
            match &mut selection {
                Some(selection) => selection.add(entry, &record, &mut entries),
                None => entries.push(entry),
            }
        }
        if let Some(selection) = selection {
            selection.end(&mut entries);
        }
        // Processors that share one stream may write their records slightly out of order.
        if !sorted && origin.processor.is_none() {
            entries.sort_by_key(|entry| entry.time);
        }
        let error = records.error().map(|error| (records.position(), error));
        let extent = Extent {
            times: times.map(|(first, latest)| (first, latest.max(last))),
            is_cut: error.is_some(),
            follows_unreadable: false,
            gap: None,
        };
        (Block { bytes, entries, session, origin, extent, is_sorted: sorted }, error)
    }

    /// The same block without the records whose times contradict `bounds` or each other, and the
    /// damage. Costs nothing for each record if all of them are in order.
    ///
    /// # Errors
    /// If no record is left.
    pub(crate) fn checked(self, bounds: &TimeBounds) -> Result<(Block, Option<Damage>), Damage> {
        let Some((first, last)) = self.extent.times else { return Ok((self, None)) };
        if self.is_sorted && bounds.admit(first, last) {
            return Ok((self, None));
        }
        let misfits = Misfits::of(&self.bytes, bounds);
        self.without(misfits)
    }

    /// The same block without its first record if only that one is earlier than the last record of
    /// the previous block of its stream, and the damage.
    ///
    /// # Errors
    /// If no record is left.
    pub fn after(self, previous: &Block) -> Result<(Block, Option<Damage>), Damage> {
        let ends = self.extent.times.zip(previous.extent.times);
        let is_data = |block: &Block| block.header_type() == Some(BufferType::Generic);
        let same = |block: &Block| (block.origin.etl_file, block.origin.session);
        match ends {
            Some(((first, _), (_, last)))
                if first < last && same(&self) == same(previous) && is_data(previous) && is_data(&self) =>
            {
                let misfits = Misfits::at_start(&self.bytes, &self.session, last);
                self.without(misfits)
            }
            _ => Ok((self, None)),
        }
    }

    #[cold]
    fn without(mut self, misfits: Option<Misfits>) -> Result<(Block, Option<Damage>), Damage> {
        let Some(misfits) = misfits else { return Ok((self, None)) };
        self.entries.retain_mut(|entry| {
            let time = misfits.time_at(entry.offset(), entry.time);
            time.inspect(|&time| entry.time = time).is_some()
        });
        if self.origin.processor.is_none() {
            self.entries.sort_by_key(|entry| entry.time);
        }
        let is_compressed = BufferHeader::read(&self.bytes).is_some_and(BufferHeader::is_compressed);
        let damage = Damage {
            offset: self.origin.file_offset + if is_compressed { 0 } else { misfits.first_offset() as u64 },
            skipped: misfits.bytes as u64,
            reason: DamageReason::Time { records: misfits.count() as u32, time: misfits.time.0 },
        };
        let (first, last) = misfits.times.ok_or(damage)?;
        let extent = &mut self.extent;
        // Other records of the block may have been skipped before.
        extent.times = extent.times.map(|(earliest, latest)| (first.max(earliest), last.min(latest)));
        extent.gap = match (extent.gap, misfits.gap) {
            (Some((one, until)), Some((other, end))) => Some((one.min(other), until.max(end))),
            (gap, other) => gap.or(other),
        };
        extent.follows_unreadable |= misfits.has_first;
        extent.is_cut |= misfits.has_last;
        self.origin.after_loss |= misfits.has_first;
        Ok((self, Some(damage)))
    }

    fn header_type(&self) -> Option<BufferType> {
        BufferHeader::read(&self.bytes)?.buffer_type()
    }

    /// All records in file order, or in time order if processors share the stream.
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

    /// Times of all records of the buffer, and gaps around them.
    #[inline]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The same block, marked as having further records that cannot be read.
    pub(crate) fn cut(mut self) -> Block {
        self.extent.is_cut = true;
        self
    }

    /// The same block, marked as following a buffer of its stream that cannot be read.
    pub fn after_unreadable(mut self) -> Block {
        self.extent.follows_unreadable = true;
        self
    }

    pub(crate) fn with_origin(mut self, change: impl FnOnce(&mut Origin)) -> Block {
        change(&mut self.origin);
        self
    }

    /// The origin of the block.
    #[inline]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The session that wrote the block.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// The bytes of the block, including the buffer header.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Memory of the block in bytes, including shared bytes of the file.
    pub fn memory(&self) -> usize {
        size_of::<Block>() + self.bytes.len() + self.entries.capacity() * size_of::<Entry>()
    }
}
