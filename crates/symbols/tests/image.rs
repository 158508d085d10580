//! Images of the corpus. The expected values are those of other readers (pefile, LLVM, Breakpad's
//! dumpers), or stated by the authors of the files.

use stackhound_symbols::image::{DebugEntry, Export, ExportTarget, Image, Machine};
use stackhound_types::Rva;

fn corpus(name: &str) -> Option<Vec<u8>> {
    stackhound_corpus::bytes(&format!("symbols/{name}"))
}

struct Expected {
    file: &'static str,
    machine: Machine,
    base: u64,
    /// Time stamp and size, as in a symbol store.
    key: &'static str,
    /// GUID and age, as in a symbol store.
    pdb: Option<&'static str>,
    /// Types of the entries of the debug directory.
    debug: &'static [u32],
    /// All exports, forwarders, exports without a name.
    exports: (usize, usize, usize),
    /// Function ranges, and chunks among them.
    functions: (usize, usize),
}

const X64: Expected = Expected {
    file: "",
    machine: Machine::X64,
    base: 0x1_4000_0000,
    key: "",
    pdb: None,
    debug: &[],
    exports: (0, 0, 0),
    functions: (0, 0),
};

const X86: Expected = Expected { machine: Machine::X86, base: 0x40_0000, ..X64 };

