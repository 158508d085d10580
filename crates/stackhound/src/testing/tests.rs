//! Generated events keep their properties on all paths.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::num::NonZeroU64;

use stackhound_detect::Verdict;
use stackhound_etl::record::{ExtendedType, HeaderKind};
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_schema::SchemaStore;
use stackhound_schema::kernel::class_guid;
use stackhound_stacks::StackState;
use stackhound_types::{FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use super::event::START;
use super::{
    Error, OwnedEvent, RecordBuilder, StackForm, TraceBuilder, evaluate, incoming, select, write_etl,
};
use crate::{Predicate, Trace};

const CLASS: Guid = Guid([9; 16]);
const PROVIDER: Guid = Guid([7; 16]);

fn later(seconds: i64) -> FileTime {
    FileTime(START.0 + seconds * 10_000_000)
}

/// TraceLogging metadata of an event `Made` with a u32 `number`.
fn metadata() -> Vec<u8> {
    let rest = b"\0Made\0number\0\x08";
    [&(rest.len() as u16 + 2).to_le_bytes()[..], rest].concat()
}

/// One event of each kind, not in time order.
fn events() -> Vec<OwnedEvent> {
    let mut store = SchemaStore::new();
    let self_described = RecordBuilder::new(PROVIDER, 0, 0).extended(ExtendedType::SCHEMA, metadata());
    let process = RecordBuilder::classic(class_guid::PROCESS, 1, 4)
        .with("ProcessId", 77)
        .with("ImageFileName", "made.exe");
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

/// The events of a trace as text.
fn described(trace: Trace) -> Vec<String> {
    let mut described = Vec::new();
    let run = trace.run(|view| {
        let (seconds, value) = (
            (view.utc().0 - START.0) / 10_000_000,
            match view.parser() {
                Ok(parser) => parser.try_parse::<u32>("number").or(parser.try_parse("ProcessId")),
                Err(_) => None,
            },
        );
        let pid = view.event().header_pid().map(|pid| pid.0);
        described.push(format!("{seconds} {:?} {} {pid:?} {value:?}", view.processor(), view.name()));
    });
    run.unwrap();
    described
}

const DESCRIBED: [&str; 3] = [
    "1 Some(0) Process/Start Some(1) Some(77)",
    "2 Some(1) Opcode(2) None None",
    "3 Some(1) Made Some(4) Some(5)",
];

#[test]
fn events_come_in_the_order_of_their_times() {
    assert_eq!(described(Trace::blocks(incoming(events()).unwrap())), DESCRIBED);
    assert!(described(Trace::blocks(incoming([]).unwrap())).is_empty());
}

#[test]
fn a_written_trace_has_the_same_events() {
    let (file, totals) = write_etl(Cursor::new(Vec::new()), events()).unwrap();
    assert_eq!(totals.records, 3);
    let mut stored = tempfile::NamedTempFile::new().unwrap();
    stored.write_all(file.get_ref()).unwrap();
    let read = described(Trace::file(stored.path()));
    // The first event of a trace describes the session.
    assert_eq!(read[read.len() - 3..], DESCRIBED);

    // Events of a trace can be written again.
    let mut kept = Vec::new();
    Trace::file(stored.path()).run(|view| kept.push(OwnedEvent::of(view.event()))).unwrap();
    let kept = kept.split_off(kept.len() - 3);
    let again = described(Trace::blocks(incoming(kept.clone()).unwrap()));
    assert_eq!(again, DESCRIBED);
    for (copy, original) in kept.iter().map(|event| (event.deep_copy().unwrap(), event)) {
        assert_eq!(copy.event().record().bytes(), original.event().record().bytes());
        assert_eq!(copy.event().raw_time(), original.event().raw_time());
    }
}

#[test]
fn times_of_other_clocks_are_not_mixed() {
    let session = Session { perf_frequency: NonZeroU64::new(3_000_000).unwrap(), ..Session::default() };
    let header = HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: Issuer::new(Pid(1), Tid(2)) };
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
    Trace::file(stored.path()).run(|view| kept.push(OwnedEvent::of(view.event()))).unwrap();
    let foreign = kept.pop().unwrap();
    let alone = described(Trace::blocks(incoming([foreign.clone()]).unwrap()));
    assert_eq!(alone.len(), 1);
    let mixed = incoming([foreign, events().remove(0)]);
    assert!(matches!(mixed, Err(Error::Clocks)), "{mixed:?}");
}

#[test]
fn headers_have_the_given_values() {
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
fn kernel_events_without_ids_have_the_short_header() {
    let event = RecordBuilder::classic(class_guid::PROCESS, 3, 4);
    let kind = |event: &RecordBuilder| event.with_payload(&[]).unwrap().event().kind();
    assert_eq!(kind(&event), HeaderKind::PerfInfo64);
    assert_eq!(kind(&event.clone().pid(4)), HeaderKind::System64);
    assert_eq!(kind(&event.tid(8)), HeaderKind::System64);
}

#[test]
fn values_and_items_that_do_not_fit_are_errors() {
    let mut store = SchemaStore::new();
    let unknown = RecordBuilder::new(PROVIDER, 1, 0).with("x", 1).pack(&mut store);
    assert_eq!(unknown.unwrap_err().to_string(), stackhound_schema::Error::NoSchema.to_string());
    let items = RecordBuilder::classic(class_guid::PROCESS, 1, 4).related(CLASS).with_payload(&[]);
    assert!(matches!(items, Err(Error::NoItems)));
    let large = RecordBuilder::new(PROVIDER, 1, 0).with_payload(&vec![0; 0x10000]);
    assert!(matches!(large, Err(Error::Write(_))));
}

const NTOSKRNL: u64 = 0xffff_f801_2000_0000;
const NTDLL: u64 = 0x7ffa_1000_0000;
const APP: u64 = 0x7ff6_4000_0000;
/// Outside all modules, and not near the addresses where runtimes place code.
const PRIVATE: u64 = 0x1f4_3000_02b1;
const KERNEL_STACK: &[u64] = &[NTOSKRNL + 0x6f_3a10, NTOSKRNL + 0x1234];
const USER_STACK: &[u64] = &[NTDLL + 0x9_d4c4, APP + 0x1234, NTDLL + 0x5_2651];
const PID: u32 = 4242;

/// A trace of a process and of the kernel.
fn system() -> TraceBuilder {
    let trace = TraceBuilder::new()
        .process(0, "Idle", &[(NTOSKRNL, 0x100_0000, r"\SystemRoot\system32\ntoskrnl.exe")])
        .process(4, "System", &[]);
    let modules = [
        (APP, 0x1_0000, r"\Device\HarddiskVolume3\App\app.exe"),
        (NTDLL, 0x20_0000, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll"),
    ];
    trace.process(PID, "app.exe", &modules)
}

/// A kernel event, whose header has no extended data items: `Registry/SetValue`.
fn kernel_event(pid: u32, tid: u32) -> RecordBuilder {
    RecordBuilder::classic(class_guid::REGISTRY, 14, 2).pid(pid).tid(tid)
}

fn provider_event(tid: u32) -> RecordBuilder {
    RecordBuilder::new(PROVIDER, 1, 0).pid(PID).tid(tid)
}

/// Process name, state and addresses of the stack, by thread.
type Stacks = BTreeMap<u32, (Option<String>, StackState, Vec<u64>)>;

/// The stacks of the threads from [`FIRST_TID`] on.
fn stacks_of(trace: Trace) -> Stacks {
    let mut stacks = Stacks::new();
    let run = trace.run(|event| {
        let Some(tid) = event.tid().map(|tid| tid.0).filter(|tid| *tid >= FIRST_TID) else { return };
        let addresses = event.addresses().map(|address| address.0).collect();
        let known = (event.process_name().map(str::to_owned), event.state(), addresses);
        assert_eq!(stacks.insert(tid, known), None, "a second event of thread {tid}");
    });
    run.unwrap();
    stacks
}

const FIRST_TID: u32 = 5000;
const FORMS: [StackForm; 4] =
    [StackForm::Walk, StackForm::Keys, StackForm::Extended, StackForm::ExtendedPair];

#[test]
fn every_form_of_every_part_comes_with_its_event() {
    let kernel = |tid| kernel_event(PID, tid);
    let of_32_bit = |tid| provider_event(tid).pointer_size(PointerSize::Four);
    type Kind<'k> = (&'k dyn Fn(u32) -> RecordBuilder, &'k [StackForm], StackState);
    let kinds: [Kind<'_>; 3] = [
        (&kernel, &[StackForm::Walk, StackForm::Keys], StackState::UserOnly),
        // An event of a provider can occur in user mode, where there is no kernel stack.
        (&provider_event, &FORMS, StackState::Complete),
        (&of_32_bit, &FORMS, StackState::Complete),
    ];
    let (mut trace, mut expected) = (system(), Stacks::new());
    let mut tids = (FIRST_TID..).step_by(4);
    for (event, forms, user_alone) in kinds {
        let parts = [
            (KERNEL_STACK, USER_STACK, StackState::Complete),
            (KERNEL_STACK, &[], StackState::KernelOnly),
            (&[], USER_STACK, user_alone),
            (&[], &[], StackState::None),
        ];
        for &form in forms {
            for (kernel, user, state) in parts {
                let tid = tids.next().unwrap();
                trace = trace.event_with_stack(event(tid), form, kernel, user);
                expected.insert(tid, (Some("app.exe".to_owned()), state, [kernel, user].concat()));
            }
        }
    }
    // Threads of the kernel have no user stack.
    for form in [StackForm::Walk, StackForm::Keys] {
        let tid = tids.next().unwrap();
        trace = trace.event_with_stack(kernel_event(4, tid), form, KERNEL_STACK, &[]);
        expected.insert(tid, (Some("System".to_owned()), StackState::Complete, KERNEL_STACK.to_vec()));
    }
    assert_eq!(expected.len(), 42);
    let events = trace.build().unwrap();
    let mut stored = tempfile::NamedTempFile::new().unwrap();
    let (file, _) = write_etl(Cursor::new(Vec::new()), events.clone()).unwrap();
    stored.write_all(file.get_ref()).unwrap();
    for (way, trace) in [
        ("as a live session", Trace::blocks(incoming(events).unwrap())),
        ("a file, read once", Trace::file(stored.path()).one_pass()),
        ("a file, read twice", Trace::file(stored.path())),
    ] {
        let found = stacks_of(trace);
        assert_eq!(found.len(), expected.len(), "{way}");
        for (tid, expected) in &expected {
            assert_eq!(&found[tid], expected, "{way}: thread {tid}");
        }
    }
}

#[test]
fn each_form_has_its_records() {
    use stackhound_schema::kernel::hook_id::{
        STACK_WALK_KEY_DELETE, STACK_WALK_KEY_KERNEL, STACK_WALK_KEY_USER, STACK_WALK_STACK,
    };
    let keys = [STACK_WALK_KEY_KERNEL, STACK_WALK_KEY_USER, STACK_WALK_KEY_DELETE, STACK_WALK_KEY_DELETE];
    // For provider events, which have no hook id: the number of addresses in their extended data
    // items.
    let rows: [(StackForm, &[u16], &[usize]); 4] = [
        (StackForm::Walk, &[STACK_WALK_STACK, STACK_WALK_STACK], &[0]),
        (StackForm::Keys, &keys, &[0]),
        (StackForm::Extended, &[], &[5]),
        (StackForm::ExtendedPair, &[], &[2, 3]),
    ];
    for (form, hook_ids, items) in rows {
        let trace = TraceBuilder::new().event_with_stack(provider_event(8), form, KERNEL_STACK, USER_STACK);
        let built = trace.build().unwrap();
        let found: Vec<u16> = built.iter().filter_map(|event| event.event().hook_id()).collect();
        assert_eq!(found, hook_ids, "{form:?}");
        let stacks = built.iter().filter(|event| event.event().hook_id().is_none()).map(|event| {
            let record = event.event().record();
            record.extended_items().filter_map(|item| Some(item.stack()?.1.len() / 8)).sum::<usize>()
        });
        assert_eq!(stacks.collect::<Vec<_>>(), items, "{form:?}");
    }
}

#[test]
fn events_without_a_time_follow_each_other() {
    let ms = |number: i64| FileTime(START.0 + number * 10_000);
    let trace =
        system().event(provider_event(1)).event(provider_event(2)).event(provider_event(3).at(ms(-7)));
    let events = trace.event(provider_event(4)).build().unwrap();
    let time = |event: &OwnedEvent| FileTime(event.event().raw_time().0);
    let (rundown, events) = events.split_at(events.len() - 4);
    assert_eq!(events.iter().map(time).collect::<Vec<_>>(), [ms(1), ms(2), ms(-7), ms(-6)]);
    // Processes and modules are known before all events.
    assert_eq!(rundown.len(), 3 + 3);
    assert!(rundown.iter().all(|event| time(event) == ms(-8)));
    // Without any explicit time, the rundown is at the start of the session.
    assert!(system().build().unwrap().iter().all(|event| time(event) == START));
}

#[test]
fn stacks_that_cannot_be_written_are_errors() {
    let event = || kernel_event(PID, 8);
    let message = |event: RecordBuilder, form, kernel: &[u64], user: &[u64]| {
        let built = TraceBuilder::new().event_with_stack(event, form, kernel, user).build();
        built.unwrap_err().to_string()
    };
    let (nowhere, no_items) =
        (RecordBuilder::new(PROVIDER, 1, 0), "a classic event cannot have extended data items");
    let no_thread = "an event with a stack must state its process and its thread";
    assert_eq!(message(event(), StackForm::Walk, &[APP], &[]), "0x7ff640000000 is not a kernel address");
    assert_eq!(
        message(event(), StackForm::Keys, &[], &[NTOSKRNL]),
        "0xfffff80120000000 is not a user address"
    );
    assert_eq!(message(event(), StackForm::Extended, &[], &[APP]), no_items);
    assert_eq!(message(event(), StackForm::ExtendedPair, &[NTOSKRNL], &[APP]), no_items);
    assert_eq!(message(nowhere, StackForm::Walk, &[], &[APP]), no_thread);
    // Values need a schema, a header does not.
    let named = TraceBuilder::new().event(provider_event(8).with("x", 1)).build();
    assert!(matches!(named, Err(Error::Value(stackhound_schema::Error::NoSchema))), "{named:?}");
}

#[test]
fn each_event_with_a_stack_is_evaluated_in_the_order_of_times() {
    let by_ntdll = [NTDLL + 0x9_d4c4, PRIVATE, NTDLL + 0x5_2651];
    for form in [StackForm::Walk, StackForm::Keys] {
        let trace = system()
            .event(kernel_event(PID, 1))
            .event_with_stack(kernel_event(PID, 2), form, KERNEL_STACK, &[PRIVATE])
            .event_with_stack(kernel_event(PID, 3), form, KERNEL_STACK, &by_ntdll)
            .event_with_stack(kernel_event(PID, 4), form, KERNEL_STACK, USER_STACK);
        let evaluated = evaluate(trace.build().unwrap()).unwrap();
        let verdicts = |name: &str| {
            let of = |evaluation: &stackhound_detect::Evaluation| {
                evaluation.iter().find(|(id, _)| id.name() == name).unwrap().1.verdict
            };
            evaluated.iter().map(of).collect::<Vec<_>>()
        };
        // A direct system call from unbacked memory, and one through ntdll.
        assert_eq!(verdicts("CS01"), [Verdict::Yes, Verdict::No, Verdict::No], "{form:?}");
        assert_eq!(verdicts("CS07"), [Verdict::No, Verdict::Yes, Verdict::No], "{form:?}");
        assert_eq!(verdicts("CS23"), [Verdict::No; 3], "{form:?}");
    }
}

#[test]
fn filters_select_events_by_their_stacks() {
    let trace = system()
        .event_with_stack(kernel_event(PID, 1), StackForm::Walk, KERNEL_STACK, &[NTDLL + 0x9_d4c4, PRIVATE])
        .event_with_stack(kernel_event(PID, 2), StackForm::Keys, KERNEL_STACK, USER_STACK)
        .event_with_stack(provider_event(3), StackForm::Extended, KERNEL_STACK, USER_STACK)
        .event_with_stack(provider_event(4), StackForm::ExtendedPair, KERNEL_STACK, &[])
        .event(kernel_event(PID, 5));
    let events = trace.build().unwrap();
    let rows: [(&str, &[u32]); 5] = [
        ("stack.contains_unbacked = 'yes'", &[1]),
        ("stack.contains_unbacked = 'no'", &[2, 3]),
        ("stack.final_user_module = 'app.exe'", &[2, 3]),
        ("stack.module iendswith 'ntoskrnl.exe'", &[1, 2, 3, 4]),
        ("tid > 0 and tid < 9 and stack.state != 'complete'", &[4, 5]),
    ];
    for (filter, tids) in rows {
        let selected = select(&Predicate::parse(filter).unwrap(), events.clone()).unwrap();
        let selected = selected.iter().map(|event| event.event().header_tid().unwrap().0);
        assert_eq!(selected.collect::<Vec<_>>(), tids, "{filter}");
    }
}

#[test]
fn schemas_of_other_providers_are_used() {
    const MANIFEST: &str = r#"<instrumentationManifest><instrumentation><events>
      <provider name="Test" guid="{07070707-0707-0707-0707-070707070707}" symbol="P">
        <events><event value="1" version="0" template="T"/></events>
        <templates><template tid="T"><data name="number" inType="win:UInt32"/></template></templates>
      </provider></events></instrumentation></instrumentationManifest>"#;
    let mut schemas = SchemaStore::new();
    schemas.learn_manifest(MANIFEST.as_bytes()).unwrap();
    let event = provider_event(8).with("number", 5);
    let trace = TraceBuilder::new().schemas(schemas.clone());
    let trace = trace.event_with_stack(event, StackForm::Walk, &[], &[APP]);
    let (events, mut numbers) = (incoming(trace.build().unwrap()).unwrap(), Vec::new());
    let run = Trace::blocks(events).schemas(schemas).run(|event| {
        numbers.push((event.parser().unwrap().parse::<u32>("number").unwrap(), event.state()));
    });
    run.unwrap();
    assert_eq!(numbers, [(5, StackState::Complete)]);
}
