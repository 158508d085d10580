//! The reader reads all output of the writer.

use std::io::Cursor;
use std::num::NonZero;

use proptest::prelude::*;
use stackhound_etl::record::{Descriptor, ExtendedType, HeaderKind, MessageOptions, Record};
use stackhound_etl::write::{
    EtlWriter, EventClass, Form, HeaderSpec, InstanceIds, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec,
    Session, Totals, WriteError, stack,
};
use stackhound_etl::{
    BufferFlags, BufferHeader, ClockKind, Damage, DamageReason, EtlFile, Index, LogFileMode,
    LogfileHeaderError,
};
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

/// Values for payloads, items and counters, so that specs can borrow them.
static WORDS: [u64; 32] = {
    let mut words = [0; 32];
    let mut at = 0;
    while at < words.len() {
        words[at] = 0x0101_0101_0101_0101 * at as u64 + 0xf1;
        at += 1;
    }
    words
};
static BYTES: [u8; 3000] = {
    let mut bytes = [0; 3000];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at * at / 7) as u8;
        at += 1;
    }
    bytes
};
static FRAMES: [Address; 40] = {
    let mut frames = [Address(0); 40];
    let mut at = 0;
    while at < frames.len() {
        frames[at] = Address(0x7700_0000 + 0x1234 * at as u64);
        at += 1;
    }
    frames
};

const ISSUER: Issuer = Issuer { tid: Some(Tid(77)), pid: Some(Pid(66)), kernel_time: 55, user_time: 44 };
const CLASS: EventClass = EventClass { guid: Guid([1; 16]), opcode: 10, level: 4, version: 3 };
const INSTANCE: InstanceIds = InstanceIds { id: 1, parent_id: 2, parent_guid: Guid([3; 16]) };
const DESCRIPTOR: Descriptor =
    Descriptor { id: 500, version: 1, channel: 11, level: 4, opcode: 2, task: 9, keyword: 1 << 47 };

/// Every extended data item, each with its expected type and data.
fn items() -> Vec<(ItemSpec<'static>, ExtendedType, Vec<u8>)> {
    let (four, eight) = (PointerSize::Four, PointerSize::Eight);
    let guid = Guid::new(0x0011_2233, 0x4455, 0x6677, *b"\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
    let frames = &FRAMES[..3];
    let frames32: Vec<u8> = frames.iter().flat_map(|frame| (frame.0 as u32).to_le_bytes()).collect();
    let frames64: Vec<u8> = frames.iter().flat_map(|frame| frame.0.to_le_bytes()).collect();
    let number = 9u64.to_le_bytes();
    let other = ItemSpec::Other { item_type: ExtendedType(0x40), data: &[] };
    vec![
        (ItemSpec::RelatedActivityId(guid), ExtendedType::RELATED_ACTIVITY_ID, guid.0.to_vec()),
        (ItemSpec::Sid(&BYTES[..28]), ExtendedType::SID, BYTES[..28].to_vec()),
        (ItemSpec::TerminalSessionId(3), ExtendedType::TERMINAL_SESSION_ID, vec![3, 0, 0, 0]),
        (ItemSpec::InstanceInfo(INSTANCE), ExtendedType::INSTANCE_INFO, {
            [[1, 0, 0, 0, 2, 0, 0, 0].as_slice(), &[3; 16]].concat()
        }),
        (ItemSpec::StackTrace { pointer_size: four, match_id: 9, frames }, ExtendedType::STACK_TRACE32, {
            [number.as_slice(), &frames32].concat()
        }),
        (ItemSpec::StackTrace { pointer_size: eight, match_id: 9, frames }, ExtendedType::STACK_TRACE64, {
            [number.as_slice(), &frames64].concat()
        }),
        (ItemSpec::PebsIndex(9), ExtendedType::PEBS_INDEX, number.to_vec()),
        (ItemSpec::PmcCounters(&[9, 9]), ExtendedType::PMC_COUNTERS, [number, number].concat()),
        (ItemSpec::PsmKey(&BYTES[..13]), ExtendedType::PSM_KEY, BYTES[..13].to_vec()),
        (ItemSpec::EventKey(9), ExtendedType::EVENT_KEY, number.to_vec()),
        (ItemSpec::Schema(&BYTES[..100]), ExtendedType::SCHEMA, BYTES[..100].to_vec()),
        (ItemSpec::ProviderTraits(&BYTES[..31]), ExtendedType::PROVIDER_TRAITS, BYTES[..31].to_vec()),
        (ItemSpec::ProcessStartKey(9), ExtendedType::PROCESS_START_KEY, number.to_vec()),
        (ItemSpec::ControlGuid(guid), ExtendedType::CONTROL_GUID, guid.0.to_vec()),
        (ItemSpec::QpcDelta(9), ExtendedType::QPC_DELTA, number.to_vec()),
        (ItemSpec::ContainerId(guid), ExtendedType::CONTAINER_ID, {
            b"00112233-4455-6677-8899-aabbccddeeff".to_vec()
        }),
        (ItemSpec::StackKey { pointer_size: four, match_id: 9, key: 8 }, ExtendedType::STACK_KEY32, {
            [number, 8u64.to_le_bytes()].concat()
        }),
        (ItemSpec::StackKey { pointer_size: eight, match_id: 9, key: 1 << 40 }, ExtendedType::STACK_KEY64, {
            [number, (1u64 << 40).to_le_bytes()].concat()
        }),
        (other, ExtendedType(0x40), Vec::new()),
    ]
}

/// One header of each kind and with each of its optional parts.
fn headers<'a>(items: &'a [ItemSpec<'static>]) -> Vec<HeaderSpec<'a>> {
    let event = |items| HeaderSpec::Event {
        provider: Guid([7; 16]),
        descriptor: DESCRIPTOR,
        property: 4,
        issuer: ISSUER,
        activity: Guid([8; 16]),
        items,
    };
    let mut headers = vec![
        HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: ISSUER },
        HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: Issuer::UNKNOWN },
        HeaderSpec::Compact { hook_id: 0x1a21, version: 2, issuer: ISSUER },
        HeaderSpec::Full { class: CLASS, issuer: ISSUER },
        HeaderSpec::Instance { class: CLASS, issuer: ISSUER, instance: INSTANCE },
        HeaderSpec::Error,
        event(&[]),
        event(items),
    ];
    for counters in 0..=7 {
        for pebs_index in [None, Some(5)] {
            let counters = &WORDS[..counters];
            headers.push(HeaderSpec::PerfInfo { hook_id: 0x0524, version: 2, pebs_index, counters });
        }
    }
    headers.extend(items.iter().map(|item| event(std::slice::from_ref(item))));
    headers.extend((0..=0xff).map(|options| {
        HeaderSpec::Message(MessageSpec {
            number: 10,
            options: MessageOptions(options),
            sequence: 11,
            guid: Guid([12; 16]),
            component: 13,
            issuer: ISSUER,
        })
    }));
    headers
}

