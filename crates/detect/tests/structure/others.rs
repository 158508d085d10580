//! Second copies of ntdll (CS10), ends of stacks (CS14, CS15), dispatchers without names (CS17,
//! CS21, CS22), start addresses of threads (CS19), kernel stacks (CS23), handles to lsass
//! (CS24) and tampering with images (CS30).

use stackhound_detect::{
    DetectionId, Entry, Event, Gap, Input, Load, Part, Process, Reason, Severity, Start, Tampering,
    TamperingKind, Target, Verdict,
};
use stackhound_frames::{Code, Lists, ModuleFacts, Operation};
use stackhound_system::Runtime;
use stackhound_types::{Address, ImageIdentity, ModuleIdentity};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{
    Given, check, detector, evaluated, evaluated_frames, frames, module, opening, outcome,
};

#[test]
fn second_ntdlls_are_found() {
    let given = Given::default();
    for (stack, expected, reason) in [
        ("ntdll kernelbase copy app", Yes(Severity::High, 2), Reason::NtdllElsewhere),
        ("copy app kernel32 ntdll", Yes(Severity::High, 0), Reason::NtdllElsewhere),
        ("ntdll kernelbase app kernel32 ntdll", No, Reason::OneNtdll),
        ("ntdll wow64 wow64cpu ntdll~ app~", No, Reason::OneNtdll),
        ("ntdll ? app", Undetermined, Reason::FrameUnknown),
    ] {
        check("CS10", given, stack, expected, reason);
    }
    let mut detector = detector(Lists::default());
    let (ntdll, copy, app) =
        (module(&mut detector, "ntdll"), module(&mut detector, "copy"), module(&mut detector, "app"));
    let id = DetectionId::parse("CS10").unwrap();
    for (module, duplicate, expected) in [
        (copy, None, Verdict::Yes),
        (ntdll, Some(ntdll), Verdict::Yes),
        (ntdll, None, Verdict::No),
        (app, Some(app), Verdict::No),
    ] {
        let event = Event { load: Some(Load { module, duplicate }), ..given.event };
        let evaluation =
            evaluated(&mut detector, Given { event, ..given }, "ntdll kernelbase app kernel32 ntdll");
        assert_eq!(evaluation.outcome(id).verdict, expected, "{module:?} {duplicate:?}");
    }
}

/// A file is mapped at one address, and has one path (apart from its case) and one identity.
/// Unknown facts never differ.
#[test]
fn mappings_of_ntdll_are_distinguished() {
    let image = |size| Some(ImageIdentity { time_date_stamp: 1, size });
    let mut detector = detector(Lists::default());
    let mut ntdll = |path: &str, image| {
        let identity = ModuleIdentity { image, ..ModuleIdentity::default() };
        detector.module(&ModuleFacts { path: path.into(), identity, ..ModuleFacts::default() }, None)
    };
    let path = r"C:\Windows\System32\ntdll.dll";
    let plain = ntdll(path, None);
    let upper = ntdll(&path.to_uppercase(), None);
    let other = ntdll(r"D:\Windows\System32\ntdll.dll", None);
    let (small, large) = (ntdll(path, image(0x1000)), ntdll(path, image(0x2000)));
    let base = 0x7ff8_0000_0000_u64;
    let id = DetectionId::parse("CS10").unwrap();
    // Each: the module, its base address, and whether it is 32-bit.
    for (one, another, expected) in [
        ((plain, Some(base), false), (plain, Some(base), false), Verdict::No),
        ((plain, Some(base), false), (plain, Some(base + 0x1_0000), false), Verdict::Yes),
        ((plain, Some(base), false), (plain, Some(base + 0x1_0000), true), Verdict::No),
        ((plain, Some(base), false), (plain, None, false), Verdict::No),
        ((plain, Some(base), false), (upper, Some(base), false), Verdict::No),
        // The base address decides, whatever the paths are.
        ((plain, Some(base), false), (other, Some(base), false), Verdict::No),
        ((plain, None, false), (plain, None, false), Verdict::No),
        ((plain, None, false), (upper, None, false), Verdict::No),
        ((plain, None, false), (other, None, false), Verdict::Yes),
        ((plain, None, false), (other, None, true), Verdict::No),
        ((small, None, false), (small, None, false), Verdict::No),
        ((small, None, false), (large, None, false), Verdict::Yes),
        ((small, None, false), (plain, None, false), Verdict::No),
        ((plain, None, false), (large, None, false), Verdict::No),
    ] {
        let mut frames = frames(&mut detector, "ntdll app ntdll");
        for (frame, (module, base, is_wow64)) in frames.iter_mut().step_by(2).zip([one, another]) {
            frame.code = Code::Image(module, 0x1000);
            frame.address = base.map(|base| Address(base + 0x1000));
            frame.is_wow64 = is_wow64;
        }
        let evaluation = evaluated_frames(&mut detector, Given::default(), &frames);
        let outcome = evaluation.outcome(id);
        assert_eq!(outcome.verdict, expected, "{one:x?} {another:x?}");
        assert_eq!(outcome.frame, (expected == Verdict::Yes).then_some(2), "{one:x?} {another:x?}");
    }
}

