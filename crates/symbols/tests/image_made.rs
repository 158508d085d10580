//! Generated images, for features that no file of the corpus has, and hostile images.

mod support;

use proptest::prelude::*;
use stackhound_symbols::image::{DebugEntry, Image, ImageError, NoCall};
use stackhound_types::Rva;
use support::{ARM64, DEBUG, EXCEPTION, Pe, Target, X64, X86, hex, words};

/// An image with many features.
fn rich() -> Pe {
    let mut unwind = words(&[0x1000, 0x1010, 0x4000, 0x1010, 0x1020, 0x4004, 0, 0, 0]);
    unwind.truncate(24);
    Pe::new(X64)
        .code(0x1000, hex("e8 00 00 00 00 90 ff d0 c3").repeat(8))
        .data(0x2000, vec![7; 16])
        .table(EXCEPTION, 0x3000, unwind)
        .data(0x4000, [hex("01 00 00 00 21 00 00 00"), words(&[0x1000, 0x1010, 0x4000])].concat())
        .table(DEBUG, 0x5000, debug_directory(0x5000, &[(2, 0, b"RSDS0123456789abcdef\x07\0\0\0a\\b.pdb\0")]))
        .exports(&[
            (Some("NtOne"), Target::Rva(0x1000)),
            (Some("ZwOne"), Target::Rva(0x1000)),
            (Some("ZwTwo"), Target::Rva(0x1010)),
            (Some("Two"), Target::Rva(0x1010)),
            (None, Target::Rva(0x1020)),
            (Some("data"), Target::Rva(0x2000)),
            (Some("sleep"), Target::Forwarder("kernel32.Sleep".to_owned())),
        ])
}

/// The entries (type, minor version, bytes), followed by their bytes.
fn debug_directory(rva: u32, entries: &[(u32, u16, &[u8])]) -> Vec<u8> {
    let mut location = rva + 28 * entries.len() as u32;
    let mut bytes = Vec::new();
    for (kind, minor, contents) in entries {
        let version = u32::from(*minor) << 16;
        bytes.extend(words(&[0, 0, version, *kind, contents.len() as u32, location, 0]));
        location += contents.len() as u32;
    }
    entries.iter().for_each(|(_, _, contents)| bytes.extend_from_slice(contents));
    bytes
}

#[test]
fn export_names_are_ordered_by_preference() {
    let bytes = rich().file();
    let image = Image::parse(&bytes).unwrap();
    let code = image.exports().unwrap().code(&image);
    let code: Vec<_> = code.iter().map(|code| (code.rva.0, code.name(), code.names.join(" "))).collect();
    let expected =
        [(0x1000, "NtOne", "NtOne ZwOne"), (0x1010, "Two", "Two ZwTwo"), (0x1020, "Ordinal#3", "Ordinal#3")];
    assert_eq!(code, expected.map(|(rva, name, names)| (rva, name, names.to_owned())));
}

#[test]
fn a_loaded_image_reads_like_its_file() {
    let pe = rich();
    let (file, loaded) = (pe.file(), pe.loaded());
    let (file, loaded) = (Image::parse(&file).unwrap(), Image::parse_loaded(&loaded).unwrap());
    assert_eq!(file.exports(), loaded.exports());
    assert_eq!(file.functions(), loaded.functions());
    assert_eq!(file.functions().entries.len(), 2);
    assert_eq!(file.debug_entries(), loaded.debug_entries());
    assert_eq!(file.pdb().unwrap().store_key(), "333231303534373638396162636465667");
    assert_eq!(file.bytes_at(Rva(0x1000), 9), loaded.bytes_at(Rva(0x1000), 9));
}

