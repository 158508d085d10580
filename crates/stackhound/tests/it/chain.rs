//! Critical paths of generated traces, compared with a literal evaluation of the scenario's truth.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::analysis::Window;
use stackhound::analysis::chain::path::{Did, End, Gap};
use stackhound::analysis::chain::{Chain, ChainReport};
use stackhound::trace::{OpenTrace, TraceTime};
use stackhound::{Passes, Pipeline};
use stackhound_scenario::{GroundTruth, Mix, Scenario, SwitchTruth, TraceEvent, Truth};
use stackhound_types::Tid;

use crate::analysis::open;

fn follow(trace: &OpenTrace, (from, to): (i64, i64), tid: u32, tiles_max: usize) -> ChainReport {
    let window = Window { from: Some(TraceTime(from)), to: Some(TraceTime(to)) };
    let mut pipeline = Pipeline::new(trace, Passes::Two);
    let mut chain = Chain::new(String::new(), trace, window, Tid(tid)).keeping(tiles_max);
    pipeline.run(|view| {
        chain.observe(view).unwrap();
        ControlFlow::Continue(())
    });
    let (known, _, naming) = pipeline.parts();
    chain.finish(known, naming).unwrap()
}

/// What a thread did at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fact {
    Ran,
    Ready,
    Disk,
    Timer,
    Dpc,
    Open,
    /// It waited for a thread that waits for it or is it.
    Circle,
    NotStarted,
    NotKnown,
}

/// All switches and ready events of the scenario, also those that are not in the file, by thread.
#[derive(Default)]
struct Literal {
    switches: BTreeMap<u32, Vec<(i64, Side)>>,
    /// The time, the thread that did it, and whether it is the end of a transfer of the thread.
    readied: BTreeMap<u32, Vec<(i64, Option<u32>, bool)>>,
    started: BTreeMap<u32, i64>,
    times: Vec<i64>,
    /// The last event before the loss on its processor, and the first one after it.
    lost: (i64, i64),
}

#[derive(Clone, Copy)]
enum Side {
    In,
    /// With the reason of the wait, if it waits.
    Out(Option<u8>),
}

impl Literal {
    fn new(truth: &Truth, switches: &[SwitchTruth], events: &[TraceEvent]) -> Literal {
        let mut literal = Literal::default();
        for switch in switches {
            let time = switch.time.0;
            literal.switches.entry(switch.old.0).or_default().push((time, Side::Out(switch.old_waits)));
            literal.switches.entry(switch.new.0).or_default().push((time, Side::In));
            literal.times.push(time);
        }
        let mut transfers: BTreeMap<u32, (i64, u16)> = BTreeMap::new();
        for event in events {
            match event.action {
                GroundTruth::Disk { tid, .. } => {
                    transfers.insert(tid.0, (event.time.0, event.processor));
                }
                GroundTruth::Ready { tid, by } => {
                    let ended =
                        transfers.remove(&tid.0).filter(|(_, processor)| *processor == event.processor);
                    let ready = (event.time.0, by.map(|by| by.0), ended.is_some());
                    literal.readied.entry(tid.0).or_default().push(ready);
                    literal.times.push(event.time.0);
                }
                _ => {}
            }
        }
        let threads = truth.processes.iter().flat_map(|process| &process.threads);
        literal.started = threads.filter_map(|thread| Some((thread.tid.0, thread.started?.0))).collect();
        literal.times.extend(literal.started.values());
        let lost: Vec<_> = events.iter().filter(|event| !event.kept).collect();
        literal.lost = match (lost.first(), lost.last()) {
            (Some(first), Some(last)) => {
                let of = events.iter().filter(|event| event.processor == first.processor);
                let before = of.clone().rfind(|event| event.time < first.time);
                let after = of.clone().find(|event| event.time > last.time);
                (before.map_or(i64::MIN, |event| event.time.0), after.map_or(i64::MAX, |event| event.time.0))
            }
            _ => (i64::MAX, i64::MAX),
        };
        literal.times.sort_unstable();
        literal.times.dedup();
        literal
    }

