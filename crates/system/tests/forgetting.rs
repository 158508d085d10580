//! Only the intended state is forgotten: a system that keeps everything and one that forgets get
//! the same statements and the same queries.

use proptest::prelude::*;
use stackhound_system::{
    AllocationEvent, AllocationFacts, Completeness, FileKey, FileNameEvent, FileObject, Gap, KeyControlBlock,
    KeyNameEvent, Limits, MethodFacts, ModuleFacts, Phase, ProcessFacts, Protection, Runtime, System,
    ThreadFacts, ThreadRef, ViewFacts,
};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, PointerSize, Tid};

const PIDS: std::ops::Range<u32> = 6..10;
const TIDS: std::ops::Range<u32> = 20..28;
const LOCATIONS: std::ops::Range<u64> = 0..6;
const KEYS: std::ops::Range<u64> = 1..9;

#[derive(Clone, Copy, Debug)]
enum About {
    Process,
    Thread,
    ThreadName,
    Module,
    Method,
    ManagedModule,
    Memory(u32),
    View,
    FileKey,
    FileObject,
    RegistryKey,
}

/// A statement. Each field is used only where it applies.
#[derive(Clone, Copy, Debug)]
struct Statement {
    about: About,
    phase: Phase,
    pid: u32,
    tid: u32,
    location: u64,
    pages: u64,
    key: u64,
    name: u32,
}

fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![
        6 => Just(Phase::Start),
        6 => Just(Phase::End),
        1 => Just(Phase::RundownAtStart),
        1 => Just(Phase::RundownAtEnd),
    ]
}

fn statements() -> impl Strategy<Value = Statement> {
    let about = prop_oneof![
        Just(About::Process),
        Just(About::Thread),
        Just(About::ThreadName),
        Just(About::Module),
        Just(About::Method),
        prop_oneof![Just(0x1000), Just(0x2000), Just(0x3000), Just(0x4000), Just(0x8000)]
            .prop_map(About::Memory),
        Just(About::ManagedModule),
        Just(About::View),
        Just(About::FileKey),
        Just(About::FileObject),
        Just(About::RegistryKey),
    ];
    let parts = (about, phases(), PIDS, TIDS, LOCATIONS, 1u64..4, KEYS, 0u32..60);
    parts.prop_map(|(about, phase, pid, tid, location, pages, key, name)| Statement {
        about,
        phase,
        pid,
        tid,
        location,
        pages,
        key,
        name,
    })
}

fn apply(system: &mut System, time: TraceTime, statement: Statement) {
    let Statement { about, phase, pid, tid, location, pages, key, name } = statement;
    let (pid, tid) = (Pid(pid), Tid(tid));
    let (base, size) = (Address(location * 0x1000), pages * 0x1000);
    let name = &*format!("\\Device\\HarddiskVolume1\\a file of no importance {name}");
    match about {
        About::Process => {
            let facts = ProcessFacts { image_name: name, ..ProcessFacts::of(pid) };
            system.take_process(phase, time, &facts);
        }
        About::Thread => {
            let facts = ThreadFacts { name, ..ThreadFacts::default() };
            system.take_thread(phase, time, (pid, tid), &facts);
        }
        About::ThreadName => system.take_thread_name(time, (pid, tid), name),
        About::Module => {
            let (time_date_stamp, checksum) = (None, None);
            let facts = ModuleFacts { pid, base, size, time_date_stamp, checksum, path: name };
            system.take_module(phase, time, &facts);
        }
        About::Method => {
            let (id, namespace, signature) = (key, "a", "b");
            let runtime = Runtime::Clr;
            let facts = MethodFacts {
                pid,
                runtime,
                id,
                module_id: key,
                start: base,
                size,
                namespace,
                name,
                signature,
            };
            system.take_method(phase, time, &facts);
        }
        About::ManagedModule => system.take_managed_module(phase, time, pid, key, name),
        About::Memory(flags) => {
            let event = match (phase, flags) {
                (Phase::RundownAtStart | Phase::RundownAtEnd, _) => AllocationEvent::Rundown,
                (_, 0x4000..) => AllocationEvent::Free,
                _ => AllocationEvent::Allocate,
            };
            system.take_allocation(event, time, &AllocationFacts { pid, base, size, flags, by: None });
        }
        About::View => {
            let (file, protection) = (FileKey(key), Protection::of_section(1));
            system.take_view(phase, time, &ViewFacts { pid, base, size, file, protection });
        }
        About::FileKey => {
            let key = FileKey(key);
            let event = match phase {
                Phase::Start => FileNameEvent::Create(key),
                Phase::End => FileNameEvent::Delete(key),
                _ => FileNameEvent::Rundown(key),
            };
            system.take_file_name(event, time, name);
        }
        About::FileObject => match phase {
            Phase::End => system.take_file_name(FileNameEvent::Close(FileObject(key)), time, ""),
            _ => system.take_file_name(FileNameEvent::Open(FileObject(key)), time, name),
        },
        About::RegistryKey => {
            let event = match phase {
                Phase::Start => KeyNameEvent::Create,
                Phase::End => KeyNameEvent::Delete,
                _ => KeyNameEvent::Rundown,
            };
            system.take_key_name(event, time, KeyControlBlock(key), name);
        }
    }
}

