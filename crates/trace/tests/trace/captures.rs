//! Grouping of files into captures by machine, boot and time.

use std::num::NonZeroU64;

use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_etl::{ClockKind, LogFileMode};
use stackhound_trace::{Capture, Error, Grouping, TraceFiles};
use stackhound_types::{FileTime, PointerSize, RawTime, TICKS_PER_SECOND};

/// One file: its session, when its events happened (in seconds after the session's start), and the
/// computer's name.
struct File {
    session: Session,
    events: Vec<i64>,
    computer: Option<&'static str>,
}

/// A session of the default machine and boot that starts this number of seconds after the first
/// one.
fn session(after: i64) -> Session {
    let first = Session { processors: 4, buffer_size: 2048, ..Session::default() };
    Session {
        start: RawTime(first.start.0 + after * TICKS_PER_SECOND),
        start_time: FileTime(first.start_time.0 + after * TICKS_PER_SECOND),
        ..first
    }
}

fn file(session: Session, events: &[i64]) -> File {
    File { session, events: events.to_vec(), computer: None }
}

/// Ten seconds of the default machine.
fn usual() -> File {
    file(session(0), &[1, 10])
}

fn on(computer: &'static str, file: File) -> File {
    File { computer: Some(computer), ..file }
}

fn with(change: impl FnOnce(&mut Session)) -> File {
    let mut file = usual();
    change(&mut file.session);
    file
}

fn mode(bits: LogFileMode) -> LogFileMode {
    LogFileMode(1 | bits.0)
}

/// SystemConfig/CPU of version 2, with nothing but the name.
fn cpu_config(computer: &str) -> Vec<u8> {
    let mut payload = vec![0; 20 + 2 * (256 + 134) + 8];
    for (unit, location) in computer.encode_utf16().zip(payload[20..].chunks_exact_mut(2)) {
        location.copy_from_slice(&unit.to_le_bytes());
    }
    payload
}

impl File {
    fn make(&self) -> Vec<u8> {
        let start = self.session.start.0;
        let mut writer = EtlWriter::new(self.session.clone(), std::io::Cursor::new(Vec::new())).unwrap();
        let mut write = |after: i64, hook_id: u16, payload: &[u8]| {
            let header = HeaderSpec::System { hook_id, version: 2, issuer: Issuer::UNKNOWN };
            let time = RawTime(start + after * TICKS_PER_SECOND);
            let pointer_size = PointerSize::Eight;
            let record = RecordSpec { time, pointer_size, header, payload: Payload::Bytes(payload) };
            writer.write(0, &record).unwrap();
        };
        if let Some(computer) = self.computer {
            write(0, 0x0b0a, &cpu_config(computer));
        }
        self.events.iter().for_each(|&after| write(after, 0x0301, b"event"));
        writer.finish().unwrap().0.into_inner()
    }
}

fn captures(files: &[File], grouping: Grouping) -> Vec<Capture> {
    let names = (0..files.len()).map(|number| format!("{number}.etl"));
    captures_at(files.iter().zip(names), grouping)
}

/// The captures of files with relative paths.
fn captures_at<'f>(files: impl IntoIterator<Item = (&'f File, String)>, grouping: Grouping) -> Vec<Capture> {
    let directory = tempfile::tempdir().unwrap();
    let paths = files.into_iter().map(|(file, name)| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, file.make()).unwrap();
        path
    });
    TraceFiles::files(paths.collect::<Vec<_>>()).grouping(grouping).captures().unwrap().captures
}

/// The numbers of the files of each capture.
fn groups(captures: &[Capture]) -> Vec<Vec<usize>> {
    let number =
        |name: &str| name.rsplit(['/', '\\']).next().unwrap().trim_end_matches(".etl").parse().unwrap();
    let numbers =
        |capture: &Capture| capture.trace.sources().iter().map(|source| number(&source.name)).collect();
    captures.iter().map(numbers).collect()
}

fn grouped(files: &[File]) -> Vec<Vec<usize>> {
    groups(&captures(files, Grouping::ByCapture))
}

const TOGETHER: &[&[usize]] = &[&[0, 1]];
const APART: &[&[usize]] = &[&[0], &[1]];

