//! The identities in PDBs, compared with facts of the corpus.

use stackhound_symbols::pdb::{Pdb, PdbError};

use crate::fixtures::{bytes, open, table};

/// Name, store key (GUID and age of the DBI stream), age in the info stream, machine.
const IDENTITIES: &[(&str, &str, u32, u16)] = &[
    ("symbolic/crash.pdb", "3249D99D0C4049318610F4E4FB0B69361", 1, 0x14c),
    // A tool added a stream of sources and incremented the age in the info stream.
    ("symbolic/crash_with_srcsrv.pdb", "3249D99D0C4049318610F4E4FB0B69361", 4, 0x14c),
    ("symbolic/CrashWithException.pdb", "F535C5FB2AE84BB8AA206C30BE566C5A1", 1, 0x8664),
    ("dump_syms/dump_syms_regtest64.pdb", "72E103A85CB249078B76B2E7C06257B13", 3, 0x8664),
    ("breakpad/omap_stretched.pdb", "ABDA3C53D8074326AA40F41DD53824571", 1, 0x14c),
    // Linked by lld. The images have the same GUID and age 1.
    ("samply/WriteArgument.pdb", "DF5016E17D4C30144C4C44205044422E1", 2, 0x8664),
    ("samply/softokn3.pdb", "CCF79D6C6BA5FBBF4C4C44205044422E1", 2, 0x8664),
];

#[test]
fn the_age_is_that_of_the_dbi_stream() {
    for (name, key, info_age, machine) in IDENTITIES {
        let Some(bytes) = bytes(name) else { return };
        let pdb = open(&bytes);
        let found = (pdb.identity().store_key(), pdb.info_age(), pdb.machine());
        assert_eq!(found, ((*key).to_owned(), *info_age, *machine), "{name}");
    }
}

#[test]
fn a_file_is_named_by_its_path() {
    let Some(bytes) = bytes("samply/WriteArgument.pdb") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("WriteArgument.pdb");
    std::fs::write(&path, &bytes).expect("a file");
    let in_file = Pdb::open_path(&path).expect("a PDB");
    assert_eq!(in_file.identity().name, "WriteArgument.pdb");
    assert_eq!(table(&in_file), table(&open(&bytes)));
}

#[test]
fn managed_pdbs_have_no_native_code() {
    let (Some(portable), Some(managed)) =
        (bytes("perfview/CsPortablePdb1.pdb"), bytes("perfview/CsDesktopProj.pdb"))
    else {
        return;
    };
    assert!(matches!(Pdb::open(portable), Err(PdbError::Portable)));
    let managed = open(&managed);
    assert!(managed.sections().iter().all(|section| !section.code));
    let named = managed.modules().flat_map(|module| {
        let module = module.expect("a module");
        module.symbols().map(|symbol| symbol.name.to_string()).collect::<Vec<_>>()
    });
    assert_eq!(named.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn invalid_pdbs_are_rejected() {
    type Is = fn(&PdbError) -> bool;
    let cases: &[(&[u8], Is)] = &[
        (b"", |error| matches!(error, PdbError::NotPdb)),
        (b"MZ", |error| matches!(error, PdbError::NotPdb)),
        (b"BSJB", |error| matches!(error, PdbError::Portable)),
        (b"Microsoft C/C++ program database 2.00\r\n\x1aJG\0\0", |error| matches!(error, PdbError::Old)),
        (b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0", |error| matches!(error, PdbError::Damaged { .. })),
    ];
    for (bytes, expected) in cases {
        let error = Pdb::open(bytes.to_vec()).expect_err("no PDB");
        assert!(expected(&error), "{error}");
    }
}
