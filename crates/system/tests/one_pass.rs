//! An answer about the current time stays the same when all events are known, unless the required
//! facts were not recorded by that time, or later ones contradict them.

use std::ops::Range;

use proptest::prelude::*;
use stackhound_system::{
    FileKey, FileNameEvent, ModuleFacts, ModuleId, Phase, ProcessFacts, ProcessId, System, ThreadFacts,
    ThreadId,
};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, PointerSize, Tid};

const TIDS: Range<u32> = 20..22;

#[derive(Clone, Copy, Debug)]
enum Statement {
    Process(Phase, Pid),
    Thread(Phase, Pid, Tid),
    ThreadOwner(Pid, Tid),
    Module(Phase, Pid, u64, u64),
    File(fn(FileKey) -> FileNameEvent, FileKey, &'static str),
}

fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![
        3 => Just(Phase::Start),
        3 => Just(Phase::End),
        1 => Just(Phase::RundownAtStart),
        1 => Just(Phase::RundownAtEnd),
    ]
}

fn statements() -> impl Strategy<Value = Statement> {
    let pids = || (6u32..8).prop_map(Pid);
    let file_event = prop_oneof![
        Just(FileNameEvent::Create as fn(FileKey) -> FileNameEvent),
        Just(FileNameEvent::Delete as fn(FileKey) -> FileNameEvent),
        Just(FileNameEvent::Rundown as fn(FileKey) -> FileNameEvent),
    ];
    prop_oneof![
        (phases(), pids()).prop_map(|(phase, pid)| Statement::Process(phase, pid)),
        (phases(), pids(), TIDS).prop_map(|(phase, pid, tid)| Statement::Thread(phase, pid, Tid(tid))),
        (pids(), TIDS).prop_map(|(pid, tid)| Statement::ThreadOwner(pid, Tid(tid))),
        (phases(), pids(), 0u64..4, 1u64..4).prop_map(|(phase, pid, base, size)| {
            Statement::Module(phase, pid, base * 0x1000, size * 0x1000)
        }),
        (file_event, 0u64..2, prop_oneof![Just("a"), Just("b")])
            .prop_map(|(event, key, name)| Statement::File(event, FileKey(key), name)),
    ]
}

fn apply(system: &mut System, time: TraceTime, statement: Statement) {
    match statement {
        Statement::Process(phase, pid) => {
            system.take_process(phase, time, &ProcessFacts::of(pid));
        }
        Statement::Thread(phase, pid, tid) => {
            system.take_thread(phase, time, (pid, tid), &ThreadFacts::default());
        }
        Statement::ThreadOwner(pid, tid) => system.take_thread_owner(time, pid, tid),
        Statement::Module(phase, pid, base, size) => {
            let (base, checksum) = (Address(base), None);
            let facts = ModuleFacts { pid, base, size, time_date_stamp: None, checksum, path: "a.dll" };
            system.take_module(phase, time, &facts);
        }
        Statement::File(event, key, name) => system.take_file_name(event(key), time, name),
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Answers {
    processes: Vec<Option<ProcessId>>,
    threads: Vec<Option<ThreadId>>,
    modules: Vec<Option<(ModuleId, u64)>>,
    files: Vec<Option<String>>,
}

fn ask(system: &System, time: TraceTime) -> Answers {
    let module = |pid: Pid, page: u64| {
        let found = system.module_at(pid, Address(page * 0x1000), time);
        found.map(|(module, rva)| (module.id(), rva))
    };
    Answers {
        processes: (6..8).map(|pid| Some(system.process_at(Pid(pid), time)?.id())).collect(),
        threads: TIDS.map(|tid| Some(system.thread_at(Tid(tid), time)?.id())).collect(),
        modules: (6..8).flat_map(|pid| (0..8).map(move |page| module(Pid(pid), page))).collect(),
        files: (0..2).map(|key| Some(system.file_name(Some(FileKey(key)), None, time)?.to_owned())).collect(),
    }
}

fn keeps<T: PartialEq>(now: &[Option<T>], then: &[Option<T>]) -> bool {
    now.iter().zip(then).all(|(now, then)| now.is_none() || now == then)
}

proptest! {
    #[test]
    fn answers_do_not_change(steps in proptest::collection::vec((0i64..3, statements()), 0..120)) {
        let mut system = System::new(PointerSize::Eight);
        let (mut time, mut answered) = (TraceTime(0), Vec::new());
        for (wait, statement) in steps {
            if wait > 0 {
                answered.push((time, ask(&system, time)));
                time.0 += wait;
            }
            apply(&mut system, time, statement);
        }
        for (time, now) in answered {
            let then = ask(&system, time);
            prop_assert!(keeps(&now.processes, &then.processes), "{:?}: {:?} {:?}", time, now, then);
            for (index, tid) in TIDS.enumerate() {
                let is_kept = keeps(&now.threads[index..=index], &then.threads[index..=index]);
                // Later events can state that the thread is one of the next process with the id.
                let is_over = now.threads[index].is_some_and(|thread| {
                    system.thread(thread).process().span().to <= time
                });
                let is_kept = is_kept || is_over || system.is_thread_uncertain(Tid(tid), time);
                prop_assert!(is_kept, "{:?}: {:?} {:?}", time, now, then);
            }
            prop_assert!(keeps(&now.modules, &then.modules), "{:?}: {:?} {:?}", time, now, then);
            prop_assert!(keeps(&now.files, &then.files), "{:?}: {:?} {:?}", time, now, then);
        }
    }
}
