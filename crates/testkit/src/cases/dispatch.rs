//! Callback dispatchers: proxy calls through the thread pool (CS17), waits (CS21), exception
//! handlers (CS22), callbacks from the kernel (CS26).

use super::entry::LOAD;
use super::unbacked::callback;
use crate::Answer::No;
use crate::case_builder::{AGENT, BOTH, CALLS, CaseBuilder, ETL, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::event_spec::{Action, EventSpec, FrameSpec};

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    proxies(builder);
    waits(builder);
    handlers(builder);
    kernel_callbacks(builder);
}

/// The stack of a pool thread: `inner`, then the dispatchers, then the thread root.
fn pooled(builder: &CaseBuilder<'_>, inner: &[&str], dispatchers: &[&str]) -> Vec<FrameSpec> {
    let mut stack = builder.world.stack(&[inner, dispatchers].concat());
    stack.extend(builder.root(""));
    stack
}

fn proxies(builder: &mut CaseBuilder<'_>) {
    builder.about("CS17", BOTH);
    let pool = ["ntdll!TppWorkpExecuteCallback", "ntdll!TppWorkerThread"];
    for dispatchers in [
        &pool[..],
        &["ntdll!TppTimerpExecuteCallback", "ntdll!TppWorkerThread"],
        &["ntdll!RtlpTpWorkCallback", "ntdll!RtlpPlain"],
        &["ntdll!RtlpTpTimerCallback", "ntdll!RtlpPlain"],
    ] {
        let event_spec = EventSpec::open(AGENT, pooled(builder, OPEN, dispatchers));
        builder.yes(format!("{} calls the Win32 base", dispatchers[0]), event_spec);
    }
    builder.yes(
        "another function of ntdll.dll calls the Win32 base",
        EventSpec::open(AGENT, pooled(builder, OPEN, &["ntdll!RtlpPlain"])),
    );
    builder.all_open(No);
    let user = builder.world.callers("kernelbase!OpenProcess", &["agent!callback"]);
    let benign = EventSpec::open(AGENT, pooled(builder, OPEN, &pool)).insert(2, user[0]);
    builder.no("a callback of the program", benign.clone());
    builder.missing(&benign);
    let proxy = EventSpec::open(AGENT, pooled(builder, OPEN, &pool));
    builder.undetermined("the stack has the greatest possible length", proxy.clone().grow(2));
    builder.without("ntdll", |builder| {
        // Without the thread root, the modules alone are not sufficient either.
        builder.undetermined("the functions of ntdll.dll have no names", proxy.clone().cut(2));
    });
    builder.about("CS17", ETL);
    builder.yes("the pool loads a library", {
        EventSpec::new(AGENT, Action::Load("plugin"), pooled(builder, LOAD, &pool))
    });
    builder.yes("the pool changes the protection of memory", {
        EventSpec::new(AGENT, Action::Call(CALLS[1].0), pooled(builder, CALLS[1].1, &pool))
    });
    builder.no("the pool creates a file", {
        EventSpec::new(AGENT, Action::Call(CALLS[4].0), pooled(builder, CALLS[4].1, &pool))
    });
}

fn waits(builder: &mut CaseBuilder<'_>) {
    let waiting = |builder: &CaseBuilder<'_>, inner: &[&str], dispatchers: &[&str]| {
        EventSpec::new(AGENT, Action::Wait, pooled(builder, inner, dispatchers))
    };
    let sleep: &[&str] = &["ntdll!NtDelayExecution", "kernelbase!SleepEx"];
    let object: &[&str] = &["ntdll!NtWaitForSingleObject", "kernelbase!WaitForSingleObjectEx"];
    builder.about("CS21", ETL);
    for (inner, dispatchers) in [
        (sleep, &["ntdll!KiUserApcDispatcher"][..]),
        (object, &["ntdll!KiUserApcDispatcher"]),
        (object, &["ntdll!RtlDispatchAPC", "ntdll!KiUserApcDispatcher"]),
        (object, &["ntdll!TppTimerpExecuteCallback", "ntdll!TppWorkerThread"]),
        (sleep, &["ntdll!RtlpTpTimerCallback", "ntdll!RtlpPlain"]),
    ] {
        builder.yes(format!("{} in {}", inner[0], dispatchers[0]), waiting(builder, inner, dispatchers));
    }
    for ((actor, code), inner) in PROGRAMS.into_iter().zip([sleep, object, sleep, object, sleep]) {
        builder.no(format!("{code} waits"), EventSpec::new(actor, Action::Wait, builder.stack(inner, code)));
    }
    builder.no("the pool waits for work", {
        let inner = ["ntdll!NtWaitForWorkViaWorkerFactory", "ntdll!TppWorkerThread"];
        EventSpec::new(AGENT, Action::Wait, pooled(builder, &inner, &[]))
    });
    let benign = EventSpec::new(AGENT, Action::Wait, builder.stack(sleep, "agent"));
    builder.missing(&benign);
    let masked = waiting(builder, sleep, &["ntdll!KiUserApcDispatcher"]);
    builder.undetermined("the stack has the greatest possible length", masked.clone().grow(1));
    builder.without("ntdll", |builder| {
        builder.undetermined("the functions of ntdll.dll have no names", masked);
    });
    // Sysmon does not report waits.
    builder.about("CS21", ROWS);
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
}

