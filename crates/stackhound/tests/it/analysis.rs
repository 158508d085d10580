//! Analyses of generated traces, compared with the ground truth of the scenario.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{By, Cpu, CpuReport};
use stackhound::etl::EtlFile;
use stackhound::profile::Grouping;
use stackhound::trace::{OpenTrace, Source, TraceTime};
use stackhound::{Passes, Pipeline};
use stackhound_scenario::{GroundTruth, Mix, Scenario};

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
            assert!(missing <= found.unknown, "{mix:?} {seed}: {missing} > {}", found.unknown);
            if known.lost.buffers == 0 {
                assert_eq!(missing, 0);
            }
            is_lossy += u32::from(missing > 0);
            // All of the available time is accounted for.
            let busy: u64 = measured.values().sum();
            assert_eq!(busy + found.idle + found.unknown, report.available(), "{mix:?} {seed}");
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
            let (interval, _) = report.interval.expect("samples");
            for row in report.rows(By::Process).iter().filter(|row| row.own.count > 100) {
                let exact = row.exact.unwrap().amount;
                let error = 3.0 * (row.own.count as f64).sqrt() * interval as f64;
                let unknown = report.exact.as_ref().unwrap().unknown as f64;
                let difference = row.own.amount.abs_diff(exact) as f64;
                assert!(difference <= error + unknown, "{row:?}: {difference} > {error} + {unknown}");
            }
        }
    }
}