/// Asserts that a record that was read equals the record that was written.
#[track_caller]
fn assert_same(spec: &RecordSpec<'_>, record: &Record<'_>) {
    let is_32_bit = spec.pointer_size == PointerSize::Four;
    let kind = |four, eight| if is_32_bit { four } else { eight };
    let mut kind_read = record.kind();
    let mut ids = Some(Issuer::UNKNOWN);
    let mut times = None;
    match &spec.header {
        HeaderSpec::System { hook_id, version, issuer } => {
            assert_eq!(kind_read, kind(HeaderKind::System32, HeaderKind::System64));
            assert_eq!((record.hook_id(), record.version()), (Some(*hook_id), *version));
            ids = Some(*issuer);
            times = Some(*issuer);
        }
        HeaderSpec::Compact { hook_id, version, issuer } => {
            assert_eq!(record.level(), None);
            assert_eq!(kind_read, kind(HeaderKind::Compact32, HeaderKind::Compact64));
            assert_eq!((record.hook_id(), record.version()), (Some(*hook_id), *version));
            ids = Some(*issuer);
        }
        HeaderSpec::PerfInfo { hook_id, version, pebs_index, counters } => {
            assert_eq!(kind_read, kind(HeaderKind::PerfInfo32, HeaderKind::PerfInfo64));
            assert_eq!((record.hook_id(), record.version()), (Some(*hook_id), *version));
            assert_eq!(record.pebs_index(), *pebs_index);
            assert_eq!(record.counters().collect::<Vec<_>>(), *counters);
        }
        HeaderSpec::Full { class, issuer } | HeaderSpec::Instance { class, issuer, .. } => {
            if let HeaderSpec::Instance { instance, .. } = &spec.header {
                let expected = (instance.id, instance.parent_id, instance.parent_guid);
                assert_eq!(record.instance(), Some(expected));
                assert_eq!(kind_read, kind(HeaderKind::Instance32, HeaderKind::Instance64));
                kind_read = kind(HeaderKind::Full32, HeaderKind::Full64);
            }
            assert_eq!(kind_read, kind(HeaderKind::Full32, HeaderKind::Full64));
            assert_eq!((record.guid(), record.opcode()), (Some(class.guid), class.opcode));
            assert_eq!((u16::from(record.version()), record.level()), (class.version, Some(class.level)));
            ids = Some(*issuer);
            times = Some(*issuer);
        }
        HeaderSpec::Event { provider, descriptor, property, issuer, activity, items: specs } => {
            assert_eq!(kind_read, kind(HeaderKind::Event32, HeaderKind::Event64));
            assert_eq!((record.guid(), record.descriptor()), (Some(*provider), Some(*descriptor)));
            assert_eq!(record.event_flags(), Some((u16::from(!specs.is_empty()), *property)));
            assert_eq!(record.level(), Some(descriptor.level));
            assert_eq!(record.activity(), Some(*activity));
            assert_eq!(record.extended_items().count(), specs.len());
            ids = Some(*issuer);
            times = Some(*issuer);
        }
        HeaderSpec::Message(message) => {
            let has = |option| message.options.has(option);
            assert_eq!(kind_read, HeaderKind::Message);
            assert_eq!(record.message_options(), message.options);
            assert_eq!(record.message_number(), Some(message.number));
            assert_eq!(record.message_sequence(), has(MessageOptions::SEQUENCE).then_some(message.sequence));
            let component = has(MessageOptions::COMPONENT_ID);
            assert_eq!(record.message_component(), component.then_some(message.component));
            let guid = has(MessageOptions::GUID) && !component;
            assert_eq!(record.guid(), guid.then_some(message.guid));
            ids = has(MessageOptions::SYSTEM_INFO).then_some(message.issuer);
        }
        HeaderSpec::Error => {
            assert_eq!(kind_read, HeaderKind::Error);
            return;
        }
    }
    let ids = ids.unwrap_or(Issuer::UNKNOWN);
    assert_eq!((record.tid(), record.pid()), (ids.tid, ids.pid));
    if let Some(issuer) = times {
        assert_eq!(record.processor_times(), Some((issuer.kernel_time, issuer.user_time)));
    }
    if let HeaderSpec::Message(message) = &spec.header {
        let timed = message.options.has(MessageOptions::TIMESTAMP)
            || message.options.has(MessageOptions::PERFORMANCE_TIMESTAMP);
        if timed {
            assert_eq!(record.time(), spec.time);
        }
    } else {
        assert_eq!((record.time(), record.pointer_size()), (spec.time, spec.pointer_size));
    }
    match spec.payload {
        Payload::Bytes(bytes) => assert_eq!(record.payload(), bytes),
        Payload::Stack(_) => assert_eq!(record.bytes().len(), spec.size().unwrap()),
    }
}

