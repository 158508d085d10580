//! Recorded changes of memory: written memory that became executable (CS27), protection that
//! changes back and forth (CS28), patched and replaced images (CS29). Each attack has a benign
//! counterpart: JIT compilers, packers, hooks, hot patches.

use crate::Answer::{No, Undetermined};
use crate::case_builder::{AGENT, BOTH, CaseBuilder, ETL, HOOKED, MANAGED, OPEN, PROGRAMS, TOOL, private};
use crate::code::DATA_AT;
use crate::event_spec::{
    Action, Actor, Change, ChangeKind, ChangedBy, EventSpec, FrameSpec, Memory, PAGE_EXECUTE_READ,
    PAGE_EXECUTE_READWRITE, PAGE_READONLY, PAGE_READWRITE, Step,
};

const RO: u32 = PAGE_READONLY;
const RW: u32 = PAGE_READWRITE;
const RX: u32 = PAGE_EXECUTE_READ;
const RWX: u32 = PAGE_EXECUTE_READWRITE;
const PAGE: u64 = 0x1000;

const PROTECT: &[&str] = &["ntdll!NtProtectVirtualMemory", "kernelbase!VirtualProtect"];

pub(super) fn add_cases(builder: &mut CaseBuilder<'_>) {
    made_executable(builder);
    fluctuates(builder);
    patched(builder);
    replaced(builder);
    benign_patches(builder);
}

fn change(kind: ChangeKind, at: FrameSpec) -> Change {
    Change { kind, by: ChangedBy::Actor, target: None, at, size: PAGE }
}

fn step(change: Change, stack: &[FrameSpec]) -> Step {
    Step { change, stack: stack.to_vec(), wait: 1 }
}

/// The page of [`private`] code.
fn page(number: u64) -> FrameSpec {
    let FrameSpec::At(address) = private(number) else { unreachable!("private code is in no image") };
    FrameSpec::At(address & !0xfff)
}

/// The stack of a runtime that changes the protection of memory.
fn by_runtime(builder: &CaseBuilder<'_>) -> Vec<FrameSpec> {
    let mut stack = builder.world.stack(PROTECT);
    stack.extend(builder.world.callers("", &["clr!CallDescrWorker", "clr!ThreadStart"]));
    stack.extend(builder.root(""));
    stack
}

/// The stack of a known hook that changes the protection of memory.
fn by_hook(builder: &CaseBuilder<'_>) -> Vec<FrameSpec> {
    let mut stack = builder.world.stack(PROTECT);
    stack.extend(builder.world.callers("", &["hook!OnCall"]));
    stack.extend(builder.stack(OPEN, "tool").split_off(2));
    stack
}

fn made_executable(builder: &mut CaseBuilder<'_>) {
    builder.about("CS27", ETL);
    let protect = builder.stack(PROTECT, "agent");
    let written = |number| change(ChangeKind::Protect(RW, RX), page(number));
    for (program, number) in PROGRAMS.into_iter().zip(100..) {
        let event_spec = builder.open(program).insert(2, private(number));
        let (_, code) = program;
        let by = builder.stack(PROTECT, code);
        let title = format!("{code} calls code that it wrote and made executable");
        builder.yes_at_least("medium", title, event_spec.after([step(written(number), &by)]));
    }
    let open = builder.open(PROGRAMS[0]);
    builder.yes_at_least("medium", "memory that was allocated writable and executable", {
        let allocate = change(ChangeKind::Allocate(RWX), page(106));
        open.clone().insert(3, private(106)).after([step(allocate, &protect)])
    });
    builder.yes_at_least("high", "shellcode that unpacked more shellcode", {
        let mut by = protect.clone();
        by.insert(2, private(107));
        open.clone().insert(2, private(108)).after([step(written(108), &by)])
    });
    builder.yes_at_least("high", "another process wrote it", {
        let by = ChangedBy::Other("tool");
        let allocate = Change { by, ..change(ChangeKind::Allocate(RWX), page(109)) };
        let write = Change { by, ..change(ChangeKind::Write, page(109)) };
        open.clone().insert(2, private(109)).after([allocate, write].map(|change| step(change, &protect)))
    });
    let start = |at, target| {
        let stack = builder.stack(&["ntdll!NtCreateThreadEx", "kernelbase!CreateRemoteThreadEx"], "agent");
        EventSpec::new(AGENT, Action::Start(at, target, None), stack)
    };
    let own_thread = start(page(110), None).after([step(written(110), &protect)]);
    let remote = |kind| Change { target: Some("tool"), ..change(kind, page(111)) };
    let remote_thread = start(page(111), Some("tool")).after(
        [remote(ChangeKind::Reserve), remote(ChangeKind::Write), remote(ChangeKind::Protect(RW, RX))]
            .map(|change| step(change, &protect)),
    );
    builder.yes_at_least("medium", "a thread starts there", own_thread);
    builder.yes_at_least("high", "a thread of another process starts there", remote_thread.clone());
    builder.lost("a thread of another process starts there, with a lost buffer", remote_thread);

    let jit = 0x0000_01f4_7000_0000;
    let managed = |builder: &CaseBuilder<'_>| {
        let mut stack = builder.world.stack(OPEN);
        stack.extend([FrameSpec::At(jit + 0x44)]);
        stack.extend(builder.world.callers("", &["clr!CallDescrWorker", "clr!ThreadStart"]));
        stack.extend(builder.root(""));
        let compile = step(change(ChangeKind::Protect(RW, RX), FrameSpec::At(jit)), &by_runtime(builder));
        EventSpec::open(MANAGED, stack).after([compile])
    };
    builder.yes_at_most("low", "a runtime compiled it and did not report it", managed(builder));
    builder.no("a runtime compiled it and reported it", managed(builder).memory(Memory::Jit(jit)));
    builder.yes_at_most("low", "the trampoline of a known hook", {
        let by = by_hook(builder);
        builder.open((HOOKED, "tool")).insert(2, private(112)).after([step(written(112), &by)])
    });
    builder.undetermined("code in memory without recorded changes", open.clone().insert(2, private(113)));
    builder.undetermined("the memory was freed and allocated again", {
        let again = change(ChangeKind::Allocate(RX), page(114));
        open.clone().insert(2, private(114)).after([written(114), again].map(|change| step(change, &protect)))
    });
    builder.about("CS27", BOTH);
    builder.all_open(No);
    builder.missing(&open);
}

