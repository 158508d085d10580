//! The version resource: `VS_VERSIONINFO` with its texts.

use object::LittleEndian as LE;
use object::read::pe::{
    ResourceDirectory, ResourceDirectoryEntryData, ResourceDirectoryTable, ResourceNameOrId,
};
use stackhound_symbols::image::Image;
use stackhound_types::Rva;

use crate::facts::VersionInfo;
use crate::headers::Directory;

/// The number of the resource type.
const VERSION: u16 = 16;
/// Maximum number of examined resource types.
const TYPES_MAX: usize = 4096;
/// Maximum size of the resource in bytes; each block states its size in 16 bits.
const SIZE_MAX: usize = u16::MAX as usize;
/// Maximum number of blocks that are read at each level.
const BLOCKS_MAX: usize = 256;
/// Maximum number of UTF-16 units of a text.
const TEXT_MAX: usize = 1024;

/// Reads the version resource of an image. `None` if it has none, or if it is damaged.
pub(crate) fn read(image: &Image<'_>, resources: Directory) -> Option<VersionInfo> {
    let bytes = image.bytes_from(Rva(resources.at)).filter(|_| resources.size > 0)?;
    let bytes = bytes.get(..(resources.size as usize).min(bytes.len()))?;
    let directory = ResourceDirectory::new(bytes);
    let types = directory.root().ok()?;
    let is_version = |id: ResourceNameOrId| matches!(id, ResourceNameOrId::Id(VERSION));
    let version = types.entries.iter().take(TYPES_MAX).find(|entry| is_version(entry.name_or_id()))?;
    let first = |table: ResourceDirectoryTable<'_>| table.entries.first().map(|entry| entry.data(directory));
    let Ok(ResourceDirectoryEntryData::Table(names)) = version.data(directory) else { return None };
    let Ok(ResourceDirectoryEntryData::Table(languages)) = first(names)? else { return None };
    let Ok(ResourceDirectoryEntryData::Data(data)) = first(languages)? else { return None };
    let size = (data.size.get(LE) as usize).min(SIZE_MAX);
    let bytes = image.bytes_from(Rva(data.offset_to_data.get(LE)))?;
    texts(&bytes[..size.min(bytes.len())])
}

/// A block of the resource: a key, a value and further blocks.
struct Block<'a> {
    key: &'a [u8],
    /// Everything after the key, from the next multiple of four on.
    rest: &'a [u8],
    /// Size of the value in `rest`, in the unit of the block's type.
    value_length: usize,
}

/// Blocks one after the other, each at a multiple of four.
struct Blocks<'a>(&'a [u8]);

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let length = usize::from(u16_at(self.0, 0)?);
        let block = self.0.get(..length).filter(|_| length >= 6)?;
        self.0 = self.0.get(aligned(length)..).unwrap_or_default();
        let value_length = usize::from(u16_at(block, 2)?);
        let units = block[6..].chunks_exact(2).take(TEXT_MAX);
        let end = 6 + 2 * units.clone().position(|unit| unit == [0, 0]).unwrap_or(units.len());
        let rest = block.get(aligned(end + 2)..).unwrap_or_default();
        Some(Block { key: &block[6..end], rest, value_length })
    }
}

fn aligned(offset: usize) -> usize {
    offset.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The texts of the first language that has some.
fn texts(bytes: &[u8]) -> Option<VersionInfo> {
    let root = Blocks(bytes).next()?;
    if decoded(root.key) != "VS_VERSION_INFO" {
        return None;
    }
    let children = root.rest.get(aligned(root.value_length)..).unwrap_or_default();
    let strings = Blocks(children).take(BLOCKS_MAX).find(|block| decoded(block.key) == "StringFileInfo");
    let tables = strings.map_or(Blocks(&[]), |block| Blocks(block.rest)).take(BLOCKS_MAX);
    tables
        .map(|table| language(table.rest))
        .find(|version| !version.is_empty())
        .or(Some(VersionInfo::default()))
}

fn language(texts: &[u8]) -> VersionInfo {
    let mut version = VersionInfo::default();
    for text in Blocks(texts).take(BLOCKS_MAX) {
        let field = match &*decoded(text.key) {
            "OriginalFilename" => &mut version.original_file_name,
            "CompanyName" => &mut version.company,
            "ProductName" => &mut version.product,
            "FileDescription" => &mut version.description,
            "FileVersion" => &mut version.file_version,
            _ => continue,
        };
        // The length is in units, but some compilers write bytes; the zero ends the text in any case.
        let units = text.rest.chunks_exact(2).take(text.value_length.min(TEXT_MAX));
        let end = units.clone().position(|unit| unit == [0, 0]).unwrap_or(units.len());
        let value = decoded(&text.rest[..2 * end]);
        if field.is_none() && !value.trim().is_empty() {
            *field = Some(value.trim().into());
        }
    }
    version
}

fn decoded(text: &[u8]) -> String {
    utf16(text.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])))
}

/// A text, with invalid units replaced by U+FFFD.
pub(crate) fn utf16(units: impl Iterator<Item = u16>) -> String {
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
