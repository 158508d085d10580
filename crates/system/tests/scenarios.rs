//! Small scripts about a machine, in a notation of statements and queries.
//!
//! A line that begins with a time is a statement. A line that begins with `ask` is a query that is
//! run twice: at that point of the script, and again after all statements. `now` is run only at
//! that point, `then` only after all statements.

use stackhound_system::{
    Allocation, AllocationEvent, AllocationFacts, Caller, Completeness, Evidence, FileKey, FileNameEvent,
    FileObject, Gap, KeyControlBlock, KeyNameEvent, MethodFacts, ModuleFacts, Phase, ProcessFacts,
    Protection, Runtime, Span, System, ThreadFacts, ViewFacts,
};
use stackhound_trace::{LossMap, TraceTime};
use stackhound_types::{Address, Guid, PdbIdentity, Pid, PointerSize, Tid};

/// One line, split into words.
struct Line<'a> {
    text: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Line<'a> {
        Line { text, words: text.split_whitespace().collect() }
    }

    /// The value of `name=value`.
    fn value(&self, name: &str) -> Option<&'a str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name).map(number)
    }

    fn need(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{name} is missing in: {}", self.text))
    }

    fn pid(&self) -> Pid {
        Pid(self.need("pid") as u32)
    }

    fn tid(&self) -> Tid {
        Tid(self.need("tid") as u32)
    }

    fn time(&self) -> TraceTime {
        let time = self.words.iter().find_map(|word| word.strip_prefix('@'));
        TraceTime(time.unwrap_or_else(|| panic!("no time in: {}", self.text)).parse().unwrap())
    }

    fn by(&self) -> Option<Caller> {
        let (pid, tid) = self.value("by")?.split_once('/').unwrap();
        Some(Caller { pid: Pid(number(pid) as u32), tid: Tid(number(tid) as u32) })
    }

    /// `0x1000+0x100`, or an address alone.
    fn extent(&self) -> (Address, u64) {
        let word = self.words.iter().find(|word| word.starts_with("0x"));
        let word = word.unwrap_or_else(|| panic!("no address in: {}", self.text));
        let (base, size) = word.split_once('+').unwrap_or((word, "0"));
        (Address(number(base)), number(size))
    }

    /// The last word, if it has no other meaning.
    fn name(&self) -> &'a str {
        let last = self.words[self.words.len() - 1];
        if self.words.len() > 3 && !last.contains('=') && !last.starts_with("0x") { last } else { "" }
    }

    fn phase(&self) -> Phase {
        match self.words[2] {
            "start" | "load" | "map" => Phase::Start,
            "end" | "unload" | "unmap" => Phase::End,
            "dcstart" => Phase::RundownAtStart,
            "dcend" => Phase::RundownAtEnd,
            word => panic!("unknown word {word}: {}", self.text),
        }
    }
}

fn number(text: &str) -> u64 {
    text.strip_prefix("0x").map_or_else(|| text.parse().unwrap(), |hex| u64::from_str_radix(hex, 16).unwrap())
}

fn apply(system: &mut System, line: &Line<'_>) {
    let time = line.time();
    match (line.words[1], line.words[2]) {
        ("process", word) => {
            let facts = ProcessFacts {
                parent: line.number("parent").map(|pid| Pid(pid as u32)),
                key: line.number("key").map(Address),
                exit_status: line.number("exit").map(|status| status as u32),
                image_name: line.name(),
                creator: line.by(),
                ..ProcessFacts::of(line.pid())
            };
            match word {
                "defunct" => system.take_defunct_process(time, &facts),
                _ => system.take_process(line.phase(), time, &facts),
            };
        }
        // An event of the thread, or the record of its stack.
        ("thread", "event") => system.take_thread_owner(time, line.pid(), line.tid()),
        ("thread", "name") => system.take_thread_name(time, (line.pid(), line.tid()), line.name()),
        ("thread", _) => {
            let facts = ThreadFacts { name: line.name(), creator: line.by(), ..ThreadFacts::default() };
            system.take_thread(line.phase(), time, (line.pid(), line.tid()), &facts);
        }
        ("image", _) => {
            let (base, size) = line.extent();
            let time_date_stamp = line.number("stamp").map(|stamp| stamp as u32);
            let (pid, path) = (line.pid(), line.name());
            let checksum = time_date_stamp.map(|stamp| stamp + 1);
            let facts = ModuleFacts { pid, base, size, time_date_stamp, checksum, path };
            system.take_module(line.phase(), time, &facts);
        }
        ("pdb", number) => {
            let guid = Guid::new(number.parse().unwrap(), 0, 0, [0; 8]);
            let pdb = PdbIdentity { guid, age: 1, name: line.name() };
            system.take_pdb(time, line.pid(), line.extent().0, &pdb);
        }
        ("memory", word) => {
            let event = match word {
                "alloc" => AllocationEvent::Allocate,
                "free" => AllocationEvent::Free,
                "rundown" => AllocationEvent::Rundown,
                word => panic!("unknown word {word}: {}", line.text),
            };
            let flags = [("commit", 0x1000), ("reserve", 0x2000), ("decommit", 0x4000), ("release", 0x8000)];
            let has = |name: &str| line.name().split(',').any(|word| word == name);
            let flags = flags.iter().filter(|(name, _)| has(name)).map(|(_, flag)| flag).sum();
            let (base, size) = line.extent();
            let facts = AllocationFacts { pid: line.pid(), base, size, flags, by: line.by() };
            system.take_allocation(event, time, &facts);
        }
        ("method", _) => {
            let (start, size) = line.extent();
            let (namespace, name) = line.name().rsplit_once('.').unwrap_or(("", line.name()));
            let (pid, runtime) = (line.pid(), Runtime::Clr);
            let module_id = line.number("il").unwrap_or(0);
            let (id, signature) = (0, "");
            let facts = MethodFacts { pid, runtime, id, module_id, start, size, namespace, name, signature };
            system.take_method(line.phase(), time, &facts);
        }
        ("il", _) => {
            system.take_managed_module(line.phase(), time, line.pid(), line.need("il"), line.name());
        }
        ("view", _) => {
            let (base, size) = line.extent();
            let file = FileKey(line.number("key").unwrap_or(0));
            let protection = Protection::of_section(line.number("protection").unwrap_or(1) as u8);
            system.take_view(
                line.phase(),
                time,
                &ViewFacts { pid: line.pid(), base, size, file, protection },
            );
        }
        ("file", word) => {
            let event = match word {
                "create" => FileNameEvent::Create(FileKey(line.need("key"))),
                "delete" => FileNameEvent::Delete(FileKey(line.need("key"))),
                "rundown" => FileNameEvent::Rundown(FileKey(line.need("key"))),
                "open" => FileNameEvent::Open(FileObject(line.need("object"))),
                "close" => FileNameEvent::Close(FileObject(line.need("object"))),
                word => panic!("unknown word {word}: {}", line.text),
            };
            system.take_file_name(event, time, line.name());
        }
        ("key", word) => {
            let event = match word {
                "create" => KeyNameEvent::Create,
                "delete" => KeyNameEvent::Delete,
                "rundown" => KeyNameEvent::Rundown,
                word => panic!("unknown word {word}: {}", line.text),
            };
            system.take_key_name(event, time, KeyControlBlock(line.need("kcb")), line.name());
        }
        word => panic!("unknown words {word:?}: {}", line.text),
    }
}

