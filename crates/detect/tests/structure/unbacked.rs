//! Code in no module: CS07, CS08, CS09.

use stackhound_detect::{
    DetectionId, Detector, Entry, Event, Input, LiveFrame, Memory, MemoryKind, Outcome, Process, Reason,
    Severity, Verdict,
};
use stackhound_frames::{Code, Lists, ModuleFacts};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, detector, evaluated_frames, evaluated_live, frames, opening, outcome};

#[test]
fn unbacked_callers_of_the_native_layer_are_found() {
    let given = Given::default();
    for (id, stack, expected, reason) in [
        ("CS07", "ntdll kernelbase ! app", Yes(Severity::Medium, 2), Reason::CallerUnbacked),
        ("CS07", "K ntdll ! app", Yes(Severity::Medium, 2), Reason::CallerUnbacked),
        ("CS07", "ntdll kernelbase app ! kernel32 ntdll", No, Reason::AllBacked),
        // CS01 reports it.
        ("CS07", "! kernel32 ntdll", No, Reason::NativeUnbacked),
        ("CS07", "ntdll kernelbase ? app", Undetermined, Reason::FrameUnknown),
        ("CS08", "ntdll kernelbase app ! kernel32 ntdll", Yes(Severity::Medium, 3), Reason::FrameUnbacked),
        ("CS08", "ntdll kernelbase ! app ! kernel32 ntdll", Yes(Severity::Medium, 4), Reason::FrameUnbacked),
        // A run of frames is reported once.
        ("CS08", "ntdll kernelbase ! ! ! kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "! ! kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase ! K ! kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "! ! app ! kernel32 ntdll", Yes(Severity::Medium, 3), Reason::FrameUnbacked),
        ("CS07", "ntdll kernelbase jit clr kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase app kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase jit clr kernel32 ntdll", No, Reason::AllBacked),
        ("CS08", "ntdll user32 K? K? win32u user32 app", No, Reason::AllBacked),
        ("CS08", "ntdll kernelbase app ? kernel32 ntdll", Undetermined, Reason::FrameUnknown),
        // The unknown frames can be in the native layer or in no module.
        ("CS08", "ntdll ? ! app ntdll", Undetermined, Reason::FrameUnknown),
        ("CS08", "? ? ! ! app ntdll", Undetermined, Reason::FrameUnknown),
        ("CS08", "ntdll ! ? ! app ntdll", Undetermined, Reason::FrameUnknown),
        ("CS08", "ntdll ? ! app ! app", Yes(Severity::Medium, 4), Reason::FrameUnbacked),
        ("CS08", "ntdll app ? ! app", Yes(Severity::Medium, 3), Reason::FrameUnbacked),
    ] {
        check(id, given, stack, expected, reason);
    }
    // Without a system call, CS01 does not report it.
    for entry in [Entry::Interrupt, Entry::Unknown] {
        let given = Given { event: Event { entry, ..given.event }, ..given };
        check("CS08", given, "! kernel32 ntdll", Yes(Severity::Medium, 0), Reason::FrameUnbacked);
        check("CS08", given, "ntdll ! kernel32 ntdll", No, Reason::AllBacked);
    }
    let lsass = opening("lsass.exe", Some(0x1fffff));
    check("CS07", lsass, "ntdll kernelbase ! app", Yes(Severity::High, 2), Reason::SensitiveOperation);
}

