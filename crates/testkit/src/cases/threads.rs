//! Thread start addresses (CS19), unbacked kernel code (CS23), handles to LSASS (CS24), dumps of
//! its memory (CS25), and tampering with images (CS30).

use crate::Answer::No;
use crate::case_builder::{AGENT, BOTH, CALLS, CaseBuilder, ETL, OPEN, PROGRAMS, ROWS, TOOL, private};
use crate::event_spec::{ALL_ACCESS, Action, Actor, EventSpec, FrameSpec, QUERY};
use crate::images::OWN_SYSCALL_RETURN;

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    starts(builder);
    drivers(builder);
    credentials(builder);
    dumps(builder);
    tampering(builder);
}

fn starts(builder: &mut CaseBuilder<'_>) {
    let stack = builder.stack(&["ntdll!NtCreateThreadEx", "kernelbase!CreateRemoteThreadEx"], "agent");
    let starting =
        |at, target, function| EventSpec::new(AGENT, Action::Start(at, target, function), stack.clone());
    let remote = |at, function| starting(at, Some("tool"), function);
    let named = |builder: &CaseBuilder<'_>, name: &'static str| {
        let function = name.split_once('!').map(|(_, function)| function);
        remote(builder.world.at(name, 0), function)
    };
    builder.about("CS19", BOTH);
    for number in 0..4 {
        builder.yes("in unbacked code of another process", remote(private(number), None));
    }
    for name in ["kernel32!LoadLibraryA", "kernel32!LoadLibraryW", "kernelbase!LoadLibraryExW"] {
        builder.yes(format!("in {name} of another process"), named(builder, name));
    }
    builder.no("at the start address of console control threads", named(builder, "kernelbase!CtrlRoutine"));
    for name in ["tool!entry", "tool!main", "tool!work", "tool!callback"] {
        builder.no(format!("in {name} of another process"), remote(builder.world.at(name, 0), None));
    }
    builder.no("in the kernel", remote(FrameSpec::At(0xffff_f801_4400_2460), None));
    builder.without("kernel32", |builder| {
        let at = builder.world.at("kernel32!LoadLibraryA", 0);
        builder.undetermined("the function at the start address has no name", remote(at, None));
    });
    builder.about("CS19", ETL);
    builder.yes("in its own private memory", starting(private(9), None, None));
    builder.no("in its own program", starting(builder.world.at("agent!work", 0), None, None));
    builder.missing_modules(&starting(private(8), None, None));
}

fn drivers(builder: &mut CaseBuilder<'_>) {
    let stray = |number: u64| FrameSpec::At(0xffff_f801_7700_0000 + number * 0x1_0000);
    let kernel = |builder: &CaseBuilder<'_>, more: &[FrameSpec]| {
        let usual = ["ntoskrnl!NtOpenProcess", "ntoskrnl!KiSystemServiceCopyEnd"];
        let mut kernel = builder.world.callers("", &["ntoskrnl!EtwTraceStack"]);
        kernel.extend(more);
        kernel.extend(builder.world.callers("", &usual));
        kernel
    };
    builder.about("CS23", ETL);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let event_spec = builder.open(PROGRAMS[number as usize]).kernel(kernel(builder, &[stray(number)]));
        builder.yes(format!("below a call of {code}"), event_spec);
    }
    builder.all_open(No);
    let stray_values = [stray(8), FrameSpec::At(1), FrameSpec::At(0x1_0001_0003)];
    builder.undetermined(
        "in a walk that went wrong",
        builder.open(PROGRAMS[0]).kernel(kernel(builder, &stray_values)),
    );
    let several = [stray(9), FrameSpec::At(0xffff_fa83_1234_5678)];
    builder.undetermined(
        "with further frames in no driver",
        builder.open(PROGRAMS[0]).kernel(kernel(builder, &several)),
    );
    let mut hypercall = vec![FrameSpec::At(0xffff_f801_7700_0003)];
    hypercall.extend(kernel(builder, &[]));
    builder.undetermined("in a call of the hypervisor", builder.open(PROGRAMS[0]).kernel(hypercall));
    let filter = builder.world.callers("", &["driver!Filter", "driver!Dispatch"]);
    let benign = builder.open(PROGRAMS[0]).kernel(kernel(builder, &filter));
    builder.no("through a driver", benign.clone());
    // The stack in an event is complete or missing. A StackWalk event has one part of the stack.
    let user_only = benign.clone().action(Action::Call("NtOpenProcess")).without_kernel();
    builder.undetermined("the kernel stack is missing", user_only);
    builder.missing_modules(&benign.clone().kernel(kernel(builder, &[stray(6)])));
    builder.about("CS23", ROWS);
    builder.undetermined("the kernel stack is not reported", benign.clone());
    builder.undetermined("unknown kernel frames in the middle", benign.insert(3, stray(7)));
}

