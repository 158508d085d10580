//! Cut traces: the selected events are the same as in the whole trace, with their stacks, states, facts
//! and names, whatever is lost.

use std::io::Cursor;
use std::ops::ControlFlow;

use serde_json::Value;
use stackhound::analysis::Window;
use stackhound::analysis::costs::{self, CostBy, Costs, Metric};
use stackhound::analysis::cpu::Cpu;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::needed::{Choice, Need, Needed};
use stackhound::analysis::rows::By;
use stackhound::cut::{Cut, CutCounts, CutNote, Selected};
use stackhound::export::json::event_rows::EventRows;
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{Enrichment, EventView, Passes, Pipeline, Predicate, TraceState};
use stackhound_etl::EtlFile;
use stackhound_scenario::{Mix, Scenario};
use stackhound_schema::kernel::hook_id;

use crate::loss::drops::without;

/// Selections of the demo: all of its sessions, threads and kinds of stacks are in some of them.
const FILTERS: [&str; 9] = [
    "event ~ 'PerfInfo/SampledProfile'",
    "event ~ 'PerfInfo/SysCall*' and process i~ 'browser.exe'",
    "event ~ 'FileIo/Create*'",
    "event ~ 'Thread/CSwitch'",
    "event ~ 'Process/*' or event ~ 'Image/*'",
    "process i~ 'explorer.exe'",
    "provider = 'Contoso-Browser'",
    "event ~ 'Registry/Open'",
    "event ~ 'No/Such'",
];

/// What is selected: the events for which an expression is true, or those of a part of the time, in
/// hundredths.
#[derive(Clone, Debug)]
enum Selection {
    Filter(&'static str),
    Part(i64, i64),
}

impl Selection {
    /// Times are the same in the whole trace and the cut one.
    fn chooser(&self, times: (i64, i64)) -> impl Fn(&EventView<'_>) -> bool + use<> {
        let predicate = match self {
            Selection::Filter(text) => Some(Predicate::parse(text).expect("a filter")),
            Selection::Part(..) => None,
        };
        let at = |hundredths: i64| times.0 + (times.1 - times.0) * hundredths / 100;
        let range = match self {
            Selection::Filter(_) => i64::MIN..i64::MAX,
            Selection::Part(from, to) => at(*from)..at(*to),
        };
        // The writer states its own sizes and times in the logfile header.
        move |view| {
            view.event().hook_id() != Some(0)
                && range.contains(&view.time().0)
                && predicate.as_ref().is_none_or(|predicate| predicate.matches(view))
        }
    }
}

pub fn open(bytes: &[u8]) -> OpenTrace {
    let etl_file = EtlFile::open(bytes.to_vec().into()).expect("a trace");
    OpenTrace::new(vec![Source::new("", etl_file)], 1).expect("a trace")
}

/// The times of the first and last event.
fn times(trace: &OpenTrace) -> (i64, i64) {
    let mut times = (i64::MAX, i64::MIN);
    trace.run(|event| {
        times = (times.0.min(event.time().0), times.1.max(event.time().0));
        ControlFlow::Continue(())
    });
    times
}

/// The selected events as lines of JSON.
fn lines(trace: &OpenTrace, choose: impl Fn(&EventView<'_>) -> bool) -> Vec<String> {
    let mut pipeline = Pipeline::new(trace, Passes::Two).with(Enrichment::default());
    let (mut rows, mut text) = (EventRows::new(true), Vec::new());
    pipeline.run(|view| {
        if choose(view) {
            rows.push(view).expect("written to memory");
            if rows.is_full() {
                rows.take().append_lines(&mut text).expect("written to memory");
            }
        }
        ControlFlow::Continue(())
    });
    rows.take().append_lines(&mut text).expect("written to memory");
    String::from_utf8(text).expect("a text").lines().map(str::to_owned).collect()
}

fn cut(trace: &OpenTrace, choose: impl Fn(&EventView<'_>) -> bool) -> (Vec<u8>, CutCounts) {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let (selected, _) = Selected::by(&mut pipeline, |view, _, _| ControlFlow::Continue(choose(view)));
    let cut = Cut::of(trace, TraceState::losses(pipeline.trace_state()), &selected).expect("one session");
    let (file, _) = cut.write(trace, Cursor::new(Vec::new()), |_, _| true).expect("written to memory");
    (file.into_inner(), cut.counts)
}

/// Compares a trace with its cuts. Returns the number of selected events, and of those that are the same.
#[track_caller]
fn check(name: &str, bytes: &[u8], selections: &[Selection]) -> (u64, u64) {
    let whole = open(bytes);
    let times = times(&whole);
    let (mut total, mut same) = (0, 0);
    for selection in selections {
        let choose = selection.chooser(times);
        let (cut, counts) = cut(&whole, &choose);
        let expected = lines(&whole, &choose);
        let found = lines(&open(&cut), &choose);
        assert_eq!(counts.selected, expected.len() as u64, "{name}, {selection:?}");
        for (expected, found) in expected.iter().zip(&found) {
            same += u64::from(found == expected);
            if found != expected {
                check_uncertain(found, expected, &format!("{name}, {selection:?}"));
            }
        }
        assert_eq!(found.len(), expected.len(), "{name}, {selection:?}");
        total += counts.selected;
    }
    (total, same)
}

/// States in which a stack claims nothing that a loss can have changed.
const UNCERTAIN: [&str; 3] = ["lost", "ambiguous", "unconfirmed"];

/// Whether a value is the other one, without some of its facts.
fn is_weaker(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Null, _) => true,
        (Value::Object(found), Value::Object(expected)) => {
            found.len() == expected.len() && found.iter().all(|(key, value)| is_weaker(value, &expected[key]))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| is_weaker(found, expected))
        }
        // Of frames, where the cut trace shows a loss earlier than the whole one.
        _ => found == expected || found == "unknown" || found == "undetermined",
    }
}

