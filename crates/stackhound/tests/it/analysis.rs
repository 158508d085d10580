//! Analyses of generated traces, compared with the ground truth of the scenario.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::costs::{self, CostBy, CostReport, Costs, Figures, Metric};
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::rows::By;
use stackhound::analysis::wait::{Measure, WaitBy, WaitReport, Waits};
use stackhound::etl::EtlFile;
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{Passes, Pipeline};
use stackhound_scenario::{GroundTruth, Mix, Scenario, SwitchTruth, TraceEvent, Truth};
use stackhound_types::{Address, Tid};

fn open(bytes: Vec<u8>) -> OpenTrace {
    let etl_file = EtlFile::open(bytes.into()).unwrap();
    OpenTrace::new(vec![Source::new("", etl_file)], 2).unwrap()
}

fn analyze(trace: &OpenTrace, window: Window, weighing: Weighing) -> CpuReport {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut cpu = Cpu::new(String::new(), trace, window, weighing);
    pipeline.run(|view| {
        cpu.observe(view, || true).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    cpu.finish(known, naming)
}

/// The time of each thread id by context switches.
fn exact(report: &CpuReport) -> BTreeMap<u32, u64> {
    let mut times = BTreeMap::new();
    for (thread, sums) in &report.exact.as_ref().expect("switches").threads {
        *times.entry(report.profile.threads()[thread.index()].tid.unwrap()).or_default() += sums.amount;
    }
    times
}

/// The time of each thread id in a window, by all switches of the scenario: also those that are not
/// in the file.
fn truth(events: &[stackhound_scenario::TraceEvent], (from, to): (i64, i64)) -> BTreeMap<u32, u64> {
    let mut running: BTreeMap<u16, (u32, i64)> = BTreeMap::new();
    let mut times = BTreeMap::new();
    let mut add = |tid: u32, since: i64, until: i64| {
        if tid != 0 {
            let ticks = until.min(to).saturating_sub(since.max(from)).max(0);
            *times.entry(tid).or_default() += ticks as u64;
        }
    };
    for event in events {
        let GroundTruth::Switch { old, new, .. } = event.action else { continue };
        let since = running.insert(event.processor, (new.0, event.time.0)).map_or(from, |(_, since)| since);
        add(old.0, since, event.time.0);
    }
    for (tid, since) in running.into_values() {
        add(tid, since, to);
    }
    times
}

#[test]
fn times_by_switches_are_the_truth_or_unknown() {
    let mut is_lossy = 0;
    for (mix, seed) in
        [(Mix::Default, 1), (Mix::Default, 2), (Mix::Default, 3), (Mix::Reuse, 4), (Mix::Reuse, 5)]
    {
        let mut file = Cursor::new(Vec::new());
        let scenario = Scenario { seed, mix, ..Scenario::default() };
        let (known, events) = scenario.write_with_events(&mut file).unwrap();
        let trace = open(file.into_inner());
        let whole = analyze(&trace, Window::default(), Weighing::default());
        let (start, end) = (whole.window.0.0, whole.window.1.0);
        let third = (end - start) / 3;
        for (from, to) in [(start, end), (start + third, end - third), (start, start + third)] {
            let window = Window { from: Some(TraceTime(from)), to: Some(TraceTime(to)) };
            let report = analyze(&trace, window, Weighing::default());
            let (measured, expected) = (exact(&report), truth(&events, (from, to)));
            let found = report.exact.as_ref().unwrap();
            let mut missing = 0;
            for (tid, expected) in &expected {
                let measured = measured.get(tid).copied().unwrap_or(0);
                assert!(measured <= *expected, "{mix:?} {seed}: thread {tid}: {measured} > {expected}");
                missing += expected - measured;
            }
            assert!(measured.keys().all(|tid| expected.contains_key(tid)));
            let unknown = report.unknown(found);
            assert!(missing <= unknown, "{mix:?} {seed}: {missing} > {unknown}");
            if known.lost.buffers == 0 {
                assert_eq!(missing, 0);
            }
            is_lossy += u32::from(missing > 0);
            // No time is counted twice.
            assert_eq!(found.busy(), measured.values().sum::<u64>());
            assert!(found.busy() + found.idle <= report.available(), "{mix:?} {seed}");
            if known.lost.buffers == 0 {
                assert_eq!(unknown, 0, "{mix:?} {seed}");
            }
        }
    }
    assert!(is_lossy > 0, "some traces have losses");
}

#[test]
fn samples_add_up_and_agree_with_switches() {
    for seed in 1..4 {
        let mut file = Cursor::new(Vec::new());
        Scenario { seed, events: 60_000, mix: Mix::Default }.write(&mut file).unwrap();
        let trace = open(file.into_inner());
        for weighing in [Weighing::Elapsed, Weighing::Nominal] {
            let report = analyze(&trace, Window::default(), weighing);
            let busy = report.classes.busy();
            for by in [By::Process, By::Thread, By::Stack] {
                let own: u64 = report.rows(by).iter().map(|row| row.own.amount).sum();
                assert_eq!(own, busy.amount, "{by:?}");
            }
            for grouping in [Grouping::Module, Grouping::Function, Grouping::Offset] {
                let rows = report.rows(By::Frames(grouping));
                assert_eq!(rows.iter().map(|row| row.own.amount).sum::<u64>(), busy.amount, "{grouping:?}");
                assert!(rows.iter().all(|row| row.own.amount <= row.total.amount));
                assert!(rows.iter().all(|row| row.total.amount <= busy.amount));
            }
            // The timer's samples measure what the switches state, as far as chance allows: three
            // standard errors of the number of samples.
            let interval = report.interval.expect("samples").ticks;
            for row in report.rows(By::Process).iter().filter(|row| row.own.count > 100) {
                let exact = row.exact.unwrap().amount;
                let error = 3.0 * (row.own.count as f64).sqrt() * interval as f64;
                let unknown = report.unknown(report.exact.as_ref().unwrap()) as f64;
                let difference = row.own.amount.abs_diff(exact) as f64;
                assert!(difference <= error + unknown, "{row:?}: {difference} > {error} + {unknown}");
            }
        }
    }
}

fn waits(trace: &OpenTrace, window: Window) -> WaitReport {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut waits = Waits::new(String::new(), trace, window);
    pipeline.run(|view| {
        waits.observe(view, || true).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    waits.finish(known, naming)
}

/// Times of threads that waited or were ready until a switch in a window, by thread id.
#[derive(Debug, Default)]
struct OffTruth {
    waited: BTreeMap<u32, u64>,
    ready: BTreeMap<u32, u64>,
}

/// From all switches, ready events and starts of threads of the scenario: also those that are not in
/// the file.
fn off_truth(
    switches: &[SwitchTruth],
    readied: &[(i64, u32)],
    started: &[(i64, u32)],
    (from, to): (i64, i64),
) -> OffTruth {
    // A new thread is ready until it runs.
    let mut off: BTreeMap<u32, (i64, bool)> =
        started.iter().map(|(time, tid)| (*tid, (*time, false))).collect();
    let mut truth = OffTruth::default();
    let length = |since: i64, until: i64| until.min(to).saturating_sub(since.max(from)).max(0) as u64;
    for switch in switches {
        let now = switch.time.0;
        if let Some((since, waits)) = off.remove(&switch.new.0) {
            let of_thread =
                |(time, tid): &&(i64, u32)| *tid == switch.new.0 && *time >= since && *time <= now;
            let ready =
                if waits { readied.iter().find(of_thread).map_or(now, |(time, _)| *time) } else { since };
            *truth.waited.entry(switch.new.0).or_default() += length(since, ready);
            *truth.ready.entry(switch.new.0).or_default() += length(ready, now);
        }
        if switch.old.0 != 0 {
            off.insert(switch.old.0, (now, switch.old_waits.is_some()));
        }
    }
    truth
}

#[test]
fn waits_are_the_truth_or_unknown() {
    let (mut compared, mut lossy) = (0, 0);
    for seed in 1..5 {
        let scenario = Scenario { seed, ..Scenario::default() };
        let mut file = Cursor::new(Vec::new());
        let (_, switches) = scenario.write_switches(&mut file).unwrap();
        let (known, events) = scenario.write_with_events(Cursor::new(Vec::new())).unwrap();
        let readied: Vec<(i64, u32)> = events
            .iter()
            .filter_map(|event| match event.action {
                GroundTruth::Ready { tid } => Some((event.time.0, tid.0)),
                _ => None,
            })
            .collect();
        let threads = known.processes.iter().flat_map(|process| &process.threads);
        let started: Vec<(i64, u32)> =
            threads.filter_map(|thread| Some((thread.started?.0, thread.tid.0))).collect();
        let trace = open(file.into_inner());
        let whole = waits(&trace, Window::default());
        let (start, end) = (whole.window.0.0, whole.window.1.0);
        let third = (end - start) / 3;
        for (from, to) in [(start, end), (start + third, end - third)] {
            let report = waits(&trace, Window { from: Some(TraceTime(from)), to: Some(TraceTime(to)) });
            let truth = off_truth(&switches, &readied, &started, (from, to));
            let of = |measure| {
                let rows = report.rows(measure, WaitBy::Waiting(By::Thread));
                let mut times: BTreeMap<u32, u64> = BTreeMap::new();
                rows.iter().for_each(|row| *times.entry(row.tid.unwrap()).or_default() += row.own.amount);
                times
            };
            for (measure, expected) in [(Measure::Waits, &truth.waited), (Measure::Ready, &truth.ready)] {
                let measured = of(measure);
                let mut missing = 0;
                for (tid, expected) in expected {
                    let measured = measured.get(tid).copied().unwrap_or(0);
                    assert!(
                        measured <= *expected,
                        "{seed} {measure:?}: thread {tid}: {measured} > {expected}"
                    );
                    missing += expected - measured;
                    compared += 1;
                }
                assert!(measured.keys().all(|tid| expected.contains_key(tid)), "{seed} {measure:?}");
                if known.lost.buffers == 0 {
                    assert_eq!(missing, 0, "{seed} {measure:?}");
                }
                lossy += u32::from(missing > 0);
                // All kinds of rows have the same sum.
                let total = report.total(measure);
                for by in [By::Process, By::Thread, By::Stack]
                    .map(WaitBy::Waiting)
                    .into_iter()
                    .chain([WaitBy::Reason, WaitBy::ReadyingThread])
                {
                    let rows = report.rows(measure, by);
                    assert_eq!(rows.iter().map(|row| row.own.amount).sum::<u64>(), total.amount, "{by:?}");
                    assert_eq!(rows.iter().map(|row| row.own.count).sum::<u64>(), total.count, "{by:?}");
                }
            }
        }
    }
    assert!(compared > 300 && lossy > 0, "{compared} {lossy}");
}

fn measure(trace: &OpenTrace, metric: &'static Metric, window: Window) -> CostReport {
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
fn column(report: &CostReport, by: CostBy, name: &str) -> BTreeMap<String, u64> {
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
        let (truth, events) =
            Scenario { seed, mix, ..Scenario::default() }.write_with_events(&mut file).unwrap();
        let trace = open(file.into_inner());
        let (from, to) = (events[0].time.0, events[events.len() - 1].time.0);
        let third = (to - from) / 3;
        let middle = Window { from: Some(TraceTime(from + third)), to: Some(TraceTime(to - third)) };
        Generated { truth, events, trace, windows: [Window::default(), middle] }
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
    for Generated { truth, events, trace, windows } in generated() {
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
    for Generated { truth, events, trace, windows } in generated() {
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