fn credentials(builder: &mut CaseBuilder<'_>) {
    builder.about("CS24", BOTH);
    let lsass = Action::Open("lsass", Some(ALL_ACCESS));
    let benign = EventSpec::open(TOOL, builder.stack(OPEN, "tool")).action(lsass);
    builder.yes("by a program in an unusual folder", builder.open(PROGRAMS[0]).action(lsass));
    builder.yes("by a library in an unusual folder", builder.open(PROGRAMS[4]).action(lsass));
    builder.yes("by shellcode", benign.clone().insert(2, private(1)));
    builder.yes("by a direct system call", {
        let top = builder.world.at("tool!own_syscall", OWN_SYSCALL_RETURN);
        let mut stack = vec![top];
        stack.extend(builder.stack_from(OPEN, "tool", &["direct>own_syscall", "main", "entry"]).split_off(2));
        EventSpec::open(TOOL, stack).action(lsass)
    });
    builder.yes(
        "to read its memory only",
        builder.open(PROGRAMS[2]).action(Action::Open("lsass", Some(0x1010))),
    );
    builder.no("by a program that is installed", benign.clone());
    builder.no("by a library of Windows", builder.open(PROGRAMS[3]).action(lsass));
    builder
        .no("only to query its state", builder.open(PROGRAMS[0]).action(Action::Open("lsass", Some(QUERY))));
    builder
        .no("of another process", builder.open(PROGRAMS[0]).action(Action::Open("tool", Some(ALL_ACCESS))));
    builder.no("of the subsystem", builder.open(PROGRAMS[0]).action(Action::Open("csrss", Some(ALL_ACCESS))));
    builder.missing(&benign);
    builder.about("CS24", ROWS);
    builder.undetermined(
        "the access rights are not known",
        builder.open(PROGRAMS[0]).action(Action::Open("lsass", None)),
    );
    builder.about("CS24", ETL);
    builder.undetermined("the target of the call is not known", {
        EventSpec::new(AGENT, Action::Call(CALLS[0].0), builder.stack(OPEN, "agent"))
    });
}

fn dumps(builder: &mut CaseBuilder<'_>) {
    let lsass = |access| Action::Open("lsass", Some(access));
    let dump = |builder: &CaseBuilder<'_>, program, libraries: &'static [&'static str], access| {
        let writer = format!("{}!MiniDumpWriteDump", libraries[0]);
        let stack = builder.stack(&["ntdll!NtOpenProcess", "kernelbase!OpenProcess", &writer], program);
        EventSpec::open(Actor::Program(program, libraries), stack).action(lsass(access))
    };
    builder.about("CS25", BOTH);
    builder.yes("by a tool", dump(builder, "temp", &["dbgcore"], ALL_ACCESS));
    builder.yes("by a program that is installed", dump(builder, "tool", &["dbgcore"], ALL_ACCESS));
    builder.yes("by a program of Windows", dump(builder, "inbox", &["comsvcs"], 0x1410));
    builder.yes("through a copy of the library", dump(builder, "agent", &["dbghelp"], ALL_ACCESS));
    builder.yes("under shellcode", dump(builder, "tool", &["dbgcore"], ALL_ACCESS).replace(3, private(1)));
    builder.yes("in the crash reporter, under shellcode", {
        dump(builder, "werfault", &["dbgcore"], ALL_ACCESS).replace(3, private(2))
    });
    builder.yes_at_most("low", "by the crash reporter", dump(builder, "werfault", &["dbgcore"], ALL_ACCESS));
    builder.no("only to query its state", dump(builder, "temp", &["dbgcore"], QUERY));
    builder.no("of another process", {
        dump(builder, "temp", &["dbgcore"], ALL_ACCESS).action(Action::Open("tool", Some(ALL_ACCESS)))
    });
    let benign = EventSpec::open(TOOL, builder.stack(OPEN, "tool")).action(lsass(ALL_ACCESS));
    for program in PROGRAMS {
        let without_library = builder.open(program).action(lsass(ALL_ACCESS));
        builder.no(format!("{} does not use the library", program.1), without_library);
    }
    builder.missing(&benign);
    builder.undetermined("the stack has the greatest possible length", benign.grow(3));
    builder.about("CS25", ROWS);
    builder.undetermined("the access rights are not known", {
        dump(builder, "temp", &["dbgcore"], ALL_ACCESS).action(Action::Open("lsass", None))
    });
}

fn tampering(builder: &mut CaseBuilder<'_>) {
    let tampered = |(actor, _), kind| EventSpec::new(actor, Action::Tamper(kind), Vec::new());
    builder.about("CS30", ROWS);
    for kind in ["Image is replaced", "Image is locked for access", "-"] {
        for program in [PROGRAMS[0], PROGRAMS[2], PROGRAMS[3]] {
            builder.yes(format!("{}: {kind}", program.1), tampered(program, kind));
        }
    }
    let installed = tampered(PROGRAMS[1], "Image is replaced");
    builder.yes_at_most("medium", "of an installed program", installed);
    builder.about("CS30", BOTH);
    builder.all_open(No);
}
