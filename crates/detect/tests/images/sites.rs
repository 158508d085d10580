//! Return addresses: CS11, CS12, CS13, CS16.

use stackhound_detect::{DetectionId, Entry, LiveFrame, Services, SiteBytes};

use crate::made::hex;
use crate::world::{World, line};

fn check(world: &mut World, id: &str, rows: &[(&str, &str)]) {
    let id = DetectionId::parse(id).expect("a detection");
    for (stack, expected) in rows {
        let frames = world.frames(stack);
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        assert_eq!(line(evaluation.outcome(id)), *expected, "{} {stack}", id.name());
    }
}

#[test]
fn return_addresses_without_a_call_are_found() {
    check(
        &mut World::without(&[]),
        "CS11",
        &[
            ("ntdll+1014 base+100a app+1149 root", "no calls-precede"),
            ("ntdll+1014 ntdll+1209 app+11c6 root", "no calls-precede"),
            ("ntdll+1014 app+172a app+1732 root", "no calls-precede"),
            // Where the kernel was entered, where it returned to user code, where it interrupted
            // code, and the last frame
            ("ntdll+1014 app+100a K ntdll+1034 app+104a root", "no calls-precede"),
            ("ntdll+1209 ntdll+1245 app+1742 root", "no calls-precede"),
            ("app+1742* base+100a root", "no calls-precede"),
            ("ntdll+1014 app+1742", "no calls-precede"),
            ("ntdll+1014 ! app+1742 root", "no calls-precede"),
            ("ntdll+1014", "no calls-precede"),
            ("ntdll+1014 base+100a app+1742 root", "yes medium no-call-before @2"),
            ("ntdll+1014 app+1004 app+100a root", "yes medium no-call-before @1"),
            ("ntdll+1014 app+1005 app+1010 root", "yes high no-call-before+several-without-call @1"),
            (
                "ntdll+1014 app+1702 base+1003 app+100a root",
                "yes high no-call-before+several-without-call @1",
            ),
            ("ntdll+1014 app+1712 gone+1234 root", "yes medium no-call-before @1 -image_bytes"),
            (
                "ntdll+1014 app+1812 bad+1234 app+1842 root",
                "yes high no-call-before+several-without-call @1 -image_bytes",
            ),
            ("ntdll+1014 wow64+10 ntdll32+100c~ app32+10c2~ root", "undetermined narrow-stack"),
            ("ntdll+1014 wow64+10 ntdll32+100c~ app32+1006~ root", "no calls-precede"),
            ("ntdll+1014 gone+1234 root", "undetermined image-missing -image_bytes"),
            ("ntdll+1014 bad+1234 root", "undetermined image-unreadable -image_bytes"),
            ("ntdll+1014 arm+1100 root", "undetermined machine-unsupported"),
            ("ntdll+1014 packed+1800 root", "undetermined no-bytes-in-file -memory_bytes"),
            ("ntdll+1014 app+ffe50747 root", "undetermined top-outside-module -stack"),
        ],
    );
    // Its image decides whether ntdll.dll was called or interrupted.
    check(
        &mut World::without(&["ntdll"]),
        "CS11",
        &[
            ("ntdll+1209 ntdll+1245 app+1742 root", "undetermined image-missing -image_bytes"),
            ("ntdll+1014 app+1742 base+100a base+100a", "yes medium no-call-before @1"),
        ],
    );
}

/// Memory decides if there is no file, and can have a call that the file does not have.
#[test]
fn calls_and_gadgets_in_memory_are_found() {
    let mut world = World::without(&[]);
    let none = "90".repeat(16);
    let call = format!("{}e800000000", "90".repeat(11));
    for (stack, before, after, calls, gadgets) in [
        ("gone+1234", &call, &none, "no calls-precede", "no no-gadget"),
        ("gone+1234", &none, &none, "yes medium no-call-before @1", "no no-gadget"),
        (
            "gone+1234",
            &none,
            &"ff23".repeat(8),
            "yes medium no-call-before @1",
            "yes high returns-to-gadget @1",
        ),
        ("app+1742", &call, &none, "no calls-precede", "no no-gadget"),
        ("app+1742", &none, &none, "yes medium no-call-before @1", "no no-gadget"),
        ("app+1742", &call, &"41ff27c3".repeat(4), "no calls-precede", "yes high returns-to-gadget @1"),
    ] {
        let frames = world.frames(&format!("ntdll+1014 {stack} root"));
        let bytes = |text: &str| -> [u8; 16] { hex(text).try_into().expect("16 bytes") };
        let read = SiteBytes { before: bytes(before), after: bytes(after) };
        world.live = vec![LiveFrame::default(), LiveFrame { bytes: Some(read), ..LiveFrame::default() }];
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        for (id, expected) in [("CS11", calls), ("CS12", gadgets)] {
            let outcome = evaluation.outcome(DetectionId::parse(id).expect("a detection"));
            assert_eq!(line(outcome), expected, "{id} {stack} {before} {after}");
        }
    }
}

