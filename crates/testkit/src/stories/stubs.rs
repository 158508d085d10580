//! Stubs of system calls: another service than the stub's (CS03), no stub at all (CS04), a stub that nobody called (CS05).

use crate::Answer::No;
use crate::book::{AGENT, BOTH, Book, CALLS, ETL, OPEN, PROGRAMS, ROWS, TOOL};
use crate::images::STRAY_RETURN;
use crate::scene::{Scene, Spot, What};

pub(super) fn tell(book: &mut Book<'_>) {
    mismatches(book);
    unknown_sites(book);
    callees(book);
}

/// The stack of a program whose own stub jumps to a `syscall` that returns to `top`.
fn jumped(book: &Book<'_>, top: Spot, code: &str, own: &str) -> Vec<Spot> {
    let mut stack = vec![top];
    stack.extend(book.stack_from(OPEN, code, &[own, "main", "entry"]).split_off(2));
    stack
}

const VIA_OWN: &str = "via_own>own_stub";

fn mismatches(book: &mut Book<'_>) {
    book.about("CS03", BOTH);
    // A process is opened, but the system call returns to a stub that asks for something else.
    let stubs =
        ["NtClose", "NtDelayExecution", "NtCreateFile", "NtQuerySystemInformation", "NtWaitForSingleObject"];
    for (stub, (who, code)) in stubs.into_iter().zip(PROGRAMS) {
        let top = book.world.stub_return(&format!("ntdll!{stub}"));
        book.yes(
            format!("{code} opens a process through {stub}"),
            Scene::open(who, jumped(book, top, code, VIA_OWN)),
        );
    }
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    let shifted = book.world.stub_return("ntdll!NtMapViewOfSection");
    let wrong = Scene::open(AGENT, jumped(book, shifted, "agent", VIA_OWN));
    book.missing(&honest);
    book.without("ntdll", |book| {
        book.undetermined("the file of ntdll.dll is not at hand", honest.clone());
        book.undetermined("the file of ntdll.dll is not at hand, and the stub is another", wrong.clone());
    });
    book.about("CS03", ROWS);
    for stub in ["NtDuplicateObject", "NtGetNextProcess"] {
        let top = book.world.stub_return(&format!("ntdll!{stub}"));
        let stack = jumped(book, top, "agent", VIA_OWN);
        book.no(format!("{stub} opens processes too"), Scene::open(AGENT, stack));
    }
    book.about("CS03", ETL);
    for ((service, _), (other, _)) in CALLS.into_iter().zip(CALLS.into_iter().cycle().skip(1)) {
        let top = book.world.stub_return(&format!("ntdll!{other}"));
        let stack = jumped(book, top, "agent", VIA_OWN);
        book.yes(format!("{service} through {other}"), Scene::new(AGENT, What::Call(service), stack));
    }
    book.all_call(No);
    book.without("ntoskrnl", |book| {
        let scene = wrong.clone().what(What::Call("NtOpenProcess"));
        book.undetermined("which service ran is not known, as the kernel has no names", scene);
    });
}

fn unknown_sites(book: &mut Book<'_>) {
    book.about("CS04", BOTH);
    let strays = ["StrayOne", "StrayTwo", "StrayThree", "StrayFour", "StrayFive"];
    for (stray, (who, code)) in strays.into_iter().zip(PROGRAMS) {
        let top = book.world.at(&format!("ntdll!{stray}"), STRAY_RETURN);
        book.yes(
            format!("{code} uses a syscall of {stray}"),
            Scene::open(who, jumped(book, top, code, VIA_OWN)),
        );
    }
    book.all_open(No);
    let honest = book.open(PROGRAMS[0]);
    // The stub's other way into the kernel, for machines that want it.
    let int2e = book.world.at("ntdll!NtOpenProcess", 0x17);
    book.no("through the stub's int 2e", honest.clone().replace(0, int2e));
    book.missing(&honest);
    let stray = book.world.at("ntdll!StrayOne", STRAY_RETURN);
    let wrong = Scene::open(AGENT, jumped(book, stray, "agent", VIA_OWN));
    book.without("ntdll", |book| {
        book.undetermined("the file of ntdll.dll is not at hand", honest.clone());
        book.undetermined("the file of ntdll.dll is not at hand, and there is no stub", wrong);
    });
    book.about("CS04", ETL);
    book.all_call(No);
}

fn callees(book: &mut Book<'_>) {
    book.about("CS05", BOTH);
    let stub = book.world.stub_return("ntdll!NtOpenProcess");
    for (who, code) in PROGRAMS {
        book.yes(
            format!("{code} jumps to the stub's end"),
            Scene::open(who, jumped(book, stub, code, VIA_OWN)),
        );
    }
    for own in ["via_loaded>own_stub_loaded", "via_pushed>own_stub_pushed"] {
        book.yes(format!("{own} leads to it"), Scene::open(TOOL, jumped(book, stub, "tool", own)));
    }
    book.all_open(No);
    let native = &["ntdll!NtOpenProcess"];
    book.no("a call through the import table", Scene::open(TOOL, book.stack(native, "tool")));
    for (who, code) in [PROGRAMS[0], PROGRAMS[1]] {
        let stack = book.stack_from(native, code, &["via_thunk>thunk_open", "main", "entry"]);
        book.no("a call of an import thunk", Scene::open(who, stack));
    }
    let honest = book.open(PROGRAMS[0]);
    book.missing(&honest);
    book.without("agent", |book| {
        let scene = Scene::open(AGENT, jumped(book, stub, "agent", VIA_OWN));
        book.undetermined("the file of the program is not at hand", scene);
    });
    book.about("CS05", ETL);
    for (service, _) in CALLS {
        let top = book.world.stub_return(&format!("ntdll!{service}"));
        let stack = jumped(book, top, "agent", VIA_OWN);
        book.yes(format!("{service} by a stub of its own"), Scene::new(AGENT, What::Call(service), stack));
    }
    book.all_call(No);
}
