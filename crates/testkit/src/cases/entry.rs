//! Entry into the kernel: direct system calls (CS01, CS02), direct use of the native API (CS06), a
//! second `ntdll.dll` (CS10), Heaven's Gate (CS20).

use crate::Answer::No;
use crate::case_builder::{
    AGENT, BOTH, CALLS, CaseBuilder, ETL, MANAGED, OPEN, PROGRAMS, ROWS, TOOL, private,
};
use crate::event_spec::{Action, Actor, EventSpec, FrameSpec};
use crate::images::OWN_SYSCALL_RETURN;

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    from_private_memory(builder);
    from_images(builder);
    native_api(builder);
    second_ntdll(builder);
    gates(builder);
}

fn from_private_memory(builder: &mut CaseBuilder<'_>) {
    builder.about("CS01", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    // Unbacked code replaces the stub and its caller.
    let direct = |event_spec: &EventSpec, number| {
        event_spec.clone().replace(0, private(number)).replace(1, private(number))
    };
    builder.yes("shellcode alone", EventSpec::open(TOOL, vec![private(0)]));
    builder.yes("shellcode as a thread", {
        let mut stack = vec![private(1)];
        stack.extend(builder.root(""));
        EventSpec::open(TOOL, stack)
    });
    for ((_, code), number) in PROGRAMS.into_iter().zip(2..) {
        let event_spec = builder.open((PROGRAMS[number as usize - 2].0, code));
        builder.yes(format!("shellcode below {code}"), direct(&event_spec, number));
    }
    builder.yes("shellcode in a process with a runtime", direct(&builder.open((MANAGED, "tool")), 8));
    builder.yes("shellcode between libraries", benign.clone().replace(0, FrameSpec::At(0x7ff8_4400_0123)));
    builder.all_open(No);
    builder.no("a 32-bit program", EventSpec::open(Actor::Bits32, builder.stack_32_bit()));
    builder.missing(&benign);
    builder.undetermined("shellcode without a stack", direct(&benign, 9).without_user());

    builder.about("CS01", ETL);
    for ((service, _), number) in CALLS.into_iter().zip(20..) {
        builder
            .yes(format!("{service} from shellcode"), direct(&benign, number).action(Action::Call(service)));
    }
    builder.no("shellcode is interrupted", direct(&benign, 10).action(Action::Sample));
    builder.undetermined("the entry into the kernel is not known", direct(&benign, 11).action(Action::Wait));
}

/// The stack of a program with a private `syscall` instruction.
fn direct(builder: &CaseBuilder<'_>, code: &str) -> Vec<FrameSpec> {
    let mut stack = vec![builder.world.at(&format!("{code}!own_syscall"), OWN_SYSCALL_RETURN)];
    stack.extend(builder.stack_from(OPEN, code, &["direct>own_syscall", "main", "entry"]).split_off(2));
    stack
}

fn from_images(builder: &mut CaseBuilder<'_>) {
    builder.about("CS02", BOTH);
    for (actor, code) in PROGRAMS {
        builder.yes(format!("{code} has its own syscall"), EventSpec::open(actor, direct(builder, code)));
    }
    builder.all_open(No);
    // The stack walk began at a frame that did not enter the kernel.
    let benign = builder.open(PROGRAMS[0]);
    builder.no("the innermost frame is not preceded by a syscall", {
        let mut event_spec = benign.clone();
        event_spec.stack.drain(..2);
        event_spec
    });
    builder.no("a 32-bit program", EventSpec::open(Actor::Bits32, builder.stack_32_bit()));
    builder.missing(&benign);
    builder.without("agent", |builder| {
        builder.yes(
            "the file of the program is not available",
            EventSpec::open(AGENT, direct(builder, "agent")),
        );
    });
    builder.about("CS02", ETL);
    for ((service, _), (actor, code)) in CALLS.into_iter().zip(PROGRAMS) {
        builder.yes(
            format!("{service} by {code} itself"),
            EventSpec::new(actor, Action::Call(service), direct(builder, code)),
        );
    }
    builder.all_call(No);
    builder.no("the program is interrupted", EventSpec::new(AGENT, Action::Sample, direct(builder, "agent")));
    builder.undetermined(
        "the entry into the kernel is not known",
        EventSpec::new(AGENT, Action::Wait, direct(builder, "agent")),
    );
}

const NATIVE: &[&str] = &["ntdll!NtOpenProcess"];

fn native_api(builder: &mut CaseBuilder<'_>) {
    builder.about("CS06", BOTH);
    for (actor, code) in PROGRAMS {
        let native = EventSpec::open(actor, builder.stack(NATIVE, code));
        if code == "svclib" {
            builder.undetermined("an unknown library in System32", native.clone());
            builder.knowing_windows(|builder| {
                builder.yes("a library in System32 that is not part of Windows", native);
            });
            continue;
        }
        builder.yes(format!("{code} calls the native API"), native);
    }
    builder.yes("through an import thunk", {
        EventSpec::open(TOOL, builder.stack_from(NATIVE, "tool", &["via_thunk>thunk_open", "main", "entry"]))
    });
    builder.yes("by a handle to lsass.exe", {
        EventSpec::open(TOOL, builder.stack(NATIVE, "tool")).action(Action::Open("lsass", Some(0x1410)))
    });
    builder.knowing_windows(|builder| {
        let inbox = Actor::Program("inbox", &[]);
        builder.no("a known part of Windows", EventSpec::open(inbox, builder.stack(NATIVE, "inbox")));
    });
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
    builder.about("CS06", ROWS);
    builder.yes("an unsigned program in System32", {
        EventSpec::open(Actor::Program("planted", &[]), builder.stack(NATIVE, "planted"))
    });
    builder.about("CS06", ETL);
    for service in ["NtClose", "NtDelayExecution"] {
        let stub = format!("ntdll!{service}");
        let stack = builder.stack(&[&stub], "agent");
        builder
            .yes(format!("{service} called directly"), EventSpec::new(AGENT, Action::Call(service), stack));
    }
    builder.all_call(No);
}

fn second_ntdll(builder: &mut CaseBuilder<'_>) {
    builder.about("CS10", BOTH);
    for copy in ["copy", "copy2"] {
        let stub = format!("{copy}!NtOpenProcess");
        for (actor, code) in [PROGRAMS[0], PROGRAMS[1]] {
            let actor = match copy {
                "copy" => Actor::Program(actor.program(), &["copy"]),
                _ => Actor::Program(actor.program(), &["copy2"]),
            };
            let stack = builder.stack_from(&[&stub], code, &["work>*", "main", "entry"]);
            builder.yes(format!("{code} calls a stub of {copy}"), EventSpec::open(actor, stack));
        }
    }
    builder.yes("a copy of ntdll.dll is further out in the stack", {
        let stack = builder.stack(OPEN, "agent");
        let inner = builder.world.at("copy!RtlpPlain", 9);
        EventSpec::open(Actor::Program("agent", &["copy"]), stack).insert(2, inner)
    });
    builder.all_open(No);
    builder
        .no("a 32-bit program legitimately has two", EventSpec::open(Actor::Bits32, builder.stack_32_bit()));
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
    builder.undetermined("the stack has the greatest possible length", benign.clone().grow(3));
    builder.about("CS10", ETL);
    let load = builder.stack(LOAD, "agent");
    builder.yes("a copy of ntdll.dll is mapped", EventSpec::new(AGENT, Action::Load("copy"), load.clone()));
    builder.no("a library is mapped", EventSpec::new(AGENT, Action::Load("plugin"), load));
}

/// The functions of the loader that map an image, innermost first.
pub(super) const LOAD: &[&str] =
    &["ntdll!NtMapViewOfSection", "ntdll!LdrpMapView", "ntdll!LdrLoadDll", "kernelbase!LoadLibraryExW"];

fn gates(builder: &mut CaseBuilder<'_>) {
    builder.about("CS20", BOTH);
    let stack_32_bit = builder.stack_32_bit();
    // A caller outside of the WoW64 layer calls a 64-bit stub.
    let gate = |caller: &[FrameSpec]| {
        let mut stack = vec![stack_32_bit[0]];
        stack.extend(caller);
        // The thread entered 32-bit code through the WoW64 layer, so its outer frames remain.
        stack.extend(&stack_32_bit[2..]);
        EventSpec::open(Actor::Bits32, stack)
    };
    let program = builder.world.at("host32!gate", 9);
    builder.yes("the program calls a 64-bit stub", gate(&[program]));
    for number in 0..2 {
        let address = 0x0123_0040 + number * 0x1_0000;
        builder.yes("shellcode calls a 64-bit stub", gate(&[FrameSpec::At(address)]));
    }
    builder.yes("shellcode, called by the program", gate(&[FrameSpec::At(0x0456_0040), program]));
    builder.yes(
        "through two frames of ntdll.dll",
        gate(&[builder.world.at("ntdll!RtlpPlain", 9), FrameSpec::At(0x0789_0040)]),
    );
    let (stub, inner) = (builder.world.stub_return("ntdll!NtDelayExecution"), &stack_32_bit[1..]);
    builder.no("the program opens a process", EventSpec::open(Actor::Bits32, stack_32_bit.clone()));
    builder
        .no("by another function", EventSpec::open(Actor::Bits32, stack_32_bit.clone()).replace(8, program));
    builder.no(
        "32-bit shellcode",
        EventSpec::open(Actor::Bits32, stack_32_bit.clone()).replace(9, FrameSpec::At32(0x0321_0040)),
    );
    builder.no("the layer enters the kernel itself", {
        let mut stack = vec![builder.world.at("wow64cpu!ServiceNoTurbo", 13)];
        stack.extend(&stack_32_bit[3..]);
        EventSpec::open(Actor::Bits32, stack)
    });
    builder.no("without the 32-bit root", EventSpec::open(Actor::Bits32, stack_32_bit.clone()).cut(1));
    builder.undetermined(
        "the user stack is missing",
        EventSpec::open(Actor::Bits32, stack_32_bit.clone()).without_user(),
    );
    builder.about("CS20", ETL);
    builder.yes("a wait through a gate", {
        let event_spec = gate(&[FrameSpec::At(0x0a00_0040)]).replace(0, stub);
        event_spec.action(Action::Call("NtDelayExecution"))
    });
    builder.no("a normal wait", {
        let mut stack = vec![stub];
        stack.extend(inner);
        EventSpec::new(Actor::Bits32, Action::Call("NtDelayExecution"), stack)
    });
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
    builder.about("CS20", ROWS);
    builder.no("64-bit libraries that 32-bit processes do not have", benign);
    builder.undetermined("the bitness of the process is not known", {
        EventSpec::open(AGENT, vec![stack_32_bit[0], private(3)])
    });
}
