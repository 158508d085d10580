//! Analyses of generated traces, compared with the ground truth of the scenario.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::rows::By;
use stackhound::analysis::wait::{Measure, WaitBy, WaitReport, Waits};
use stackhound::analysis::{Collector, Limits, Window};
use stackhound::etl::EtlFile;
use stackhound::profile::{Grouping, Profile};
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{Passes, Pipeline, Predicate};
use stackhound_etl::write::{EtlWriter, HeaderSpec, Payload, RecordSpec, Session};
use stackhound_pipeline::OwnerCache;
use stackhound_scenario::{GroundTruth, Mix, Scenario, SwitchTruth};
use stackhound_schema::kernel::hook_id;
use stackhound_types::{Pid, PointerSize, RawTime};

pub fn open(bytes: Vec<u8>) -> OpenTrace {
    let etl_file = EtlFile::open(bytes.into()).unwrap();
    OpenTrace::new(vec![Source::new("", etl_file)], 2).unwrap()
}

pub fn analyze(trace: &OpenTrace, window: Window, weighing: Weighing) -> CpuReport {
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
                GroundTruth::Ready { tid, .. } => Some((event.time.0, tid.0)),
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

const START: i64 = 1_000_000;

/// Fields of a record: values, and their sizes in bytes.
type Fields = Vec<(u64, usize)>;

/// A trace of records: time, hook id, version, fields.
fn recorded(records: impl IntoIterator<Item = (i64, u16, u8, Fields)>) -> OpenTrace {
    let session = Session { start: RawTime(START), ..Session::default() };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for (time, hook_id, version, fields) in records {
        let payload: Vec<u8> =
            fields.iter().flat_map(|(value, size)| value.to_le_bytes()[..*size].to_vec()).collect();
        let header = HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[] };
        let (time, payload) = (RawTime(time), Payload::Bytes(&payload));
        writer.write(0, &RecordSpec { time, pointer_size: PointerSize::Eight, header, payload }).unwrap();
    }
    open(writer.finish().unwrap().0.into_inner())
}

/// A record of a thread of version 3.
fn thread(time: i64, hook_id: u16, pid: u64, tid: u64) -> (i64, u16, u8, Fields) {
    (time, hook_id, 3, [&[(pid, 4), (tid, 4)][..], &[(0, 8); 8]].concat())
}

/// The record of a stack.
fn stack(time: i64, pid: u64, tid: u64, addresses: &[u64]) -> (i64, u16, u8, Fields) {
    let mut fields = vec![(time as u64, 8), (pid, 4), (tid, 4)];
    fields.extend(addresses.iter().map(|&address| (address, 8)));
    (time, hook_id::STACK_WALK_STACK, 2, fields)
}

/// A trace of profile samples, each with the thread, the flags and the stack of its event. Threads are
/// in the process 8, except for thread 0. Addresses begin at the innermost frame.
fn sampled(samples: &[(u32, u8, &[u64])]) -> OpenTrace {
    let mut records = vec![];
    for (pid, tid) in [(0, 0), (8, 12)] {
        records.push(thread(START, hook_id::THREAD_DC_START, pid, tid));
    }
    for (number, &(tid, flags, addresses)) in samples.iter().enumerate() {
        let time = START + 10_000 * (number as i64 + 1);
        let sample = vec![(addresses[0], 8), (tid.into(), 4), (1, 2), (flags.into(), 1), (0, 1)];
        records.push((time, hook_id::PERF_INFO_SAMPLED_PROFILE, 2, sample));
        let pid = if tid == 0 { 0 } else { 8 };
        records.push(stack(time, pid, tid.into(), addresses));
    }
    recorded(records)
}

fn collect(trace: &OpenTrace, chosen: Option<&str>) -> Profile {
    let chosen = chosen.map(|text| Predicate::parse(text).unwrap());
    let mut collector = Collector::new(String::new(), trace, chosen, Limits::default());
    add_capture(&mut collector, trace);
    collector.finish().0
}

