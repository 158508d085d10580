//! Unbacked code: as the caller of the native layer (CS07), elsewhere in the stack (CS08), and in
//! executable memory outside of JIT compilers (CS09).

use crate::Answer::No;
use crate::case_builder::{
    AGENT, BOTH, CALLS, CaseBuilder, ETL, HOOKED, MANAGED, OPEN, PROGRAMS, ROWS, TOOL, allocation, private,
};
use crate::event_spec::{Action, EventSpec, FrameSpec, Memory};

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    callers(builder);
    elsewhere(builder);
    regions(builder);
}

/// Address of JIT-compiled code.
const JIT: u64 = 0x7ff8_6123_0000;

/// A callback from the kernel to a window procedure, as Sysmon shows it: with kernel frames between
/// the user frames.
pub(super) fn callback(builder: &CaseBuilder<'_>) -> Vec<FrameSpec> {
    let mut stack = builder.stack_from(OPEN, "tool", &["callback"]);
    stack.truncate(3);
    stack.extend(
        builder.world.callers("tool!callback", &["user32!ClientCallback", "ntdll!KiUserCallbackDispatcher"]),
    );
    let kernel =
        ["ntoskrnl!KeUserModeCallback", "ntoskrnl!NtUserGetMessage", "ntoskrnl!KiSystemServiceCopyEnd"];
    stack.extend(
        builder
            .world
            .callers("", &kernel)
            .into_iter()
            .map(|frame| FrameSpec::At(builder.world.address(frame))),
    );
    stack.extend(builder.stack(&["win32u!NtUserGetMessage", "user32!GetMessageW"], "tool"));
    stack
}

/// The stack of a managed method that calls the native layer.
fn managed(builder: &CaseBuilder<'_>, inner: &[&str]) -> Vec<FrameSpec> {
    let mut stack = builder.stack(inner, "tool");
    stack.truncate(inner.len());
    stack.extend([FrameSpec::At(JIT + 0x44), FrameSpec::At(JIT + 0x1a0)]);
    stack.extend(builder.world.callers("", &["clr!CallDescrWorker", "clr!ThreadStart"]));
    stack.extend(builder.root(""));
    stack
}

fn callers(builder: &mut CaseBuilder<'_>) {
    builder.about("CS07", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let event_spec = builder.open(PROGRAMS[number as usize]).insert(2, private(number));
        builder.yes(format!("shellcode between {code} and the Win32 base"), event_spec);
    }
    builder
        .yes("shellcode calls the native API", benign.clone().replace(1, private(6)).insert(2, private(6)));
    builder.yes("a thread of shellcode", {
        let mut stack = builder.world.stack(OPEN);
        stack.push(private(7));
        stack.extend(builder.root(""));
        EventSpec::open(TOOL, stack)
    });
    builder.yes("the stack cannot be walked beyond shellcode", {
        let mut stack = builder.world.stack(OPEN);
        stack.push(private(8));
        EventSpec::open(TOOL, stack)
    });
    builder.all_open(No);
    builder.no("shellcode is further out", benign.clone().insert(3, private(9)));
    builder.no("the kernel called back", EventSpec::open(TOOL, callback(builder)));
    builder.yes_at_most("low", "the trampoline of a hook, between the stub and the Win32 base", {
        builder.open((HOOKED, "tool")).insert(1, private(10))
    });
    builder.missing(&benign);
    builder.about("CS07", ROWS);
    builder.yes_at_most("low", "managed code", EventSpec::open(MANAGED, managed(builder, OPEN)));
    builder.about("CS07", ETL);
    builder.undetermined("a value that is not an address", benign.clone().insert(2, FrameSpec::At(0)));
    builder.undetermined(
        "a value below the lowest address that can be mapped",
        benign.clone().insert(2, FrameSpec::At(0xffff)),
    );
    builder.no("managed code that the runtime reported", {
        EventSpec::open(MANAGED, managed(builder, OPEN)).memory(Memory::Jit(JIT))
    });
    for ((service, inner), number) in CALLS.into_iter().zip(11..) {
        let stack = builder.stack(inner, "agent");
        let event_spec = EventSpec::new(AGENT, Action::Call(service), stack).insert(2, private(number));
        builder.yes(format!("{service} for shellcode"), event_spec);
    }
    builder.all_call(No);
}

fn elsewhere(builder: &mut CaseBuilder<'_>) {
    builder.about("CS08", BOTH);
    let benign = builder.open(PROGRAMS[0]);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let event_spec = builder.open(PROGRAMS[number as usize]);
        let location = 3 + number as usize % 3;
        builder.yes(format!("shellcode below {code}"), event_spec.insert(location, private(number)));
    }
    builder.yes("at the end", benign.clone().cut(2).insert(5, private(6)));
    builder.all_open(No);
    builder.no("the kernel called back", EventSpec::open(TOOL, callback(builder)));
    builder.missing(&benign);
    builder.undetermined("the stack has the greatest possible length", benign.clone().grow(3));
    let below = |builder: &CaseBuilder<'_>| {
        let mut stack = managed(builder, OPEN);
        stack.insert(2, builder.world.callers("", &["tool!work"])[0]);
        EventSpec::open(MANAGED, stack)
    };
    builder.about("CS08", ROWS);
    builder.yes_at_most("low", "managed code", below(builder));
    builder.about("CS08", ETL);
    builder.no("managed code that the runtime reported", below(builder).memory(Memory::Jit(JIT)));
    builder.all_call(No);
}

fn regions(builder: &mut CaseBuilder<'_>) {
    builder.about("CS09", ETL);
    for ((_, code), number) in PROGRAMS.into_iter().zip(0..) {
        let event_spec =
            builder.open(PROGRAMS[number as usize]).insert(2 + number as usize % 3, private(number));
        builder.yes(format!("code in private memory below {code}"), event_spec.memory(allocation(number)));
    }
    builder.yes("a system call from private memory", {
        EventSpec::new(TOOL, Action::Call("NtClose"), vec![private(6)]).memory(allocation(6))
    });
    builder.no("managed code that the runtime reported", {
        EventSpec::open(MANAGED, managed(builder, OPEN)).memory(Memory::Jit(JIT))
    });
    builder.about("CS09", BOTH);
    builder.all_open(No);
    let benign = builder.open(PROGRAMS[0]);
    builder.missing(&benign);
    builder.undetermined("the kind of memory is not known", benign.insert(2, private(7)));
}