const EXPECTED: &[Expected] = &[
    Expected { file: "pe/object-testfiles/base.exe", key: "6124D65E1c000", debug: &[13], ..X86 },
    Expected {
        file: "pe/object-testfiles/export.dll",
        base: 0x1_8000_0000,
        key: "6A5706313000",
        exports: (7, 3, 1),
        ..X64
    },
    Expected { file: "pe/object-testfiles/import.exe", key: "6A59C00D6000", functions: (3, 0), ..X64 },
    Expected {
        file: "pe/goblin/debug_directories-clang_lld.exe.bin",
        key: "DB2F39083000",
        pdb: Some("ABF6BAC898B29ED14C4C44205044422E1"),
        debug: &[2, 16],
        ..X64
    },
    Expected {
        file: "pe/goblin/debug_directories-msvc.exe.bin",
        key: "80AC76613000",
        pdb: Some("9C584F1FEA3C83003F5700CC36A784DF3"),
        debug: &[2, 12, 13, 14, 16, 20],
        ..X64
    },
    Expected { file: "pe/goblin/no_debug_directories.exe.bin", key: "671FFD462000", ..X64 },
    Expected { file: "pe/goblin/has_no_res.exe.bin", key: "67236F8A4000", ..X64 },
    Expected {
        file: "pe/goblin/malformed_resource_tree.exe.bin",
        machine: Machine::Other(0x64),
        base: 0x6161_9e61_6101_6161,
        key: "61206161ffff6161",
        ..X64
    },
    Expected {
        file: "pe/goblin/not_well_formed_import.exe.bin",
        key: "6720BD69e041",
        debug: &[13, 14],
        ..X64
    },
    Expected {
        file: "pe/goblin/special_import_forwarder_tls.exe.bin",
        key: "6720BD69e041",
        debug: &[13, 14],
        ..X64
    },
    Expected { file: "pe/goblin/well_formed_import.exe.bin", key: "6720BD697000", debug: &[13, 14], ..X64 },
    Expected {
        file: "pe/pe-parse/example.exe",
        key: "5E70FAD321000",
        debug: &[13],
        functions: (345, 4),
        ..X64
    },
    Expected { file: "pe/pe-parse/pr_153.exe", base: 0x330_0000, key: "C258016A8c", ..X86 },
    Expected {
        file: "pairs/breakpad/pe_only_symbol_test.dll",
        base: 0x1_8000_0000,
        key: "5C8AD05F12000",
        pdb: Some("2A5EAB481FAB4A17A9761CDC14FE531A1"),
        debug: &[2, 12],
        functions: (106, 14),
        ..X64
    },
    Expected {
        file: "pairs/dump_syms/basic32-min.dll",
        base: 0x1000_0000,
        key: "5DDC1E9B6c000",
        pdb: Some("878E82E5E282481B88FCBBA2CFF8C7F12"),
        debug: &[2, 12],
        exports: (10, 0, 0),
        ..X86
    },
    Expected {
        file: "pairs/dump_syms/basic32.dll",
        base: 0x1000_0000,
        key: "5DDC1E9A6c000",
        pdb: Some("34060D222DBB44E5AA72243CE8326C2F2"),
        debug: &[2, 12],
        exports: (10, 0, 0),
        ..X86
    },
    Expected {
        file: "pairs/dump_syms/dump_syms_regtest64.exe",
        key: "589DFD111a000",
        pdb: Some("72E103A85CB249078B76B2E7C06257B13"),
        debug: &[2],
        functions: (195, 0),
        ..X64
    },
    // The PDBs of these three images have age 2 in their headers. The images and the PDBs' DBI
    // streams have age 1.
    Expected {
        file: "pairs/samply/WriteArgument.exe",
        key: "5EBA81A37000",
        pdb: Some("DF5016E17D4C30144C4C44205044422E1"),
        debug: &[2],
        functions: (25, 0),
        ..X64
    },
    Expected {
        file: "pairs/samply/softokn3.dll",
        base: 0x1_8000_0000,
        key: "5EBA81A442000",
        pdb: Some("CCF79D6C6BA5FBBF4C4C44205044422E1"),
        debug: &[2],
        exports: (10, 0, 0),
        functions: (504, 0),
        ..X64
    },
    Expected {
        file: "pairs/samply/mozglue.dll",
        base: 0x1_8000_0000,
        key: "5EBA814695000",
        pdb: Some("63C609072D3499F64C4C44205044422E1"),
        debug: &[2],
        exports: (321, 0, 0),
        functions: (1042, 0),
        ..X64
    },
    Expected {
        file: "pairs/symbolic/CrashWithException.exe",
        key: "5C9E09599000",
        pdb: Some("F535C5FB2AE84BB8AA206C30BE566C5A1"),
        debug: &[2, 12, 13, 14],
        functions: (41, 0),
        ..X64
    },
    Expected {
        file: "pairs/symbolic/crash.exe",
        key: "5AB380779000",
        pdb: Some("3249D99D0C4049318610F4E4FB0B69361"),
        debug: &[2, 12, 13, 14],
        ..X86
    },
    Expected {
        file: "pairs/symbolic/arm64-test.exe",
        machine: Machine::Arm64,
        key: "69FE3F7D37000",
        debug: &[13],
        functions: (709, 0),
        ..X64
    },
    Expected {
        file: "wine/ntdll.dll",
        base: 0x1_7000_0000,
        key: "63F14E2B361000",
        exports: (1359, 0, 0),
        functions: (1130, 0),
        ..X64
    },
    Expected {
        file: "wine/win32u.dll",
        base: 0x2_c73a_0000,
        key: "63F14E2B53000",
        exports: (1321, 0, 0),
        functions: (123, 0),
        ..X64
    },
    Expected {
        file: "wine/kernel32.dll",
        base: 0x7b60_0000,
        key: "63F14E2B195000",
        exports: (1314, 99, 0),
        functions: (494, 0),
        ..X64
    },
];

fn debug_type(entry: &DebugEntry) -> u32 {
    match entry {
        DebugEntry::Other(number) => *number,
        DebugEntry::Reproducible => 16,
        _ => 2,
    }
}