/// Checks that an event of the cut trace differs only by being less certain.
#[track_caller]
fn check_uncertain(found: &str, expected: &str, location: &str) {
    let read = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON");
    let (mut found, mut expected) = (read(found), read(expected));
    let (stack, whole) = (found["stack"].take(), expected["stack"].take());
    let also = stack["also"].as_array().into_iter().flatten();
    let is_uncertain = also.chain([&stack["state"]]).any(|state| UNCERTAIN.iter().any(|name| state == name));
    assert!(is_weaker(&stack, &whole) || is_uncertain, "{location}: {stack} {whole}");
    let (call, of_whole) = (found["syscall"].take(), expected["syscall"].take());
    let is_open = ["lost", "unconfirmed", "unknown-thread"].iter().any(|end| call["completion"] == **end);
    assert!(call == of_whole || is_open, "{location}: {call} {of_whole}");
    assert!(is_weaker(&found, &expected), "{location}: {found} {expected}");
}

fn selections() -> Vec<Selection> {
    let parts = [Selection::Part(0, 30), Selection::Part(40, 60), Selection::Part(80, 101)];
    FILTERS.iter().map(|text| Selection::Filter(text)).chain(parts).collect()
}

pub fn demo(mix: Mix, seed: u64) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    Scenario { events: 8_000, seed, mix }.write(&mut file).expect("a scenario");
    file.into_inner()
}

#[test]
fn selected_events_are_the_same_in_a_cut_trace() {
    for (mix, seed) in [(Mix::Default, 1), (Mix::Default, 2), (Mix::Before, 3), (Mix::Profile, 1)] {
        let (total, same) = check(&format!("{mix:?} {seed}"), &demo(mix, seed), &selections());
        assert!(total > 4_000 && same == total, "{mix:?} {seed}: {same} of {total}");
    }
}

