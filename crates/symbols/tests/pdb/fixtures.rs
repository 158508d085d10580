//! PDBs of the corpus.

use stackhound_symbols::pdb::Pdb;
use stackhound_symbols::table::{Detail, SymbolTable, SymbolTableBuilder};

/// PDBs with native code, each with the symbol list that another program made from it.
pub const GOLDEN: &[(&str, &str)] = &[
    ("breakpad/dump_syms_regtest.pdb", "breakpad/dump_syms_regtest.sym"),
    ("breakpad/omap_reorder_bbs.pdb", "breakpad/omap_reorder_bbs.sym"),
    ("breakpad/omap_reorder_funcs.pdb", "breakpad/omap_reorder_funcs.sym"),
    ("breakpad/omap_stretched.pdb", "breakpad/omap_stretched.sym"),
    ("breakpad/omap_stretched_filled.pdb", "breakpad/omap_stretched_filled.sym"),
    ("dump_syms/basic32-min.pdb", "dump_syms/basic32-min.sym"),
    ("dump_syms/basic32.pdb", "dump_syms/basic32.sym"),
    ("dump_syms/dump_syms_regtest64.pdb", "dump_syms/dump_syms_regtest64.sym"),
    ("symbolic/CrashWithException.pdb", "symbolic/CrashWithException.pdb.sym"),
    ("symbolic/crash.pdb", "symbolic/crash.sym"),
];

/// Returns the bytes of a file of the pairs.
pub fn bytes(name: &str) -> Option<Vec<u8>> {
    stackhound_corpus::bytes(&format!("symbols/pairs/{name}"))
}

pub fn open(bytes: &[u8]) -> Pdb {
    Pdb::open(bytes.to_vec()).expect("a PDB")
}

pub fn table(pdb: &Pdb) -> SymbolTable {
    let mut builder = SymbolTableBuilder::new();
    assert_eq!(builder.add_pdb(pdb, Detail::Lines).expect("a PDB"), 0, "damaged modules");
    builder.build()
}

/// All PDBs with native code.
pub fn native() -> impl Iterator<Item = &'static str> {
    const OTHERS: &[&str] = &[
        "symbolic/crash_with_srcsrv.pdb",
        "samply/WriteArgument.pdb",
        "samply/softokn3.pdb",
        "perfview/CppCon.pdb",
    ];
    GOLDEN.iter().map(|(pdb, _)| *pdb).chain(OTHERS.iter().copied())
}
