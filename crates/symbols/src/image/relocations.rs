//! The bytes that the loader changes when it loads an image at another address than its base.

use stackhound_types::Rva;

use super::{Image, u32_at};

/// An address in the image that the loader adjusts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Relocation {
    /// Its location.
    pub rva: Rva,
    /// Its size in bytes.
    pub length: u8,
}

/// Size of a block's header: address of a page, size of the block.
const BLOCK: u32 = 8;

/// Reads the relocations, by address. The kinds of other processors than x86 count with the size of
/// an instruction.
pub(super) fn read(image: &Image<'_>) -> Vec<Relocation> {
    let mut relocations = Vec::new();
    let Some(directory) = image.headers.relocations else { return relocations };
    let mut at = directory.rva.0;
    let end = at.saturating_add(directory.size);
    while let Some(header) = image.bytes_at(Rva(at), BLOCK as usize) {
        let (page, size) = (u32_at(header, 0).unwrap_or_default(), u32_at(header, 4).unwrap_or_default());
        if size <= BLOCK || end.saturating_sub(at) < size {
            break;
        }
        let entries = image.bytes_at(Rva(at + BLOCK), (size - BLOCK) as usize).unwrap_or_default();
        relocations.extend(entries.chunks_exact(2).filter_map(|entry| {
            let entry = u16::from_le_bytes([entry[0], entry[1]]);
            let length = match entry >> 12 {
                // Padding of the block.
                0 => return None,
                1 | 2 => 2,
                10 => 8,
                _ => 4,
            };
            Some(Relocation { rva: Rva(page.checked_add(u32::from(entry & 0xfff))?), length })
        }));
        at += size;
    }
    relocations.sort_unstable();
    relocations
}
