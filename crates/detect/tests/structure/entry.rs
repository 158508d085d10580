//! Direct system calls (CS01, CS02), direct use of the native API (CS06), and 64-bit calls of
//! 32-bit processes (CS20).

use stackhound_detect::{
    DetectionId, Detector, Entry, Event, Input, LiveFrame, Process, Reason, Severity, SiteBytes, Verdict,
};
use stackhound_frames::{Code, Lists, ModuleFacts};
use stackhound_images::{FactSource, ImageEvidence, ImageFacts, Signature, SignatureState};
use stackhound_types::{ImageIdentity, ModuleIdentity};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, detector, evaluated, evaluated_frames, evaluated_live, frames, opening};

fn entered(entry: Entry) -> Given<'static> {
    Given { event: Event { entry, ..Event::OTHER }, ..Given::default() }
}

#[test]
fn direct_calls_are_found_by_the_innermost_user_frame() {
    let given = Given::default();
    for (id, stack, expected, reason) in [
        ("CS01", "! app kernel32 ntdll", Yes(Severity::High, 0), Reason::TopUnbacked),
        ("CS01", "K K ! app kernel32 ntdll", Yes(Severity::High, 2), Reason::TopUnbacked),
        ("CS01", "jit clr kernel32 ntdll", Yes(Severity::Medium, 0), Reason::TopJit),
        ("CS01", "ntdll ! app", No, Reason::TopSystemCall),
        ("CS01", "app kernel32 ntdll", No, Reason::TopImage),
        ("CS01", "K K", No, Reason::NoUserFrames),
        ("CS01", "? app kernel32 ntdll", Undetermined, Reason::TopUnknown),
        // The page that the kernel shares with all processes.
        ("CS01", "!7ffe0304 ntdll app kernel32", No, Reason::TopSystemCall),
        ("CS02", "app kernel32 ntdll", Yes(Severity::High, 0), Reason::TopImage),
        ("CS02", "K kernelbase kernel32 ntdll", Yes(Severity::High, 1), Reason::TopImage),
        ("CS02", "copy app kernel32 ntdll", Yes(Severity::High, 0), Reason::TopImage),
        ("CS02", "steam kernel32 ntdll", Yes(Severity::Medium, 0), Reason::LikeDirectCaller),
        ("CS02", "ntdll kernelbase app", No, Reason::TopSystemCall),
        ("CS02", "win32u user32 app", No, Reason::TopSystemCall),
        ("CS02", "! app", No, Reason::TopUnbacked),
        ("CS02", "? app", Undetermined, Reason::TopUnknown),
        // The first segment decides, not the frames after a callback from the kernel.
        ("CS02", "ntdll user32 K K win32u user32 app", No, Reason::TopSystemCall),
    ] {
        check(id, given, stack, expected, reason);
    }
}

#[test]
fn interrupts_are_not_direct_calls() {
    for id in ["CS01", "CS02"] {
        check(id, entered(Entry::Interrupt), "app kernel32 ntdll", No, Reason::NoSystemCall);
        check(id, entered(Entry::Interrupt), "! kernel32 ntdll", No, Reason::NoSystemCall);
        check(id, entered(Entry::Unknown), "app kernel32 ntdll", Undetermined, Reason::EntryUnknown);
        check(id, entered(Entry::Unknown), "! kernel32 ntdll", Undetermined, Reason::EntryUnknown);
        check(id, entered(Entry::Unknown), "ntdll kernelbase app", No, Reason::TopSystemCall);
    }
}

#[test]
fn known_direct_callers_lower_unbacked_calls() {
    let process =
        Process { image: r"C:\Program Files\Google\Chrome\Application\chrome.exe", ..Process::UNKNOWN };
    let given = Given { process, ..Given::default() };
    check("CS01", given, "! app kernel32 ntdll", Yes(Severity::Medium, 0), Reason::LikeDirectCaller);
}

