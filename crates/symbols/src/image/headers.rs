//! The headers of a PE image: machine, size, sections and tables.

use object::LittleEndian as LE;
use object::pe;
use object::read::ReadRef;
use object::read::pe::{DataDirectories, ImageNtHeaders, ImageOptionalHeader, SectionTable};
use stackhound_types::{ImageIdentity, Rva};

use super::error::ImageError;
use super::section::{Layout, Section};

/// The processor that an image is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Machine {
    /// x86, 32-bit.
    X86,
    /// x86, 64-bit.
    X64,
    /// ARM, 64-bit, including hybrid images that state this in their header.
    Arm64,
    /// Any other processor, by its number in the header.
    Other(u16),
}

/// The address and size of a table in the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directory {
    pub rva: Rva,
    pub size: u32,
}

#[derive(Debug)]
pub(super) struct Headers {
    pub machine: Machine,
    pub base: u64,
    pub identity: ImageIdentity,
    /// The size of the headers, which are mapped at the base.
    pub size: u32,
    pub sections: Vec<Section>,
    pub exports: Option<Directory>,
    pub exceptions: Option<Directory>,
    pub debug: Option<Directory>,
    pub imports: Option<Directory>,
    pub delayed_imports: Option<Directory>,
    pub relocations: Option<Directory>,
}

/// Maximum number of defined tables.
const MAX_DIRECTORIES: u32 = 16;

impl Headers {
    pub fn parse(data: &[u8], layout: Layout) -> Result<Headers, ImageError> {
        let dos: &pe::ImageDosHeader =
            data.read_at(0).map_err(|()| ImageError::NotAnImage("shorter than a DOS header"))?;
        if dos.e_magic.get(LE) != pe::IMAGE_DOS_SIGNATURE {
            return Err(ImageError::NotAnImage("it does not start with MZ"));
        }
        let offset = u64::from(dos.e_lfanew.get(LE));
        // The magic number of the optional header has the same offset in both sizes.
        let small: &pe::ImageNtHeaders32 =
            data.read_at(offset).map_err(|()| ImageError::NotAnImage("no PE header, only a DOS one"))?;
        if small.signature() != pe::IMAGE_NT_SIGNATURE {
            return Err(ImageError::NotAnImage("no PE header, only a DOS one"));
        }
        match small.optional_header.magic.get(LE) {
            pe::IMAGE_NT_OPTIONAL_HDR32_MAGIC => Self::of::<pe::ImageNtHeaders32>(data, offset, layout),
            pe::IMAGE_NT_OPTIONAL_HDR64_MAGIC => Self::of::<pe::ImageNtHeaders64>(data, offset, layout),
            _ => Err(ImageError::Header { offset: offset + 24, expected: "a PE32 or PE32+ header" }),
        }
    }

    fn of<Pe: ImageNtHeaders>(data: &[u8], offset: u64, layout: Layout) -> Result<Headers, ImageError> {
        let wrong = |offset, expected| ImageError::Header { offset, expected };
        let mut tables = offset;
        let headers: &Pe = data.read(&mut tables).map_err(|()| wrong(offset, "a whole header"))?;
        let (file, optional) = (headers.file_header(), headers.optional_header());
        let directories = {
            let number = optional.number_of_rva_and_sizes().min(MAX_DIRECTORIES);
            let bytes = data.read_bytes_at(tables, u64::from(number) * 8);
            let bytes = bytes.map_err(|()| wrong(tables, "data directories"))?;
            DataDirectories::parse(bytes, number).map_err(|_| wrong(tables, "data directories"))?
        };
        let directory = |index| {
            let found: &pe::ImageDataDirectory = directories.get(index)?;
            let (rva, size) = found.address_range();
            (size > 0).then_some(Directory { rva: Rva(rva), size })
        };
        let offset = offset + 24 + u64::from(file.size_of_optional_header.get(LE));
        let sections =
            SectionTable::parse(file, data, offset).map_err(|_| wrong(offset, "section headers"))?;
        let mut sections: Vec<Section> = sections
            .iter()
            .map(|header| Section::new(header, layout, optional.section_alignment()))
            .collect();
        // The loader requires this order.
        sections.sort_by_key(|section| section.rva);
        Ok(Headers {
            machine: match file.machine.get(LE) {
                pe::IMAGE_FILE_MACHINE_I386 => Machine::X86,
                pe::IMAGE_FILE_MACHINE_AMD64 => Machine::X64,
                pe::IMAGE_FILE_MACHINE_ARM64 => Machine::Arm64,
                other => Machine::Other(other.0),
            },
            base: optional.image_base(),
            identity: ImageIdentity {
                time_date_stamp: file.time_date_stamp.get(LE),
                size: optional.size_of_image(),
            },
            size: optional.size_of_headers(),
            sections,
            exports: directory(pe::IMAGE_DIRECTORY_ENTRY_EXPORT),
            exceptions: directory(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION),
            debug: directory(pe::IMAGE_DIRECTORY_ENTRY_DEBUG),
            imports: directory(pe::IMAGE_DIRECTORY_ENTRY_IMPORT),
            delayed_imports: directory(pe::IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT),
            relocations: directory(pe::IMAGE_DIRECTORY_ENTRY_BASERELOC),
        })
    }
}
