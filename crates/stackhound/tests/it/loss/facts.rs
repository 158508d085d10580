//! The facts that the state provides for events equal the ground truth of the scenario or are
//! missing, with and without dropped buffers, and if ids are used again.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::trace::{OpenTrace, Source};
use stackhound::types::Rfc3339;
use stackhound::{Address, Clock, EventView, Fact, Missing, Passes, Pid, Pipeline, RawTime, Tid};
use stackhound_etl::EtlFile;
use stackhound_scenario::{About, EventSubject, Image, Mix, Process, Scenario, Truth};

use super::drops::Extent;
use super::drops::{drops, without};

struct Written {
    bytes: Vec<u8>,
    truth: Truth,
    subjects: HashMap<(RawTime, u16), EventSubject>,
}

fn written(seed: u64, mix: Mix) -> Written {
    let mut file = Cursor::new(Vec::new());
    let scenario = Scenario { events: 20_000, seed, mix };
    let (truth, subjects) = scenario.write_with_subjects(&mut file).expect("a scenario");
    let subjects = subjects.into_iter().map(|subject| ((subject.time, subject.processor), subject)).collect();
    Written { bytes: file.into_inner(), truth, subjects }
}

/// The path with a drive, after the mappings that the scenario records.
fn dos(path: &str) -> String {
    path.replace(r"\Device\HarddiskVolume3", "C:")
        .replace(r"\Device\HarddiskVolume4", "D:")
        .replace(r"\SystemRoot", r"C:\Windows")
}

const USER: &str = "S-1-5-21-1004336348-1177238915-682003330-1001";
const SYSTEM: &str = "S-1-5-18";

/// The expected facts: those that are not listed do not exist, except for `ANY`.
type Expected = BTreeMap<&'static str, String>;

fn expect_process(
    truth: &Truth,
    clock: &Clock,
    process: &Process,
    of: [&'static str; 9],
    expected: &mut Expected,
) {
    let [name, path, command_line, user, user_name, session, start, stamp, size] = of;
    // Scenarios in which ids are used again record the integrity levels of new processes.
    let integrity = match name {
        "process.name" => Some("process.integrity"),
        "target.process.name" => Some("target.process.integrity"),
        _ => None,
    };
    let has_integrity = truth.events.keys().any(|kind| kind.name().ends_with("/ProcessStart"));
    let integrity = integrity.filter(|_| has_integrity);
    let mut put = |key: &'static str, value: String| {
        if !key.is_empty() && !value.is_empty() {
            expected.insert(key, value);
        }
    };
    put(name, process.name.clone());
    put(command_line, process.command_line.clone());
    let is_user = process.session == Some(1);
    put(user, if is_user { USER } else { SYSTEM }.to_owned());
    put(user_name, if is_user { "" } else { r"NT AUTHORITY\SYSTEM" }.to_owned());
    put(session, process.session.map_or(String::new(), |session| session.to_string()));
    if let Some(integrity) = integrity.filter(|_| process.started.is_some()) {
        put(integrity, if process.integrity() == 0x2000 { "medium" } else { "system" }.to_owned());
    }
    put(start, process.started.map_or(String::new(), |at| Rfc3339(clock.to_file_time(at)).to_string()));
    // System has no program, although it has images.
    if let Some(image) = program(truth, process) {
        put(path, dos(&image.path));
        put(stamp, image.time_date_stamp.to_string());
        put(size, image.size.to_string());
    }
}

fn program<'t>(truth: &'t Truth, process: &Process) -> Option<&'t Image> {
    let image = &truth.images[*process.images.first()?];
    (image.name() == process.name).then_some(image)
}

