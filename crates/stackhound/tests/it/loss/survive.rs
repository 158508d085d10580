//! What a loss leaves certain: the answers about events outside of the loss interval, in processes
//! whose own start, or whose rundown at the end, is outside of it too.
//!
//! The buffer at the start, a tenth, the middle, nine tenths and the end of a trace is dropped, and
//! every 16th. With `STACKHOUND_LOSS=full`, the generated traces have 300,000 events. The table is
//! printed.

use std::collections::HashMap;
use std::ops::ControlFlow;

use stackhound::detect::{Binaries, Verdict};
use stackhound::frames::Backing;
use stackhound::hunt::HuntSession;
use stackhound::system::Evidence;
use stackhound::trace::{OpenTrace, Source};
use stackhound::{Passes, Pid, Pipeline};
use stackhound_etl::{BufferRef, EtlFile};
use stackhound_scenario::{Mix, Scenario};

use super::answers::EventKey;
use super::drops::{Extent, original, without};

/// What is known about an event.
#[derive(Clone, Debug, Default)]
struct Known {
    time: i64,
    is_certain: bool,
    pid: Option<Pid>,
    process: Option<String>,
    yes: u32,
    no: u32,
    backing: Vec<Backing>,
    modules: Vec<Option<String>>,
}

/// The start of a process, and the time at which its end or the rundown at the end states all its
/// modules, if there is one.
type Life = (i64, Option<i64>);

struct Read {
    events: HashMap<EventKey, Known>,
    lives: HashMap<Pid, Vec<Life>>,
    lost: Vec<(i64, i64)>,
}

fn read(bytes: Vec<u8>) -> Read {
    let etl_file = EtlFile::open(bytes.into()).expect("a trace");
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).expect("a trace");
    let mut pipeline = Pipeline::new(&trace, Passes::Two);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    let (mut events, mut lives, mut lost) = (HashMap::new(), HashMap::new(), Vec::new());
    pipeline.run(|view| {
        let state = view.trace_state();
        if lives.is_empty() {
            for process in state.system().processes() {
                let span = process.span();
                let stated = match span.end {
                    Evidence::RundownAtEnd => Some(i64::MAX),
                    Evidence::Observed => Some(span.to.0),
                    _ => None,
                };
                lives.entry(process.pid()).or_insert_with(Vec::new).push((span.from.0, stated));
            }
            lost.extend(intervals(|from| state.losses().first_between(from, i64::MAX)));
        }
        let mut known = Known {
            time: view.time().0,
            is_certain: view.stack_states().is_certain(),
            pid: view.stack_owner().pid,
            process: view.process().ok().and_then(|process| Some(process.name().ok()?.to_owned())),
            ..Known::default()
        };
        hunt_session.observe(view);
        if HuntSession::can_evaluate(view) {
            for (id, outcome) in hunt_session.evaluate(view).iter() {
                known.yes |= u32::from(outcome.verdict == Verdict::Yes) << id.index();
                known.no |= u32::from(outcome.verdict == Verdict::No) << id.index();
            }
        }
        for frame in view.frames() {
            known.backing.push(frame.facts().backing());
            known.modules.push(frame.module().map(|module| module.file_name().to_owned()));
        }
        let key = (view.event().block().origin().file_offset, view.event().index());
        events.insert(key, known);
        ControlFlow::Continue(())
    });
    Read { events, lives, lost }
}

/// All loss intervals, from a function that returns the first one that ends at a time or later.
fn intervals(first: impl Fn(i64) -> Option<(i64, i64)>) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    let mut next = first(i64::MIN);
    while let Some((from, until)) = next {
        all.push((from, until));
        next = if until == i64::MAX { None } else { first(until + 1) };
    }
    all
}

#[derive(Clone, Copy, Default, Debug)]
struct Share {
    left: u64,
    all: u64,
}

impl Share {
    fn add(&mut self, left: u64, all: u64) {
        self.left += left;
        self.all += all;
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {:.1}%", self.left, self.all, 100.0 * self.left as f64 / (self.all as f64).max(1.0))
    }
}

#[derive(Default, Debug)]
struct Survival {
    /// Events that are compared, of those outside of the loss intervals with a certain stack.
    compared: Share,
    inside: Share,
    no: Share,
    yes: Share,
    backing: Share,
    modules: Share,
    processes: Share,
}

fn is_inside(lost: &[(i64, i64)], time: i64) -> bool {
    lost.iter().any(|&(from, until)| from <= time && time <= until)
}