#[test]
fn debug_entries_are_distinguished() {
    let guid = b"0123456789abcdef";
    let rsds: Vec<u8> = [b"RSDS", &guid[..], &[1, 0, 0, 0], b"x.pdb\0"].concat();
    let old: Vec<u8> = [b"NB10", &words(&[0, 0x1234, 3])[..], b"old.pdb\0"].concat();
    let entries: &[(u32, u16, &[u8])] = &[
        (2, 0, &old),
        (2, 0x504d, &rsds),
        (17, 0x100, b"MPDB"),
        (16, 0, b""),
        (2, 0, b"NB09????????????????"),
        (2, 0, b"RSDS"),
        (2, 0, &rsds),
        (13, 0, b""),
    ];
    let directory = debug_directory(0x1000, entries);
    let bytes = Pe::new(X86).table(DEBUG, 0x1000, directory).directory_size(DEBUG, 8 * 28).file();
    let image = Image::parse(&bytes).unwrap();
    let found = image.debug_entries();
    let old = DebugEntry::OldPdb { name: "old.pdb".to_owned(), time_date_stamp: 0x1234, age: 3 };
    assert_eq!(found[0], old);
    assert!(matches!(&found[1], DebugEntry::PortablePdb(pdb) if pdb.name == "x.pdb"));
    let (one, two) = (&found[2..4], &found[4..6]);
    assert_eq!(one, [DebugEntry::Other(17), DebugEntry::Reproducible]);
    assert_eq!(two, [DebugEntry::OtherCodeView, DebugEntry::OtherCodeView]);
    assert!(matches!(&found[6], DebugEntry::Pdb(pdb) if Some(pdb) == image.pdb().as_ref()));
    assert_eq!(found[7..], [DebugEntry::Other(13)]);
}

#[test]
fn call_instructions_are_recognized() {
    for (machine, code, expected) in [
        (X64, "e8 11 22 33 44", true),
        (X64, "ff 15 11 22 33 44", true),
        (X64, "ff d0", true),
        (X64, "41 ff d2", true),
        (X64, "ff 54 24 08", true),
        (X64, "41 ff 94 c4 11 22 33 44", true),
        (X64, "65 ff 14 25 c0 00 00 00", true),
        (X64, "48 ff 1c 24", true),
        (X86, "9a 11 22 33 44 55 66", true),
        (X86, "64 ff 15 c0 00 00 00", true),
        (X86, "ff d2", true),
        (X64, "0f 05", false),
        (X64, "cd 2e", false),
        (X64, "e9 11 22 33 44", false),
        (X64, "ff e0", false),
        (X64, "ff 25 11 22 33 44", false),
        (X64, "c3", false),
        (X64, "9a 11 22 33 44 55 66", false),
        (X86, "0f 34", false),
        // bl, blr x8, blraa x8, x9; b, br x16, ret
        (ARM64, "01 00 00 94", true),
        (ARM64, "00 01 3f d6", true),
        (ARM64, "09 09 3f d7", true),
        (ARM64, "01 00 00 14", false),
        (ARM64, "00 02 1f d6", false),
        (ARM64, "c0 03 5f d6", false),
    ] {
        let call = hex(code);
        let bytes = Pe::new(machine).code(0x1000, [&call[..], &hex("90 90 90 90")].concat()).file();
        let image = Image::parse(&bytes).unwrap();
        let site = image.call_site(Rva(0x1000 + call.len() as u32), 32, 3).unwrap();
        assert_eq!(site.ends_call, Some(expected), "{machine:#x}: {code}");
        assert_eq!((site.before, site.after.len()), (&call[..], 3));
    }
}

/// Bytes of instructions, encoded by the manual of the processor, and their text.
#[test]
fn calls_before_return_addresses_are_decoded() {
    const CASES: [(u16, &str, Result<&str, NoCall>); 16] = [
        (X64, "e8 11 22 33 44", Ok("call 0x4433321d")),
        (X64, "ff 15 34 12 00 00", Ok("call qword ptr [rip+0x1234]")),
        (X64, "48 ff 15 34 12 00 00", Ok("call qword ptr [rip+0x1234]")),
        (X64, "41 ff d2", Ok("call r10")),
        (X64, "ff d0", Ok("call rax")),
        (X64, "ff 50 18", Ok("call qword ptr [rax+0x18]")),
        (X64, "41 ff 54 24 08", Ok("call qword ptr [r12+0x8]")),
        (X64, "0f 05", Ok("syscall")),
        (X64, "cd 2e", Ok("int 0x2e")),
        (X64, "cd 03", Err(NoCall::NotACall)),
        (X64, "e9 11 22 33 44", Err(NoCall::NotACall)),
        (X64, "c3", Err(NoCall::NotACall)),
        // The last bytes of a move are those of a call.
        (X64, "b8 00 00 ff d0", Err(NoCall::Ambiguous)),
        (X86, "ff 15 78 56 34 12", Ok("call dword ptr [0x12345678]")),
        (X86, "ff 55 08", Ok("call dword ptr [ebp+0x8]")),
        (ARM64, "00 01 3f d6", Err(NoCall::OtherProcessor)),
    ];
    for (machine, code, expected) in CASES {
        let call = hex(code);
        // `sub rsp, 28h` and `mov rcx, rbx`, or `push ebp` and `mov ebp, esp`, begin the function.
        let head = hex(if machine == X64 { "48 83 ec 28 48 8b cb" } else { "55 8b ec" });
        let end = 0x1000 + (head.len() + call.len()) as u32;
        let bytes = [&head[..], &call, &hex("48 83 c4 28 c3 cc cc cc")].concat();
        let function = words(&[0x1000, 0x1000 + bytes.len() as u32, 0x4000]);
        let pe = Pe::new(machine).code(0x1000, bytes).data(0x4000, hex("01 00 00 00"));
        let file = if machine == X64 { pe.table(EXCEPTION, 0x3000, function) } else { pe }.file();
        let image = Image::parse(&file).unwrap();
        let found = image.call_before(&image.functions(), Rva(end));
        assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text), "{machine:#x}: {code}");
    }
}