/// Frames after the limit of the capture could change the answer.
#[test]
fn stacks_at_the_limit_never_lead_to_no() {
    let known = |is_wow64| Process { is_wow64: Some(is_wow64), ..Process::UNKNOWN };
    let opening = opening(r"C:\Windows\System32\lsass.exe", Some(0x1010));
    let waiting = Given { event: Event { operation: Operation::Wait, ..opening.event }, ..opening };
    for (id, given, stack, reason) in [
        ("CS06", opening, "ntdll ntdll", Reason::CallerNative),
        ("CS07", opening, "ntdll kernelbase", Reason::AllBacked),
        ("CS08", opening, "ntdll kernelbase app", Reason::AllBacked),
        ("CS09", opening, "ntdll kernelbase app", Reason::AllBacked),
        ("CS10", opening, "ntdll kernelbase app", Reason::OneNtdll),
        ("CS14", opening, "ntdll app kernel32 ntdll", Reason::RootByModules),
        ("CS17", opening, "ntdll kernelbase app", Reason::ProxyHasUser),
        ("CS20", Given { process: known(true), ..opening }, "ntdll ntdll", Reason::ThroughWow64),
        ("CS21", waiting, "ntdll kernelbase app", Reason::WaitHasUser),
        ("CS23", opening, "K K", Reason::KernelBacked),
        ("CS24", opening, "ntdll kernelbase kernel32", Reason::CallerUsual),
        ("CS25", opening, "ntdll kernelbase app", Reason::NoDumpLibrary),
        ("CS26", opening, "ntdll kernelbase app", Reason::NoCallback),
    ] {
        let length = stack.split(' ').count() as u16;
        for limit in [None, Some(length + 1)] {
            check(id, Given { limit, ..given }, stack, No, reason);
        }
        for limit in [length - 1, length] {
            check(id, Given { limit: Some(limit), ..given }, stack, Undetermined, Reason::AtLimit);
        }
        // CS14 and CS23 do not depend on whether the user walk was truncated.
        if !matches!(id, "CS14" | "CS23") {
            let truncated = Given { is_truncated: true, ..given };
            check(id, truncated, stack, Undetermined, Reason::StackTruncated);
        }
    }
}

