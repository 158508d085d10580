//! The driver's image as the linker made it: what it imports, how it is protected, and what its code does.
//!
//! `STACKHOUND_KSTACK_SYS` names the image; `scripts/kstack-driver.sh` builds it, sets the variable and runs this. Without it there is
//! nothing to look at, and each test says so.
#![forbid(unsafe_code)]

mod code;
mod guard;
mod headers;
mod unwind;

use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_EXCEPTION, ImageSectionHeader};
use object::read::pe::{DataDirectories, PeFile64};

/// The image, as it lies in the file.
#[derive(Debug)]
pub struct Image {
    /// All bytes of the file.
    pub bytes: Vec<u8>,
}

/// An entry of the table of functions: `RUNTIME_FUNCTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first byte.
    pub begin: u32,
    /// Behind its last byte.
    pub end: u32,
    /// Its `UNWIND_INFO`.
    pub unwind: u32,
}

/// The image that the environment names.
///
/// # Panics
/// If it names one that cannot be read.
pub fn image() -> Option<Image> {
    let Some(path) = std::env::var_os("STACKHOUND_KSTACK_SYS") else {
        println!("skipped: STACKHOUND_KSTACK_SYS does not name the driver's image");
        return None;
    };
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(Image { bytes })
}

impl Image {
    /// The image, read by the library.
    pub fn pe(&self) -> PeFile64<'_> {
        PeFile64::parse(&*self.bytes).expect("an image")
    }

    /// Where its tables are.
    pub fn directories(&self) -> DataDirectories<'_> {
        self.pe().data_directories()
    }

    /// Where a directory is, and how long; zeros if there is none.
    pub fn directory(&self, index: usize) -> (u32, u32) {
        self.directories().get(index).map_or((0, 0), |directory| directory.address_range())
    }

    /// Its sections, in the order of their addresses.
    pub fn sections(&self) -> Vec<ImageSectionHeader> {
        self.pe().section_table().iter().copied().collect()
    }

    /// The section an address lies in.
    pub fn section(&self, rva: u32) -> ImageSectionHeader {
        let inside = |section: &ImageSectionHeader| {
            let (start, length) = (section.virtual_address.get(LE), section.virtual_size.get(LE));
            (start..start + length).contains(&rva)
        };
        self.sections().into_iter().find(inside).unwrap_or_else(|| panic!("{rva:#x} is in no section"))
    }

    /// Where it is made to lie; the addresses here are relative to it.
    pub fn base(&self) -> u64 {
        self.pe().nt_headers().optional_header.image_base.get(LE)
    }

    /// Where it begins to run.
    pub fn entry(&self) -> u32 {
        self.pe().nt_headers().optional_header.address_of_entry_point.get(LE)
    }

    /// The bytes from an address on.
    pub fn at(&self, rva: u32) -> &[u8] {
        let section = self.section(rva);
        let within = rva - section.virtual_address.get(LE);
        assert!(within < section.size_of_raw_data.get(LE), "{rva:#x} is not in the file");
        &self.bytes[(section.pointer_to_raw_data.get(LE) + within) as usize..]
    }

    /// Four bytes, as a number.
    pub fn u32(&self, rva: u32) -> u32 {
        u32::from_le_bytes(self.at(rva)[..4].try_into().expect("four bytes"))
    }

    /// A pointer in the image, as the address it points to.
    pub fn pointer(&self, rva: u32) -> u32 {
        let value = u64::from_le_bytes(self.at(rva)[..8].try_into().expect("eight bytes"));
        u32::try_from(value.wrapping_sub(self.base())).expect("a pointer into the image")
    }

    /// What is imported: the library, the function, and where its address is put.
    pub fn imports(&self) -> Vec<(String, String, u32)> {
        let table = self.pe().import_table().expect("imports").expect("imports");
        let mut imports = Vec::new();
        let mut descriptors = table.descriptors().expect("descriptors");
        while let Some(descriptor) = descriptors.next().expect("a descriptor") {
            let library = table.name(descriptor.name.get(LE)).expect("a name");
            let library = String::from_utf8(library.to_vec()).expect("text");
            let mut slot = descriptor.first_thunk.get(LE);
            let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE)).expect("thunks");
            while let Some(thunk) = thunks.next::<object::pe::ImageNtHeaders64>().expect("a thunk") {
                let address = u32::try_from(thunk.0.get(LE)).expect("imported by name");
                let (_, name) = table.hint_name(address).expect("a name");
                imports.push((library.clone(), String::from_utf8(name.to_vec()).expect("text"), slot));
                slot += 8;
            }
        }
        imports
    }

    /// Where the address of an imported function is put.
    pub fn import(&self, name: &str) -> u32 {
        self.imports().into_iter().find(|(_, import, _)| import == name).expect("an import").2
    }

    /// The table of functions.
    pub fn functions(&self) -> Vec<Function> {
        let (start, length) = self.directory(IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        assert_eq!(length % 12, 0);
        let entries = (start..start + length).step_by(12);
        entries
            .map(|at| Function { begin: self.u32(at), end: self.u32(at + 4), unwind: self.u32(at + 8) })
            .collect()
    }
}
