//! Made events keep what they are on all ways that they can go.

use std::io::{Cursor, Write};
use std::num::NonZeroU64;

use stackhound_etl::record::ExtendedType;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_schema::SchemaStore;
use stackhound_stacks::StackState;
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use super::event::START;
use super::{Error, OwnedEvent, RecordBuilder, incoming, write_etl};
use crate::Trace;

const CLASS: Guid = Guid([9; 16]);
const PROVIDER: Guid = Guid([7; 16]);
/// A class of the kernel: processes.
const PROCESS: Guid =
    Guid::new(0x3d6f_a8d0, 0xfe05, 0x11d0, [0x9d, 0xda, 0x00, 0xc0, 0x4f, 0xd7, 0xba, 0x7c]);

fn later(seconds: i64) -> FileTime {
    FileTime(START.0 + seconds * 10_000_000)
}

/// TraceLogging metadata of an event `Made` with a u32 `number`.
fn metadata() -> Vec<u8> {
    let rest = b"\0Made\0number\0\x08";
    [&(rest.len() as u16 + 2).to_le_bytes()[..], rest].concat()
}

/// One event of each kind, not in the order of their times.
fn events() -> Vec<OwnedEvent> {
    let mut store = SchemaStore::new();
    let self_described = RecordBuilder::new(PROVIDER, 0, 0).extended(ExtendedType::SCHEMA, metadata());
    let process =
        RecordBuilder::classic(PROCESS, 1, 4).with("ProcessId", 77).with("ImageFileName", "made.exe");
    vec![
        self_described.with("number", 5).at(later(3)).processor(1).pid(4).tid(8).pack(&mut store).unwrap(),
        process.at(later(1)).processor(0).pid(1).pack_incomplete(&mut store).unwrap(),
        RecordBuilder::classic(CLASS, 2, 1)
            .level(3)
            .at(later(2))
            .processor(1)
            .with_payload(b"classic")
            .unwrap(),
    ]
}

/// What a trace makes of events.
fn told(trace: Trace) -> Vec<String> {
    let mut told = Vec::new();
    let run = trace.run(|seen| {
        let (seconds, value) = (
            (seen.utc().0 - START.0) / 10_000_000,
            match seen.parser() {
                Ok(parser) => parser.try_parse::<u32>("number").or(parser.try_parse("ProcessId")),
                Err(_) => None,
            },
        );
        let pid = seen.event().header_pid().map(|pid| pid.0);
        told.push(format!("{seconds} {:?} {} {pid:?} {value:?}", seen.processor(), seen.name()));
    });
    run.unwrap();
    told
}

const TOLD: [&str; 3] = [
    "1 Some(0) Process/Start Some(1) Some(77)",
    "2 Some(1) Opcode(2) None None",
    "3 Some(1) Made Some(4) Some(5)",
];

#[test]
fn events_come_in_the_order_of_their_times() {
    assert_eq!(told(Trace::blocks(incoming(events()).unwrap())), TOLD);
    assert!(told(Trace::blocks(incoming([]).unwrap())).is_empty());
}

#[test]
fn a_recording_of_events_has_the_same_ones() {
    let (file, totals) = write_etl(Cursor::new(Vec::new()), events()).unwrap();
    assert_eq!(totals.records, 3);
    let mut stored = tempfile::NamedTempFile::new().unwrap();
    stored.write_all(file.get_ref()).unwrap();
    let read = told(Trace::file(stored.path()));
    // The first event of a recording states the session.
    assert_eq!(read[read.len() - 3..], TOLD);

    // Events out of a recording can be written again.
    let mut kept = Vec::new();
    Trace::file(stored.path()).run(|seen| kept.push(OwnedEvent::of(seen.event()))).unwrap();
    let kept = kept.split_off(kept.len() - 3);
    let again = told(Trace::blocks(incoming(kept.clone()).unwrap()));
    assert_eq!(again, TOLD);
    for (copy, original) in kept.iter().map(|event| (event.deep_copy().unwrap(), event)) {
        assert_eq!(copy.event().record().bytes(), original.event().record().bytes());
        assert_eq!(copy.event().raw_time(), original.event().raw_time());
    }
}

#[test]
fn times_of_other_clocks_are_not_mixed() {
    let session = Session { perf_frequency: NonZeroU64::new(3_000_000).unwrap(), ..Session::default() };
    let header = HeaderSpec::System { hook: 0x0301, version: 4, issuer: Issuer::new(Pid(1), Tid(2)) };
    let record = RecordSpec {
        time: RawTime(session.start.0 + 5),
        pointer_size: PointerSize::Eight,
        header,
        payload: Payload::Bytes(&[0; 80]),
    };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    writer.write(0, &record).unwrap();
    let (file, _) = writer.finish().unwrap();
    let mut stored = tempfile::NamedTempFile::new().unwrap();
    stored.write_all(file.get_ref()).unwrap();
    let mut kept = Vec::new();
    Trace::file(stored.path()).run(|seen| kept.push(OwnedEvent::of(seen.event()))).unwrap();
    let foreign = kept.pop().unwrap();
    let alone = told(Trace::blocks(incoming([foreign.clone()]).unwrap()));
    assert_eq!(alone.len(), 1);
    let mixed = incoming([foreign, events().remove(0)]);
    assert!(matches!(mixed, Err(Error::Clocks)), "{mixed:?}");
}

#[test]
fn a_stack_comes_with_its_event() {
    let frames = [Address(0xffff_f800_0000_1000), Address(0x7ff6_0000_1000)];
    let event = RecordBuilder::new(PROVIDER, 1, 0).pid(4).tid(8).stack(0, frames).with_payload(&[]).unwrap();
    let mut told = Vec::new();
    let trace = Trace::blocks(incoming([event]).unwrap());
    trace.run(|seen| told.push((seen.state(), seen.addresses().collect::<Vec<_>>()))).unwrap();
    assert_eq!(told, [(StackState::Complete, frames.to_vec())]);
}

#[test]
fn headers_have_what_was_said() {
    let builder = RecordBuilder::new(PROVIDER, 1, 2).opcode(3).level(4).keyword(5).task(6).channel(7);
    let builder = builder.activity(CLASS).event_property(1).pointer_size(PointerSize::Four);
    let event = builder.related(PROVIDER).with_payload(&[]).unwrap();
    let record = event.event().record();
    let descriptor = record.descriptor().unwrap();
    assert_eq!((descriptor.id, descriptor.version, descriptor.opcode, descriptor.level), (1, 2, 3, 4));
    assert_eq!((descriptor.keyword, descriptor.task, descriptor.channel), (5, 6, 7));
    assert_eq!(record.activity(), Some(CLASS));
    assert_eq!(record.extended_items().find(ExtendedType::RELATED_ACTIVITY_ID), Some(&PROVIDER.0[..]));
    assert_eq!((record.pid(), record.tid(), event.pointer_size()), (None, None, PointerSize::Four));
}

#[test]
fn what_has_no_place_is_an_error() {
    let mut store = SchemaStore::new();
    let unknown = RecordBuilder::new(PROVIDER, 1, 0).with("x", 1).pack(&mut store);
    assert_eq!(unknown.unwrap_err().to_string(), stackhound_schema::Error::NoSchema.to_string());
    let items = RecordBuilder::classic(PROCESS, 1, 4).related(CLASS).with_payload(&[]);
    assert!(matches!(items, Err(Error::NoItems)));
    let large = RecordBuilder::new(PROVIDER, 1, 0).with_payload(&vec![0; 0x10000]);
    assert!(matches!(large, Err(Error::Write(_))));
}