/// Answers that are not findings state the frame that decided.
#[test]
fn the_deciding_frame_is_reported() {
    let opening = opening(r"C:\Windows\System32\lsass.exe", Some(0x1010));
    let unknown = Given { event: Event { entry: Entry::Unknown, ..opening.event }, ..opening };
    for (id, given, stack, expected) in [
        ("CS01", opening, "? app", Some(0)),
        ("CS01", unknown, "K ! app", Some(1)),
        ("CS01", opening, "app", Some(0)),
        ("CS02", opening, "K ! app", Some(1)),
        ("CS02", opening, "jit clr", Some(0)),
        ("CS02", unknown, "app", Some(0)),
        ("CS06", opening, "app ntdll", Some(0)),
        ("CS06", opening, "ntdll ! app", Some(1)),
        ("CS06", opening, "ntdll jit app", Some(1)),
        ("CS06", opening, "ntdll ? app", Some(1)),
        ("CS06", opening, "ntdll explorer app", Some(1)),
        ("CS06", unknown, "ntdll app", Some(1)),
        ("CS07", opening, "ntdll kernelbase ? app", Some(2)),
        ("CS07", opening, "! app", Some(0)),
        ("CS07", opening, "ntdll kernelbase app", Some(2)),
        ("CS08", opening, "ntdll kernelbase app ? app", Some(3)),
        ("CS09", opening, "ntdll kernelbase app ! app", Some(3)),
        ("CS10", opening, "ntdll app ?", Some(2)),
        ("CS14", opening, "ntdll app ntdll", Some(2)),
        ("CS14", opening, "ntdll app !", Some(2)),
        ("CS14", opening, "ntdll app ?", Some(2)),
        ("CS17", opening, "ntdll kernelbase app ntdll", Some(2)),
        ("CS20", opening, "ntdll ?~ kernel32~", Some(1)),
        ("CS23", opening, "K K? ntdll", Some(1)),
        ("CS24", opening, "ntdll ? app", Some(1)),
        ("CS25", opening, "ntdll ? app", Some(1)),
        ("CS26", opening, "ntdll ? K? win32u", Some(1)),
    ] {
        let outcome = outcome(id, given, stack);
        assert_ne!(outcome.verdict, Verdict::Yes, "{id} of `{stack}`: {outcome:?}");
        assert_eq!(outcome.frame, expected, "{id} of `{stack}`: {outcome:?}");
    }
}

/// The answers distinguish a stack without user frames from a missing stack.
#[test]
fn missing_user_frames_are_distinguished_from_none() {
    let opening = opening(r"C:\Windows\System32\lsass.exe", Some(0x1010));
    let waiting = Given { event: Event { operation: Operation::Wait, ..opening.event }, ..opening };
    let process = Process { is_wow64: Some(true), thread_start: Some(Code::Unbacked), ..Process::UNKNOWN };
    let given = Given { process, ..opening };
    for (id, given) in [
        ("CS01", given),
        ("CS02", given),
        ("CS06", given),
        ("CS07", given),
        ("CS08", given),
        ("CS09", given),
        ("CS14", given),
        ("CS15", given),
        ("CS17", given),
        ("CS20", given),
        ("CS21", waiting),
        ("CS22", given),
        ("CS26", given),
    ] {
        check(id, given, "K K", No, Reason::NoUserFrames);
        let missing = Given { user: Part::Missing(Gap::Lost), ..given };
        for stack in ["K K", ""] {
            check(id, missing, stack, Undetermined, Reason::StackMissing);
            assert!(outcome(id, missing, stack).missing.has(Input::Stack), "{id}");
        }
    }
    // An incomplete stack can lead to a finding, but not to the answer no.
    let missing = Given { user: Part::Missing(Gap::Lost), ..opening };
    for id in ["CS07", "CS08", "CS09", "CS10", "CS14", "CS17", "CS22", "CS24", "CS25", "CS26"] {
        check(id, missing, "ntdll kernelbase kernel32 ntdll", Undetermined, Reason::StackMissing);
    }
    check("CS07", missing, "ntdll kernelbase app", Undetermined, Reason::StackMissing);
    check("CS08", missing, "ntdll kernelbase app ! app", Yes(Severity::Medium, 3), Reason::FrameUnbacked);
    check("CS10", missing, "ntdll copy app", Yes(Severity::High, 1), Reason::NtdllElsewhere);
}

