//! Event metadata made of arbitrary bytes.

use std::sync::Arc;

use stackhound_schema::kernel::class_guid;
use stackhound_schema::{
    EmbeddedEvent, EmbeddedIdentity, EventMetadata, Identity, ManifestChunks, Plan, ProviderTraits, Schema,
    SchemaStore, parse_map, providers_of_image, providers_of_manifest,
};
use stackhound_types::{Guid, Pid, PointerSize, Tid};

use crate::payloads::decode_everything;

/// The class of the events in which merged files contain event metadata.
pub(crate) const EVENT_METADATA: Guid = class_guid::EVENT_META_DATA;
pub(crate) const EVENT_INFO: u8 = 32;
pub(crate) const MAP_INFO: u8 = 33;

const PROVIDER: Guid = Guid([7; 16]);
const CHUNK: Identity<'_> =
    Identity::Manifest { provider: PROVIDER, id: 0xfffe, version: 0, opcode: 0xfe, task: 0xfffe };

/// Reads bytes as every kind of event metadata, and decodes the same bytes with the resulting
/// schemas.
pub fn metadata(bytes: &[u8]) {
    if let Ok(event) = EventMetadata::parse(bytes) {
        assert!(event.name().len() <= 3 * bytes.len());
        if let Ok(schema) = event.schema(PROVIDER, 1) {
            check_schema(schema, bytes);
        }
    }
    if let Ok(traits) = ProviderTraits::parse(bytes) {
        assert!(traits.name().len() <= 3 * bytes.len());
    }
    let embedded = EmbeddedEvent::parse(bytes);
    if let Ok(event) = &embedded {
        let fields = event.schema.fields.len();
        assert!(event.map_names.iter().all(|(index, _)| *index < fields));
        check_schema(event.schema.clone(), bytes);
    }
    let map = parse_map(bytes);
    if let Ok((_, map)) = &map {
        assert!(map.entries.len() <= bytes.len() / 8);
    }
    let compiled = providers_of_image(bytes, &[bytes]).into_iter().flatten();
    for provider in providers_of_manifest(bytes, None).into_iter().flatten().chain(compiled) {
        provider.events.into_iter().for_each(|event| check_schema(Schema::clone(&event.schema), bytes));
    }
    check_chunks(bytes);
    check_store(bytes, embedded.map(|event| event.identity).ok());
}

fn check_schema(schema: Schema, payload: &[u8]) {
    let plan = Plan::new(Arc::new(schema));
    for pointer in [PointerSize::Four, PointerSize::Eight] {
        decode_everything(&plan, payload, pointer);
    }
}

/// Checks that a manifest in chunks is reassembled.
fn check_chunks(bytes: &[u8]) {
    let mut chunks = ManifestChunks::default();
    let _ = chunks.push(PROVIDER, Pid(1), Tid(1), bytes);
    let pieces: Vec<&[u8]> = bytes.chunks(bytes.len() / 3 + 1).collect();
    for (number, piece) in pieces.iter().enumerate() {
        let head = [1, 1, 0, 0x5b, pieces.len() as u8, 0, number as u8, 0];
        let whole = chunks.push(PROVIDER, Pid(1), Tid(2), &[&head, *piece].concat());
        assert_eq!(whole.is_ok_and(|whole| whole.as_deref() == Some(bytes)), number + 1 == pieces.len());
    }
}

/// Checks that a store learns the schemas that the parsers read.
fn check_store(bytes: &[u8], embedded: Option<EmbeddedIdentity>) {
    let mut store = SchemaStore::new();
    let class = |opcode| Identity::Classic { class: EVENT_METADATA, opcode, version: 0 };
    // A map can precede or follow the events that refer to it.
    for identity in [class(MAP_INFO), class(EVENT_INFO), class(MAP_INFO), CHUNK] {
        let _ = store.learn(&identity, Pid(1), Tid(1), bytes);
    }
    let _ = store.learn_manifest(bytes);
    let event_identity = embedded.map(|identity| match identity {
        EmbeddedIdentity::Manifest { provider, id, version } => {
            Identity::Manifest { provider, id, version, opcode: 0, task: 0 }
        }
        EmbeddedIdentity::Classic { class, opcode, version } => Identity::Classic { class, opcode, version },
    });
    let self_describing = [
        Identity::TraceLogging { provider: PROVIDER, metadata: bytes, opcode: 0 },
        Identity::Text { provider: PROVIDER },
        CHUNK,
    ];
    for identity in event_identity.into_iter().chain(self_describing) {
        if let Some(plan) = store.lookup(&identity, bytes, PointerSize::Eight).cloned() {
            decode_everything(&plan, bytes, PointerSize::Eight);
        }
    }
    if let Some(identity) = event_identity {
        let is_chunk = matches!(identity, Identity::Manifest { id: 0xfffe, .. });
        assert!(
            is_chunk || store.refused() > 0 || store.lookup(&identity, bytes, PointerSize::Eight).is_some(),
            "{identity:?}"
        );
    }
}
