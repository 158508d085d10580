//! Finds the resources of an image file that contain manifests and messages.

use object::LittleEndian as LE;
use object::pe;
use object::read::pe::{
    ImageNtHeaders, PeFile, ResourceDirectory, ResourceDirectoryEntryData, ResourceDirectoryTable,
    ResourceNameOrId, SectionTable,
};

use crate::error::Error;

/// The maximum number of directory entries that are read. Named types precede numbered ones.
const MAX_ENTRIES: usize = 4096;

/// The maximum number of resources of each kind: one for each language.
const MAX_RESOURCES: usize = 64;

const TEMPLATES: &str = "WEVT_TEMPLATE";
const MESSAGE_TABLE: u16 = 11;

/// The bytes of the resources.
#[derive(Debug, Default)]
pub(super) struct Resources<'a> {
    pub templates: Vec<&'a [u8]>,
    pub message_tables: Vec<&'a [u8]>,
}

impl<'a> Resources<'a> {
    /// Finds the resources of an image. The lists are empty if it has none.
    ///
    /// # Errors
    /// If the bytes are not a PE image.
    pub fn of(image: &'a [u8]) -> Result<Resources<'a>, Error> {
        const NT_HEADERS: usize = 0x3c;
        let invalid = |expected| Error::Metadata { offset: 0, expected };
        // The magic number after the file header contains the size of addresses.
        let at = image.get(NT_HEADERS..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_le_bytes);
        let at = at.ok_or(invalid("a PE image"))? as usize;
        let magic = image.get(at + 24..).and_then(|rest| rest.first_chunk()).copied().map(u16::from_le_bytes);
        match magic {
            Some(pe::IMAGE_NT_OPTIONAL_HDR32_MAGIC) => Self::with::<pe::ImageNtHeaders32>(image),
            Some(pe::IMAGE_NT_OPTIONAL_HDR64_MAGIC) => Self::with::<pe::ImageNtHeaders64>(image),
            _ => None,
        }
        .ok_or(invalid("a PE image"))
    }

    fn with<Pe: ImageNtHeaders>(image: &'a [u8]) -> Option<Resources<'a>> {
        let file = PeFile::<Pe>::parse(image).ok()?;
        let sections = file.section_table();
        let directory = file.data_directories().resource_directory(image, &sections);
        let mut resources = Resources::default();
        if let Ok(Some(directory)) = directory {
            resources.read(directory, image, &sections);
        }
        Some(resources)
    }

    fn read(&mut self, directory: ResourceDirectory<'a>, image: &'a [u8], sections: &SectionTable<'a>) {
        let Ok(types) = directory.root() else { return };
        for entry in types.entries.iter().take(MAX_ENTRIES) {
            let is_template = match entry.name_or_id() {
                ResourceNameOrId::Id(MESSAGE_TABLE) => false,
                ResourceNameOrId::Name(name) => {
                    let name = name.data(directory).unwrap_or_default();
                    if !name.iter().map(|unit| unit.get(LE)).eq(TEMPLATES.encode_utf16()) {
                        continue;
                    }
                    true
                }
                ResourceNameOrId::Id(_) => continue,
            };
            let found = if is_template { &mut self.templates } else { &mut self.message_tables };
            if let Ok(ResourceDirectoryEntryData::Table(names)) = entry.data(directory) {
                collect(&names, directory, image, sections, found);
            }
        }
    }
}

/// Collects the data of one resource type: each name has a directory of languages.
fn collect<'a>(
    names: &ResourceDirectoryTable<'a>,
    directory: ResourceDirectory<'a>,
    image: &'a [u8],
    sections: &SectionTable<'a>,
    found: &mut Vec<&'a [u8]>,
) {
    for name in names.entries.iter().take(MAX_RESOURCES) {
        let Ok(ResourceDirectoryEntryData::Table(languages)) = name.data(directory) else { continue };
        for language in languages.entries.iter().take(MAX_RESOURCES) {
            let Ok(ResourceDirectoryEntryData::Data(data)) = language.data(directory) else { continue };
            let (rva, size) = (data.offset_to_data.get(LE), data.size.get(LE) as usize);
            let Some(bytes) = sections.pe_data_at(image, rva) else { continue };
            if found.len() < MAX_RESOURCES {
                found.push(&bytes[..bytes.len().min(size)]);
            }
        }
    }
}
