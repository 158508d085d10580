use std::sync::atomic::{AtomicUsize, Ordering};

use stackhound_types::PointerSize::Eight;

use super::*;
use crate::testing::blocks::{
    CLASS, Head, MANIFEST, PROVIDER, Stored, event_info, event_metadata, field, map_info, value,
};
use crate::testing::{decoded, utf16z};

const EVENT_INFO_EVENT: Identity<'_> =
    Identity::Classic { class: EVENT_METADATA, opcode: EVENT_INFO, version: 0 };
const MAP_INFO_EVENT: Identity<'_> =
    Identity::Classic { class: EVENT_METADATA, opcode: EVENT_MAP_INFO, version: 0 };

fn manifest_event(provider: Guid, id: u16, version: u8) -> Identity<'static> {
    Identity::Manifest { provider, id, version, opcode: 0, task: 0 }
}

fn learn(store: &mut SchemaStore, identity: &Identity<'_>, payload: &[u8]) {
    assert_eq!(store.learn(identity, Pid(4), Tid(8), payload), Ok(true));
}

/// The payload as decoded by the store; `-` if it has no description.
fn read(store: &mut SchemaStore, identity: &Identity<'_>, payload: &[u8]) -> String {
    match store.lookup(identity, payload, Eight) {
        Some(plan) => {
            let schema = plan.schema().clone();
            let fields = decoded(&schema, payload, Eight);
            let provider = store.provider_name(provider_of(identity)).map_or("", |name| name);
            format!("{provider}:{} {}", schema.event_name, fields.trim_start())
        }
        None => "-".into(),
    }
}

fn provider_of(identity: &Identity<'_>) -> Guid {
    match *identity {
        Identity::Kernel { hook_id, .. } => kernel::class_of_hook_id(hook_id).expect("a class"),
        Identity::Classic { class, .. } => class,
        Identity::Manifest { provider, .. }
        | Identity::TraceLogging { provider, .. }
        | Identity::Text { provider } => provider,
        Identity::Message { guid, .. } => guid,
    }
}

fn one_field(field: Stored) -> Vec<u8> {
    event_info(&Head { top_level: 1, ..MANIFEST }, &[field])
}

fn manifest(provider: Guid, events: &str, templates: &str) -> Vec<u8> {
    format!(
        r#"<instrumentationManifest><provider name="Sender" guid="{{{provider}}}"><events>{events}</events>
        <templates>{templates}</templates></provider></instrumentationManifest>"#
    )
    .into_bytes()
}

fn chunk(xml: &[u8]) -> Vec<u8> {
    [&[1, 1, 0, 0x5b, 1, 0, 0, 0], xml].concat()
}

#[test]
fn the_number_in_the_header_tells_which_events_can_contain_descriptions() {
    let contains = |identity| SchemaStore::new().learn(&identity, Pid(4), Tid(8), &[]) != Ok(false);
    for number in 0..=u16::MAX {
        let classic = u8::try_from(number)
            .is_ok_and(|opcode| contains(Identity::Classic { class: EVENT_METADATA, opcode, version: 0 }));
        let provider = PROVIDER;
        let chunk = Identity::Manifest { provider, id: number, version: 0, opcode: 0xfe, task: 0xfffe };
        for (kind, expected) in [
            (HeaderKind::Full32, classic),
            (HeaderKind::Instance64, classic),
            (HeaderKind::Event64, contains(chunk)),
            (HeaderKind::System64, false),
            (HeaderKind::Message, false),
        ] {
            assert_eq!(SchemaStore::can_learn(kind, number), expected, "{kind:?} {number}");
        }
    }
}

#[test]
fn a_new_store_has_no_learned_descriptions() {
    let mut store = SchemaStore::new();
    for (identity, misses) in [
        (manifest_event(PROVIDER, 1, 0), 1),
        (manifest_event(PROVIDER, 1, 0), 2),
        (Identity::Classic { class: CLASS, opcode: 6, version: 3 }, 3),
        (Identity::Message { guid: CLASS, number: 10 }, 4),
        (Identity::TraceLogging { provider: PROVIDER, metadata: &[7], opcode: 0 }, 5),
    ] {
        assert_eq!(read(&mut store, &identity, &[1, 2]), "-");
        assert_eq!(store.misses(), misses);
    }
    assert_eq!(store.learn(&manifest_event(PROVIDER, 1, 0), Pid(4), Tid(8), &[1]), Ok(false));
    assert!(store.learn(&EVENT_INFO_EVENT, Pid(4), Tid(8), &[1]).is_err());
}