#[test]
fn roots_are_recognized_by_module() {
    let given = Given::default();
    for (stack, expected, reason) in [
        ("ntdll kernelbase app kernel32 ntdll", No, Reason::RootByModules),
        ("ntdll~ kernelbase~ app~ kernel32~ ntdll~ ntdll~", No, Reason::RootByModules),
        ("ntdll kernelbase app app", Yes(Severity::Medium, 3), Reason::RootIsNone),
        ("ntdll kernelbase app rpcrt4", Yes(Severity::Medium, 3), Reason::RootIsNone),
        ("ntdll~ kernelbase~ app~", Yes(Severity::Low, 2), Reason::Stack32),
        ("ntdll kernelbase app ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll kernelbase app kernel32", Undetermined, Reason::RootUnnamed),
        ("ntdll csrsrv ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll kernelbase app !", Undetermined, Reason::EndsUnbacked),
        ("ntdll kernelbase app jit", Undetermined, Reason::EndsUnbacked),
        ("ntdll kernelbase app ?", Undetermined, Reason::FrameUnknown),
        ("ntdll user32 K K", Undetermined, Reason::StackMissing),
        ("K K", No, Reason::NoUserFrames),
        // Security products end stack walks too.
        ("ntdll kernelbase app hook", Undetermined, Reason::EndsUnbacked),
        // At most two frames of ntdll.dll are at the end, and the frame above them is in
        // kernel32.dll of Windows.
        ("ntdll~ app~ kernel32~ ntdll~ ntdll~ ntdll~", Undetermined, Reason::RootUnnamed),
        ("ntdll app kernelbase ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll app copy32 ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll app copy32", Yes(Severity::Medium, 2), Reason::RootIsNone),
    ] {
        check("CS14", given, stack, expected, reason);
    }
    let interrupted = Given { event: Event { entry: Entry::Interrupt, ..given.event }, ..given };
    check("CS14", interrupted, "ntdll app", Yes(Severity::Low, 1), Reason::InterruptedWalk);
    let csrss = Process { image: r"C:\Windows\System32\csrss.exe", ..Process::UNKNOWN };
    check("CS14", Given { process: csrss, ..given }, "ntdll csrsrv ntdll", No, Reason::RootByModules);
    check("CS14", Given { process: csrss, ..given }, "ntdll app ntdll", Undetermined, Reason::RootUnnamed);
    let limited = Given { limit: Some(4), ..given };
    check("CS14", limited, "ntdll kernelbase app app", Undetermined, Reason::AtLimit);
}

#[test]
fn roots_are_compared_with_start_addresses() {
    let mut detector = detector(Lists::default());
    let image = |detector: &mut _, name| Code::Image(module(detector, name), 0x10);
    let (app, other, rpcrt4) =
        (image(&mut detector, "app"), image(&mut detector, "other"), image(&mut detector, "rpcrt4"));
    let id = DetectionId::parse("CS15").unwrap();
    for (start, stack, expected) in [
        (Some(app), "ntdll kernelbase app kernel32 ntdll", Verdict::No),
        (Some(app), "ntdll kernelbase other app kernel32 ntdll", Verdict::No),
        (Some(rpcrt4), "ntdll kernelbase other kernel32 ntdll", Verdict::No),
        (Some(Code::Unbacked), "ntdll kernelbase ! kernel32 ntdll", Verdict::No),
        (Some(app), "ntdll kernelbase kernel32 ntdll", Verdict::No),
        (Some(other), "ntdll kernelbase app kernel32 ntdll", Verdict::Yes),
        (Some(other), "ntdll kernelbase ! kernel32 ntdll", Verdict::Yes),
        (Some(Code::Unbacked), "ntdll kernelbase app kernel32 ntdll", Verdict::Yes),
        (None, "ntdll kernelbase app kernel32 ntdll", Verdict::Undetermined),
        (Some(Code::Unknown), "ntdll kernelbase app kernel32 ntdll", Verdict::Undetermined),
        (Some(app), "ntdll kernelbase ? kernel32 ntdll", Verdict::Undetermined),
        (Some(Code::Unbacked), "ntdll kernelbase jit kernel32 ntdll", Verdict::Yes),
        (Some(Code::Jit(Runtime::Clr)), "ntdll kernelbase jit kernel32 ntdll", Verdict::No),
        (Some(Code::Jit(Runtime::Clr)), "ntdll kernelbase app kernel32 ntdll", Verdict::Yes),
        // A runtime starts the program on behalf of its entry point.
        (Some(app), "ntdll kernelbase app clr kernel32 ntdll", Verdict::No),
        (Some(Code::Unbacked), "ntdll kernelbase app clr kernel32 ntdll", Verdict::Yes),
        // Hooks can be anywhere.
        (Some(app), "ntdll kernelbase app hook kernel32 ntdll", Verdict::No),
        (Some(app), "ntdll kernelbase other hook kernel32 ntdll", Verdict::Yes),
        // Stack walks cannot continue beyond such code.
        (Some(app), "ntdll kernelbase app !", Verdict::Undetermined),
        (Some(app), "ntdll kernelbase app jit", Verdict::Undetermined),
        (Some(app), "ntdll kernelbase ! kernel32", Verdict::Yes),
    ] {
        let process = Process { thread_start: start, ..Process::UNKNOWN };
        let evaluation = evaluated(&mut detector, Given { process, ..Given::default() }, stack);
        let outcome = evaluation.outcome(id);
        assert_eq!(outcome.verdict, expected, "{start:?} {stack}");
        let severity = if expected == Verdict::No { Severity::Info } else { Severity::Medium };
        assert_eq!(outcome.severity, severity, "{start:?} {stack}");
    }
    let process = Process { thread_start: Some(other), ..Process::UNKNOWN };
    let evaluation_32_bit =
        evaluated(&mut detector, Given { process, ..Given::default() }, "ntdll~ app~ kernel32~ ntdll~");
    assert_eq!(
        (evaluation_32_bit.outcome(id).verdict, evaluation_32_bit.outcome(id).severity),
        (Verdict::Yes, Severity::Low)
    );
}

