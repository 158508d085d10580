//! Providers as JSON. The keys are described in `docs/providers.md`.

use stackhound::schema::{self, InType, MapKind, Schema};
use stackhound_export::json::providers::{
    EventDescription, FieldDescription, Keyword, Map, MapEntry, Named, Opcode, Provider, ProviderSummary,
};
use stackhound_export::json::value::Hex;

use super::names;
use super::sources::ListedProvider;

pub fn summary(known: &ListedProvider) -> ProviderSummary<'_> {
    let description = &known.description;
    ProviderSummary {
        name: name(&description.name),
        guid: description.guid.to_string(),
        events: description.events.len(),
        keywords: description.keywords.len(),
        origin: &known.origin,
    }
}

pub fn provider(known: &ListedProvider) -> Provider<'_> {
    let description = &known.description;
    Provider {
        name: name(&description.name),
        guid: description.guid.to_string(),
        origin: &known.origin,
        message: description.message.as_deref(),
        resource_file: description.resource_file.as_deref(),
        message_file: description.message_file.as_deref(),
        parameter_file: description.parameter_file.as_deref(),
        channels: rows(&description.channels),
        levels: rows(&description.levels),
        keywords: description.keywords.iter().map(keyword).collect(),
        tasks: rows(&description.tasks),
        opcodes: description
            .opcodes
            .iter()
            .map(|opcode| Opcode { task: opcode.task, named: row(&opcode.named) })
            .collect(),
        maps: description.maps.iter().map(|each| map(each)).collect(),
        events: description.events.iter().map(event).collect(),
        not_understood: description.skipped,
    }
}

fn map(map: &schema::Map) -> Map<'_> {
    let entries = map.entries.iter().map(|(value, name)| MapEntry { value: *value, name });
    Map { name: &map.name, bits: map.kind == MapKind::Bits, entries: entries.collect() }
}

fn rows<V: Copy + Into<u16>>(named: &[schema::Named<V>]) -> Vec<Named<'_>> {
    named.iter().map(row).collect()
}

fn row<V: Copy + Into<u16>>(named: &schema::Named<V>) -> Named<'_> {
    Named { value: named.value.into(), name: &named.name, message: named.message.as_deref() }
}

fn keyword(named: &schema::Named<u64>) -> Keyword<'_> {
    Keyword { mask: Hex(named.value), name: &named.name, message: named.message.as_deref() }
}

fn event(event: &schema::EventDescription) -> EventDescription<'_> {
    EventDescription {
        id: event.id,
        version: event.version,
        name: &event.schema.event_name,
        symbol: event.symbol.as_deref(),
        channel: event.channel,
        level: event.level,
        opcode: event.opcode,
        task: event.task,
        keyword: event.keywords.map(Hex),
        message: event.schema.message.as_deref(),
        fields: fields(&event.schema, 0, usize::MAX).0,
    }
}

/// At most `count` fields from an index on, and the index after them.
fn fields(schema: &Schema, mut next: usize, count: usize) -> (Vec<FieldDescription<'_>>, usize) {
    let mut shown = Vec::new();
    while shown.len() < count {
        let Some(field) = schema.fields.get(next) else { break };
        next += 1;
        let members = match field.in_type {
            InType::Struct { members } => {
                let (inner, end) = fields(schema, next, members.into());
                next = end;
                Some(inner)
            }
            _ => None,
        };
        shown.push(FieldDescription {
            name: &field.name,
            in_type: field.in_type.manifest_name(),
            out_type: field.out_type.manifest_name(),
            array_length: names::count(schema, field),
            length: names::length(schema, field),
            map: field.map.as_ref().map(|map| &*map.name),
            fields: members,
        });
    }
    (shown, next)
}

fn name(name: &str) -> Option<&str> {
    (!name.is_empty()).then_some(name)
}
