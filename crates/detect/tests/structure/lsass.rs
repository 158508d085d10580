//! Memory dumps of LSASS (CS25), and handles with all rights (CS24).

use stackhound_detect::{Process, Reason, Severity, Target};

use crate::notation::Expected::{No, Undetermined, Yes};
use crate::notation::{Given, check, opening};

const LSASS: &str = r"C:\Windows\System32\lsass.exe";
const ALL: Option<u32> = Some(0x1f_ffff);

#[test]
fn libraries_that_write_dumps_are_found() {
    let high = |frame| Yes(Severity::High, frame);
    for (given, stack, expected, reason) in [
        (opening(LSASS, ALL), "ntdll kernel32 dbgcore app kernel32 ntdll", high(2), Reason::DumpLibrary),
        (opening(LSASS, Some(0x1410)), "ntdll kernelbase comsvcs rundll32", high(2), Reason::DumpLibrary),
        // Tools bring copies of the library.
        (opening(LSASS, ALL), "ntdll kernelbase own_dbghelp app", high(2), Reason::DumpLibrary),
        (
            opening(LSASS, ALL),
            "ntdll hook ntdll kernel32 hook dbgcore hook app",
            high(5),
            Reason::DumpLibrary,
        ),
        // A runtime does not lower it.
        (
            opening(LSASS, ALL),
            "ntdll kernel32 dbgcore ni clr !7ff85c2041d4",
            high(2),
            Reason::SensitiveTarget,
        ),
        (opening(LSASS, ALL), "ntdll kernelbase app kernel32 ntdll", No, Reason::NoDumpLibrary),
        (opening(LSASS, Some(0x1000)), "ntdll dbgcore app", No, Reason::AccessHarmless),
        (opening(LSASS, None), "ntdll dbgcore app", Undetermined, Reason::AccessUnknown),
        (opening("a.exe", ALL), "ntdll dbgcore app", No, Reason::TargetOrdinary),
        (opening("", ALL), "ntdll dbgcore app", Undetermined, Reason::NoTarget),
        (opening(LSASS, ALL), "ntdll kernelbase ? app", Undetermined, Reason::FrameUnknown),
        (Given::default(), "ntdll dbgcore app", No, Reason::NoTarget),
    ] {
        check("CS25", given, stack, expected, reason);
    }
    let mut own = opening(LSASS, ALL);
    own.event.target = own.event.target.map(|target| Target { is_other: false, ..target });
    check("CS25", own, "ntdll dbgcore app", No, Reason::TargetOrdinary);
}

#[test]
fn crash_reporters_of_windows_are_lowered() {
    let by = |image| Given { process: Process { image, ..Process::UNKNOWN }, ..opening(LSASS, ALL) };
    let genuine = r"C:\Windows\System32\WerFault.exe";
    let usual = "ntdll kernel32 dbgcore faultrep kernel32 ntdll";
    check("CS25", by(genuine), usual, Yes(Severity::Low, 2), Reason::CrashReporter);
    for (image, stack) in [
        (r"C:\Users\a\WerFault.exe", usual),
        (r"C:\Windows\Temp\WerFault.exe", usual),
        (r"C:\Windows\System32\rundll32.exe", usual),
        // Other code in the genuine program.
        (genuine, "ntdll kernel32 dbgcore ! kernel32 ntdll"),
        (genuine, "ntdll kernel32 dbgcore faultrep app kernel32 ntdll"),
        (genuine, "ntdll kernel32 own_dbghelp faultrep kernel32 ntdll"),
    ] {
        check("CS25", by(image), stack, Yes(Severity::High, 2), Reason::DumpLibrary);
    }
}

#[test]
fn runtimes_do_not_lower_handles_with_all_rights() {
    let low = Yes(Severity::Low, 2);
    let high = Yes(Severity::High, 2);
    for access in [0x1f_0fff, 0x1f_3fff, 0x1f_ffff] {
        let given = opening(LSASS, Some(access));
        check("CS24", given, "ntdll kernelbase ! clr kernel32 ntdll", high, Reason::AllRights);
        check("CS24", given, "ntdll kernelbase !7ff85c2041d4", high, Reason::AllRights);
        check("CS24", given, "ntdll kernelbase jit clr kernel32 ntdll", high, Reason::AllRights);
        // The trampoline of a hook is not the code of a runtime.
        let hooked = "ntdll ! kernelbase rpcrt4 kernel32 ntdll";
        check("CS24", given, hooked, Yes(Severity::Low, 1), Reason::WithFinding);
        check("CS24", given, "ntdll kernelbase rpcrt4 kernel32 ntdll", No, Reason::CallerUsual);
    }
    let given = opening(LSASS, Some(0x1010));
    check("CS24", given, "ntdll kernelbase ! clr kernel32 ntdll", low, Reason::WithFinding);
    check("CS24", given, "ntdll kernelbase jit clr kernel32 ntdll", No, Reason::CallerUsual);
}
