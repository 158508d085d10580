//! The headers of a PE image: what it is for, how large it is, where its sections and tables are.

use object::LittleEndian as LE;
use object::pe;
use object::read::ReadRef;
use object::read::pe::{DataDirectories, ImageNtHeaders, ImageOptionalHeader, SectionTable};
use stackhound_types::{ImageIdentity, Rva};

use super::error::ImageError;
use super::section::{Layout, Section};

/// Which processor an image is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Machine {
    /// x86, 32 bits.
    X86,
    /// x86, 64 bits.
    X64,
    /// ARM, 64 bits; also hybrid images that say so in their header.
    Arm64,
    /// Any other, as the header numbers it.
    Other(u16),
}

/// Where a table is in the image, and its bytes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Directory {
    pub rva: Rva,
    pub size: u32,
}

/// What the headers say.
#[derive(Debug)]
pub(super) struct Headers {
    pub machine: Machine,
    pub base: u64,
    pub identity: ImageIdentity,
    /// Bytes of headers, which are mapped at the base.
    pub size: u32,
    pub sections: Vec<Section>,
    pub exports: Option<Directory>,
    pub exceptions: Option<Directory>,
    pub debug: Option<Directory>,
    pub imports: Option<Directory>,
    pub delayed_imports: Option<Directory>,
    pub relocations: Option<Directory>,
}

/// Tables beyond this one are not defined.
const MAX_DIRECTORIES: u32 = 16;

impl Headers {
    pub fn parse(data: &[u8], layout: Layout) -> Result<Headers, ImageError> {
        let dos: &pe::ImageDosHeader =
            data.read_at(0).map_err(|()| ImageError::NotAnImage("shorter than a DOS header"))?;
        if dos.e_magic.get(LE) != pe::IMAGE_DOS_SIGNATURE {
            return Err(ImageError::NotAnImage("it does not start with MZ"));
        }
        let offset = u64::from(dos.e_lfanew.get(LE));
        // The optional header's magic number stands where it does for both sizes.
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
        // The loader demands this order.
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
