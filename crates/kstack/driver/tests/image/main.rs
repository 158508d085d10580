//! The linked image of the driver: its imports, its protections and its code.
//!
//! `STACKHOUND_KSTACK_SYS` names the image. `scripts/kstack-driver.sh` builds it, sets the variable
//! and runs these tests. Without the variable, each test prints that it is skipped.
#![forbid(unsafe_code)]

mod code;
mod guard;
mod headers;
mod unwind;

use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_EXCEPTION, ImageSectionHeader};
use object::read::pe::{DataDirectories, PeFile64};

/// The image file.
#[derive(Debug)]
pub struct Image {
    /// All bytes of the file.
    pub bytes: Vec<u8>,
}

/// An entry of the function table: `RUNTIME_FUNCTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The address of its first byte.
    pub begin: u32,
    /// The address after its last byte.
    pub end: u32,
    /// The address of its `UNWIND_INFO`.
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
    /// The parsed image.
    pub fn pe(&self) -> PeFile64<'_> {
        PeFile64::parse(&*self.bytes).expect("an image")
    }

    /// The data directories.
    pub fn directories(&self) -> DataDirectories<'_> {
        self.pe().data_directories()
    }

    /// The address and length of a directory; zeros if it does not exist.
    pub fn directory(&self, index: usize) -> (u32, u32) {
        self.directories().get(index).map_or((0, 0), |directory| directory.address_range())
    }

    /// The sections, in the order of their addresses.
    pub fn sections(&self) -> Vec<ImageSectionHeader> {
        self.pe().section_table().iter().copied().collect()
    }

    /// The section that contains an address.
    pub fn section(&self, rva: u32) -> ImageSectionHeader {
        let inside = |section: &ImageSectionHeader| {
            let (start, length) = (section.virtual_address.get(LE), section.virtual_size.get(LE));
            (start..start + length).contains(&rva)
        };
        self.sections().into_iter().find(inside).unwrap_or_else(|| panic!("{rva:#x} is in no section"))
    }

    /// The preferred base address. All other addresses here are relative to it.
    pub fn base(&self) -> u64 {
        self.pe().nt_headers().optional_header.image_base.get(LE)
    }

    /// The address of the entry point.
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

    /// The 32-bit number at an address.
    pub fn u32(&self, rva: u32) -> u32 {
        u32::from_le_bytes(self.at(rva)[..4].try_into().expect("four bytes"))
    }

    /// The address to which a pointer in the image points.
    pub fn pointer(&self, rva: u32) -> u32 {
        let value = u64::from_le_bytes(self.at(rva)[..8].try_into().expect("eight bytes"));
        u32::try_from(value.wrapping_sub(self.base())).expect("a pointer into the image")
    }

    /// The imports: the library, the function, and the address of its entry in the import address
    /// table.
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

    /// The address of an entry in the import address table.
    pub fn import(&self, name: &str) -> u32 {
        self.imports().into_iter().find(|(_, import, _)| import == name).expect("an import").2
    }

    /// The function table.
    pub fn functions(&self) -> Vec<Function> {
        let (start, length) = self.directory(IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        assert_eq!(length % 12, 0);
        let entries = (start..start + length).step_by(12);
        entries
            .map(|at| Function { begin: self.u32(at), end: self.u32(at + 4), unwind: self.u32(at + 8) })
            .collect()
    }
}
