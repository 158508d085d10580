//! A provider has one name, whether or not the fields of its events are known.

use std::collections::HashMap;
use std::io::Cursor;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{
    EtlWriter, EventClass, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session,
};
use stackhound_etl::{EtlFile, Selection};
use stackhound_schema::kernel::{self, class_guid};
use stackhound_schema::{SchemaStore, provider_guid};
use stackhound_types::{Guid, PointerSize, RawTime};

const LOGGER: Guid = Guid::new(1, 2, 3, [4; 8]);
const NAMELESS: Guid = Guid::new(5, 6, 7, [8; 8]);

/// Traits with a name.
fn traits(name: &str) -> Vec<u8> {
    let size = u16::try_from(2 + name.len() + 1).expect("a short name");
    [&size.to_le_bytes(), name.as_bytes(), &[0]].concat()
}

fn event<'a>(provider: Guid, items: &'a [ItemSpec<'a>]) -> HeaderSpec<'a> {
    let descriptor = Descriptor { id: 7, version: 0, channel: 0, level: 4, opcode: 0, task: 0, keyword: 0 };
    HeaderSpec::Event {
        provider,
        descriptor,
        property: 0,
        issuer: Issuer::UNKNOWN,
        activity: Guid::ZERO,
        items,
    }
}

fn classic(guid: Guid) -> HeaderSpec<'static> {
    HeaderSpec::Full {
        class: EventClass { guid, opcode: 0xEE, level: 0, version: 9 },
        issuer: Issuer::UNKNOWN,
    }
}

/// A store that has read the selected records of a trace with these events.
fn first_pass(headers: &[HeaderSpec<'_>]) -> SchemaStore {
    let session = Session::default();
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a session");
    for (time, header) in (start + 1..).zip(headers) {
        let (time, header) = (RawTime(time), *header);
        let record =
            RecordSpec { time, pointer_size: PointerSize::Eight, header, payload: Payload::Bytes(&[]) };
        writer.write(0, &record).expect("a record that fits");
    }
    let etl_file = EtlFile::open(writer.finish().expect("a trace").0.into_inner().into()).expect("a trace");
    let selection = SchemaStore::select(Selection::none());
    let mut store = SchemaStore::new();
    for buffer in etl_file.index().streams().iter().flatten() {
        let (block, _) = etl_file.block(buffer, Some(&selection)).expect("a readable buffer");
        for entry in block.entries() {
            store.learn_record(entry.tag, &block.record(entry)).expect("readable descriptions");
        }
    }
    store
}

fn name(store: &SchemaStore, provider: Guid) -> Option<&str> {
    store.provider_name(provider).map(|name| &**name)
}

#[test]
fn traits_name_all_events_of_their_provider() {
    let [first, second, other] = ["Contoso-Logger", "Contoso-Other", "Contoso-Http"].map(traits);
    let [first, second, other] = [&first, &second, &other].map(|traits| [ItemSpec::ProviderTraits(traits)]);
    let http = provider_guid::HTTP_SERVICE;
    // The first event of the provider, and those of others, contain no traits.
    let store = first_pass(&[
        event(LOGGER, &[]),
        event(LOGGER, &[ItemSpec::EventKey(1)]),
        event(NAMELESS, &[]),
        classic(class_guid::PROCESS),
        event(LOGGER, &first),
        event(LOGGER, &second),
        event(http, &other),
    ]);
    assert_eq!(name(&store, LOGGER), Some("Contoso-Logger"), "the first name");
    assert_eq!(name(&store, NAMELESS), None);
    assert_eq!(name(&store, http), Some("Microsoft-Windows-HttpService"), "the built-in name");
    assert_eq!(name(&store, class_guid::PROCESS), Some("Process"));
}

#[test]
fn damaged_traits_name_no_provider() {
    for damaged in [&[][..], &[9], &[9, 0, b'N'], &[3, 0, 0], &[5, 0, b'N', b'M', b'O']] {
        let store = first_pass(&[event(LOGGER, &[ItemSpec::ProviderTraits(damaged)])]);
        assert_eq!(name(&store, LOGGER), None, "{damaged:?}");
    }
}

/// The names are those of the tables, in which they precede the type of each event.
#[test]
fn kernel_classes_have_distinct_names() {
    let store = SchemaStore::new();
    let mut classes: HashMap<&str, Guid> = HashMap::new();
    for event in kernel::events() {
        let (class, _) = event.name.split_once('/').expect("a name of the form Class/Type");
        assert_eq!(name(&store, event.class), Some(class));
        assert_eq!(*classes.entry(class).or_insert(event.class), event.class, "{class}");
    }
    for group in 0..=u8::MAX {
        let Some(class) = kernel::class_of_group(group) else { continue };
        let class_name = name(&store, class).expect("a name");
        assert_eq!(*classes.entry(class_name).or_insert(class), class, "{class_name}");
    }
    let providers: Vec<Guid> = SchemaStore::built_in_providers().map(|provider| provider.guid).collect();
    for provider in providers {
        let provider_name = name(&store, provider).expect("a name");
        assert_eq!(classes.insert(provider_name, provider), None, "{provider_name}");
    }
}

/// A schema is of one class, whichever header its event has.
#[test]
fn classes_and_types_give_hook_ids_of_the_same_class() {
    for class in kernel::events().map(|event| event.class) {
        for opcode in 0..=u8::MAX {
            let Some(hook_id) = kernel::hook_id_of(class, opcode) else { continue };
            assert_eq!(kernel::class_of_hook_id(hook_id), Some(class), "{class} {opcode}");
            let schema = kernel::lookup_classic(class, opcode, 0, PointerSize::Eight);
            assert!(schema.is_none_or(|schema| schema.provider == class), "{class} {opcode}");
        }
    }
    for event in kernel::events() {
        let Some(hook_id) = event.hook_id else { continue };
        assert_eq!(kernel::class_of_hook_id(hook_id), Some(event.class), "{}", event.name);
    }
}
