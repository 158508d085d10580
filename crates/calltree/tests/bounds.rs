//! Tests that inferred and observed facts stay separate.

use stackhound_calltree::{
    Bound, Builder, Change, ContextId, Continuity, Count, Cpu, EndType, Evidence, FrameId, LabelId,
    LocationInfo, StackEvent, StackInfo, StackKind, StartType,
};

fn thread(thread: u32, kind: StackKind) -> StackInfo {
    StackInfo { kind, process: Some(7), thread: Some(thread), cpu: None, name: None, region: None }
}

/// The second stack was observed at transition 6, and the first one at transition 2: the first one was
/// left, and the second one entered, between them.
#[test]
fn inferred_periods_have_a_shortest_and_a_longest_time() {
    // Transitions 0 to 8 have the times 1,000 to 1,080, and transition 8 ends the second period.
    assert_eq!(two_periods(false), [Some((20, 60)), Some((20, 60))]);
    // Without switches: up to the transition of the other thread, and from the own one on.
    assert_eq!(two_periods(true), [Some((0, 60)), Some((0, 30))]);
}

/// The times of the first and the second stack.
fn two_periods(without_switches: bool) -> Vec<Option<(u64, u64)>> {
    let mut builder = Builder::new();
    if without_switches {
        builder.without_switches();
    }
    let first = builder.stack(thread(1, StackKind::User));
    let second = builder.stack(thread(2, StackKind::User));
    builder.enter_between(Cpu(0), first, ContextId(0), ContextId(0)).unwrap();
    builder.enter_between(Cpu(0), second, ContextId(3), ContextId(6)).unwrap();
    builder.apply(Change::Leave { cpu: Cpu(0), last: ContextId(8) }).unwrap();
    let label = builder.label("Event");
    for number in 0..12 {
        builder.transition(1_000 + 10 * number, Cpu(0), label);
    }
    let trace = builder.finish(12).unwrap();
    trace.activities().into_iter().map(|activity| activity.time).collect()
}

#[test]
fn bounds_round_trip() {
    let [c2, c5, c6, c8, c9] = [2, 5, 6, 8, 9].map(ContextId);
    let mut builder = Builder::new();
    builder.sampled();
    let stack = builder.stack(thread(1, StackKind::User));
    builder.enter_between(Cpu(0), stack, c2, c5).unwrap();
    builder.open_between(stack, (c2, c5), StartType::Unknown, None, Evidence::Snapshot).unwrap();
    builder.open_between(stack, (c6, c6), StartType::Unknown, None, Evidence::Stitched).unwrap();
    builder.close_between(stack, (c6, c8), EndType::Gone).unwrap();
    builder.apply(Change::Open { stack, first: c8, start: StartType::Unknown, location: None }).unwrap();
    builder.close_between(stack, (c9, c9), EndType::Gone).unwrap();
    builder
        .apply(Change::Open { stack, first: ContextId(10), start: StartType::Call, location: None })
        .unwrap();
    let trace = builder.finish(12).unwrap();
    let outer = trace.context(c9).unwrap().stack().unwrap().frames().last().unwrap();
    let inner: Vec<_> = outer.children().collect();
    let table = [
        // start, end, evidence, continuity, display
        (
            outer,
            Bound::Inferred { lo: c2, hi: c5 },
            Bound::Open,
            Evidence::Snapshot,
            Continuity::Assumed,
            "~#5 - ???",
        ),
        (
            inner[0],
            Bound::Observed(c6),
            Bound::Inferred { lo: c6, hi: c8 },
            Evidence::Stitched,
            // Observed once.
            Continuity::Observed,
            "~#6 - ???",
        ),
        (inner[1], Bound::Open, Bound::Observed(c9), Evidence::Exact, Continuity::Observed, "??? - ???"),
        (
            inner[2],
            Bound::Observed(ContextId(10)),
            Bound::Open,
            Evidence::Exact,
            Continuity::Observed,
            "#9 - ???",
        ),
    ];
    for (frame, start, end, evidence, continuity, shown) in table {
        assert_eq!((frame.start(), frame.end()), (start, end), "{frame}");
        assert_eq!((frame.evidence(), frame.continuity()), (evidence, continuity), "{frame}");
        assert_eq!(frame.to_string(), shown);
        assert_eq!(frame.creation_transition().is_some(), shown == "#9 - ???");
    }
    assert_eq!(outer.child_count(), Count::AtLeast(3));
    assert_eq!(outer.descendant_count(), Count::AtLeast(3));
    assert_eq!(
        trace.context(c9).unwrap().stack().unwrap().active_since(),
        Some(Bound::Inferred { lo: c2, hi: c5 })
    );
}