#[test]
fn gadgets_are_found() {
    check(
        &mut World::without(&[]),
        "CS12",
        &[
            ("ntdll+1014 base+100a app+1149 root", "no no-gadget"),
            // Common after a call: the end of a function, a jump through a table
            ("ntdll+1014 base+100a app+1732 root", "no no-gadget"),
            ("ntdll+1014 base+100a app+173a root", "no no-gadget"),
            ("ntdll+1014 base+100a app+1742 root", "no no-gadget"),
            ("ntdll+1014 wow64+10 ntdll32+100c~ app32+10e2~ root", "no no-gadget"),
            ("app+1702* base+100a root", "no no-gadget"),
            ("ntdll+1014 base+100a app+1702 root", "yes high returns-to-gadget @2"),
            ("ntdll+1014 app+170a root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+1712 root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+171a app+100a root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+1722 root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+172a root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+174a root", "yes high returns-to-gadget @1"),
            ("ntdll+1014 app+1752 gone+1000 root", "yes high returns-to-gadget @1 -image_bytes"),
            ("ntdll+1014 app+1702", "yes high returns-to-gadget @1"),
            ("ntdll+1014 wow64+10 ntdll32+100c~ app32+10d2~ root", "yes high returns-to-gadget @3"),
            ("ntdll+1014 gone+1702 root", "undetermined image-missing -image_bytes"),
            ("ntdll+1014 bad+1702 root", "undetermined image-unreadable -image_bytes"),
            ("ntdll+1014 arm+1100 root", "undetermined machine-unsupported"),
            ("ntdll+1014 packed+1800 root", "undetermined no-bytes-in-file -memory_bytes"),
        ],
    );
}

#[test]
fn return_addresses_outside_of_functions_are_found() {
    check(
        &mut World::without(&[]),
        "CS13",
        &[
            ("ntdll+1014 base+100a app+1149 root", "no inside-functions"),
            ("ntdll+1014 ntdll+1209 app+1946 root", "no inside-functions"),
            // After a call that never returns, a frame of the next function begins
            ("ntdll+1014 base+100a app+1885 root", "no inside-functions"),
            ("ntdll+1014 K ntdll+1034 app+104a root", "no inside-functions"),
            ("ntdll+1014 base+100a app+1802", "no inside-functions"),
            ("app+1802* base+100a root", "no inside-functions"),
            ("ntdll+1014 app+1802 root", "yes low outside-functions @1"),
            ("ntdll+1014 app+1812 root", "yes medium outside-functions @1"),
            ("ntdll+1014 app+1802 app+1812 root", "yes medium outside-functions @2"),
            ("ntdll+1014 base+100a app+1840 root", "yes medium at-function-start @2"),
            ("ntdll+1014 base+100a app+7008 root", "yes medium outside-code @2"),
            ("ntdll+1014 app+800 app+100a root", "yes medium outside-code @1"),
            ("ntdll+1014 app+1812 gone+1000 root", "yes medium outside-functions @1 -image_bytes"),
            ("ntdll+1014 runtime+1812 root", "undetermined runtime-in-stack -unwind_data"),
            ("ntdll+1014 tableless+1002 root", "undetermined no-unwind-data -unwind_data"),
            (
                "ntdll+1014 wow64+10 ntdll32+100c~ app32+1006~ root",
                "undetermined machine-unsupported -unwind_data",
            ),
            ("ntdll+1014 packed+1800 root", "undetermined no-bytes-in-file -memory_bytes"),
            ("ntdll+1014 gone+1000 root", "undetermined image-missing -image_bytes"),
            ("ntdll+1014 bad+1000 root", "undetermined image-unreadable -image_bytes"),
            ("ntdll+1014 arm+1100 root", "undetermined machine-unsupported"),
        ],
    );
}

#[test]
fn calls_of_other_functions_are_found() {
    check(
        &mut World::without(&[]),
        "CS16",
        &[
            // To the function above: directly, in its second chunk, through a tail call, through a
            // stub
            ("ntdll+1014 base+100a app+1486 app+1149 root", "no links-hold"),
            ("ntdll+1014 base+100a app+1942 app+13c9 root", "no links-hold"),
            ("ntdll+1014 base+100a app+1626 app+1349 root", "no links-hold"),
            ("ntdll+1014 ntdll+1209 app+11c6 root", "no links-hold"),
            // Imports, registers and pointers can lead anywhere
            ("ntdll+1014 app+1089 root", "no links-hold"),
            ("ntdll+1034 app+10c9 root", "no links-hold"),
            ("ntdll+1014 base+100a app+1189 root", "no links-hold"),
            ("ntdll+1014 app+1626 app+11c6 root", "no links-hold"),
            // If the function is not known, it cannot differ
            ("ntdll+1014 app+1802 app+1149 root", "no links-hold"),
            ("ntdll+1014 hook+11c6 app+1149 root", "no links-hold"),
            ("ntdll+1014 ! app+1149 root", "no links-hold"),
            ("app+1480* app+1149 root", "no links-hold"),
            ("ntdll+1014 base+100a app+1626 app+1149 root", "yes high link-broken @3"),
            ("ntdll+1014 app+1486 app+1349 root", "yes high link-broken @2"),
            ("ntdll+1014 app+100a app+13c9 app+11c6 root", "yes high link-broken @2"),
            ("ntdll+1034 ntdll+1209 app+11c6 root", "yes high link-broken @1"),
            ("ntdll+1283 ntdll+1209 app+11c6 root", "yes high link-broken @1"),
            ("ntdll+1014 other+1486 app+1149 root", "yes medium link-broken @2"),
            ("ntdll+1014 base+100a app+1149 gone+1234 root", "yes medium link-broken @2 -image_bytes"),
            ("ntdll+1014 gone+1234 root", "undetermined image-missing -image_bytes"),
            ("ntdll+1014 bad+1234 root", "undetermined image-unreadable -image_bytes"),
            ("ntdll+1014 arm+1100 root", "undetermined machine-unsupported"),
            (
                "ntdll+1014 wow64+10 ntdll32+100c~ app32+1045~ root",
                "undetermined machine-unsupported -unwind_data",
            ),
            ("ntdll+1014 packed+1800 root", "undetermined no-bytes-in-file -memory_bytes"),
        ],
    );
}
