//! System-call stubs: of Wine's images, of genuine images as described by the tables in the corpus,
//! and hooked stubs.

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use stackhound_symbols::image::Image;
use stackhound_symbols::stubs::{self, Path, Stub, StubState};
use stackhound_types::Rva;
use support::{ARM64, Pe, Target, X64, X86, hex};

/// The tables from stubs of genuine images: name of a table, then names of services.
fn tables() -> Option<serde_json::Map<String, Value>> {
    let bytes = stackhound_corpus::bytes("symbols/syscalls/stubs-from-pe.json")?;
    let Value::Object(tables) = serde_json::from_slice(&bytes).expect("JSON") else { panic!("an object") };
    Some(tables)
}

/// Number, start, `syscall` instruction, return address.
type Row = (u64, u64, Option<u64>, u64);

/// The content of a table, by name.
fn expected(table: &Value, return_offset: u64) -> BTreeMap<String, Row> {
    let stubs = table["stubs"].as_object().expect("stubs");
    stubs
        .iter()
        .map(|(name, stub)| {
            let (number, start) = (stub["ssn"].as_u64().unwrap(), stub["rva"].as_u64().unwrap());
            (name.clone(), (number, start, stub["syscall_at"].as_u64(), start + return_offset))
        })
        .collect()
}

/// The stubs that were read, by each of their names. All stubs must be intact.
fn found(stubs: &[Stub]) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for stub in stubs {
        let path = stub.path().unwrap_or_else(|| panic!("{stub:?}"));
        let row = (
            stub.number.unwrap().into(),
            stub.start.0.into(),
            path.syscall.map(|rva| rva.0.into()),
            path.return_address.0.into(),
        );
        for name in std::iter::once(&stub.name).chain(&stub.aliases) {
            assert!(rows.insert(name.clone(), row).is_none(), "{name} twice");
        }
    }
    rows
}

#[test]
fn wine_ntdll_is_read_completely() {
    let (Some(tables), Some(bytes)) = (tables(), stackhound_corpus::bytes("symbols/wine/ntdll.dll")) else {
        return;
    };
    let stubs = stubs::read(&Image::parse(&bytes).unwrap()).unwrap();
    let found = found(&stubs);
    assert_eq!(found.len(), 452);
    assert_eq!(found, expected(&tables["wine8"], 20));
    // The rest of the name is the same, and the `Nt` name is the preferred one.
    for stub in &stubs {
        assert!(stub.name.starts_with("Nt"), "{}", stub.name);
        assert!(stub.aliases.iter().all(|alias| alias[2..] == stub.name[2..]), "{stub:?}");
        let path = stub.path().unwrap();
        assert_eq!((path.end.0 - stub.start.0, path.int2e_return), (32, None));
    }
}

#[test]
fn wine_win32u_is_read_completely() {
    let Some(bytes) = stackhound_corpus::bytes("symbols/wine/win32u.dll") else { return };
    let image = Image::parse(&bytes).unwrap();
    let stubs = stubs::read(&image).unwrap();
    assert_eq!(found(&stubs).len(), 276);
    for stub in &stubs {
        let bytes = image.bytes_at(stub.start, 20).unwrap();
        assert_eq!(bytes[..4], hex("4c 8b d1 b8")[..]);
        assert_eq!(stub.number.unwrap().to_le_bytes(), bytes[4..8]);
        let path = stub.path().unwrap();
        assert_eq!(
            (path.syscall, path.return_address),
            (Some(Rva(stub.start.0 + 18)), Rva(stub.start.0 + 20))
        );
    }
}

/// The bytes of a stub with `#` for the number, and the return offsets of `syscall` and `int 2e`.
struct Shape {
    text: &'static str,
    return_offset: u64,
    int2e_offset: Option<u32>,
}

