//! The imports of an image: the pointers that the loader fills, with their functions.

use std::borrow::Cow;

use stackhound_types::Rva;

use super::{Image, Machine, u32_at};

/// A pointer that the loader fills.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import<'d> {
    /// The address of the pointer.
    pub slot: Rva,
    /// The library, as the image names it.
    pub library: &'d str,
    /// The function. `None` if it is imported by ordinal.
    pub name: Option<Cow<'d, str>>,
    /// Whether the pointer is filled at the first call.
    pub is_delayed: bool,
}

/// All imports of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imports<'d> {
    /// The imports, by slot.
    pub entries: Vec<Import<'d>>,
    /// The number of libraries and functions whose names cannot be read.
    pub unreadable: usize,
}

/// Maximum number of libraries.
const MAX_LIBRARIES: u32 = 1 << 12;
/// Maximum number of functions of all libraries together.
const MAX_FUNCTIONS: usize = 1 << 17;

/// `IMAGE_IMPORT_DESCRIPTOR`: names, time stamp, forwarder, library, slots.
const DESCRIPTOR: u32 = 20;
/// `IMAGE_DELAYLOAD_DESCRIPTOR`: attributes, library, handle, slots, names, two more tables, time
/// stamp.
const DELAYED_DESCRIPTOR: u32 = 32;

pub(super) fn read<'d>(image: &Image<'d>) -> Imports<'d> {
    let mut reader = Reader { image, text_left: image.data.len(), imports: Imports::default() };
    if let Some(directory) = image.headers.imports {
        reader.libraries(directory.rva, DESCRIPTOR, |words| {
            let names = if words[0] == 0 { words[4] } else { words[0] };
            Tables { library: words[3], slots: words[4], names, is_delayed: false }
        });
    }
    if let Some(directory) = image.headers.delayed_imports {
        // Old descriptors contain addresses instead of offsets from the base.
        let base = image.base() as u32;
        reader.libraries(directory.rva, DELAYED_DESCRIPTOR, |words| {
            let rva = |word: u32| if words[0] & 1 != 0 { word } else { word.wrapping_sub(base) };
            Tables { library: rva(words[1]), slots: rva(words[3]), names: rva(words[4]), is_delayed: true }
        });
    }
    let mut imports = reader.imports;
    imports.entries.sort_by_key(|import| import.slot);
    imports
}

/// The tables of one library.
struct Tables {
    library: u32,
    slots: u32,
    names: u32,
    is_delayed: bool,
}

struct Reader<'i, 'd> {
    image: &'i Image<'d>,
    /// The remaining length of all texts. Texts do not overlap in valid images, so their total
    /// length is at most that of the image.
    text_left: usize,
    imports: Imports<'d>,
}

impl<'d> Reader<'_, 'd> {
    fn libraries(&mut self, start: Rva, size: u32, tables: impl Fn(&[u32; 5]) -> Tables) {
        for index in 0..MAX_LIBRARIES {
            let location = start.0.checked_add(index * size);
            let Some(bytes) = location.and_then(|location| self.image.bytes_at(Rva(location), size as usize))
            else {
                return;
            };
            let words: [u32; 5] = std::array::from_fn(|at| u32_at(bytes, 4 * at).unwrap_or_default());
            let tables = tables(&words);
            if words[3] == 0 && words[4] == 0 {
                return;
            }
            self.functions(&tables);
        }
    }

    fn functions(&mut self, tables: &Tables) {
        // The name is repeated for each function, so it must be borrowed.
        let library = self.text(tables.library).and_then(|text| match text {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        });
        let Some(library) = library else {
            self.imports.unreadable += 1;
            return;
        };
        let width = if self.image.machine() == Machine::X86 { 4 } else { 8 };
        let by_number = 1_u64 << (8 * width - 1);
        for index in 0.. {
            let location = |table: u32| table.checked_add(index * width).map(Rva);
            let (Some(name), Some(slot)) = (location(tables.names), location(tables.slots)) else { return };
            let Some(bytes) = self.image.bytes_at(name, width as usize) else { return };
            let mut name = [0; 8];
            name[..bytes.len()].copy_from_slice(bytes);
            let name = u64::from_le_bytes(name);
            if name == 0 || self.imports.entries.len() >= MAX_FUNCTIONS {
                return;
            }
            // A name is preceded by a hint of two bytes.
            let text = |reader: &mut Self| reader.text(u32::try_from(name).ok()?.checked_add(2)?);
            let name = if name & by_number != 0 { None } else { text(self) };
            self.imports.entries.push(Import { slot, library, name, is_delayed: tables.is_delayed });
        }
    }

    fn text(&mut self, rva: u32) -> Option<Cow<'d, str>> {
        let text = self.image.text_at(Rva(rva))?;
        self.text_left = self.text_left.checked_sub(text.len() + 1)?;
        Some(String::from_utf8_lossy(text))
    }
}