/// Whether a statement refers to state that was over long ago: the end of an object in a process
/// that no longer exists, or a statement about a thread whose process no longer exists. Real
/// statements of this kind follow the end of the process soon, or not at all.
fn is_too_late(whole: &System, time: TraceTime, known: TraceTime, statement: Statement) -> bool {
    let Statement { about, phase, pid, tid, .. } = statement;
    let is_end = phase == Phase::End || matches!(about, About::Memory(0x4000..));
    let is_old = |thread: ThreadRef<'_>| thread.process().span().to < known;
    match about {
        About::Process => false,
        About::Thread if phase == Phase::Start => false,
        About::Thread | About::ThreadName if whole.thread_at(Tid(tid), time).is_some_and(is_old) => true,
        _ => is_end && whole.process_at(Pid(pid), time).is_none(),
    }
}

/// All answers about a time that do not need state that was over before `known`. `whole` keeps
/// everything.
fn answers(system: &System, whole: &System, time: TraceTime, known: TraceTime) -> Vec<String> {
    let mut all = Vec::new();
    for pid in PIDS.map(Pid) {
        let process = system.process_at(pid, time);
        all.push(format!("{pid}: {:?}", process.map(|process| (process.span(), process.image_name()))));
        if whole.process_of_event(pid, time).is_some_and(|process| process.span().to >= known) {
            let process = system.process_of_event(pid, time);
            all.push(format!("{pid} of event: {:?}", process.map(|process| process.span())));
        }
        all.push(format!("{pid}: {:?}", system.map_complete(pid, time)));
        let Some(process) = process.map(|process| process.id()) else { continue };
        for address in (0..9).map(|location| Address(location * 0x1000 + 4)) {
            let module = system.module_at(pid, address, time);
            let module = module.map(|(module, rva)| (module.base(), module.path(), module.span(), rva));
            let method = system.method_in(process, address, time);
            let method = method
                .map(|method| (method.start(), method.to_string(), method.since(), method.il_module(time).0));
            let region = system.region_at(pid, address, time);
            let view = system.view_in(process, address, time);
            all.push(format!("{pid} {address}: {module:?} {method:?} {region:?} {view:?}"));
        }
    }
    for tid in TIDS.map(Tid) {
        // A thread is forgotten with its process.
        let is_there = |thread: &ThreadRef<'_>| thread.process().span().to >= known;
        if whole.thread_at(tid, time).is_none_or(|thread| is_there(&thread)) {
            let thread = system.thread_at(tid, time);
            all.push(format!("{tid}: {:?}", thread.map(|thread| (thread.pid(), thread.name_at(time)))));
        }
    }
    for key in KEYS {
        let by_key = system.file_name(Some(FileKey(key)), None, time);
        let by_both = system.file_name(Some(FileKey(key)), Some(FileObject(key)), time);
        let path = system.registry_path(KeyControlBlock(key), "", time);
        all.push(format!("{key}: {by_key:?} {by_both:?} {path}"));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn state_that_is_not_over_is_kept(
        steps in proptest::collection::vec((0i64..3, statements()), 0..500),
        every in 1usize..60,
        back in 1i64..60,
        is_limited: bool,
    ) {
        let new = || System::new(PointerSize::Eight);
        let mut whole = new();
        let mut forgetful = if is_limited { new().limited(Limits::default()) } else { new() };
        let (mut now, mut known) = (TraceTime(0), TraceTime(i64::MIN));
        for (number, (wait, statement)) in steps.into_iter().enumerate() {
            now.0 += wait;
            if is_too_late(&whole, now, known, statement) {
                continue;
            }
            apply(&mut whole, now, statement);
            apply(&mut forgetful, now, statement);
            if number % every == every - 1 {
                known = known.max(TraceTime(now.0 - back));
                forgetful.forget_before(known);
                for time in [known.0, known.0 + 1, known.0 + back / 2, now.0, now.0 + 1].map(TraceTime) {
                    let expected = answers(&whole, &whole, time, known);
                    for (found, expected) in answers(&forgetful, &whole, time, known).iter().zip(&expected) {
                        prop_assert_eq!(found, expected, "at {}, known from {}", time.0, known.0);
                    }
                }
            }
        }
        // Everything that is still listed can be queried.
        for process in forgetful.processes() {
            prop_assert!(process.span().to >= known);
        }
        prop_assert!(forgetful.threads().all(|thread| thread.process().span().to >= known));
        prop_assert!(forgetful.modules().all(|module| module.span().from <= now));
        prop_assert!(forgetful.methods().all(|method| method.process().span().to >= known));
        prop_assert_eq!(forgetful.stats().forgotten_early.is_any(), false);
    }
}

fn system() -> System {
    System::new(PointerSize::Eight)
}

#[test]
fn ids_of_forgotten_objects_are_not_reused() {
    let mut system = system();
    let facts = |pid| ProcessFacts { image_name: "a.exe", ..ProcessFacts::of(Pid(pid)) };
    let module = |pid| ModuleFacts {
        pid: Pid(pid),
        base: Address(0x1000),
        size: 0x1000,
        time_date_stamp: None,
        checksum: None,
        path: "a.dll",
    };
    let old = system.take_process(Phase::Start, TraceTime(10), &facts(6));
    let old_module = system.take_module(Phase::Start, TraceTime(11), &module(6)).unwrap();
    system.take_process(Phase::End, TraceTime(20), &facts(6));
    system.forget_before(TraceTime(21));
    assert_eq!((system.modules().count(), system.stats().forgotten), (0, 2));
    let new = system.take_process(Phase::Start, TraceTime(30), &facts(7));
    let new_module = system.take_module(Phase::Start, TraceTime(31), &module(7)).unwrap();
    assert_eq!((new.index(), new_module.index()), (old.index(), old_module.index()));
    assert!(new != old && new_module != old_module);
    assert!(system.module_in(new, Address(0x1000), TraceTime(31)).is_some());
    assert!(system.module_in(old, Address(0x1000), TraceTime(31)).is_none());
    assert_eq!(system.map_complete_in(old, TraceTime(31)), Completeness::Incomplete(Gap::UnknownProcess));
    let listed: Vec<_> = system.processes().map(|process| process.id()).collect();
    assert!(listed.contains(&new) && !listed.contains(&old));
}

#[test]
fn a_flood_of_names_drops_the_oldest() {
    let limits = Limits { file_names: 2_000, key_names: 1_000, thread_names: 500, ..Limits::default() };
    let mut system = system().limited(limits);
    const COUNT: u64 = 20_000;
    for n in 0..COUNT {
        let time = TraceTime(n as i64);
        system.take_file_name(FileNameEvent::Create(FileKey(n)), time, &format!("file {n}"));
        system.take_file_name(FileNameEvent::Open(FileObject(n)), time, &format!("open {n}"));
        system.take_key_name(KeyNameEvent::Create, time, KeyControlBlock(n + 1), &format!("key {n}"));
        system.take_thread_name(time, (Pid(6), Tid(20)), &format!("thread {n}"));
    }
    let end = TraceTime(COUNT as i64);
    let file = |n| system.file_name(Some(FileKey(n)), None, end);
    let open = |n| system.file_name(None, Some(FileObject(n)), end);
    let key = |n| system.registry_path(KeyControlBlock(n + 1), "", end).key;
    assert_eq!((file(COUNT - 1), open(COUNT - 1)), (Some("file 19999"), Some("open 19999")));
    assert_eq!((key(COUNT - 1), key(0), file(0), open(0)), (Some("key 19999"), None, None, None));
    assert_eq!(system.thread_at(Tid(20), end).unwrap().name_at(end), "thread 19999");
    let early = system.stats().forgotten_early;
    assert_eq!((0..COUNT).filter(|&n| file(n).is_some()).count() as u64, COUNT - early.file_names / 2);
    // The remainder after a check, and the additions of a thousand statements.
    for (forgotten, stated, limit) in [
        (early.file_names, 2 * COUNT, 2_000),
        (early.key_names, COUNT, 1_000),
        (early.thread_names, COUNT, 500),
    ] {
        assert!(
            forgotten <= stated - limit / 2 && forgotten >= stated - limit - 1024,
            "{forgotten} of {stated}"
        );
    }
}

#[test]
fn a_flood_in_one_process_costs_only_that_process() {
    let limits =
        Limits { modules: 2_000, methods: 2_000, allocations: 2_000, views: 2_000, ..Limits::default() };
    let mut system = system().limited(limits);
    for (pid, count) in [(6, 20), (7, 10_000), (8, 20)] {
        let time = |n: u64| TraceTime(n as i64);
        system.take_process(Phase::Start, time(0), &ProcessFacts::of(Pid(pid)));
        for n in 1..=count {
            let statement = |about, phase| Statement {
                about,
                phase,
                pid,
                tid: 20,
                location: n * 16,
                pages: 1,
                key: 1,
                name: 1,
            };
            for about in [About::Module, About::Method, About::Memory(0x3000), About::View] {
                apply(&mut system, time(n), statement(about, Phase::Start));
            }
        }
    }
    let (now, address) = (TraceTime(20_000), Address(16 * 0x1000));
    for (pid, is_known) in [(6, true), (7, false), (8, true)] {
        let process = system.process_at(Pid(pid), now).unwrap().id();
        assert_eq!(system.module_at(Pid(pid), address, now).is_some(), is_known);
        assert_eq!(system.method_in(process, address, now).is_some(), is_known);
        assert_eq!(system.view_in(process, address, now).is_some(), is_known);
        assert_eq!(system.region_in(process, address, now).is_some(), is_known);
        let gap = Completeness::Incomplete(Gap::Forgotten);
        assert_eq!(system.map_complete_in(process, now), if is_known { Completeness::Complete } else { gap });
    }
    let early = system.stats().forgotten_early;
    for forgotten in [early.modules, early.methods, early.allocations, early.views] {
        assert!((8_000..10_000).contains(&forgotten), "{early:?}");
    }
    assert!(system.modules().count() < 3_100 && system.methods().count() < 3_100);
}

#[test]
fn texts_have_a_limit_of_their_own() {
    let mut system = system().limited(Limits { text_bytes: 1 << 20, ..Limits::default() });
    let long = |n: u64| format!("{n:01000}");
    // Command lines of existing processes cannot be forgotten.
    for n in 0..2_000 {
        let facts = ProcessFacts { command_line: &long(n), ..ProcessFacts::of(Pid(n as u32 + 8)) };
        system.take_process(Phase::Start, TraceTime(n as i64), &facts);
    }
    let known = system.processes().filter(|process| !process.command_line().is_empty()).count() as u64;
    assert!((900..=1_048).contains(&known), "{known}");
    assert_eq!(system.stats().forgotten_early.texts, 2_000 - known);
    // After their end, there is space again.
    for n in 0..2_000 {
        system.take_process(Phase::End, TraceTime(2_000), &ProcessFacts::of(Pid(n + 8)));
    }
    system.forget_before(TraceTime(3_000));
    system.take_file_name(FileNameEvent::Create(FileKey(1)), TraceTime(3_000), &long(7));
    assert_eq!(system.file_name(Some(FileKey(1)), None, TraceTime(3_000)), Some(&*long(7)));
}