#[test]
fn legacy_modules_have_stubs_without_win32u() {
    let with = |has_win32u| {
        let process = Process { has_win32u, ..Process::UNKNOWN };
        Given { process, ..Given::default() }
    };
    check("CS02", with(Some(false)), "user32 app kernel32 ntdll", No, Reason::TopSystemCall);
    check("CS02", with(None), "user32 app kernel32 ntdll", Undetermined, Reason::TopLegacy);
    check("CS02", with(Some(true)), "user32 app kernel32 ntdll", Yes(Severity::High, 0), Reason::TopImage);
}

#[test]
fn both_bitnesses_are_evaluated_in_32_bit_processes() {
    let given = Given::default();
    for (id, stack, expected, reason) in [
        ("CS02", "ntdll wow64 wow64cpu ntdll~ kernelbase~ app~", No, Reason::TopSystemCall),
        ("CS02", "wow64cpu ntdll~ kernelbase~ app~", No, Reason::TopSystemCall),
        ("CS02", "ntdll wow64 wow64cpu app~ kernel32~ ntdll~", Yes(Severity::High, 3), Reason::TopImage),
        ("CS01", "ntdll wow64 wow64cpu !~ kernel32~ ntdll~", Yes(Severity::High, 3), Reason::TopUnbacked),
        ("CS01", "ntdll wow64 wow64cpu ?~ kernel32~ ntdll~", Undetermined, Reason::TopUnknown),
        ("CS20", "ntdll wow64 wow64cpu ntdll~ app~", No, Reason::ThroughWow64),
        ("CS20", "wow64cpu ntdll~ app~", No, Reason::ThroughWow64),
        ("CS20", "ntdll ! wow64 wow64cpu ntdll~ app~", Yes(Severity::High, 1), Reason::GateCaller),
        ("CS20", "ntdll app~ kernel32~ ntdll~", Yes(Severity::High, 1), Reason::GateCaller),
        ("CS20", "ntdll ntdll !~ kernel32~ ntdll~", Yes(Severity::High, 2), Reason::GateCaller),
        ("CS20", "ntdll ?~ kernel32~ ntdll~", Undetermined, Reason::FrameUnknown),
        ("CS20", "ntdll kernelbase app", Undetermined, Reason::WidthUnknown),
    ] {
        check(id, given, stack, expected, reason);
    }
    let with = |is_wow64| Given { process: Process { is_wow64, ..Process::UNKNOWN }, ..Given::default() };
    check("CS20", with(Some(false)), "ntdll ! app", No, Reason::NotWow64);
    check("CS20", with(Some(true)), "ntdll ! ntdll", Yes(Severity::High, 1), Reason::GateCaller);
    check("CS20", with(Some(true)), "ntdll ntdll", No, Reason::ThroughWow64);
    check("CS20", with(Some(true)), "! ntdll~ app~", No, Reason::ThroughWow64);
    check("CS20", with(Some(true)), "ntdll~ app~", No, Reason::ThroughWow64);
    let mut interrupted = with(Some(true));
    interrupted.event.entry = Entry::Interrupt;
    check("CS20", interrupted, "ntdll ! ntdll", No, Reason::NoSystemCall);
}