const OLD: Shape = Shape { text: "4c8bd1 b8 # 0f05 c3", return_offset: 10, int2e_offset: None };
const NEW: Shape = Shape {
    text: "4c8bd1 b8 # f604250803fe7f01 7503 0f05 c3 cd2e c3",
    return_offset: 0x14,
    int2e_offset: Some(0x17),
};
const WINE: Shape = Shape {
    text: "4c8bd1 b8 # f604250803fe7f01 7503 0f05 c3 eb01 c3 ff14250010fe7f c3",
    return_offset: 0x14,
    int2e_offset: None,
};
const WOW64: Shape = Shape { text: "b8 # ba 4072304b ffd2 c21800", return_offset: 12, int2e_offset: None };

fn stub_bytes(text: &str, number: u32) -> Vec<u8> {
    let (before, after) = text.split_once('#').unwrap_or((text, ""));
    let number = if text.contains('#') { number.to_le_bytes().to_vec() } else { Vec::new() };
    [hex(before), number, hex(after)].concat()
}

#[test]
fn all_tables_of_genuine_images_match_their_shapes() {
    let Some(tables) = tables() else { return };
    assert_eq!(tables.len(), 12);
    for (table_name, table) in &tables {
        let (machine, shape) = match table_name.as_str() {
            "wine8" => (X64, WINE),
            "7601.17514" | "9600.16384" => (X64, OLD),
            _ if table["machine"] == "0x14c" => (X86, WOW64),
            _ => (X64, NEW),
        };
        let expected = expected(table, shape.return_offset);
        let starts = || expected.values().map(|row| row.1 as u32);
        let (first, last) = (starts().min().unwrap() & !0xfff, starts().max().unwrap());
        let mut code = vec![0xcc; (last - first) as usize + 64];
        let mut exports = Vec::new();
        for (name, (number, start, ..)) in &expected {
            let bytes = stub_bytes(shape.text, *number as u32);
            code[(*start as u32 - first) as usize..][..bytes.len()].copy_from_slice(&bytes);
            exports.push((Some(name.as_str()), Target::Rva(*start as u32)));
        }
        let bytes = Pe::new(machine).code(first, code).exports(&exports).file();
        let stubs = stubs::read(&Image::parse(&bytes).unwrap()).unwrap();
        assert_eq!(found(&stubs), expected, "{table_name}");
        for stub in &stubs {
            let int2e = stub.path().unwrap().int2e_return.map(|rva| rva.0 - stub.start.0);
            assert_eq!(int2e, shape.int2e_offset, "{table_name}");
        }
    }
}

/// An image with code at 0x1000, exported under these names.
fn image(machine: u16, code: &[u8], names: &[&str]) -> Pe {
    let exports: Vec<_> = names.iter().map(|name| (Some(*name), Target::Rva(0x1000))).collect();
    Pe::new(machine).code(0x1000, code.to_vec()).exports(&exports)
}

fn read(bytes: &[u8]) -> Vec<Stub> {
    stubs::read(&Image::parse(bytes).unwrap()).unwrap()
}

#[test]
fn shapes_of_other_systems() {
    for (machine, text, number, syscall, return_address, int2e) in [
        (X86, "b8 # 8d542404 cd2e c22c00", 0x42, None, 11, Some(11)),
        (X86, "b8 # ba 0003fe7f ffd2 c22c00", 0x42, None, 12, None),
        (X86, "b8 # ba 0003fe7f ff12 c3", 0x42, None, 12, None),
        (X86, "b8 # e803000000 c22c00 8bd4 0f34 c3", 0x42, Some(15), 10, None),
        (X86, "b8 # e801000000 c3 8bd4 0f34 c3", 0x42, Some(13), 10, None),
        (X86, "b8 # 33c9 8d542404 64ff15c0000000 83c404 c22c00", 0x42, None, 18, None),
        (X86, "b8 # b908000000 8d542404 64ff15c0000000 83c404 c3", 0x42, None, 21, None),
        (X86, "b8 # 64ff15c0000000 c22c00", 0x42, None, 12, None),
        // svc #0x55; ret
        (ARM64, "a10a00d4 c0035fd6", 0x55, Some(0), 4, None),
    ] {
        let code = stub_bytes(text, number);
        let stubs = read(&image(machine, &code, &["NtThing", "ZwThing"]).file());
        let location = |offset: u32| Rva(0x1000 + offset);
        let path = Path {
            end: location(code.len() as u32),
            syscall: syscall.map(location),
            return_address: location(return_address),
            int2e_return: int2e.map(location),
        };
        let expected = Stub {
            name: "NtThing".to_owned(),
            aliases: vec!["ZwThing".to_owned()],
            start: Rva(0x1000),
            number: Some(number),
            state: StubState::Intact(path),
        };
        assert_eq!(stubs, [expected], "{text}");
    }
}