#[test]
fn images_agree_with_other_readers() {
    for expected in EXPECTED {
        let Some(bytes) = corpus(expected.file) else { return };
        let file = expected.file;
        let image = Image::parse(&bytes).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(image.machine(), expected.machine, "{file}");
        assert_eq!(image.base(), expected.base, "{file}");
        assert_eq!(image.identity().store_key(), expected.key, "{file}");
        assert_eq!(image.pdb().map(|pdb| pdb.store_key()).as_deref(), expected.pdb, "{file}");
        assert_eq!(
            image.debug_entries().iter().map(debug_type).collect::<Vec<_>>(),
            expected.debug,
            "{file}"
        );

        let exports = image.exports().unwrap_or_else(|error| panic!("{file}: {error}"));
        let count =
            |test: fn(&Export<'_>) -> bool| exports.entries.iter().filter(|export| test(export)).count();
        let forwarders = count(|export| matches!(export.target, ExportTarget::Forwarder(_)));
        let unnamed = count(|export| export.name.is_none());
        assert_eq!((exports.entries.len(), forwarders, unnamed), expected.exports, "{file}");
        assert_eq!(exports.unreadable, 0, "{file}");

        let functions = image.functions();
        let chunks = functions.entries.iter().filter(|function| function.primary != Some(function.start));
        assert_eq!((functions.entries.len(), chunks.count()), expected.functions, "{file}");
        assert_eq!(functions.unreadable, 0, "{file}");
    }
}

#[test]
fn exports_of_all_kinds() {
    let Some(bytes) = corpus("pe/object-testfiles/export.dll") else { return };
    let image = Image::parse(&bytes).unwrap();
    let exports = image.exports().unwrap();
    let shown: Vec<_> = exports
        .entries
        .iter()
        .map(|export| {
            let target = match &export.target {
                ExportTarget::Rva(rva) => rva.to_string(),
                ExportTarget::Forwarder(text) => text.to_string(),
            };
            (export.ordinal, export.shown(), target)
        })
        .collect();
    let expected = [
        (1, "exported_named", "0x1000"),
        (2, "Ordinal#2", "0x1010"),
        (3, "exported_multi", "0x1020"),
        (4, "exported_alias", "0x1020"),
        (6, "forward_by_name", "kernel32.Sleep"),
        (7, "forward_by_ordinal", "kernel32.#123"),
        (8, "forward_with_dot", "kernel32.dll.Sleep"),
    ];
    assert_eq!(shown, expected.map(|(ordinal, name, target)| (ordinal, name.into(), target.to_owned())));

    let code = exports.code(&image);
    let code: Vec<_> = code.iter().map(|code| (code.rva.0, code.names.join(" "))).collect();
    let expected =
        [(0x1000, "exported_named"), (0x1010, "Ordinal#2"), (0x1020, "exported_alias exported_multi")];
    assert_eq!(code, expected.map(|(rva, names)| (rva, names.to_owned())));
}

/// Parses lines such as `STACK CFI INIT 1440 39 …`: start and size of a function range.
fn ranges(golden: &str) -> Vec<(u32, u32)> {
    let number = |word: &str| u32::from_str_radix(word, 16).unwrap();
    let mut ranges: Vec<_> = golden
        .lines()
        .filter_map(|line| line.strip_prefix("STACK CFI INIT "))
        .map(|line| {
            let mut words = line.split(' ').map(number);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    ranges.sort_unstable();
    ranges
}

#[test]
fn function_ranges_agree_with_golden_files() {
    for (file, golden) in [
        ("breakpad/pe_only_symbol_test.dll", "breakpad/pe_only_symbol_test.sym"),
        ("symbolic/CrashWithException.exe", "symbolic/CrashWithException.pdb.sym"),
        ("dump_syms/dump_syms_regtest64.exe", "dump_syms/dump_syms_regtest64.sym"),
    ] {
        let Some(bytes) = corpus(&format!("pairs/{file}")) else { return };
        let golden = String::from_utf8_lossy(&corpus(&format!("pairs/{golden}")).unwrap()).into_owned();
        let functions = Image::parse(&bytes).unwrap().functions();
        let found: Vec<_> = functions.entries.iter().map(|f| (f.start.0, f.end.0 - f.start.0)).collect();
        assert_eq!(found, ranges(&golden), "{file}");
    }
}

#[test]
fn identities_agree_with_golden_files() {
    let Some(golden) = corpus("pairs/breakpad/pe_only_symbol_test.sym") else { return };
    let golden = String::from_utf8(golden).unwrap();
    let bytes = corpus("pairs/breakpad/pe_only_symbol_test.dll").unwrap();
    let image = Image::parse(&bytes).unwrap();
    let mut lines = golden.lines();
    let pdb = image.pdb().unwrap();
    let module = format!("MODULE windows x86_64 {} {}", pdb.store_key(), pdb.file_name());
    assert_eq!(lines.next(), Some(module.as_str()));
    let code = format!("INFO CODE_ID {} pe_only_symbol_test.dll", image.identity().store_key());
    assert_eq!(lines.next(), Some(code.as_str()));
}

#[test]
fn chunks_refer_to_their_functions() {
    let expected: [(&str, &[(u32, u32)]); 2] = [
        (
            "pairs/breakpad/pe_only_symbol_test.dll",
            &[
                (0x1856, 0x1840),
                (0x1876, 0x1840),
                (0x18ab, 0x1890),
                (0x1901, 0x1890),
                (0x1947, 0x1940),
                (0x1961, 0x1940),
                (0x196c, 0x1940),
                (0x19b8, 0x1940),
                (0x19bd, 0x1940),
                (0x19d0, 0x1940),
                (0x239f, 0x2340),
                (0x2478, 0x2340),
                (0x269d, 0x2670),
                (0x2708, 0x2670),
            ],
        ),
        (
            "pe/pe-parse/example.exe",
            &[(0xd1dc, 0xcfb0), (0xd390, 0xcfb0), (0xe99b, 0xe940), (0xecdf, 0xe940)],
        ),
    ];
    for (file, expected) in expected {
        let Some(bytes) = corpus(file) else { return };
        let functions = Image::parse(&bytes).unwrap().functions();
        let chunks = functions.entries.iter().filter(|function| function.primary != Some(function.start));
        let chunks: Vec<_> = chunks.map(|chunk| (chunk.start.0, chunk.primary.unwrap().0)).collect();
        assert_eq!(chunks, expected, "{file}");
        let in_chunk = functions.at(Rva(expected[0].0 + 1)).unwrap();
        assert_eq!(in_chunk.primary, Some(Rva(expected[0].1)));
    }
}

#[test]
fn a_chain_with_a_loop_ends() {
    let Some(mut bytes) = corpus("pairs/symbolic/cfi_chained_loop.exe") else { return };
    // The only function is outside of the image.
    let functions = Image::parse(&bytes).unwrap().functions();
    assert_eq!((functions.entries.len(), functions.unreadable), (0, 1));
    // In a larger image it is inside, and its unwind information refers to itself.
    let size_of_image = u32::from_le_bytes(bytes[0x3c..0x40].try_into().unwrap()) as usize + 24 + 56;
    bytes[size_of_image..][..4].copy_from_slice(&0x2000_u32.to_le_bytes());
    let functions = Image::parse(&bytes).unwrap().functions();
    assert_eq!(functions.entries.len(), 1);
    assert_eq!(functions.entries[0].primary, None);
}

#[test]
fn arm64_functions_in_both_forms() {
    let Some(bytes) = corpus("pairs/symbolic/arm64-test.exe") else { return };
    let functions = Image::parse(&bytes).unwrap().functions();
    let lengths: Vec<_> = functions.entries.iter().map(|f| (f.start.0, f.end.0 - f.start.0)).collect();
    assert_eq!(lengths[..3], [(4096, 24), (4128, 44), (4176, 20)]);
    assert_eq!(lengths[707..], [(139_184, 100), (139_288, 132)]);
    assert_eq!(lengths.iter().map(|(_, length)| length).sum::<u32>(), 127_216);
    assert_eq!(lengths.iter().map(|(_, length)| *length).max(), Some(1728));
}
