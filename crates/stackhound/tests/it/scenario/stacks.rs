//! Every stack of a scenario is delivered with exactly its frames.

use std::collections::BTreeMap;

use stackhound_scenario::{EventKind, Mix, Problem, Scenario, State};
use stackhound_stacks::{Correlator, StackState, StackStats, StackSurvey, Window};
use stackhound_trace::{LossMap, OpenTrace};
use stackhound_types::{Address, Tid};

use super::{RecordKey, Written, kind_of, record_key, written};

/// The way in which the trace is read.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// In two passes.
    TwoPasses,
    /// In one pass that discards nothing.
    OnePass,
}

/// The results of the stack stages, event by event.
fn deliver(
    trace: &OpenTrace,
    reading: Reading,
    mut each: impl FnMut(EventKind, RecordKey, Option<Tid>, StackState, Vec<Address>),
) -> StackStats {
    let mut correlator = match reading {
        Reading::TwoPasses => {
            let (survey, losses) = StackSurvey::of(trace);
            Correlator::two_pass(Window::of(&trace.clock()), trace.time_bases(), losses, survey)
        }
        Reading::OnePass => {
            let everything = Window { max_hold: i64::MAX, max_pending: usize::MAX };
            Correlator::one_pass(everything, trace.time_bases(), LossMap::of(trace))
        }
    };
    let mut events = trace.ordered();
    loop {
        let more = events.next().map(|event| correlator.push(&event)).is_some();
        if !more {
            correlator.end();
        }
        while let Some(delivered) = correlator.pop() {
            let event = &delivered.event;
            let key = record_key(event);
            each(kind_of(event), key, delivered.tid(), delivered.state(), delivered.frames().collect());
        }
        if !more {
            return correlator.stats().clone();
        }
    }
}

/// Checks that every stack of the scenario is delivered with exactly its frames, and that no other
/// event has a stack.
#[track_caller]
fn check_stacks(written: &Written, reading: Reading) {
    let Written { scenario, truth, expected, trace } = written;
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut seen, mut doubtful, mut unconfirmed) = (0, 0, 0);
    let stats = deliver(trace, reading, |kind, key, tid, state, frames| {
        let Some(expected) = expected.get(&key) else {
            assert!(frames.is_empty(), "{scenario:?}, {reading:?}: {kind:?} at {key:?} has {frames:?}");
            assert!(matches!(state, StackState::None | StackState::Lost), "{kind:?} at {key:?}");
            return;
        };
        seen += 1;
        let context = || format!("{scenario:?}, {reading:?}: {kind:?} at {key:?}");
        assert_eq!(kind, expected.event, "{}", context());
        let expected_state = match expected.state {
            State::Complete => StackState::Complete,
            State::KernelOnly => StackState::KernelOnly,
            State::Damaged => {
                // A later user stack of the thread may replace the lost one, but the state must
                // show this.
                assert_ne!(state, StackState::Complete, "{}", context());
                assert!(frames.starts_with(&expected.frames), "{}: {frames:?}", context());
                return;
            }
            State::Lost => {
                assert!(frames.is_empty(), "{}: {frames:?}", context());
                return;
            }
        };
        assert_eq!((&frames, tid), (&expected.frames, Some(expected.tid)), "{}", context());
        *found.entry(expected_state.name()).or_default() += 1;
        if state != expected_state {
            let is_doubt =
                matches!(state, StackState::Ambiguous | StackState::Lost | StackState::Unconfirmed);
            // Few processes start during these traces, so walks that end in the loader are taken for
            // truncated ones.
            let is_start = matches!(scenario.mix, Mix::Problem(_)) && state == StackState::Truncated;
            assert!(is_doubt || is_start, "{}: {state:?}", context());
            unconfirmed += usize::from(state == StackState::Unconfirmed);
            doubtful += usize::from(state != StackState::Unconfirmed);
        }
    });
    assert_eq!(seen, expected.len(), "{scenario:?}: some events were not delivered");
    assert_eq!(found.get("complete").copied().unwrap_or_default(), truth.states.complete);
    assert_eq!(found.get("kernel-only").copied().unwrap_or_default(), truth.states.kernel_only);
    // A thread that was in the kernel while a buffer was lost could have left it meanwhile, so
    // doubt is justified.
    assert!(doubtful * 12 <= seen, "{scenario:?}: {doubtful} of {seen} events");
    // Most keys are defined when the session ends, after the lost buffer.
    assert!(unconfirmed * 4 <= seen * 3, "{scenario:?}: {unconfirmed} of {seen} events");
    let stacks = truth.stacks;
    assert_eq!((stats.full, stats.keyed), (stacks.inline, stacks.keyed), "{scenario:?}");
    assert_eq!(stats.definitions, stacks.definitions, "{scenario:?}");
    assert_eq!(stats.extended, stacks.extended + stacks.extended_parts, "{scenario:?}");
    assert_eq!(stats.extended_parts, stacks.extended_parts, "{scenario:?}");
    assert_eq!((stats.unresolved_keys, stats.malformed, stats.ambiguous_parts), (0, 0, 0), "{scenario:?}");
    assert_eq!(stats.orphaned_parts, stacks.orphaned, "{scenario:?}");
}

#[test]
fn every_stack_is_delivered_with_exactly_its_frames() {
    for seed in 0..12 {
        for mix in [Mix::Default, Mix::Profile] {
            let written = written(Scenario::EVENTS_MIN, seed, mix);
            check_stacks(&written, Reading::TwoPasses);
            check_stacks(&written, Reading::OnePass);
        }
    }
}

#[test]
fn stacks_of_problems_are_delivered() {
    for problem in Problem::ALL {
        let written = written(20_000, 5, Mix::Problem(problem));
        check_stacks(&written, Reading::TwoPasses);
        check_stacks(&written, Reading::OnePass);
    }
}

#[test]
fn stacks_of_a_longer_trace_are_delivered() {
    for mix in [Mix::Default, Mix::Profile] {
        let written = written(150_000, 77, mix);
        check_stacks(&written, Reading::TwoPasses);
        check_stacks(&written, Reading::OnePass);
    }
}