/// `10..20`, with `-` for an end outside of the trace, marked with `s` or `e` if a rundown is the
/// evidence, `?` if there is none.
fn render_span(span: Span) -> String {
    let end = |time: TraceTime, evidence| {
        let mark = match evidence {
            Evidence::Observed => "",
            Evidence::RundownAtStart => "s",
            Evidence::RundownAtEnd => "e",
            Evidence::Unknown => "?",
        };
        let outside = [Span::BEGINNING, Span::OPEN].contains(&time);
        if outside { format!("-{mark}") } else { format!("{}{mark}", time.0) }
    };
    format!("{}..{}", end(span.from, span.start), end(span.to, span.end))
}

fn render_caller(caller: Option<Caller>) -> String {
    caller.map_or(String::new(), |Caller { pid, tid }| format!(" by {pid}/{tid}"))
}

fn render_allocation(kind: &str, allocation: Option<Allocation>) -> String {
    let Some(Allocation { base, size, since, by }) = allocation else { return String::new() };
    let since = if since == Span::BEGINNING { "before".into() } else { format!("@{}", since.0) };
    format!("{kind} {base}+{size:#x} {since}{} ", render_caller(by))
}

fn answer(system: &System, line: &Line<'_>) -> String {
    let time = line.time();
    let found = match line.words[2] {
        "process" => system.process_at(line.pid(), time).map(|process| process.image_name().into()),
        "thread" => system.thread_at(line.tid(), time).map(|thread| {
            assert_eq!(thread.process().pid(), thread.pid());
            format!("{} {}", thread.process().image_name(), thread.name_at(time)).trim_end().into()
        }),
        "stated" => system
            .thread_of_process(line.pid(), line.tid(), time)
            .map(|thread| thread.process().image_name().into()),
        "owner" if system.is_thread_uncertain(line.tid(), time) => {
            assert!(system.thread_of_event(line.tid(), time).is_none(), "{}", line.text);
            Some("uncertain".to_owned())
        }
        "owner" => system
            .thread_of_event(line.tid(), time)
            .map(|thread| thread.process().image_name().into())
            .filter(|_| system.process_of_event(line.pid(), time).is_some()),
        "life" if line.value("tid").is_some() => system
            .thread_at(line.tid(), time)
            .map(|thread| format!("{}{}", render_span(thread.span()), render_caller(thread.creator()))),
        "life" => system.process_at(line.pid(), time).map(|process| {
            let parent =
                process.parent().map_or(String::new(), |parent| format!(" of {}", parent.image_name()));
            let defunct = if process.is_defunct() { " defunct" } else { "" };
            let exit = process.exit_status().map_or(String::new(), |status| format!(" exit {status}"));
            format!(
                "{}{parent}{}{exit}{defunct}",
                render_span(process.span()),
                render_caller(process.creator())
            )
        }),
        "module" => system.module_at(line.pid(), line.extent().0, time).map(|(module, rva)| {
            let pdb = module.pdb().map_or(String::new(), |pdb| format!(" {}", pdb.name));
            format!("{}+{rva:#x}{pdb}", module.path())
        }),
        "span" => system
            .module_at(line.pid(), line.extent().0, time)
            .map(|(module, _)| format!("{} {}", module.file_name(), render_span(module.span()))),
        "region" => system.region_at(line.pid(), line.extent().0, time).map(|region| {
            let reserved = render_allocation("reserved", region.reserved);
            format!("{reserved}{}", render_allocation("committed", region.committed)).trim_end().into()
        }),
        "method" => system.process_of_event(line.pid(), time).and_then(|process| {
            let method = system.method_in(process.id(), line.extent().0, time)?;
            assert_eq!(method.process().id(), process.id());
            let since = if method.since() == Span::BEGINNING {
                "before".into()
            } else {
                format!("@{}", method.since().0)
            };
            let text = format!("{method} {}+{:#x} {since}", method.start(), method.size());
            Some(text.trim_start().to_owned())
        }),
        "il" => system.process_of_event(line.pid(), time).and_then(|process| {
            let (path, validity) = system.method_in(process.id(), line.extent().0, time)?.il_module(time);
            assert!(validity.has(time));
            Some(path.to_owned()).filter(|path| !path.is_empty())
        }),
        "view" => system.process_at(line.pid(), time).and_then(|process| {
            let view = system.view_in(process.id(), line.extent().0, time)?;
            let file = system.file_name(Some(view.file), None, time).unwrap_or("?");
            let since =
                if view.since == Span::BEGINNING { "before".into() } else { format!("@{}", view.since.0) };
            Some(format!("{file} {} {}+{:#x} {since}", view.protection, view.base, view.size))
        }),
        "file" => {
            let (key, object) = (line.number("key").map(FileKey), line.number("object").map(FileObject));
            system.file_name(key, object, time).map(str::to_owned)
        }
        "registry" => {
            let path = system.registry_path(KeyControlBlock(line.need("kcb")), line.name(), time);
            Some(format!("{}{path}", if path.is_complete() { "" } else { "…" }))
        }
        "certain" => {
            let (module, _) = system.module_at(line.pid(), line.extent().0, time).expect("a module");
            Some(if system.is_module_certain(module.id(), time) { "yes" } else { "no" }.into())
        }
        "complete" => Some(match system.map_complete(line.pid(), time) {
            Completeness::Complete => "yes".into(),
            Completeness::Incomplete(Gap::UnknownProcess) => "unknown".into(),
            Completeness::Incomplete(Gap::NoRundown) => "no-rundown".into(),
            Completeness::Incomplete(Gap::Forgotten) => "forgotten".into(),
            Completeness::Incomplete(Gap::Lost { from, until }) => format!("lost @{}..@{}", from.0, until.0),
        }),
        word => panic!("unknown word {word}: {}", line.text),
    };
    found.unwrap_or("none".into())
}

