use proptest::prelude::*;
use stackhound_types::Address;

use super::*;
use crate::id::{ContextId, Cpu, FrameId, LocationId, ModuleId, StackId};
use crate::kind::{EndType, StackKind, StartType};

fn write(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let mut end = 0;
    for record in records {
        match record {
            Record::Module(module) => _ = writer.module(module).unwrap(),
            Record::Location(location) => _ = writer.location(location).unwrap(),
            Record::Entry { function, stub } => _ = writer.entry(*function, *stub).unwrap(),
            Record::Stack(stack) => _ = writer.stack(stack).unwrap(),
            Record::Named { stack, name } => writer.name(*stack, name).unwrap(),
            Record::Change(change) => writer.change(*change).unwrap(),
            Record::End(transitions) => end = *transitions,
        }
    }
    writer.finish(end).unwrap()
}

fn stack() -> StackInfo {
    StackInfo { kind: StackKind::User, process: None, thread: None, cpu: None, name: None, region: None }
}

fn read(bytes: &[u8]) -> (Vec<Record>, u64) {
    let mut reader = Reader::new(bytes).unwrap();
    let records = std::iter::from_fn(|| reader.next_record().unwrap()).collect();
    (records, reader.lost_bytes())
}

fn record() -> impl Strategy<Value = Record> {
    let text = prop::option::of("[a-z!ü]{0,12}");
    let address = || prop::option::of((0..u64::MAX).prop_map(Address));
    let stack = || (0..3_u32).prop_map(StackId);
    let context = || prop_oneof![0..1000_u64, 0..u64::MAX / 2].prop_map(ContextId);
    let location = || prop::option::of((0..2_u32).prop_map(LocationId));
    let number = || prop::option::of(any::<u32>());
    prop_oneof![
        ("[a-z]{0,9}", text.clone(), address()).prop_map(|(name, path, base)| Record::Module(ModuleInfo {
            name,
            path,
            base
        })),
        (address(), prop::option::of(0..u64::MAX), text.clone(), any::<u64>()).prop_map(
            |(address, rva, symbol, symbol_offset)| {
                Record::Location(LocationInfo {
                    address,
                    module: Some(ModuleId(0)),
                    rva,
                    symbol,
                    symbol_offset,
                })
            }
        ),
        (prop::sample::select(StackKind::ALL.to_vec()), number(), number(), text, address()).prop_map(
            |(kind, process, thread, name, low)| {
                let cpu = thread.map(|number| Cpu(number as u16));
                let region = low.map(|low| (low, Address(low.0 / 2)));
                Record::Stack(StackInfo { kind, process, thread, cpu, name, region })
            }
        ),
        (any::<u16>(), stack(), context()).prop_map(|(cpu, stack, first)| Record::Change(Change::Enter {
            cpu: Cpu(cpu),
            stack,
            first
        })),
        (any::<u16>(), context())
            .prop_map(|(cpu, last)| Record::Change(Change::Leave { cpu: Cpu(cpu), last })),
        (stack(), context(), prop::sample::select(StartType::ALL.to_vec()), location()).prop_map(
            |(stack, first, start, location)| Record::Change(Change::Open { stack, first, start, location })
        ),
        (stack(), context(), prop::sample::select(EndType::ALL.to_vec()))
            .prop_map(|(stack, last, end)| Record::Change(Change::Close { stack, last, end })),
        (stack(), location()).prop_map(|(stack, location)| Record::Change(Change::Below { stack, location })),
        (0..2_u32, 0..2_u32).prop_map(|(function, stub)| Record::Entry {
            function: LocationId(function),
            stub: LocationId(stub)
        }),
        (stack(), 0..2_u32).prop_map(|(stack, location)| Record::Change(Change::Target {
            stack,
            location: LocationId(location)
        })),
        (stack(), context(), 0..2_u32).prop_map(|(stack, first, location)| Record::Change(
            Change::TailCall { stack, first, location: LocationId(location) }
        )),
        "[a-z!ü]{0,12}".prop_map(|name| Record::Named { stack: StackId(0), name }),
    ]
}

/// Starts with a module, two locations and a stack, to which the other records refer.
fn records() -> impl Strategy<Value = Vec<Record>> {
    let module = Record::Module(ModuleInfo { name: "m".to_owned(), path: None, base: None });
    let location = LocationInfo {
        address: None,
        module: Some(ModuleId(0)),
        rva: None,
        symbol: Some("s".to_owned()),
        symbol_offset: 0,
    };
    let first =
        [module, Record::Location(location.clone()), Record::Location(location), Record::Stack(stack())];
    (prop::collection::vec(record(), 0..60), any::<u64>())
        .prop_map(move |(rest, end)| first.iter().cloned().chain(rest).chain([Record::End(end)]).collect())
}

proptest! {
    #[test]
    fn records_round_trip(records in records()) {
        prop_assert_eq!(read(&write(&records)), (records, 0));
    }

    #[test]
    fn a_truncated_journal_is_read_up_to_the_cut(records in records(), cut in any::<prop::sample::Index>()) {
        let whole = write(&records);
        let cut = HEADER + cut.index(whole.len() - HEADER);
        // The single page is either complete or lost.
        prop_assert_eq!(read(&whole[..cut]), (Vec::new(), (cut - HEADER) as u64));
    }

    #[test]
    fn arbitrary_pages_do_not_panic(page in prop::collection::vec(any::<u8>(), 1..300)) {
        let mut bytes = write(&[])[..HEADER].to_vec();
        bytes.extend((page.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&page).to_le_bytes());
        bytes.extend(&page);
        let _ = trace(&bytes);
    }
}