fn handlers(builder: &mut CaseBuilder<'_>) {
    let vectored: &[&str] =
        &["ntdll!RtlpCallVectoredHandlers", "ntdll!RtlDispatchException", "ntdll!KiUserExceptionDispatcher"];
    let handled = |builder: &CaseBuilder<'_>, inner: &[&str], code: &str, dispatchers: &[&str]| {
        let mut stack = builder.stack(inner, code);
        let mut handlers = builder.stack_from(inner, code, &["callback"]);
        handlers.truncate(inner.len() + 1);
        handlers.extend(builder.world.callers(&format!("{code}!callback"), dispatchers));
        handlers.extend(stack.split_off(inner.len()));
        handlers
    };
    builder.about("CS22", BOTH);
    for (actor, code) in PROGRAMS {
        builder.yes(format!("a handler of {code} opens a process"), {
            EventSpec::open(actor, handled(builder, OPEN, code, vectored))
        });
    }
    builder.yes(
        "a frame-based handler opens a process",
        EventSpec::open(AGENT, handled(builder, OPEN, "agent", &vectored[1..])),
    );
    let benign = builder.open(PROGRAMS[0]);
    builder.undetermined("hardware breakpoints leave no frames", benign.clone());
    builder.undetermined("the user stack is missing", benign.clone().without_user());
    builder.without("ntdll", |builder| {
        let event_spec = EventSpec::open(AGENT, handled(builder, OPEN, "agent", vectored));
        builder.undetermined("the functions of ntdll.dll have no names", event_spec);
    });
    builder.about("CS22", ETL);
    for (actor, code) in PROGRAMS {
        let (service, inner) = CALLS[4];
        let event_spec =
            EventSpec::new(actor, Action::Call(service), handled(builder, inner, code, vectored));
        builder.no(format!("a handler of {code} creates a file"), event_spec);
    }
    let plain = EventSpec::new(AGENT, Action::Call(CALLS[4].0), builder.stack(CALLS[4].1, "agent"));
    builder.missing(&plain);
}

/// Index of the dispatcher in the stack of a callback.
const DISPATCHER: usize = 4;

fn kernel_callbacks(builder: &mut CaseBuilder<'_>) {
    builder.about("CS26", BOTH);
    let usual = EventSpec::open(TOOL, callback(builder));
    let called = |frame| usual.clone().replace(DISPATCHER, frame);
    for number in 0..2 {
        builder.yes("the kernel called shellcode", called(private(number)));
    }
    for name in ["tool!work", "user32!ClientCallback", "kernelbase!CtrlRoutine"] {
        let frame = builder.world.callers("", &[&format!("{name}>*")])[0];
        builder.yes(format!("the kernel called {name}"), called(frame));
    }
    builder.yes("without the frame of the dispatcher", {
        let mut event_spec = usual.clone();
        event_spec.stack.remove(DISPATCHER);
        event_spec
    });
    builder.yes("the kernel called another function of ntdll.dll", {
        called(builder.world.callers("", &["ntdll!RtlpPlain"])[0])
    });
    builder.no("the kernel called the dispatcher", usual.clone());
    builder.all_open(No);
    builder.without("ntdll", |builder| {
        builder.undetermined("the functions of ntdll.dll have no names", usual.clone());
    });
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
}