/// Every second buffer is missing in one of the traces, and damaged in another. A loss can begin after
/// the last record of its processor, if other processors show it. A cut trace shows it from that record
/// on, so that few more events are uncertain.
#[test]
fn a_cut_trace_is_not_more_certain_than_the_whole_one() {
    let (mut total, mut same) = (0, 0);
    let mut check = |name: &str, bytes: &[u8], selections: &[Selection]| {
        let (of_trace, equal) = check(name, bytes, selections);
        (total, same) = (total + of_trace, same + equal);
    };
    let bytes = demo(Mix::Default, 4);
    let buffers = EtlFile::open(bytes.clone().into()).expect("a trace").index().buffers;
    let some: Vec<Selection> = selections().into_iter().step_by(2).collect();
    for buffer in buffers.iter().filter(|buffer| buffer.sequence > 0).step_by(2) {
        check(&format!("without {}", buffer.sequence), &without(&bytes, &[buffer]), &some);
        let mut damaged = bytes.clone();
        // The size of a record in the middle.
        let middle = (buffer.offset + u64::from(buffer.size) / 2) as usize;
        damaged[middle..middle + 256].fill(0);
        check(&format!("damaged in {}", buffer.sequence), &damaged, &some);
    }
    // A session that was not ended, or counts losses without showing where.
    const END_TIME: usize = 0x48 + 0x20 + 0x10;
    const EVENTS_LOST: usize = 0x48 + 0x20 + 0x30;
    let mut running = bytes.clone();
    running[END_TIME..END_TIME + 8].fill(0);
    check("running", &running, &some);
    let mut uncounted = demo(Mix::Before, 4);
    uncounted[EVENTS_LOST] = 7;
    check("events lost", &uncounted, &some);
    println!("{same} of {total} events are the same");
    assert!(total > 10_000 && same * 100 > total * 95, "{same} of {total}");
}

#[test]
fn a_cut_trace_has_only_the_stack_records_that_it_needs() {
    let whole = open(&demo(Mix::Before, 1));
    let times = times(&whole);
    let counts_of = |text| cut(&whole, Selection::Filter(text).chooser(times)).1;
    let (all, some) = (counts_of("pid != 4294967295"), counts_of("event ~ 'Registry/SetValue'"));
    // Those of events whose process only the stack states.
    let none = counts_of("event ~ 'No/Such'");
    assert!(none.stacks * 4 < all.stacks, "{none:?} of {all:?}");
    assert!(some.selected > 0 && some.stacks >= none.stacks + some.selected, "{some:?} of {none:?}");
    assert!(some.stacks * 3 < all.stacks, "{some:?} of {all:?}");
}

#[test]
fn traces_of_windows_are_cut() {
    for name in ["perfview-net452-x64.etl", "msbuild-PerfViewData.etl", "tx-Process.etl"] {
        if let Some(bytes) = stackhound_corpus::etl_file(name) {
            let some = [
                Selection::Part(30, 60),
                Selection::Filter("event ~ 'PerfInfo/SampledProfile'"),
                Selection::Filter("pid > 2000"),
            ];
            let (total, same) = check(name, &bytes, &some);
            assert!(total > 0 && same == total, "{name}: {same} of {total}");
        }
    }
}

/// Traces can have no events about threads, and no stacks of context switches: then other events of the
/// threads state their processes.
#[test]
fn processes_of_threads_are_the_same_in_a_cut_trace() {
    const OF_THREADS: [u16; 4] =
        [hook_id::THREAD_START, hook_id::THREAD_END, hook_id::THREAD_DC_START, hook_id::THREAD_DC_END];
    const OF_STACKS: [u16; 3] =
        [hook_id::STACK_WALK_STACK, hook_id::STACK_WALK_KEY_KERNEL, hook_id::STACK_WALK_KEY_USER];
    for (seed, removed) in [(1, &OF_THREADS[..]), (2, &[OF_THREADS.as_slice(), &OF_STACKS].concat())] {
        let name = format!("without {removed:x?}");
        let bytes = crate::measured::changed_file(&open(&demo(Mix::Default, seed)), removed, None);
        let (total, same) = check(&name, &bytes, &selections());
        assert!(total > 4_000 && same == total, "{name}: {same} of {total}");
        let whole = open(&bytes);
        for text in ["event ~ 'Thread/CSwitch'", "process i~ 'browser.exe'", "pid > 100"] {
            check_sums(&name, &whole, Conditions { filter: Some(text), part: Some((30, 60)) });
        }
    }
}