#[test]
fn transitions_have_times_processors_and_names() {
    let mut builder = Builder::new();
    let [sample, switch] = ["PerfInfo/SampledProfile", "Thread/CSwitch"].map(|name| builder.label(name));
    assert_eq!((sample, switch, builder.label("Thread/CSwitch")), (LabelId(0), LabelId(1), LabelId(1)));
    let stacks = [0, 1].map(|cpu| builder.stack(thread(cpu, StackKind::Kernel)));
    for (cpu, stack) in stacks.into_iter().enumerate() {
        builder.apply(Change::Enter { cpu: Cpu(cpu as u16), stack, first: ContextId(0) }).unwrap();
        let open = Change::Open { stack, first: ContextId(0), start: StartType::Unknown, location: None };
        builder.apply(open).unwrap();
    }
    // The clock of the third transition is earlier than the second. It gets the time of the second one.
    for (time, cpu, label) in [(1000, 0, sample), (1010, 1, switch), (1005, 0, sample), (1020, 1, sample)] {
        builder.transition(time, Cpu(cpu), label);
    }
    let trace = builder.finish(4).unwrap();
    let seen: Vec<_> = (0..5)
        .map(|id| {
            let context = trace.context(ContextId(id)).unwrap();
            (context.time().unwrap(), context.cpu().0, context.stack().unwrap().info().thread.unwrap())
        })
        .collect();
    // The last context is after the last transition and has its time and processor.
    assert_eq!(seen, [(1000, 0, 0), (1010, 1, 1), (1010, 0, 0), (1020, 1, 1), (1020, 1, 1)]);
    let shown: Vec<String> = (0..4)
        .map(|id| trace.transition(stackhound_calltree::TransitionId(id)).unwrap().to_string())
        .collect();
    assert_eq!(shown[..2], ["#0 PerfInfo/SampledProfile", "#1 Thread/CSwitch"]);
    let at = |time| trace.context_at(time).map(|context| context.id().0);
    assert_eq!(
        [0, 1000, 1001, 1010, 1011, 1020, 1021].map(at),
        [Some(0), Some(0), Some(1), Some(1), Some(3), Some(3), None]
    );
}

#[test]
fn invalid_changes_are_rejected() {
    let at = ContextId;
    let mut builder = Builder::new();
    let stack = builder.stack(thread(1, StackKind::User));
    let open = |first| Change::Open { stack, first: at(first), start: StartType::Call, location: None };
    let close = |last| Change::Close { stack, last: at(last), end: EndType::Return };
    let enter = |first| Change::Enter { cpu: Cpu(0), stack, first: at(first) };
    let other = stackhound_calltree::StackId(5);
    builder.apply(open(5)).unwrap();
    builder.apply(enter(5)).unwrap();
    let table = [
        (open(4), "the change at context #4 is out of order: the previous change is at context #5"),
        (close(4), "stack 0 has no open frame that could end at context #4"),
        (
            Change::Enter { cpu: Cpu(0), stack, first: at(4) },
            "the change at context #4 is out of order: the previous change is at context #5",
        ),
        (
            Change::Enter { cpu: Cpu(0), stack: other, first: at(9) },
            "stack number 5 is outside the trace, which has 1",
        ),
    ];
    for (change, expected) in table {
        assert_eq!(builder.apply(change).unwrap_err().to_string(), expected);
    }
    builder.apply(close(5)).unwrap();
    assert_eq!(
        builder.apply(close(6)).unwrap_err().to_string(),
        "stack 0 has no open frame that could end at context #6"
    );
    assert_eq!(
        builder.finish(3).unwrap_err().to_string(),
        "context #5 is outside the trace, whose contexts are #0 to #3"
    );
    assert_eq!(
        Builder::new().finish(u64::MAX).unwrap_err().to_string(),
        "more than 17592186044416 transitions in one trace"
    );
}

#[test]
fn the_other_stack_of_a_thread() {
    use stackhound_calltree::Axis;
    let mut builder = Builder::new();
    let [user, kernel, other] = [(1, StackKind::User), (1, StackKind::Kernel), (2, StackKind::Kernel)]
        .map(|(number, kind)| builder.stack(thread(number, kind)));
    // User mode, a system call, another thread in between, back in the call, user mode again.
    for (first, stack) in [(0, user), (10, kernel), (20, other), (30, kernel), (40, user)] {
        builder.apply(Change::Enter { cpu: Cpu(0), stack, first: ContextId(first) }).unwrap();
    }
    let trace = builder.finish(50).unwrap();
    let seen = |at: u64, axis| {
        let stack = trace.context(ContextId(at)).unwrap().stack().unwrap();
        [stack.prev_stack(axis), stack.next_stack(axis)]
            .map(|stack| stack.map(|stack| (stack.id(), stack.context().id().0)))
    };
    assert_eq!(seen(35, Axis::Cpu), [Some((other, 29)), Some((user, 40))]);
    assert_eq!(seen(35, Axis::Thread), [Some((user, 9)), Some((user, 40))]);
    assert_eq!(seen(15, Axis::Thread), [Some((user, 9)), Some((user, 40))]);
    assert_eq!(seen(45, Axis::Thread), [Some((kernel, 39)), None]);
    assert_eq!(seen(5, Axis::Cpu), [None, Some((kernel, 10))]);
}