fn open(file: Vec<u8>) -> EtlFile {
    EtlFile::open(file.into()).unwrap()
}

/// All records of the data buffers, by processor and in file order; asserts that there is no
/// damage.
#[track_caller]
fn for_each_record(etl_file: &EtlFile, mut visit: impl FnMut(u16, &Record<'_>)) {
    let index = etl_file.index();
    assert_eq!(index.damage, []);
    for buffer in index.streams().iter().flatten().filter(|buffer| buffer.sequence > 0) {
        let (block, damage) = etl_file.block(buffer, None).unwrap();
        assert_eq!(damage, []);
        for entry in block.entries() {
            visit(buffer.processor, &block.record(entry));
        }
    }
}

fn writer(session: Session) -> EtlWriter<Cursor<Vec<u8>>> {
    EtlWriter::new(session, Cursor::new(Vec::new())).unwrap()
}

fn finish(writer: EtlWriter<Cursor<Vec<u8>>>) -> (Vec<u8>, Totals) {
    let (file, totals) = writer.finish().unwrap();
    let file = file.into_inner();
    assert_eq!(file.len() as u64, totals.bytes);
    (file, totals)
}

/// A small kernel event, `time` ticks after the start of the session.
fn event(session: &Session, time: i64) -> RecordSpec<'static> {
    RecordSpec {
        time: RawTime(session.start.0 + time),
        pointer_size: session.pointer_size,
        header: HeaderSpec::PerfInfo { hook_id: 0x0f2e, version: 2, pebs_index: None, counters: &[] },
        payload: Payload::Bytes(&BYTES[..100]),
    }
}

/// The processors and times (from the start of the session) of all records.
fn events(etl_file: &EtlFile) -> Vec<(u16, i64)> {
    let mut events = Vec::new();
    let start = etl_file.session().reference.0;
    for_each_record(etl_file, |processor, record| events.push((processor, record.time().0 - start)));
    events
}

/// Processor, sequence number and flags of all buffers, in file order.
fn buffers(file: &[u8]) -> Vec<(u16, i64, u16)> {
    let index = open(file.to_vec()).index();
    let header = |offset: u64| BufferHeader::read(&file[offset as usize..]).unwrap();
    index.buffers.iter().map(|b| (b.processor, b.sequence, header(b.offset).flags().0)).collect()
}

