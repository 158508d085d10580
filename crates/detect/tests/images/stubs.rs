//! The stubs through which the kernel was entered: CS03, CS04, CS05.

use stackhound_detect::{DetectionId, Entry, Services};

use crate::world::{World, line};

fn check(world: &mut World, id: &str, rows: &[(&str, Entry, &str, &str)]) {
    let id = DetectionId::parse(id).expect("a detection");
    for (stack, entry, service, expected) in rows {
        let frames = world.frames(stack);
        let names: Vec<Box<str>> = service.split('|').map(Into::into).collect();
        let services = match names.as_slice() {
            [name] if name.is_empty() => Services::Unknown,
            [name] => Services::Entered(name),
            names => Services::OneOf(names),
        };
        let evaluation = world.evaluate(&frames, *entry, services);
        assert_eq!(line(evaluation.outcome(id)), *expected, "{} {stack} {entry:?} {service}", id.name());
    }
}

use Entry::{Interrupt, SystemCall, Unknown};

const OPEN: &str = "NtOpenProcess";

#[test]
fn stubs_of_other_services_are_found() {
    check(
        &mut World::without(&[]),
        "CS03",
        &[
            // The stub of the service, by both names, and through the other system-call instruction
            ("ntdll+1014 base+100a root", SystemCall, OPEN, "no stub-matches"),
            ("ntdll+1014 base+100a root", SystemCall, "ZwOpenProcess", "no stub-matches"),
            ("ntdll+1017 base+100a root", SystemCall, OPEN, "no stub-matches"),
            ("ntdll+1034 app+104a root", SystemCall, "NtClose", "no stub-matches"),
            ("ntdll+1014 app+100a root", SystemCall, "NtClose|NtOpenProcess", "no stub-matches"),
            ("ntdll+1014 app+100a root", Unknown, OPEN, "no stub-matches"),
            ("wow64+1234 ntdll32+100c~ app32+1006~", SystemCall, OPEN, "no stub-matches"),
            // The stub of another service
            ("ntdll+1034 base+100a root", SystemCall, OPEN, "yes high stub-differs @0"),
            ("ntdll+1037 base+100a root", SystemCall, OPEN, "yes high stub-differs @0"),
            ("ntdll+1054 app+1109 root", SystemCall, "NtOpenThread", "yes high stub-differs @0"),
            ("ntdll+1074 ! root", SystemCall, OPEN, "yes high stub-differs @0"),
            ("ntdll+1074 app+1109 root", Unknown, OPEN, "yes high stub-differs @0"),
            (
                "ntdll+1034 app+1109 root",
                SystemCall,
                "NtOpenProcess|NtDuplicateObject",
                "yes high stub-cannot-cause @0",
            ),
            // The WoW64 layer may call other services
            ("wow64+1234 ntdll32+102c~ app32+1006~", SystemCall, OPEN, "undetermined stub-differs"),
            // Not in a stub
            ("app+100a root", SystemCall, OPEN, "no no-stub-frame"),
            ("! root", SystemCall, OPEN, "no no-stub-frame"),
            ("", SystemCall, OPEN, "no no-user-frames"),
            ("ntdll+1034 root", Interrupt, OPEN, "no no-system-call"),
            ("ntdll+1283 base+100a root", SystemCall, OPEN, "undetermined site-unknown"),
            ("ntdll+1094 base+100a root", SystemCall, OPEN, "undetermined stub-changed"),
            ("ntdll+1205 base+100a root", Unknown, OPEN, "undetermined entry-unknown -kernel_entry"),
            ("ntdll+ffe50747 base+100a root", SystemCall, OPEN, "undetermined top-outside-module -stack"),
            ("? root", SystemCall, OPEN, "undetermined top-unknown -modules"),
            // The service is not known
            ("ntdll+1014 base+100a root", SystemCall, "", "undetermined service-unknown -service"),
        ],
    );
    check(
        &mut World::without(&["ntdll"]),
        "CS03",
        &[
            ("ntdll+1034 base+100a root", SystemCall, OPEN, "undetermined image-missing -image_bytes"),
            (
                "ntdll+1034 base+100a root",
                SystemCall,
                "",
                "undetermined image-missing+service-unknown -image_bytes -service",
            ),
        ],
    );
}

