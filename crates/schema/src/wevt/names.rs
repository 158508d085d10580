//! The sections of a compiled provider with the names of numbers: channels, levels, tasks, opcodes
//! and keywords. Also reads the provider's own name.

use super::{Bytes, MAX_NAME_BYTES, Resource, utf16_until_zero};
use crate::error::Error;
use crate::provider::{Named, OpcodeDescription, ProviderDescription};

/// The kind of a section, by its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Channels,
    Levels,
    Tasks,
    Opcodes,
    Keywords,
    Maps,
    Events,
    /// Attributes of the provider, including its name.
    Attributes,
    /// Templates, which are found through the events that use them, and filters and queries, which
    /// are not used.
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

    /// The size of an entry in a section of names.
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

/// The offset of the entries, after signature, size and count.
pub(super) const ENTRIES: usize = 12;

/// Adds a section of names to the description of its provider, and the offset of each channel
/// definition to `channels`. Other sections are skipped.
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
        // Values are truncated to their size in event descriptors.
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

/// The lower 16 bits of an attribute's type identify it. Type 1 is the provider's name, which ends
/// with a zero.
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