fn survival(whole: &Read, part: &Read, dropped: &[&BufferRef]) -> Survival {
    let mut survival = Survival::default();
    for (&(offset, index), left) in &part.events {
        let event = &whole.events[&(original(offset, dropped), index)];
        if left.backing.is_empty() {
            continue;
        }
        let inside = is_inside(&part.lost, left.time);
        survival.inside.add(inside.into(), 1);
        if inside || !left.is_certain {
            continue;
        }
        let life =
            left.pid.and_then(|pid| whole.lives.get(&pid)?.iter().rev().find(|life| life.0 <= left.time));
        let whole_between =
            |from: i64, until: i64| !part.lost.iter().any(|lost| lost.0 <= until && from <= lost.1);
        let is_known = life.is_some_and(|&(from, stated)| {
            let until = stated.filter(|until| left.time <= *until);
            whole_between(from, left.time) || until.is_some_and(|until| whole_between(left.time, until))
        });
        survival.compared.add(is_known.into(), 1);
        if !is_known {
            continue;
        }
        survival.no.add((left.no & event.no).count_ones().into(), event.no.count_ones().into());
        survival.yes.add((left.yes & event.yes).count_ones().into(), event.yes.count_ones().into());
        let decided =
            event.backing.iter().zip(&left.backing).filter(|(before, _)| **before != Backing::Unknown);
        for (before, after) in decided {
            survival.backing.add((before == after).into(), 1);
        }
        let named = event.modules.iter().zip(&left.modules).filter(|(before, _)| before.is_some());
        for (before, after) in named {
            survival.modules.add((before == after).into(), 1);
        }
        if event.process.is_some() {
            survival.processes.add((left.process == event.process).into(), 1);
        }
    }
    survival
}

fn table(name: &str, bytes: &[u8]) -> Vec<(String, Survival)> {
    let etl_file = EtlFile::open(bytes.to_vec().into()).expect("a trace");
    let mut buffers = etl_file.index().buffers;
    buffers.retain(|buffer| buffer.sequence > 0);
    let mut by_number: Vec<usize> = (0..buffers.len()).collect();
    by_number.sort_by_key(|&index| buffers[index].sequence);
    let at = |share: f64| vec![by_number[((buffers.len() - 1) as f64 * share) as usize]];
    let every = by_number.iter().copied().skip(8).step_by(16).collect();
    let drops = [
        ("start", at(0.0)),
        ("a tenth", at(0.1)),
        ("middle", at(0.5)),
        ("nine tenths", at(0.9)),
        ("end", at(1.0)),
        ("every 16th", every),
    ];
    let whole = read(bytes.to_vec());
    let mut results = Vec::new();
    for (location, mut drop) in drops {
        drop.sort_unstable();
        let dropped: Vec<&BufferRef> = drop.iter().map(|&index| &buffers[index]).collect();
        let part = read(without(bytes, &dropped));
        let survival = survival(&whole, &part, &dropped);
        let Survival { compared, inside, no, yes, backing, modules, processes } = &survival;
        println!(
            "{name}, {location}: in the loss {inside}; compared {compared}; no {no}; yes {yes}; backing {backing}; modules {modules}; processes {processes}"
        );
        results.push((format!("{name}, {location}"), survival));
    }
    results
}

/// Findings about memory whose allocation, or about code whose method, is in the dropped buffer itself
/// are no longer certain: only the generated trace without such events keeps all of them.
#[test]
fn answers_outside_of_a_loss_stay() {
    let is_full = Extent::from_environment() == Extent::Full;
    let events = if is_full { 300_000 } else { 8_000 };
    let mut results = Vec::new();
    for mix in [Mix::Default, Mix::Before, Mix::Profile] {
        let mut file = std::io::Cursor::new(Vec::new());
        Scenario { events, seed: 1, mix }.write(&mut file).expect("a scenario");
        let of_mix = table(&format!("{mix:?}"), &file.into_inner());
        if mix == Mix::Before {
            let findings = of_mix.iter().map(|(_, survival)| survival.yes);
            assert!(
                findings.clone().all(|yes| yes.left == yes.all)
                    && findings.map(|yes| yes.all).sum::<u64>() > 0
            );
        }
        results.extend(of_mix);
    }
    if let Some(bytes) = stackhound_corpus::etl_file("perfview-net452-x64.etl") {
        results.extend(table("perfview-net452-x64.etl", &bytes));
    }
    for (name, survival) in &results {
        for share in [survival.no, survival.backing, survival.modules, survival.processes] {
            assert!(share.all > 0 && share.left as f64 >= 0.99 * share.all as f64, "{name}: {survival:?}");
        }
    }
}
