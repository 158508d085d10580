//! The names from an image without a PDB.

mod support;

use stackhound_symbols::image::Image;
use stackhound_symbols::table::SymbolTableBuilder;
use stackhound_symbols::{Name, Symbols};
use stackhound_types::{AddressKind, Rva};
use support::{EXCEPTION, Pe, Target, X64, hex, words};

fn shown(name: &Option<Name<'_>>) -> String {
    name.as_ref().map_or("-".to_owned(), |name| format!("{}+{:#x}", name.text, name.offset))
}

#[test]
fn addresses_have_the_containing_and_the_nearest_export() {
    // A function with a chunk directly after it, one further on and one before it; a function
    // without unwind data; a function that is not exported; data.
    let functions = [
        (0x1000, 0x1020, 0x3008),
        (0x1100, 0x1140, 0x3000),
        (0x1140, 0x1150, 0x3008),
        (0x1300, 0x1310, 0x3000),
        (0x1400, 0x1410, 0x3008),
    ];
    let functions: Vec<u8> =
        functions.iter().flat_map(|(start, end, unwind)| words(&[*start, *end, *unwind])).collect();
    let unwind = [hex("01000000 00000000 21000000"), words(&[0x1100, 0x1140, 0x3000])].concat();
    let bytes = Pe::new(X64)
        .code(0x1000, vec![0xc3; 0x800])
        .data(0x2000, vec![0; 16])
        .data(0x3000, unwind)
        .table(EXCEPTION, 0x4000, functions)
        .exports(&[
            (Some("NtLeaf"), Target::Rva(0x1080)),
            (Some("ZwLeaf"), Target::Rva(0x1080)),
            (Some("split"), Target::Rva(0x1100)),
            (Some("?later@@YAXXZ"), Target::Rva(0x1600)),
            (None, Target::Rva(0x1700)),
            (Some("data"), Target::Rva(0x2000)),
            (Some("forwarded"), Target::Forwarder("other.name".to_owned())),
        ])
        .file();
    let mut builder = SymbolTableBuilder::new();
    assert_eq!(builder.add_image(&Image::parse(&bytes).unwrap()), Ok(0));
    let table = builder.build();
    for (rva, export, nearest) in [
        (0x1000, "-", "-"),
        (0x1080, "NtLeaf+0x0", "NtLeaf+0x0"),
        (0x1081, "-", "NtLeaf+0x1"),
        (0x1100, "split+0x0", "split+0x0"),
        (0x113f, "split+0x3f", "split+0x3f"),
        (0x1145, "split+0x45", "split+0x45"),
        (0x1150, "-", "split+0x50"),
        (0x1305, "-", "split+0x205"),
        (0x1405, "split+0x305", "split+0x305"),
        (0x1410, "-", "split+0x310"),
        (0x1600, "later+0x0", "later+0x0"),
        (0x1708, "-", "Ordinal#4+0x8"),
        (0x17ff, "-", "Ordinal#4+0xff"),
        (0x1800, "-", "-"),
        (0x2000, "-", "-"),
        (0x9000, "-", "-"),
    ] {
        let names = table.names(Rva(rva), AddressKind::Instruction);
        assert_eq!((names.pdb, shown(&names.export).as_str()), (None, export), "{rva:#x}");
        assert_eq!(shown(&names.nearest_export), nearest, "{rva:#x}");
    }
}

#[test]
fn a_distant_export_names_nothing() {
    let bytes = Pe::new(X64)
        .code(0x1000, vec![0xc3; 0x3_0000])
        .exports(&[(Some("only"), Target::Rva(0x1100))])
        .file();
    let mut builder = SymbolTableBuilder::new();
    assert_eq!(builder.add_image(&Image::parse(&bytes).unwrap()), Ok(0));
    let table = builder.build();
    for (rva, nearest) in [(0x1_1100, "only+0x10000"), (0x1_1101, "-"), (0x3_0fff, "-")] {
        let names = table.names(Rva(rva), AddressKind::Instruction);
        assert_eq!(shown(&names.nearest_export), nearest, "{rva:#x}");
    }
}