#[test]
fn every_kind_of_record_is_read_back() {
    let with_data = items();
    let all_items: Vec<ItemSpec<'static>> = with_data.iter().map(|(spec, ..)| *spec).collect();
    let headers = headers(&all_items);
    for compressed in [false, true] {
        let mut writer = writer(Session { compressed, ..Session::default() });
        let start = writer.session().start.0;
        let mut specs = Vec::new();
        for pointer_size in [PointerSize::Four, PointerSize::Eight] {
            for header in &headers {
                for length in [0, 1, 8, 333] {
                    let time = RawTime(start + specs.len() as i64);
                    let payload = Payload::Bytes(&BYTES[..length]);
                    specs.push(RecordSpec { time, pointer_size, header: *header, payload });
                }
            }
        }
        for spec in &specs {
            writer.write(0, spec).unwrap();
        }
        let (file, totals) = finish(writer);
        assert_eq!(totals.records, specs.len() as u64);
        let mut expected = specs.iter();
        for_each_record(&open(file), |_, record| {
            assert_same(expected.next().unwrap(), record);
            if record.extended_items().count() == with_data.len() {
                for (item, (_, item_type, data)) in record.extended_items().zip(&with_data) {
                    assert_eq!((item.item_type, item.data), (*item_type, data.as_slice()));
                }
            }
        });
        assert!(expected.next().is_none());
    }
}

#[test]
fn sessions_are_read_back() {
    let base = Session {
        processors: 3,
        utc_bias: -60,
        build: 22_621,
        windows_version: (6, 3),
        boot_time: FileTime(133_000_000_000_000_000),
        perf_frequency: NonZero::new(2_648_433).unwrap(),
        cpu_mhz: NonZero::new(3_592).unwrap(),
        timer_resolution: 10_000,
        name: String::from("Größe"),
        file_name: String::from("C:\\x.etl"),
        ..Session::default()
    };
    let now = base.start_time.0;
    let circular = NonZero::new(20);
    for (session, mode, layout, clock_type, end_time, size) in [
        (base.clone(), 0x1, (1, 5), 1, now + 10_156_250, 0),
        (Session { pointer_size: PointerSize::Four, ..base.clone() }, 0x1, (1, 5), 1, now + 10_156_250, 0),
        (Session { compressed: true, ..base.clone() }, 0x0400_0001, (2, 0), 1, now + 10_156_250, 0),
        (Session { buffer_size: 2 << 20, ..base.clone() }, 0x1, (2, 0), 1, now + 10_156_250, 0),
        (Session { processors: 257, ..base.clone() }, 0x1, (2, 0), 1, now + 10_156_250, 0),
        (
            Session { form: Form::Windows7, windows_version: (6, 1), ..base.clone() },
            0x1,
            (1, 5),
            1,
            now + 10_156_250,
            0,
        ),
        (Session { clock: ClockKind::CpuCycles, ..base.clone() }, 0x1, (1, 5), 3, now + 7_373 + 156_250, 0),
        (
            Session { clock: ClockKind::SystemTime, start: RawTime(now), ..base.clone() },
            0x1,
            (1, 5),
            2,
            now + 2_648_433 + 156_250,
            0,
        ),
        (
            Session { circular, mode: LogFileMode(0x0200_0000), ..base.clone() },
            0x0200_2002,
            (1, 5),
            1,
            now + 10_156_250,
            21 * 64,
        ),
        (
            Session {
                form: Form::Merged,
                compressed: true,
                end_time: Some(FileTime(now + 5)),
                ..base.clone()
            },
            0x0401_0001,
            (2, 0),
            1,
            now + 5,
            0,
        ),
    ] {
        let mut writer = writer(session.clone());
        writer.write(0, &event(&session, 2_648_433)).unwrap();
        writer.lose_events(9);
        let (file, totals) = finish(writer);
        let read = open(file);
        let header = read.session();
        assert_eq!(header.mode, LogFileMode(mode));
        assert_eq!(header.layout_version, layout);
        assert_eq!((header.clock_type, read.clock()), (clock_type, session.clock()));
        assert_eq!(header.end_time, Some(FileTime(end_time)));
        assert_eq!(header.maximum_file_size, size);
        assert_eq!(header.pointer_size, session.pointer_size);
        assert_eq!(header.buffer_size, session.buffer_size);
        assert_eq!(header.processors, u32::from(session.processors));
        assert_eq!((header.windows_version, header.build), (session.windows_version, session.build));
        assert_eq!((header.reference, header.start_time), (session.start, session.start_time));
        assert_eq!((header.boot_time, header.utc_bias), (session.boot_time, session.utc_bias));
        assert_eq!((header.perf_freq, header.cpu_mhz), (2_648_433, 3_592));
        assert_eq!(header.timer_resolution, session.timer_resolution);
        assert_eq!((&header.session_name, &header.file_name), (&session.name, &session.file_name));
        assert_eq!((header.buffers_written, header.events_lost, header.buffers_lost), (2, 9, 0));
        assert_eq!(totals.buffers, 2);
        assert_eq!(events(&read), [(0, 2_648_433)]);
    }
}