#[test]
fn invalid_images_are_reported() {
    let error = |bytes: &[u8]| Image::parse(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "not a PE image (shorter than a DOS header)");
    assert_eq!(error(&[b'x'; 100]), "not a PE image (it does not start with MZ)");
    let bytes = rich().file();
    assert_eq!(error(&bytes[..0x60]), "not a PE image (no PE header, only a DOS one)");
    assert_eq!(error(&bytes[..0x140]), "damaged PE header at offset 0xc8: expected data directories");
    assert_eq!(error(&bytes[..0x150]), "damaged PE header at offset 0x148: expected section headers");
}

#[test]
fn damaged_tables_are_reported_or_counted() {
    let mut bytes = rich().file();
    let at = bytes.windows(12).position(|window| window == b"fixture.dll\0").unwrap();
    // The last of the tables before the names: the export of each name. The first name gets an
    // unused number.
    bytes[at - 12..at - 10].copy_from_slice(&[0xff, 0xff]);
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(image.exports().unwrap().unreadable, 1);

    let cut = &bytes[..at - 20];
    let image = Image::parse(cut).unwrap();
    let error = image.exports().unwrap_err();
    assert!(matches!(error, ImageError::Table { table: "export directory", .. }), "{error}");
}

/// A small file must not produce gigabytes of names by repeating one name.
#[test]
fn overlapping_names_are_limited() {
    let long = "\u{fffd}".repeat(1000);
    let exports: Vec<_> = (0..500).map(|index| (Some(long.as_str()), Target::Rva(0x1000 + index))).collect();
    let mut bytes = Pe::new(X64).code(0x1000, vec![0xc3; 0x1000]).exports(&exports).file();
    let location =
        |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|window| window == part).unwrap();
    // All names start where the first one does, and the file is truncated after it.
    let text = location(&bytes, long.as_bytes());
    let pointers = location(&bytes, b"fixture.dll\0") - 500 * 2 - 500 * 4;
    let (first, rest) = bytes[pointers..].split_at_mut(4);
    rest[..499 * 4].chunks_mut(4).for_each(|pointer| pointer.copy_from_slice(first));
    bytes.truncate(text + long.len() + 1);
    let image = Image::parse(&bytes).unwrap();
    let exports = image.exports().unwrap();
    assert_eq!(exports.entries.len(), bytes.len() / (long.len() + 1));
    assert_eq!(exports.entries.len() + exports.unreadable, 500);
}

