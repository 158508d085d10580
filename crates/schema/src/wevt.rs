//! Compiled manifests: the `WEVT_TEMPLATE` resource of an image file, and the message tables that
//! it refers to.
//!
//! Offsets in the resource are relative to its start and are not trusted: they may point anywhere,
//! and many of them to the same data. Therefore, all data that is read from a file is counted in
//! one [`Budget`].
//!
//! The format and its sources are described in `docs/format/metadata.md`, in the section on
//! compiled manifests.

mod image;
mod messages;
mod names;
mod template;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use stackhound_types::Guid;

use crate::decode::utf16_to_zero;
use crate::error::Error;
use crate::manifest::MAX_DESCRIPTION_BYTES;
use crate::model::{Schema, SchemaSource};
use crate::naming::event_name;
use crate::provider::{EventDescription, ProviderDescription};
use crate::value::utf16_text;

use image::Resources;
use messages::Messages;
use names::{Section, read_names};
use template::Templates;

/// The message number that means that there is no message.
const NO_MESSAGE: u32 = u32::MAX;

/// The names in Windows' own manifests have at most a few hundred characters.
const MAX_NAME_BYTES: usize = 4096;

const EVENT_SIZE: usize = 48;

/// Reads the providers of an image file. `texts` are further images with messages, such as its
/// `.mui` file; messages of the image itself take precedence.
///
/// # Errors
/// [`Error::Metadata`] if the bytes are not a PE image, contain no compiled manifest, or if no
/// provider of the manifest can be read. Events that cannot be read are counted
/// ([`ProviderDescription::skipped`]).
pub fn providers_of_image(image: &[u8], texts: &[&[u8]]) -> Result<Vec<ProviderDescription>, Error> {
    let resources = Resources::of(image)?;
    if resources.templates.is_empty() {
        return Err(Error::Metadata { offset: 0, expected: "a WEVT_TEMPLATE resource in the image" });
    }
    let mut messages = Messages::default();
    resources.message_tables.iter().for_each(|table| messages.add(table));
    for text in texts {
        let tables = Resources::of(text).map(|resources| resources.message_tables).unwrap_or_default();
        tables.iter().for_each(|table| messages.add(table));
    }
    let budget = Budget(Cell::new(MAX_DESCRIPTION_BYTES));
    let mut providers = Vec::new();
    let mut first_error = None;
    for resource in resources.templates {
        let resource = Resource { bytes: Bytes(resource), messages: &messages, budget: &budget };
        match resource.providers() {
            Ok(found) => providers.extend(found),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) if providers.is_empty() => Err(error),
        _ => Ok(providers),
    }
}

/// The remaining number of bytes that may be read from a file.
#[derive(Debug)]
struct Budget(Cell<usize>);

impl Budget {
    fn spend(&self, bytes: usize) -> Result<(), Error> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.map(drop)
            .ok_or(Error::Metadata { offset: 0, expected: "a manifest with at most 64 MiB of descriptions" })
    }
}

/// A compiled manifest with its texts.
#[derive(Clone, Copy)]
struct Resource<'a> {
    bytes: Bytes<'a>,
    messages: &'a Messages<'a>,
    budget: &'a Budget,
}

