//! Stacks of a booting Linux system: what system calls, interrupts, page faults, switches and signals do to
//! them, each checked at all of its occurrences.
//!
//! The trace is `tests/data/boot.calls`, a part of what `scripts/qemu-check.sh` recorded, while its program
//! with signals ran; or that of the environment variable `STACKHOUND_BOOT`. What is expected follows from the
//! entry points of Linux (`arch/x86/entry/entry_64.S`) and from the program.
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

/// The symbol of a frame whose function was observed from its start.
fn symbol<'t>(frame: &Frame<'t>) -> Option<&'t str> {
    let location = frame.function_location()?;
    location.symbol().filter(|_| location.symbol_offset() == 0)
}

/// The frames of functions whose start was observed.
fn calls(fits: impl Fn(&str) -> bool) -> Vec<Frame<'static>> {
    let frames = TRACE.calls_where(|location| location.symbol().is_some_and(&fits));
    frames.into_iter().filter(|frame| frame.creation_transition().is_some()).collect()
}

fn at(context: u64) -> Option<Context<'static>> {
    TRACE.context(ContextId(context)).ok()
}

/// The active stack before a frame began, and after it ended.
fn around(frame: &Frame<'static>) -> (Option<Stack<'static>>, Option<Stack<'static>>) {
    let range = frame.range();
    let before = range.begin().0.checked_sub(1).and_then(at);
    (before.and_then(|context| context.stack()), at(range.last().0 + 1).and_then(|context| context.stack()))
}

fn is_of_program(stack: &Stack<'_>) -> bool {
    matches!(stack.info().kind, StackKind::User | StackKind::Alternate)
}

fn is_entry_stack(stack: &Stack<'_>) -> bool {
    stack.info().name.as_deref() == Some("entry stack")
}

/// Entry points of interrupts and exceptions: `asm_exc_page_fault`, `asm_sysvec_apic_timer_interrupt`, or the
/// table with a slot of 8 or 16 bytes for each vector of devices.
fn is_entry_point(name: &str) -> bool {
    name.starts_with("asm_exc_") || name.starts_with("asm_sysvec_") || name == "irq_entries_start"
}

#[test]
fn a_system_call_is_a_call_from_the_user_stack() {
    let frames = calls(|name| name == "entry_SYSCALL_64");
    let (mut returned, mut direct) = (0, 0);
    for frame in &frames {
        let info = frame.stack().info();
        assert_eq!(frame.start_type(), StartType::Call, "{frame:?}");
        assert!(frame.parent().is_none(), "{frame:?}");
        if info.kind == StackKind::Interrupt {
            // On the way back, the entry stack carries the same frame.
            assert!(is_entry_stack(&frame.stack()), "{frame:?}");
            continue;
        }
        assert_eq!(info.kind, StackKind::Kernel, "{frame:?}");
        let (before, after) = around(frame);
        let before = before.expect("a stack");
        assert!(is_of_program(&before), "{frame:?} after {before:?}");
        assert_eq!(before.info().process, info.process, "{frame:?}");
        let previous = frame.first_context().stack().and_then(|stack| stack.prev_stack(Axis::Cpu));
        assert_eq!(previous.map(|stack| stack.id()), Some(before.id()), "{frame:?}");
        let call = frame.children().next();
        if call.as_ref().and_then(symbol) == Some("do_syscall_64") {
            direct += 1;
        }
        match frame.end_type() {
            EndType::InterruptReturn => {
                returned += 1;
                let after = after.expect("a stack");
                assert!(is_of_program(&after), "{frame:?} before {after:?}");
            }
            // The thread has ended, the system was switched off, or the part of the trace ends here.
            EndType::Abandoned | EndType::TraceEnd => {}
            other => panic!("{frame:?} ends as {other:?}"),
        }
    }
    assert!(returned >= 6 && direct >= returned, "{returned} of {} system calls", frames.len());
}

/// Interrupts and exceptions begin on the entry stack of the processor, or for an entry that the processor
/// made without one, directly on the stack of the thread.
fn is_entered_from_program(frame: &Frame<'static>) -> bool {
    frame.start_type() == StartType::Interrupt && around(frame).0.is_some_and(|before| is_of_program(&before))
}

/// Checks the frames of interrupts or exceptions that entered the kernel from user mode, and returns their
/// number.
fn check_entries_from_programs(frames: &[Frame<'static>]) -> usize {
    let mut count = 0;
    for frame in frames.iter().filter(|frame| is_entered_from_program(frame)) {
        assert!(is_entry_stack(&frame.stack()), "{frame:?}");
        assert!(frame.parent().is_none(), "{frame:?}");
        // The entry point copies the saved registers to the stack of the thread, where the same frame begins.
        let thread = around(frame).0.and_then(|before| before.info().thread);
        let copied = (frame.range().begin().0..=frame.range().last().0).filter_map(at).find_map(|context| {
            let stack = context.stack().filter(|stack| stack.info().kind == StackKind::Kernel)?;
            stack
                .frames()
                .find(|inner| inner.start_type() == StartType::Interrupt && inner.name() == frame.name())
        });
        let copied = copied.unwrap_or_else(|| panic!("{frame:?} has no copy"));
        assert_eq!(copied.stack().info().thread, thread, "{frame:?}, {copied:?}");
        for part in [frame, &copied] {
            match part.end_type() {
                EndType::InterruptReturn => {}
                EndType::Abandoned | EndType::TraceEnd => continue,
                other => panic!("{part:?} ends as {other:?}"),
            }
            count += 1;
        }
        if copied.end_type() == EndType::InterruptReturn {
            let after = around(&copied).1.expect("a stack");
            assert!(is_of_program(&after) || is_entry_stack(&after), "{copied:?} before {after:?}");
        }
    }
    count / 2
}

#[test]
fn an_interrupt_in_user_mode_begins_on_the_entry_stack() {
    let frames = calls(|name| name.starts_with("asm_sysvec_") || name == "irq_entries_start");
    assert!(check_entries_from_programs(&frames) >= 2);
}