#[test]
fn buffers_are_numbered_as_they_are_taken_into_use() {
    let session = Session { processors: 300, first_sequence_number: 908, ..Session::default() };
    let mut writer = writer(session.clone());
    writer.write(299, &event(&session, 5)).unwrap();
    writer.write(0, &event(&session, 5)).unwrap();
    writer.write(7, &event(&session, 5)).unwrap();
    writer.flush(7).unwrap();
    writer.flush(7).unwrap();
    writer.write(0, &event(&session, 5)).unwrap();
    let (file, _) = finish(writer);
    assert_eq!(
        buffers(&file),
        [(0, 0, 0x21), (7, 910, 0x20), (7, 911, 0x20), (0, 909, 0x20), (299, 908, 0x21)]
    );
    assert_eq!(events(&open(file)), [(0, 5), (0, 5), (7, 5), (299, 5)]);
}

#[test]
fn appended_sessions_keep_their_own_settings() {
    let first = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let second = Session {
        pointer_size: PointerSize::Four,
        buffer_size: 2048,
        clock: ClockKind::SystemTime,
        start: RawTime(first.start_time.0 + 77),
        start_time: FileTime(first.start_time.0 + 77),
        compressed: true,
        ..first.clone()
    };
    let third = Session { mode: LogFileMode::NO_PER_PROCESSOR_BUFFERING, ..first.clone() };
    let sessions = [first, second, third];
    let mut file = Cursor::new(Vec::new());
    let mut ends = Vec::new();
    for (session, lost) in sessions.iter().zip(1..) {
        let mut writer = EtlWriter::new(session.clone(), file).unwrap();
        for time in 0..40 {
            writer.write((time % 2) as u16, &event(session, time)).unwrap();
        }
        writer.lose_events(lost);
        file = writer.finish().unwrap().0;
        ends.push(file.get_ref().len() as u64);
    }
    let file = file.into_inner();
    let etl_file = open(file.clone()).sessions_from(7);
    let index = etl_file.index();
    assert_eq!(index.damage, []);
    assert_eq!(index.sessions.len(), 3);
    for (found, (session, lost)) in index.sessions.iter().zip(sessions.iter().zip(1..)) {
        assert_eq!((found.clock(), found.pointer_size), (session.clock(), session.pointer_size));
        assert_eq!((found.buffer_size, found.events_lost), (session.buffer_size, lost));
    }
    // A second reader without an index reads the blocks in the same way.
    let other = open(file.clone()).sessions_from(7);
    for buffer in &index.buffers {
        let epoch = ends.iter().filter(|&&end| end <= buffer.offset).count();
        let (block, damage) = other.block(buffer, None).unwrap();
        assert_eq!((buffer.epoch as usize, damage), (epoch, vec![]));
        assert_eq!((block.session(), block.origin().session), (&index.sessions[epoch], 7 + epoch as u32));
        assert_eq!(block.origin().processor.is_none(), epoch == 2);
        let start = sessions[epoch].start.0;
        assert!(block.entries().iter().all(|entry| (start..start + 40).contains(&entry.time.0)));
    }
    let records: usize =
        index.buffers.iter().map(|buffer| other.block(buffer, None).unwrap().0.entries().len()).sum();
    assert_eq!(records, 3 * 41);

    // If the logfile header is damaged, the previous session is used, and damage is reported.
    let mut damaged = file;
    damaged[ends[0] as usize + 0x4a] = 0x77;
    let index = open(damaged).index();
    let reason = DamageReason::Session(LogfileHeaderError::NotALogfileHeader);
    assert_eq!(index.damage[0], Damage { offset: ends[0], skipped: 0, reason });
    assert_eq!(index.sessions[1].clock(), sessions[0].clock());
    let lost: Vec<u32> = index.sessions.iter().map(|session| session.events_lost).collect();
    assert_eq!(lost, [1, 0, 3]);
}