#[test]
fn a_stack_is_active_on_one_processor() {
    let mut builder = Builder::new();
    let stack = builder.stack(thread(1, StackKind::Kernel));
    let other = builder.stack(thread(2, StackKind::Kernel));
    let enter = |cpu, stack, first| Change::Enter { cpu: Cpu(cpu), stack, first: ContextId(first) };
    for change in [enter(0, stack, 0), enter(0, other, 30), enter(1, stack, 10), enter(0, stack, 40)] {
        builder.apply(change).unwrap();
    }
    let trace = builder.finish(50).unwrap();
    let active = |at, cpu| trace.context(ContextId(at)).unwrap().on(Cpu(cpu)).stack().map(|stack| stack.id());
    let seen = [0, 9, 10, 29, 30, 39, 40, 50].map(|at| [active(at, 0), active(at, 1)]);
    assert_eq!(
        seen,
        [
            [Some(stack), None],
            [Some(stack), None],
            [None, Some(stack)],
            [None, Some(stack)],
            [Some(other), Some(stack)],
            [Some(other), Some(stack)],
            [Some(stack), None],
            [Some(stack), None],
        ]
    );
}

/// A user stack that is active from 0 to 3 and from 9 to 12. Frames on it were also observed by
/// events in the kernel.
#[test]
fn frames_start_and_end_while_their_stack_is_active() {
    let at = ContextId;
    let mut builder = Builder::new();
    builder.sampled();
    let (user, kernel) =
        (builder.stack(thread(1, StackKind::User)), builder.stack(thread(1, StackKind::Kernel)));
    for (stack, first) in [(user, 0), (kernel, 4), (user, 9), (kernel, 13)] {
        builder.apply(Change::Enter { cpu: Cpu(0), stack, first: at(first) }).unwrap();
    }
    let open = |builder: &mut Builder, name: &str, lo, hi| {
        let symbol = Some(name.to_owned());
        let info = LocationInfo { address: None, module: None, rva: None, symbol, symbol_offset: 0 };
        let location = Some(builder.location(info));
        builder
            .open_between(user, (at(lo), at(hi)), StartType::Unknown, location, Evidence::Stitched)
            .unwrap();
    };
    let close = |builder: &mut Builder, lo, hi| {
        builder.close_between(user, (at(lo), at(hi)), EndType::Gone).unwrap();
    };
    open(&mut builder, "base", 0, 0);
    open(&mut builder, "a", 0, 6);
    open(&mut builder, "b", 0, 7);
    close(&mut builder, 7, 9);
    close(&mut builder, 10, 13);
    open(&mut builder, "c", 11, 14);
    close(&mut builder, 15, 20);
    let trace = builder.finish(17).unwrap();
    let frames: Vec<_> = (0..4).map(|id| trace.frame(FrameId(id)).unwrap()).collect();
    let table: [(&str, &[&str], &[&str]); 4] = [
        (
            "base",
            &[
                "Start ~#6 - a",
                "Start ~#7 - b",
                "Leave #3",
                "Enter #8",
                "End ~#7 - b",
                "End ~#6 - a",
                // It is not known to be entered again.
                "Start ~#14 - c",
                "End ~#14 - c",
                "Leave #12",
            ],
            &["[Context before #0, Context before #3]", "[Context before #9, Context before #12]"],
        ),
        // The stack was left before it was observed.
        (
            "a",
            &["Start ~#7 - b", "Leave #3", "Enter #8", "End ~#7 - b"],
            &["[Context before #9, Context before #10]"],
        ),
        ("b", &["Leave #3"], &[]),
        ("c", &["Leave #12"], &[]),
    ];
    for (frame, (name, events, ranges)) in frames.iter().zip(table) {
        assert_eq!(frame.name().to_string(), name);
        let found: Vec<_> = frame.descendant_events().collect();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), events, "{name}");
        let found_ranges: Vec<_> = frame.execution_ranges().map(|range| range.to_string()).collect();
        assert_eq!(found_ranges, ranges, "{name}");
        for skipped in &frames {
            let mut events = frame.descendant_events();
            let mut with_skip = Vec::new();
            while let Some(event) = events.next() {
                with_skip.push(event);
                if event == StackEvent::FrameStart(*skipped) {
                    events.skip_children();
                }
            }
            let mut is_inside = false;
            let filtered = found.iter().filter(|event| {
                is_inside &= **event != StackEvent::FrameEnd(*skipped);
                let keep = !is_inside;
                is_inside |= **event == StackEvent::FrameStart(*skipped);
                keep
            });
            assert_eq!(with_skip, filtered.copied().collect::<Vec<_>>(), "{name} without {skipped}");
        }
    }
}
