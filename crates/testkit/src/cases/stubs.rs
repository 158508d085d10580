//! Indirect system calls: a service that does not match the stub (CS03), a system call outside of
//! stubs (CS04), a stub that was not called (CS05).

use crate::Answer::No;
use crate::case_builder::{AGENT, BOTH, CALLS, CaseBuilder, ETL, OPEN, PROGRAMS, ROWS, TOOL};
use crate::event_spec::{Action, EventSpec, FrameSpec};
use crate::images::STRAY_RETURN;

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    mismatches(builder);
    unknown_sites(builder);
    callees(builder);
}

/// The stack of a program whose own stub jumps to a `syscall` that returns to `top`.
fn jumped(builder: &CaseBuilder<'_>, top: FrameSpec, code: &str, own: &str) -> Vec<FrameSpec> {
    let mut stack = vec![top];
    stack.extend(builder.stack_from(OPEN, code, &[own, "main", "entry"]).split_off(2));
    stack
}

const VIA_OWN: &str = "via_own>own_stub";

fn mismatches(builder: &mut CaseBuilder<'_>) {
    builder.about("CS03", BOTH);
    // A process is opened, but the system call returns to the stub of another service.
    let stubs =
        ["NtClose", "NtDelayExecution", "NtCreateFile", "NtQuerySystemInformation", "NtWaitForSingleObject"];
    for (stub, (actor, code)) in stubs.into_iter().zip(PROGRAMS) {
        let top = builder.world.stub_return(&format!("ntdll!{stub}"));
        builder.yes(
            format!("{code} opens a process through {stub}"),
            EventSpec::open(actor, jumped(builder, top, code, VIA_OWN)),
        );
    }
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    let shifted = builder.world.stub_return("ntdll!NtMapViewOfSection");
    let wrong = EventSpec::open(AGENT, jumped(builder, shifted, "agent", VIA_OWN));
    builder.missing(&benign);
    builder.without("ntdll", |builder| {
        builder.undetermined("the file of ntdll.dll is not available", benign.clone());
        builder
            .undetermined("the file of ntdll.dll is not available, and the stub is another", wrong.clone());
    });
    builder.about("CS03", ROWS);
    for stub in ["NtDuplicateObject", "NtGetNextProcess"] {
        let top = builder.world.stub_return(&format!("ntdll!{stub}"));
        let stack = jumped(builder, top, "agent", VIA_OWN);
        builder.no(format!("{stub} opens processes too"), EventSpec::open(AGENT, stack));
    }
    builder.about("CS03", ETL);
    for ((service, _), (other, _)) in CALLS.into_iter().zip(CALLS.into_iter().cycle().skip(1)) {
        let top = builder.world.stub_return(&format!("ntdll!{other}"));
        let stack = jumped(builder, top, "agent", VIA_OWN);
        builder
            .yes(format!("{service} through {other}"), EventSpec::new(AGENT, Action::Call(service), stack));
    }
    builder.all_call(No);
    builder.without("ntoskrnl", |builder| {
        let event_spec = wrong.clone().action(Action::Call("NtOpenProcess"));
        builder
            .undetermined("the service is not known, because the kernel has no function names", event_spec);
    });
}

fn unknown_sites(builder: &mut CaseBuilder<'_>) {
    builder.about("CS04", BOTH);
    let strays = ["StrayOne", "StrayTwo", "StrayThree", "StrayFour", "StrayFive"];
    for (stray, (actor, code)) in strays.into_iter().zip(PROGRAMS) {
        let top = builder.world.at(&format!("ntdll!{stray}"), STRAY_RETURN);
        builder.yes(
            format!("{code} uses a syscall of {stray}"),
            EventSpec::open(actor, jumped(builder, top, code, VIA_OWN)),
        );
    }
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    // The other path of the stub into the kernel, which some machines use.
    let int2e = builder.world.at("ntdll!NtOpenProcess", 0x17);
    builder.no("through the stub's int 2e", benign.clone().replace(0, int2e));
    builder.missing(&benign);
    let stray = builder.world.at("ntdll!StrayOne", STRAY_RETURN);
    let wrong = EventSpec::open(AGENT, jumped(builder, stray, "agent", VIA_OWN));
    builder.without("ntdll", |builder| {
        builder.undetermined("the file of ntdll.dll is not available", benign.clone());
        builder.undetermined("the file of ntdll.dll is not available, and there is no stub", wrong);
    });
    builder.about("CS04", ETL);
    builder.all_call(No);
}

fn callees(builder: &mut CaseBuilder<'_>) {
    builder.about("CS05", BOTH);
    let stub = builder.world.stub_return("ntdll!NtOpenProcess");
    for (actor, code) in PROGRAMS {
        builder.yes(
            format!("{code} jumps to the stub's end"),
            EventSpec::open(actor, jumped(builder, stub, code, VIA_OWN)),
        );
    }
    for own in ["via_loaded>own_stub_loaded", "via_pushed>own_stub_pushed"] {
        builder.yes(
            format!("{own} jumps to the stub's end"),
            EventSpec::open(TOOL, jumped(builder, stub, "tool", own)),
        );
    }
    builder.all_open(No);
    let native = &["ntdll!NtOpenProcess"];
    builder.no("a call through the import table", EventSpec::open(TOOL, builder.stack(native, "tool")));
    for (actor, code) in [PROGRAMS[0], PROGRAMS[1]] {
        let stack = builder.stack_from(native, code, &["via_thunk>thunk_open", "main", "entry"]);
        builder.no("a call of an import thunk", EventSpec::open(actor, stack));
    }
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
    builder.without("agent", |builder| {
        let event_spec = EventSpec::open(AGENT, jumped(builder, stub, "agent", VIA_OWN));
        builder.undetermined("the file of the program is not available", event_spec);
    });
    builder.about("CS05", ETL);
    for (service, _) in CALLS {
        let top = builder.world.stub_return(&format!("ntdll!{service}"));
        let stack = jumped(builder, top, "agent", VIA_OWN);
        builder
            .yes(format!("{service} by a private stub"), EventSpec::new(AGENT, Action::Call(service), stack));
    }
    builder.all_call(No);
}