#[test]
fn hooked_and_foreign_stubs_are_reported() {
    let base = Pe::new(X64).base();
    let hooked = |number, leads_to| Some((number, StubState::Hooked { leads_to }));
    let foreign = |number| Some((number, StubState::Foreign));
    let pair = ["NtThing", "ZwThing"].as_slice();
    let alone = ["NtThing"].as_slice();
    let tail = "f604250803fe7f01 7503 0f05 c3 cd2e c3";
    for (names, code, expected) in [
        // jmp near: over the whole start, after mov r10, and after mov eax
        (pair, format!("e9 fb0f0000 000000 {tail}"), hooked(None, Some(base + 0x2000))),
        (alone, format!("e9 fbefffff 000000 {tail}"), hooked(None, Some(base))),
        (alone, "e9 fbff ff7f".to_owned(), hooked(None, Some(base + 0x8000_1000))),
        (alone, "4c8bd1 e9 f80f0000 c3".to_owned(), hooked(None, Some(base + 0x2000))),
        (alone, "4c8bd1 b842000000 e9 f30f0000 c3".to_owned(), hooked(Some(0x42), Some(base + 0x2000))),
        (alone, "eb 0e".to_owned(), hooked(None, Some(base + 0x1010))),
        // jmp [rip + 2] followed by the pointer
        (alone, "ff25 02000000 cccc 8877665544332211".to_owned(), hooked(None, Some(0x1122_3344_5566_7788))),
        (alone, "ff25 00000010".to_owned(), hooked(None, None)),
        // mov rax; jmp rax, mov r11; jmp r11, mov rax; push rax; ret, push; mov [rsp + 4]; ret
        (alone, "48b8 8877665544332211 ffe0".to_owned(), hooked(None, Some(0x1122_3344_5566_7788))),
        (alone, "49bb 8877665544332211 41ffe3".to_owned(), hooked(None, Some(0x1122_3344_5566_7788))),
        (alone, "48b8 8877665544332211 50 c3".to_owned(), hooked(None, Some(0x1122_3344_5566_7788))),
        (alone, "68 88776655 c744240444332211 c3".to_owned(), hooked(None, Some(0x1122_3344_5566_7788))),
        // A call, an unknown register, a breakpoint
        (alone, "e8 fb0f0000".to_owned(), hooked(None, Some(base + 0x2000))),
        (alone, "ffe0".to_owned(), hooked(None, None)),
        (alone, "cc 8bd1 b842000000 0f05 c3".to_owned(), hooked(None, None)),
        // xor eax, eax; ret
        (pair, "31c0 c3".to_owned(), foreign(None)),
        // A stub with other code after its number, or with a test of another bit
        (alone, "4c8bd1 b842000000 90 31c0 c3".to_owned(), foreign(Some(0x42))),
        (alone, format!("4c8bd1 b842000000 {}", tail.replace("7f01", "7f02")), foreign(Some(0x42))),
        // Functions with names of services that are not services
        (alone, "31c0 c3".to_owned(), None),
        (&["NtGetTickCount", "ZwGetTickCount"], "8b0425 0000fe7f c3".to_owned(), None),
        (&["NtQuerySystemTime", "ZwQuerySystemTime"], "e9 fb000000".to_owned(), None),
        (&["NtdllDefWindowProc_A"], "ff25 02000000 cccc 8877665544332211".to_owned(), None),
        (&["RtlThing"], "e9 fb0f0000".to_owned(), None),
        // They are hooked if they lead out of the image.
        (
            &["NtQuerySystemTime", "ZwQuerySystemTime"],
            "e9 fbffff0f".to_owned(),
            hooked(None, Some(base + 0x1000_1000)),
        ),
    ] {
        // Functions are in code that is larger than they are.
        let mut bytes = hex(&code);
        bytes.resize(0x100, 0xcc);
        let stubs = read(&image(X64, &bytes, names).file());
        let found = stubs.first().map(|stub| (stub.number, stub.state.clone()));
        assert_eq!(found, expected, "{names:?} {code}");
    }
}

