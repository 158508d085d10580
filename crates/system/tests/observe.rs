//! Events that no known trace contains, written by our own writer and observed.

use std::io::Cursor;
use std::sync::Arc;

use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{EtlFile, Selection};
use stackhound_system::{Caller, Evidence, FileKey, FileObject, KeyControlBlock, Span, System, SystemStats};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{Address, Pid, PointerSize, RawTime, Tid};

/// A part of a payload.
#[derive(Clone, Copy)]
enum Part<'a> {
    /// A pointer.
    P(u64),
    U32(u32),
    U64(u64),
    /// Zero-terminated UTF-16.
    Wide(&'a str),
    /// Zero-terminated 8-bit text.
    Narrow(&'a str),
}

use Part::{Narrow, P, U32, U64, Wide};

fn payload(parts: &[Part<'_>], pointer: PointerSize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match *part {
            P(value) => bytes.extend(&value.to_le_bytes()[..pointer.bytes()]),
            U32(value) => bytes.extend(value.to_le_bytes()),
            U64(value) => bytes.extend(value.to_le_bytes()),
            Wide(text) => bytes.extend(text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes)),
            Narrow(text) => bytes.extend(text.bytes().chain([0])),
        }
    }
    bytes
}

/// An event: time after the start, hook id, version, payload. Thread 3/4 logs all of them.
type EventSpec<'a> = (i64, u16, u8, &'a [Part<'a>]);

const CALLER: Caller = Caller { pid: Pid(3), tid: Tid(4) };

/// The machine of a trace with these events, and the time at which the trace starts.
fn machine(pointer_size: PointerSize, events: &[EventSpec<'_>], cut: usize) -> (System, i64) {
    let session = Session { pointer_size, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for &(time, hook_id, version, parts) in events {
        let bytes = payload(parts, pointer_size);
        let record = RecordSpec {
            time: RawTime(start + time),
            pointer_size,
            header: HeaderSpec::System { hook_id, version, issuer: Issuer::new(CALLER.pid, CALLER.tid) },
            payload: Payload::Bytes(&bytes[..bytes.len().saturating_sub(cut)]),
        };
        writer.write(0, &record).unwrap();
    }
    (observed(writer, pointer_size, None), start)
}

/// The machine of the selected records of a trace.
fn observed(
    writer: EtlWriter<Cursor<Vec<u8>>>,
    pointer_size: PointerSize,
    selection: Option<&Selection>,
) -> System {
    let (file, _) = writer.finish().unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let mut system = System::new(pointer_size);
    for buffer in &etl_file.index().buffers {
        let block = Arc::new(etl_file.block(buffer, selection).unwrap().0);
        for (index, entry) in block.entries().iter().enumerate() {
            system.observe(&Event::new(&block, index as u32, TraceTime(entry.time.0)));
        }
    }
    system
}

/// Runs `ask` on the machine for both pointer sizes.
#[track_caller]
fn check(events: &[EventSpec<'_>], ask: impl Fn(&System, &dyn Fn(i64) -> TraceTime)) {
    for pointer_size in [PointerSize::Four, PointerSize::Eight] {
        let (system, start) = machine(pointer_size, events, 0);
        let stats = system.stats();
        assert_eq!((stats.observed, stats.malformed), (events.len() as u64, 0), "{pointer_size:?}");
        ask(&system, &|time| TraceTime(start + time));
    }
}

/// Process v4: key, pid, parent, session, exit status, page table, flags, no SID, texts.
fn process<'a>(pid: u32, parent: u32, exit: u32, name: &'a str) -> [Part<'a>; 12] {
    let (no_sid, line) = (U32(0), "\"C:\\a.exe\" -x");
    let [key, table] = [P(0x1000 + u64::from(pid)), P(1)];
    let tail = [Wide(line), Wide(""), Wide("")];
    let head = [key, U32(pid), U32(parent), U32(1), U32(exit), table, U32(2), no_sid, Narrow(name)];
    let mut parts = [U32(0); 12];
    parts[..9].copy_from_slice(&head);
    parts[9..].copy_from_slice(&tail);
    parts
}

/// Thread v3: pid, tid, kernel stack, user stack, affinity, start, TEB, service, priorities.
fn thread(pid: u32, tid: u32) -> [Part<'static>; 11] {
    [
        U32(pid),
        U32(tid),
        P(0x9000),
        P(0x8000),
        P(0x7000),
        P(0x6000),
        P(1),
        P(0x5000),
        P(0x4000),
        U32(9),
        U32(0),
    ]
}

/// Image v3: base, size, pid, checksum, time stamp, signing level and signature type, preferred
/// base, reserved, path.
fn image(base: u64, levels: u32) -> [Part<'static>; 12] {
    let zero = U32(0);
    let head = [P(base), P(0x1000), U32(7), zero, U32(5), U32(levels), P(base), zero, zero, zero, zero];
    let mut parts = [Wide("\\a.dll"); 12];
    parts[..11].copy_from_slice(&head);
    parts
}

/// The header of a start can state the new thread itself, which did not exist before.
#[test]
fn the_header_of_a_start_does_not_state_an_earlier_thread() {
    let (session, pointer_size) = (Session::default(), PointerSize::Eight);
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    let of_thread = |pid, tid| Issuer::new(Pid(pid), Tid(tid));
    let events =
        [(10, 0x501, of_thread(1, 2), 7), (20, 0x502, of_thread(7, 9), 7), (40, 0x501, of_thread(8, 9), 8)];
    for (time, hook_id, issuer, pid) in events {
        let header = HeaderSpec::System { hook_id, version: 3, issuer };
        let bytes = payload(&thread(pid, 9), pointer_size);
        let (time, payload) = (RawTime(start + time), Payload::Bytes(&bytes));
        writer.write(0, &RecordSpec { time, pointer_size, header, payload }).unwrap();
    }
    let system = observed(writer, pointer_size, None);
    for (time, process) in [(20, 7), (30, 7), (39, 7), (40, 8)] {
        let found = system.thread_of_event(Tid(9), TraceTime(start + time)).map(|thread| thread.pid());
        assert_eq!(found, Some(Pid(process)), "{time}");
    }
}

/// A pass over the selected records knows the last statement before another one.
#[test]
fn selected_records_state_how_long_a_thread_had_its_process() {
    const READ: u16 = 0x443;
    let (session, pointer_size) = (Session::default(), PointerSize::Eight);
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    let by_header =
        |pid| HeaderSpec::System { hook_id: READ, version: 3, issuer: Issuer::new(Pid(pid), Tid(9)) };
    let stack = HeaderSpec::PerfInfo { hook_id: 0x1820, version: 2, pebs_index: None, counters: &[] };
    let of_stack = payload(&[U64(start as u64 + 50), U32(8), U32(9), P(0x1000)], pointer_size);
    let read = [0; 64];
    for (time, process) in [(10, 7), (20, 7), (30, 7), (50, 0), (60, 8), (70, 8), (80, 8)] {
        let (header, bytes) =
            if process == 0 { (stack, &of_stack[..]) } else { (by_header(process), &read[..]) };
        let (time, payload) = (RawTime(start + time), Payload::Bytes(bytes));
        writer.write(0, &RecordSpec { time, pointer_size, header, payload }).unwrap();
    }
    let system = observed(writer, pointer_size, Some(&System::selection()));
    for (time, process) in [(10, Some(7)), (30, Some(7)), (40, None), (50, Some(8)), (80, Some(8))] {
        let found = system.thread_of_event(Tid(9), TraceTime(start + time)).map(|thread| thread.pid());
        assert_eq!(found, process.map(Pid), "{time}");
    }
    let thread = system.thread_of_event(Tid(9), TraceTime(start + 80)).unwrap();
    assert_eq!(thread.process_observed(), Some((TraceTime(start + 50), TraceTime(start + 80))));
}

#[test]
fn modules_have_the_signing_level_of_their_load() {
    // Level and type of the signature are bytes. Level 0 means that it was not checked.
    let images = [(0x10_0000, 0x010c, Some(0x0c)), (0x20_0000, 0x0001, Some(1)), (0x30_0000, 0, None)];
    let payloads = images.map(|(base, levels, _)| image(base, levels));
    let events: Vec<EventSpec<'_>> =
        payloads.iter().zip(1..).map(|(parts, time)| (time, 0x030a, 3, &parts[..])).collect();
    check(&events, |system, at| {
        for (base, _, expected) in images {
            let (module, _) = system.module_at(Pid(7), Address(base), at(9)).expect("a module");
            assert_eq!(module.signing_level(), expected, "{base:#x}");
        }
    });
}

#[test]
fn processes_and_threads() {
    let (started, ended) = (process(7, 2, 0x103, "a.exe"), process(7, 2, 5, "a.exe"));
    let thread = thread(7, 8);
    check(
        &[
            (10, 0x0301, 4, &started),
            (11, 0x0501, 3, &thread),
            (15, 0x0548, 0, &[U32(7), U32(8), Wide("worker")]),
            (20, 0x0502, 3, &thread),
            (21, 0x0302, 4, &ended),
        ],
        |system, at| {
            let process = system.process_at(Pid(7), at(10)).unwrap();
            assert_eq!((process.image_name(), process.command_line()), ("a.exe", "\"C:\\a.exe\" -x"));
            assert_eq!((process.parent_pid(), process.creator()), (Some(Pid(2)), Some(CALLER)));
            assert_eq!((process.session(), process.flags()), (Some(1), Some(2)));
            assert_eq!((process.unique_process_key(), process.sid()), (Some(Address(0x1007)), None));
            assert_eq!((process.exit_status(), process.span().to), (Some(5), at(21)));

            let thread = system.thread_at(Tid(8), at(11)).unwrap();
            assert_eq!((thread.pid(), thread.creator()), (Pid(7), Some(CALLER)));
            let stacks = [thread.kernel_stack(), thread.user_stack()].map(Option::unwrap);
            assert_eq!(
                stacks.map(|stack| (stack.base.0, stack.limit.0)),
                [(0x9000, 0x8000), (0x7000, 0x6000)]
            );
            assert_eq!((thread.win32_start_address(), thread.start_address()), (Some(Address(0x5000)), None));
            assert_eq!((thread.teb(), thread.sub_process_tag()), (Some(Address(0x4000)), Some(9)));
            assert_eq!([11, 14, 15, 20].map(|time| thread.name_at(at(time))), ["", "", "worker", "worker"]);
            assert!(system.thread_at(Tid(8), at(21)).is_none());
        },
    );
}

#[test]
fn memory() {
    check(
        &[
            (10, 0x0262, 2, &[P(0x10000), P(0x4000), U32(7), U32(0x2000)]),
            (20, 0x0262, 2, &[P(0x11000), P(0x1000), U32(7), U32(0x1000)]),
            (30, 0x0263, 2, &[P(0x11000), P(0x1000), U32(7), U32(0x4000)]),
            (40, 0x0263, 2, &[P(0x10000), P(0x4000), U32(7), U32(0x8000)]),
            (50, 0x0281, 2, &[P(0x50000), P(0x1000), U32(7), U32(0x3000)]),
        ],
        |system, at| {
            let region = |time| system.region_at(Pid(7), Address(0x11010), at(time));
            let reserved = region(15).unwrap().reserved.unwrap();
            assert_eq!((reserved.base, reserved.size), (Address(0x10000), 0x4000));
            assert_eq!((reserved.since, reserved.by), (at(10), Some(CALLER)));
            assert_eq!(region(25).unwrap().committed.unwrap().since, at(20));
            assert_eq!(region(35).unwrap().committed, None);
            assert_eq!(region(45), None);
            let old = system.region_at(Pid(7), Address(0x50000), at(1)).unwrap();
            assert_eq!(old.committed.unwrap().since, Span::BEGINNING);
        },
    );
}

#[test]
fn views() {
    // Base, file, protection in bits 48 to 50, size, process; version 3 has the offset before the
    // process.
    let rwx = 6 << 48;
    check(
        &[
            (10, 0x0420, 2, &[P(0x55), Wide("\\Device\\a.dat")]),
            (11, 0x0425, 2, &[P(0x10000), P(0x55), U64(rwx), P(0x2000), U32(7)]),
            (20, 0x0426, 2, &[P(0x10000), P(0x55), U64(rwx), P(0x2000), U32(7)]),
            (30, 0x0427, 2, &[P(0x20000), P(0x66), U64(0), P(0x1000), U32(7)]),
            (40, 0x0428, 3, &[P(0x30000), P(0x66), U64(1 << 48), P(0x1000), U64(0), U32(7)]),
        ],
        |system, at| {
            let process = system.process_at(Pid(7), at(15)).unwrap().id();
            let view = |address, time| system.view_in(process, Address(address), at(time));
            let found = view(0x11fff, 15).unwrap();
            assert_eq!((found.base, found.size, found.since), (Address(0x10000), 0x2000, at(11)));
            assert!(found.protection.is_executable());
            assert_eq!(system.file_name(Some(found.file), None, at(15)), Some("\\Device\\a.dat"));
            assert_eq!(view(0x11fff, 21), None);
            let evidence = [0x20000, 0x30000].map(|address| view(address, 1).unwrap().evidence);
            assert_eq!(evidence, [Evidence::RundownAtStart, Evidence::RundownAtEnd]);
        },
    );
}

#[test]
fn names_of_files() {
    check(
        &[
            (10, 0x0440, 3, &[P(1), P(0x66), U32(4), U32(0), U32(0), U32(0), Wide("\\Device\\a.txt")]),
            (20, 0x0442, 3, &[P(1), P(0x66), P(0x55), U32(4)]),
            (30, 0x0420, 2, &[P(0x55), Wide("\\Device\\b.txt")]),
            (40, 0x0423, 2, &[P(0x55), Wide("\\Device\\b.txt")]),
            (50, 0x0424, 2, &[P(0x77), Wide("\\Device\\c.txt")]),
        ],
        |system, at| {
            let name = |key, object, time| {
                system.file_name(Some(FileKey(key)), Some(FileObject(object)), at(time)).unwrap_or("?")
            };
            assert_eq!(
                [10, 20, 21].map(|time| name(0, 0x66, time)),
                ["\\Device\\a.txt", "\\Device\\a.txt", "?"]
            );
            assert_eq!(
                [29, 30, 40, 41].map(|time| name(0x55, 0, time)),
                ["?", "\\Device\\b.txt", "\\Device\\b.txt", "?"]
            );
            assert_eq!(name(0x77, 0, 1), "\\Device\\c.txt");
        },
    );
}

#[test]
fn names_of_registry_keys() {
    // Version 2: start time, status, index, key control block, name.
    let [machine, software] = ["\\REGISTRY\\MACHINE", "\\REGISTRY\\MACHINE\\SOFTWARE"].map(Wide);
    check(
        &[
            (10, 0x0918, 2, &[U64(0), U32(0), U32(0), P(0x11), machine]),
            (20, 0x0916, 2, &[U64(0), U32(0), U32(0), P(0x22), software]),
            (30, 0x0917, 2, &[U64(0), U32(0), U32(0), P(0x22), software]),
            (40, 0x0919, 2, &[U64(0), U32(0), U32(0), P(0x33), machine]),
        ],
        |system, at| {
            let path =
                |block, time| system.registry_path(KeyControlBlock(block), "Run", at(time)).to_string();
            assert_eq!([path(0x11, 5), path(0x33, 5)], ["\\REGISTRY\\MACHINE\\Run"; 2]);
            assert_eq!(path(0x22, 25), "\\REGISTRY\\MACHINE\\SOFTWARE\\Run");
            assert_eq!([path(0x22, 19), path(0x22, 31)], ["Run"; 2]);
        },
    );
}

#[test]
fn unknown_ids_belong_to_no_process() {
    let (process, thread) = (process(u32::MAX, 2, 0x103, "a.exe"), thread(7, u32::MAX));
    let events: [EventSpec<'_>; 2] = [(1, 0x0301, 4, &process), (2, 0x0501, 3, &thread)];
    let (system, _) = machine(PointerSize::Eight, &events, 0);
    assert_eq!(system.stats().without_process, 2);
    // The idle process, System and the caller's process; the idle thread, the caller, and the thread that
    // the session's header states.
    assert_eq!((system.processes().count(), system.threads().count()), (3, 3));
}

#[test]
fn truncated_payloads_are_counted() {
    let (process, thread) = (process(7, 2, 0x103, "a.exe"), thread(7, 8));
    let image = [P(0x1000), P(0x1000), U32(7), U32(1), U32(2)];
    let events: [EventSpec<'_>; 5] = [
        (1, 0x0301, 4, &process),
        (2, 0x0501, 3, &thread),
        (3, 0x030a, 2, &image),
        (4, 0x0262, 2, &[P(1), P(1), U32(7), U32(0x2000)]),
        (5, 0x0420, 2, &[P(1)]),
    ];
    for pointer_size in [PointerSize::Four, PointerSize::Eight] {
        for cut in 40..60 {
            let (system, _) = machine(pointer_size, &events, cut);
            let SystemStats { observed, malformed, .. } = system.stats();
            assert_eq!(observed + malformed, events.len() as u64);
            assert!(malformed >= 3, "{pointer_size:?} without {cut} bytes: {malformed}");
        }
    }
}