#[track_caller]
fn check_on(mut system: System, script: &str) {
    let ask = |system: &System, line: &str, how: &str| {
        let (question, expected) = line.split_once("=>").unwrap_or_else(|| panic!("no answer in: {line}"));
        let got = answer(system, &Line::new(question));
        assert_eq!(got, expected.trim(), "{how}: {question}\n{script}");
    };
    let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for line in &lines {
        match line.split_whitespace().next() {
            Some("ask" | "now") => ask(&system, line, "so far"),
            Some("then") => {}
            _ => apply(&mut system, &Line::new(line)),
        }
    }
    for line in &lines {
        if let Some("ask" | "then") = line.split_whitespace().next() {
            ask(&system, line, "after all statements");
        }
    }
}

#[track_caller]
fn check(script: &str) {
    check_on(System::new(PointerSize::Eight), script);
}

#[test]
fn process_ids_are_reused() {
    check(
        "@10 process start pid=7 key=1 by=3/4 parent=4 a.exe
         now @10 life pid=7 => 10..-? of System by 3/4
         @20 process end pid=7 key=1 exit=5
         ask @20 process pid=7 => a.exe
         ask @21 process pid=7 => none
         @30 process start pid=7 key=2 b.exe
         @40 process end pid=7 key=2 exit=0
         ask @9 process pid=7 => none
         ask @15 process pid=7 => a.exe
         ask @15 life pid=7 => 10..20 of System by 3/4 exit 5
         ask @30 life pid=7 => 30..40 exit 0
         ask @41 process pid=7 => none",
    );
}

#[test]
fn a_rundown_is_not_a_start() {
    check(
        "@5 process dcstart pid=7 key=1 a.exe
         ask @1 process pid=7 => a.exe
         now @1 life pid=7 => -s..-?
         now @1 process pid=8 => none
         @50 process dcend pid=7 key=1
         @50 process dcend pid=8 key=2 b.exe
         ask @1 process pid=8 => b.exe
         ask @1 life pid=7 => -s..-e
         ask @1 life pid=8 => -e..-e",
    );
    check(
        "@20 process end pid=7 key=1 a.exe
         ask @1 process pid=7 => a.exe
         @60 process dcend pid=7 key=2 b.exe
         ask @20 life pid=7 => -?..20
         ask @21 process pid=7 => b.exe
         ask @21 life pid=7 => 21e..-e",
    );
}

#[test]
fn a_process_that_is_started_while_it_is_listed_is_one() {
    check(
        "@5 process dcstart pid=7 key=1 a.exe
         @6 process start pid=7 key=1 a.exe
         @7 process dcstart pid=7 key=1 a.exe
         @7 process start pid=7 key=1 a.exe
         ask @7 life pid=7 => 6..-?
         ask @5 process pid=7 => none",
    );
}

#[test]
fn a_lost_end_is_assumed_at_the_next_start() {
    check(
        "@10 process start pid=7 key=1 a.exe
         @30 process start pid=7 key=2 b.exe
         ask @29 life pid=7 => 10..30?
         now @30 life pid=7 => 30..-?
         @40 process dcend pid=7 key=3 c.exe
         ask @39 life pid=7 => 30..40?
         now @40 life pid=7 => 40e..-e
         @50 process end pid=7 key=4 d.exe
         ask @49 process pid=7 => c.exe
         ask @50 process pid=7 => d.exe",
    );
}

#[test]
fn defunct_processes_have_ended() {
    check(
        "@10 process start pid=7 key=1 a.exe
         @20 process end pid=7 key=1
         @90 process defunct pid=7 key=1 exit=3
         @90 process defunct pid=8 key=2 exit=4 b.exe
         ask @15 life pid=7 => 10..20 exit 3 defunct
         ask @15 life pid=8 => -e..-e exit 4 defunct
         ask @90 process pid=7 => none",
    );
}

#[test]
fn idle_and_system_are_always_there() {
    check(
        "ask @1 process pid=0 => Idle
         ask @1 process pid=4 => System
         ask @1 thread tid=0 => Idle
         now @1 life pid=4 => -?..-?
         @5 process dcstart pid=4 key=1 ignored
         @5 thread dcstart pid=0 tid=0
         @6 thread dcstart pid=0 tid=0
         @7 process end pid=4 key=2
         @8 process start pid=4 key=3 fake.exe
         ask @9 process pid=4 => System
         ask @9 life pid=4 => -s..-?
         ask @9 life tid=0 => -s..-?",
    );
}

