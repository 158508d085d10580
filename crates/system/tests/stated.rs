//! The times of statements, and the statements of two sources about one process.

use stackhound_system::{
    FileKey, FileNameEvent, FileObject, Phase, ProcessDetails, ProcessFacts, ProcessId, System,
};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, FileTime, Pid, PointerSize};

const KEY: FileKey = FileKey(0x100);

fn system() -> System {
    System::new(PointerSize::Eight)
}

fn name_at(system: &System, object: u64, time: i64) -> Option<(String, i64)> {
    let mut names = system.file_names(Some(KEY), Some(FileObject(object)), TraceTime(time));
    names.next().map(|name| (name.text.to_owned(), name.stated.0))
}

#[test]
fn a_renamed_file_has_no_name_until_one_is_stated() {
    let mut system = system();
    let mut take = |event, time, name| system.take_file_name(event, TraceTime(time), name);
    take(FileNameEvent::Open(FileObject(1)), 10, r"\old");
    take(FileNameEvent::Create(KEY), 11, r"\old");
    take(FileNameEvent::Rename(KEY), 20, "");
    take(FileNameEvent::Open(FileObject(2)), 30, r"\new");
    take(FileNameEvent::Rundown(KEY), 50, r"\newest");
    let named = |name: &str, stated| Some((name.to_owned(), stated));
    let rows = [
        // Before the key has a name, the open has one.
        (1, 10, named(r"\old", 10)),
        (1, 11, named(r"\old", 11)),
        (1, 20, named(r"\old", 11)),
        // An open from before the renaming has no name of its own any more.
        (1, 25, named(r"\newest", 50)),
        (2, 30, named(r"\new", 30)),
        (2, 50, named(r"\newest", 50)),
        (1, 60, named(r"\newest", 50)),
    ];
    for (object, time, expected) in rows {
        assert_eq!(name_at(&system, object, time), expected, "open {object} at {time}");
    }
}

fn facts(key: Option<u64>) -> ProcessFacts<'static> {
    ProcessFacts {
        key: key.map(Address),
        parent: Some(Pid(4)),
        image_name: "backgroundTaskHost.exe",
        ..ProcessFacts::of(Pid(100))
    }
}

fn take(system: &mut System, phase: Phase, time: i64, key: Option<u64>) -> ProcessId {
    system.take_process(phase, TraceTime(time), &facts(key))
}

#[test]
fn only_statements_with_the_same_object_confirm_a_process() {
    let times = |system: &System, id| system.process(id).observed().map(|(first, last)| (first.0, last.0));
    let mut system = system();
    let first = take(&mut system, Phase::Start, 10, Some(0x1000));
    assert_eq!(times(&system, first), Some((10, 10)));
    // A statement without the object can be about another process with the same id.
    take(&mut system, Phase::RundownAtEnd, 20, None);
    assert_eq!(times(&system, first), Some((10, 10)));
    take(&mut system, Phase::RundownAtEnd, 30, Some(0x1000));
    assert_eq!(times(&system, first), Some((10, 30)));
    let second = take(&mut system, Phase::RundownAtEnd, 40, Some(0x2000));
    assert!(first != second);
    assert_eq!((times(&system, first), times(&system, second)), (Some((10, 30)), Some((40, 40))));
}

fn take_details(system: &mut System, time: i64, integrity: u32) -> ProcessId {
    let details = ProcessDetails {
        create_time: FileTime(time),
        integrity: Some(integrity),
        path: r"\Device\HarddiskVolume3\backgroundTaskHost.exe",
    };
    let facts = ProcessFacts { image_name: "backgroundTaskHost.exe", ..facts(None) };
    system.take_process_details(Phase::Start, TraceTime(time), &facts, &details)
}

#[test]
fn two_sources_report_one_start() {
    for provider_first in [false, true] {
        let mut system = system();
        let mut processes = Vec::new();
        for (number, time) in [10, 20, 30].into_iter().enumerate() {
            let key = Some(0x1000 * (number as u64 + 1));
            let one = match provider_first {
                true => take_details(&mut system, time, number as u32),
                false => take(&mut system, Phase::Start, time, key),
            };
            let other = match provider_first {
                true => take(&mut system, Phase::Start, time + 1, key),
                false => take_details(&mut system, time + 1, number as u32),
            };
            assert_eq!(one, other, "start {number}, provider first: {provider_first}");
            assert_eq!(system.process(one).integrity(), Some(number as u32));
            processes.push(one);
        }
        processes.dedup();
        assert_eq!(processes.len(), 3);
    }
}
