//! Stacks of a booting Linux system: what system calls, interrupts, page faults, switches and signals do to
//! them, each checked at all of its occurrences.
//!
//! The trace is `tests/data/boot.calls`, the part of what `scripts/qemu-check.sh` recorded while `known.c`
//! ran; or that of the environment variable `STACKHOUND_BOOT`. What is expected follows from the entry points
//! of Linux (`arch/x86/entry/entry_64.S`) and from `known.c`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::sync::LazyLock;

use stackhound_calltree::{
    Axis, Context, ContextId, EndType, Frame, Stack, StackEvent, StackKind, StartType, Trace, journal,
};

static TRACE: LazyLock<Trace> = LazyLock::new(|| {
    let extract = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/boot.calls");
    let path = std::env::var("STACKHOUND_BOOT").unwrap_or_else(|_| extract.to_owned());
    let bytes = std::fs::read(&path).expect("a journal");
    let (trace, replayed) = journal::trace(&bytes).expect("a journal");
    assert!(replayed.finished);
    trace
});

/// The name of the function of a frame whose start was observed.
fn symbol<'t>(frame: &Frame<'t>) -> Option<&'t str> {
    let location = frame.function_location()?;
    location.symbol().filter(|_| location.symbol_offset() == 0)
}

/// The frames of functions, except those that are older than the trace.
fn frames(fits: impl Fn(&str) -> bool) -> Vec<Frame<'static>> {
    let frames = TRACE.calls_where(|location| location.symbol().is_some_and(&fits));
    frames.into_iter().filter(|frame| frame.creation_transition().is_some()).collect()
}

/// The stack that is active at a context.
fn active(context: ContextId) -> Option<Stack<'static>> {
    TRACE.context(context).ok().and_then(|context| context.stack())
}