#[test]
fn direct_callers_of_the_native_api_are_found() {
    let given = Given::default();
    for (stack, expected, reason) in [
        ("ntdll app kernel32 ntdll", Yes(Severity::Low, 1), Reason::CallerOutsideWindows),
        ("ntdll installed kernel32 ntdll", Yes(Severity::Low, 1), Reason::CallerOutsideWindows),
        ("ntdll temp kernel32 ntdll", Yes(Severity::Low, 1), Reason::CallerOutsideWindows),
        ("ntdll hook app kernel32 ntdll", Yes(Severity::Low, 2), Reason::CallerOutsideWindows),
        ("ntdll wow64 wow64cpu ntdll~ app~", Yes(Severity::Low, 4), Reason::CallerOutsideWindows),
        ("win32u app kernel32 ntdll", Yes(Severity::Low, 1), Reason::CallerOutsideWindows),
        ("ntdll kernelbase app kernel32 ntdll", No, Reason::CallerNative),
        ("ntdll hook kernelbase app", No, Reason::CallerNative),
        // The heap, the loader and tracing make calls for themselves.
        ("ntdll ntdll app kernel32 ntdll", No, Reason::CallerNative),
        ("ntdll ! app", No, Reason::CallerUnbacked),
        ("app kernel32 ntdll", No, Reason::NoStubFrame),
        ("ntdll explorer kernel32 ntdll", Undetermined, Reason::CallerInWindows),
        ("ntdll planted kernel32 ntdll", Undetermined, Reason::CallerInWindows),
        ("ntdll bare kernel32 ntdll", Undetermined, Reason::CallerInWindows),
        ("ntdll ? kernel32 ntdll", Undetermined, Reason::FrameUnknown),
    ] {
        check("CS06", given, stack, expected, reason);
    }
    let lsass = opening(r"C:\Windows\System32\lsass.exe", Some(0x1010));
    check("CS06", lsass, "ntdll app kernel32 ntdll", Yes(Severity::Medium, 1), Reason::SensitiveTarget);
    // Only the caller can want a handle.
    check("CS06", lsass, "ntdll ntdll app kernel32", Yes(Severity::Medium, 2), Reason::CallerOutsideWindows);
    let ordinary = opening(r"C:\Users\a\app.exe", Some(0x1010));
    check("CS06", ordinary, "ntdll app kernel32 ntdll", Yes(Severity::Low, 1), Reason::CallerOutsideWindows);
    check("CS06", entered(Entry::Interrupt), "ntdll app", No, Reason::NoSystemCall);
    check("CS06", entered(Entry::Unknown), "ntdll app", Undetermined, Reason::EntryUnknown);
}

#[test]
fn known_images_decide_about_callers_in_the_windows_folder() {
    let mut detector = detector(Lists::default().with_known_images("explorer.exe\n"));
    let id = DetectionId::parse("CS06").unwrap();
    let mut verdict = |stack| evaluated(&mut detector, Given::default(), stack).outcome(id).verdict;
    assert_eq!(verdict("ntdll explorer kernel32 ntdll"), Verdict::No);
    assert_eq!(verdict("ntdll planted kernel32 ntdll"), Verdict::Yes);
    assert_eq!(verdict("ntdll app kernel32 ntdll"), Verdict::Yes);
}

fn unsigned() -> ImageEvidence {
    let signature = Signature { state: SignatureState::Unsigned, reason: None, signer: None };
    ImageFacts { signature: Some(signature), ..ImageFacts::new(FactSource::Sysmon) }.into()
}

/// An unsigned image in the Windows folder does not belong to Windows.
#[test]
fn unsigned_callers_in_the_windows_folder_are_found() {
    for (lists, is_unsigned, expected, reason) in [
        (Lists::default(), true, Verdict::Yes, Reason::CallerUnsigned),
        (Lists::default(), false, Verdict::Undetermined, Reason::CallerInWindows),
        (Lists::default().with_known_images("nano.exe"), true, Verdict::No, Reason::CallerKnownSystem),
    ] {
        let mut detector = detector(lists);
        let facts = ModuleFacts {
            path: r"C:\Windows\System32\nano.exe".into(),
            identity: ModuleIdentity { name: "nano.exe".to_owned(), ..ModuleIdentity::default() },
            image: if is_unsigned { unsigned() } else { ImageEvidence::default() },
            ..ModuleFacts::default()
        };
        let module = detector.module(&facts, None);
        let mut frames = frames(&mut detector, "ntdll app kernel32 ntdll");
        frames[1].code = Code::Image(module, 0x1000);
        let lsass = opening("lsass.exe", Some(0x1010));
        let evaluation = evaluated_frames(&mut detector, lsass, &frames);
        let native = evaluation.outcome(DetectionId::parse("CS06").unwrap());
        assert_eq!(native.verdict, expected, "{native:?}");
        assert!(native.reasons.has(reason), "{native:?}");
        if expected == Verdict::Yes {
            assert_eq!(native.severity, Severity::Medium, "{native:?}");
        }
        // Through the Win32 functions, CS24 finds it.
        let kernelbase = self::frames(&mut detector, "kernelbase")[0];
        frames.insert(1, kernelbase);
        let evaluation = evaluated_frames(&mut detector, lsass, &frames);
        let handle = evaluation.outcome(DetectionId::parse("CS24").unwrap());
        let is_found = expected == Verdict::Yes;
        assert_eq!(handle.verdict == Verdict::Yes, is_found, "{handle:?}");
    }
}

