//! The entries of a whole buffer in 8 bytes each, to read the buffer again without a scan.
//!
//! A scan waits for memory at each record, because only a record's header states where the next one
//! begins. Of a buffer that was scanned before, the list of sizes is enough.

use crate::block::Entry;
use crate::buffer::BUFFER_HEADER_SIZE;
use stackhound_types::RawTime;

/// Bits for the difference between the times of two records.
const STEP_BITS: u32 = 64 - STEP_SHIFT;
const STEP_SHIFT: u32 = 37;
const KIND_SHIFT: u32 = 32;
const TAG_SHIFT: u32 = 16;
const KIND_BITS: u64 = (1 << (STEP_SHIFT - KIND_SHIFT)) - 1;

/// All entries of one buffer: their sizes, tags, kinds and steps of time.
#[derive(Debug)]
pub struct PackedEntries {
    /// Raw time of the first record.
    first: RawTime,
    words: Box<[u64]>,
    /// The end of the records in the buffer, in bytes.
    end: usize,
}

/// Packs entries in file order.
pub(crate) struct Packer {
    first: RawTime,
    last: RawTime,
    words: Vec<u64>,
    /// The bits of all steps.
    steps: u64,
}

impl Packer {
    /// Expects about this number of entries.
    pub fn new(count: usize) -> Packer {
        Packer { first: RawTime(0), last: RawTime(0), words: Vec::with_capacity(count), steps: 0 }
    }

    #[inline]
    pub fn push(&mut self, entry: &Entry) {
        if self.words.is_empty() {
            (self.first, self.last) = (entry.time, entry.time);
        }
        let step = entry.time.0.wrapping_sub(self.last.0) as u64;
        self.last = entry.time;
        self.steps |= step;
        let kind = u64::from(entry.kind_bits()) << KIND_SHIFT;
        let tag = u64::from(entry.tag) << TAG_SHIFT;
        self.words.push(step << STEP_SHIFT | kind | tag | u64::from(entry.size()));
    }

    /// The packed entries of a buffer whose records end at `end`. `None` if a record is older than
    /// the one before it, or much newer.
    pub fn finish(self, end: usize) -> Option<PackedEntries> {
        let Packer { first, words, steps, .. } = self;
        (steps >> STEP_BITS == 0).then(|| PackedEntries { first, words: words.into_boxed_slice(), end })
    }
}

impl PackedEntries {
    /// Memory in bytes.
    pub fn memory(&self) -> usize {
        size_of::<PackedEntries>() + size_of_val(&*self.words)
    }

    /// The end of the records in the buffer, in bytes.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// The entries as the scan found them.
    pub(crate) fn unpack(&self) -> Vec<Entry> {
        let (mut time, mut offset) = (self.first.0, BUFFER_HEADER_SIZE);
        let unpack = |&word: &u64| {
            time += (word >> STEP_SHIFT) as i64;
            let size = word as u16;
            let kind = (word >> KIND_SHIFT & KIND_BITS) as u8;
            let entry = Entry::found(RawTime(time), offset, kind, size, (word >> TAG_SHIFT) as u16);
            offset += usize::from(size).next_multiple_of(8);
            entry
        };
        self.words.iter().map(unpack).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Most fit.
    fn steps() -> impl Strategy<Value = i64> {
        prop_oneof![50 => 0i64..1 << 27, 1 => -2i64..0, 1 => 1i64 << 27..1 << 28]
    }

    proptest! {
        /// Entries as a scan makes them: each begins where the one before it ends.
        #[test]
        fn packed_entries_are_the_same(
            first in any::<i64>().prop_map(|time| time / 2),
            parts in prop::collection::vec((steps(), 0..32u8, 8..=u16::MAX, any::<u16>()), 0..40),
        ) {
            let (mut time, mut offset) = (first, BUFFER_HEADER_SIZE);
            let mut entries = Vec::new();
            for (index, &(step, kind_bits, size, tag)) in parts.iter().enumerate() {
                time += if index > 0 { step } else { 0 };
                entries.push(Entry::found(RawTime(time), offset, kind_bits, size, tag));
                offset += usize::from(size).next_multiple_of(8);
            }
            let mut packer = Packer::new(0);
            entries.iter().for_each(|entry| packer.push(entry));
            let fits = parts.iter().skip(1).all(|(step, ..)| (0..1 << 27).contains(step));
            match packer.finish(offset) {
                Some(packed) => prop_assert!(fits && packed.unpack() == entries && packed.end() == offset),
                None => prop_assert!(!fits),
            }
        }
    }
}