fn expect_start(truth: &Truth, tid: Tid, time: RawTime, of: [&'static str; 3], expected: &mut Expected) {
    let Some((process, thread)) = truth.thread_at(tid, time) else { return };
    let start: Address = thread.start_address;
    expected.insert(of[0], start.0.to_string());
    if let Some(image) = truth.image_at(process, start) {
        expected.insert(of[1], image.name().to_owned());
        expected.insert(of[2], (start.0 - image.base.0).to_string());
    }
}

/// The parent of a process that exists at a time.
fn expect_parent(
    truth: &Truth,
    clock: &Clock,
    (process, time): (&Process, RawTime),
    [pid, name, path]: [&'static str; 3],
    facts: &mut Expected,
) {
    facts.insert(pid, process.parent.0.to_string());
    let started = process.started.unwrap_or(time);
    if let Some(parent) = truth.process_at(process.parent, started) {
        let names = [name, path, "", "", "", "", "", "", ""];
        expect_process(truth, clock, parent, names, facts);
    }
}

/// The facts that a correct reader can state about an event of the process and thread with these
/// ids.
fn expected(
    truth: &Truth,
    clock: &Clock,
    subject: &EventSubject,
    (pid, tid): (Option<Pid>, Option<Tid>),
) -> Expected {
    let (time, mut facts) = (subject.time, Expected::new());
    if let Some(process) = pid.and_then(|pid| truth.process_at(pid, time)) {
        let names = [
            "process.name",
            "process.path",
            "process.command_line",
            "process.user.sid",
            "process.user.name",
            "process.session",
            "process.start_time",
            "process.image.time_date_stamp",
            "process.image.size",
        ];
        expect_process(truth, clock, process, names, &mut facts);
        facts.insert("process.user", facts["process.user.sid"].clone());
        if let Some(name) = facts.get("process.user.name").cloned() {
            facts.insert("process.user", name);
        }
        let names = ["process.parent.pid", "process.parent.name", "process.parent.path"];
        expect_parent(truth, clock, (process, time), names, &mut facts);
    }
    if let Some(tid) = tid {
        let names = ["thread.start_address", "thread.start_module", "thread.start_rva"];
        expect_start(truth, tid, time, names, &mut facts);
    }
    let (target_pid, target_tid) = match &subject.about {
        About::Nothing => (None, None),
        About::File(path) => {
            facts.insert("file.path", dos(path));
            facts.insert("file.name", path.rsplit('\\').next().unwrap_or_default().to_owned());
            (None, None)
        }
        About::Key(path, value) => {
            facts.insert("registry.path", path.clone());
            facts.extend(value.clone().map(|value| ("registry.value", value)));
            (None, None)
        }
        About::Process(pid) | About::Memory(pid) => (Some(*pid), None),
        About::Thread(pid, tid) => (Some(*pid), Some(*tid)),
    };
    if let Some(target) = target_pid.filter(|target| pid != Some(*target)) {
        facts.insert("target.pid", target.0.to_string());
        if let Some(process) = truth.process_at(target, time) {
            let names = [
                "target.process.name",
                "target.process.path",
                "target.process.command_line",
                "target.process.user.sid",
                "target.process.user.name",
                "target.process.session",
                "target.process.start_time",
                "target.process.image.time_date_stamp",
                "target.process.image.size",
            ];
            expect_process(truth, clock, process, names, &mut facts);
            let user = facts.get("target.process.user.name").or_else(|| facts.get("target.process.user.sid"));
            let user = user.cloned().unwrap_or_default();
            facts.insert("target.process.user", user);
            let names =
                ["target.process.parent.pid", "target.process.parent.name", "target.process.parent.path"];
            expect_parent(truth, clock, (process, time), names, &mut facts);
        }
    }
    if let Some(target) = target_tid.filter(|target| tid != Some(*target)) {
        facts.insert("target.tid", target.0.to_string());
        let names = ["target.thread.start_address", "target.thread.start_module", "target.thread.start_rva"];
        expect_start(truth, target, time, names, &mut facts);
    }
    facts
}

/// Facts for which there is no ground truth: the identity of processes is compared otherwise, and
/// scenarios record no PDBs.
fn is_compared(fact: Fact) -> bool {
    let name = fact.name();
    !name.ends_with(".entity") && !name.contains(".pdb.")
}

/// Numbers of events for a fact.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    right: u64,
    missing: u64,
    wrong: u64,
}

#[derive(Default)]
struct Comparison {
    counts: BTreeMap<&'static str, Counts>,
    reasons: BTreeMap<(&'static str, Missing), u64>,
    /// The first contradictions.
    wrong: Vec<String>,
}

impl Comparison {
    fn read(&mut self, bytes: &[u8], written: &Written, passes: Passes) {
        let etl_file = EtlFile::open(bytes.to_vec().into()).expect("a trace");
        let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).expect("a trace");
        let mut pipeline = Pipeline::new(&trace, passes);
        let clock = pipeline.clock();
        let mut entities: HashMap<String, (Pid, Option<RawTime>)> = HashMap::new();
        pipeline.run(|view| {
            let key = (view.raw_time(), view.event().processor().unwrap_or_default());
            if let Some(subject) = written.subjects.get(&key) {
                self.compare(view, &clock, written, subject);
                self.compare_entity(view, written, subject, &mut entities);
            }
            ControlFlow::Continue(())
        });
    }

    fn compare(&mut self, view: &EventView<'_>, clock: &Clock, written: &Written, subject: &EventSubject) {
        // A thread that is known only by its id can have the wrong process. Then the process is
        // unknown.
        if let Some((actor, _)) = subject.actor
            && !matches!(subject.about, About::Memory(_))
            && view.pid() != Some(actor)
            && view.process().is_ok()
        {
            self.note_wrong(view, "pid", &format!("{actor:?}"), &format!("{:?}", view.pid()));
        }
        let known = view.process().ok().and_then(|_| view.pid());
        let expected = expected(&written.truth, clock, subject, (known.or(view.pid()), view.tid()));
        for fact in Fact::all().filter(|fact| is_compared(*fact)) {
            let (name, found) = (fact.name(), fact.value(view));
            let counts = self.counts.entry(name).or_default();
            match (expected.get(name), found) {
                // Without the event that maps volumes to drives, paths keep the name of the device.
                (Some(expected), Ok(found)) if *expected == found || *expected == dos(&found) => {
                    counts.right += 1;
                }
                (None, Err(_)) => {}
                (Some(_), Err(reason)) => {
                    counts.missing += 1;
                    *self.reasons.entry((name, reason)).or_default() += 1;
                }
                // Ready threads of interrupts and rundowns have no truth about their target.
                (None, Ok(_)) if subject.about == About::Nothing && is_without_truth(view, name) => {}
                (expected, Ok(found)) => {
                    counts.wrong += 1;
                    let expected = expected.cloned().unwrap_or_else(|| "nothing".to_owned());
                    self.note_wrong(view, name, &expected, &found);
                }
            }
        }
    }

    /// Events have the same entity if and only if they have the same process.
    fn compare_entity(
        &mut self,
        view: &EventView<'_>,
        written: &Written,
        subject: &EventSubject,
        entities: &mut HashMap<String, (Pid, Option<RawTime>)>,
    ) {
        let (Ok(process), Some(pid)) = (view.process(), view.pid()) else { return };
        let Some(expected) = written.truth.process_at(pid, subject.time) else { return };
        let expected = (expected.pid, expected.started);
        let known = *entities.entry(process.entity().to_string()).or_insert(expected);
        if known != expected {
            self.note_wrong(view, "process.entity", &format!("{expected:?}"), &format!("{known:?}"));
        }
    }

    fn note_wrong(&mut self, view: &EventView<'_>, fact: &str, expected: &str, found: &str) {
        if self.wrong.len() < 12 {
            let (event, time) = (view.name(), view.raw_time().0);
            self.wrong.push(format!("{event} at {time}: {fact} is {expected}, not {found}"));
        }
    }

    fn print(&self, name: &str) {
        println!("{name}");
        for (fact, Counts { right, missing, wrong }) in &self.counts {
            let reasons = self.reasons.iter().filter(|((of, _), _)| of == fact);
            let reasons: Vec<String> =
                reasons.map(|((_, reason), count)| format!("{} {count}", reason.name())).collect();
            println!(
                "  {fact:32} right {right:>8} missing {missing:>8} wrong {wrong:>3}  {}",
                reasons.join(", ")
            );
        }
    }

    fn share(&self, fact: &str) -> f64 {
        let Counts { right, missing, wrong } = self.counts[fact];
        right as f64 / (right + missing + wrong).max(1) as f64
    }
}

fn is_without_truth(view: &EventView<'_>, fact: &str) -> bool {
    let name = view.name();
    let is_rundown = name.contains("DC") || name.contains("Rundown");
    is_rundown
        || (name == "Thread/ReadyThread" && fact.starts_with("target."))
        || matches!(&*name, "Process/End" | "Thread/End")
}

/// Facts with the least share of their events that states them. The scenario loses about a tenth of
/// its buffers, and facts of threads have no rundown after a loss.
const LEAST: [(&str, f64); 12] = [
    ("process.name", 0.85),
    ("process.path", 0.85),
    ("process.command_line", 0.85),
    ("process.user.sid", 0.85),
    ("process.parent.pid", 0.85),
    ("process.image.size", 0.8),
    ("thread.start_address", 0.5),
    ("thread.start_module", 0.5),
    ("file.path", 0.75),
    ("registry.path", 0.65),
    ("target.pid", 0.75),
    ("target.process.path", 0.3),
];

fn check_whole(name: &str, written: &Written) {
    let mut comparison = Comparison::default();
    comparison.read(&written.bytes, written, Passes::Two);
    comparison.print(name);
    assert!(comparison.wrong.is_empty(), "{name}: {:#?}", comparison.wrong);
    for (fact, least) in LEAST {
        let share = comparison.share(fact);
        assert!(share >= least, "{name}: {fact} is known for {share:.3} of its events, not {least}");
    }
    let mut one_pass = Comparison::default();
    one_pass.read(&written.bytes, written, Passes::One);
    assert!(one_pass.wrong.is_empty(), "{name}, one pass: {:#?}", one_pass.wrong);
    assert!(one_pass.counts["process.name"].right > 0);
}

#[test]
fn facts_equal_the_truth() {
    for seed in 1..=3 {
        check_whole(&format!("demo {seed}"), &written(seed, Mix::Default));
    }
}

#[test]
fn facts_equal_the_truth_if_ids_are_used_again() {
    for seed in 1..=3 {
        let written = written(seed, Mix::Reuse);
        let mut pids: HashMap<Pid, u32> = HashMap::new();
        let mut tids: HashMap<Tid, u32> = HashMap::new();
        for process in &written.truth.processes {
            *pids.entry(process.pid).or_default() += 1;
            process.threads.iter().for_each(|thread| *tids.entry(thread.tid).or_default() += 1);
        }
        let (pids, tids) =
            (pids.values().filter(|n| **n > 1).count(), tids.values().filter(|n| **n > 1).count());
        println!("seed {seed}: {pids} process ids and {tids} thread ids are used again");
        assert!(pids + tids > 0);
        check_whole(&format!("reuse {seed}"), &written);
    }
}

#[test]
fn facts_are_right_or_missing_without_some_buffers() {
    let check = |(mix, seed)| {
        let written = written(seed, mix);
        let etl_file = EtlFile::open(written.bytes.clone().into()).expect("a trace");
        let mut buffers = etl_file.index().buffers;
        buffers.retain(|buffer| buffer.sequence > 0);
        let mut comparison = Comparison::default();
        let all = drops(&buffers, Extent::from_environment());
        for (number, drop) in all.iter().enumerate() {
            let dropped: Vec<_> = drop.iter().map(|index| &buffers[*index]).collect();
            let passes = if number % 4 == 3 { Passes::One } else { Passes::Two };
            comparison.read(&without(&written.bytes, &dropped), &written, passes);
        }
        comparison.print(&format!("{mix:?} {seed}: {} drops", all.len()));
        assert!(comparison.wrong.is_empty(), "{mix:?} {seed}: {:#?}", comparison.wrong);
        assert!(comparison.share("process.name") > 0.3);
    };
    let all = [(Mix::Default, 4), (Mix::Reuse, 5), (Mix::Reuse, 6)];
    let count = if Extent::from_environment() == Extent::Sample { 2 } else { all.len() };
    std::thread::scope(|scope| {
        for of in all.into_iter().take(count) {
            scope.spawn(move || check(of));
        }
    });
}