#[test]
fn embedded_descriptions_are_joined_with_their_maps() {
    let colored = one_field(Stored { map: "TypeMap", ..value("v", 8, 0) });
    let map = map_info(1, 1, &[(1, "One ")]);
    for map_first in [true, false] {
        let mut store = SchemaStore::new();
        assert_eq!(read(&mut store, &manifest_event(PROVIDER, 0x102, 3), &[1, 0, 0, 0]), "-");
        if map_first {
            learn(&mut store, &MAP_INFO_EVENT, &map);
        }
        learn(&mut store, &EVENT_INFO_EVENT, &colored);
        if !map_first {
            let unnamed = read(&mut store, &manifest_event(PROVIDER, 0x102, 3), &[1, 0, 0, 0]);
            assert_eq!(unnamed, "Provider:Task/Start v=1");
            learn(&mut store, &MAP_INFO_EVENT, &map);
        }
        let named = read(&mut store, &manifest_event(PROVIDER, 0x102, 3), &[1, 0, 0, 0]);
        assert_eq!(named, "Provider:Task/Start v=One");
        assert_eq!(store.provider_name(PROVIDER).map(|name| &**name), Some("Provider"));
    }
}

#[test]
fn classic_events_are_found_by_class_and_opcode() {
    let mut store = SchemaStore::new();
    let head = Head { source: 1, top_level: 1, opcode: "Begin", ..MANIFEST };
    learn(&mut store, &EVENT_INFO_EVENT, &event_info(&head, &[value("v", 4, 0)]));
    let event = |opcode, version| Identity::Classic { class: CLASS, opcode, version };
    assert_eq!(read(&mut store, &event(6, 3), &[7]), "Provider:Task/Begin v=7");
    assert_eq!(read(&mut store, &event(6, 9), &[7]), "Provider:Task/Begin v=7");
    assert_eq!(read(&mut store, &event(6, 2), &[7]), "-");
    assert_eq!(read(&mut store, &event(7, 3), &[7]), "-");
}

#[test]
fn manifests_are_learned_from_chunks() {
    let mut store = SchemaStore::new();
    let events = r#"<event value="1" version="0" task="Ping" template="T"/><event value="1" version="2" task="Pong"/>"#;
    let template = r#"<template tid="T"><data name="n" inType="win:UInt8"/></template>"#;
    let sender = Guid([3; 16]);
    let chunk_event =
        Identity::Manifest { provider: sender, id: 0xfffe, version: 1, opcode: 0xfe, task: 0xfffe };
    let chunk_payload = chunk(&manifest(sender, events, template));
    assert_eq!(
        read(&mut store, &chunk_event, &chunk_payload[..8]),
        ":ManifestData Format=1 MajorVersion=1 \
        MinorVersion=0 Magic=91 TotalChunks=1 ChunkNumber=0 Manifest="
    );
    learn(&mut store, &chunk_event, &chunk_payload);
    learn(&mut store, &chunk_event, &chunk_payload);
    // The next lower version is used if the exact one is unknown.
    for (version, expected) in
        [(0, "Sender:Ping n=5"), (1, "Sender:Ping n=5"), (2, "Sender:Pong +1"), (9, "Sender:Pong +1")]
    {
        assert_eq!(read(&mut store, &manifest_event(sender, 1, version), &[5]), expected);
    }
    assert_eq!(read(&mut store, &manifest_event(sender, 2, 0), &[5]), "-");
    assert!(read(&mut store, &chunk_event, &[]).starts_with("Sender:ManifestData"));

    // A newer manifest may add fields without a new version. An older manifest that arrives later
    // changes nothing.
    let more = r#"<template tid="T"><data name="n" inType="win:UInt8"/><data name="m" inType="win:UInt8"/></template>"#;
    for xml in [manifest(sender, events, more), manifest(sender, &format!("{events} "), template)] {
        store.learn_manifest(&xml).unwrap();
        assert_eq!(read(&mut store, &manifest_event(sender, 1, 0), &[5, 6]), "Sender:Ping n=5 m=6");
    }
}

