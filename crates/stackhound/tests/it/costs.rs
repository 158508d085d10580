//! What generated traces spent on resources, compared with the ground truth of the scenario.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::costs::{self, CostBy, CostReport, Costs, Figures, Metric};
use stackhound::analysis::rows::By;
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, TraceTime};
use stackhound::{Passes, Pipeline};
use stackhound_scenario::{About, GroundTruth, Mix, Scenario, TraceEvent, Truth};
use stackhound_types::{Address, Tid};

use crate::analysis::open;

pub fn measure(trace: &OpenTrace, metric: &'static Metric, window: Window) -> CostReport {
    measure_with(Pipeline::new(trace, Passes::Two), trace, metric, window)
}

fn measure_with<'t>(
    mut pipeline: Pipeline<'t>,
    trace: &'t OpenTrace,
    metric: &'static Metric,
    window: Window,
) -> CostReport {
    let mut costs = Costs::new(metric, String::new(), trace, window);
    pipeline.run(|view| {
        costs.observe(view, || true).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    costs.finish(known, naming)
}

/// The value of a column, in nanoseconds, bytes or as a number.
fn value(report: &CostReport, figures: &Figures, name: &str) -> u64 {
    let column = report.metric.columns.iter().find(|column| column.name == name).unwrap();
    report.value(figures, column)
}

/// A column of all rows, by their innermost names.
pub fn column(report: &CostReport, by: CostBy, name: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    for row in report.rows(by) {
        *values.entry(row.names[0].clone()).or_default() += value(report, &row.own, name);
    }
    values.retain(|_, value| *value > 0);
    values
}

/// A column of all threads, by their ids.
fn by_thread(report: &CostReport, name: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    for row in report.rows(CostBy::Actor(By::Thread)) {
        let Some(tid) = row.tid else { continue };
        *values.entry(tid.to_string()).or_default() += value(report, &row.own, name);
    }
    values.retain(|_, value| *value > 0);
    values
}

/// All kinds of rows have the same sums.
fn check_sums(report: &CostReport, actors: &[By]) {
    let own = (0..report.metric.dimensions.len()).map(CostBy::Own);
    let all: Vec<CostBy> = actors.iter().copied().map(CostBy::Actor).chain(own).collect();
    let total = report.total();
    for by in all {
        let rows = report.rows(by);
        for column in report.metric.columns {
            let of_rows = rows.iter().map(|row| row.own.of(column));
            let sum = if column.is_max() { of_rows.max().unwrap_or(0) } else { of_rows.sum() };
            assert_eq!(sum, total.of(column), "{} by {by:?}: {}", report.metric.name, column.name);
        }
        assert!(rows.iter().all(|row| {
            report.metric.columns.iter().all(|column| row.own.of(column) <= row.total.of(column))
        }));
    }
}

/// A generated trace with its truth.
struct Generated {
    scenario: Scenario,
    truth: Truth,
    events: Vec<TraceEvent>,
    trace: OpenTrace,
    /// The whole trace and its middle third.
    windows: [Window; 2],
}

fn generated() -> impl Iterator<Item = Generated> {
    (1..7).map(|seed| {
        let mix = if seed > 4 { Mix::Reuse } else { Mix::Default };
        let mut file = Cursor::new(Vec::new());
        let scenario = Scenario { seed, mix, ..Scenario::default() };
        let (truth, events) = scenario.write_with_events(&mut file).unwrap();
        let trace = open(file.into_inner());
        let (from, to) = (events[0].time.0, events[events.len() - 1].time.0);
        let third = (to - from) / 3;
        let middle = Window { from: Some(TraceTime(from + third)), to: Some(TraceTime(to - third)) };
        Generated { scenario, truth, events, trace, windows: [Window::default(), middle] }
    })
}

const ACTORS: [By; 6] = [
    By::Process,
    By::Thread,
    By::Stack,
    By::Frames(Grouping::Module),
    By::Frames(Grouping::Function),
    By::Frames(Grouping::Offset),
];

/// The module of a routine in the kernel, and its offset.
fn kernel_module(truth: &Truth, routine: Address) -> (String, u64) {
    let mut images = truth.kernel_images.iter().map(|&index| &truth.images[index]);
    let image = images.find(|image| image.contains(routine)).unwrap();
    (image.name().to_owned(), routine.0 - image.base.0)
}

#[test]
fn interrupts_are_the_truth() {
    let mut compared = 0;
    for Generated { truth, events, trace, windows, .. } in generated() {
        for window in windows {
            let report = measure(&trace, &costs::INTERRUPT, window);
            let mut expected: [BTreeMap<String, u64>; 3] = Default::default();
            for event in events.iter().filter(|event| event.kept) {
                let GroundTruth::Interrupt { since, routine, .. } = event.action else { continue };
                // The clock of scenarios has units of 100 ns.
                let time = window.overlap(TraceTime(since.0), TraceTime(event.time.0)) * 100;
                let count = u64::from(window.contains(TraceTime(event.time.0)));
                let module = kernel_module(&truth, routine).0;
                *expected[0].entry(module.clone()).or_default() += time;
                *expected[1].entry(module).or_default() += count;
                *expected[2].entry(event.processor.to_string()).or_default() += time;
            }
            expected.iter_mut().for_each(|values| values.retain(|_, value| *value > 0));
            let by_module = CostBy::Actor(By::Frames(Grouping::Module));
            assert_eq!(column(&report, by_module, "exclusive"), expected[0]);
            assert_eq!(column(&report, by_module, "calls"), expected[1]);
            assert_eq!(column(&report, CostBy::Own(1), "exclusive"), expected[2]);
            assert!(report.remainders.is_empty(), "{:?}", report.remainders);
            check_sums(&report, &ACTORS);
            compared += expected[1].values().sum::<u64>();
        }
    }
    assert!(compared > 3000, "{compared}");
}

#[test]
fn system_calls_are_the_truth_or_unknown() {
    let (mut exact, mut incomplete) = (0, 0);
    for Generated { truth, events, trace, windows, .. } in generated() {
        let folder = tempfile::tempdir().unwrap();
        for (window, has_names) in windows.into_iter().flat_map(|window| [(window, false), (window, true)]) {
            let mut pipeline = Pipeline::new(&trace, Passes::Two);
            if has_names {
                pipeline = pipeline.with(crate::scenario::calls::named(&truth, folder.path()));
            }
            let report = measure_with(pipeline, &trace, &costs::SYSTEM_CALL, window);
            // By service without names, else by thread: calls, those that are complete in the file,
            // and the time of these.
            let mut expected: BTreeMap<String, [u64; 3]> = BTreeMap::new();
            let mut open: BTreeMap<u32, Vec<(bool, i64, Address)>> = BTreeMap::new();
            let key_of = |tid: Tid, routine| match kernel_module(&truth, routine) {
                _ if has_names => tid.0.to_string(),
                (module, rva) => format!("{module}+{rva:#x}"),
            };
            for event in &events {
                let now = TraceTime(event.time.0);
                match event.action {
                    GroundTruth::Enter { tid, routine } => {
                        open.entry(tid.0).or_default().push((event.kept, now.0, routine));
                        let counts = expected.entry(key_of(tid, routine)).or_default();
                        counts[0] += u64::from(event.kept && window.contains(now));
                    }
                    GroundTruth::Exit { tid } => {
                        let entered = open.get_mut(&tid.0).and_then(Vec::pop);
                        let Some((true, from, routine)) = entered.filter(|_| event.kept) else { continue };
                        let counts = expected.entry(key_of(tid, routine)).or_default();
                        counts[1] += u64::from(window.contains(TraceTime(from)));
                        counts[2] += window.overlap(TraceTime(from), now) * 100;
                    }
                    GroundTruth::Switch { old, old_ends: true, .. } => drop(open.remove(&old.0)),
                    _ => {}
                }
            }
            let of = |name| match has_names {
                false => column(&report, CostBy::Own(0), name),
                true => by_thread(&report, name),
            };
            let (calls, completed, durations) = (of("calls"), of("completed"), of("duration"));
            for (key, [count, complete, time]) in &expected {
                let measured = |values: &BTreeMap<String, u64>| values.get(key).copied().unwrap_or(0);
                if has_names {
                    // The threads of some calls are unknown.
                    assert!(measured(&calls) <= *count, "{key}");
                } else {
                    assert_eq!(measured(&calls), *count, "{key}");
                }
                assert!(measured(&completed) <= *complete, "{key}");
                assert!(measured(&durations) <= *time, "{key}");
                // Calls that begin before the window can be incomplete too.
                if window == Window::default() && measured(&completed) == *complete {
                    assert_eq!(measured(&durations), *time, "{key}");
                    exact += complete;
                }
            }
            let total = report.total();
            let unknown = report.remainders.iter().filter(|remainder| !remainder.reason.starts_with("exits"));
            let unknown: u64 = unknown.map(|remainder| remainder.sums.count).sum();
            assert_eq!(value(&report, &total, "completed") + unknown, value(&report, &total, "calls"));
            check_sums(&report, &ACTORS);
            incomplete += unknown;
        }
    }
    assert!(exact > 1000 && incomplete > 0, "{exact} {incomplete}");
}

impl Generated {
    /// The DOS paths of the files that events are about, by time and processor.
    fn files(&self) -> BTreeMap<(i64, u16), String> {
        let (_, subjects) = self.scenario.write_with_subjects(Cursor::new(Vec::new())).unwrap();
        let files = subjects.into_iter().filter_map(|subject| match subject.about {
            About::File(path) => {
                let path = path.replace(r"\Device\HarddiskVolume3", "C:");
                Some(((subject.time.0, subject.processor), path))
            }
            _ => None,
        });
        files.collect()
    }

    /// The time around the lost records, between records of their processor that are in the file.
    fn gap(&self) -> Option<(i64, i64)> {
        let (_, subjects) = self.scenario.write_with_subjects(Cursor::new(Vec::new())).unwrap();
        let lost: Vec<_> = subjects.iter().filter(|subject| !subject.kept).collect();
        let (first, last) = (lost.first()?, lost.last()?);
        let kept = subjects.iter().filter(|subject| subject.kept && subject.processor == first.processor);
        let from = kept.clone().filter(|subject| subject.time < first.time).map(|subject| subject.time.0);
        let until = kept.filter(|subject| subject.time > last.time).map(|subject| subject.time.0);
        Some((from.max().unwrap_or(i64::MIN), until.min().unwrap_or(i64::MAX)))
    }

    fn kept(&self) -> impl Iterator<Item = &TraceEvent> {
        self.events.iter().filter(|event| event.kept)
    }
}

/// Adds up a column of the truth by file. The name of a file is not certain where records are lost:
/// then its amount is in a row of its own, and nowhere else.
fn compare_files(report: &CostReport, name: &str, expected: &BTreeMap<String, u64>) -> u64 {
    let measured = column(report, CostBy::Own(0), name);
    let mut uncertain = 0;
    for (file, measured) in &measured {
        if file.starts_with("[file name not certain") {
            uncertain = *measured;
        } else {
            assert!(expected.get(file).is_some_and(|expected| measured <= expected), "{name} of {file}");
        }
    }
    let sum = |values: &BTreeMap<String, u64>| values.values().sum::<u64>();
    assert_eq!(sum(&measured), sum(expected), "{name}");
    sum(&measured) - uncertain
}

fn add(values: &mut BTreeMap<String, u64>, key: impl ToString, amount: u64) {
    if amount > 0 {
        *values.entry(key.to_string()).or_default() += amount;
    }
}

#[test]
fn disk_transfers_are_the_truth() {
    let mut named = 0;
    for generated in generated() {
        let files = generated.files();
        for window in generated.windows {
            let report = measure(&generated.trace, &costs::DISK, window);
            let (mut io_times, mut service, mut bytes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            let mut written = BTreeMap::new();
            let mut by_tid = BTreeMap::new();
            let mut transfers = Vec::new();
            let mut previous = i64::MIN;
            for event in generated.kept() {
                let GroundTruth::Disk { since, tid, bytes: size, is_write } = event.action else { continue };
                let (now, file) = (event.time.0, &files[&(event.time.0, event.processor)]);
                let time = |from: i64| window.overlap(TraceTime(from), TraceTime(now)) * 100;
                add(&mut io_times, file, time(since.0));
                add(&mut service, file, time(since.0.max(previous)));
                add(&mut by_tid, tid.0, time(since.0));
                previous = now;
                transfers.push((since.0, now));
                if window.contains(TraceTime(now)) {
                    add(if is_write { &mut written } else { &mut bytes }, file, size.into());
                }
            }
            named += compare_files(&report, "io_time", &io_times);
            compare_files(&report, "service_time", &service);
            compare_files(&report, "read_bytes", &bytes);
            compare_files(&report, "written_bytes", &written);
            assert_eq!(by_thread(&report, "io_time"), by_tid);
            // All transfers are of one disk.
            transfers.sort_unstable();
            let (mut busy, mut end) = (0, i64::MIN);
            for (since, until) in transfers {
                busy += window.overlap(TraceTime(since.max(end)), TraceTime(until)) * 100;
                end = end.max(until);
            }
            assert_eq!(value(&report, &report.total(), "busy"), busy);
            assert!(value(&report, &report.total(), "service_time") <= busy);
            let stacks = report.rows(CostBy::Actor(By::Stack));
            let without: u64 = stacks
                .iter()
                .filter(|row| row.names[0] == "[no stack]")
                .map(|row| value(&report, &row.own, "reads") + value(&report, &row.own, "writes"))
                .sum();
            let unknown = report.remainders.iter().find(|known| known.reason.starts_with("transfers"));
            assert!(without <= unknown.map_or(0, |known| known.sums.count));
            check_sums(&report, &ACTORS);
        }
    }
    assert!(named > 100_000_000, "{named}");
}

#[test]
fn file_operations_are_the_truth_or_unknown() {
    let (mut named, mut exact) = (0, 0);
    for generated in generated() {
        let (files, gap) = (generated.files(), generated.gap());
        for window in generated.windows {
            let report = measure(&generated.trace, &costs::FILE, window);
            let (mut counts, mut bytes, mut begun) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            // The times of operations without lost records meanwhile, and of the others.
            let (mut certain, mut others, mut by_tid) = (0, 0, BTreeMap::new());
            for event in generated.kept() {
                let now = TraceTime(event.time.0);
                match event.action {
                    GroundTruth::FileBegin { request, bytes: size, tid } => {
                        let file = &files[&(event.time.0, event.processor)];
                        begun.insert(request, (now, tid));
                        if window.contains(now) {
                            add(&mut counts, file, 1);
                            add(&mut bytes, file, size.into());
                        }
                    }
                    GroundTruth::FileEnd { request } => {
                        let Some((since, tid)) = begun.remove(&request) else { continue };
                        let time = window.overlap(since, now) * 100;
                        add(&mut by_tid, tid.0, time);
                        let is_certain = gap.is_none_or(|(from, until)| now.0 < from || since.0 > until);
                        *(if is_certain { &mut certain } else { &mut others }) += time;
                    }
                    _ => {}
                }
            }
            named += compare_files(&report, "operations", &counts);
            let of = |name| value(&report, &report.total(), name);
            assert_eq!(of("read_bytes") + of("written_bytes"), bytes.values().sum::<u64>());
            let measured = of("duration");
            assert!((certain..=certain + others).contains(&measured), "{certain} {measured} {others}");
            for (tid, time) in by_thread(&report, "duration") {
                assert!(time <= by_tid[&tid], "{tid}");
            }
            check_sums(&report, &ACTORS);
            exact += certain;
        }
    }
    assert!(named > 2000 && exact > 100_000_000, "{named} {exact}");
}

#[test]
fn hard_faults_are_the_truth() {
    let mut compared = 0;
    for generated in generated() {
        let files = generated.files();
        for window in generated.windows {
            let report = measure(&generated.trace, &costs::FAULT, window);
            let (mut times, mut bytes, mut by_tid) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            for event in generated.kept() {
                let GroundTruth::HardFault { since, tid, bytes: size } = event.action else { continue };
                let (now, file) = (TraceTime(event.time.0), &files[&(event.time.0, event.processor)]);
                let time = window.overlap(TraceTime(since.0), now) * 100;
                add(&mut times, file, time);
                add(&mut by_tid, tid.0, time);
                add(&mut bytes, file, if window.contains(now) { size.into() } else { 0 });
            }
            compared += compare_files(&report, "duration", &times);
            compare_files(&report, "bytes", &bytes);
            assert_eq!(by_thread(&report, "duration"), by_tid);
            check_sums(&report, &ACTORS);
        }
    }
    assert!(compared > 10_000_000, "{compared}");
}

/// A column of all processes, by their ids.
fn by_process(report: &CostReport, name: &str) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    for row in report.rows(CostBy::Actor(By::Process)) {
        add(&mut values, row.pid.unwrap(), value(report, &row.own, name));
    }
    values
}

#[test]
fn network_transfers_are_the_truth() {
    let mut compared = 0;
    for generated in generated() {
        for window in generated.windows {
            let report = measure(&generated.trace, &costs::NETWORK, window);
            let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
            for event in generated.kept().filter(|event| window.contains(TraceTime(event.time.0))) {
                let GroundTruth::Network { pid, bytes, is_send } = event.action else { continue };
                add(if is_send { &mut sent } else { &mut received }, pid.0, bytes.into());
            }
            assert_eq!(by_process(&report, "sent_bytes"), sent);
            assert_eq!(by_process(&report, "received_bytes"), received);
            let all = sent.values().chain(received.values()).sum::<u64>();
            let endpoints = column(&report, CostBy::Own(0), "bytes");
            assert_eq!(endpoints, BTreeMap::from([("TCP 203.0.113.10:443".to_owned(), all)]));
            check_sums(&report, &ACTORS);
            compared += all;
        }
    }
    assert!(compared > 100_000, "{compared}");
}

#[test]
fn committed_memory_is_the_truth() {
    let (mut compared, mut is_outstanding) = (0, false);
    for generated in generated() {
        let (_, subjects) = generated.scenario.write_with_subjects(Cursor::new(Vec::new())).unwrap();
        // The ends of processes that are in the file.
        let mut ends: Vec<(i64, u32)> = Vec::new();
        for process in &generated.truth.processes {
            let Some(ended) = process.ended else { continue };
            let event = subjects.iter().find(|subject| {
                subject.time == ended && subject.actor.is_some_and(|(pid, _)| pid == process.pid)
            });
            if event.unwrap().kept {
                ends.push((ended.0, process.pid.0));
            }
        }
        for window in generated.windows {
            let report = measure(&generated.trace, &costs::MEMORY, window);
            let (mut allocated, mut freed) = (BTreeMap::new(), BTreeMap::new());
            let mut live: BTreeMap<(u32, u64), (u64, i64)> = BTreeMap::new();
            let before_end = |event: &&TraceEvent| window.to.is_none_or(|to| event.time.0 < to.0);
            let mut ends = ends.clone();
            for event in generated.kept().filter(before_end) {
                let is_counted = window.contains(TraceTime(event.time.0));
                ends.retain(|&(time, pid)| {
                    let is_over = time <= event.time.0;
                    if is_over {
                        live.retain(|key, (size, _)| {
                            let is_freed = key.0 == pid;
                            if is_freed && window.contains(TraceTime(time)) {
                                add(&mut freed, pid, *size);
                            }
                            !is_freed
                        });
                    }
                    !is_over
                });
                match event.action {
                    GroundTruth::Allocate { pid, region } => {
                        live.insert((pid.0, region.base.0), (region.size, event.time.0));
                        add(&mut allocated, pid.0, if is_counted { region.size } else { 0 });
                    }
                    GroundTruth::Free { pid, region } => {
                        let is_known = live.remove(&(pid.0, region.base.0)).is_some();
                        add(&mut freed, pid.0, if is_known && is_counted { region.size } else { 0 });
                    }
                    _ => {}
                }
            }
            let mut outstanding = BTreeMap::new();
            live.iter().for_each(|((pid, _), (size, _))| add(&mut outstanding, pid, *size));
            assert_eq!(by_process(&report, "allocated_bytes"), allocated);
            assert_eq!(by_process(&report, "outstanding_bytes"), outstanding);
            assert_eq!(by_process(&report, "freed_bytes"), freed);
            if window == Window::default() {
                let of = |name| value(&report, &report.total(), name);
                assert_eq!(of("allocated_bytes") - of("freed_bytes"), of("outstanding_bytes"));
            }
            check_sums(&report, &ACTORS);
            compared += allocated.len();
            is_outstanding |= !outstanding.is_empty();
        }
    }
    assert!(compared > 30 && is_outstanding, "{compared}");
}
