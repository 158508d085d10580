//! Detections that use names of functions: roots (CS14), dispatchers (CS17, CS21, CS22) and start
//! addresses (CS19).

use stackhound_detect::{DetectionId, Entry, Event, Input, Reason, Severity, Start, Verdict};
use stackhound_frames::{Code, Operation};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check_by, evaluate_with_names, evaluated, module, opening, start};

#[test]
fn roots_are_recognized_by_function() {
    let mut detector = evaluate_with_names();
    let given = Given::default();
    let interrupted = Given { event: Event { entry: Entry::Interrupt, ..Event::OTHER }, ..given };
    for (given, stack, expected, reason) in [
        (given, "ntdll app kernel32 ntdll!RtlUserThreadStart", No, Reason::RootFound),
        (given, "ntdll app kernel32!BaseThreadInitThunk", No, Reason::RootFound),
        (given, "ntdll app ntdll!Other", Yes(Severity::Medium, 2), Reason::RootIsNone),
        (given, "ntdll app kernel32!Other", Yes(Severity::Medium, 2), Reason::RootIsNone),
        // With the modules alone, this would be a root.
        (given, "ntdll app kernel32 ntdll!Other", Yes(Severity::Medium, 3), Reason::RootIsNone),
        (given, "ntdll~ app~ ntdll!Other~", Yes(Severity::Low, 2), Reason::Stack32),
        (interrupted, "ntdll app ntdll!Other", Yes(Severity::Low, 2), Reason::InterruptedWalk),
        // The name does not count in a library that is not part of Windows.
        (given, "ntdll app app!RtlUserThreadStart", Yes(Severity::Medium, 2), Reason::RootIsNone),
        (given, "ntdll app kernel32", Undetermined, Reason::RootUnnamed),
    ] {
        check_by(&mut detector, "CS14", given, stack, expected, reason);
    }
}

#[test]
fn dispatchers_are_found_by_name() {
    let mut detector = evaluate_with_names();
    let opening = opening("a.exe", None);
    let of = |operation| Given { event: Event { operation, ..opening.event }, ..opening };
    let (loading, waiting) = (of(Operation::ImageLoad), of(Operation::Wait));
    let pooled = "ntdll!Other kernelbase ntdll!TppWorkerThread kernel32 ntdll!RtlUserThreadStart";
    let timed = "ntdll!Other kernelbase ntdll!RtlpTpTimerCallback ntdll!TppWorkerThread kernel32 ntdll!Other";
    for (id, given, stack, expected, reason) in [
        ("CS17", opening, pooled, Yes(Severity::Medium, 2), Reason::ProxyPool),
        ("CS17", loading, pooled, Yes(Severity::Medium, 2), Reason::ProxyPool),
        ("CS17", waiting, pooled, No, Reason::NotSensitive),
        ("CS17", opening, timed, Yes(Severity::Medium, 2), Reason::ProxyPool),
        // Only functions that a dispatcher calls count, not its callers or functions of a library
        // above it.
        (
            "CS17",
            opening,
            "ntdll!TppWorkerThread kernel32 kernelbase ntdll!Other kernel32 ntdll!Other",
            No,
            Reason::NoDispatcher,
        ),
        (
            "CS17",
            opening,
            "ntdll!TppWorkerThread kernel32 kernelbase ntdll!TppWorkerThread kernel32 ntdll!Other",
            Yes(Severity::Medium, 3),
            Reason::ProxyPool,
        ),
        (
            "CS17",
            opening,
            "ntdll kernel32 kernelbase ntdll!Other kernel32 ntdll!Other",
            No,
            Reason::NoDispatcher,
        ),
        (
            "CS17",
            opening,
            "ntdll!Other kernel32 kernelbase ntdll!Other kernel32 ntdll",
            Undetermined,
            Reason::FunctionsUnknown,
        ),
        // The pool does not call a library here.
        ("CS17", opening, "ntdll!TppWorkerThread kernelbase ntdll!Other", No, Reason::NoDispatcher),
        ("CS17", opening, "ntdll!Other kernelbase kernel32", No, Reason::NoDispatcher),
        ("CS21", waiting, timed, Yes(Severity::Medium, 2), Reason::WaitInDispatcher),
        ("CS21", waiting, pooled, No, Reason::NoDispatcher),
        ("CS21", opening, timed, No, Reason::NoWait),
        (
            "CS22",
            opening,
            "ntdll!Other app ntdll!RtlDispatchException ntdll!Other app",
            Yes(Severity::Medium, 2),
            Reason::ExceptionHandler,
        ),
        (
            "CS22",
            opening,
            "ntdll app ntdll!RtlDispatchException app",
            Yes(Severity::Medium, 2),
            Reason::ExceptionHandler,
        ),
        ("CS22", opening, "ntdll!Other app ntdll!Other", Undetermined, Reason::NoDispatcher),
        ("CS22", opening, "ntdll app ntdll!Other", Undetermined, Reason::FunctionsUnknown),
        ("CS22", waiting, "ntdll app ntdll!RtlDispatchException app", No, Reason::NotSensitive),
    ] {
        check_by(&mut detector, id, given, stack, expected, reason);
    }
}