#[test]
fn pages_before_a_damaged_page_are_read() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let stack = writer.stack(&stack()).unwrap();
    writer.change(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    for call in 0..40_000 {
        let first = ContextId(call * 100 + 1);
        writer.change(Change::Open { stack, first, start: StartType::Call, location: None }).unwrap();
    }
    let whole = writer.finish(5_000_000).unwrap();
    let (all, replayed) = trace(&whole).unwrap();
    assert_eq!(replayed, Replayed { transitions: 5_000_000, finished: true, lost_bytes: 0 });
    assert_eq!(all.frame_count(), 40_000);
    let first = u32::from_le_bytes(whole[HEADER..HEADER + 4].try_into().unwrap()) as usize;
    let second = HEADER + PAGE_HEADER + first;
    let mut damaged = whole.clone();
    damaged[second + PAGE_HEADER] ^= 1;
    let (part, replayed) = trace(&damaged).unwrap();
    assert!(!replayed.finished);
    assert_eq!(replayed.lost_bytes, (whole.len() - second) as u64);
    assert!((1..40_000).contains(&part.frame_count()));
    assert_eq!(replayed.transitions, (part.frame_count() - 1) * 100 + 1);
}

#[test]
fn journals_of_earlier_versions_are_read() {
    let mut older = write(&[Record::End(7)]);
    for version in [1, 2, 3] {
        older[8] = version;
        assert_eq!(trace(&older).unwrap().1.transitions, 7);
    }
}

#[test]
fn the_last_name_of_a_stack_applies() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let number = writer.stack(&StackInfo { name: Some("sh".to_owned()), ..stack() }).unwrap();
    writer.change(Change::Enter { cpu: Cpu(0), stack: number, first: ContextId(0) }).unwrap();
    writer.name(number, "true").unwrap();
    let (named, _) = trace(&writer.finish(5).unwrap()).unwrap();
    assert_eq!(named.stack(number, ContextId(0)).unwrap().info().name.as_deref(), Some("true"));
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.name(number, "true").unwrap();
    let error = trace(&writer.finish(5).unwrap()).unwrap_err().to_string();
    assert!(error.ends_with("expected a defined stack"), "{error}");
}

#[test]
fn a_frame_that_was_called_at_a_stub_has_its_function() {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let location = |writer: &mut Writer<_>, symbol: &str| {
        let symbol = Some(symbol.to_owned());
        let info = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
        writer.location(&info).unwrap()
    };
    let stack = writer.stack(&stack()).unwrap();
    let [main, stub, function, resolver] =
        ["main", "f@plt", "g", "resolve"].map(|symbol| location(&mut writer, symbol));
    let direct = location(&mut writer, "f");
    // The stub was bound to a variant of `f`.
    let entry = writer.entry(function, stub).unwrap();
    let open = |first, location| Change::Open {
        stack,
        first: ContextId(first),
        start: StartType::Call,
        location: Some(location),
    };
    let close = |last| Change::Close { stack, last: ContextId(last), end: EndType::Return };
    for change in [
        Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) },
        open(0, main),
        open(5, stub),
        // The function is found at the first call.
        open(7, resolver),
        close(9),
        Change::Target { stack, location: entry },
        close(20),
        open(25, direct),
        close(30),
    ] {
        writer.change(change).unwrap();
    }
    let (trace, _) = trace(&writer.finish(40).unwrap()).unwrap();
    let shown = |number| {
        let frame = trace.frame(FrameId(number)).unwrap();
        let stub = frame.function_location().unwrap().stub();
        (frame.name().to_string(), stub.map(|stub| stub.name().to_string()))
    };
    let stub = Some("f@plt".to_owned());
    assert_eq!(
        [0, 1, 2, 3].map(shown),
        [("main".into(), None), ("g".into(), stub), ("resolve".into(), None), ("f".into(), None)]
    );
    let found = |pattern| trace.calls(&crate::Pattern::new(pattern).unwrap()).len();
    assert_eq!(["f", "g", "f@plt", "m", "*"].map(found), [2, 1, 0, 0, 4]);
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.stack(&StackInfo { ..trace.stack(stack, ContextId(0)).unwrap().info() }).unwrap();
    let location = location(&mut writer, "f");
    writer.change(Change::Target { stack, location }).unwrap();
    let error = super::trace(&writer.finish(1).unwrap()).unwrap_err();
    assert!(matches!(error, crate::Error::NothingOpen { .. }), "{error}");
}

#[test]
fn invalid_journals_are_rejected() {
    let whole = write(&[]);
    let mut newer = whole.clone();
    newer[8] = 9;
    let cases: [(&[u8], &str); 4] = [
        (b"", "not a call journal: expected the file to begin with \"shcalls\\n\""),
        (b"shstacks", "not a call journal: expected the file to begin with \"shcalls\\n\""),
        (&newer, "the journal has format version 9; this program reads version 4"),
        (&whole[..13], "the journal is damaged at byte 13: expected the rest of the header"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(trace(bytes).unwrap_err().to_string(), expected);
    }
}