impl Resource<'_> {
    fn providers(self) -> Result<Vec<ProviderDescription>, Error> {
        const HEADER: usize = 16;
        const ENTRY: usize = 20;
        self.bytes.expect_tag(0, b"CRIM", "the signature CRIM")?;
        let count = self.bytes.count(12, HEADER, ENTRY)?;
        let provider = |entry| {
            let guid = Guid(self.bytes.array(entry, "a GUID")?);
            self.provider(guid, self.bytes.u32(entry + 16)? as usize)
        };
        let mut found = Vec::new();
        let mut last_error = None;
        for index in 0..count {
            match provider(HEADER + ENTRY * index) {
                Ok(provider) => found.push(provider),
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Reads a provider. Its sections are identified by their signatures.
    fn provider(self, guid: Guid, at: usize) -> Result<ProviderDescription, Error> {
        const HEADER: usize = 20;
        const ENTRY: usize = 8;
        let bytes = self.bytes;
        bytes.expect_tag(at, b"WEVT", "the signature WEVT")?;
        self.budget.spend(size_of::<ProviderDescription>())?;
        let count = bytes.count(at + 12, at + HEADER, ENTRY)?;
        let mut provider =
            ProviderDescription { guid, message: self.message(at + 8)?, ..ProviderDescription::default() };
        let mut channels = Vec::new();
        let mut templates = Templates::default();
        let mut events = Vec::new();
        for entry in (0..count).map(|index| at + HEADER + ENTRY * index) {
            let section = bytes.u32(entry)? as usize;
            match Section::at(bytes, section)? {
                Section::Events => events.push(section),
                Section::Maps => templates.read_maps(self, section)?,
                kind => read_names(self, kind, section, &mut provider, &mut channels)?,
            }
        }
        provider.maps = templates.maps();
        let mut channels_of_events = HashMap::new();
        for section in events {
            const HEADER: usize = 16;
            let count = bytes.count(section + 8, section + HEADER, EVENT_SIZE)?;
            for event in (0..count).map(|index| section + HEADER + EVENT_SIZE * index) {
                self.budget.spend(size_of::<EventDescription>())?;
                let Ok(description) = self.event(event, &provider, &mut templates) else {
                    provider.skipped += 1;
                    continue;
                };
                self.budget.spend(description.schema.approximate_bytes())?;
                channels_of_events.insert(bytes.u32(event + 44)? as usize, description.channel);
                provider.events.push(description);
            }
        }
        // Events refer to their channel and contain its number. This number is more reliable than
        // the field of the channel's definition, whose meaning is only inferred.
        for (channel, at) in provider.channels.iter_mut().zip(channels) {
            let of_events = channels_of_events.get(&at).copied().flatten();
            channel.value = of_events.unwrap_or(channel.value);
        }
        Ok(provider)
    }

    /// Reads one event of 48 bytes: the descriptor, then the offsets of its parts.
    fn event(
        self,
        at: usize,
        provider: &ProviderDescription,
        templates: &mut Templates,
    ) -> Result<EventDescription, Error> {
        let bytes = self.bytes;
        let (id, task) = (bytes.u16(at)?, bytes.u16(at + 6)?);
        let [version, channel, level, opcode] = bytes.array(at + 2, "an event descriptor")?;
        // A reference to a definition takes precedence over a search by number.
        let name_at = |pointer: usize, name_offset: usize| match bytes.u32(pointer)? as usize {
            0 => Ok(None),
            definition => self.name(definition.saturating_add(name_offset)).map(Some),
        };
        let (opcode_name, task_name) = (name_at(at + 24, 8)?, name_at(at + 32, 24)?);
        let mut name = event_name(
            task_name.as_deref().or_else(|| provider.task_name(task)).unwrap_or_default(),
            opcode_name.as_deref().or_else(|| provider.opcode_name(task, opcode)).unwrap_or_default(),
        );
        if name.is_empty() {
            name = format!("EventID({id})");
        }
        let fields = match bytes.u32(at + 20)? as usize {
            0 => Vec::new(),
            template => templates.fields(self, template)?,
        };
        let schema = Schema {
            source: SchemaSource::Manifest,
            provider: provider.guid,
            event_name: name.into(),
            message: self.message(at + 16)?,
            fields,
        };
        Ok(EventDescription {
            id,
            version,
            channel: Some(channel),
            level: Some(level),
            opcode: Some(opcode),
            task: Some(task),
            keywords: Some(bytes.u64(at + 8)?),
            symbol: None,
            schema: Arc::new(schema),
        })
    }

    /// The message whose number is stored at an offset.
    fn message(self, offset: usize) -> Result<Option<Box<str>>, Error> {
        let text = self.messages.text(self.bytes.u32(offset)?);
        self.budget.spend(text.as_deref().map_or(0, str::len))?;
        Ok(text)
    }

    /// The name whose offset is stored at an offset: a length in bytes that includes itself, then
    /// UTF-16 with a terminator.
    fn name(self, offset: usize) -> Result<Box<str>, Error> {
        let at = self.bytes.u32(offset)? as usize;
        let length = (self.bytes.u32(at)? as usize).saturating_sub(4).min(MAX_NAME_BYTES);
        let text = self.bytes.0.get(at + 4..).and_then(|rest| rest.get(..length));
        let text = text.ok_or(Error::Metadata { offset: at, expected: "a name inside the resource" })?;
        self.budget.spend(size_of::<Box<str>>() + text.len())?;
        Ok(utf16_until_zero(text))
    }
}

/// Bytes with little-endian numbers at given offsets.
#[derive(Clone, Copy, Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(self, offset: usize, expected: &'static str) -> Result<[u8; N], Error> {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or(Error::Metadata { offset, expected })
    }

    fn u16(self, offset: usize) -> Result<u16, Error> {
        self.array(offset, "a u16").map(u16::from_le_bytes)
    }

    fn u32(self, offset: usize) -> Result<u32, Error> {
        self.array(offset, "a u32").map(u32::from_le_bytes)
    }

    fn u64(self, offset: usize) -> Result<u64, Error> {
        self.array(offset, "a u64").map(u64::from_le_bytes)
    }

    fn expect_tag(self, offset: usize, tag: &[u8; 4], expected: &'static str) -> Result<(), Error> {
        let found: [u8; 4] = self.array(offset, expected)?;
        if found == *tag { Ok(()) } else { Err(Error::Metadata { offset, expected }) }
    }

    /// The count at an offset, if that many entries fit after `first`.
    fn count(self, offset: usize, first: usize, size: usize) -> Result<usize, Error> {
        let count = self.u32(offset)? as usize;
        if count > self.0.len().saturating_sub(first) / size {
            return Err(Error::Metadata { offset, expected: "the stated number of entries" });
        }
        Ok(count)
    }
}

/// UTF-16LE text up to a zero or the end.
fn utf16_until_zero(bytes: &[u8]) -> Box<str> {
    utf16_text(utf16_to_zero(bytes)).into()
}

#[cfg(test)]
mod tests;
