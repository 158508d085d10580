//! The debug directory: the PDB of an image, and other entries of the linker.

use object::LittleEndian as LE;
use object::pe;
use object::read::ReadRef;
use stackhound_types::{Guid, PdbIdentity, Rva};

use super::{Image, u32_at};

/// An entry of the debug directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DebugEntry {
    /// A PDB, by GUID and age (`RSDS`).
    Pdb(PdbIdentity),
    /// A portable PDB, which contains names of managed code only. Its symbol-server key has the age
    /// `ffffffff` instead.
    PortablePdb(PdbIdentity),
    /// A PDB from before Visual C++ 7, by time stamp and age (`NB10`).
    OldPdb {
        /// The path or file name, as the linker wrote it.
        name: String,
        /// The creation time of the PDB.
        time_date_stamp: u32,
        /// The number of times that the PDB was written.
        age: u32,
    },
    /// CodeView data of another kind, or damaged data.
    OtherCodeView,
    /// The image's time stamps are hashes: it was built reproducibly.
    Reproducible,
    /// Any other entry, by the number of its type.
    Other(u32),
}

/// Maximum number of entries. Linkers write a few.
const MAX_ENTRIES: u32 = 64;
const ENTRY_SIZE: u32 = size_of::<pe::ImageDebugDirectory>() as u32;
/// The minor version of the entry for portable PDBs.
const PORTABLE: u16 = 0x504d;
const MAX_PATH: usize = 1 << 15;

pub(super) fn entries(image: &Image<'_>) -> Vec<DebugEntry> {
    let Some(directory) = image.headers.debug else { return Vec::new() };
    let number = (directory.size / ENTRY_SIZE).min(MAX_ENTRIES);
    let location = |index: u32| directory.rva.0.checked_add(index * ENTRY_SIZE);
    (0..number)
        .map_while(|index| image.bytes_at(Rva(location(index)?), ENTRY_SIZE as usize))
        .filter_map(|bytes| bytes.read_at::<pe::ImageDebugDirectory>(0).ok())
        .map(|header| entry(image, header))
        .collect()
}

fn entry(image: &Image<'_>, header: &pe::ImageDebugDirectory) -> DebugEntry {
    match header.typ.get(LE) {
        pe::IMAGE_DEBUG_TYPE_CODEVIEW => {
            let portable = header.minor_version.get(LE) == PORTABLE;
            contents(image, header)
                .and_then(|bytes| code_view(bytes, portable))
                .unwrap_or(DebugEntry::OtherCodeView)
        }
        pe::IMAGE_DEBUG_TYPE_REPRO => DebugEntry::Reproducible,
        other => DebugEntry::Other(other.0),
    }
}

/// Returns the bytes of an entry. Entries in a file need not be mapped when it is loaded, so the
/// file offset is used, except in a loaded image.
fn contents<'d>(image: &Image<'d>, header: &pe::ImageDebugDirectory) -> Option<&'d [u8]> {
    let size = header.size_of_data.get(LE) as usize;
    let rva = Rva(header.address_of_raw_data.get(LE));
    let offset = header.pointer_to_raw_data.get(LE);
    if offset == 0 || image.is_loaded() {
        return image.bytes_at(rva, size);
    }
    image.data.get(offset as usize..)?.get(..size)
}

fn code_view(bytes: &[u8], portable: bool) -> Option<DebugEntry> {
    match bytes.first_chunk()? {
        b"RSDS" => {
            let guid = Guid(*bytes.get(4..)?.first_chunk()?);
            let identity = PdbIdentity { name: name(bytes.get(24..)?), guid, age: u32_at(bytes, 20)? };
            Some(if portable { DebugEntry::PortablePdb(identity) } else { DebugEntry::Pdb(identity) })
        }
        b"NB10" => Some(DebugEntry::OldPdb {
            name: name(bytes.get(16..)?),
            time_date_stamp: u32_at(bytes, 8)?,
            age: u32_at(bytes, 12)?,
        }),
        _ => None,
    }
}

/// Reads the PDB's path, which ends with a zero byte or with the entry.
fn name(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(MAX_PATH)];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
