//! Second copies of ntdll (CS10), ends of stacks (CS14, CS15), dispatchers without names (CS17, CS21, CS22), starts of
//! threads (CS19), the kernel's part (CS23), handles to lsass (CS24).

use stackhound_detect::Gap;
use stackhound_detect::{
    Code, DetectionId, Event, Lists, Load, Operation, Part, Process, Reason, Severity, Start, Verdict,
};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, judge, judged, module, opening, outcome};

#[test]
fn there_is_one_ntdll() {
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
    let mut judge = judge(Lists::default());
    let (ntdll, copy, app) =
        (module(&mut judge, "ntdll"), module(&mut judge, "copy"), module(&mut judge, "app"));
    let id = DetectionId::parse("CS10").unwrap();
    for (module, twin, expected) in [
        (copy, None, Verdict::Yes),
        (ntdll, Some(ntdll), Verdict::Yes),
        (ntdll, None, Verdict::No),
        (app, Some(app), Verdict::No),
    ] {
        let event = Event { load: Some(Load { module, twin }), ..given.event };
        let judgement = judged(&mut judge, Given { event, ..given }, "ntdll kernelbase app kernel32 ntdll");
        assert_eq!(judgement.outcome(id).verdict, expected, "{module:?} {twin:?}");
    }
}

#[test]
fn stacks_end_where_threads_begin() {
    let given = Given::default();
    for (stack, expected, reason) in [
        ("ntdll kernelbase app kernel32 ntdll", No, Reason::RootByModules),
        ("ntdll~ kernelbase~ app~ kernel32~ ntdll~ ntdll~", No, Reason::RootByModules),
        ("ntdll kernelbase app app", Yes(Severity::Medium, 3), Reason::RootIsNone),
        ("ntdll kernelbase app rpcrt4", Yes(Severity::Medium, 3), Reason::RootIsNone),
        ("ntdll~ kernelbase~ app~", Yes(Severity::Low, 2), Reason::NarrowStack),
        ("ntdll kernelbase app ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll kernelbase app kernel32", Undetermined, Reason::RootUnnamed),
        ("ntdll csrsrv ntdll", Undetermined, Reason::RootUnnamed),
        ("ntdll kernelbase app !", Undetermined, Reason::EndsUnbacked),
        ("ntdll kernelbase app jit", Undetermined, Reason::EndsUnbacked),
        ("ntdll kernelbase app ?", Undetermined, Reason::FrameUnknown),
        ("ntdll user32 K K", Undetermined, Reason::StackMissing),
        ("K K", No, Reason::NoUserFrames),
    ] {
        check("CS14", given, stack, expected, reason);
    }
    let csrss = Process { image: r"C:\Windows\System32\csrss.exe", ..Process::UNKNOWN };
    check("CS14", Given { process: csrss, ..given }, "ntdll csrsrv ntdll", No, Reason::RootByModules);
    let limited = Given { limit: Some(4), ..given };
    check("CS14", limited, "ntdll kernelbase app app", Undetermined, Reason::AtLimit);
}

#[test]
fn the_outermost_module_is_where_the_thread_started() {
    let mut judge = judge(Lists::default());
    let image = |judge: &mut _, name| Code::Image(module(judge, name), 0x10);
    let (app, other, rpcrt4) =
        (image(&mut judge, "app"), image(&mut judge, "other"), image(&mut judge, "rpcrt4"));
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
    ] {
        let process = Process { thread_start: start, ..Process::UNKNOWN };
        let judgement = judged(&mut judge, Given { process, ..Given::default() }, stack);
        assert_eq!(judgement.outcome(id).verdict, expected, "{start:?} {stack}");
    }
}

#[test]
fn calls_that_nobody_asks_for_are_proxied() {
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
fn threads_start_in_code_of_their_process() {
    let mut judge = judge(Lists::default());
    let (kernelbase, kernel32, app) =
        (module(&mut judge, "kernelbase"), module(&mut judge, "kernel32"), module(&mut judge, "app"));
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
        // A function of one's own can be called so.
        (start(Code::Image(app, 0x10), Some("LoadLibraryW"), true), Verdict::No, Severity::Info),
        (start(Code::Image(app, 0x10), None, false), Verdict::No, Severity::Info),
        (start(Code::Compiled("clr"), None, true), Verdict::No, Severity::Info),
        (start(Code::Unknown, None, true), Verdict::Undetermined, Severity::High),
        (kernel, Verdict::No, Severity::Info),
    ] {
        let event = Event { operation: Operation::ThreadCreate, start: Some(start), ..Event::OTHER };
        let judgement = judged(&mut judge, Given { event, ..Given::default() }, "ntdll app kernel32 ntdll");
        let outcome = judgement.outcome(id);
        assert_eq!((outcome.verdict, outcome.severity), (expected, severity), "{start:?}");
    }
    check("CS19", Given::default(), "ntdll app", No, Reason::NoThreadStart);
}

#[test]
fn kernel_frames_lie_in_drivers() {
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
fn handles_to_lsass_are_weighed_by_the_stack() {
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
        // It may be the runtime's code, so it may be the runtime's handle.
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
    assert_eq!(outcome("CS24", Given::default(), "ntdll app").verdict, Verdict::No);
}
