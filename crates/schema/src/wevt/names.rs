//! The sections of a compiled provider that give names to numbers: channels, levels, tasks, opcodes and keywords, and the
//! provider's own name.

use super::{Bytes, MAX_NAME_BYTES, Resource, utf16_until_zero};
use crate::error::Error;
use crate::provider::{Named, OpcodeDescription, ProviderDescription};

/// What a section holds, by its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Channels,
    Levels,
    Tasks,
    Opcodes,
    Keywords,
    Maps,
    Events,
    /// Attributes of the provider, its name among them.
    Attributes,
    /// Templates are found by the events that use them; filters and queries have no use here.
    Other,
}

impl Section {
    pub fn at(bytes: Bytes<'_>, at: usize) -> Result<Section, Error> {
        Ok(match &bytes.array::<4>(at, "a section")? {
            b"CHAN" => Section::Channels,
            b"LEVL" => Section::Levels,
            b"TASK" => Section::Tasks,
            b"OPCO" => Section::Opcodes,
            b"KEYW" => Section::Keywords,
            b"MAPS" => Section::Maps,
            b"EVNT" => Section::Events,
            b"PRVA" => Section::Attributes,
            _ => Section::Other,
        })
    }

    /// The size of an entry of names.
    fn entry_size(self) -> Option<usize> {
        Some(match self {
            Section::Channels | Section::Keywords => 16,
            Section::Levels | Section::Opcodes => 12,
            Section::Tasks => 28,
            Section::Attributes => 8,
            Section::Maps | Section::Events | Section::Other => return None,
        })
    }
}

/// Behind signature, size and number.
pub(super) const ENTRIES: usize = 12;

/// Takes a section of names into the description of its provider, and where the definition of each channel is. Sections
/// without names are passed over.
pub(super) fn read_names(
    resource: Resource<'_>,
    section: Section,
    at: usize,
    provider: &mut ProviderDescription,
    channels: &mut Vec<usize>,
) -> Result<(), Error> {
    let Some(size) = section.entry_size() else { return Ok(()) };
    let bytes = resource.bytes;
    let count = bytes.count(at + 8, at + ENTRIES, size)?;
    for entry in (0..count).map(|index| at + ENTRIES + size * index) {
        resource.budget.spend(size_of::<Named<u64>>())?;
        // Numbers are cut to the size that event descriptors have for them.
        match section {
            Section::Channels => {
                channels.push(entry);
                let value = bytes.u32(entry + 8)? as u8;
                provider.channels.push(named(resource, value, entry + 12, entry + 4)?);
            }
            Section::Levels => {
                let value = bytes.u32(entry)? as u8;
                provider.levels.push(named(resource, value, entry + 4, entry + 8)?);
            }
            Section::Tasks => {
                let value = bytes.u32(entry)? as u16;
                provider.tasks.push(named(resource, value, entry + 4, entry + 24)?);
            }
            Section::Keywords => {
                provider.keywords.push(named(resource, bytes.u64(entry)?, entry + 8, entry + 12)?);
            }
            Section::Opcodes => {
                let (task, value) = (bytes.u16(entry)?, bytes.u16(entry + 2)? as u8);
                let named = named(resource, value, entry + 4, entry + 8)?;
                provider.opcodes.push(OpcodeDescription { task: (task != 0).then_some(task), named });
            }
            Section::Attributes => attribute(resource, entry, provider)?,
            Section::Maps | Section::Events | Section::Other => {}
        }
    }
    Ok(())
}

/// The lower half of an attribute's kind says what it is. 1 is the provider's name, a text that ends with a zero.
fn attribute(resource: Resource<'_>, entry: usize, provider: &mut ProviderDescription) -> Result<(), Error> {
    const NAME: u16 = 1;
    if resource.bytes.u16(entry)? == NAME {
        let at = resource.bytes.u32(entry + 4)? as usize;
        let text =
            resource.bytes.0.get(at..).ok_or(Error::Metadata { offset: entry + 4, expected: "a name" })?;
        let text = &text[..text.len().min(MAX_NAME_BYTES)];
        resource.budget.spend(text.len())?;
        provider.name = utf16_until_zero(text);
    }
    Ok(())
}

fn named<V>(resource: Resource<'_>, value: V, message: usize, name: usize) -> Result<Named<V>, Error> {
    Ok(Named { value, name: resource.name(name)?, message: resource.message(message)? })
}