/// The measurements that are the same in a cut trace, apart from processor time.
const METRICS: [&Metric; 6] =
    [&costs::FILE, &costs::MEMORY, &costs::FAULT, &costs::NETWORK, &costs::GC, &costs::JIT];

/// The conditions of events, and the times in hundredths.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    filter: Option<&'static str>,
    part: Option<(i64, i64)>,
}

impl Conditions {
    fn window(self, times: (i64, i64)) -> Window {
        let at = |hundredths: i64| TraceTime(times.0 + (times.1 - times.0) * hundredths / 100);
        let (from, to) = self.part.map(|(from, to)| (at(from), at(to))).unzip();
        Window { from, to }
    }

    /// Whether an event is selected, apart from its time.
    fn predicate(self) -> impl Fn(&EventView<'_>) -> bool {
        let predicate = self.filter.map(|text| Predicate::parse(text).expect("a filter"));
        move |view| predicate.as_ref().is_none_or(|predicate| predicate.matches(view))
    }
}

/// All sums of a trace, one per line, and whether there are any.
fn sums(trace: &OpenTrace, conditions: Conditions, window: Window) -> (Vec<String>, bool) {
    let holds = conditions.predicate();
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut cpu = Cpu::new(String::new(), trace, window, Weighing::default());
    let mut costs = METRICS.map(|metric| Costs::new(metric, String::new(), trace, window));
    pipeline.run(|view| {
        let holds = holds(view);
        cpu.observe(view, || holds && window.contains(view.time())).expect("few stacks");
        costs.iter_mut().for_each(|costs| costs.observe(view, || holds).expect("few stacks"));
        ControlFlow::Continue(())
    });
    let (known, ..) = pipeline.parts();
    let mut report = cpu.finish(known, None);
    if conditions.filter.is_some() {
        (report.exact, report.compact) = (None, 0);
    }
    let exact = report.exact.as_ref().map(|exact| (exact.busy(), exact.idle, exact.stats));
    let mut lines = vec![format!(
        "{:?}",
        (report.available(), report.classes, report.without_stack, report.interval, report.window, exact)
    )];
    let by = [By::Thread, By::Stack, By::Frames(Grouping::Function)];
    let mut rows: Vec<String> =
        by.iter().flat_map(|by| report.rows(*by)).map(|row| format!("{row:?}")).collect();
    for costs in costs {
        let report = costs.finish(known, None);
        lines.push(format!(
            "{} {:?}",
            report.metric.name,
            (report.total(), &report.remainders, report.without_stack, report.window, report.events > 0)
        ));
        let by = [CostBy::Actor(By::Stack), CostBy::Actor(By::Thread), CostBy::Own(0)];
        let by = by.into_iter().filter(|by| *by != CostBy::Own(0) || !report.metric.dimensions.is_empty());
        rows.extend(by.flat_map(|by| report.rows(by)).map(|row| format!("{} {row:?}", report.metric.name)));
    }
    let has_rows = !rows.is_empty();
    lines.extend(rows);
    (lines, has_rows)
}