    /// What a thread did from a time on until the next event; instead of a thread that waits for
    /// another one, the other one.
    fn at(&self, thread: u32, time: i64, above: &[u32]) -> (u32, Fact) {
        let none = Vec::new();
        let switches = self.switches.get(&thread).unwrap_or(&none);
        let next = switches.partition_point(|(at, _)| *at <= time);
        let (before, after) = (next.checked_sub(1).map(|index| switches[index]), switches.get(next));
        let started = self.started.get(&thread).copied();
        let (since, reason) = match (before, after) {
            (Some((_, Side::In)), _) | (None, Some((_, Side::Out(_)))) => return (thread, Fact::Ran),
            _ if started.is_some_and(|started| time < started) => return (thread, Fact::NotStarted),
            (None, _) if started.is_some() => return (thread, Fact::Ready),
            (None, _) => return (thread, Fact::NotKnown),
            (Some((_, Side::Out(None))), _) => return (thread, Fact::Ready),
            (Some((since, Side::Out(Some(reason)))), _) => (since, reason),
        };
        let until = after.map_or(i64::MAX, |(at, _)| *at);
        let readied = self.readied.get(&thread).into_iter().flatten();
        let Some(&(at, by, is_disk)) = readied.into_iter().find(|(at, ..)| *at >= since && *at <= until)
        else {
            return (thread, Fact::Open);
        };
        match by {
            _ if time >= at => (thread, Fact::Ready),
            Some(by) if by == thread || above.contains(&by) => (thread, Fact::Circle),
            Some(by) => self.at(by, time, &[above, &[thread]].concat()),
            None if is_disk => (thread, Fact::Disk),
            None if [4, 11].contains(&reason) => (thread, Fact::Timer),
            None => (thread, Fact::Dpc),
        }
    }
}

impl Literal {
    /// Whether records are lost between the switches of a thread around a time.
    fn is_lossy(&self, thread: u32, time: i64) -> bool {
        let switches = self.switches.get(&thread).map_or(&[][..], |switches| switches);
        let next = switches.partition_point(|(at, _)| *at <= time);
        let since = next.checked_sub(1).map_or(i64::MIN, |index| switches[index].0);
        let until = switches.get(next).map_or(i64::MAX, |(at, _)| *at);
        since <= self.lost.1 && until >= self.lost.0
    }
}

fn fact<T>(did: Did<T>) -> Fact {
    match did {
        Did::Ran => Fact::Ran,
        Did::WasReady { .. } => Fact::Ready,
        Did::Waited { stop: Some(_), .. } => Fact::Circle,
        Did::Waited { end, .. } => match end {
            End::Disk(_) => Fact::Disk,
            End::Timer => Fact::Timer,
            End::Dpc => Fact::Dpc,
            End::StillOpen => Fact::Open,
            End::Thread(_) | End::UnknownThread | End::Idle | End::NoEvent => Fact::NotKnown,
        },
        Did::Unknown(Gap::NotStarted) => Fact::NotStarted,
        Did::Unknown(_) => Fact::NotKnown,
    }
}

/// Compares a path with the truth. Returns how many times were compared, and how many of them are not
/// known although they were.
fn compare(report: &ChainReport, literal: &Literal, tid: u32, seen: &mut [usize; 9]) -> (u32, u32) {
    let found = report.found.as_ref().unwrap();
    let (mut compared, mut unknown) = (0, 0);
    let mut last = found.window.0;
    for segment in &found.path.segments {
        assert!(segment.from == last && segment.from < segment.until, "{tid}: {segment:?}");
        last = segment.until;
        let first = literal.times.partition_point(|time| *time <= segment.from.0);
        let inside = literal.times[first..].iter().take_while(|time| **time < segment.until.0);
        for time in std::iter::once(&segment.from.0).chain(inside) {
            let expected = literal.at(tid, *time, &[]);
            let worker = report.profile.threads()[segment.thread.index()].tid.unwrap();
            let measured = (worker, fact(segment.did));
            compared += 1;
            if measured.1 == Fact::NotKnown {
                let is_known = expected.1 != Fact::NotKnown;
                assert!(!is_known || literal.is_lossy(worker, *time), "thread {tid} at {time}: {segment:?}");
                unknown += u32::from(is_known);
            } else {
                assert_eq!(measured, expected, "thread {tid} at {time}: {segment:?}");
                seen[measured.1 as usize] += 1;
            }
        }
    }
    assert_eq!(last, found.window.1, "thread {tid}");
    (compared, unknown)
}