/// Private code that is hidden while it sleeps: this many times, with this interval.
fn sleeps(times: usize, wait: i64, at: FrameSpec, by: &[FrameSpec]) -> Vec<Step> {
    let cycle = || [ChangeKind::Protect(RW, RX), ChangeKind::Protect(RX, RW)];
    let changes = (0..times).flat_map(|_| cycle()).map(|kind| change(kind, at));
    changes.map(|change| Step { change, stack: by.to_vec(), wait }).collect()
}

fn fluctuates(builder: &mut CaseBuilder<'_>) {
    builder.about("CS28", ETL);
    let wakes = |actor, at, stack: &[FrameSpec], times, wait| {
        let last = change(ChangeKind::Protect(RW, RX), at);
        EventSpec::new(actor, Action::Change(last), stack.to_vec()).after(sleeps(times, wait, at, stack))
    };
    for ((actor, code), number) in PROGRAMS.into_iter().zip(120..) {
        let by = builder.stack(PROTECT, code);
        let title = format!("{code} hides code while it sleeps");
        builder.yes_at_least("medium", title, wakes(actor, page(number), &by, 3, 1500));
    }
    let mut unbacked = builder.stack(PROTECT, "agent");
    unbacked.insert(2, private(126));
    builder.yes_at_least("high", "shellcode hides itself", wakes(AGENT, page(126), &unbacked, 4, 1000));
    let mut timer = builder.world.stack(&["ntdll!NtProtectVirtualMemory"]);
    let pool = ["ntdll!RtlpTpTimerCallback", "ntdll!TppTimerpExecuteCallback", "ntdll!TppWorkerThread"];
    timer.extend(builder.world.callers("", &pool));
    timer.extend(builder.root(""));
    let masked = wakes(TOOL, page(127), &timer, 3, 2500);
    builder.yes_at_least("medium", "a timer hides it", masked.clone());
    builder.lost("a timer hides it, with a lost buffer", masked);
    let plugin = FrameSpec::In(builder.world.index("plugin"), 0x1000);
    let own = builder.stack(PROTECT, "plugin");
    let stomped = wakes(Actor::Program("agent", &["plugin"]), plugin, &own, 3, 1200);
    builder.yes_at_least("medium", "code in an image hides itself", stomped);
    builder.yes_at_least("medium", "code that hides while it sleeps opens a process", {
        let by = builder.stack(PROTECT, "agent");
        builder.open(PROGRAMS[0]).insert(2, private(128)).after(sleeps(4, 800, page(128), &by))
    });
    let jit = FrameSpec::At(0x0000_01f4_7100_0000);
    let compiles = wakes(MANAGED, jit, &by_runtime(builder), 5, 20);
    builder.yes_at_most("low", "a runtime compiles", compiles.clone());
    let slowly = wakes(MANAGED, jit, &by_runtime(builder), 5, 1000);
    builder.yes_at_most("low", "a runtime compiles from time to time", slowly);
    let unknown = builder.stack(PROTECT, "tool");
    builder.yes_at_most("low", "an unknown JIT compiler", wakes(TOOL, page(129), &unknown, 9, 10));
    let ntdll = FrameSpec::In(builder.world.index("ntdll"), 0x1000);
    builder.yes_at_most("low", "a known hook", wakes(HOOKED, ntdll, &by_hook(builder), 4, 1000));
    for ((actor, code), number) in PROGRAMS.into_iter().zip(130..) {
        let by = builder.stack(PROTECT, code);
        let once = change(ChangeKind::Protect(RW, RX), page(number));
        let reserve = step(change(ChangeKind::Reserve, page(number)), &by);
        let title = format!("{code} makes memory executable once");
        builder.no(title, EventSpec::new(actor, Action::Change(once), by).after([reserve]));
    }
    builder.undetermined("the allocation of the memory was not recorded", {
        let once = change(ChangeKind::Protect(RW, RX), page(136));
        EventSpec::new(AGENT, Action::Change(once), builder.stack(PROTECT, "agent"))
    });
    builder.about("CS28", BOTH);
    builder.all_open(Undetermined);
}