#[test]
fn a_parent_is_looked_up_at_the_start_of_its_child() {
    check(
        "@10 process start pid=3 key=1 old.exe
         @11 process start pid=7 key=2 parent=3 a.exe
         @12 process end pid=3 key=1
         @13 process start pid=3 key=3 new.exe
         @14 process dcstart pid=8 key=4 parent=3 b.exe
         ask @14 life pid=7 => 11..-? of old.exe
         ask @14 life pid=8 => -s..-?",
    );
}

#[test]
fn thread_ids_are_reused() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         @3 thread dcstart pid=7 tid=9 main
         ask @1 thread tid=9 => a.exe main
         now @1 life tid=9 => -s..-?
         @10 thread end pid=7 tid=9
         ask @10 life tid=9 => -s..10
         ask @11 thread tid=9 => none
         @20 thread start pid=8 tid=9 by=7/12
         ask @20 thread tid=9 => b.exe
         @30 thread start pid=7 tid=9 by=7/13
         ask @29 life tid=9 => 20..30? by 7/12
         ask @30 thread tid=9 => a.exe
         ask @30 life tid=9 => 30..-? by 7/13
         @40 thread dcend pid=8 tid=10
         ask @1 thread tid=10 => b.exe
         ask @1 life tid=10 => -e..-e",
    );
}

#[test]
fn events_of_threads_state_their_process() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         now @3 owner pid=7 tid=9 => none
         @5 thread event pid=7 tid=9
         then @1 owner pid=7 tid=9 => a.exe
         ask @5 owner pid=7 tid=9 => a.exe
         @6 thread event pid=7 tid=9
         now @6 life tid=9 => -?..-?
         @7 thread end pid=7 tid=9
         ask @7 life tid=9 => -?..7
         @8 thread event pid=7 tid=9
         ask @8 owner pid=7 tid=9 => a.exe
         ask @8 life tid=9 => none
         @20 thread event pid=8 tid=9
         ask @20 owner pid=7 tid=9 => b.exe
         then @9 owner pid=7 tid=9 => b.exe",
    );
}

#[test]
fn a_contradiction_ends_the_earlier_thread_after_its_last_event() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         @3 thread event pid=7 tid=9
         @10 thread event pid=7 tid=9
         @20 thread event pid=8 tid=9
         ask @10 owner pid=7 tid=9 => a.exe
         then @11 owner pid=7 tid=9 => uncertain
         then @19 owner pid=7 tid=9 => uncertain
         then @19 stated pid=8 tid=9 => b.exe
         then @19 stated pid=7 tid=9 => none
         then @10 stated pid=7 tid=9 => a.exe
         ask @20 owner pid=7 tid=9 => b.exe
         then @3 life tid=9 => -?..10?
         then @20 life tid=9 => 20e..-e
         @30 thread dcend pid=8 tid=9
         ask @30 owner pid=7 tid=9 => b.exe
         then @25 owner pid=7 tid=9 => b.exe",
    );
}

#[test]
fn a_rundown_of_another_process_contradicts_events_before_it() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         @3 thread dcstart pid=7 tid=9
         @10 thread event pid=7 tid=9
         now @20 owner pid=7 tid=9 => a.exe
         @30 thread dcend pid=8 tid=9
         then @10 owner pid=7 tid=9 => a.exe
         then @20 owner pid=7 tid=9 => uncertain
         ask @30 owner pid=7 tid=9 => b.exe",
    );
}

#[test]
fn a_start_ends_the_earlier_thread_when_it_is_reported() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         @10 thread event pid=7 tid=9
         @20 thread start pid=8 tid=9
         ask @19 owner pid=7 tid=9 => a.exe
         ask @20 owner pid=7 tid=9 => b.exe
         @30 thread end pid=8 tid=9
         @40 thread event pid=7 tid=9
         ask @30 owner pid=7 tid=9 => b.exe
         ask @40 owner pid=7 tid=9 => a.exe",
    );
}

#[test]
fn a_process_between_thread_events_of_another_one_is_uncertain() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process dcstart pid=8 b.exe
         @3 thread dcstart pid=7 tid=9
         @4 thread event pid=7 tid=9
         @10 thread event pid=8 tid=9
         now @10 owner pid=7 tid=9 => b.exe
         @16 thread event pid=7 tid=9
         ask @16 owner pid=7 tid=9 => a.exe
         @20 thread end pid=7 tid=9
         ask @3 owner pid=7 tid=9 => a.exe
         then @5 owner pid=7 tid=9 => uncertain
         then @10 owner pid=7 tid=9 => uncertain
         then @15 owner pid=7 tid=9 => uncertain
         ask @20 owner pid=7 tid=9 => a.exe",
    );
}

#[test]
fn a_process_id_that_is_used_again_has_threads_of_its_own() {
    check(
        "@1 process start pid=7 a.exe
         @2 thread event pid=7 tid=9
         @10 process end pid=7
         @11 thread event pid=7 tid=9
         ask @11 owner pid=7 tid=9 => a.exe
         @20 process start pid=7 b.exe
         @21 thread event pid=7 tid=9
         ask @21 owner pid=7 tid=9 => b.exe
         then @19 owner pid=7 tid=9 => a.exe
         then @20 owner pid=7 tid=9 => b.exe",
    );
}

#[test]
fn a_thread_outlives_its_process_by_a_little() {
    check(
        "@1 process start pid=7 a.exe
         @2 thread start pid=7 tid=9
         @10 process end pid=7
         @11 thread end pid=7 tid=9
         @11 thread end pid=7 tid=10
         ask @11 thread tid=9 => a.exe
         ask @11 thread tid=10 => a.exe
         ask @11 process pid=7 => none
         ask @15 thread tid=9 => none
         ask @15 owner pid=7 tid=9 => a.exe
         @20 process start pid=8 b.exe
         @20 thread start pid=8 tid=9
         ask @19 owner pid=7 tid=9 => a.exe
         ask @20 owner pid=7 tid=9 => b.exe
         ask @20 owner pid=7 tid=11 => none",
    );
}

