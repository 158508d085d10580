//! The history of memory ends with the memory and with the process, and is bounded.

use stackhound::detect::{DetectionId, Verdict};
use stackhound::schema::kernel::class_guid;
use stackhound::schema::provider_guid::{KERNEL_AUDIT_API_CALLS, THREAT_INTELLIGENCE};
use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, evaluate};

const PID: u32 = 4242;
const NTDLL: u64 = 0x7ffa_1000_0000;
const PROGRAM: u64 = 0x7ff6_3000_0000;
const MEMORY: u64 = 0x1f4_3000_0000;

/// `PAGE_READWRITE` and `PAGE_EXECUTE_READ`.
const RW: u32 = 0x04;
const RX: u32 = 0x20;

/// A process makes written memory executable.
fn protect(pid: u32, base: u64) -> RecordBuilder {
    protect_all(pid, base, 0x1000)
}

fn protect_all(pid: u32, base: u64, size: u64) -> RecordBuilder {
    const PROTECT_LOCAL: u16 = 7;
    let protect = RecordBuilder::new(THREAT_INTELLIGENCE, PROTECT_LOCAL, 1).pid(pid).tid(8);
    let protect = protect.with("CallingProcessId", pid).with("TargetProcessId", pid);
    let protect = protect.with("BaseAddress", base).with("RegionSize", size);
    protect.with("ProtectionMask", RX).with("LastProtectionMask", RW)
}

fn free(base: u64) -> RecordBuilder {
    const VIRTUAL_FREE: u8 = 99;
    const RELEASE: u32 = 0x8000;
    let free = RecordBuilder::classic(class_guid::PAGE_FAULT, VIRTUAL_FREE, 2).pid(PID).tid(8);
    let free = free.with("BaseAddress", base).with("RegionSize", 0x1000_u64);
    free.with("ProcessId", PID).with("Flags", RELEASE)
}

fn process(opcode: u8) -> RecordBuilder {
    RecordBuilder::classic(class_guid::PROCESS, opcode, 4).pid(4).tid(8).with("ProcessId", PID)
}

fn image(opcode: u8) -> RecordBuilder {
    let image = RecordBuilder::classic(class_guid::IMAGE, opcode, 3).pid(PID).tid(8).with("ProcessId", PID);
    image
        .with("ImageBase", MEMORY)
        .with("ImageSize", 0x10_0000_u64)
        .with("FileName", r"\Device\a\library.dll")
}

/// The answer of a detection for code in [`MEMORY`] after these events.
fn answer(id: &str, events: impl IntoIterator<Item = RecordBuilder>) -> Verdict {
    let modules = [
        (PROGRAM, 0x20_0000, r"\Device\HarddiskVolume3\Program Files\Program\program.exe"),
        (NTDLL, 0x20_0000, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll"),
    ];
    let mut trace = TraceBuilder::new().process(PID, "program.exe", &modules);
    for event in events {
        trace = trace.event(event);
    }
    let open = RecordBuilder::new(KERNEL_AUDIT_API_CALLS, 5, 0).pid(PID).tid(8);
    let open = open.with("TargetProcessId", 77_u32).with("DesiredAccess", 0x1000_u32);
    let frames = [NTDLL + 0x9_d4c4, MEMORY + 0x234, PROGRAM + 0x1234, NTDLL + 0x5_2651];
    let trace = trace.event_with_stack(open, StackForm::Extended, &[], &frames);
    let evaluations = evaluate(trace.build().expect("events")).expect("a trace");
    let id = DetectionId::parse(id).expect("a detection");
    evaluations.last().expect("the last event is evaluated").outcome(id).verdict
}

#[test]
fn a_history_ends_with_its_memory_and_its_process() {
    use Verdict::{No, Undetermined, Yes};
    let made = || protect(PID, MEMORY);
    for (title, events, expected) in [
        ("nothing was recorded", vec![], Undetermined),
        ("written memory was made executable", vec![made()], Yes),
        ("other memory was made executable", vec![protect(PID, MEMORY + 0x1000)], Undetermined),
        ("in another process", vec![protect(PID + 4, MEMORY)], Undetermined),
        ("it was freed", vec![made(), free(MEMORY)], Undetermined),
        ("other memory was freed", vec![made(), free(MEMORY + 0x1000)], Yes),
        ("it was made executable again", vec![made(), free(MEMORY), made()], Yes),
        ("the process ended, and another one has its id", vec![made(), process(2), process(1)], Undetermined),
        ("an image was loaded there", vec![made(), image(10)], No),
        ("an image was loaded there and unloaded", vec![made(), image(10), image(2)], Undetermined),
    ] {
        assert_eq!(answer("CS27", events), expected, "{title}");
    }
}

#[test]
fn histories_are_bounded() {
    // More ranges than are kept for a process. The oldest are forgotten.
    let others = || (0..3000).map(|page| protect(PID, 0x10_0000_0000 + page * 0x2000));
    assert_eq!(answer("CS27", std::iter::once(protect(PID, MEMORY)).chain(others())), Verdict::Undetermined);
    assert_eq!(answer("CS27", others().chain([protect(PID, MEMORY)])), Verdict::Yes);
    // More processes than are kept.
    let others = || (0..2000).map(|number| protect(10_000 + 4 * number, MEMORY));
    assert_eq!(answer("CS27", std::iter::once(protect(PID, MEMORY)).chain(others())), Verdict::Undetermined);
    assert_eq!(answer("CS27", others().chain([protect(PID, MEMORY)])), Verdict::Yes);
    // Ranges of any size, at the ends of the address space.
    let extreme =
        [0, 1, u64::MAX >> 1, u64::MAX - 0xfff, u64::MAX].map(|base| protect_all(PID, base, u64::MAX));
    assert_eq!(answer("CS27", extreme), Verdict::Yes);
}