#[test]
fn calls_without_a_final_user_module_are_found() {
    let given = opening("a.exe", None);
    for (stack, expected, reason) in [
        ("ntdll kernelbase ntdll kernel32 ntdll", Yes(Severity::Medium, 2), Reason::ProxySummary),
        ("ntdll kernelbase ntdll ntdll kernel32 ntdll", Yes(Severity::Medium, 2), Reason::ProxySummary),
        ("ntdll kernelbase app ntdll kernel32 ntdll", No, Reason::ProxyHasUser),
        ("ntdll kernelbase ! ntdll kernel32 ntdll", No, Reason::ProxyHasUser),
        // The loader's own threads.
        ("ntdll ntdll ntdll kernel32 ntdll", No, Reason::NoDispatcher),
        ("ntdll kernel32 kernelbase ntdll kernel32 ntdll", Undetermined, Reason::FunctionsUnknown),
    ] {
        check("CS17", given, stack, expected, reason);
    }
    check("CS17", Given::default(), "ntdll kernelbase ntdll kernel32 ntdll", No, Reason::NotSensitive);
    let waiting = Given { event: Event { operation: Operation::Wait, ..given.event }, ..given };
    check("CS21", waiting, "ntdll kernelbase ntdll ntdll", Undetermined, Reason::FunctionsUnknown);
    check("CS21", waiting, "ntdll kernelbase app kernel32 ntdll", No, Reason::WaitHasUser);
    check("CS21", given, "ntdll kernelbase ntdll ntdll", No, Reason::NoWait);
    check("CS22", given, "ntdll kernelbase app kernel32 ntdll", Undetermined, Reason::FunctionsUnknown);
    check("CS22", Given::default(), "ntdll app", No, Reason::NotSensitive);
}

