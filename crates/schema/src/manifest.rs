//! Instrumentation manifests, as .NET event sources send them ahead of their events.
//!
//! A manifest comes in chunks ([`ManifestChunks`]), is XML, and describes all events of a provider: events refer to
//! tasks, opcodes and templates by name, templates to value maps, and all of them to texts in a string table.

mod chunks;
mod document;

use std::collections::HashMap;
use std::sync::Arc;

use stackhound_etl::Guid;

use crate::error::Error;
use crate::model::{Count, Field, InType, Length, Map, MapKind, OutType, Schema, SchemaSource};
use crate::naming::event_name;
use crate::tdh::{in_type_number, out_type_number};

pub use chunks::{ManifestChunks, is_manifest_chunk};
use document::{DataElement, Document, EventElement, MapElement, Template};

/// How many bytes the schemas of one manifest may take, roughly. Many events may refer to one long text or template.
const MAX_SCHEMA_BYTES: usize = 64 << 20;

/// What a manifest says about its provider's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The provider.
    pub provider: Guid,
    /// The provider's name.
    pub name: Box<str>,
    /// The events that could be understood, in the manifest's order.
    pub events: Vec<ManifestEvent>,
    /// How many events could not, because of a template or type that is unknown.
    pub skipped: usize,
}

/// One event of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEvent {
    /// The id in the event descriptor.
    pub id: u16,
    /// The version in the event descriptor.
    pub version: u8,
    /// Names and types.
    pub schema: Schema,
}

impl Manifest {
    /// Reads the XML text of a manifest; what is not UTF-8 in it is replaced.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the XML is not well-formed, has no provider with a GUID, or is too large.
    pub fn parse(xml: &[u8]) -> Result<Manifest, Error> {
        let text = String::from_utf8_lossy(xml);
        let document = Document::parse(&text)?;
        let provider = document.provider_guid.trim().parse();
        let provider =
            provider.map_err(|_| Error::Metadata { offset: 0, expected: "a provider with a GUID" })?;
        let references = References::of(&document);
        let mut manifest = Manifest {
            provider,
            name: document.provider_name.as_str().into(),
            events: Vec::new(),
            skipped: 0,
        };
        let mut bytes = 0_usize;
        for element in &document.events {
            match references.event(element, provider, &document.provider_name) {
                Some(event) => {
                    bytes = bytes.saturating_add(event.schema.approximate_bytes());
                    if bytes > MAX_SCHEMA_BYTES {
                        return Err(Error::Metadata { offset: text.len(), expected: "a smaller manifest" });
                    }
                    manifest.events.push(event);
                }
                None => manifest.skipped += 1,
            }
        }
        Ok(manifest)
    }
}

/// The parts of a manifest by the names under which others refer to them.
struct References<'a> {
    strings: HashMap<&'a str, &'a str>,
    templates: HashMap<&'a str, &'a Template>,
    maps: HashMap<&'a str, Arc<Map>>,
}

impl<'a> References<'a> {
    fn of(document: &'a Document) -> References<'a> {
        let strings: HashMap<_, _> =
            document.strings.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect();
        let templates = document.templates.iter().map(|template| (template.id.as_str(), template)).collect();
        let mut references = References { strings, templates, maps: HashMap::new() };
        references.maps =
            document.maps.iter().map(|map| (map.name.as_str(), Arc::new(references.map(map)))).collect();
        references
    }

    /// A text, looked up in the string table if it is a reference.
    fn text(&self, text: &'a str) -> &'a str {
        let id = text.strip_prefix("$(string.").and_then(|rest| rest.strip_suffix(')'));
        id.and_then(|id| self.strings.get(id).copied()).unwrap_or(text)
    }

    fn map(&self, map: &'a MapElement) -> Map {
        let entries = map.entries.iter().filter_map(|(value, message)| {
            let value = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => value.parse(),
            };
            Some((value.ok()?, self.text(message).trim_end().into()))
        });
        Map {
            name: map.name.as_str().into(),
            kind: if map.is_bit_map { MapKind::Bits } else { MapKind::Values },
            entries: entries.collect(),
        }
    }

    /// `None` if the event's numbers, template or types are not known.
    fn event(&self, element: &'a EventElement, provider: Guid, provider_name: &str) -> Option<ManifestEvent> {
        let id = element.value.parse().ok()?;
        let version = if element.version.is_empty() { 0 } else { element.version.parse().ok()? };
        // Sources without tasks are rare; their symbols say what happened.
        let task = match (&*element.task, &*element.opcode) {
            ("", "") => &element.symbol,
            (task, _) => task,
        };
        let mut name = event_name(task, &element.opcode);
        if name.is_empty() {
            name = format!("EventID({id})");
        }
        let fields = match &*element.template {
            "" => Vec::new(),
            template => self.fields(self.templates.get(template)?)?,
        };
        let message = self.text(&element.message);
        let schema = Schema {
            source: SchemaSource::Manifest,
            provider,
            provider_name: provider_name.into(),
            event_name: name.into(),
            message: if message.is_empty() { None } else { Some(message.into()) },
            fields,
        };
        Some(ManifestEvent { id, version, schema })
    }

    fn fields(&self, template: &Template) -> Option<Vec<Field>> {
        // The place of the last field of each name.
        let mut places = HashMap::new();
        let mut fields = Vec::with_capacity(template.data.len());
        for data in &template.data {
            fields.push(self.field(data, &places)?);
            places.insert(data.name.as_str(), u16::try_from(fields.len() - 1).ok()?);
        }
        Some(fields)
    }

    fn field(&self, data: &DataElement, places: &HashMap<&str, u16>) -> Option<Field> {
        let out_type = out_type_number(&data.out_type).map_or(OutType::Default, OutType::from_tdh);
        let in_type = match data.members {
            Some(members) => InType::Struct { members },
            None => InType::from_tdh(in_type_number(&data.in_type)?, out_type)?,
        };
        let count = match (data.count.as_str(), data.count.parse()) {
            ("", _) => Count::One,
            (_, Ok(count)) => Count::Fixed(count),
            (name, Err(_)) => Count::Field(*places.get(name)?),
        };
        let length = match (data.length.as_str(), data.length.parse()) {
            _ if !in_type.takes_length() => Length::Natural,
            ("", _) if out_type == OutType::Ipv6 => Length::Fixed(16),
            ("", _) => Length::Natural,
            (_, Ok(length)) => Length::Fixed(length),
            (name, Err(_)) => Length::Field(*places.get(name)?),
        };
        let map = self.maps.get(data.map.as_str()).cloned();
        Some(Field { out_type, count, length, map, ..Field::new(data.name.as_str(), in_type) })
    }
}

#[cfg(test)]
mod tests;