#[test]
fn losses_leave_their_marks() {
    let session = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let mut writer = writer(session.clone());
    // Seven events fit into a buffer of 1 KiB; the other two are in the second buffer, which is
    // lost.
    for time in 0..9 {
        writer.write(0, &event(&session, time)).unwrap();
    }
    writer.lose_buffer(0).unwrap();
    writer.lose_buffer(1).unwrap();
    writer.lose_events(40);
    for time in 9..11 {
        writer.write(1, &event(&session, time)).unwrap();
        writer.write(0, &event(&session, time)).unwrap();
    }
    let (file, totals) = finish(writer);
    assert_eq!((totals.events_lost, totals.buffers_lost, totals.records), (40, 2, 13));
    let marker = BufferFlags::FLUSH_MARKER.0;
    let expected = [(0, 0, 0x20 | marker), (0, 1, 0x20), (0, 5, 0x20), (1, 4, 0x20 | marker)];
    assert_eq!(buffers(&file), expected);
    let mut flagged = file.clone();
    let read = open(file);
    assert_eq!((read.session().events_lost, read.session().buffers_lost), (40, 2));
    let index = read.index();
    assert_eq!(index.missing_buffers(), 2);
    // Only the gap before sequence number 4 is visible; no flag reports the losses.
    let losses = |index: &Index| {
        let of = index.buffers.iter().map(|buffer| (buffer.after_loss, buffer.is_marked_lossy));
        of.collect::<Vec<_>>()
    };
    let (none, gap, flag) = ((false, false), (true, false), (true, true));
    assert_eq!(losses(&index), [none, none, none, gap]);
    // Windows defines flags for losses. No known file has them, but they are respected.
    for (number, lost) in [(1, BufferFlags::EVENTS_LOST), (2, BufferFlags::BUFFER_LOST)] {
        flagged[1024 * number + 0x34] |= lost.0 as u8;
    }
    assert_eq!(losses(&open(flagged).index()), [none, flag, flag, gap]);
    let survivors: Vec<_> = (0..7).chain(9..11).map(|time| (0, time)).chain([(1, 9), (1, 10)]).collect();
    assert_eq!(events(&read), survivors);
}