/// The page of a function.
fn page_of(builder: &CaseBuilder<'_>, name: &str) -> FrameSpec {
    let FrameSpec::In(unit, offset) = builder.world.at(name, 0) else { unreachable!("it is in an image") };
    FrameSpec::In(unit, offset & !0xfff)
}

const SCRIPTED: Actor = Actor::Program("tool", &["amsi", "clr"]);
const SCANNED: Actor = Actor::Program("agent", &["amsi"]);
const WITH_PLUGIN: Actor = Actor::Program("agent", &["plugin"]);

fn patched(builder: &mut CaseBuilder<'_>) {
    builder.about("CS29", ETL);
    let by_agent = builder.stack(PROTECT, "agent");
    let patch = |actor, at, stack: &[FrameSpec]| {
        EventSpec::new(actor, Action::Change(change(ChangeKind::Protect(RX, RWX), at)), stack.to_vec())
    };
    let (scan, report) = (page_of(builder, "amsi!AmsiScanBuffer"), page_of(builder, "ntdll!EtwEventWrite"));
    builder.yes_at_least("high", "AmsiScanBuffer is made writable", patch(SCANNED, scan, &by_agent));
    builder.yes_at_least("high", "EtwEventWrite is made writable", patch(AGENT, report, &by_agent));
    builder.lost("EtwEventWrite is made writable, with a lost buffer", patch(AGENT, report, &by_agent));
    builder.yes_at_least("high", "a script patches AmsiScanBuffer", {
        let mut stack = builder.world.stack(PROTECT);
        stack.push(FrameSpec::At(0x0000_01f4_7200_0044));
        stack.extend(builder.world.callers("", &["clr!CallDescrWorker", "clr!ThreadStart"]));
        stack.extend(builder.root(""));
        patch(SCRIPTED, scan, &stack).memory(Memory::Jit(0x0000_01f4_7200_0000))
    });
    builder.yes_at_least("high", "another process writes over NtTraceEvent", {
        let at = builder.world.at("ntdll!NtTraceEvent", 0);
        let write = Change { target: Some("csrss"), size: 4, ..change(ChangeKind::Write, at) };
        let stack = builder.stack(&["ntdll!NtWriteVirtualMemory"], "agent");
        EventSpec::new(AGENT, Action::Change(write), stack)
    });
    let plugin = FrameSpec::In(builder.world.index("plugin"), 0x1000);
    let steps = |builder: &CaseBuilder<'_>| {
        let changes = [ChangeKind::Protect(RX, RW), ChangeKind::Protect(RW, RX)];
        changes.map(|kind| step(change(kind, plugin), &builder.stack(PROTECT, "agent")))
    };
    let overwrite = change(ChangeKind::Protect(RX, RW), plugin);
    let stomps = EventSpec::new(WITH_PLUGIN, Action::Change(overwrite), by_agent.clone());
    builder.yes_at_least("medium", "code is written over a library", stomps.clone());
    builder.without("plugin", |builder| {
        builder.yes_at_least("medium", "code is written over a library without a file", stomps);
    });
    builder.yes_at_least("medium", "the overwritten library opens a process", {
        EventSpec::open(WITH_PLUGIN, builder.stack(OPEN, "plugin")).after(steps(builder))
    });
}

