//! Sections: which part of the file stands at which addresses.

use std::borrow::Cow;
use std::ops::Range;

use object::LittleEndian as LE;
use object::pe;
use stackhound_types::Rva;

/// How the bytes of an image are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// As in the file: sections stand where their headers say.
    File,
    /// As loaded: sections stand at their addresses.
    Loaded,
}

/// A section of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    name: [u8; 8],
    /// Where it starts.
    pub rva: Rva,
    /// Bytes of addresses that it takes.
    pub size: u32,
    /// Its bytes may run as code.
    pub executable: bool,
    /// Its bytes may be written.
    pub writable: bool,
    /// Where its bytes are in the data, which can be fewer than its addresses.
    pub(super) data: Range<u64>,
}

/// Sections are mapped in pages.
const PAGE: u32 = 0x1000;
/// The loader rounds a section's place in the file down to this.
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

    /// Its name, as far as the eight bytes of its header hold it.
    pub fn name(&self) -> Cow<'_, str> {
        let end = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end])
    }

    /// Whether an address is in it.
    pub fn contains(&self, rva: Rva) -> bool {
        rva.0.checked_sub(self.rva.0).is_some_and(|offset| offset < self.size)
    }
}
