//! Dispatchers of callbacks: calls for which nobody seems to ask (CS17), waits (CS21), handlers of exceptions (CS22).

use super::entry::LOAD;
use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, CALLS, ETL, OPEN, PROGRAMS, ROWS};
use crate::scene::{Scene, Spot, What};

pub(super) fn tell(book: &mut Book<'_>) {
    proxies(book);
    waits(book);
    handlers(book);
}

/// A thread of the pool: the way into the kernel, what the pool has called, and its root.
fn pooled(book: &Book<'_>, inner: &[&str], dispatchers: &[&str]) -> Vec<Spot> {
    let mut stack = book.world.stack(&[inner, dispatchers].concat());
    stack.extend(book.root(""));
    stack
}

fn proxies(book: &mut Book<'_>) {
    book.about("CS17", BOTH);
    let pool = ["ntdll!TppWorkpExecuteCallback", "ntdll!TppWorkerThread"];
    for dispatchers in [
        &pool[..],
        &["ntdll!TppTimerpExecuteCallback", "ntdll!TppWorkerThread"],
        &["ntdll!RtlpTpWorkCallback", "ntdll!RtlpPlain"],
        &["ntdll!RtlpTpTimerCallback", "ntdll!RtlpPlain"],
    ] {
        let scene = Scene::open(AGENT, pooled(book, OPEN, dispatchers));
        book.yes(format!("{} calls the Win32 base", dispatchers[0]), scene);
    }
    book.yes(
        "another function of ntdll.dll does",
        Scene::open(AGENT, pooled(book, OPEN, &["ntdll!RtlpPlain"])),
    );
    book.all_open(No);
    let user = book.world.callers("kernelbase!OpenProcess", &["agent!callback"]);
    let honest = Scene::open(AGENT, pooled(book, OPEN, &pool)).insert(2, user[0]);
    book.no("a callback of the program", honest.clone());
    book.missing(&honest);
    let proxy = Scene::open(AGENT, pooled(book, OPEN, &pool));
    book.undetermined("the stack is as long as stacks can be", proxy.clone().grow(2));
    book.without("ntdll", |book| {
        // Without the root, the modules alone do not tell either.
        book.undetermined("the functions of ntdll.dll have no names", proxy.clone().cut(2));
    });
    book.about("CS17", ETL);
    book.yes("the pool loads a library", {
        Scene::new(AGENT, What::Load("plugin"), pooled(book, LOAD, &pool))
    });
    book.yes("the pool changes the protection of memory", {
        Scene::new(AGENT, What::Call(CALLS[1].0), pooled(book, CALLS[1].1, &pool))
    });
    book.no("the pool creates a file", {
        Scene::new(AGENT, What::Call(CALLS[4].0), pooled(book, CALLS[4].1, &pool))
    });
}

fn waits(book: &mut Book<'_>) {
    let waiting = |book: &Book<'_>, inner: &[&str], dispatchers: &[&str]| {
        Scene::new(AGENT, What::Wait, pooled(book, inner, dispatchers))
    };
    let sleep: &[&str] = &["ntdll!NtDelayExecution", "kernelbase!SleepEx"];
    let object: &[&str] = &["ntdll!NtWaitForSingleObject", "kernelbase!WaitForSingleObjectEx"];
    book.about("CS21", ETL);
    for (inner, dispatchers) in [
        (sleep, &["ntdll!KiUserApcDispatcher"][..]),
        (object, &["ntdll!KiUserApcDispatcher"]),
        (object, &["ntdll!RtlDispatchAPC", "ntdll!KiUserApcDispatcher"]),
        (object, &["ntdll!TppTimerpExecuteCallback", "ntdll!TppWorkerThread"]),
        (sleep, &["ntdll!RtlpTpTimerCallback", "ntdll!RtlpPlain"]),
    ] {
        book.yes(format!("{} in {}", inner[0], dispatchers[0]), waiting(book, inner, dispatchers));
    }
    for ((who, code), inner) in PROGRAMS.into_iter().zip([sleep, object, sleep, object, sleep]) {
        book.no(format!("{code} waits"), Scene::new(who, What::Wait, book.stack(inner, code)));
    }
    book.no("the pool waits for work", {
        let inner = ["ntdll!NtWaitForWorkViaWorkerFactory", "ntdll!TppWorkerThread"];
        Scene::new(AGENT, What::Wait, pooled(book, &inner, &[]))
    });
    let honest = Scene::new(AGENT, What::Wait, book.stack(sleep, "agent"));
    book.missing(&honest);
    let masked = waiting(book, sleep, &["ntdll!KiUserApcDispatcher"]);
    book.undetermined("the stack is as long as stacks can be", masked.clone().grow(1));
    book.without("ntdll", |book| {
        book.undetermined("the functions of ntdll.dll have no names", masked);
    });
    // Sysmon tells of no waits.
    book.about("CS21", ROWS);
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
}

fn handlers(book: &mut Book<'_>) {
    let vectored: &[&str] =
        &["ntdll!RtlpCallVectoredHandlers", "ntdll!RtlDispatchException", "ntdll!KiUserExceptionDispatcher"];
    let handled = |book: &Book<'_>, inner: &[&str], code: &str, dispatchers: &[&str]| {
        let mut stack = book.stack(inner, code);
        let mut handlers = book.stack_from(inner, code, &["callback"]);
        handlers.truncate(inner.len() + 1);
        handlers.extend(book.world.callers(&format!("{code}!callback"), dispatchers));
        handlers.extend(stack.split_off(inner.len()));
        handlers
    };
    book.about("CS22", BOTH);
    for (who, code) in PROGRAMS {
        book.yes(format!("a handler of {code} opens a process"), {
            Scene::open(who, handled(book, OPEN, code, vectored))
        });
    }
    book.yes("a frame handler does", Scene::open(AGENT, handled(book, OPEN, "agent", &vectored[1..])));
    let honest = book.open(PROGRAMS[0]);
    book.undetermined("breakpoints in registers leave no frames", honest.clone());
    book.undetermined("the user part of the stack is missing", honest.clone().without_user());
    book.without("ntdll", |book| {
        let scene = Scene::open(AGENT, handled(book, OPEN, "agent", vectored));
        book.undetermined("the functions of ntdll.dll have no names", scene);
    });
    book.about("CS22", ETL);
    for (who, code) in PROGRAMS {
        let (service, inner) = CALLS[4];
        let scene = Scene::new(who, What::Call(service), handled(book, inner, code, vectored));
        book.no(format!("a handler of {code} creates a file"), scene);
    }
    let plain = Scene::new(AGENT, What::Call(CALLS[4].0), book.stack(CALLS[4].1, "agent"));
    book.missing(&plain);
}