#[test]
fn threads_are_named_over_time() {
    check(
        "@1 process dcstart pid=7 a.exe
         @3 thread start pid=7 tid=9
         ask @4 thread tid=9 => a.exe
         @10 thread name pid=7 tid=9 worker
         @20 thread name pid=7 tid=9 idle
         ask @9 thread tid=9 => a.exe
         ask @10 thread tid=9 => a.exe worker
         ask @25 thread tid=9 => a.exe idle
         @30 thread start pid=7 tid=10
         @40 thread end pid=7 tid=10 late
         ask @30 thread tid=10 => a.exe late
         @50 thread start pid=7 tid=9
         ask @50 thread tid=9 => a.exe
         @60 thread name pid=7 tid=11 early
         ask @60 thread tid=11 => a.exe early
         ask @59 thread tid=11 => a.exe",
    );
}

#[test]
fn modules_come_and_go() {
    check(
        "@1 process start pid=7 a.exe
         @10 image load pid=7 0x1000+0x100 a.dll
         ask @10 module pid=7 0x1010 => a.dll+0x10
         ask @15 module pid=7 0x10ff => a.dll+0xff
         ask @15 module pid=7 0x1100 => none
         ask @15 module pid=8 0x1010 => none
         @20 image unload pid=7 0x1000+0x100 a.dll
         ask @20 module pid=7 0x1010 => a.dll+0x10
         ask @21 module pid=7 0x1010 => none
         @30 image load pid=7 0x1080+0x100 b.dll
         ask @9 module pid=7 0x1010 => none
         ask @19 module pid=7 0x1080 => a.dll+0x80
         ask @30 module pid=7 0x1080 => b.dll+0x0
         ask @30 module pid=7 0x1010 => none
         @35 image unload pid=7 0x1080+0x100 b.dll
         @35 image load pid=7 0x1000+0x200 c.dll
         ask @34 module pid=7 0x1080 => b.dll+0x0
         ask @35 module pid=7 0x1080 => c.dll+0x80
         now @35 span pid=7 0x1080 => c.dll 35..-?
         @40 process end pid=7
         ask @40 span pid=7 0x1080 => c.dll 35..40
         ask @41 module pid=7 0x1080 => none
         @50 process start pid=7 b.exe
         ask @50 module pid=7 0x1080 => none",
    );
}

#[test]
fn a_lost_unload_is_assumed_at_the_next_load() {
    check(
        "@10 image load pid=7 0x1000+0x100 stamp=1 a.dll
         @20 image load pid=7 0x1000+0x100 stamp=2 a.dll
         ask @19 span pid=7 0x1000 => a.dll 10..20?
         ask @20 span pid=7 0x1000 => a.dll 20..-?
         @30 image load pid=7 0x1080+0x100 b.dll
         ask @30 module pid=7 0x1010 => a.dll+0x10
         ask @30 module pid=7 0x1080 => b.dll+0x0",
    );
}

#[test]
fn modules_that_only_a_rundown_lists_were_there_from_the_beginning() {
    check(
        "@5 process dcstart pid=7 a.exe
         @50 image dcend pid=7 0x1000+0x100 a.dll
         ask @50 module pid=7 0x1010 => a.dll+0x10
         then @1 module pid=7 0x1010 => a.dll+0x10
         then @1 span pid=7 0x1010 => a.dll -e..-e",
    );
    check(
        "@5 process start pid=7 a.exe
         @50 image dcend pid=7 0x1000+0x100 a.dll
         then @5 span pid=7 0x1010 => a.dll 5e..-e
         then @4 module pid=7 0x1010 => none",
    );
    check(
        "@5 process dcstart pid=7 a.exe
         @10 image unload pid=7 0x1000+0x100 a.dll
         @20 image load pid=7 0x1000+0x200 b.dll
         @30 image unload pid=7 0x1000+0x200 b.dll
         @50 image dcend pid=7 0x1000+0x300 c.dll
         then @1 span pid=7 0x1010 => a.dll -?..10
         then @15 module pid=7 0x1010 => none
         then @20 module pid=7 0x1010 => b.dll+0x10
         then @40 module pid=7 0x1010 => none
         then @50 span pid=7 0x1010 => c.dll 50e..-e",
    );
}

#[test]
fn a_module_is_one_however_often_it_is_listed() {
    check(
        "@4 image load pid=7 0x1000+0x100 stamp=3 \\Windows\\a.dll
         @5 image dcstart pid=7 0x1000+0x100 stamp=3 \\Device\\HarddiskVolume1\\WINDOWS\\a.dll
         ask @5 module pid=7 0x1001 => \\Device\\HarddiskVolume1\\WINDOWS\\a.dll+0x1
         @50 image dcend pid=7 0x1000+0x100 stamp=3 \\Windows\\renamed.dll
         now @4 span pid=7 0x1000 => a.dll 4..-e
         @50 image dcend pid=7 0x1000+0x100 stamp=4 \\Windows\\a.dll
         then @49 span pid=7 0x1000 => a.dll 4..50?
         then @50 span pid=7 0x1000 => a.dll 50e..-e",
    );
}

