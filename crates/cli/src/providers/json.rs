//! Providers as JSON. The keys are described in `docs/providers.md`.

use serde::Serialize;
use stackhound::schema::{EventDescription, InType, MapKind, Named, Schema};

use super::names;
use super::sources::Known;

/// One provider of a list.
#[derive(Debug, Serialize)]
pub struct Summary<'k> {
    name: Option<&'k str>,
    guid: String,
    events: usize,
    keywords: usize,
    origin: &'k str,
}

impl<'k> Summary<'k> {
    pub fn new(known: &'k Known) -> Summary<'k> {
        Summary {
            name: name(&known.description.name),
            guid: known.description.guid.to_string(),
            events: known.description.events.len(),
            keywords: known.description.keywords.len(),
            origin: &known.origin,
        }
    }
}

/// Everything about one provider.
#[derive(Debug, Serialize)]
pub struct Provider<'k> {
    name: Option<&'k str>,
    guid: String,
    origin: &'k str,
    message: Option<&'k str>,
    resource_file: Option<&'k str>,
    message_file: Option<&'k str>,
    parameter_file: Option<&'k str>,
    channels: Vec<Row<'k, u8>>,
    levels: Vec<Row<'k, u8>>,
    keywords: Vec<Row<'k, String>>,
    tasks: Vec<Row<'k, u16>>,
    opcodes: Vec<Opcode<'k>>,
    maps: Vec<Map<'k>>,
    events: Vec<Event<'k>>,
    not_understood: usize,
}

#[derive(Debug, Serialize)]
struct Row<'k, V> {
    value: V,
    name: &'k str,
    message: Option<&'k str>,
}

#[derive(Debug, Serialize)]
struct Opcode<'k> {
    task: Option<u16>,
    #[serde(flatten)]
    row: Row<'k, u8>,
}

#[derive(Debug, Serialize)]
struct Map<'k> {
    name: &'k str,
    bits: bool,
    entries: Vec<(u32, &'k str)>,
}

#[derive(Debug, Serialize)]
struct Event<'k> {
    id: u16,
    version: u8,
    name: &'k str,
    symbol: Option<&'k str>,
    channel: Option<u8>,
    level: Option<u8>,
    opcode: Option<u8>,
    task: Option<u16>,
    keywords: Option<String>,
    message: Option<&'k str>,
    fields: Vec<Field<'k>>,
}

#[derive(Debug, Serialize)]
struct Field<'k> {
    name: &'k str,
    in_type: &'static str,
    out_type: Option<&'static str>,
    count: Option<String>,
    length: Option<String>,
    map: Option<&'k str>,
    /// Of a structure.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<Field<'k>>>,
}

pub fn provider(known: &Known) -> Provider<'_> {
    let description = &known.description;
    let opcodes = description.opcodes.iter();
    Provider {
        name: name(&description.name),
        guid: description.guid.to_string(),
        origin: &known.origin,
        message: description.message.as_deref(),
        resource_file: description.resource_file.as_deref(),
        message_file: description.message_file.as_deref(),
        parameter_file: description.parameter_file.as_deref(),
        channels: rows(&description.channels, |value| value),
        levels: rows(&description.levels, |value| value),
        keywords: rows(&description.keywords, hexadecimal),
        tasks: rows(&description.tasks, |value| value),
        opcodes: opcodes
            .map(|opcode| Opcode { task: opcode.task, row: row(&opcode.named, |value| value) })
            .collect(),
        maps: description
            .maps
            .iter()
            .map(|map| Map {
                name: &map.name,
                bits: map.kind == MapKind::Bits,
                entries: map.entries.iter().map(|(value, text)| (*value, &**text)).collect(),
            })
            .collect(),
        events: description.events.iter().map(event).collect(),
        not_understood: description.skipped,
    }
}

fn rows<V: Copy, S>(named: &[Named<V>], show: impl Fn(V) -> S + Copy) -> Vec<Row<'_, S>> {
    named.iter().map(|named| row(named, show)).collect()
}

fn row<V: Copy, S>(named: &Named<V>, show: impl Fn(V) -> S) -> Row<'_, S> {
    Row { value: show(named.value), name: &named.name, message: named.message.as_deref() }
}

fn event(event: &EventDescription) -> Event<'_> {
    Event {
        id: event.id,
        version: event.version,
        name: &event.schema.event_name,
        symbol: event.symbol.as_deref(),
        channel: event.channel,
        level: event.level,
        opcode: event.opcode,
        task: event.task,
        keywords: event.keywords.map(hexadecimal),
        message: event.schema.message.as_deref(),
        fields: fields(&event.schema, 0, usize::MAX).0,
    }
}

/// So many fields from an index on, and the index behind them.
fn fields(schema: &Schema, mut next: usize, count: usize) -> (Vec<Field<'_>>, usize) {
    let mut shown = Vec::new();
    while shown.len() < count {
        let Some(field) = schema.fields.get(next) else { break };
        next += 1;
        let members = match field.in_type {
            InType::Struct { members } => {
                let (inner, behind) = fields(schema, next, members.into());
                next = behind;
                Some(inner)
            }
            _ => None,
        };
        shown.push(Field {
            name: &field.name,
            in_type: field.in_type.manifest_name(),
            out_type: field.out_type.manifest_name(),
            count: names::count(schema, field),
            length: names::length(schema, field),
            map: field.map.as_ref().map(|map| &*map.name),
            fields: members,
        });
    }
    (shown, next)
}

fn hexadecimal(mask: u64) -> String {
    format!("{mask:#x}")
}

fn name(name: &str) -> Option<&str> {
    (!name.is_empty()).then_some(name)
}
