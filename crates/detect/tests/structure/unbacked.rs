//! Code in no module: CS07, CS08, CS09.

use stackhound_detect::{Code, DetectionId, Judge, Lists, Memory, MemoryKind, Process};
use stackhound_detect::{Outcome, Reason, Severity, Verdict};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, frames, judge, judged_frames, opening};

#[test]
fn the_caller_of_the_native_layer_counts_more() {
    let given = Given::default();
    for (id, stack, expected, reason) in [
        ("CS07", "ntdll kernelbase ! app", Yes(Severity::Medium, 2), Reason::CallerUnbacked),
        ("CS07", "K ntdll ! app", Yes(Severity::Medium, 2), Reason::CallerUnbacked),
        ("CS07", "ntdll kernelbase app ! kernel32 ntdll", No, Reason::AllBacked),
        // CS01 tells of it.
        ("CS07", "! kernel32 ntdll", No, Reason::NativeUnbacked),
        ("CS07", "ntdll kernelbase ? app", Undetermined, Reason::FrameUnknown),
        ("CS08", "ntdll kernelbase app ! kernel32 ntdll", Yes(Severity::Medium, 3), Reason::FrameUnbacked),
        ("CS08", "ntdll kernelbase ! app ! kernel32 ntdll", Yes(Severity::Medium, 4), Reason::FrameUnbacked),
        // One run of frames is told once.
        ("CS08", "ntdll kernelbase ! ! ! kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "! ! kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase app kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase jit clr kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll user32 K? K? win32u user32 app", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase app ? kernel32 ntdll", Undetermined, Reason::FrameUnknown),
    ] {
        check(id, given, stack, expected, reason);
    }
    let lsass = opening("lsass.exe", Some(0x1fffff));
    check("CS07", lsass, "ntdll kernelbase ! app", Yes(Severity::High, 2), Reason::SensitiveOperation);
}

#[test]
fn honest_reasons_lower_and_do_not_drop() {
    let with = |has_runtime| {
        let process = Process { has_runtime, ..Process::UNKNOWN };
        Given { process, ..opening("lsass.exe", Some(0x1fffff)) }
    };
    for (given, stack, severity, reason) in [
        (with(None), "ntdll kernelbase ! clr kernel32 ntdll", Severity::Low, Reason::RuntimeInStack),
        (with(None), "ntdll kernelbase !7ff812340000 app", Severity::Low, Reason::AddressNearImages),
        (with(Some(true)), "ntdll kernelbase ! app", Severity::Medium, Reason::RuntimeLoaded),
        (with(None), "ntdll ! kernelbase app", Severity::Low, Reason::BetweenHooks),
        (with(None), "ntdll ! hook kernelbase app", Severity::Low, Reason::BetweenHooks),
        // All of a thread's own code may be one frame.
        (with(None), "ntdll ! kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        (with(None), "ntdll kernelbase ! kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        // All that runtimes compiled is told of, and this is none of it.
        (with(Some(false)), "ntdll kernelbase ! clr kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        (with(Some(false)), "ntdll kernelbase !7ff812340000 app", Severity::High, Reason::CallerUnbacked),
    ] {
        let frame = stack.split(' ').position(|word| word.starts_with('!')).unwrap();
        check("CS07", given, stack, Yes(severity, frame), reason);
    }
}

fn in_memory(judge: &mut Judge, memory: Memory, has_runtime: Option<bool>) -> Outcome {
    let mut frames = frames(judge, "ntdll kernelbase ! kernel32 ntdll");
    frames[2].memory = memory;
    assert_eq!(frames[2].code, Code::Unbacked);
    let process = Process { has_runtime, ..Process::UNKNOWN };
    *judged_frames(judge, Given { process, ..Given::default() }, &frames)
        .outcome(DetectionId::parse("CS09").unwrap())
}

#[test]
fn memory_of_code_in_no_module_is_judged() {
    const READ_EXECUTE: u32 = 0x20;
    const ALL: u32 = 0x40;
    let mut judge = judge(Lists::default());
    let memory = |kind, protection| Memory { kind, protection, is_original: None };
    let private = Some(MemoryKind::Private);
    for (memory, has_runtime, severity, reason) in [
        (memory(private, Some(ALL)), Some(false), Severity::High, Reason::WritableCode),
        (memory(None, Some(ALL)), Some(false), Severity::High, Reason::WritableCode),
        (memory(private, Some(READ_EXECUTE)), Some(false), Severity::High, Reason::PrivateCode),
        (memory(private, None), Some(false), Severity::High, Reason::PrivateCode),
        (memory(private, None), Some(true), Severity::Medium, Reason::RuntimeLoaded),
        (memory(Some(MemoryKind::Mapped), None), Some(false), Severity::Medium, Reason::MappedCode),
    ] {
        let outcome = in_memory(&mut judge, memory, has_runtime);
        assert_eq!((outcome.verdict, outcome.severity), (Verdict::Yes, severity), "{memory:?}");
        assert!(outcome.reasons.has(reason), "{memory:?}");
    }
    assert_eq!(in_memory(&mut judge, Memory::UNKNOWN, None).verdict, Verdict::Undetermined);
    check("CS09", Given::default(), "ntdll kernelbase app kernel32 ntdll", No, Reason::AllBacked);
    check("CS09", Given::default(), "ntdll kernelbase ? kernel32 ntdll", Undetermined, Reason::FrameUnknown);
}
