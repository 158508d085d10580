//! Tables: names compared with a linear search, and encoding as bytes.

use proptest::prelude::*;
use stackhound_symbols::pdb::{Pdb, SymbolKind};
use stackhound_symbols::table::{Detail, SymbolTable, SymbolTableBuilder, TableError};
use stackhound_symbols::{Names, Symbols};
use stackhound_types::{AddressKind, Rva};

use crate::fixtures::{bytes, native, open, table};
use crate::wording;

#[test]
fn tables_round_trip() {
    for name in native() {
        let Some(bytes) = bytes(name) else { return };
        let table = table(&open(&bytes));
        let bytes = table.to_bytes();
        let back = SymbolTable::from_bytes(&bytes).expect("the same table");
        assert_eq!(back, table, "{name}");
        assert_eq!(back.to_bytes(), bytes, "{name}");
        println!("{name}: {} bytes, {} in memory", bytes.len(), table.memory());
    }
}

/// Exports with function ranges, and code from 0x1000 to 0x1400.
fn made(exports: &[(u32, String)], functions: &[(u32, u32)]) -> SymbolTable {
    let mut builder = SymbolTableBuilder::new();
    builder.add_code(Rva(0x1000)..Rva(0x1200));
    builder.add_code(Rva(0x1200)..Rva(0x1400));
    for (rva, name) in exports {
        builder.add_export(Rva(*rva), name);
    }
    for (start, end) in functions {
        builder.add_function(Rva(*start)..Rva(*end));
    }
    builder.build()
}

type Found = Option<(String, u32)>;

fn found(names: &Names<'_>) -> (Found, Found) {
    let text = |name: &Option<stackhound_symbols::Name<'_>>| {
        name.as_ref().map(|name| (name.text.to_string(), name.offset))
    };
    assert_eq!(names.pdb, None);
    (text(&names.export), text(&names.nearest_export))
}