#[test]
fn embedded_descriptions_are_preferred_over_manifests() {
    let events = r#"<event value="258" version="3" task="Manifest" template="T"/>"#;
    let templates = r#"<template tid="T"><data name="a" inType="win:UInt8"/><data name="b" inType="win:UInt8"/></template>"#;
    let xml = manifest(PROVIDER, events, templates);
    for manifest_first in [true, false] {
        let mut store = SchemaStore::new();
        if manifest_first {
            store.learn_manifest(&xml).unwrap();
        }
        learn(&mut store, &EVENT_INFO_EVENT, &one_field(value("v", 4, 0)));
        store.learn_manifest(&xml).unwrap();
        assert!(read(&mut store, &manifest_event(PROVIDER, 258, 3), &[1]).ends_with("Task/Start v=1"));
    }
}

#[test]
fn tracelogging_events_describe_themselves() {
    let mut store = SchemaStore::new();
    let metadata = event_metadata("Event", &field("v", "04"));
    let event = |opcode| Identity::TraceLogging { provider: PROVIDER, metadata: &metadata, opcode };
    assert_eq!(read(&mut store, &event(0), &[7]), ":Event v=7");
    assert_eq!(read(&mut store, &event(1), &[7]), ":Event/Start v=7");
    // The same bytes are not read again.
    let first = Arc::as_ptr(store.lookup(&event(0), &[], Eight).unwrap());
    assert_eq!(Arc::as_ptr(store.lookup(&event(0), &[], Eight).unwrap()), first);
    assert_eq!(store.misses(), 0);
}

#[test]
fn kernel_classes_and_some_providers_are_built_in() {
    let mut store = SchemaStore::new();
    let end = Identity::Kernel { hook_id: 0x030b, version: 2 };
    assert_eq!(read(&mut store, &end, &[4, 0, 0, 0]), "Process:Process/Terminate ProcessId=4");
    assert_eq!(read(&mut store, &Identity::Kernel { hook_id: 0xffff, version: 2 }, &[]), "-");
    // The same event with a classic header, as test programs write it.
    let class = "3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c".parse().unwrap();
    let end = Identity::Classic { class, opcode: 11, version: 2 };
    assert_eq!(read(&mut store, &end, &[4, 0, 0, 0]), "Process:Process/Terminate ProcessId=4");

    let runtime = "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4".parse().unwrap();
    let stopped = read(&mut store, &manifest_event(runtime, 8, 1), &[9, 0]);
    assert_eq!(stopped, "Microsoft-Windows-DotNETRuntime:GC/SuspendEEStop ClrInstanceID=9");
    assert_eq!(store.misses(), 1);
}

#[test]
fn learned_descriptions_can_replace_built_in_ones() {
    let mut store = SchemaStore::new();
    let runtime: Guid = "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4".parse().unwrap();
    let byte = r#"<data name="b" inType="win:UInt8"/>"#;
    let events = r#"<event value="8" version="1" task="Same" template="T"/><event value="8" version="2" task="Newer" template="T"/>"#;
    let templates = |fields: usize| format!(r#"<template tid="T">{}</template>"#, byte.repeat(fields));
    store.learn_manifest(&manifest(runtime, events, &templates(1))).unwrap();
    let name = |store: &mut SchemaStore, version| {
        let plan = store.lookup(&manifest_event(runtime, 8, version), &[], Eight).unwrap();
        plan.schema().event_name.to_string()
    };
    // With the same number of fields, the built-in name is used. With more fields or a higher
    // version, the learned name is used.
    assert_eq!([1, 2, 3].map(|version| name(&mut store, version)), ["GC/SuspendEEStop", "Newer", "Newer"]);
    store.learn_manifest(&manifest(runtime, events, &templates(2))).unwrap();
    assert_eq!([0, 1, 2].map(|version| name(&mut store, version)), ["GC/SuspendEEStop", "Same", "Newer"]);
}

#[test]
fn text_events_need_no_description() {
    let mut store = SchemaStore::new();
    let event = Identity::Text { provider: PROVIDER };
    assert_eq!(read(&mut store, &event, &utf16z("hello")), ":EventWriteString Message=hello");
}

/// A fallback that describes one event and its map, and counts its queries.
fn counting_fallback() -> (SchemaStore, Arc<AtomicUsize>) {
    let queries = Arc::new(AtomicUsize::new(0));
    let counter = queries.clone();
    let event = move |identity: &Identity<'_>| {
        counter.fetch_add(1, Ordering::Relaxed);
        let described = one_field(Stored { map: "TypeMap", ..value("v", 8, 0) });
        matches!(identity, Identity::Manifest { id: 0x102, .. }).then_some(described)
    };
    let map = |_, _: &Identity<'_>, name: &str| {
        (name == "TypeMap").then(|| map_info(1, 1, &[(1, "One ")])[16..].to_vec())
    };
    (SchemaStore::new().with_fallback(Fallback::new(event, map)), queries)
}