#[test]
fn system_calls_outside_of_stubs_are_found() {
    check(
        &mut World::without(&[]),
        "CS04",
        &[
            ("ntdll+1014 base+100a root", SystemCall, OPEN, "no site-is-stub"),
            ("ntdll+1017 base+100a root", SystemCall, OPEN, "no site-is-stub"),
            ("ntdll+1034 app+1109 root", SystemCall, OPEN, "no site-is-stub"),
            ("ntdll+1014 ! root", Unknown, "", "no site-is-stub"),
            ("wow64+1234 ntdll32+100c~ app32+1006~", SystemCall, OPEN, "no site-is-stub"),
            ("ntdll+1014 wow64+12 ntdll32+102c~ app32+1006~", SystemCall, OPEN, "no site-is-stub"),
            // The kernel returns to an address before the stub
            ("ntdll32+1104 ntdll32+100c app32+1006", SystemCall, OPEN, "no site-is-stub"),
            // A `syscall` in no stub, in both bitnesses; code without one; no code
            ("ntdll+1283 base+100a root", SystemCall, OPEN, "yes medium site-unknown @0"),
            ("ntdll+1283 ! root", SystemCall, "", "yes medium site-unknown @0"),
            ("wow64+1234 ntdll32+1204~ app32+1006~", SystemCall, OPEN, "yes medium site-unknown @1"),
            (
                "ntdll+1209 base+100a root",
                SystemCall,
                OPEN,
                "yes medium no-system-call-before+site-unknown @0",
            ),
            (
                "ntdll+1018 base+100a root",
                SystemCall,
                OPEN,
                "yes medium no-system-call-before+site-unknown @0",
            ),
            ("ntdll+7010 base+100a root", SystemCall, OPEN, "yes medium site-outside-code @0"),
            ("app+100a root", SystemCall, OPEN, "no no-stub-frame"),
            ("ntdll+1283 root", Interrupt, OPEN, "no no-system-call"),
            // Not conclusive
            ("ntdll+1300", SystemCall, "", "undetermined no-system-call-before"),
            ("ntdll+1094 base+100a root", SystemCall, OPEN, "undetermined stub-changed"),
            ("ntdll+1283 base+100a root", Unknown, OPEN, "undetermined entry-unknown -kernel_entry"),
            ("ntdll+90000 base+100a root", SystemCall, OPEN, "undetermined top-outside-module -stack"),
        ],
    );
    check(
        &mut World::without(&["ntdll"]),
        "CS04",
        &[("ntdll+1014 base+100a root", SystemCall, OPEN, "undetermined image-missing -image_bytes")],
    );
}

#[test]
fn callers_of_private_stubs_are_found() {
    check(
        &mut World::without(&[]),
        "CS05",
        &[
            // Imports: called, through a thunk, through a thunk of a thunk; the target of other
            // imports is not known
            ("ntdll+1014 app+100a root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1014 app+1089 root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1014 app+10c9 root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1034 app+1209 root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1034 app+124a root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1014 base+100a app+1109 root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1014 ntdll+1209 app+1109 root", SystemCall, OPEN, "no caller-native"),
            ("ntdll32+100c app32+1006", SystemCall, OPEN, "no callee-matches"),
            ("ntdll32+1104 ntdll32+100c app32+1006", SystemCall, OPEN, "no callee-matches"),
            // Private stubs: through a register, a pointer, the stack; and private code that leads
            // nowhere
            ("ntdll+1014 app+1109 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1034 app+12c9 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1034 app+1309 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1014 app+1389 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1014 app+1149 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1283 app+1109 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1014 app+1109 root", Unknown, OPEN, "yes high callee-differs @1"),
            // An import of another service
            ("ntdll+1034 app+100a root", SystemCall, OPEN, "yes high callee-other @1"),
            ("ntdll+1014 app+1209 root", SystemCall, OPEN, "yes high callee-other @1"),
            // Pointers, also through control-flow checks
            ("ntdll+1014 app+11c6 root", SystemCall, OPEN, "undetermined callee-indirect"),
            ("ntdll+1014 app+1189 root", SystemCall, OPEN, "undetermined callee-indirect"),
            ("ntdll+1014 app+1289 root", SystemCall, OPEN, "undetermined callee-indirect"),
            ("ntdll+1014 hook+1109 root", SystemCall, OPEN, "undetermined caller-hook+callee-differs"),
            ("ntdll32+100c app32+1045", SystemCall, OPEN, "undetermined narrow-stack+callee-differs"),
            ("ntdll+1014 app+1742 root", SystemCall, OPEN, "undetermined no-call-before"),
            // Without the caller, its module or its image
            ("ntdll+1014", SystemCall, OPEN, "undetermined stack-missing -stack"),
            ("ntdll+1014 ! root", SystemCall, OPEN, "undetermined frame-unbacked -memory_bytes"),
            ("ntdll+1014 jit root", SystemCall, OPEN, "undetermined frame-unbacked -memory_bytes"),
            ("ntdll+1014 ? root", SystemCall, OPEN, "undetermined frame-unknown -modules"),
            ("ntdll+1014 gone+1109 root", SystemCall, OPEN, "undetermined image-missing -image_bytes"),
            ("ntdll+1014 bad+1109 root", SystemCall, OPEN, "undetermined image-unreadable -image_bytes"),
            ("ntdll+1014 arm+1100 root", SystemCall, OPEN, "undetermined machine-unsupported"),
            ("ntdll+1014 packed+1800 root", SystemCall, OPEN, "undetermined no-bytes-in-file"),
            ("ntdll+1209 app+1109 root", Unknown, OPEN, "undetermined entry-unknown -kernel_entry"),
            ("app+1109 root", SystemCall, OPEN, "no no-stub-frame"),
            ("ntdll+1014 app+1109 root", Interrupt, OPEN, "no no-system-call"),
        ],
    );
    check(
        &mut World::without(&["ntdll"]),
        "CS05",
        &[
            ("ntdll+1014 app+1109 root", SystemCall, OPEN, "yes high callee-differs @1"),
            ("ntdll+1014 app+100a root", SystemCall, OPEN, "no callee-matches"),
            ("ntdll+1014 app+1109 root", Unknown, OPEN, "undetermined image-missing -image_bytes"),
        ],
    );
}