#[test]
fn use_of_symbols_is_reported() {
    let mut detector = evaluate_with_names();
    let opening = opening("a.exe", None);
    for (id, stack, used, missing) in [
        ("CS14", "ntdll app ntdll!RtlUserThreadStart", true, false),
        ("CS14", "ntdll app app", false, false),
        ("CS14", "ntdll app ntdll", false, true),
        ("CS17", "ntdll!Other kernelbase ntdll!TppWorkerThread ntdll!Other", true, false),
        ("CS22", "ntdll!Other app ntdll!RtlDispatchException app", true, false),
        ("CS22", "ntdll app ntdll!Other", false, true),
    ] {
        let evaluation = evaluated(&mut detector, opening, stack);
        let outcome = evaluation.outcome(DetectionId::parse(id).expect("a detection"));
        let symbols = (outcome.used.has(Input::Symbols), outcome.missing.has(Input::Symbols));
        assert_eq!(symbols, (used, missing), "{id} of `{stack}`: {outcome:?}");
    }
}

#[test]
fn start_functions_are_found_by_name() {
    let mut detector = evaluate_with_names();
    let names = ["ntdll", "kernelbase", "kernel32", "app", "copy32"];
    let [ntdll, kernelbase, kernel32, app, copy32] = names.map(|name| module(&mut detector, name));
    let id = DetectionId::parse("CS19").expect("a detection");
    let (load, control) = (start("LoadLibraryW"), start("CtrlRoutine"));
    for (module, offset, is_remote, verdict, reason) in [
        (kernel32, load, true, Verdict::Yes, Reason::StartLoadLibrary),
        (kernelbase, load, true, Verdict::Yes, Reason::StartLoadLibrary),
        (ntdll, start("LdrLoadDll"), true, Verdict::Yes, Reason::StartLoadLibrary),
        (kernel32, load, false, Verdict::Yes, Reason::StartLoadLibrary),
        (kernelbase, control, true, Verdict::No, Reason::StartRemoteFunction),
        (kernel32, start("Other"), true, Verdict::No, Reason::StartBacked),
        // Inside the function, not at its start: the function is not known.
        (kernel32, load + 4, true, Verdict::Undetermined, Reason::FunctionsUnknown),
        (kernel32, load + 4, false, Verdict::No, Reason::StartBacked),
        // Libraries outside of the native layer can have a function of the same name.
        (app, load, true, Verdict::No, Reason::StartBacked),
        (copy32, load, true, Verdict::No, Reason::StartBacked),
        (app, 0x10, true, Verdict::No, Reason::StartBacked),
    ] {
        // Sources that name functions report an empty text if they found none.
        for function in [None, Some("")] {
            let code = Code::Image(module, offset);
            let start = Start { address: 0x1000, is_kernel: false, code, function, is_remote };
            let event = Event { operation: Operation::ThreadCreate, start: Some(start), ..Event::OTHER };
            let evaluation = evaluated(&mut detector, Given { event, ..Given::default() }, "");
            let outcome = evaluation.outcome(id);
            assert_eq!(outcome.verdict, verdict, "{start:x?}: {outcome:?}");
            assert!(outcome.reasons.has(reason), "{start:x?}: {outcome:?}");
            let origin = if is_remote { Reason::RemoteStart } else { Reason::LocalStart };
            assert!(outcome.reasons.has(origin), "{start:x?}: {outcome:?}");
            let severity = if is_remote { Severity::High } else { Severity::Medium };
            assert!(verdict == Verdict::No || outcome.severity == severity, "{start:x?}: {outcome:?}");
        }
    }
}
