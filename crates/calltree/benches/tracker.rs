//! Benchmarks the tracker in steps per second, with generated executions: unchanged, where every
//! second step concerns frames, and with as many plain steps in between as in real programs.

#[allow(dead_code, reason = "the truth is for tests")]
#[path = "../tests/execution/mod.rs"]
mod execution;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stackhound_calltree::tracker::{Class, Step, Tracker};

use execution::{Event, Execution};

/// In real programs, 7 to 15 of 1,000 instructions are calls, and 4 to 13 % of the instructions
/// change the stack pointer.
const PLAIN: usize = 10;

fn events() -> Vec<Event> {
    let mut events = Vec::new();
    // Without memory, no words are read.
    let execution = Execution { seed: 1, transitions: 200_000, readable: false };
    execution.run(|event, _| events.push(event));
    events
}

fn with_plain_steps(events: &[Event]) -> Vec<Event> {
    let mut all = Vec::new();
    for event in events {
        all.push(*event);
        if let Event::Step(step) = event {
            let plain = Event::Step(Step { class: Class::Other, before: step.after, ..*step });
            all.extend([plain; PLAIN]);
        }
    }
    all
}

fn track(events: &[Event]) -> u64 {
    let mut tracker = Tracker::new(Execution::FIRST_THREAD);
    let mut items = 0;
    for event in events {
        match *event {
            Event::Step(step) => tracker.step(&step, |_| None, |_| items += 1),
            Event::Skip(transitions) => tracker.skip(transitions),
            Event::Declare { space, low, high, kind } => {
                tracker.declare(space, low, high, kind, |_| items += 1)
            }
            Event::Release { space, low, high } => tracker.release(space, low, high, |_| items += 1),
            Event::Exit(thread) => tracker.exit(thread, |_| items += 1),
        }
    }
    tracker.finish(|_| items += 1);
    items
}

fn steps(criterion: &mut Criterion) {
    let dense = events();
    let ordinary = with_plain_steps(&dense);
    let mut group = criterion.benchmark_group("tracker");
    for (name, events) in [("generated", &dense), ("with plain steps", &ordinary)] {
        let steps = events.iter().filter(|event| matches!(event, Event::Step(_))).count();
        group.throughput(Throughput::Elements(steps as u64));
        group.bench_function(name, |bencher| bencher.iter(|| track(black_box(events))));
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
