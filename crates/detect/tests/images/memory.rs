//! Memory of images (CS18), and the service number of a stub in memory (CS03).

use stackhound_detect::{DetectionId, Entry, LiveFrame, Memory, Services, SiteBytes};

use crate::program;
use crate::world::{World, files, line, path};

/// The bytes of a file around an address in its code.
fn of_file(name: &str, rva: usize) -> SiteBytes {
    let bytes = files().remove(path(name)).expect("a file");
    let at = 0x400 + rva - 0x1000;
    SiteBytes {
        before: bytes[at - 16..at].try_into().unwrap(),
        after: bytes[at..at + 16].try_into().unwrap(),
    }
}

fn read(bytes: SiteBytes) -> LiveFrame {
    LiveFrame { bytes: Some(bytes), ..LiveFrame::default() }
}

fn changed(mut bytes: SiteBytes, at: usize) -> SiteBytes {
    if at < 16 {
        bytes.before[at] ^= 0x5a
    } else {
        bytes.after[at - 16] ^= 0x5a
    };
    bytes
}

#[test]
fn changed_code_is_found() {
    let app = || of_file("app", 0x104a);
    let ntdll = || of_file("ntdll", 0x1014);
    // The loader relocates the pointer at 0x1a10.
    let adjusted = || of_file("app", 0x1a18);
    for (stack, is_original, bytes, expected) in [
        ("app+104a", Some(true), None, "no pages-original"),
        ("app+104a", Some(true), Some(changed(app(), 3)), "no pages-original"),
        ("app+104a", None, Some(app()), "no pages-original"),
        ("app+1a18", None, Some(adjusted()), "no pages-original"),
        ("app+1a18", None, Some(changed(adjusted(), 8)), "no pages-original"),
        ("app+1a18", None, Some(changed(adjusted(), 15)), "no pages-original"),
        ("!", None, None, "no pages-original"),
        ("app+104a", Some(false), None, "yes high page-changed @0"),
        ("app+104a", Some(false), Some(app()), "yes medium page-changed @0"),
        ("app+104a", Some(false), Some(changed(app(), 0)), "yes high page-changed+bytes-differ @0"),
        ("app+104a", None, Some(changed(app(), 31)), "yes high bytes-differ @0"),
        ("app+1a18", None, Some(changed(adjusted(), 16)), "yes high bytes-differ @0"),
        ("app+1a18", None, Some(changed(adjusted(), 7)), "yes high bytes-differ @0"),
        // Pages of these modules are often modified
        ("ntdll+1014", Some(false), None, "yes medium page-changed @0"),
        ("ntdll+1014", Some(false), Some(ntdll()), "yes low page-changed @0"),
        ("ntdll+1014", Some(false), Some(changed(ntdll(), 20)), "yes high page-changed+bytes-differ @0"),
        ("gone+1234", Some(false), None, "yes high page-changed @0"),
        ("gone+1234", None, Some(app()), "undetermined image-missing -image_bytes"),
        ("bad+1234", None, Some(app()), "undetermined image-unreadable -image_bytes"),
        ("arm+1100", None, Some(app()), "undetermined machine-unsupported"),
        ("packed+1800", None, Some(app()), "undetermined no-bytes-in-file -regions"),
        ("app+104a", None, None, "undetermined memory-unknown -regions -memory_bytes"),
    ] {
        let mut world = World::without(&[]);
        let frames = world.frames(stack);
        world.live = vec![LiveFrame { memory: Memory { is_original, ..Memory::UNKNOWN }, bytes }];
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        let outcome = evaluation.outcome(DetectionId::parse("CS18").unwrap());
        assert_eq!(line(outcome), expected, "{stack} {is_original:?} {bytes:?}");
    }
}

#[test]
fn hooks_and_writable_code_are_taken_into_account() {
    let id = DetectionId::parse("CS18").unwrap();
    let mut world = World::without(&[]);
    let same = |name, rva| Some(of_file(name, rva));
    // A frame on a modified page, its bytes in memory, and the answer with a hook in the stack.
    for (location, bytes, expected) in [
        ("app+104a", None, "yes medium page-changed+hook-in-stack @1"),
        ("app+104a", same("app", 0x104a), "yes low page-changed+hook-in-stack @1"),
        ("ntdll+1014", None, "yes low page-changed+hook-in-stack @1"),
        ("ntdll+1014", same("ntdll", 0x1014), "yes low page-changed @1"),
    ] {
        let frames = world.frames(&format!("hook+100a {location}"));
        let page = |is_original| Memory { is_original: Some(is_original), ..Memory::UNKNOWN };
        world.live =
            vec![LiveFrame { memory: page(true), bytes: None }, LiveFrame { memory: page(false), bytes }];
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        assert_eq!(line(evaluation.outcome(id)), expected, "{location}");
    }

    let mut all = files();
    let writable = program::writable(all[path("app")].clone());
    all.insert(path("app"), writable);
    let mut world = World::of(crate::world::binaries(all));
    let frames = world.frames("app+104a");
    world.live = vec![read(changed(of_file("app", 0x104a), 4))];
    let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
    assert_eq!(line(evaluation.outcome(id)), "undetermined no-bytes-in-file -regions");
}

/// The most severe change is reported, and the innermost of equal ones.
#[test]
fn the_most_severe_change_is_reported() {
    let id = DetectionId::parse("CS18").unwrap();
    let mut world = World::without(&[]);
    for (stack, expected) in [
        ("app+104a app+108a", "yes high page-changed @0"),
        ("ntdll+1014 app+104a app+108a", "yes high page-changed @1"),
        ("app+104a ntdll+1014", "yes high page-changed @0"),
        ("ntdll+1014 ntdll+1034", "yes medium page-changed @0"),
    ] {
        let frames = world.frames(stack);
        let memory = Memory { is_original: Some(false), ..Memory::UNKNOWN };
        world.live = vec![LiveFrame { memory, bytes: None }; frames.len()];
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Unknown);
        assert_eq!(line(evaluation.outcome(id)), expected, "{stack}");
    }
}

#[test]
fn changed_service_numbers_are_found() {
    let id = DetectionId::parse("CS03").unwrap();
    // The number is in the first four bytes before the address.
    for (at, expected) in
        [(0, "yes high stub-tampered @0"), (3, "yes high stub-tampered @0"), (4, "no stub-matches")]
    {
        let mut world = World::without(&[]);
        let frames = world.frames("ntdll+1014 app+104a root");
        world.live = vec![read(changed(of_file("ntdll", 0x1014), at))];
        let evaluation = world.evaluate(&frames, Entry::SystemCall, Services::Entered("NtOpenProcess"));
        assert_eq!(line(evaluation.outcome(id)), expected, "{at}");
    }
}