/// Two libraries, the second of them delay-loaded: descriptors, names, pointers, texts.
#[test]
fn imports_are_read_with_their_slots() {
    const AT: u32 = 0x2000;
    for (machine, width) in [(X64, 8), (X86, 4)] {
        let number: u64 = if width == 8 { 1 << 63 | 7 } else { 1 << 31 | 7 };
        let thunk = |value: u64| value.to_le_bytes()[..width].to_vec();
        let thunks = |values: &[u64]| values.iter().flat_map(|value| thunk(*value)).collect::<Vec<u8>>();
        let names = thunks(&[u64::from(AT) + 0x180, number, 0]);
        let mut table = words(&[AT + 0x100, 0, 0, AT + 0x1a0, AT + 0x140, 0, 0, 0, 0, 0]);
        table.resize(0x60, 0);
        table.extend(words(&[1, AT + 0x1b0, 0, AT + 0x160, AT + 0x120, 0, 0, 0]));
        table.resize(0x100, 0);
        table.extend(names);
        table.resize(0x120, 0);
        table.extend(thunks(&[u64::from(AT) + 0x190, 0]));
        table.resize(0x180, 0);
        table.extend(b"\0\0NtClose\0");
        table.resize(0x190, 0);
        table.extend(b"\0\0Late\0");
        table.resize(0x1a0, 0);
        table.extend(b"ntdll.dll\0");
        table.resize(0x1b0, 0);
        table.extend(b"late.dll\0");
        let pe = Pe::new(machine).code(0x1000, vec![0x90; 16]).table(1, AT, table);
        let bytes = pe.directory_at(13, AT + 0x60, 64).file();
        let imports = Image::parse(&bytes).unwrap().imports();
        let rows: Vec<_> = imports
            .entries
            .iter()
            .map(|import| (import.slot.0, import.library, import.name.as_deref(), import.is_delayed))
            .collect();
        let expected = [
            (AT + 0x140, "ntdll.dll", Some("NtClose"), false),
            (AT + 0x140 + width as u32, "ntdll.dll", None, false),
            (AT + 0x160, "late.dll", Some("Late"), true),
        ];
        assert_eq!(rows, expected, "{machine:#x}");
        assert_eq!(imports.unreadable, 0);
    }
}

#[test]
fn relocations_are_read_by_address() {
    // Two blocks, the second with a padding entry.
    let table = words(&[0x3000, 12, 0x3010_a008, 0x1000, 12, 0x0000_a020]);
    let bytes = Pe::new(X64).code(0x1000, vec![0x90; 16]).table(5, 0x2000, table).file();
    let found = Image::parse(&bytes).unwrap().relocations();
    let found: Vec<_> = found.iter().map(|relocation| (relocation.rva.0, relocation.length)).collect();
    assert_eq!(found, [(0x1020, 8), (0x3008, 8), (0x3010, 4)]);
    // A block that extends beyond its table, and one without end.
    for size in [16, 0] {
        let table = words(&[0x3000, size, 0x3010_a008]);
        let bytes = Pe::new(X64).code(0x1000, vec![0x90; 16]).table(5, 0x2000, table).file();
        assert!(Image::parse(&bytes).unwrap().relocations().is_empty());
    }
}

/// `UWOP_PUSH_MACHFRAME` after another code with an operand, and a function without it. Wine's
/// dispatchers do not use it.
#[test]
fn functions_after_machine_frames_are_recognized() {
    let unwind = hex("01000300 0401 2000 000a 0000 01000100 0002 0000");
    let table = words(&[0x1000, 0x1010, 0x3000, 0x1010, 0x1020, 0x300c]);
    let pe = Pe::new(X64).code(0x1000, vec![0x90; 0x40]).table(EXCEPTION, 0x2000, table).data(0x3000, unwind);
    let bytes = pe.file();
    let image = Image::parse(&bytes).unwrap();
    for (rva, expected) in [(0x1000, Some(true)), (0x100f, Some(true)), (0x1010, Some(false)), (0x1020, None)]
    {
        assert_eq!(image.has_machine_frame(Rva(rva)), expected, "{rva:#x}");
    }
}

/// Reads all data.
fn read_all(image: &Image<'_>) {
    let exports = image.exports().unwrap_or_default();
    exports.code(image).iter().for_each(|code| assert!(!code.names.is_empty()));
    let functions = image.functions();
    image.debug_entries();
    image.imports();
    image.relocations();
    for rva in functions.entries.iter().map(|function| function.start).chain([Rva(0), Rva(u32::MAX)]) {
        functions.at(rva);
        image.bytes_at(rva, 16);
        image.call_site(rva, 16, 16);
        image.has_machine_frame(rva);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        if let Ok(image) = Image::parse(&bytes) {
            read_all(&image);
        }
    }

    #[test]
    fn damaged_images_are_read_without_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 1_usize..5), 1..8),
        machine in prop::sample::select(vec![X86, X64, ARM64]),
        loaded in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let pe = rich();
        let mut bytes = if loaded { pe.loaded() } else { pe.file() };
        bytes[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
        for (at, value, width) in damage {
            let at = at.index(bytes.len());
            let width = width.min(4).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        if let Ok(image) = Image::parse(&bytes) {
            read_all(&image);
        }
        if let Ok(image) = Image::parse_loaded(&bytes) {
            read_all(&image);
        }
        if let Ok(image) = Image::parse(&bytes[..cut.index(bytes.len())]) {
            read_all(&image);
        }
    }
}