#[test]
fn the_fallback_is_queried_once_per_unknown_event() {
    let (mut store, queries) = counting_fallback();
    for (id, version, expected, count) in [
        (0x102, 3, "Provider:Task/Start v=One", 1),
        (0x102, 3, "Provider:Task/Start v=One", 1),
        // The fallback describes version 3. Version 4 is queried and then read as version 3.
        (0x102, 4, "Provider:Task/Start v=One", 2),
        (7, 0, "-", 3),
        (7, 0, "-", 3),
    ] {
        assert_eq!(read(&mut store, &manifest_event(PROVIDER, id, version), &[1, 0, 0, 0]), expected);
        assert_eq!(queries.load(Ordering::Relaxed), count, "{id} v{version}");
    }
    // Learning another description does not cause another query.
    store.learn_manifest(&manifest(Guid([3; 16]), "", "")).unwrap();
    assert_eq!(read(&mut store, &manifest_event(PROVIDER, 7, 0), &[1]), "-");
    // A built-in description of exactly this version prevents a query.
    let network: Guid = "7dd42a49-5329-4832-8dfd-43d979153a88".parse().unwrap();
    assert!(store.lookup(&manifest_event(network, 10, 0), &[], Eight).is_some());
    assert_eq!(queries.load(Ordering::Relaxed), 3);
    assert!(store.lookup(&manifest_event(network, 10, 1), &[], Eight).is_some());
    assert_eq!(queries.load(Ordering::Relaxed), 4);
}

#[test]
fn providers_are_found_by_name() {
    let mut store = SchemaStore::new();
    let network = "7dd42a49-5329-4832-8dfd-43d979153a88".parse().unwrap();
    assert_eq!(store.find_provider("microsoft-windows-KERNEL-network"), Some(network));
    assert_eq!(store.find_provider("Sender"), None);
    let sender = Guid([3; 16]);
    store.learn_manifest(&manifest(sender, "", "")).unwrap();
    assert_eq!(store.find_provider("SENDER"), Some(sender));
    // The lowest GUID is returned, in any order of learning.
    store.learn_manifest(&manifest(Guid([2; 16]), "", "")).unwrap();
    store.learn_manifest(&manifest(Guid([4; 16]), "", "")).unwrap();
    assert_eq!(store.find_provider("sender"), Some(Guid([2; 16])));
    assert_eq!(
        store.provider(network).and_then(|found| found.keyword_names(0x10).next()),
        Some("KERNEL_NETWORK_KEYWORD_IPV4")
    );
}

#[test]
fn learned_providers_can_be_listed() {
    let mut store = SchemaStore::new();
    learn(&mut store, &EVENT_INFO_EVENT, &one_field(Stored { map: "TypeMap", ..value("v", 8, 0) }));
    learn(&mut store, &MAP_INFO_EVENT, &map_info(1, 1, &[(1, "One ")]));
    let events =
        r#"<event value="9" task="Late"/><event value="2" version="1" level="win:Error" task="Early"/>"#;
    store.learn_manifest(&manifest(Guid([3; 16]), events, "")).unwrap();
    let rows: Vec<String> = store
        .learned_providers()
        .iter()
        .map(|provider| {
            let events = provider.events.iter();
            let events: Vec<String> = events
                .map(|event| format!("{}.{} {}", event.id, event.version, event.schema.event_name))
                .collect();
            format!("{} [{}] {} maps", provider.name, events.join(", "), provider.maps.len())
        })
        .collect();
    assert_eq!(rows, ["Provider [258.3 Task/Start] 1 maps", "Sender [2.1 Early, 9.0 Late] 0 maps"]);
    assert_eq!(store.learned_providers()[1].events[0].level, Some(2));
}