fn add_capture(collector: &mut Collector, trace: &OpenTrace) {
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    collector.begin_capture(trace.clock());
    pipeline.run(|view| {
        collector.observe(view, || true).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    collector.end_capture(known, naming);
}

const KERNEL: u64 = 0xffff_f800_0000_1000;
const USER: u64 = 0x7ff6_0000_1000;

#[test]
fn samples_in_interrupts_are_work_of_no_thread() {
    let (dpc, isr, both) = (1, 2, 3);
    let samples: &[(u32, u8, &[u64])] = &[
        (0, 0, &[KERNEL]),
        (0, dpc, &[KERNEL]),
        (0, isr, &[KERNEL]),
        (0, both, &[KERNEL]),
        (12, 0, &[KERNEL, USER]),
        (12, dpc, &[KERNEL, USER]),
        (12, isr, &[KERNEL, USER]),
    ];
    let trace = sampled(samples);
    // The process, the number of samples, of them idle ones, and of frames.
    let expected = [("DPC", 2, 0, 2), ("ISR", 3, 0, 3), ("Idle", 1, 1, 1), ("unknown", 1, 0, 2)];
    let profile = collect(&trace, None);
    let mut found: BTreeMap<&str, (u32, u32, usize)> = BTreeMap::new();
    for sample in profile.samples() {
        let process = profile.process(profile.threads()[sample.thread.index()].process);
        let row = found.entry(&process.name).or_default();
        row.0 += 1;
        row.1 += u32::from(profile.is_idle(sample.thread));
        row.2 += profile.stack(sample.stack).count();
    }
    let found: Vec<_> = found.into_iter().map(|(name, (a, b, c))| (name, a, b, c)).collect();
    assert_eq!(found, expected);
    // As many as of the processor time.
    let report = analyze(&trace, Window::default(), Weighing::default());
    let mut busy: Vec<_> =
        report.rows(By::Process).into_iter().map(|row| (row.names[0].clone(), row.own.count)).collect();
    busy.sort();
    let of = |name: &str| busy.iter().find(|row| row.0.starts_with(name)).map(|row| row.1);
    assert_eq!((of("DPC"), of("ISR"), of("unknown"), of("Idle")), (Some(2), Some(3), Some(1), None));
}

/// A wait is one of a thread, also if its process is not certain at one end. Switches are to a thread
/// whose stack states a process, or from it.
#[test]
fn waits_follow_threads_and_not_their_processes() {
    const WAITING: u64 = 5;
    // For each switch to the thread: the process that its stack states. Then the processes of its waits.
    let switch = |time, new: u64, old: u64, state: u64| {
        let fields = vec![(new, 4), (old, 4), (0, 4), (0, 1), (0, 1), (state, 1), (0, 1), (0, 8)];
        (time, hook_id::THREAD_C_SWITCH, 3, fields)
    };
    for (stated, expected) in [
        (&[Some(8), Some(8)][..], &[Some(8)][..]),
        (&[Some(8), None, Some(8)], &[Some(8), Some(8)]),
        // The second switch is of one or the other process.
        (&[Some(8), None, Some(9)], &[None, Some(9)]),
        // A thread leaves as it came, and another one has its id now.
        (&[Some(8), Some(9)], &[]),
        (&[Some(8), Some(9), Some(9)], &[Some(9)]),
    ] {
        let mut records = Vec::new();
        for (number, pid) in stated.iter().enumerate() {
            let time = START + 10_000 * (number as i64 + 1);
            records.push(switch(time, 12, 0, 2));
            records.extend(pid.map(|pid| stack(time, pid, 12, &[KERNEL])));
            records.push(switch(time + 5_000, 0, 12, WAITING));
        }
        let report = waits(&recorded(records), Window::default());
        let mut found = Vec::new();
        for ((thread, _), sums) in report.observed(Measure::Waits) {
            let process = report.profile.threads()[thread.index()].process;
            found.extend((0..sums.count).map(|_| report.profile.process(process).pid));
        }
        found.sort_unstable();
        assert_eq!(found, expected, "{stated:?}");
    }
}

/// Values that are kept for the ids of events are those of all events with these ids, also where
/// stacks contradict the events of threads.
#[test]
fn kept_owners_are_those_of_all_their_events() {
    let stated = [8, 8, 9, 8, 9, 9, 8, 8];
    let mut records = vec![thread(START, hook_id::THREAD_DC_START, 8, 12)];
    for (number, pid) in stated.into_iter().enumerate() {
        let time = START + 10_000 * (number as i64 + 1);
        let sample = vec![(KERNEL, 8), (12, 4), (1, 2), (0, 1), (0, 1)];
        records.push((time, hook_id::PERF_INFO_SAMPLED_PROFILE, 2, sample));
        records.push(stack(time, 8, 12, &[KERNEL]));
        records.push(stack(time, pid, 12, &[USER]));
    }
    records.push(thread(START + 100_000, hook_id::THREAD_DC_END, 8, 12));
    let trace = recorded(records);
    let (mut owners, mut found) = (OwnerCache::default(), Vec::new());
    Pipeline::new(&trace, Passes::Two).run(|view| {
        if view.kernel_id() == Some(hook_id::PERF_INFO_SAMPLED_PROFILE) {
            let kept = owners.find(view).copied();
            if let (None, Some(place)) = (kept, owners.place(view)) {
                place.keep(view.pid());
            }
            found.push(kept.unwrap_or_else(|| view.pid()));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(found, stated.map(|pid| (pid == 8).then_some(Pid(8))));
}

#[test]
fn interrupts_of_captures_are_different() {
    let trace = sampled(&[(0, 1, &[KERNEL]), (0, 2, &[KERNEL])]);
    let mut collector = Collector::new(String::new(), &trace, None, Limits::default());
    add_capture(&mut collector, &trace);
    add_capture(&mut collector, &trace);
    let (profile, _) = collector.finish();
    let names = profile.process_ids().map(|(_, process)| &*process.name);
    let names: Vec<_> = names.filter(|name| matches!(*name, "DPC" | "ISR")).collect();
    assert_eq!(names, ["DPC", "ISR", "DPC", "ISR"]);
}

/// Events of other kinds in process 0 are not idle time.
#[test]
fn only_samples_of_the_timer_are_idle() {
    let trace = sampled(&[(0, 0, &[KERNEL]), (12, 0, &[KERNEL])]);
    for (chosen, expected) in [
        (None, 1),
        (Some("event = 'PerfInfo/SampledProfile'"), 1),
        (Some("event = 'Thread/DCStart'"), 0),
        (Some("event i~ '*'"), 0),
    ] {
        let profile = collect(&trace, chosen);
        let idle = profile.samples().filter(|sample| profile.is_idle(sample.thread));
        assert_eq!(idle.count(), expected, "{chosen:?}");
    }
}