/// Fields that this project's reader does not use, with the values that all known files of Windows
/// have.
#[test]
fn fields_are_as_windows_writes_them() {
    let (live, windows7, merged) = (Form::Live, Form::Windows7, Form::Merged);
    for (form, compressed, timers) in [
        (live, false, [10, 7]),
        (live, true, [10, 7]),
        (windows7, false, [5, 6]),
        (merged, false, [0, 0]),
        (merged, true, [0, 0]),
    ] {
        let windows_version = if form == windows7 { (6, 1) } else { (10, 0) };
        let session = Session {
            form,
            windows_version,
            compressed,
            processors: 2,
            buffer_size: 1024,
            issuer: Issuer::new(Pid(66), Tid(77)),
            utc_bias: -330,
            ..Session::default()
        };
        let mut writer = writer(session.clone());
        // Each event takes 120 bytes, so that a buffer has space for seven.
        for time in 0..9 {
            writer.write(0, &event(&session, time)).unwrap();
        }
        writer.write(1, &event(&session, 20)).unwrap();
        let (file, _) = finish(writer);
        let number = |at: usize, size: usize| {
            file[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };

        // Issuer, kinds of timers, and the names of the time zone.
        assert_eq!((number(0x50, 4), number(0x54, 4)), (77, 66));
        assert_eq!([number(0xa0, 8), number(0xa8, 8)], timers);
        let name: Vec<u8> = "UTC+05:30\0".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!((&file[0xb4..0xb4 + 20], &file[0x108..0x108 + 20]), (&*name, &*name));

        // The header buffer of a compressed file is as short as its records allow.
        let end = number(0x30, 4) as usize;
        let header_size = if compressed { end.next_multiple_of(512) } else { 1024 };
        assert_eq!(number(0, 4) as usize, header_size);
        assert!(compressed || file.len() == 4 * 1024);

        let mut at = header_size;
        for (saved, reserved, last, flags) in
            [(72 + 7 * 120, 120, 6, 0), (72 + 2 * 120, 1024, 8, 0), (72 + 120, 1024, 20, 1)]
        {
            assert_eq!((number(at + 0x04, 4), number(at + 0x30, 4)), (saved, saved));
            // The last reservation exceeded the buffer, which closed it.
            assert_eq!(number(at + 0x08, 4), saved + reserved);
            if form != merged {
                assert_eq!(number(at + 0x10, 8), (session.start.0 + last + 1) as u64);
            }
            assert_eq!(number(at + 0x34, 2) & !0x60, flags);
            at += number(at, 4) as usize;
        }
        assert_eq!(at, file.len());
    }
}

#[test]
fn circular_files_keep_the_latest_buffers_in_place() {
    let session = Session { buffer_size: 1024, circular: NonZero::new(3), ..Session::default() };
    let mut writer = writer(session.clone());
    for time in 0..8 {
        writer.write(0, &event(&session, time)).unwrap();
        writer.flush(0).unwrap();
    }
    let (file, totals) = finish(writer);
    assert_eq!((file.len(), totals.buffers), (4 * 1024, 9));
    let read = open(file);
    assert_eq!(read.session().buffers_written, 9);
    let index = read.index();
    assert_eq!(index.buffers.iter().map(|b| b.sequence).collect::<Vec<_>>(), [0, 7, 8, 6]);
    assert_eq!(events(&read), [(0, 5), (0, 6), (0, 7)]);
}

#[test]
fn unfinished_files_describe_a_running_session() {
    let session = Session::default();
    let mut writer = EtlWriter::new(session.clone(), Vec::new()).unwrap();
    writer.write(0, &event(&session, 1)).unwrap();
    writer.lose_events(1);
    let (file, totals) = writer.leave_unfinished(100_000).unwrap();
    assert_eq!(totals.bytes, 2 * 65_536 + 100_000);
    assert_eq!(file.len() as u64, totals.bytes);
    let read = open(file);
    assert_eq!((read.session().end_time, read.session().buffers_written), (None, 1));
    assert_eq!(read.session().events_lost, 0);
    assert_eq!(events(&read), [(0, 1)]);
}

#[test]
fn header_buffers_take_records_and_state_one_or_two_ends() {
    let build = |session: &Session| RecordSpec {
        time: session.start,
        pointer_size: session.pointer_size,
        header: HeaderSpec::System { hook_id: 0x0042, version: 2, issuer: Issuer::UNKNOWN },
        payload: Payload::Bytes(b"19041.1.amd64fre.vb_release.191206-1406\0"),
    };
    for (form, split, ends) in [
        (Form::Live, false, (0x200, 0x200)),
        (Form::Live, true, (0x200, 0x248)),
        (Form::Windows7, false, (0, 0x200)),
        (Form::Merged, false, (0x200, 0x200)),
    ] {
        let session = Session { form, windows_version: (6, 1), ..Session::default() };
        let mut writer = writer(session.clone());
        writer.write_to_header(&build(&session)).unwrap();
        if split {
            writer.split_header();
            writer.write_to_header(&build(&session)).unwrap();
        }
        writer.write(0, &event(&session, 1)).unwrap();
        writer.flush(0).unwrap();
        let late = writer.write_to_header(&build(&session));
        assert!(matches!(late, Err(WriteError::HeaderBufferWritten)));
        let (file, totals) = finish(writer);
        assert_eq!(totals.records, if split { 3 } else { 2 });
        let end = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((end(4), end(0x30)), ends);
        let read = open(file);
        let index = read.index();
        let (header, _) = read.block(&index.buffers[0], None).unwrap();
        let hook_ids: Vec<_> = header.entries().iter().map(|entry| entry.hook_id()).collect();
        assert_eq!(
            hook_ids,
            if split { vec![Some(0), Some(0x42), Some(0x42)] } else { vec![Some(0), Some(0x42)] }
        );
        assert_eq!(events(&read), [(0, 1)]);
    }
}

#[test]
fn invalid_sessions_and_records_are_rejected() {
    let session = Session { processors: 2, buffer_size: 1024, ..Session::default() };
    let mut writer = writer(session.clone());
    let large = RecordSpec { payload: Payload::Bytes(&BYTES[..0x3a9]), ..event(&session, 0) };
    let fitting = RecordSpec { payload: Payload::Bytes(&BYTES[..0x3a8]), ..event(&session, 0) };
    let refused = writer.write(1, &large);
    assert!(matches!(refused, Err(WriteError::BufferTooSmall { size: 0x3b9, room: 0x3b8 })));
    writer.write(1, &fitting).unwrap();
    let refused = writer.write(2, &event(&session, 0));
    assert!(matches!(refused, Err(WriteError::Processor { processor: 2, processors: 2 })));
    writer.write(1, &event(&session, 7)).unwrap();
    writer.flush(1).unwrap();
    assert!(matches!(writer.write(1, &event(&session, 6)), Err(WriteError::OutOfOrder { .. })));
    writer.write(0, &event(&session, 6)).unwrap();
    let (file, totals) = finish(writer);
    assert_eq!(totals.records, 3);
    assert_eq!(events(&open(file)), [(0, 6), (1, 0), (1, 7)]);

    for (session, reason) in [
        (Session { buffer_size: 1000, ..Session::default() }, "KiB"),
        (Session { buffer_size: 0, ..Session::default() }, "KiB"),
        (Session { buffer_size: 17 << 20, ..Session::default() }, "KiB"),
        (Session { processors: 0, ..Session::default() }, "at least one processor"),
        (Session { processors: 257, form: Form::Windows7, ..Session::default() }, "256 processors"),
        (Session { form: Form::Windows7, windows_version: (6, 2), ..Session::default() }, "later Windows"),
        (Session { clock: ClockKind::SystemTime, ..Session::default() }, "must be equal"),
        (Session { compressed: true, circular: NonZero::new(2), ..Session::default() }, "equal sizes"),
        (Session { buffer_size: 1024, name: "x".repeat(330), ..Session::default() }, "does not fit"),
    ] {
        let error = EtlWriter::new(session, Vec::new()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_wall_clock_may_be_set_back() {
    let start = Session::default().start_time.0;
    let session = Session { clock: ClockKind::SystemTime, start: RawTime(start), ..Session::default() };
    let mut writer = writer(session.clone());
    writer.write(0, &event(&session, 7)).unwrap();
    writer.write(0, &event(&session, 6)).unwrap();
    let read = open(finish(writer).0);
    assert_eq!(read.session().end_time, Some(FileTime(start + 7 + 156_250)));
    assert_eq!(events(&read), [(0, 7), (0, 6)]);
}

#[test]
fn data_that_does_not_shrink_stays_as_it_is() {
    let session = Session { compressed: true, ..Session::default() };
    let mut writer = writer(session.clone());
    // A multiplicative generator: three bytes are unlikely to repeat within a buffer.
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(60_000)
    .collect();
    writer.write(0, &RecordSpec { payload: Payload::Bytes(&noise), ..event(&session, 1) }).unwrap();
    writer.flush(0).unwrap();
    writer.flush(0).unwrap();
    writer.write(0, &event(&session, 2)).unwrap();
    writer.write(0, &event(&session, 3)).unwrap();
    let (file, _) = finish(writer);
    let flags: Vec<_> = buffers(&file).iter().map(|&(_, _, flags)| flags).collect();
    assert_eq!(flags, [0x21, 0x20, 0x20, 0x61]);
    assert_eq!(events(&open(file)), [(0, 1), (0, 2), (0, 3)]);
}

/// The parameters of a random record: processor, kind, pointer size, payload length, and time after
/// the previous record.
type Choice = (u16, prop::sample::Index, bool, usize, u8);

fn sessions() -> impl Strategy<Value = Session> {
    let form = prop_oneof![Just(Form::Live), Just(Form::Windows7), Just(Form::Merged),];
    let clock = prop_oneof![Just(ClockKind::PerformanceCounter), Just(ClockKind::CpuCycles)];
    (form, clock, any::<bool>(), any::<bool>(), 1..5u16, 4..20u32, 1..1000i64).prop_map(
        |(form, clock, compressed, is_32_bit, processors, kib, first_sequence_number)| Session {
            form,
            windows_version: if form == Form::Windows7 { (6, 1) } else { (10, 0) },
            clock,
            compressed,
            pointer_size: if is_32_bit { PointerSize::Four } else { PointerSize::Eight },
            processors,
            buffer_size: kib * 1024,
            first_sequence_number,
            ..Session::default()
        },
    )
}

proptest! {
    #[test]
    fn any_records_are_read_back_in_order(
        session in sessions(),
        choices in prop::collection::vec(any::<Choice>(), 0..300),
    ) {
        let all_items: Vec<_> = items().iter().map(|(spec, ..)| *spec).collect();
        let trigger = stack::Trigger { time: RawTime(1), pid: Pid(2), tid: Tid(3) };
        let mut headers = headers(&all_items);
        // The size of an ERROR record can only be derived from the record that follows.
        headers.retain(|header| !matches!(header, HeaderSpec::Error));

        let mut writer = writer(session.clone());
        let mut expected = vec![Vec::new(); usize::from(session.processors)];
        let mut time = session.start;
        for (processor, kind, is_64_bit, length, pause) in choices {
            time.0 += i64::from(pause % 4);
            let pointer_size = if is_64_bit { PointerSize::Eight } else { PointerSize::Four };
            let frames = &FRAMES[..length % 40];
            let spec = match length % 7 {
                0 => stack::frames(time, pointer_size, trigger, frames),
                1 => stack::definition(time, pointer_size, stack::KeyDefinition::Delete, 5, frames),
                2 => stack::key(time, pointer_size, trigger, stack::StackMode::User, 5),
                _ => {
                    let payload = Payload::Bytes(&BYTES[length % 17..length % 600 + 17]);
                    RecordSpec { time, pointer_size, header: *kind.get(&headers), payload }
                }
            };
            let processor = processor % session.processors;
            writer.write(processor, &spec).unwrap();
            expected[usize::from(processor)].push(spec);
        }
        let latest = time;
        let (file, totals) = finish(writer);
        let read = open(file);
        prop_assert_eq!(read.session().buffers_written, totals.buffers);
        prop_assert_eq!(read.index().buffers.len(), totals.buffers as usize);
        prop_assert_eq!(read.index().missing_buffers(), 0);
        let end = session.clock().to_file_time(latest).0 + 156_250;
        prop_assert!(read.session().end_time <= Some(FileTime(end)));
        let mut expected: Vec<_> = expected.iter().map(|specs| specs.iter()).collect();
        for_each_record(&read, |processor, record| {
            assert_same(expected[usize::from(processor)].next().unwrap(), record);
        });
        prop_assert!(expected.iter_mut().all(|specs| specs.next().is_none()));
    }
}
