//! A record of every event in the built-in tables, written to a trace and decoded.

use std::io::Cursor;

use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_schema::{
    Count, EventDescription, Field, Identity, InType, Length, OutType, OwnedValue, Schema, SchemaSource,
    SchemaStore,
};
use stackhound_types::{FileTime, Guid, Pid, PointerSize, RawTime, Tid};

/// The number of elements or units where another field contains it.
const COUNTED: usize = 2;

/// The value of a field of this type; numbers differ from field to field.
fn single(field: &Field, number: u8) -> OwnedValue {
    let text = |length: Length| match length {
        Length::Fixed(length) => "x".repeat(length.into()),
        Length::Field(_) => "é".repeat(COUNTED),
        Length::Natural | Length::Rest => format!("text {number}"),
    };
    match field.in_type {
        InType::Utf16 => text(field.length).into(),
        InType::Ansi => text(field.length).replace('é', "e").as_str().into(),
        InType::Binary => OwnedValue::Bytes(match (field.length, field.out_type) {
            (Length::Fixed(length), _) => vec![number; length.into()],
            (_, OutType::Ipv6) => vec![number; 16],
            (Length::Field(_), _) => vec![number; COUNTED],
            (Length::Natural | Length::Rest, _) => vec![number; 5],
        }),
        InType::I8 | InType::I16 | InType::I32 | InType::I64 => OwnedValue::Signed(-i64::from(number)),
        InType::F32 | InType::F64 => OwnedValue::Float(number.into()),
        InType::Bool32 | InType::Bool8 => OwnedValue::Bool(number % 2 == 1),
        InType::Guid => OwnedValue::Guid(Guid([number; 16])),
        InType::FileTime => OwnedValue::FileTime(FileTime(number.into())),
        InType::SystemTime => OwnedValue::SystemTime([2024, 1, 1, 1, u16::from(number) % 24, 0, 0, 0].into()),
        InType::Sid => OwnedValue::Sid(vec![1, 1, 0, 0, 0, 0, 0, 5, number, 0, 0, 0]),
        _ => OwnedValue::Unsigned(number.into()),
    }
}

/// The values of `count` fields from an index on, and the index after them. Counts and lengths of
/// other fields are as those fields need them.
fn values(schema: &Schema, mut index: usize, count: usize) -> (Vec<(String, OwnedValue)>, usize) {
    let mut named = Vec::new();
    while named.len() < count
        && let Some(field) = schema.fields.get(index)
    {
        let number = (index % 100 + 1) as u8;
        let is_referenced = schema.fields.iter().any(|other| {
            other.count == Count::Field(index as u16) || other.length == Length::Field(index as u16)
        });
        let mut next = index + 1;
        let mut one = match field.in_type {
            InType::Struct { members } => {
                let (members, end) = values(schema, next, members.into());
                next = end;
                OwnedValue::Struct(members)
            }
            _ if is_referenced => OwnedValue::Unsigned(COUNTED as u64),
            _ => single(field, number),
        };
        one = match field.count {
            Count::One => one,
            Count::Fixed(count) => OwnedValue::List(vec![one; count.into()]),
            Count::Field(_) | Count::Prefixed | Count::Rest => OwnedValue::List(vec![one; COUNTED]),
        };
        named.push((field.name.to_string(), one));
        index = next;
    }
    (named, index)
}

fn descriptor(event: &EventDescription) -> Descriptor {
    Descriptor {
        id: event.id,
        version: event.version,
        channel: 0,
        level: event.level.unwrap_or(4),
        opcode: event.opcode.unwrap_or(0),
        task: event.task.unwrap_or(0),
        keyword: event.keywords.unwrap_or(0),
    }
}

#[track_caller]
fn check(pointer_size: PointerSize) -> usize {
    let events: Vec<&EventDescription> =
        SchemaStore::built_in_providers().flat_map(|provider| &provider.events).collect();
    let start = Session::default().start.0;
    let mut writer = EtlWriter::new(Session::default(), Cursor::new(Vec::new())).expect("a session");
    let mut written = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let (given, _) = values(&event.schema, 0, usize::MAX);
        let payload = event.schema.pack(&given, pointer_size);
        let payload = payload.unwrap_or_else(|error| panic!("{event:?}: {error}"));
        let header = HeaderSpec::Event {
            provider: event.schema.provider,
            descriptor: descriptor(event),
            property: 0,
            issuer: Issuer::new(Pid(4000), Tid(4004)),
            activity: Guid::ZERO,
            items: &[],
        };
        let time = RawTime(start + 1 + number as i64);
        let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(&payload) };
        writer.write(0, &record).expect("a record that fits");
        written.push(given);
    }
    let (file, _) = writer.finish().expect("a complete trace");

    let etl_file = EtlFile::open(file.into_inner().into()).expect("a readable trace");
    let mut store = SchemaStore::new();
    let mut read = events.iter().zip(&written);
    for buffer in etl_file.index().streams().iter().flatten() {
        let (block, _) = etl_file.block(buffer, None).expect("a readable buffer");
        for record in block.entries().iter().map(|entry| block.record(entry)) {
            if record.descriptor().is_none() {
                continue;
            }
            let (event, given) = read.next().expect("no more records than events");
            let what = format!("{} {} v{}", event.schema.provider, event.id, event.version);
            let identity = Identity::of(&record).expect("an event");
            let plan = store.lookup(&identity, record.payload(), record.pointer_size());
            let plan = plan.unwrap_or_else(|| panic!("{what} has no description")).clone();
            let schema = plan.schema();
            assert_eq!(schema.source, SchemaSource::BuiltIn, "{what}");
            assert_eq!(schema.event_name, event.schema.event_name, "{what}");
            assert!(!schema.event_name.is_empty(), "{what}");
            let mut decoder = plan.decode(record.payload(), record.pointer_size());
            let mut found = Vec::new();
            for decoded in decoder.by_ref() {
                let decoded = decoded.unwrap_or_else(|error| panic!("{what}: {error}"));
                found.push((decoded.field.name.to_string(), OwnedValue::of(decoded.field, &decoded.item)));
            }
            assert_eq!(found, *given, "{what}");
            assert_eq!(decoder.rest(), b"", "{what}: bytes are left over");
        }
    }
    assert!(read.next().is_none(), "an event was not read");
    events.len()
}

#[test]
fn a_record_of_every_event_is_decoded() {
    let [four, eight] = [PointerSize::Four, PointerSize::Eight].map(check);
    assert_eq!(four, eight);
    println!("{four} versions of events");
}

/// Providers that cannot be described, with the reason that the documentation states.
#[test]
fn only_known_exceptions_have_no_events() {
    let without = SchemaStore::built_in_providers().filter(|provider| provider.events.is_empty());
    let without: Vec<&str> = without.map(|provider| &*provider.name).collect();
    assert_eq!(without, ["Microsoft-Windows-DotNETRuntimeStress", "Microsoft-Windows-HttpService"]);
}