#[test]
fn kernel_modules_belong_to_all_processes() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 image dcstart pid=0 0xfffff80000000000+0x1000 ntoskrnl.exe
         @3 image dcstart pid=4 0xfffff80000001000+0x1000 hal.dll
         @4 image dcstart pid=4 0x7ff000000000+0x1000 ntdll.dll
         @10 image load pid=0 0xfffff80000002000+0x1000 a.sys
         @20 image unload pid=0 0xfffff80000002000+0x1000 a.sys
         ask @5 module pid=7 0xfffff80000000010 => ntoskrnl.exe+0x10
         ask @5 module pid=99 0xfffff80000001010 => hal.dll+0x10
         ask @15 module pid=7 0xfffff80000002010 => a.sys+0x10
         ask @25 module pid=7 0xfffff80000002010 => none
         ask @5 module pid=4 0x7ff000000010 => ntdll.dll+0x10
         ask @5 module pid=7 0x7ff000000010 => none",
    );
    check_on(
        System::new(PointerSize::Four),
        "@2 image dcstart pid=4 0x80400000+0x1000 ntoskrnl.exe
         @3 image dcstart pid=7 0x90000000+0x1000 large.dll
         ask @3 module pid=7 0x80400010 => ntoskrnl.exe+0x10
         ask @3 module pid=7 0x90000010 => large.dll+0x10
         ask @3 module pid=8 0x90000010 => none",
    );
}

#[test]
fn modules_get_the_pdb_of_their_time() {
    check(
        "@10 image load pid=7 0x1000+0x100 stamp=1 a.dll
         @10 pdb 1 pid=7 0x1000 a.pdb
         ask @10 module pid=7 0x1000 => a.dll+0x0 a.pdb
         @20 pdb 2 pid=7 0x1000 b.pdb
         @20 image load pid=7 0x1000+0x100 stamp=2 b.dll
         ask @20 module pid=7 0x1000 => b.dll+0x0 b.pdb
         ask @19 module pid=7 0x1000 => a.dll+0x0 a.pdb
         @30 pdb 3 pid=0 0xfffff80000000000 kernel.pdb
         @30 image dcend pid=0 0xfffff80000000000+0x1000 kernel.exe
         then @1 module pid=7 0xfffff80000000000 => kernel.exe+0x0 kernel.pdb
         @40 pdb 4 pid=7 0x1080 nothing.pdb
         @41 image load pid=7 0x1080+0x10 c.dll
         ask @41 module pid=7 0x1080 => c.dll+0x0",
    );
}

#[test]
fn memory_is_reserved_and_committed_in_parts() {
    check(
        "@1 process start pid=7 a.exe
         @10 memory alloc pid=7 0x10000+0x10000 by=3/4 reserve
         ask @10 region pid=7 0x1ffff => reserved 0x10000+0x10000 @10 by 3/4
         ask @10 region pid=7 0x20000 => none
         @20 memory alloc pid=7 0x12000+0x3000 by=7/9 commit
         ask @19 region pid=7 0x12000 => reserved 0x10000+0x10000 @10 by 3/4
         ask @20 region pid=7 0x12000 => reserved 0x10000+0x10000 @10 by 3/4 committed 0x12000+0x3000 @20 by 7/9
         @30 memory free pid=7 0x13000+0x1000 decommit
         ask @31 region pid=7 0x12fff => reserved 0x10000+0x10000 @10 by 3/4 committed 0x12000+0x3000 @20 by 7/9
         ask @31 region pid=7 0x13000 => reserved 0x10000+0x10000 @10 by 3/4
         ask @31 region pid=7 0x14000 => reserved 0x10000+0x10000 @10 by 3/4 committed 0x12000+0x3000 @20 by 7/9
         @40 memory free pid=7 0x18000+0x1000 release
         ask @41 region pid=7 0x18000 => none
         ask @41 region pid=7 0x19000 => reserved 0x10000+0x10000 @10 by 3/4
         ask @39 region pid=7 0x18000 => reserved 0x10000+0x10000 @10 by 3/4
         @50 memory free pid=7 0x10000 release
         ask @51 region pid=7 0x12000 => none
         @60 memory alloc pid=7 0x12000+0x1000 reserve,commit
         ask @60 region pid=7 0x12000 => reserved 0x12000+0x1000 @60 committed 0x12000+0x1000 @60
         @70 process end pid=7
         ask @71 region pid=7 0x12000 => none",
    );
}

#[test]
fn memory_from_before_the_trace_is_known_from_its_end() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 memory rundown pid=7 0x50000+0x1000 reserve,commit
         ask @1 region pid=7 0x50000 => reserved 0x50000+0x1000 before committed 0x50000+0x1000 before
         @10 memory free pid=7 0x10000+0x1000 decommit
         @20 memory free pid=7 0x10000+0x4000 release
         then @9 region pid=7 0x10000 => reserved 0x10000+0x4000 before committed 0x10000+0x1000 before
         then @11 region pid=7 0x10000 => reserved 0x10000+0x4000 before
         then @9 region pid=7 0x11000 => reserved 0x10000+0x4000 before
         then @21 region pid=7 0x11000 => none
         now @9 region pid=7 0x11000 => reserved 0x10000+0x4000 before
         @30 memory free pid=7 0x90000 release
         ask @30 region pid=7 0x90000 => none",
    );
}

#[test]
fn files_are_named_by_key_then_by_open_then_by_later_statements() {
    check(
        "@10 file create key=5 a.txt
         ask @10 file key=5 => a.txt
         @20 file delete key=5 a.txt
         ask @20 file key=5 => a.txt
         ask @21 file key=5 => none
         @25 file open object=6 opened.txt
         ask @26 file key=5 object=6 => opened.txt
         @30 file create key=5 b.txt
         ask @31 file key=5 object=6 => b.txt
         ask @29 file key=5 => none
         @35 file close object=6
         ask @35 file object=6 => opened.txt
         ask @36 file object=6 => none
         @36 file close object=6
         @37 file open object=6 again.txt
         @38 file open object=6
         ask @38 file object=6 => none
         @90 file rundown key=5 b.txt
         @90 file rundown key=7 old.txt
         then @5 file key=7 => old.txt
         then @40 file key=5 => b.txt
         then @5 file key=5 => none
         then @25 file key=7 object=6 => opened.txt
         @95 file delete key=7 old.txt
         then @96 file key=7 => none",
    );
}

