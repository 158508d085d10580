//! Compares the tracker with generated executions whose frames are known.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stackhound_calltree::{ContextId, EndType, FrameId, StartType, Trace};

use super::found::{Found, built, feed, tracker};
use crate::execution::Execution;
use crate::execution::truth::{TrueFrame, Truth};

fn track(execution: Execution) -> (Truth, Found) {
    let mut found = Found::default();
    let mut tracker = tracker();
    let truth = execution.run(|event, memory| feed(&mut tracker, event, memory, |item| found.take(item)));
    assert_eq!(tracker.transition().0, truth.transitions);
    let counts = tracker.finish(|item| found.take(item));
    assert_eq!(counts, truth.counts);
    found.end(ContextId(truth.transitions));
    (truth, found)
}

#[track_caller]
fn check(execution: Execution) -> Truth {
    let (truth, found) = track(execution);
    for (location, stack) in truth.stacks.iter().enumerate() {
        let none = Vec::new();
        let frames = found.stacks.get(location).unwrap_or(&none);
        for (number, (found, frame)) in frames.iter().zip(&stack.frames).enumerate() {
            assert_eq!(found, frame, "frame {number} of stack {location} in {execution:?}");
        }
        assert_eq!(frames.len(), stack.frames.len(), "frames of stack {location} in {execution:?}");
    }
    assert_eq!(found.stacks.len(), truth.stacks.len());
    let jumps = found.jumps;
    let mut active = Vec::new();
    for (location, period) in truth.active.iter().enumerate() {
        if truth.active.get(location + 1).is_none_or(|next| next.first > period.first) {
            active.push((period.first, period.stack));
        }
    }
    let found: Vec<_> =
        found.active.iter().map(|(first, stack)| (*first, stack.map(|id| id.0 as usize))).collect();
    assert_eq!(found, active, "{execution:?}");
    assert_eq!(jumps, truth.jumps, "{execution:?}");
    truth
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn generated_executions_are_tracked_correctly(seed: u64, readable: bool, transitions in 1..3_000_u64) {
        check(Execution { seed, transitions, readable });
    }
}

/// The function of a damaged frame is not the one that the frame before it jumped to.
#[test]
fn a_damaged_frame_jumps_from_its_own_function() {
    check(Execution { seed: 7_042_819_612_630_061_945, transitions: 479, readable: true });
}

/// Ensures that the property above covers all types.
#[test]
fn all_starts_and_ends_occur() {
    let mut starts = BTreeSet::new();
    let mut ends = BTreeSet::new();
    let mut deepest = 0;
    for seed in 0..20 {
        let truth = check(Execution { transitions: 5_000, ..Execution::new(seed) });
        for frame in truth.stacks.iter().flat_map(|stack| &stack.frames) {
            starts.insert(frame.start as u8);
            ends.insert(frame.end as u8);
            deepest += usize::from(frame.below);
        }
    }
    use StartType::{Call, Damaged, Interrupt, Manual, Unknown};
    assert_eq!(starts, [Call, Interrupt, Manual, Damaged, Unknown].map(|start| start as u8).into());
    // All values that are possible in an exact trace.
    assert_eq!(ends, (EndType::Return as u8..=EndType::TraceEnd as u8).collect());
    assert!(deepest > 10, "frames from before the trace: {deepest}");
}

fn record(execution: Execution) -> (Truth, Trace) {
    let mut items = Vec::new();
    let mut tracker = tracker();
    let truth = execution.run(|event, memory| feed(&mut tracker, event, memory, |item| items.push(item)));
    tracker.finish(|item| items.push(item));
    let trace = built(&items, truth.transitions);
    (truth, trace)
}

/// The innermost frame of a stack at a context.
fn innermost(frames: &[TrueFrame], at: ContextId) -> Option<&TrueFrame> {
    let there = |frame: &&TrueFrame| frame.first <= at && at <= frame.last;
    frames.iter().rfind(|frame| there(frame) && !frame.below).or_else(|| frames.iter().find(there))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn tracked_changes_become_a_trace(seed: u64) {
        let (truth, trace) = record(Execution::new(seed));
        let mut expected = Vec::new();
        for (location, stack) in truth.stacks.iter().enumerate() {
            expected.extend(stack.frames.iter().map(|frame| {
                (location, frame.first, frame.last, frame.start as u8, frame.end as u8, frame.function)
            }));
        }
        let mut found: Vec<_> = (0..trace.frame_count())
            .map(|number| {
                let frame = trace.frame(FrameId(number)).expect("a frame");
                let (first, last) = (frame.first_context().id(), frame.last_context().id());
                let function = frame.function_location().and_then(|location| location.address());
                let location = frame.stack().id().0 as usize;
                (location, first, last, frame.start_type() as u8, frame.end_type() as u8, function)
            })
            .collect();
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        for number in 0..=truth.transitions {
            let at = ContextId(number);
            let active = truth.active.iter().rfind(|active| active.first <= at).and_then(|active| active.stack);
            let stack = trace.context(at).expect("a context").stack();
            prop_assert_eq!(stack.map(|stack| stack.id().0 as usize), active);
            let top = stack.and_then(|stack| stack.frame());
            let top = top.map(|frame| (frame.first_context().id(), frame.start_type()));
            let known = active.and_then(|location| innermost(&truth.stacks[location].frames, at));
            prop_assert_eq!(top, known.map(|frame| (frame.first, frame.start)), "at {}", number);
        }
    }
}

proptest! {
    #[test]
    fn steps_match_a_walk_over_all_transitions(seed: u64, readable: bool, transitions in 1..300_u64) {
        let (_, trace) = record(Execution { seed, transitions, readable });
        crate::oracle::check(&trace);
    }
}
