//! Random executions, of which everything is known, against what the timeline makes of their events.

#[path = "random/execution.rs"]
mod execution;

use std::collections::HashMap;

use execution::{Execution, Func, Owner, Recorded, TrueFrame, function_of};
use proptest::prelude::*;
use stackhound_calltree::{
    Bound, Builder, ContextId, Cpu, Evidence, Frame, FrameId, LocationInfo, StackInfo, StackKind, Trace,
};
use stackhound_timeline::{Options, Step, Timeline};

/// The trace that the steps make.
fn build(steps: impl Iterator<Item = Step>, builder: &mut Builder) {
    for step in steps {
        let done = match step {
            Step::Stack { kind, thread, cpu, .. } => {
                let thread = thread.map(|tid| tid.0);
                builder.stack(StackInfo { kind, process: None, thread, cpu, name: None, region: None });
                Ok(())
            }
            Step::Change(change) => builder.apply(change),
            Step::Enter { cpu, stack, lo, hi } => builder.enter_between(cpu, stack, lo, hi),
            Step::Open { stack, lo, hi, start, location, evidence } => {
                builder.open_between(stack, (lo, hi), start, location, evidence)
            }
            Step::Close { stack, lo, hi, end } => builder.close_between(stack, (lo, hi), end),
        };
        done.unwrap_or_else(|error| panic!("{error}: {step:?}"));
    }
}

fn understood(recorded: &[Recorded], hold: i64) -> Trace {
    let mut builder = Builder::new();
    for function in 0..execution::FUNCTIONS {
        let symbol = Some(format!("f{function}"));
        let info = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
        builder.location(info);
    }
    let mut timeline = Timeline::new(Options { hold, snapshots: true });
    for item in recorded {
        match item {
            Recorded::Event(happening) => timeline.push(happening.clone()),
            Recorded::Lost(cpu) => timeline.lose(Cpu(*cpu)),
            Recorded::Regained(cpu) => timeline.regain(Cpu(*cpu)),
        }
        build(timeline.steps(), &mut builder);
    }
    let transitions = timeline.end();
    build(timeline.steps(), &mut builder);
    builder.finish(transitions).unwrap()
}

fn owner(frame: &Frame<'_>) -> Owner {
    let info = frame.stack().info();
    match info.kind {
        StackKind::User => Owner::User(info.thread.unwrap()),
        StackKind::Kernel => match info.cpu {
            Some(cpu) => Owner::Idle(cpu.0),
            None => Owner::Kernel(info.thread.unwrap()),
        },
        StackKind::Interrupt => Owner::Service(info.cpu.unwrap().0),
        _ => Owner::Deferred(info.cpu.unwrap().0),
    }
}

/// Which frame of the true stack at a context a frame of the model is.
fn true_frame<'e>(execution: &'e Execution, frame: &Frame<'_>, at: u64) -> Option<&'e TrueFrame> {
    let stack = execution.stack_at(owner(frame), at)?;
    // The frames of the model that are exact stand for routines; between a routine and what it calls nothing is left
    // out, but between an inner routine and an outer one.
    let chain: Vec<Frame<'_>> = frame.ancestors().collect();
    let line: Vec<&Frame<'_>> = chain.iter().rev().chain([frame]).collect();
    let mut index: Option<usize> = None;
    for frame in line {
        index = match frame.evidence() {
            Evidence::Boundary => {
                let from = index.map_or(0, |index| index + 1);
                let routine = location_of(frame)?;
                Some(
                    from + stack[from..]
                        .iter()
                        .position(|&id| function_of(execution.frame(id).func) == Some(routine))?,
                )
            }
            Evidence::Exact => None,
            _ => Some(index.map_or(0, |index| index + 1)),
        };
    }
    Some(execution.frame(*stack.get(index?)?))
}

fn location_of(frame: &Frame<'_>) -> Option<u32> {
    frame.function_location().map(|location| location.id().0)
}

fn check_bound(bound: Bound, truth: u64, what: &str) {
    match bound {
        Bound::Observed(at) => assert_eq!(at, ContextId(truth), "{what}"),
        Bound::Inferred { lo, hi } => {
            assert!(lo.0 <= truth && truth <= hi.0, "{what}: {truth} is not in {}..={}", lo.0, hi.0);
        }
        Bound::Open => {}
    }
}