#[test]
fn paths_are_the_truth_or_not_known() {
    let (mut known, mut unknown, mut seen, mut deepest) = (0, 0, [0; 9], 0);
    for seed in 1..7 {
        let scenario = Scenario { seed, ..Scenario::default() };
        let mut file = Cursor::new(Vec::new());
        let (_, switches) = scenario.write_switches(&mut file).unwrap();
        let (truth, events) = scenario.write_with_events(Cursor::new(Vec::new())).unwrap();
        let literal = Literal::new(&truth, &switches, &events);
        let trace = open(file.into_inner());
        let ends = (literal.times[0] - 1, literal.times[literal.times.len() - 1]);
        let third = (ends.1 - ends.0) / 3;
        let threads: Vec<u32> = literal.switches.keys().copied().filter(|tid| *tid != 0).collect();
        for (number, tid) in
            threads.into_iter().enumerate().filter(|(number, _)| number % 6 == seed as usize % 6)
        {
            let window = if number % 2 == 0 { ends } else { (ends.0 + third, ends.1 - third) };
            let report = follow(&trace, window, tid, usize::MAX);
            if report.found.is_none() {
                continue;
            }
            let (compared, lost) = compare(&report, &literal, tid, &mut seen);
            (known, unknown) = (known + compared - lost, unknown + lost);
            deepest = report
                .found
                .unwrap()
                .path
                .waits
                .iter()
                .map(|wait| wait.depth)
                .max()
                .max(Some(deepest))
                .unwrap();
        }
    }
    // Times of all kinds, also such that records are lost, and through several threads.
    assert!(known > 10_000 && unknown > 0 && deepest > 0, "{known} {unknown} {deepest}");
    for fact in [Fact::Ran, Fact::Ready, Fact::Disk, Fact::Timer, Fact::Dpc, Fact::Open] {
        assert!(seen[fact as usize] > 0, "{fact:?}: {seen:?}");
    }
}

/// Of a trace that is longer than what is kept, the end of the path is the same.
#[test]
fn the_last_part_of_a_path_is_kept() {
    let mut file = Cursor::new(Vec::new());
    let scenario = Scenario { seed: 2, ..Scenario::default() };
    let (_, switches) = scenario.write_switches(&mut file).unwrap();
    let trace = open(file.into_inner());
    let tid = switches[switches.len() / 2].new.0.max(switches[switches.len() / 2].old.0);
    let ends = (i64::MIN, i64::MAX);
    let whole = follow(&trace, ends, tid, usize::MAX).found.unwrap();
    let kept = follow(&trace, ends, tid, 400).found.unwrap();
    assert_eq!(kept.window, whole.window);
    let segments = kept.path.segments;
    assert_eq!(segments[0].did, Did::Unknown(Gap::NotKept));
    let mut same = 0;
    for (kept, whole) in segments.iter().rev().zip(whole.path.segments.iter().rev()) {
        if matches!(kept.did, Did::Unknown(_)) {
            break;
        }
        assert_eq!((kept.thread, kept.until, kept.did), (whole.thread, whole.until, whole.did));
        same += 1;
    }
    assert!(same > 3, "{segments:?}");
}

/// Ids of threads and processes that are used again: a path is that of the last thread.
#[test]
fn reused_ids_are_different_threads() {
    let mut reused = 0;
    for seed in 4..6 {
        let mut file = Cursor::new(Vec::new());
        let scenario = Scenario { seed, mix: Mix::Reuse, ..Scenario::default() };
        let truth = scenario.write(&mut file).unwrap();
        let trace = open(file.into_inner());
        let mut lives: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for thread in truth.processes.iter().flat_map(|process| &process.threads) {
            let life = (
                thread.started.map_or(i64::MIN, |time| time.0),
                thread.ended.map_or(i64::MAX, |time| time.0),
            );
            lives.entry(thread.tid.0).or_default().push(life);
        }
        for (tid, lives) in lives.iter().filter(|(tid, lives)| **tid != 0 && lives.len() > 1).take(6) {
            let Some(found) = follow(&trace, (i64::MIN, i64::MAX), *tid, usize::MAX).found else { continue };
            // The end of a thread is logged before its last switch.
            let belongs = |life: &&(i64, i64)| life.0 <= found.window.0.0 && found.window.0.0 < life.1;
            let life = lives.iter().rev().find(belongs);
            assert!(life.is_some(), "{seed}: thread {tid}: {:?} {lives:?}", found.window);
            let sum: u64 =
                found.path.segments.iter().map(|segment| segment.until.ticks_since(segment.from)).sum();
            assert_eq!(sum, found.window.1.ticks_since(found.window.0));
            reused += usize::from(found.earlier > 0);
        }
    }
    assert!(reused > 0);
}