fn before(frame: &Frame<'static>) -> Option<Stack<'static>> {
    frame.range().begin().0.checked_sub(1).and_then(|context| active(ContextId(context)))
}

fn after(frame: &Frame<'static>) -> Option<Stack<'static>> {
    active(ContextId(frame.range().last().0 + 1))
}

fn is_of_program(stack: &Stack<'_>) -> bool {
    matches!(stack.info().kind, StackKind::User | StackKind::Alternate)
}

fn has_name(stack: &Stack<'_>, name: &str) -> bool {
    stack.info().kind == StackKind::Interrupt && stack.info().name.as_deref() == Some(name)
}

/// Whether a frame is still open at the end of the trace, or was when its thread ended.
fn never_ended(frame: &Frame<'_>) -> bool {
    matches!(frame.end_type(), EndType::Abandoned | EndType::TraceEnd)
}

/// Interrupts of timers and devices. `asm_common_interrupt` is entered by way of a table with a slot for each
/// vector.
fn is_interrupt(name: &str) -> bool {
    name.starts_with("asm_sysvec_") || name == "irq_entries_start"
}

#[test]
fn a_system_call_is_a_call_from_the_user_stack() {
    let frames = frames(|name| name == "entry_SYSCALL_64");
    let mut returned = 0;
    for frame in &frames {
        assert_eq!(frame.start_type(), StartType::Call, "{frame:?}");
        assert!(frame.parent().is_none(), "{frame:?}");
        // On the way back, the entry stack carries the same frame.
        if has_name(&frame.stack(), "entry stack") {
            continue;
        }
        let info = frame.stack().info();
        assert_eq!(info.kind, StackKind::Kernel, "{frame:?}");
        // The user stack is active until the kernel loads the pointer of its own stack.
        let user = before(frame).expect("a stack");
        assert!(is_of_program(&user), "{frame:?} after {user:?}");
        assert_eq!(user.info().thread, info.thread, "{frame:?}");
        let entered = active(frame.range().begin()).expect("a stack");
        assert_eq!(entered.id(), frame.stack().id(), "{frame:?}");
        assert_eq!(entered.prev_stack(Axis::Cpu).map(|stack| stack.id()), Some(user.id()), "{frame:?}");
        let called = frame.children().find(|inner| symbol(inner) == Some("do_syscall_64"));
        assert!(called.is_some_and(|inner| inner.start_type() == StartType::Call), "{frame:?}");
        if never_ended(frame) {
            continue;
        }
        returned += 1;
        assert_eq!(frame.end_type(), EndType::InterruptReturn, "{frame:?}");
        assert!(after(frame).is_some_and(|stack| is_of_program(&stack)), "{frame:?}");
    }
    assert!(returned >= 6, "{returned} of {} system calls", frames.len());
}

/// Checks the entries of functions into the kernel that interrupted user mode. They begin on the entry stack.
/// The entry point copies the saved registers to the stack of the thread, where the same frame begins. Both
/// end with the return to user mode. Returns the number of these entries.
fn check_interrupts_of_programs(fits: impl Fn(&str) -> bool) -> usize {
    let mut returned = 0;
    for frame in frames(fits) {
        let Some(user) = before(&frame).filter(is_of_program) else { continue };
        assert_eq!(frame.start_type(), StartType::Interrupt, "{frame:?}");
        assert!(has_name(&frame.stack(), "entry stack"), "{frame:?}");
        assert!(frame.parent().is_none(), "{frame:?}");
        // The first stack of the thread that is active after the entry stack.
        let entry = active(frame.range().begin()).expect("a stack");
        let kernel = entry.next_stack(Axis::Cpu).expect("a stack");
        assert_eq!(kernel.info().kind, StackKind::Kernel, "{frame:?} continues on {kernel:?}");
        assert_eq!(kernel.info().thread, user.info().thread, "{frame:?} continues on {kernel:?}");
        let copy = kernel.frames().last().expect("a frame");
        assert_eq!((symbol(&copy), copy.start_type()), (symbol(&frame), StartType::Interrupt), "{frame:?}");
        if never_ended(&frame) || never_ended(&copy) {
            continue;
        }
        returned += 1;
        for part in [&frame, &copy] {
            assert_eq!(part.end_type(), EndType::InterruptReturn, "{part:?}");
        }
        // The entry stack is that of the processor: the next return to user mode ends the frame, also if it
        // is that of another thread.
        assert!(frame.range().last() <= copy.range().last(), "{frame:?}, {copy:?}");
        for part in [&frame, &copy] {
            assert!(after(part).is_some_and(|next| is_of_program(&next)), "{part:?}");
        }
    }
    returned
}

#[test]
fn an_interrupt_in_user_mode_continues_on_the_stack_of_the_thread() {
    let count = check_interrupts_of_programs(is_interrupt);
    assert!(count >= 2, "{count}");
}

#[test]
fn a_page_fault_continues_on_the_stack_of_the_thread() {
    let count = check_interrupts_of_programs(|name| name == "asm_exc_page_fault");
    assert!(count >= 3, "{count}");
}

/// The handler itself runs on the stack of interrupts, which is left and entered again while the frame is
/// open.
#[test]
fn an_interrupt_in_kernel_mode_is_a_frame_on_the_interrupted_stack() {
    let (mut returned, mut visits) = (0, 0);
    for frame in frames(is_interrupt) {
        let interrupted = before(&frame).expect("a stack");
        if is_of_program(&interrupted) || frame.start_type() != StartType::Interrupt || never_ended(&frame) {
            continue;
        }
        // The copy of an interrupt in user mode.
        if frame.parent().is_none() {
            continue;
        }
        returned += 1;
        assert_eq!(interrupted.id(), frame.stack().id(), "{frame:?}");
        assert_eq!(frame.end_type(), EndType::InterruptReturn, "{frame:?}");
        assert_eq!(after(&frame).map(|stack| stack.id()), Some(interrupted.id()), "{frame:?}");
        assert!(frame.children().any(|inner| inner.start_type() == StartType::Call), "{frame:?}");
        let mut inside = None;
        for event in frame.descendant_events() {
            match event {
                StackEvent::StackLeave(transition) => {
                    let stack = transition.context_after().stack().expect("a stack");
                    inside = Some(stack.id()).filter(|_| has_name(&stack, "interrupt stack"));
                    if inside.is_some() {
                        let bottom = stack.frames().last().expect("a frame");
                        assert_eq!(bottom.start_type(), StartType::Manual, "{bottom:?} in {frame:?}");
                    }
                }
                StackEvent::StackEnter(transition) if inside.is_some() => {
                    let stack = transition.context_before().stack().map(|stack| stack.id());
                    // The handler can switch to another thread only after it has left its stack.
                    assert_eq!(stack, inside, "{frame:?}");
                    (inside, visits) = (None, visits + 1);
                }
                _ => {}
            }
        }
    }
    assert!(
        returned >= 2 && visits >= 2,
        "{returned} interrupts, {visits} visits of the stack of interrupts"
    );
}

/// `__switch_to_asm(previous, next)` is entered on one stack, and returns on another one, where an earlier
/// call of it returns.
#[test]
fn a_switch_leaves_the_stack_of_one_thread_for_that_of_another_one() {
    let mut switched = 0;
    for frame in frames(|name| name == "__switch_to_asm") {
        let from = frame.stack();
        assert_eq!((from.info().kind, frame.start_type()), (StackKind::Kernel, StartType::Call), "{frame:?}");
        let leave = frame.descendant_events().find_map(|event| match event {
            StackEvent::StackLeave(transition) => Some(transition),
            _ => None,
        });
        // A switch to the same thread, or one that the trace ends in.
        let Some(leave) = leave else { continue };
        let to = leave.context_after().stack().expect("a stack");
        assert_eq!(to.info().kind, StackKind::Kernel, "{frame:?} to {to:?}");
        assert_ne!(to.info().thread, from.info().thread, "{frame:?} to {to:?}");
        switched += 1;
        let resumed = to.frame().expect("a frame");
        match resumed.start_type() {
            StartType::Call => assert_eq!(symbol(&resumed), Some("__switch_to_asm"), "{frame:?} to {to:?}"),
            // The first switch to a thread, whose stack the kernel has prepared.
            start => assert_eq!(start, StartType::Unknown, "{frame:?} to {to:?}"),
        }
        if frame.has_ended() && !never_ended(&frame) {
            assert_eq!(frame.end_type(), EndType::Return, "{frame:?}");
        }
    }
    assert!(switched >= 3, "{switched}");
}

/// `known.c` handles a signal twice. The kernel calls the handler, which returns to `restorer`.
#[test]
fn a_signal_interrupts_a_program_and_calls_its_handler() {
    let found = frames(|name| name == "restorer");
    assert_eq!(found.len(), 2);
    for frame in found {
        assert_eq!((frame.start_type(), frame.end_type()), (StartType::Interrupt, EndType::InterruptReturn));
        assert_eq!(frame.parent().as_ref().and_then(symbol), Some("signals"));
        assert_eq!(frame.stack().info().kind, StackKind::User);
        let called: Vec<_> = frame.children().collect();
        let [handler] = called.as_slice() else { panic!("{called:?}") };
        assert_eq!(symbol(handler), Some("handled"));
        assert_eq!((handler.start_type(), handler.end_type()), (StartType::Manual, EndType::Return));
        let calls: Vec<_> = handler.children().filter_map(|inner| symbol(&inner)).collect();
        assert_eq!(calls, ["leaf", "recursive"]);
        // The handler is entered from a system call, and the return from it is one.
        for stack in [before(&frame), after(&frame)] {
            let stack = stack.expect("a stack");
            assert!(!is_of_program(&stack) || stack.id() == frame.stack().id(), "{frame:?}, {stack:?}");
        }
        assert_eq!(handler.first_context().id(), frame.first_context().id());
    }
}

/// Every context of the trace has an active stack with a frame.
#[test]
fn there_is_always_an_active_stack() {
    let last = TRACE.last_context().id().0;
    for number in (0..=last).step_by((last / 5_000).max(1) as usize) {
        let context: Context<'_> = TRACE.context(ContextId(number)).expect("a context");
        assert!(context.stack().and_then(|stack| stack.frame()).is_some(), "{context:?}");
    }
}