fn check(execution: &Execution, hold: i64) {
    let trace = understood(&execution.recorded, hold);
    assert_eq!(trace.transition_count(), execution.events);
    let mut calls: HashMap<(Owner, u64), u64> = HashMap::new();
    for id in 0..trace.frame_count() {
        let frame = trace.frame(FrameId(id)).unwrap();
        if frame.evidence() == Evidence::Exact {
            continue;
        }
        let (first, last) = (frame.first_context().id().0, frame.last_context().id().0);
        let what = format!("{:?} {frame} [{first}, {last}]", owner(&frame));
        if frame.evidence() == Evidence::Boundary && frame.function_location().is_none() {
            // The end of a call of which the beginning is not known.
            let stack = execution.stack_at(owner(&frame), last).unwrap();
            assert!(!stack.is_empty(), "{what}");
            continue;
        }
        // What two snapshots share is taken for the same: then the first one's start and the last one's end count.
        let [of_first, of_last] = [first, last].map(|at| true_frame(execution, &frame, at));
        let of_first = of_first.unwrap_or_else(|| panic!("{what} was not there at its start"));
        let of_last = of_last.unwrap_or_else(|| panic!("{what} was not there at its end"));
        for of in [of_first, of_last] {
            assert_eq!(function_of(of.func), location_of(&frame), "{what}");
        }
        check_bound(frame.start(), of_first.first, &format!("start of {what}"));
        check_bound(frame.end(), of_last.last, &format!("end of {what}"));
        for at in [first, last] {
            for ancestor in frame.ancestors().filter(|ancestor| ancestor.evidence() != Evidence::Exact) {
                let of = true_frame(execution, &ancestor, at).map(|of| function_of(of.func));
                assert_eq!(of, Some(location_of(&ancestor)), "{ancestor} above {what} at {at}");
            }
        }
        if frame.evidence() == Evidence::Boundary {
            assert_eq!(of_first.number, of_last.number, "{what}");
            calls.insert((owner(&frame), first), last);
        }
    }
    // Nothing that the events tell is missing.
    for call in &execution.calls {
        let found = calls.get(&(call.owner, call.first));
        assert!(found == Some(&call.last), "{call:?} is found with {found:?}");
    }
    for &(context, cpu, owner_there) in &execution.active {
        let stack = trace.context(ContextId(context)).unwrap().on(Cpu(cpu)).stack();
        let stack = stack.unwrap_or_else(|| panic!("nothing is active on {cpu} at {context}"));
        let frame = stack.frame().unwrap_or_else(|| panic!("nothing is on {stack} at {context}"));
        let found = owner(&frame);
        assert!(owner_there.is(found), "{found:?} is active on {cpu} at {context}, not {owner_there:?}");
    }
}

fn script() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// With system calls and switches.
    #[test]
    fn exact_recordings(script in script(), losses in any::<bool>()) {
        check(&Execution::run(&script, execution::Recording { calls: true, switches: true, losses }), 1 << 40);
    }

    /// Interruptions that took longer than events are held back.
    #[test]
    fn exact_recordings_with_a_short_hold(script in script()) {
        let mut execution = Execution::run(&script, execution::Recording { calls: true, switches: true, losses: false });
        // What is active during them is found only from some context on.
        execution.active.clear();
        execution.calls.retain(|call| matches!(call.owner, Owner::Kernel(_)));
        check(&execution, 2);
    }

    /// With switches only.
    #[test]
    fn recordings_without_system_calls(script in script(), losses in any::<bool>()) {
        check(&Execution::run(&script, execution::Recording { calls: false, switches: true, losses }), 1 << 40);
    }

    /// Samples only.
    #[test]
    fn recordings_without_switches(script in script()) {
        check(&Execution::run(&script, execution::Recording { calls: false, switches: false, losses: false }), 1 << 40);
    }
}

#[test]
fn functions_that_are_not_known_count_as_one() {
    assert_eq!(function_of(Func(3)), function_of(Func(4)));
    assert_ne!(function_of(Func(1)), function_of(Func(2)));
}
