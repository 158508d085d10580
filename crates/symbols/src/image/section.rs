//! Sections: the mapping between file offsets and addresses.

use std::borrow::Cow;
use std::ops::Range;

use object::LittleEndian as LE;
use object::pe;
use stackhound_types::Rva;

/// The arrangement of an image's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// As in the file: sections are at the offsets in their headers.
    File,
    /// As loaded: sections are at their addresses.
    Loaded,
}

/// A section of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    name: [u8; 8],
    /// Its start.
    pub rva: Rva,
    /// The size of its address range, in bytes.
    pub size: u32,
    /// Whether it is executable.
    pub executable: bool,
    /// Whether it is writable.
    pub writable: bool,
    /// The range of its bytes in the data, which can be shorter than its address range.
    pub(super) data: Range<u64>,
}

/// The page size for mapped sections.
const PAGE: u32 = 0x1000;
/// The loader rounds the file offset of a section down to a multiple of this.
const SECTOR: u32 = 0x200;

impl Section {
    pub(super) fn new(header: &pe::ImageSectionHeader, layout: Layout, alignment: u32) -> Section {
        let raw = header.size_of_raw_data.get(LE);
        let size = match header.virtual_size.get(LE) {
            0 => raw,
            size => size,
        };
        let rva = header.virtual_address.get(LE);
        let data = match layout {
            Layout::Loaded => u64::from(rva)..u64::from(rva) + u64::from(size),
            Layout::File => {
                let location = header.pointer_to_raw_data.get(LE);
                let location = if alignment >= PAGE { location & !(SECTOR - 1) } else { location };
                let mapped = size.checked_next_multiple_of(PAGE).unwrap_or(u32::MAX).min(raw);
                u64::from(location)..u64::from(location) + u64::from(mapped)
            }
        };
        let characteristics = header.characteristics.get(LE);
        Section {
            name: header.name,
            rva: Rva(rva),
            size,
            executable: characteristics.contains(pe::IMAGE_SCN_MEM_EXECUTE),
            writable: characteristics.contains(pe::IMAGE_SCN_MEM_WRITE),
            data,
        }
    }

    /// Returns its name, limited to the eight bytes in its header.
    pub fn name(&self) -> Cow<'_, str> {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end])
    }

    /// Whether it contains an address.
    pub fn contains(&self, rva: Rva) -> bool {
        rva.0.checked_sub(self.rva.0).is_some_and(|offset| offset < self.size)
    }
}