#[test]
fn benign_causes_lower_findings() {
    let with = |has_runtime| {
        let process = Process { has_runtime, ..Process::UNKNOWN };
        Given { process, ..opening("lsass.exe", Some(0x1fffff)) }
    };
    let process = Process { has_runtime: Some(true), ..Process::UNKNOWN };
    let harmless = Given { process, ..Given::default() };
    check("CS07", harmless, "ntdll kernelbase ! app", Yes(Severity::Low, 2), Reason::RuntimeLoaded);
    for (given, stack, severity, reason) in [
        (with(None), "ntdll kernelbase ! clr kernel32 ntdll", Severity::Low, Reason::RuntimeInStack),
        (with(None), "ntdll kernelbase !7ff812340000 app", Severity::Low, Reason::AddressNearImages),
        (with(Some(true)), "ntdll kernelbase ! app", Severity::Medium, Reason::RuntimeLoaded),
        (with(None), "ntdll ! kernelbase app", Severity::Low, Reason::BetweenHooks),
        (with(None), "ntdll ! hook kernelbase app", Severity::Low, Reason::BetweenHooks),
        // All of a thread's own code may be one frame.
        (with(None), "ntdll ! kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        (with(None), "ntdll kernelbase ! kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        // All JIT-compiled code is reported, so this is none of it.
        (with(Some(false)), "ntdll kernelbase ! clr kernel32 ntdll", Severity::High, Reason::CallerUnbacked),
        (with(Some(false)), "ntdll kernelbase !7ff812340000 app", Severity::High, Reason::CallerUnbacked),
    ] {
        let frame = stack.split(' ').position(|word| word.starts_with('!')).unwrap();
        check("CS07", given, stack, Yes(severity, frame), reason);
    }
    // Interrupts occur in code that runtimes do not report.
    let interrupted =
        |given: Given<'static>| Given { event: Event { entry: Entry::Interrupt, ..given.event }, ..given };
    for (has_runtime, severity) in [(None, Severity::High), (Some(true), Severity::Low)] {
        let given = interrupted(with(has_runtime));
        check("CS07", given, "ntdll kernelbase ! app", Yes(severity, 2), Reason::CallerUnbacked);
    }
}

/// Only code next to a runtime can be its output.
#[test]
fn runtimes_lower_the_code_next_to_them() {
    let given = |has_runtime| {
        let process = Process { has_runtime, ..Process::UNKNOWN };
        Given { process, ..opening("lsass.exe", Some(0x1fffff)) }
    };
    for (has_runtime, stack, severity, reason) in [
        (None, "ntdll kernelbase ! clr kernel32 ntdll", Severity::Low, Reason::RuntimeInStack),
        (None, "ntdll kernelbase ! ! ni", Severity::Low, Reason::RuntimeInStack),
        (None, "ntdll kernelbase ! jit app", Severity::Low, Reason::RuntimeInStack),
        // Frames of the kernel and of unknown modules do not separate them.
        (None, "ntdll kernelbase ! K ? clr", Severity::Low, Reason::RuntimeInStack),
        // Shellcode in a managed program, far from its runtime.
        (None, "ntdll kernelbase ! ntdll kernelbase clr", Severity::High, Reason::CallerUnbacked),
        (Some(true), "ntdll kernelbase ! ntdll kernelbase clr", Severity::Medium, Reason::RuntimeLoaded),
    ] {
        check("CS07", given(has_runtime), stack, Yes(severity, 2), reason);
    }
    // Runtimes also call code that does not call the native layer.
    let severity = |stack| outcome("CS08", Given::default(), stack).severity;
    assert_eq!(severity("ntdll kernelbase ni !"), Severity::Low);
    assert_eq!(severity("ntdll kernelbase clr app !"), Severity::Medium);
}

/// The name of a runtime's file lowers nothing unless its folder or its signer confirms it, or a
/// runtime is loaded.
#[test]
fn names_of_runtimes_need_evidence() {
    for name in ["lua", "own_ni"] {
        for has_runtime in [None, Some(false)] {
            let process = Process { has_runtime, ..Process::UNKNOWN };
            let given = Given { process, ..opening("a.exe", Some(0x1fffff)) };
            let stack = format!("ntdll kernelbase ! {name} kernel32 ntdll");
            check("CS07", given, &stack, Yes(Severity::High, 2), Reason::LikeRuntime);
            assert!(outcome("CS07", given, &stack).missing.has(Input::ImageIdentity), "{stack}");
            let stack = format!("ntdll kernelbase {name} ! kernel32 ntdll");
            check("CS08", given, &stack, Yes(Severity::Medium, 3), Reason::LikeRuntime);
        }
        let process = Process { has_runtime: Some(true), ..Process::UNKNOWN };
        let given = Given { process, ..opening("a.exe", Some(0x1fffff)) };
        let stack = format!("ntdll kernelbase ! {name} kernel32 ntdll");
        check("CS07", given, &stack, Yes(Severity::Low, 2), Reason::RuntimeInStack);
    }
    // A signer confirms the name in any folder; another signer does not.
    for (signer, severity) in [("Google LLC", Severity::Low), ("Contoso", Severity::High)] {
        let mut detector = detector(Lists::default());
        let facts = ModuleFacts {
            path: r"C:\Users\a\AppData\Local\Google\Chrome\chrome.dll".into(),
            signer: Some(signer.into()),
            ..ModuleFacts::default()
        };
        let module = detector.module(&facts, None);
        let mut frames = frames(&mut detector, "ntdll kernelbase ! app");
        frames[3].code = Code::Image(module, 0x1000);
        let given = opening("a.exe", Some(0x1fffff));
        let evaluation = evaluated_frames(&mut detector, given, &frames);
        let outcome = evaluation.outcome(DetectionId::parse("CS07").unwrap());
        assert_eq!((outcome.verdict, outcome.severity), (Verdict::Yes, severity), "{signer}");
    }
}

/// Positions of a hook's code: between a stub and the Win32 base, and above a known hook.
#[test]
fn trampolines_are_recognized_by_both_neighbors() {
    let given = Given::default();
    for (stack, severity, frame) in [
        ("ntdll ! kernelbase app", Severity::Low, 1),
        ("win32u ! kernelbase app", Severity::Low, 1),
        ("ntdll kernelbase ! kernelbase app", Severity::Medium, 2),
        ("ntdll app ! kernelbase app", Severity::Medium, 2),
        ("ntdll ! ntdll app", Severity::Medium, 1),
        ("ntdll ! kernel32 app", Severity::Medium, 1),
        ("ntdll ! app", Severity::Medium, 1),
        ("ntdll ! K kernelbase app", Severity::Medium, 1),
        ("ntdll !", Severity::Medium, 1),
        ("ntdll ! hook app", Severity::Low, 1),
        ("ntdll kernelbase ! hook app", Severity::Low, 2),
        ("ntdll app ! hook app", Severity::Medium, 2),
        ("ntdll hook ! app", Severity::Medium, 2),
    ] {
        // Exactly one of the two detections reports it.
        let found: Vec<_> = ["CS07", "CS08"]
            .map(|id| outcome(id, given, stack))
            .into_iter()
            .filter(|outcome| outcome.verdict == Verdict::Yes)
            .collect();
        let [found] = found[..] else { panic!("`{stack}`: {found:?}") };
        assert_eq!((found.severity, found.frame), (severity, Some(frame)), "`{stack}`: {found:?}");
        let is_low = severity == Severity::Low;
        assert_eq!(found.reasons.has(Reason::BetweenHooks), is_low, "`{stack}`: {found:?}");
    }
}

/// Runtimes put code near images, which 64-bit Windows maps at the end of the user address space.
#[test]
fn addresses_near_images_are_recognized() {
    for (address, severity) in [
        (0x7ff0_0000_0000_u64, Severity::Low),
        (0x7fff_ffff_ffff, Severity::Low),
        (0x7fef_ffff_ffff, Severity::Medium),
        (0x8000_0000_0000, Severity::Medium),
        (0x7f0_0000_0000, Severity::Low),
        (0x7ff_ffff_ffff, Severity::Low),
        (0x7ef_ffff_ffff, Severity::Medium),
        (0x800_0000_0000, Severity::Medium),
    ] {
        let stack = format!("ntdll kernelbase !{address:x} app");
        check("CS07", Given::default(), &stack, Yes(severity, 2), Reason::CallerUnbacked);
        let reasons = outcome("CS07", Given::default(), &stack).reasons;
        assert_eq!(reasons.has(Reason::AddressNearImages), severity == Severity::Low, "{stack}");
    }
}

/// Unless all JIT-compiled code is reported, the frame may be JIT-compiled code.
#[test]
fn compiled_code_is_missing_unless_it_is_reported() {
    for (has_runtime, missing) in [(None, true), (Some(true), true), (Some(false), false)] {
        let process = Process { has_runtime, ..Process::UNKNOWN };
        let given = Given { process, ..Given::default() };
        for (id, stack) in [("CS07", "ntdll ! app"), ("CS08", "ntdll app ! app")] {
            let outcome = outcome(id, given, stack);
            assert_eq!(outcome.missing.has(Input::CompiledCode), missing, "{id} {has_runtime:?}");
        }
    }
}

fn in_memory(detector: &mut Detector, memory: Memory, has_runtime: Option<bool>) -> Outcome {
    let frames = frames(detector, "ntdll kernelbase ! kernel32 ntdll");
    let mut live = vec![LiveFrame::default(); frames.len()];
    live[2].memory = memory;
    assert_eq!(frames[2].code, Code::Unbacked);
    let process = Process { has_runtime, ..Process::UNKNOWN };
    *evaluated_live(detector, Given { process, ..Given::default() }, &frames, &live)
        .outcome(DetectionId::parse("CS09").unwrap())
}

#[test]
fn memory_of_code_in_no_module_is_evaluated() {
    const READ_EXECUTE: u32 = 0x20;
    const ALL: u32 = 0x40;
    let mut detector = detector(Lists::default());
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
        let outcome = in_memory(&mut detector, memory, has_runtime);
        assert_eq!((outcome.verdict, outcome.severity), (Verdict::Yes, severity), "{memory:?}");
        assert!(outcome.reasons.has(reason), "{memory:?}");
    }
    // An image that is not in the list of modules, on a page that is not writable.
    let image = in_memory(&mut detector, memory(Some(MemoryKind::Image), Some(READ_EXECUTE)), Some(false));
    assert_eq!(image.verdict, Verdict::No);
    // PAGE_NOACCESS to PAGE_EXECUTE_WRITECOPY, and with PAGE_GUARD.
    for bits in [0, 0x100] {
        for protection in (0..8).map(|bit| 1 << bit) {
            let outcome = in_memory(&mut detector, memory(None, Some(protection | bits)), Some(false));
            let is_writable = [0x04, 0x08, 0x40, 0x80].contains(&protection);
            assert_eq!(outcome.reasons.has(Reason::WritableCode), is_writable, "{protection:#x}");
            let verdict = if is_writable { Verdict::Yes } else { Verdict::Undetermined };
            assert_eq!(outcome.verdict, verdict, "{protection:#x}");
        }
    }
    assert_eq!(in_memory(&mut detector, Memory::UNKNOWN, None).verdict, Verdict::Undetermined);
    check("CS09", Given::default(), "ntdll kernelbase app kernel32 ntdll", No, Reason::AllBacked);
    check("CS09", Given::default(), "ntdll kernelbase ? kernel32 ntdll", Undetermined, Reason::FrameUnknown);
}
