//! Compares the timelines of random executions with the known calls of these executions. `PROPTEST_CASES` is their
//! number, in `.ci/run` 4000.

#[path = "random/execution.rs"]
mod execution;
#[path = "../../calltree/tests/stepping/oracle.rs"]
mod oracle;

use std::collections::HashSet;
use std::sync::Arc;

use execution::{Active, Execution, Func, Owner, Recorded, TrueFrame, function_of};
use proptest::prelude::*;
use stackhound_calltree::{
    Bound, Builder, ContextId, Cpu, Evidence, Frame, FrameId, LocationId, LocationInfo, StackInfo, StackKind,
    Trace, TransitionId,
};
use stackhound_timeline::{
    EventKind, Interruption, Options, Part, SampledFrame, Snapshot, StackEvent, Step, Timeline,
};
use stackhound_types::Tid;

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

fn understood(recorded: &[Recorded], reorder: i64) -> Trace {
    let mut builder = Builder::new();
    builder.sampled();
    for function in 0..execution::FUNCTIONS {
        let symbol = Some(format!("f{function}"));
        let info = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
        builder.location(info);
    }
    let mut timeline = Timeline::new(Options { reorder, snapshots: true });
    for item in recorded {
        match item {
            Recorded::Event(stack_event) => {
                let label = builder.label("event");
                builder.transition(0, stack_event.cpu.unwrap_or_default(), label);
                timeline.push(stack_event.clone());
            }
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
        StackKind::Wow64 => Owner::Wow64(info.thread.unwrap()),
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
    // The frames of the model that are exact stand for routines; between a routine and what it
    // calls nothing is left out, but between an inner routine and an outer one.
    let chain: Vec<Frame<'_>> = frame.ancestors().collect();
    let line: Vec<&Frame<'_>> = chain.iter().rev().chain([frame]).collect();
    let mut index: Option<usize> = None;
    for frame in line {
        index = match frame.evidence() {
            Evidence::Boundary => {
                let from = index.map_or(0, |index| index + 1);
                let routine = location_of(frame);
                let (first, last) = (frame.first_context().id().0, frame.last_context().id().0);
                let mut frames =
                    stack.iter().enumerate().skip(from).map(|(at, &id)| (at, execution.frame(id)));
                let is_it = |of: &TrueFrame| function_of(of.func) == routine;
                let exactly =
                    frames.clone().find(|(_, of)| is_it(of) && (of.first, of.last) == (first, last));
                let begun = frames.clone().find(|(_, of)| is_it(of) && of.first == first);
                let ended = frames.clone().find(|(_, of)| is_it(of) && of.last == last);
                let begun = if matches!(frame.start(), Bound::Observed(_)) { begun } else { ended.or(begun) };
                let (at, _) = exactly.or(begun).or_else(|| frames.find(|(_, of)| is_it(of)))?;
                Some(at)
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

/// Checks all frames of the model. Returns the number of frames from recorded stacks.
fn check(execution: &Execution, reorder: i64) -> usize {
    let trace = understood(&execution.recorded, reorder);
    assert_eq!(trace.transition_count(), execution.events);
    check_calls(execution, &trace);
    let mut calls: HashSet<(Owner, u64, u64)> = HashSet::new();
    let mut seen = 0;
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
        // Frames that two snapshots share are regarded as the same: the first one's start and the
        // last one's end count.
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
            calls.insert((owner(&frame), first, last));
        } else {
            seen += 1;
        }
    }
    // No call that the events show is missing.
    for call in &execution.calls {
        assert!(calls.contains(&(call.owner, call.first, call.last)), "{call:?} is missing");
    }
    for &(context, cpu, owner_there) in &execution.active {
        let stack = trace.context(ContextId(context)).unwrap().on(Cpu(cpu)).stack();
        let stack = stack.unwrap_or_else(|| panic!("nothing is active on {cpu} at {context}"));
        let frame = stack.frame().unwrap_or_else(|| panic!("nothing is on {stack} at {context}"));
        let found = owner(&frame);
        assert!(owner_there.is(found), "{found:?} is active on {cpu} at {context}, not {owner_there:?}");
    }
    seen
}

/// Checks the least number of calls of each function. Gives how many there are of all, and how many
/// of them stand for the same call as another one may.
fn check_calls(execution: &Execution, trace: &Trace) -> (u64, u64) {
    let (mut least, mut seen) = (0, 0);
    for function in 0..execution::FUNCTIONS {
        let calls = trace.calls_where(|location| location.id().0 == function);
        let count = trace.counted_frames(calls);
        let ran = execution.activations(function);
        assert!(count.least() <= ran, "{count} calls of f{function}, which ran {ran} times");
        (least, seen) = (least + count.least(), seen + count.number());
    }
    (least, seen)
}

/// Checks the steps over a system call of a thread, from the event of its start to that of its end.
fn check_steps_over(execution: &Execution, trace: &Trace, tid: u32, (start, end): (u64, u64)) {
    let start = trace.transition(TransitionId(start)).unwrap();
    let over = start.step_over();
    let next = over.map_or(trace.transition_count(), |over| over.id().0);
    assert!(next > end, "over #{start} is #{next}, but the call ends at #{end}");
    for &(context, cpu, active) in &execution.active {
        let is_of_thread = match active {
            Active::Exactly(owner) => {
                [Owner::User(tid), Owner::Wow64(tid), Owner::Kernel(tid)].contains(&owner)
            }
            Active::User(other) | Active::Thread(other, _) => other == tid,
        };
        let is_event =
            context < trace.transition_count() && trace.context(ContextId(context)).unwrap().cpu().0 == cpu;
        if is_event && end < context && context <= next {
            assert_eq!(is_of_thread, context == next, "#{context} after the call #{start} of thread {tid}");
        }
    }
    assert!(over.is_none_or(|over| over.step_over_backward() == Some(start)), "back over {start}");
}

fn script() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..160)
}

proptest! {
    /// With system calls and switches.
    #[test]
    fn exact_traces(script in script(), losses in any::<bool>()) {
        check(&Execution::run(&script, execution::RecordingOptions { calls: true, switches: true, losses, interrupted_stacks: true, cut_walks: false }), 1 << 40);
    }

    #[test]
    fn steps_match_a_walk_over_all_transitions(script in script(), losses in any::<bool>(), calls in any::<bool>()) {
        let recording = execution::RecordingOptions { calls, switches: true, losses, interrupted_stacks: true, cut_walks: false };
        let execution = Execution::run(&script, recording);
        let trace = understood(&execution.recorded, 1 << 40);
        oracle::check(&trace);
        for call in &execution.calls {
            if let Owner::Kernel(tid) = call.owner {
                check_steps_over(&execution, &trace, tid, (call.first - 1, call.last));
            }
        }
    }

    /// Interruptions that took longer than events are held.
    #[test]
    fn exact_traces_with_a_short_hold(script in script()) {
        let mut execution = Execution::run(&script, execution::RecordingOptions { calls: true, switches: true, losses: false, interrupted_stacks: false, cut_walks: false });
        // Active stacks during them are known only from some context on.
        execution.active.clear();
        execution.calls.retain(|call| matches!(call.owner, Owner::Kernel(_)));
        check(&execution, 2);
    }

    /// With switches only.
    #[test]
    fn traces_without_system_calls(script in script(), losses in any::<bool>()) {
        check(&Execution::run(&script, execution::RecordingOptions { calls: false, switches: true, losses, interrupted_stacks: true, cut_walks: false }), 1 << 40);
    }

    /// Samples only.
    #[test]
    fn traces_without_switches(script in script()) {
        check(&Execution::run(&script, execution::RecordingOptions { calls: false, switches: false, losses: false, interrupted_stacks: true, cut_walks: false }), 1 << 40);
    }
}

proptest! {
    /// Walks that end early, of threads whose outermost function is not known: no count of calls is
    /// too large.
    #[test]
    fn traces_with_walks_that_end_early(
        script in script(),
        (calls, switches, losses) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let recording = execution::RecordingOptions { calls, switches, losses, interrupted_stacks: true, cut_walks: true };
        let execution = Execution::run(&script, recording);
        check_calls(&execution, &understood(&execution.recorded, 1 << 40));
    }
}

fn part() -> impl Strategy<Value = Part> {
    let frame =
        (0u64..6, prop::option::of(0u32..4), any::<bool>()).prop_map(|(address, function, calls_back)| {
            let function = function.map(LocationId);
            SampledFrame { address, function, calls_back, location: function }
        });
    prop_oneof![
        Just(Part::Absent),
        Just(Part::Unknown),
        prop::collection::vec(frame, 0..4).prop_map(|frames| Part::Frames(frames.into())),
    ]
}

fn anything() -> impl Strategy<Value = Recorded> {
    let tid = || (0u32..4).prop_map(Tid);
    let routine = || prop::option::of((0u32..4).prop_map(LocationId));
    let by = prop_oneof![Just(Interruption::Service), Just(Interruption::Deferred)];
    let what = prop_oneof![
        routine().prop_map(|routine| EventKind::SystemCallEnter { routine }),
        Just(EventKind::SystemCallExit),
        (tid(), tid(), any::<bool>()).prop_map(|(old, new, old_waits)| EventKind::Switch {
            old,
            new,
            old_waits
        }),
        (by, -10i64..60, routine()).prop_map(|(by, since, routine)| EventKind::Interrupted {
            by,
            since,
            routine
        }),
        tid().prop_map(EventKind::ThreadStart),
        tid().prop_map(EventKind::ThreadEnd),
        Just(EventKind::Other),
    ];
    let stack =
        (part(), part(), part()).prop_map(|(kernel, user, wow64)| Arc::new(Snapshot { kernel, user, wow64 }));
    let cpu = || 0u16..3;
    let event = (0i64..50, prop::option::of(cpu()), prop::option::of(tid()), what, prop::option::of(stack));
    prop_oneof![
        12 => event.prop_map(|(time, cpu, thread, what, stack)| {
            Recorded::Event(StackEvent { time, cpu: cpu.map(Cpu), thread, what, stack })
        }),
        1 => cpu().prop_map(Recorded::Lost),
        1 => cpu().prop_map(Recorded::Regained),
    ]
}

proptest! {
    /// The steps of arbitrary events form a valid trace.
    #[test]
    fn contradictions_are_understood_somehow(
        recorded in prop::collection::vec(anything(), 1..80),
        reorder in prop_oneof![Just(0i64), Just(5), Just(1 << 40)],
    ) {
        oracle::check(&understood(&recorded, reorder));
    }
}

#[test]
fn much_is_claimed() {
    let (mut seen, mut least, mut calls) = (0, 0, 0);
    for seed in 0..100u32 {
        let byte =
            |at: u32| (seed.wrapping_add(at).wrapping_mul(0x9e37_79b9).rotate_left(at % 32) >> 11) as u8;
        let script: Vec<(u8, u8, u8)> =
            (0..300).map(|at| (byte(3 * at), byte(3 * at + 1), byte(3 * at + 2))).collect();
        let recording = execution::RecordingOptions {
            calls: true,
            switches: true,
            losses: false,
            interrupted_stacks: true,
            cut_walks: false,
        };
        let execution = Execution::run(&script, recording);
        seen += check(&execution, 1 << 40);
        let counted = check_calls(&execution, &understood(&execution.recorded, 1 << 40));
        (least, calls) = (least + counted.0, calls + counted.1);
    }
    assert!(seen > 2_000, "{seen}");
    assert!(least > calls * 9 / 10 && least < calls, "{least} of {calls}");
}

#[test]
fn functions_that_are_not_known_count_as_one() {
    assert_eq!(function_of(Func(3)), function_of(Func(4)));
    assert_ne!(function_of(Func(1)), function_of(Func(2)));
}