/// A cut trace with everything that sums need.
fn cut_with_sums(trace: &OpenTrace, conditions: Conditions, window: Window) -> Vec<u8> {
    let holds = conditions.predicate();
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut needed = Needed::new(window);
    let (mut selected, _) = Selected::by(&mut pipeline, |view, number, selected| {
        let choice = match (window.contains(view.time()), holds(view)) {
            (true, true) => Choice::Selected,
            (false, true) if Needed::reads(view) => Choice::AtOtherTime,
            _ => Choice::No,
        };
        if choice == Choice::AtOtherTime {
            selected.expect_stack(view);
        }
        needed.observe(view, number, choice, |Need { number, with_stack }| selected.need(number, with_stack));
        ControlFlow::Continue(choice == Choice::Selected)
    });
    needed.finish(|Need { number, with_stack }| selected.need(number, with_stack));
    let losses = TraceState::losses(pipeline.trace_state());
    let mut cut = Cut::of(trace, losses, &selected).expect("one session");
    cut.note().selection = format!("{conditions:?}");
    (cut.note().from, cut.note().to) = (window.from, window.to);
    let (file, _) = cut.write(trace, Cursor::new(Vec::new()), |_, _| true).expect("written to memory");
    file.into_inner()
}

/// Compares the sums of a trace with those of its cut. Returns whether there are any.
#[track_caller]
fn check_sums(name: &str, whole: &OpenTrace, conditions: Conditions) -> bool {
    let window = conditions.window(times(whole));
    let part = open(&cut_with_sums(whole, conditions, window));
    let ((expected, has_rows), (found, _)) =
        (sums(whole, conditions, window), sums(&part, conditions, window));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{name}, {conditions:?}");
    }
    assert_eq!(found.len(), expected.len(), "{name}, {conditions:?}");
    let notes = CutNote::of(&part);
    let [note] = &notes[..] else { panic!("{name}: {notes:?}") };
    assert_eq!((note.from, note.to), (window.from, window.to), "{name}");
    assert_eq!(note.selection, format!("{conditions:?}"), "{name}");
    assert!(CutNote::of(whole).is_empty(), "{name}");
    has_rows
}

#[test]
fn sums_of_a_cut_trace_are_those_of_the_whole_one() {
    const CONDITIONS: [Conditions; 7] = [
        Conditions { filter: None, part: Some((30, 60)) },
        Conditions { filter: None, part: Some((0, 40)) },
        Conditions { filter: Some("process i~ 'browser.exe'"), part: None },
        Conditions { filter: Some("process i~ 'explorer.exe'"), part: Some((20, 80)) },
        Conditions { filter: Some("event ~ 'FileIo/*' and event != 'FileIo/OpEnd'"), part: None },
        Conditions { filter: Some("event = 'FileIo/OpEnd'"), part: Some((50, 101)) },
        Conditions { filter: Some("event ~ 'PerfInfo/*'"), part: Some((10, 90)) },
    ];
    let mut with_rows = 0;
    for (mix, seed) in [(Mix::Default, 1), (Mix::Before, 3)] {
        let trace = open(&demo(mix, seed));
        for conditions in CONDITIONS {
            with_rows += u32::from(check_sums(&format!("{mix:?} {seed}"), &trace, conditions));
        }
    }
    assert!(with_rows > 9, "{with_rows}");
}

#[test]
fn sums_of_cut_traces_of_windows_are_those_of_the_whole_ones() {
    let mut with_rows = Vec::new();
    for (name, _) in stackhound_corpus::trace_files() {
        let Some(bytes) = stackhound_corpus::etl_file(&name) else { continue };
        let trace = open(&bytes);
        for conditions in [
            Conditions { filter: None, part: Some((30, 60)) },
            Conditions { filter: Some("pid > 2000"), part: None },
        ] {
            if check_sums(&name, &trace, conditions) {
                with_rows.push((name.clone(), conditions));
            }
        }
    }
    println!("{with_rows:?}");
    assert!(stackhound_corpus::folder().is_none() || with_rows.len() > 5, "{with_rows:?}");
}
