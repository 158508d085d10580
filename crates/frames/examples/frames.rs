//! `frames FILE` resolves every frame of a trace, once without and once with the cache, and prints
//! the frames per second. The time to read the trace is not included.

use std::time::{Duration, Instant};

use stackhound_frames::{FrameResolver, Summary};
use stackhound_stacks::{Correlator, StackSurvey, Window};
use stackhound_system::System;
use stackhound_trace::{LossMap, TraceFiles};

fn main() {
    let path = std::env::args().nth(1).expect("usage: frames FILE");
    let trace = TraceFiles::file(&path).open().expect("cannot open the trace");
    let mut system = System::of(&trace);
    let mut survey = StackSurvey::default();
    let mut events = trace.selected(System::selection().hook_ids(StackSurvey::HOOK_IDS));
    while let Some(event) = events.next() {
        system.observe(&event);
        survey.observe(&event);
    }
    let losses = LossMap::surveyed(&trace, events);
    system.set_losses(losses.clone());
    let mut stacks = Correlator::two_pass(Window::of(&trace.clock()), trace.time_bases(), losses, survey);
    let (mut resolver, mut cached) = (FrameResolver::default(), FrameResolver::default());
    cached.keep_frames(true);
    let mut summary = Summary::default();
    let (mut n, mut took) = (0, [Duration::ZERO; 3]);
    let mut events = trace.ordered();
    loop {
        let more = events.next().map(|event| stacks.push(&event)).is_some();
        if !more {
            stacks.end();
        }
        while let Some(delivered) = stacks.pop() {
            if delivered.stack.is_none() {
                continue;
            }
            let started = Instant::now();
            resolver.of(&system, &delivered).all(&delivered);
            took[0] += started.elapsed();
            let started = Instant::now();
            let frames = cached.of(&system, &delivered).all(&delivered);
            took[1] += started.elapsed();
            let started = Instant::now();
            summary.of(cached.modules(), delivered.states, &frames);
            took[2] += started.elapsed();
            n += frames.len();
        }
        if !more {
            break;
        }
    }
    let (hits, misses) = cached.hits_and_misses();
    let rates = took.map(|took| n as f64 / took.as_secs_f64() / 1e6);
    println!(
        "{n} frames; millions per second: {:.1} resolved, {:.1} with the cache, {:.1} summarized",
        rates[0], rates[1], rates[2]
    );
    println!("{hits} cache hits, {misses} misses");
}