#[test]
fn hooks_of_other_machines() {
    let base = Pe::new(ARM64).base();
    for (machine, code, leads_to) in [
        // b, b backwards, ldr x16 and br, brk
        (ARM64, "00040014", Some(base + 0x2000)),
        (ARM64, "00fcff17", Some(base)),
        (ARM64, "50000058 00021fd6 8877665544332211", Some(0x1122_3344_5566_7788)),
        (ARM64, "000020d4", None),
        (X86, "e9 fb0f0000", Some(0x1000_2000)),
        (X86, "b842000000 ba78563412 ffe2", Some(0x1234_5678)),
        (X86, "68 78563412 c3", Some(0x1234_5678)),
        (X86, "ff25 10100010 000000000000 0000 0000 78563412", Some(0x1234_5678)),
    ] {
        let mut bytes = hex(code);
        bytes.resize(0x100, 0);
        let stubs = read(&image(machine, &bytes, &["NtThing", "ZwThing"]).file());
        assert_eq!(stubs[0].state, StubState::Hooked { leads_to }, "{machine:#x}: {code}");
    }
}

/// If any byte of a stub except for its number is changed, it is no longer intact.
#[test]
fn no_changed_stub_is_intact() {
    for (machine, text) in [(X64, OLD.text), (X64, NEW.text), (X64, WINE.text), (X86, WOW64.text)] {
        let code = stub_bytes(text, 0x55);
        let number = text.find("b8").map(|_| if machine == X64 { 4..8 } else { 1..5 }).unwrap();
        // The value that is moved to edx, and the number of bytes that are freed from the stack,
        // are not fixed.
        let free = if machine == X86 { [6..10, 12..15] } else { [0..0, 0..0] };
        for at in
            (0..code.len()).filter(|at| !number.contains(at) && !free.iter().any(|free| free.contains(at)))
        {
            for bit in 0..8 {
                let mut code = code.clone();
                code[at] ^= 1 << bit;
                let stubs = read(&image(machine, &code, &["NtThing", "ZwThing"]).file());
                assert_eq!(stubs[0].path(), None, "{text}: bit {bit} of byte {at}");
            }
        }
    }
}

proptest! {
    #[test]
    fn any_code_is_read_without_panic(
        code in proptest::collection::vec(any::<u8>(), 1..80),
        machine in prop::sample::select(vec![X86, X64, ARM64]),
        start in prop::sample::select(vec!["", "4c8bd1b8", "b8", "e9", "ff25", "48b8", "68"]),
    ) {
        let code = [hex(start), code].concat();
        let bytes = image(machine, &code, &["NtThing", "ZwThing"]).file();
        let stubs = read(&bytes);
        prop_assert_eq!(stubs.len(), 1);
        if let Some(path) = stubs[0].path() {
            prop_assert!(path.end.0 as usize <= 0x1000 + code.len());
            prop_assert!(path.return_address < path.end);
        }
    }
}
