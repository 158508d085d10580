//! Translation of section numbers and offsets in PDB records to addresses in the image.
//!
//! Tools that rearrange an image after linking do not change the records, but add two tables.
//! OMAP-from-source contains the new address of each block of the original image. OMAP-to-source is
//! its inverse, and also contains added blocks of code. The sections of the records are then those
//! of the original image.

use std::ops::Range;

use stackhound_types::Rva;

use super::u32_at;

/// A section of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its start.
    pub rva: Rva,
    /// Its size in memory, in bytes.
    pub size: u32,
    /// Whether it contains code or is executable.
    pub code: bool,
}

const SECTION_HEADER_SIZE: usize = 40;
/// `IMAGE_SCN_CNT_CODE` and `IMAGE_SCN_MEM_EXECUTE`.
const CODE: u32 = 0x2000_0020;

pub(super) fn sections(headers: &[u8]) -> Vec<Section> {
    let section = |header: &[u8]| {
        let virtual_size = u32_at(header, 8)?;
        let size_in_file = u32_at(header, 16)?;
        Some(Section {
            rva: Rva(u32_at(header, 12)?),
            size: virtual_size.max(size_in_file),
            code: u32_at(header, 36)? & CODE != 0,
        })
    };
    headers.chunks_exact(SECTION_HEADER_SIZE).filter_map(section).collect()
}

/// Addresses of code that is in both images. Other addresses are 0, or have the highest bit set.
const IN_BOTH: Range<u32> = 1..1 << 31;
/// Maximum number of blocks that are searched for one procedure.
const BLOCKS_MAX: usize = 1 << 10;

/// A block of the rearranged image.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its address in the original image. For added code, the address at which it was added;
    /// several blocks can have the same address.
    source: u32,
    start: u32,
    length: u32,
    /// The last end of this block and all previous ones in the original image.
    last_end: u32,
}

/// Both tables.
#[derive(Debug)]
pub(super) struct Omap {
    /// Original address and new address, sorted by original address.
    from_source: Vec<(u32, u32)>,
    /// The blocks, sorted by their sources.
    blocks: Vec<Block>,
}

impl Omap {
    pub fn parse(from_source: &[u8], to_source: &[u8]) -> Omap {
        let records = |stream: &[u8]| {
            let record = |bytes: &[u8]| Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?));
            let mut records: Vec<_> = stream.chunks_exact(8).filter_map(record).collect();
            records.sort_by_key(|record| record.0);
            records
        };
        let to_source = records(to_source);
        let ends = to_source.iter().skip(1).map(|next| next.0).chain([u32::MAX]);
        let mut blocks: Vec<_> = to_source
            .iter()
            .zip(ends)
            .filter(|((start, source), end)| IN_BOTH.contains(source) && start < end)
            .map(|(&(start, source), end)| Block { source, start, length: end - start, last_end: 0 })
            .collect();
        blocks.sort_by_key(|block| block.source);
        let mut last_end = 0;
        for block in &mut blocks {
            last_end = block.source.saturating_add(block.length).max(last_end);
            block.last_end = last_end;
        }
        Omap { from_source: records(from_source), blocks }
    }

    fn translate(&self, address: u32) -> Option<u32> {
        let before = self.from_source.partition_point(|record| record.0 <= address);
        let (source, moved) = *self.from_source[..before].last()?;
        if IN_BOTH.contains(&moved) {
            return moved.checked_add(address - source);
        }
        // Some tools remove a block from one table only.
        let mut found = None;
        self.ranges(address..address.checked_add(1)?, |range| found = found.or(Some(range.start)));
        found
    }

    /// Reports the parts of a range, the last ones first.
    fn ranges(&self, range: Range<u32>, mut found: impl FnMut(Range<u32>)) {
        let before = self.blocks.partition_point(|block| block.source < range.end);
        let reach_in = |block: &&Block| block.last_end > range.start;
        for block in self.blocks[..before].iter().rev().take_while(reach_in).take(BLOCKS_MAX) {
            let before_range = range.start.saturating_sub(block.source);
            let length = block.length.min(range.end - block.source);
            if before_range < length {
                found(block.start + before_range..block.start + length);
            }
        }
    }
}

/// The data that is required to translate addresses of a PDB.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The sections of the image to which the records refer.
    pub original: Vec<Section>,
    /// The sections of the actual image; the same if it was not rearranged.
    pub sections: Vec<Section>,
    pub omap: Option<Omap>,
}

impl Addresses {
    /// Returns the address in the original image. Sections are numbered from 1.
    pub fn original(&self, section: u16, offset: u32) -> Option<u32> {
        let section = self.original.get(usize::from(section).checked_sub(1)?)?;
        section.rva.0.checked_add(offset)
    }

    /// Returns the address in the image, or `None` if the code was removed.
    pub fn translate(&self, original: u32) -> Option<Rva> {
        match &self.omap {
            None => Some(Rva(original)),
            Some(omap) => omap.translate(original).map(Rva),
        }
    }

    /// Reports the ranges that contain the bytes from `original` on, in no particular order. There
    /// can be several if the image was rearranged.
    pub fn ranges(&self, original: u32, length: u32, mut found: impl FnMut(Range<u32>)) {
        let Some(end) = original.checked_add(length) else { return };
        match &self.omap {
            None if length > 0 => found(original..end),
            None => {}
            Some(omap) => omap.ranges(original..end, found),
        }
    }
}
