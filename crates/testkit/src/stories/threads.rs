//! Where threads start (CS19), unbacked kernel code (CS23), handles to the process that holds credentials (CS24).

use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, CALLS, ETL, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::images::OWN_SYSCALL_RETURN;
use crate::scene::{ALL_ACCESS, QUERY, Scene, Spot, What};

pub(super) fn tell(book: &mut Book<'_>) {
    starts(book);
    drivers(book);
    credentials(book);
}

fn starts(book: &mut Book<'_>) {
    let stack = book.stack(&["ntdll!NtCreateThreadEx", "kernelbase!CreateRemoteThreadEx"], "agent");
    let starting = |at, target, function| Scene::new(AGENT, What::Start(at, target, function), stack.clone());
    let remote = |at, function| starting(at, Some("tool"), function);
    let named = |book: &Book<'_>, name: &'static str| {
        let function = name.split_once('!').map(|(_, function)| function);
        remote(book.world.at(name, 0), function)
    };
    book.about("CS19", BOTH);
    for number in 0..4 {
        book.yes("in code of another process that no file backs", remote(private(number), None));
    }
    for name in ["kernel32!LoadLibraryA", "kernel32!LoadLibraryW", "kernelbase!LoadLibraryExW"] {
        book.yes(format!("in {name} of another process"), named(book, name));
    }
    book.no("where the console starts threads of others", named(book, "kernelbase!CtrlRoutine"));
    for name in ["tool!entry", "tool!main", "tool!work", "tool!callback"] {
        book.no(format!("in {name} of another process"), remote(book.world.at(name, 0), None));
    }
    book.no("in the kernel", remote(Spot::At(0xffff_f801_4400_2460), None));
    book.without("kernel32", |book| {
        let at = book.world.at("kernel32!LoadLibraryA", 0);
        book.undetermined("what is there has no name", remote(at, None));
    });
    book.about("CS19", ETL);
    book.yes("in its own private memory", starting(private(9), None, None));
    book.no("in its own program", starting(book.world.at("agent!work", 0), None, None));
    book.missing_modules(&starting(private(8), None, None));
}

fn drivers(book: &mut Book<'_>) {
    let stray = |number: u64| Spot::At(0xffff_f801_7700_0000 + number * 0x1_0000);
    let kernel = |book: &Book<'_>, more: &[Spot]| {
        let usual = ["ntoskrnl!NtOpenProcess", "ntoskrnl!KiSystemServiceCopyEnd"];
        let mut kernel = book.world.callers("", &["ntoskrnl!EtwTraceStack"]);
        kernel.extend(more);
        kernel.extend(book.world.callers("", &usual));
        kernel
    };
    book.about("CS23", ETL);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let scene = book.open(PROGRAMS[number as usize]).kernel(kernel(book, &[stray(number)]));
        book.yes(format!("below a call of {code}"), scene);
    }
    book.all_open(No);
    let stray_values = [stray(8), Spot::At(1), Spot::At(0x1_0001_0003)];
    book.undetermined(
        "in a walk that went wrong",
        book.open(PROGRAMS[0]).kernel(kernel(book, &stray_values)),
    );
    let several = [stray(9), Spot::At(0xffff_fa83_1234_5678)];
    book.undetermined(
        "with further frames in no driver",
        book.open(PROGRAMS[0]).kernel(kernel(book, &several)),
    );
    let mut hypercall = vec![Spot::At(0xffff_f801_7700_0003)];
    hypercall.extend(kernel(book, &[]));
    book.undetermined("where the hypervisor is called", book.open(PROGRAMS[0]).kernel(hypercall));
    let filter = book.world.callers("", &["driver!Filter", "driver!Dispatch"]);
    let honest = book.open(PROGRAMS[0]).kernel(kernel(book, &filter));
    book.no("through a driver", honest.clone());
    // Stacks inside of events are there or not; those beside them come in two parts.
    let halves = honest.clone().what(What::Call("NtOpenProcess")).without_kernel();
    book.undetermined("the kernel part of the stack is missing", halves);
    book.missing_modules(&honest.clone().kernel(kernel(book, &[stray(6)])));
    book.about("CS23", ROWS);
    book.undetermined("the kernel's part is not told", honest.clone());
    book.undetermined("kernel frames in the middle, of which nothing is known", honest.insert(3, stray(7)));
}

fn credentials(book: &mut Book<'_>) {
    book.about("CS24", BOTH);
    let lsass = What::Open("lsass", Some(ALL_ACCESS));
    let honest = Scene::open(TOOL, book.stack(OPEN, "tool")).what(lsass);
    book.yes("by a program where programs do not lie", book.open(PROGRAMS[0]).what(lsass));
    book.yes("by a library where libraries do not lie", book.open(PROGRAMS[4]).what(lsass));
    book.yes("by shellcode", honest.clone().insert(2, private(1)));
    book.yes("by a system call of its own", {
        let top = book.world.at("tool!own_syscall", OWN_SYSCALL_RETURN);
        let mut stack = vec![top];
        stack.extend(book.stack_from(OPEN, "tool", &["direct>own_syscall", "main", "entry"]).split_off(2));
        Scene::open(TOOL, stack).what(lsass)
    });
    book.yes("to read its memory only", book.open(PROGRAMS[2]).what(What::Open("lsass", Some(0x1010))));
    book.no("by a program that is installed", honest.clone());
    book.no("by a library of Windows", book.open(PROGRAMS[3]).what(lsass));
    book.no("only to ask for its state", book.open(PROGRAMS[0]).what(What::Open("lsass", Some(QUERY))));
    book.no("of another process", book.open(PROGRAMS[0]).what(What::Open("tool", Some(ALL_ACCESS))));
    book.no("of the subsystem", book.open(PROGRAMS[0]).what(What::Open("csrss", Some(ALL_ACCESS))));
    book.missing(&honest);
    book.about("CS24", ROWS);
    book.undetermined("the rights are not told", book.open(PROGRAMS[0]).what(What::Open("lsass", None)));
    book.about("CS24", ETL);
    book.undetermined("whom the call opens is not told", {
        Scene::new(AGENT, What::Call(CALLS[0].0), book.stack(OPEN, "agent"))
    });
}