#[test]
fn suspicious_start_addresses_are_found() {
    let mut detector = detector(Lists::default());
    let (kernelbase, kernel32, app) = (
        module(&mut detector, "kernelbase"),
        module(&mut detector, "kernel32"),
        module(&mut detector, "app"),
    );
    let start =
        |code, function, is_remote| Start { address: 0x1000, is_kernel: false, code, function, is_remote };
    let kernel = Start { is_kernel: true, ..start(Code::Unbacked, None, true) };
    let id = DetectionId::parse("CS19").unwrap();
    for (start, expected, severity) in [
        (start(Code::Unbacked, None, true), Verdict::Yes, Severity::High),
        (start(Code::Unbacked, None, false), Verdict::Yes, Severity::Medium),
        (start(Code::Image(kernel32, 0x10), Some("LoadLibraryW"), true), Verdict::Yes, Severity::High),
        (start(Code::Image(kernelbase, 0x10), Some("CtrlRoutine"), true), Verdict::No, Severity::Info),
        (start(Code::Image(kernelbase, 0x10), None, true), Verdict::Undetermined, Severity::High),
        // Other programs can have a function of the same name.
        (start(Code::Image(app, 0x10), Some("LoadLibraryW"), true), Verdict::No, Severity::Info),
        (start(Code::Image(app, 0x10), None, false), Verdict::No, Severity::Info),
        (start(Code::Jit(Runtime::Clr), None, true), Verdict::No, Severity::Info),
        (start(Code::Unknown, None, true), Verdict::Undetermined, Severity::High),
        (kernel, Verdict::No, Severity::Info),
    ] {
        let event = Event { operation: Operation::ThreadCreate, start: Some(start), ..Event::OTHER };
        let evaluation =
            evaluated(&mut detector, Given { event, ..Given::default() }, "ntdll app kernel32 ntdll");
        let outcome = evaluation.outcome(id);
        assert_eq!((outcome.verdict, outcome.severity), (expected, severity), "{start:?}");
    }
    check("CS19", Given::default(), "ntdll app", No, Reason::NoThreadStart);
    // A runtime starts threads in its own process.
    for (has_runtime, is_remote, severity) in [
        (Some(true), false, Severity::Low),
        (Some(true), true, Severity::High),
        (Some(false), false, Severity::Medium),
        (None, false, Severity::Medium),
    ] {
        let start = Some(start(Code::Unbacked, None, is_remote));
        let event = Event { operation: Operation::ThreadCreate, start, ..Event::OTHER };
        let process = Process { has_runtime, ..Process::UNKNOWN };
        let evaluation = evaluated(&mut detector, Given { event, process, ..Given::default() }, "");
        let outcome = evaluation.outcome(id);
        assert_eq!((outcome.verdict, outcome.severity), (Verdict::Yes, severity), "{has_runtime:?}");
        let is_lowered = severity == Severity::Low;
        assert_eq!(outcome.reasons.has(Reason::RuntimeLoaded), is_lowered, "{has_runtime:?}");
    }
}

#[test]
fn kernel_frames_outside_of_drivers_are_found() {
    let given = Given::default();
    for (stack, expected, reason) in [
        ("K K! K ntdll app", Yes(Severity::High, 1), Reason::KernelUnbacked),
        ("K K ntdll app", No, Reason::KernelBacked),
        ("ntdll app", No, Reason::NoKernelFrames),
        ("K K? ntdll app", Undetermined, Reason::FrameUnknown),
    ] {
        check("CS23", given, stack, expected, reason);
    }
    let without = Given { kernel: Part::Missing(Gap::NotRecorded), ..given };
    check("CS23", without, "ntdll app", Undetermined, Reason::StackMissing);
}