fn replaced(builder: &mut CaseBuilder<'_>) {
    let program = FrameSpec::In(builder.world.index("tool"), 0);
    let by = ChangedBy::Other("csrss");
    let stack = builder.stack(&["ntdll!NtAllocateVirtualMemory"], "csrss");
    let gone = |target| {
        let unload = Change { by, target, ..change(ChangeKind::Unload, program) };
        step(unload, &[])
    };
    let hollow = |kind| Change { by, size: 0x1_0000, ..change(kind, program) };
    let event = |kind| EventSpec::new(TOOL, Action::Change(hollow(kind)), stack.clone()).after([gone(None)]);
    builder.yes_at_least("high", "memory takes the place of the program", event(ChangeKind::Allocate(RWX)));
    builder
        .lost("memory takes the place of the program, with a lost buffer", event(ChangeKind::Allocate(RWX)));
    builder.yes_at_least("high", "the kernel logger alone reports it", event(ChangeKind::Reserve));
    builder.yes_at_least("high", "a thread runs in the place of the program", {
        let mut frames = builder.world.stack(OPEN);
        frames.push(builder.world.at("tool!work", 0x20));
        frames.extend(builder.root(""));
        let hollow = step(hollow(ChangeKind::Allocate(RWX)), &stack);
        EventSpec::open(TOOL, frames).after([gone(None), hollow])
    });
    builder.yes_at_least("medium", "the program replaces itself", {
        let own = Change { by: ChangedBy::Actor, ..hollow(ChangeKind::Allocate(RWX)) };
        let stack = builder.stack(&["ntdll!NtAllocateVirtualMemory"], "tool");
        EventSpec::new(TOOL, Action::Change(own), stack).after([gone(None)])
    });
    builder.no("memory takes the place of a library", {
        let library = FrameSpec::In(builder.world.index("plugin"), 0);
        let unload = step(change(ChangeKind::Unload, library), &[]);
        let stack = builder.stack(&["ntdll!NtAllocateVirtualMemory"], "agent");
        let reuse = change(ChangeKind::Allocate(RX), library);
        EventSpec::new(WITH_PLUGIN, Action::Change(reuse), stack).after([unload])
    });
}

fn benign_patches(builder: &mut CaseBuilder<'_>) {
    let patch = |actor, change, stack: Vec<FrameSpec>| EventSpec::new(actor, Action::Change(change), stack);
    let writable = |at| change(ChangeKind::Protect(RX, RWX), at);
    let stub = page_of(builder, "ntdll!EtwEventWrite");
    builder.yes_at_most("low", "a known hook patches ntdll", patch(HOOKED, writable(stub), by_hook(builder)));
    builder.yes_at_most("low", "a driver applies a hot patch", {
        patch(TOOL, Change { by: ChangedBy::Driver, ..writable(stub) }, builder.stack(PROTECT, "tool"))
    });
    builder.yes_at_most("low", "a protected security product patches ntdll", {
        let by = ChangedBy::Protected("csrss");
        patch(TOOL, Change { by, ..writable(stub) }, builder.stack(PROTECT, "csrss"))
    });
    let own = FrameSpec::In(builder.world.index("agent"), 0x1000);
    let unpacks = Change { size: 0x4000, ..writable(own) };
    builder.yes_at_most("low", "a program unpacks itself", {
        patch(AGENT, unpacks, builder.stack(PROTECT, "agent"))
    });
    builder.yes_at_most("low", "the loader relocates an image", {
        let plugin = builder.world.index("plugin");
        let load = step(change(ChangeKind::Load, FrameSpec::In(plugin, 0)), &[]);
        let mut stack = builder.world.stack(&["ntdll!NtProtectVirtualMemory"]);
        stack.extend(builder.world.callers("", &["ntdll!LdrpInitialize", "ntdll!LdrInitializeThunk"]));
        patch(AGENT, writable(FrameSpec::In(plugin, 0x1000)), stack).after([load])
    });
    builder.yes_at_most("low", "a runtime completes its own image", {
        patch(MANAGED, writable(FrameSpec::In(builder.world.index("clr"), 0x1000)), by_runtime(builder))
    });
    builder.yes_at_most("low", "an unknown module patches a library", {
        patch(WITH_PLUGIN, writable(FrameSpec::In(builder.world.index("plugin"), 0x1000)), Vec::new())
    });
    for ((actor, code), number) in PROGRAMS.into_iter().zip(140..) {
        let reserve = step(change(ChangeKind::Reserve, page(number)), &[]);
        let protect = change(ChangeKind::Protect(RW, RX), page(number));
        let title = format!("{code} makes its own memory executable");
        builder.no(title, patch(actor, protect, builder.stack(PROTECT, code)).after([reserve]));
    }
    let data = FrameSpec::In(builder.world.index("plugin"), DATA_AT);
    builder.no("data of an image is made writable", {
        let protect = change(ChangeKind::Protect(RO, RW), data);
        patch(WITH_PLUGIN, protect, builder.stack(PROTECT, "agent"))
    });
    let stack = builder.stack(&["ntdll!NtWriteVirtualMemory"], "agent");
    let write = patch(WITH_PLUGIN, change(ChangeKind::Write, data), stack);
    builder.no("data of an image is written", write.clone());
    builder.without("plugin", |builder| {
        builder.undetermined("it is not known whether data or code is written", write);
    });
    builder.about("CS29", BOTH);
    builder.all_open(Undetermined);
}