#[test]
fn header_values_distinguish_machines_and_boots() {
    let relogged_by_32_bit = |session: &mut Session| {
        session.mode = mode(LogFileMode::RELOG);
        session.pointer_size = PointerSize::Four;
    };
    let private_of_32_bit = |session: &mut Session| {
        session.mode = mode(LogFileMode::PRIVATE);
        session.pointer_size = PointerSize::Four;
    };
    let shared_stream = |session: &mut Session| {
        session.mode = mode(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        session.processors = 1;
    };
    let second = TICKS_PER_SECOND;
    for (what, other, expected) in [
        ("nothing", with(|_| {}), TOGETHER),
        ("boot time", with(|session| session.boot_time.0 += 60 * second), APART),
        ("boot time, by a second", with(|session| session.boot_time.0 += second), APART),
        ("boot time, by rounding", with(|session| session.boot_time.0 += second - 1), TOGETHER),
        ("boot time not stated", with(|session| session.boot_time.0 = 0), TOGETHER),
        ("frequency", with(|session| session.perf_frequency = NonZeroU64::new(3_117_777).unwrap()), APART),
        ("build", with(|session| session.build += 1), APART),
        ("build not stated", with(|session| session.build = 0), TOGETHER),
        ("processors", with(|session| session.processors = 8), APART),
        ("processors that share a stream", with(shared_stream), TOGETHER),
        ("pointer size", with(|session| session.pointer_size = PointerSize::Four), APART),
        ("pointer size of a relogger", with(relogged_by_32_bit), TOGETHER),
        ("pointer size of a process", with(private_of_32_bit), TOGETHER),
        ("counter, by less than a second", with(|session| session.start.0 += second / 2), TOGETHER),
        ("counter, by two seconds", with(|session| session.start.0 += 2 * second), APART),
        ("session", with(|session| session.name = "other".to_owned()), TOGETHER),
        (
            "system time instead of the counter",
            with(|session| {
                session.clock = ClockKind::SystemTime;
                session.start = RawTime(session.start_time.0);
            }),
            TOGETHER,
        ),
    ] {
        assert_eq!(grouped(&[usual(), other]), expected, "{what}");
    }
}

#[test]
fn computer_names_distinguish_machines() {
    for (one, other, expected) in [
        (on("ALPHA", usual()), on("BETA", usual()), APART),
        (on("ALPHA", usual()), on("alpha", usual()), TOGETHER),
        (on("ALPHA", usual()), usual(), TOGETHER),
        (on("", usual()), on("BETA", usual()), TOGETHER),
    ] {
        assert_eq!(grouped(&[one, other]), expected);
    }
    let named = captures(&[usual(), on("ALPHA", usual())], Grouping::ByCapture);
    assert_eq!(named[0].machine.computer_name.as_deref(), Some("ALPHA"));
}

#[test]
fn a_single_file_states_its_computer_and_its_last_event() {
    let [capture] = captures(&[on("ALPHA", usual())], Grouping::ByCapture).try_into().unwrap();
    assert_eq!(capture.machine.computer_name.as_deref(), Some("ALPHA"));
    let unfinished = with(|session| session.end_time = Some(FileTime(0)));
    let [capture] = captures(&[unfinished], Grouping::ByCapture).try_into().unwrap();
    assert_eq!(capture.times.1.0 - capture.times.0.0, 10 * TICKS_PER_SECOND);
}

#[test]
fn a_folder_states_the_computer_if_the_file_does_not() {
    for (path, file, expected) in [
        ("host=PC-7.lan/0.etl", usual(), Some("PC-7.lan")),
        ("host=PC-7/0.etl", on("ALPHA", usual()), Some("ALPHA")),
        ("date=2024-01-01/host=a%2Fb%3D%C3%A4/part/0.etl", usual(), Some("a/b=ä")),
        ("host=outer/host=inner/0.etl", usual(), Some("inner")),
        ("host=/0.etl", usual(), None),
        ("ghost=a/0.etl", usual(), None),
        ("host=0.etl", usual(), None),
    ] {
        let [capture] = captures_at([(&file, path.to_owned())], Grouping::ByCapture).try_into().unwrap();
        assert_eq!(capture.machine.computer_name.as_deref(), expected, "{path}");
    }
    let file = usual();
    let files = ["host=a/0.etl", "host=b/1.etl"].map(|path| (&file, path.to_owned()));
    assert_eq!(groups(&captures_at(files, Grouping::ByCapture)), APART);
}

#[test]
fn files_of_one_boot_are_one_capture_if_they_overlap() {
    let at = |after: i64, events: &[i64]| file(session(after), events);
    let rows: [(&[File], &[&[usize]]); 6] = [
        (&[at(0, &[10]), at(5, &[10])], TOGETHER),
        (&[at(0, &[10]), at(11, &[10])], APART),
        // A third file overlaps both.
        (&[at(0, &[10]), at(11, &[20]), at(9, &[3])], &[&[0, 1, 2]]),
        // Captures are sorted by start, independent of the order of the files.
        (&[at(50, &[1]), at(20, &[1]), at(0, &[1]), at(20, &[1])], &[&[2], &[1, 3], &[0]]),
        // The session began before its first event.
        (&[at(0, &[10]), at(5, &[100])], TOGETHER),
        (&[at(0, &[]), at(0, &[])], TOGETHER),
    ];
    for (files, expected) in rows {
        assert_eq!(grouped(files), expected);
    }
}

#[test]
fn the_last_event_determines_the_end_of_a_session() {
    // The header states that it ended long ago, or has no end; its last event decides.
    for end_time in [0, 1, i64::MAX] {
        let mut early = file(session(0), &[10]);
        early.session.end_time = Some(FileTime(end_time));
        assert_eq!(grouped(&[early, file(session(8), &[10])]), TOGETHER, "{end_time}");
        let mut early = file(session(0), &[10]);
        early.session.end_time = Some(FileTime(end_time));
        assert_eq!(grouped(&[early, file(session(20), &[10])]), APART, "{end_time}");
    }
}

#[test]
fn a_series_of_files_is_one_capture() {
    let part = |after: i64, first: i64, name: &str| {
        let mut part = file(session(after), &[10]);
        part.session.mode = LogFileMode::NEW_FILE;
        part.session.first_sequence_number = first;
        part.session.name = name.to_owned();
        part
    };
    // Each of these has one data buffer.
    for (files, expected) in [
        ([part(0, 1, "a"), part(20, 2, "a")], TOGETHER),
        ([part(20, 2, "a"), part(0, 1, "a")], TOGETHER),
        ([part(0, 1, "a"), part(20, 3, "a")], APART),
        ([part(0, 1, "a"), part(20, 1, "a")], APART),
        ([part(0, 1, "a"), part(20, 2, "b")], APART),
        ([part(0, 2, "a"), part(20, 1, "a")], APART),
        ([part(0, 1, "a"), file(session(20), &[10])], APART),
    ] {
        assert_eq!(grouped(&files), expected);
    }
}

#[test]
fn a_source_that_fits_two_machines_is_a_capture_of_its_own() {
    let unknown = || with(|session| session.build = 0);
    let other = || with(|session| session.build = 1);
    let alone: &[&[usize]] = &[&[0], &[1], &[2]];
    assert_eq!(grouped(&[usual(), unknown(), other()]), alone);
    assert_eq!(grouped(&[unknown(), usual(), other()]), alone);
    // If the other machine's capture has another time, the source is not ambiguous.
    let mut later = other();
    later.session.start = session(50).start;
    later.session.start_time = session(50).start_time;
    assert_eq!(grouped(&[usual(), unknown(), later]), [vec![0, 1], vec![2]]);
}

#[test]
fn grouping_can_be_overridden() {
    let files = || [usual(), on("BETA", with(|session| session.boot_time.0 = 1)), usual()];
    assert_eq!(grouped(&files()), [vec![0, 2], vec![1]]);
    assert_eq!(groups(&captures(&files(), Grouping::Merge)), [[0, 1, 2]]);
    assert_eq!(groups(&captures(&files(), Grouping::Separate)), [[0], [1], [2]]);
}

#[test]
fn captures_do_not_depend_on_the_order_of_files() {
    let files = || {
        vec![
            file(session(0), &[10]),
            with(|session| session.build = 7),
            file(session(5), &[10]),
            file(session(30), &[10]),
            on("BETA", with(|session| session.build = 0)),
        ]
    };
    let expected = grouped(&files());
    let count = files().len();
    for turn in 1..count {
        let mut turned = files();
        turned.rotate_left(turn);
        let mut found = grouped(&turned);
        for group in &mut found {
            group.iter_mut().for_each(|at| *at = (*at + turn) % count);
            group.sort_unstable();
        }
        let sorted = |mut groups: Vec<Vec<usize>>| {
            groups.sort();
            groups
        };
        assert_eq!(sorted(found), sorted(expected.clone()), "{turn}");
    }
}

#[test]
fn several_captures_are_not_opened_as_one_trace() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, file: File| std::fs::write(directory.path().join(name), file.make()).unwrap();
    write("a.etl", usual());
    write("b.etl", on("BETA", with(|session| session.build = 7)));
    let trace_files = TraceFiles::file(directory.path());
    let error = trace_files.open().unwrap_err();
    assert!(matches!(error, Error::SeveralCaptures { count: 2, .. }), "{error}");
    let text = error.to_string().replace(&format!("{}/", directory.path().display()), "");
    assert_eq!(text, "the files are 2 captures, which cannot be read as one trace: (a.etl) (b.etl)");
    assert_eq!(trace_files.clone().grouping(Grouping::Merge).open().unwrap().sources().len(), 2);
    let captures = trace_files.captures().unwrap().captures;
    let text = captures[1].to_string().replace(&format!("{}/", directory.path().display()), "");
    assert_eq!(
        text,
        "BETA, booted 2023-12-31T23:58:20.0000000Z, build 7, 4 processors, 64-bit; 2024-01-01T00:00:00.0000000Z to \
         2024-01-01T00:00:10.0000000Z; b.etl"
    );
}