proptest! {
    #[test]
    fn exports_agree_with_a_linear_search(
        exports in prop::collection::vec((0x0f00_u32..0x1500, "[a-c]"), 0..8),
        functions in prop::collection::vec((0x0f00_u32..0x1500, 1_u32..0x80), 0..8),
        address in 0x0f00_u32..0x1500,
        is_return: bool,
    ) {
        let functions: Vec<_> = functions.into_iter().map(|(start, length)| (start, start + length)).collect();
        let table = made(&exports, &functions);
        let kind = if is_return { AddressKind::Return } else { AddressKind::Instruction };
        let at = kind.looked_up(Rva(address)).0;

        let code = |rva: u32| (0x1000..0x1400).contains(&rva);
        let name = |rva: u32| exports.iter().filter(|export| export.0 == rva).map(|export| &export.1).min().cloned();
        let end = |rva: u32| {
            let ends = functions.iter().filter(|function| function.0 == rva).map(|function| function.1);
            ends.max().unwrap_or(rva + 1)
        };
        let before: Vec<_> = (0..=at).rev().filter(|rva| code(*rva) && name(*rva).is_some()).collect();
        let called = |rva: &u32| (name(*rva).expect("a name"), address - rva);
        let export = before.iter().find(|rva| at < end(**rva)).map(called);
        let nearest = export.clone().or_else(|| before.first().filter(|_| code(at)).map(called));
        prop_assert_eq!(found(&table.names(Rva(address), kind)), (export, nearest));
    }

    #[test]
    fn damaged_bytes_are_rejected(
        exports in prop::collection::vec((0x1000_u32..0x1400, "[a-zé]{1,8}"), 1..8),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let bytes = made(&exports, &[(0x1000, 0x1100)]).to_bytes();
        let mut damaged = bytes.clone();
        let at = at.index(bytes.len());
        damaged[at] ^= 1_u8 << bit;
        prop_assert!(SymbolTable::from_bytes(&damaged).is_err());
        prop_assert!(SymbolTable::from_bytes(&bytes[..at]).is_err());
        prop_assert!(SymbolTable::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        // With a matching checksum.
        let sum = crc32fast::hash(&damaged[16..]);
        damaged[12..16].copy_from_slice(&sum.to_le_bytes());
        if let Ok(table) = SymbolTable::from_bytes(&damaged) {
            for rva in (0x0f00..0x1500).chain([0, u32::MAX]) {
                table.names(Rva(rva), AddressKind::Return);
                table.line(Rva(rva), AddressKind::Return);
                table.inlines(Rva(rva), AddressKind::Return);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(SymbolTable::from_bytes(&bytes), Err(TableError::Version));
    }
}

/// Names by the documented rules, from a linear search through all symbols of a PDB that was not
/// rearranged.
fn searched(pdb: &Pdb, addresses: &[u32]) -> Vec<Option<u32>> {
    let mut procedures = Vec::new();
    for module in pdb.modules() {
        for symbol in module.expect("a module").symbols() {
            let rva = pdb.rva(symbol.location).expect("an address").0;
            procedures.push((rva, rva + symbol.length));
        }
    }
    let code = |rva: u32| {
        let mut sections = pdb.sections().iter().filter(|section| section.code);
        sections.any(|section| (section.rva.0..section.rva.0 + section.size).contains(&rva))
    };
    let publics: Vec<_> =
        pdb.publics().expect("publics").iter().filter_map(|public| pdb.rva(public.location)).collect();
    let begins = |address: &u32| {
        let around = procedures.iter().filter(|(start, end)| start <= address && address < end);
        if let Some(start) = around.map(|procedure| procedure.0).max() {
            return Some(start);
        }
        let start = publics.iter().map(|rva| rva.0).filter(|rva| rva <= address && code(*rva)).max()?;
        let covered = procedures.iter().any(|procedure| procedure.0 <= start && start < procedure.1);
        let cut = procedures.iter().any(|procedure| start < procedure.0 && procedure.0 <= *address);
        (!covered && !cut && code(*address)).then_some(start)
    };
    addresses.iter().map(begins).collect()
}

#[test]
fn symbols_agree_with_a_linear_search() {
    for name in ["symbolic/crash.pdb", "dump_syms/dump_syms_regtest64.pdb", "samply/softokn3.pdb"] {
        let Some(bytes) = bytes(name) else { return };
        let pdb = open(&bytes);
        let table = table(&pdb);
        let last = pdb.sections().iter().map(|section| section.rva.0 + section.size).max().expect("sections");
        // A sequence that covers all parts.
        let addresses: Vec<u32> =
            (0..4000_u64).map(|at| (at * 0x9e37_79b9 % u64::from(last)) as u32).collect();
        for (address, begin) in addresses.iter().zip(searched(&pdb, &addresses)) {
            let ours = table.names(Rva(*address), AddressKind::Instruction).pdb;
            assert_eq!(ours.map(|ours| address - ours.offset), begin, "{name}: {address:#x}");
            let after = table.names(Rva(address + 1), AddressKind::Return).pdb;
            assert_eq!(
                after.map(|after| address + 1 - after.offset),
                begin,
                "{name}: {address:#x}, returned to"
            );
        }
    }
}

#[test]
fn names_alone_take_less_memory() {
    let Some(bytes) = bytes("samply/softokn3.pdb") else { return };
    let pdb = open(&bytes);
    let mut builder = SymbolTableBuilder::new();
    assert_eq!(builder.add_pdb(&pdb, Detail::Names).expect("a PDB"), 0);
    let names = builder.build();
    let lines = table(&pdb);
    assert!(names.memory() < lines.memory());
    let addresses = || (0x1000..0x2000).map(Rva);
    for rva in addresses() {
        let kind = AddressKind::Instruction;
        assert_eq!(names.names(rva, kind), lines.names(rva, kind));
        assert_eq!(names.line(rva, kind), None);
    }
}

/// Functions of mozglue that are exported under another name, and functions that were folded with
/// an exported one.
const EXPORTED_OTHERWISE: &[&str] = &[
    "je_malloc",
    "je_calloc",
    "je_realloc",
    "je_free",
    "je_posix_memalign",
    "je_malloc_usable_size",
    "je_malloc_good_size",
    "wrap_strndup",
    "wrap_strdup",
    "wrap_wcsdup",
    "wrap__aligned_malloc",
    "moz_malloc_usable_size",
    "Allocator<MozJemallocBase>::jemalloc_purge_freed_pages",
    "mozilla::baseprofiler::TracingMarkerPayload::~TracingMarkerPayload",
];

/// The PDB of this image is not available, but the list that another program read from it.
#[test]
fn exports_of_mozglue_have_the_names_of_its_pdb() {
    let (Some(image), Some(listed)) = (bytes("samply/mozglue.dll"), bytes("samply/win64-ci-mozglue.pdb.txt"))
    else {
        return;
    };
    let listed = String::from_utf8(listed).expect("text");
    let mut builder = SymbolTableBuilder::new();
    let image = stackhound_symbols::image::Image::parse(&image).expect("an image");
    builder.add_image(&image).expect("exports");
    let table = builder.build();
    let (mut same, mut wrong) = (0, Vec::new());
    for line in listed.lines().skip(1) {
        let (rva, name) = line.split_once(' ').expect("an address and a name");
        let rva = Rva(u32::from_str_radix(rva, 16).expect("an address"));
        let names = table.names(rva, AddressKind::Instruction);
        let Some(export) = names.export.filter(|export| export.offset == 0) else { continue };
        if wording::same(name, &export.text).is_some() {
            same += 1;
        } else if !EXPORTED_OTHERWISE.iter().any(|other| wording::same(name, other).is_some()) {
            wrong.push(format!("{name}: {}", export.text));
        }
    }
    println!("{same} the same");
    assert!(same > 250 && wrong.is_empty(), "{same} the same, wrong:\n{}", wrong.join("\n"));
}

#[test]
fn kinds_of_symbols_are_distinguished() {
    let Some(bytes) = bytes("symbolic/CrashWithException.pdb") else { return };
    let pdb = open(&bytes);
    let publics = pdb.publics().expect("publics");
    let kind = |name: &str| publics.iter().find(|public| public.name == name).map(|public| public.kind);
    assert_eq!(kind("main"), Some(SymbolKind::Public { function: true }));
    assert_eq!(kind("__security_cookie"), Some(SymbolKind::Public { function: false }));
}
