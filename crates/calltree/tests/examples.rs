//! The examples of the public reven2 stack API description, with the same output as far as their
//! numbers are known.

mod fixtures;

use stackhound_calltree::{
    Axis, ContextId, ContextRange, EndType, Pattern, StackEvent, StackId, StartType, Trace, TransitionId,
};

fn context(trace: &Trace, id: u64) -> stackhound_calltree::Context<'_> {
    trace.context(ContextId(id)).unwrap()
}

fn lines<T: std::fmt::Display>(things: impl IntoIterator<Item = T>) -> Vec<String> {
    things.into_iter().map(|thing| thing.to_string()).collect()
}

#[test]
fn a_frame_is_found_at_a_context() {
    let trace = fixtures::trace();
    let frame = context(&trace, 200_000).stack().unwrap().frame().unwrap();
    assert_eq!(frame.to_string(), "#199862 - usbhub!UsbhDecHubBusy");
    assert_eq!(frame.function_start().unwrap().to_string(), "#199862 call 0xfffff800fe4ac010");
    assert_eq!(frame.first_context().to_string(), "Context before #199863");
    assert_eq!(frame.last_context().to_string(), "Context before #200320");
    let location = frame.function_location().unwrap();
    assert_eq!((location.rva(), location.symbol_offset()), (Some(0xc010), 0));
    assert_eq!(
        location.to_string(),
        "Location(binary='usbhub', symbol='UsbhDecHubBusy', symbol_offset=0x0, address=0xfffff800fe4ac010, rva=0xc010)"
    );
    let children = [
        "#199886 - ntoskrnl!KeWaitForSingleObject",
        "#200032 - ntoskrnl!ExFreePoolWithTag",
        "#200239 - ntoskrnl!KiAcquireKobjectLockSafe",
        "#200269 - ntoskrnl!KiExitDispatcher",
    ];
    assert_eq!(lines(frame.children()), children);
    let mut reversed = children;
    reversed.reverse();
    assert_eq!(lines(frame.reversed_children()), reversed);
    assert_eq!((frame.start_type(), frame.end_type()), (StartType::Call, EndType::Return));
}

#[test]
fn siblings() {
    let trace = fixtures::trace();
    let frame = context(&trace, 200_000).stack().unwrap().frame().unwrap();
    let children: Vec<_> = frame.children().collect();
    for pair in children.windows(2) {
        assert_eq!(pair[0].next_sibling(), Some(pair[1]));
        assert_eq!(pair[1].previous_sibling(), Some(pair[0]));
    }
    assert_eq!((children[0].previous_sibling(), children[3].next_sibling()), (None, None));
    // Frames of different stacks are not siblings.
    for number in 0..trace.stack_count() {
        let stack = trace.stack(StackId(number), trace.last_context().id()).unwrap();
        let base = stack.frames().last().unwrap();
        assert_eq!((base.previous_sibling(), base.next_sibling()), (None, None), "{base}");
    }
}

#[test]
fn frames_are_found_by_their_first_context() {
    let trace = fixtures::trace();
    let first = |id| lines(trace.frames_from(ContextId(id)).unwrap());
    assert_eq!(first(199_863), ["#199862 - usbhub!UsbhDecHubBusy"]);
    assert_eq!(first(199_864), [""; 0]);
    // The stack of the second thread is not active yet.
    assert_eq!(first(0), ["??? - ???"]);
    assert!(trace.frames_from(ContextId(fixtures::TRANSITIONS + 1)).is_err());
}

#[test]
fn ranges_by_call() {
    let trace = fixtures::trace();
    let frame = context(&trace, 200_000).stack().unwrap().frame().unwrap();
    assert_eq!(lines(frame.execution_ranges()), ["[Context before #199863, Context before #200320]"]);
    assert_eq!(frame.range().len(), 458);
    assert_eq!(
        lines(frame.execution_ranges_by_call()),
        [
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #199863, Context before #199886]",
            "[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before #199887, Context before #199992]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #199993, Context before #200032]",
            "[1]#200032 - ntoskrnl!ExFreePoolWithTag [Context before #200033, Context before #200183]",
            "[2]#200183 - ntoskrnl!ExpInterlockedPushEntrySList [Context before #200184, Context before #200199]",
            "[1]#200032 - ntoskrnl!ExFreePoolWithTag [Context before #200200, Context before #200209]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200210, Context before #200239]",
            "[1]#200239 - ntoskrnl!KiAcquireKobjectLockSafe [Context before #200240, Context before #200250]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200251, Context before #200269]",
            "[1]#200269 - ntoskrnl!KiExitDispatcher [Context before #200270, Context before #200309]",
            "[0]#199862 - usbhub!UsbhDecHubBusy [Context before #200310, Context before #200320]",
        ]
    );
    let pattern = Pattern::new("ntoskrnl!*").unwrap();
    let own: Vec<u64> = frame
        .execution_ranges_by_call()
        .without(|frame| frame.function_location().is_some_and(|location| pattern.fits(&location)))
        .map(|range| range.range.len())
        .collect();
    assert_eq!(own, [24, 40, 30, 19, 11]);
}