#[test]
fn registry_paths_are_joined() {
    check(
        "@1 key rundown kcb=5 \\REGISTRY\\MACHINE
         ask @1 registry kcb=5 SOFTWARE => \\REGISTRY\\MACHINE\\SOFTWARE
         ask @0 registry kcb=5 x => \\REGISTRY\\MACHINE\\x
         ask @1 registry kcb=0 \\REGISTRY\\USER => \\REGISTRY\\USER
         @10 key create kcb=6 \\REGISTRY\\MACHINE\\A
         @20 key delete kcb=6 \\REGISTRY\\MACHINE\\A
         @30 key create kcb=6 \\REGISTRY\\MACHINE\\B
         ask @10 registry kcb=6 v => \\REGISTRY\\MACHINE\\A\\v
         ask @20 registry kcb=6 v => \\REGISTRY\\MACHINE\\A\\v
         ask @25 registry kcb=6 v => …v
         ask @30 registry kcb=6 v => \\REGISTRY\\MACHINE\\B\\v
         @40 key create kcb=6 \\REGISTRY\\MACHINE\\C
         ask @41 registry kcb=6 v => \\REGISTRY\\MACHINE\\C\\v
         now @41 registry kcb=7 v => …v
         @50 key delete kcb=7 \\REGISTRY\\USER
         @90 key rundown kcb=8 \\REGISTRY\\USER\\X
         then @41 registry kcb=7 v => \\REGISTRY\\USER\\v
         then @41 registry kcb=8 v => \\REGISTRY\\USER\\X\\v
         then @51 registry kcb=7 v => …v",
    );
}

#[test]
fn a_module_map_is_complete_for_a_reason() {
    check(
        "@1 process dcstart pid=7 a.exe
         @2 process start pid=8 b.exe
         @3 process dcstart pid=9 c.exe
         ask @3 complete pid=5 => unknown
         now @3 complete pid=7 => no-rundown
         now @3 complete pid=8 => no-rundown
         @4 image dcstart pid=7 0x1000+0x100 a.exe
         ask @4 complete pid=7 => yes
         @5 image load pid=8 0x1000+0x100 b.exe
         ask @5 complete pid=8 => yes
         ask @5 complete pid=9 => no-rundown
         now @5 complete pid=4 => no-rundown
         @90 image dcend pid=0 0xfffff80000000000+0x1000 ntoskrnl.exe
         then @5 complete pid=4 => yes
         then @5 complete pid=0 => yes",
    );
}

/// A loss makes uncertain what can have changed in it: not the time before, not processes that start
/// later, and not the time after it if a rundown at the end lists the modules.
#[test]
fn a_loss_hides_only_its_interval() {
    let lossy = || {
        let mut losses = LossMap::live();
        losses.enter_interval(20, 30);
        let mut system = System::new(PointerSize::Eight);
        system.set_losses(losses);
        system
    };
    check_on(
        lossy(),
        "@1 process dcstart pid=7 a.exe
         @1 process dcstart pid=9 c.exe
         @4 image dcstart pid=7 0x1000+0x100 a.exe
         @4 image dcstart pid=9 0x1000+0x100 c.exe
         @5 image load pid=7 0x2000+0x100 b.dll
         @35 process start pid=8 b.exe
         @36 image load pid=8 0x1000+0x100 b.exe
         now @19 complete pid=7 => yes
         now @20 complete pid=7 => lost @20..@30
         now @31 complete pid=7 => lost @20..@30
         now @36 complete pid=8 => yes
         @90 image dcend pid=7 0x1000+0x100 a.exe
         then @20 complete pid=7 => lost @20..@30
         then @30 complete pid=7 => lost @20..@30
         then @31 complete pid=7 => yes
         then @31 complete pid=9 => lost @20..@30
         ask @19 certain pid=7 0x2000 => yes
         ask @20 certain pid=7 0x2000 => no
         then @31 certain pid=7 0x2000 => no
         then @31 certain pid=7 0x1000 => yes
         ask @20 certain pid=7 0x1000 => no
         ask @31 certain pid=9 0x1000 => yes
         ask @36 certain pid=8 0x1000 => yes",
    );
    // Nothing but the rundown at the end: a module can have been unloaded in the loss.
    check_on(
        lossy(),
        "@90 image dcend pid=7 0x1000+0x100 a.exe
         then @19 complete pid=7 => lost @20..@30
         then @31 complete pid=7 => yes
         then @19 certain pid=7 0x1000 => no",
    );
}

#[test]
fn late_events_are_sorted_in() {
    check(
        "@10 process start pid=7 key=1 a.exe
         @40 process start pid=7 key=2 b.exe
         @20 process end pid=7 key=1
         @30 image load pid=0 0xfffff80000000000+0x1000 b.sys
         @20 image load pid=0 0xfffff80000000000+0x2000 a.sys
         ask @15 life pid=7 => 10..20
         ask @30 process pid=7 => none
         ask @40 life pid=7 => 40..-?
         ask @25 module pid=7 0xfffff80000000000 => a.sys+0x0
         ask @30 module pid=7 0xfffff80000000000 => b.sys+0x0
         ask @30 module pid=7 0xfffff80000001000 => a.sys+0x1000",
    );
}

#[test]
fn views_come_and_go() {
    check(
        "@1 file create key=9 a.dat
         @10 view map pid=7 0x10000+0x2000 key=9 protection=1
         ask @9 view pid=7 0x10000 => none
         ask @10 view pid=7 0x11fff => a.dat R-- 0x10000+0x2000 @10
         ask @10 view pid=7 0x12000 => none
         ask @10 view pid=8 0x10000 => none
         @20 view unmap pid=7 0x10000+0x2000 key=9
         ask @20 view pid=7 0x10000 => a.dat R-- 0x10000+0x2000 @10
         ask @21 view pid=7 0x10000 => none
         @30 view map pid=7 0x10000+0x1000 key=9 protection=7
         ask @30 view pid=7 0x10000 => a.dat RCX 0x10000+0x1000 @30
         ask @30 view pid=7 0x11000 => none
         ask @15 view pid=7 0x11000 => a.dat R-- 0x10000+0x2000 @10",
    );
}

