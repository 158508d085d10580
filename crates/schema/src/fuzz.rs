//! Entry points for fuzzing. Each reads arbitrary bytes as one kind of input and visits the whole
//! result. None may panic, or take much time or memory. A test runs them on damaged forms of valid
//! inputs; a fuzzer can call them directly.

mod kernel_classes;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write};
use std::sync::Arc;

use stackhound_types::{Guid, Pid, PointerSize, Tid};

use crate::builtin;
use crate::decode::{Decoder, Item};
use crate::embedded::{EmbeddedEvent, parse_map};
use crate::identity::Identity;
use crate::manifest::{ManifestChunks, providers_of_manifest};
use crate::model::{Field, Schema};
use crate::plan::Plan;
use crate::provider::{ProviderDescription, readable};
use crate::store::{EVENT_METADATA, SchemaStore};
use crate::tracelogging::{EventMetadata, ProviderTraits};
use crate::wevt::providers_of_image;

pub use kernel_classes::kernel;

/// Reads the bytes as TraceLogging metadata, followed by a payload after the stated size; then as
/// provider traits.
pub fn tracelogging(data: &[u8]) {
    if let Ok(metadata) = EventMetadata::parse(data) {
        let _ = metadata.name();
        let size = data.first_chunk().map_or(0, |size| usize::from(u16::from_le_bytes(*size)));
        if let Ok(schema) = metadata.schema(Guid::ZERO, 1) {
            visit(schema, data.get(size..).unwrap_or_default());
        }
    }
    if let Ok(traits) = ProviderTraits::parse(data) {
        let _ = traits.name();
    }
}

/// Reads the bytes as an embedded description, and as the payload of the event that it describes;
/// then as a map.
pub fn embedded(data: &[u8]) {
    if let Ok(event) = EmbeddedEvent::parse(data) {
        visit(event.schema, data);
    }
    let _ = parse_map(data);
}

/// Reads the bytes as the text of a manifest, and as the payload of each event that it describes.
pub fn manifest(data: &[u8]) {
    if let Ok(providers) = providers_of_manifest(data, None) {
        visit_providers(&providers, data);
    }
}

/// Reads the bytes as an image with a compiled manifest, and as the payload of each event that it
/// describes.
pub fn compiled(data: &[u8]) {
    if let Ok(providers) = providers_of_image(data, &[data]) {
        visit_providers(&providers, data);
    }
}

/// Reads the bytes as manifest chunks, each after its length and its thread id.
pub fn manifest_chunks(mut data: &[u8]) {
    let mut chunks = ManifestChunks::default();
    while let Some(([length, tid], rest)) = data.split_first_chunk() {
        let (chunk, rest) = rest.split_at(rest.len().min((*length).into()));
        let _ = chunks.push(Guid::ZERO, Pid(4), Tid((*tid).into()), chunk);
        data = rest;
    }
}

/// Reads the bytes as an event of the built-in tables (provider, id, version), followed by its
/// payload.
pub fn built_in(data: &[u8]) {
    const PROVIDERS: [&str; 8] = [
        "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4",
        "a669021c-c450-4609-a035-5af59af4df18",
        "763fd754-7086-4dfe-95eb-c01a46faf4ca",
        "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716",
        "edd08927-9cc4-4e65-b970-c2560fb5c289",
        "7dd42a49-5329-4832-8dfd-43d979153a88",
        "1c95126e-7eea-49a9-a3fe-a378b03ddb4d",
        "b675ec37-bdb6-4648-bc92-f3fdc74d3ca2",
    ];
    let Some(([origin, low, high, version], payload)) = data.split_first_chunk() else { return };
    let number = u16::from_le_bytes([*low, *high]);
    let Some(Ok(provider)) = PROVIDERS.get(usize::from(*origin)).map(|guid| guid.parse()) else { return };
    if let Some(found) = builtin::lookup(provider, number, *version) {
        visit(Schema::clone(found.plan.schema()), payload);
    }
}

/// Learns and looks up several events with one store. Each event is a kind, an id and a length,
/// followed by its payload.
pub fn store(mut data: &[u8]) {
    let mut store = SchemaStore::new();
    while let Some(([kind, id, length], rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*length) * 4));
        let (provider, number) = (Guid([*id; 16]), u16::from(*id));
        let identity = match kind % 6 {
            0 => Identity::Kernel { hook_id: u16::from_be_bytes([*kind / 6, *id]), version: 2 },
            1 => Identity::Classic { class: EVENT_METADATA, opcode: 32 + (*id & 1), version: 0 },
            2 => Identity::Manifest { provider, id: 0xfffe, version: 1, opcode: 0xfe, task: 0xfffe },
            3 => Identity::Manifest { provider, id: number, version: *kind / 6, opcode: 0, task: 0 },
            4 => Identity::TraceLogging { provider, metadata: payload, opcode: *id },
            _ => Identity::Text { provider },
        };
        let _ = store.learn(&identity, Pid(4), Tid(8), payload);
        if let Some(plan) = store.lookup(&identity, payload, PointerSize::Eight) {
            visit_all(&mut plan.decode(payload, PointerSize::Eight));
        }
        data = rest;
    }
}

/// Looks up all names, and reads the bytes as the payload of each event.
fn visit_providers(providers: &[ProviderDescription], data: &[u8]) {
    for provider in providers {
        for event in &provider.events {
            let (task, opcode) = (event.task.unwrap_or(0), event.opcode.unwrap_or(0));
            let _ = (provider.task_name(task), provider.opcode_name(task, opcode));
            let _ = (
                provider.level_name(event.level.unwrap_or(0)),
                provider.channel_name(event.channel.unwrap_or(0)),
            );
            let _ = provider.keyword_names(event.keywords.unwrap_or(0)).count();
            let _ = readable(event.schema.message.as_deref().unwrap_or_default());
            visit(Schema::clone(&event.schema), data);
        }
    }
}

/// Decodes and formats everything, in order and by index.
fn visit(schema: Schema, payload: &[u8]) {
    let plan = Plan::new(Arc::new(schema));
    for pointer in [PointerSize::Four, PointerSize::Eight] {
        visit_all(&mut plan.decode(payload, pointer));
        for index in 0..plan.schema().fields.len().min(64) {
            let _ = plan.value(payload, pointer, index);
            let _ = plan.item(payload, pointer, index);
        }
    }
}

fn visit_all(decoder: &mut Decoder<'_>) {
    for decoded in decoder {
        match decoded {
            Ok(decoded) => visit_item(decoded.field, &decoded.item),
            Err(error) => discard(format_args!("{error}")),
        }
    }
}

fn visit_item(field: &Field, item: &Item<'_>) {
    match item {
        Item::Value(value) => {
            discard(format_args!("{}", field.render(*value)));
            let _ = (value.text(), value.as_i64(), value.as_u64());
        }
        Item::Array(array) => {
            let _ = (array.bytes(), array.text());
            array.iter().for_each(|element| visit_item(field, &element));
        }
        Item::Struct(members) => visit_all(&mut members.clone()),
    }
}

/// Formats and discards the text.
fn discard(text: fmt::Arguments<'_>) {
    struct Nowhere;
    impl Write for Nowhere {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    Nowhere.write_fmt(text).expect("formatting cannot fail");
}
