//! Callbacks from the kernel to user mode (CS26).

use stackhound_detect::{Entry, Event, Input, Reason, Severity};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, check_by, evaluate_with_names, outcome};

#[test]
fn callbacks_outside_of_the_dispatcher_are_found() {
    let given = Given::default();
    for (stack, expected, reason) in [
        // Sysmon shows the kernel frames of a callback.
        ("ntdll app ! K? K? win32u user32 app", Yes(Severity::High, 2), Reason::CallbackOutside),
        ("ntdll kernelbase app K K", Yes(Severity::High, 2), Reason::CallbackOutside),
        ("ntdll kernelbase user32 K K win32u", Yes(Severity::High, 2), Reason::CallbackOutside),
        ("ntdll jit K win32u", Yes(Severity::High, 1), Reason::CallbackOutside),
        // A copy of ntdll.dll is not the dispatcher.
        ("ntdll copy K win32u", Yes(Severity::High, 1), Reason::CallbackOutside),
        // Traces show the stub only. It contains no code that calls.
        ("K ntdll kernelbase ! win32u user32 app", Yes(Severity::High, 3), Reason::CallbackOutside),
        ("ntdll app win32u user32 app", Yes(Severity::High, 1), Reason::CallbackOutside),
        // The second of two callbacks.
        ("ntdll user32 ntdll K win32u ! K win32u app", Yes(Severity::High, 5), Reason::CallbackOutside),
        ("ntdll user32 hook K win32u", Yes(Severity::Low, 2), Reason::HookInStack),
        // Without names, only the module is known.
        ("ntdll user32 ntdll K K win32u user32 app", Undetermined, Reason::FunctionsUnknown),
        ("ntdll user32 ntdll win32u user32 app", Undetermined, Reason::FunctionsUnknown),
        ("ntdll ? K win32u", Undetermined, Reason::FrameUnknown),
        ("ntdll wow64 K win32u", Undetermined, Reason::ThroughWow64),
        // The frames before the first user frame are those of this system call.
        ("K K win32u user32 app", No, Reason::NoCallback),
        ("ntdll kernelbase app kernel32 ntdll", No, Reason::NoCallback),
        ("K K! K ntdll app", No, Reason::NoCallback),
        // 32-bit code follows the frames of the WoW64 layer.
        ("win32u wow64 wow64cpu ntdll win32u~ user32~ app~", No, Reason::NoCallback),
    ] {
        check("CS26", given, stack, expected, reason);
    }
    assert!(outcome("CS26", given, "ntdll user32 ntdll K win32u").missing.has(Input::Symbols));
    let interrupted = Given { event: Event { entry: Entry::Interrupt, ..given.event }, ..given };
    check("CS26", interrupted, "app K win32u", Yes(Severity::High, 0), Reason::CallbackOutside);
}

#[test]
fn names_decide_about_callbacks_in_ntdll() {
    let given = Given::default();
    for (function, expected, reason) in [
        ("KiUserCallbackDispatcher", No, Reason::CallbackDispatched),
        // The stub waited and was interrupted.
        ("RtlDispatchException", No, Reason::CallbackDispatched),
        ("RtlUserThreadStart", No, Reason::CallbackDispatched),
        ("Other", Yes(Severity::Medium, 2), Reason::CallbackOutside),
    ] {
        for call in ["K K win32u user32", "win32u user32"] {
            let stack = format!("ntdll user32 ntdll!{function} {call} app kernel32 ntdll");
            check_by(&mut evaluate_with_names(), "CS26", given, &stack, expected, reason);
        }
    }
}