#[test]
fn handles_to_lsass_are_evaluated_by_the_stack() {
    let lsass = r"C:\Windows\System32\lsass.exe";
    for (given, stack, expected, reason) in [
        (
            opening(lsass, Some(0x1010)),
            "ntdll kernelbase app kernel32 ntdll",
            Yes(Severity::High, 2),
            Reason::CallerUnusual,
        ),
        (opening(lsass, Some(0x1010)), "app kernel32 ntdll", Yes(Severity::High, 0), Reason::WithFinding),
        (
            opening(lsass, Some(0x1010)),
            "ntdll kernelbase ! kernel32 ntdll",
            Yes(Severity::High, 2),
            Reason::WithFinding,
        ),
        // The code may be the runtime's, and so may the handle.
        (
            opening(lsass, Some(0x1010)),
            "ntdll kernelbase ! clr kernel32 ntdll",
            Yes(Severity::Low, 2),
            Reason::WithFinding,
        ),
        (opening(lsass, Some(0x1010)), "ntdll kernelbase installed kernel32 ntdll", No, Reason::CallerUsual),
        (opening(lsass, Some(0x1010)), "ntdll kernelbase rpcrt4 kernel32 ntdll", No, Reason::CallerUsual),
        (opening(lsass, Some(0x1000)), "ntdll kernelbase app kernel32 ntdll", No, Reason::AccessHarmless),
        (opening(lsass, None), "ntdll kernelbase app kernel32 ntdll", Undetermined, Reason::AccessUnknown),
        (opening("a.exe", Some(0x1010)), "ntdll kernelbase app kernel32 ntdll", No, Reason::TargetOrdinary),
        (opening("", Some(0x1010)), "ntdll kernelbase app kernel32 ntdll", Undetermined, Reason::NoTarget),
    ] {
        check("CS24", given, stack, expected, reason);
    }
    check("CS24", Given::default(), "ntdll app", No, Reason::NoTarget);
    let lsass = opening(lsass, Some(0x1010));
    let mut own = lsass;
    own.event.target = own.event.target.map(|target| Target { is_other: false, ..target });
    let mut unnamed = lsass;
    unnamed.event.target = None;
    for (given, stack, expected, reason) in [
        // A process may open itself.
        (own, "ntdll kernelbase app kernel32 ntdll", No, Reason::TargetOrdinary),
        (unnamed, "ntdll kernelbase app kernel32 ntdll", Undetermined, Reason::TargetUnknown),
        // Only Windows and hooks are in the stack.
        (lsass, "ntdll kernelbase kernel32 ntdll", No, Reason::CallerUsual),
        (lsass, "ntdll hook kernelbase kernel32 ntdll", No, Reason::CallerUsual),
        (lsass, "ntdll kernelbase rpcrt4 app kernel32 ntdll", Yes(Severity::High, 3), Reason::CallerUnusual),
        (lsass, "ntdll kernelbase jit clr kernel32 ntdll", No, Reason::CallerUsual),
        (lsass, "ntdll kernelbase ? kernel32 ntdll", Undetermined, Reason::FrameUnknown),
        (lsass, "ntdll kernelbase bare kernel32 ntdll", Undetermined, Reason::FrameUnknown),
        // The most severe finding decides.
        (lsass, "ntdll app ! clr kernel32 ntdll", Yes(Severity::High, 1), Reason::WithFinding),
        (lsass, "! app ! clr kernel32 ntdll", Yes(Severity::High, 0), Reason::WithFinding),
    ] {
        check("CS24", given, stack, expected, reason);
    }
}

#[test]
fn tampering_with_images_is_found() {
    let mut detector = detector(Lists::default());
    let paths = ["app", "explorer", "installed"].map(|name| Some(module(&mut detector, name)));
    let [app, explorer, installed] = paths;
    let id = DetectionId::parse("CS30").unwrap();
    for (kind, module, reason, severity) in [
        (TamperingKind::Replaced, app, Reason::ImageReplaced, Severity::High),
        // Hollowed processes usually are programs of Windows.
        (TamperingKind::Replaced, explorer, Reason::ImageReplaced, Severity::High),
        (TamperingKind::Locked, app, Reason::ImageLocked, Severity::High),
        (TamperingKind::Unknown, None, Reason::TamperingUnnamed, Severity::High),
        (TamperingKind::Replaced, installed, Reason::ImageReplaced, Severity::Medium),
    ] {
        let event = Event { tampering: Some(Tampering { kind, module }), ..Event::OTHER };
        let outcome = *evaluated(&mut detector, Given { event, ..Given::default() }, "").outcome(id);
        assert_eq!((outcome.verdict, outcome.severity), (Verdict::Yes, severity), "{kind:?}");
        assert!(outcome.reasons.has(reason), "{kind:?}");
        assert_eq!(outcome.reasons.has(Reason::ProgramInstalled), severity == Severity::Medium);
    }
    check("CS30", Given::default(), "ntdll app", No, Reason::NoTampering);
}