#[test]
fn rundowns_and_ends_report_earlier_views() {
    check(
        "@1 view dcstart pid=7 0x10000+0x1000 protection=3
         ask @1 view pid=7 0x10000 => ? R-X 0x10000+0x1000 before
         @5 view unmap pid=7 0x20000+0x1000
         then @2 view pid=7 0x20000 => ? R-- 0x20000+0x1000 before
         ask @6 view pid=7 0x20000 => none
         @9 view dcend pid=7 0x10000+0x1000 protection=3
         @9 view dcend pid=7 0x30000+0x1000 protection=4
         then @1 view pid=7 0x30000 => ? RW- 0x30000+0x1000 before
         ask @9 view pid=7 0x10000 => ? R-X 0x10000+0x1000 before",
    );
}

#[test]
fn the_file_cache_maps_in_the_kernel() {
    check(
        "@1 process dcstart pid=4 key=1 System
         @10 view map pid=4 0xffff800000010000+0x1000
         ask @10 view pid=4 0xffff800000010000 => none",
    );
}

#[test]
fn methods_come_and_go() {
    check(
        "@10 method load pid=7 0x1000+0x100 A.B.Main
         ask @9 method pid=7 0x1000 => none
         ask @10 method pid=7 0x10ff => A.B.Main 0x1000+0x100 @10
         ask @10 method pid=7 0x1100 => none
         ask @10 method pid=8 0x1000 => none
         @20 method unload pid=7 0x1000+0x100 A.B.Main
         ask @20 method pid=7 0x1000 => A.B.Main 0x1000+0x100 @10
         ask @21 method pid=7 0x1000 => none
         @30 method load pid=7 0x1000+0x80 A.B.Other
         @40 method load pid=7 0x1000+0x80 A.B.Third
         ask @39 method pid=7 0x1000 => A.B.Other 0x1000+0x80 @30
         ask @40 method pid=7 0x1000 => A.B.Third 0x1000+0x80 @40
         ask @15 method pid=7 0x1000 => A.B.Main 0x1000+0x100 @10",
    );
}

#[test]
fn rundowns_report_earlier_methods_and_add_missing_names() {
    check(
        "@1 method dcstart pid=7 0x1000+0x100 A.Old
         ask @1 method pid=7 0x1000 => A.Old 0x1000+0x100 before
         @10 method load pid=7 0x2000+0x100
         now @10 method pid=7 0x2000 => 0x2000+0x100 @10
         @50 method dcend pid=7 0x1000+0x100 A.Old
         @50 method dcend pid=7 0x2000+0x100 A.New
         @50 method dcend pid=7 0x3000+0x100 A.Quiet
         then @10 method pid=7 0x2000 => A.New 0x2000+0x100 @10
         then @1 method pid=7 0x3000 => A.Quiet 0x3000+0x100 before
         @60 method unload pid=7 0x4000+0x100 A.Gone
         then @5 method pid=7 0x4000 => A.Gone 0x4000+0x100 before
         ask @61 method pid=7 0x4000 => none",
    );
}

#[test]
fn methods_belong_to_the_module_of_the_loader() {
    check(
        // The rundown at the end reports the module of a method that was loaded before.
        r"@10 method load pid=7 0x1000+0x100 il=0x70 A.Main
         now @10 il pid=7 0x1000 => none
         @50 il dcend pid=7 il=0x70 C:\a\App.dll
         then @10 il pid=7 0x1000 => C:\a\App.dll
         then @60 il pid=7 0x1000 => C:\a\App.dll",
    );
    check(
        // Ids are used again after the unload. A method of a native image is reported at the end.
        r"@10 il load pid=7 il=0x70 C:\a\First.dll
         @11 il load pid=7 il=0x70 C:\a\First.dll
         @12 method load pid=7 0x1000+0x100 il=0x70 A.First
         ask @12 il pid=7 0x1000 => C:\a\First.dll
         @20 method unload pid=7 0x1000+0x100 il=0x70 A.First
         @20 il unload pid=7 il=0x70 C:\a\First.dll
         ask @20 il pid=7 0x1000 => C:\a\First.dll
         @30 il load pid=7 il=0x70 C:\a\Second.dll
         @31 method load pid=7 0x1000+0x100 il=0x70 A.Second
         ask @31 il pid=7 0x1000 => C:\a\Second.dll
         @40 il load pid=8 il=0x70 C:\a\Other.dll
         @41 method load pid=8 0x1000+0x100 il=0x70 A.Other
         ask @41 il pid=8 0x1000 => C:\a\Other.dll
         ask @41 il pid=7 0x1000 => C:\a\Second.dll
         @50 method dcend pid=7 0x9000+0x100 il=0x70 A.Native
         ask @31 il pid=7 0x9000 => C:\a\Second.dll
         ask @12 il pid=7 0x1000 => C:\a\First.dll",
    );
    check(
        // Only an unload, or only a listing before the load. Modules without a path are not known.
        r"@10 method dcstart pid=7 0x1000+0x100 il=0x70 A.Main
         @20 il unload pid=7 il=0x70 C:\a\App.dll
         then @10 il pid=7 0x1000 => C:\a\App.dll
         @30 method dcstart pid=7 0x2000+0x100 il=0x80 A.Main
         @31 il dcstart pid=7 il=0x80 C:\a\Lib.dll
         then @30 il pid=7 0x2000 => C:\a\Lib.dll
         @40 il load pid=7 il=0x90
         @41 method load pid=7 0x3000+0x100 il=0x90 A.Emitted
         ask @41 il pid=7 0x3000 => none
         @42 method load pid=7 0x4000+0x100 il=0xa0 A.Unknown
         ask @42 il pid=7 0x4000 => none",
    );
}