#[test]
fn the_previous_instruction_confirms_or_refutes_a_direct_call() {
    let mut detector = detector(Lists::default());
    for (ending, expected) in
        [([0x0f, 0x05], Verdict::Yes), ([0xcd, 0x2e], Verdict::Yes), ([0xff, 0xd0], Verdict::No)]
    {
        let mut before = [0x90; 16];
        before[14..].copy_from_slice(&ending);
        for (id, stack) in [("CS01", "! kernel32 ntdll"), ("CS02", "app kernel32 ntdll")] {
            let frames = frames(&mut detector, stack);
            let bytes = Some(SiteBytes { before, after: [0; 16] });
            let live = [LiveFrame { bytes, ..LiveFrame::default() }];
            let evaluation = evaluated_live(&mut detector, Given::default(), &frames, &live);
            let outcome = evaluation.outcome(DetectionId::parse(id).unwrap());
            assert_eq!(outcome.verdict, expected, "{id} {ending:x?}");
            assert!(outcome.used.has(Input::MemoryBytes));
            assert!(!outcome.missing.has(Input::MemoryBytes) && !outcome.missing.has(Input::ImageBytes));
        }
    }
}

#[test]
fn a_known_signer_lowers_more_than_a_name() {
    let mut detector = detector(Lists::default());
    let severities = |detector: &mut Detector, signer: Option<&str>| {
        let facts = ModuleFacts {
            path: r"C:\Program Files (x86)\Steam\steamservice.exe".into(),
            signer: signer.map(Into::into),
            ..ModuleFacts::default()
        };
        let module = detector.module(&facts, None);
        let severity = |detector: &mut Detector, id, given, stack, frame: usize| {
            let mut frames = frames(detector, stack);
            frames[frame].code = Code::Image(module, 0x1000);
            evaluated_frames(detector, given, &frames).outcome(DetectionId::parse(id).unwrap()).severity
        };
        let lsass = opening("lsass.exe", Some(0x1010));
        [
            severity(detector, "CS02", Given::default(), "app kernel32 ntdll", 0),
            severity(detector, "CS06", Given::default(), "ntdll app kernel32 ntdll", 1),
            severity(detector, "CS06", lsass, "ntdll app kernel32 ntdll", 1),
        ]
    };
    let (info, low, medium, high) = (Severity::Info, Severity::Low, Severity::Medium, Severity::High);
    assert_eq!(severities(&mut detector, Some("Valve Corp.")), [low, info, info]);
    assert_eq!(severities(&mut detector, None), [medium, low, medium]);
    assert_eq!(severities(&mut detector, Some("Another Company")), [high, low, medium]);
}

/// A damaged stack has offsets far outside of the module.
#[test]
fn offsets_after_the_end_of_an_image_are_outside_of_it() {
    let mut detector = detector(Lists::default());
    let image = Some(ImageIdentity { time_date_stamp: 1, size: 0x3000 });
    let identity = ModuleIdentity { name: "app.exe".to_owned(), image, ..ModuleIdentity::default() };
    let facts = ModuleFacts { path: r"C:\Users\a\app.exe".into(), identity, ..ModuleFacts::default() };
    let module = detector.module(&facts, None);
    let id = DetectionId::parse("CS02").unwrap();
    for (offset, verdict, reason) in [
        (0, Verdict::Yes, Reason::TopImage),
        (0x2fff, Verdict::Yes, Reason::TopImage),
        (0x3000, Verdict::Undetermined, Reason::TopOutsideModule),
        (u64::MAX, Verdict::Undetermined, Reason::TopOutsideModule),
    ] {
        let mut frames = frames(&mut detector, "app kernel32 ntdll");
        frames[0].code = Code::Image(module, offset);
        let evaluation = evaluated_frames(&mut detector, Given::default(), &frames);
        let outcome = evaluation.outcome(id);
        assert_eq!(outcome.verdict, verdict, "{offset:x}");
        assert!(outcome.reasons.has(reason), "{offset:x}: {outcome:?}");
    }
}