#[test]
fn a_stack_that_is_left_and_entered() {
    let trace = fixtures::trace();
    let frame = context(&trace, 200_000).stack().unwrap().frame().unwrap();
    let outer = frame.ancestors().nth(2).unwrap();
    assert_eq!(outer.first_context().id(), ContextId(198_206));
    let changes: Vec<String> = outer
        .descendant_events()
        .filter(|event| matches!(event, StackEvent::StackLeave(_) | StackEvent::StackEnter(_)))
        .map(|event| event.to_string())
        .collect();
    assert_eq!(changes, ["Leave #209497", "Enter #211888"]);
    assert_eq!(
        lines(outer.execution_ranges()),
        [
            "[Context before #198206, Context before #209497]",
            "[Context before #211889, Context before #212379]",
        ]
    );
    let within = |begin, last| {
        let range = ContextRange::new(ContextId(begin), ContextId(last)).unwrap();
        lines(outer.execution_ranges_within(range))
    };
    assert_eq!(
        within(209_000, 211_889),
        [
            "[Context before #209000, Context before #209497]",
            "[Context before #211889, Context before #211889]",
        ]
    );
    assert_eq!(within(209_498, 211_888), [""; 0]);
    let between = context(&trace, 210_000).stack().unwrap();
    assert_eq!(between.prev_stack(Axis::Cpu).unwrap().context().id(), ContextId(209_497));
    assert_eq!(between.next_stack(Axis::Cpu).unwrap().context().id(), ContextId(211_889));
    assert_eq!(between.next_stack(Axis::Cpu).unwrap().id(), frame.stack().id());
    assert!(between.next_stack(Axis::Cpu).unwrap().next_stack(Axis::Cpu).is_none());
    assert!(frame.stack().prev_stack(Axis::Cpu).is_none());
}

#[test]
fn events_below_a_frame() {
    let trace = fixtures::trace();
    let frame = context(&trace, 3_000_000).stack().unwrap().frame().unwrap();
    assert_eq!(frame.to_string(), "#2999024 - win32kfull!xxxDCEWindowHitTestInternal");
    let starts: Vec<String> = frame
        .descendant_events()
        .filter_map(|event| match event {
            StackEvent::FrameStart(frame) => Some(frame.to_string()),
            _ => None,
        })
        .collect();
    let (hit_test, cookie) =
        ("win32kfull!xxxDCEWindowHitTest2Internal", "win32kfull!__security_check_cookie");
    let pairs = [
        (2_999_065, 2_999_114),
        (2_999_151, 2_999_188),
        (2_999_225, 2_999_262),
        (2_999_299, 2_999_336),
        (2_999_373, 2_999_442),
        (2_999_479, 2_999_657),
        (2_999_694, 2_999_763),
        (2_999_800, 2_999_869),
        (2_999_906, 2_999_975),
        (3_000_012, 3_000_081),
        (3_000_118, 3_000_187),
    ];
    let mut expected = vec!["#2999033 - ntoskrnl!PsGetCurrentProcessWin32Process".to_owned()];
    for (outer, inner) in pairs {
        expected.extend([format!("#{outer} - {hit_test}"), format!("#{inner} - {cookie}")]);
    }
    expected.push(format!("#3000224 - {hit_test}"));
    assert_eq!(expected.len(), 24);
    for (start, name) in [(3_016_734, 0), (3_016_755, 0), (3_016_776, 1), (3_016_796, 0)] {
        expected.push(format!("#{start} - {}", ["win32kbase!ThreadUnlock1", cookie][name]));
    }
    assert_eq!(starts, expected);
}

#[test]
fn navigation() {
    let trace = fixtures::trace();
    let transition = |id| trace.transition(TransitionId(id)).unwrap();
    // Over a call to the transition after its return, and back.
    assert_eq!(transition(199_886).step_over(), Some(transition(199_993)));
    assert_eq!(transition(199_993).step_over_backward(), Some(transition(199_886)));
    assert_eq!(transition(199_900).step_over(), Some(transition(199_901)));
    // Out of the function to the transition after its return, and backward to the call.
    assert_eq!(transition(200_190).step_out(), Some(transition(200_200)));
    assert_eq!(transition(200_190).step_out_backward(), Some(transition(200_183)));
    assert_eq!(transition(0).step_over_backward(), None);
    assert_eq!(transition(0).step_out(), None);
    assert_eq!(transition(fixtures::TRANSITIONS - 1).step_over(), None);
    assert_eq!(
        trace.context(ContextId(fixtures::TRANSITIONS + 1)).unwrap_err().to_string(),
        "context #3100001 is outside the trace, whose contexts are #0 to #3100000"
    );
}

#[test]
fn calls_by_name() {
    let trace = fixtures::trace();
    let calls = |pattern| lines(trace.calls(&Pattern::new(pattern).unwrap()));
    assert_eq!(
        calls("ntoskrnl!Ki*"),
        ["#200239 - ntoskrnl!KiAcquireKobjectLockSafe", "#200269 - ntoskrnl!KiExitDispatcher"]
    );
    assert_eq!(
        calls("THREADUNLOCK?"),
        [3_016_734, 3_016_755, 3_016_796].map(|start| format!("#{start} - win32kbase!ThreadUnlock1"))
    );
    assert_eq!(calls("usbhub!Ki*"), [""; 0]);
    assert!(Pattern::new("a[").is_err());
}
