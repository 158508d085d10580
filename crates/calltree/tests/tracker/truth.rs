//! The tracker against executions whose truth is known.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stackhound_calltree::ContextId;
use stackhound_calltree::{EndType, StartType};
use stackhound_scenario::exact::{Execution, Truth};

use super::found::{Found, tell, tracker};

fn track(execution: Execution) -> (Truth, Found) {
    let mut found = Found::default();
    let mut tracker = tracker();
    let truth = execution.run(|event, memory| tell(&mut tracker, event, memory, |item| found.take(item)));
    assert_eq!(tracker.transition().0, truth.transitions);
    let counts = tracker.finish(|item| found.take(item));
    assert_eq!(counts, truth.counts);
    found.end(ContextId(truth.transitions));
    (truth, found)
}

#[track_caller]
fn check(execution: Execution) -> Truth {
    let (truth, found) = track(execution);
    for (place, stack) in truth.stacks.iter().enumerate() {
        let none = Vec::new();
        let frames = found.stacks.get(place).unwrap_or(&none);
        for (number, (found, frame)) in frames.iter().zip(&stack.frames).enumerate() {
            assert_eq!(found, frame, "frame {number} of stack {place} in {execution:?}");
        }
        assert_eq!(frames.len(), stack.frames.len(), "frames of stack {place} in {execution:?}");
    }
    assert_eq!(found.stacks.len(), truth.stacks.len());
    let mut active = Vec::new();
    for (place, period) in truth.active.iter().enumerate() {
        if truth.active.get(place + 1).is_none_or(|next| next.first > period.first) {
            active.push((period.first, period.stack));
        }
    }
    let found: Vec<_> =
        found.active.iter().map(|(first, stack)| (*first, stack.map(|id| id.0 as usize))).collect();
    assert_eq!(found, active, "{execution:?}");
    truth
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn generated_executions_are_tracked_as_they_were(seed: u64, readable: bool, transitions in 1..3_000_u64) {
        check(Execution { seed, transitions, readable });
    }
}

/// So that the property above says something.
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
    // All that an exact trace can have.
    assert_eq!(ends, (EndType::Return as u8..=EndType::TraceEnd as u8).collect());
    assert!(deepest > 10, "frames from before the trace: {deepest}");
}
