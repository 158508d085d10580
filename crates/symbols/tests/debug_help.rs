//! Debug Help and our own reader must return the same names for every address: of a small program
//! with a PDB, and of a library with exports only. `scripts/windows-check.sh` builds both and runs
//! this test.
#![cfg(windows)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stackhound_symbols::image::Image;
use stackhound_symbols::pdb::Pdb;
use stackhound_symbols::table::{Detail, SymbolTable, SymbolTableBuilder};
use stackhound_symbols::{DebugHelp, Line, Names, Symbols};
use stackhound_types::{AddressKind, Rva};

/// The maximum number of displayed differences.
const SHOWN: usize = 40;

fn fixture(file: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STACKHOUND_WINDOWS_FIXTURE") else {
        assert!(std::env::var_os("CI").is_none(), "STACKHOUND_WINDOWS_FIXTURE is not set");
        eprintln!("skipped: STACKHOUND_WINDOWS_FIXTURE is not set, see scripts/windows-check.sh");
        return None;
    };
    Some(std::path::absolute(Path::new(&folder).join(file)).expect("a path"))
}

/// Our names of an image, and all addresses in its code.
fn ours(image: &Path, pdb: Option<&Path>) -> (SymbolTable, Vec<Rva>) {
    let bytes = std::fs::read(image).expect("an image");
    let image = Image::parse(&bytes).expect("an image");
    let mut builder = SymbolTableBuilder::new();
    let mut code = Vec::new();
    for section in image.sections().iter().filter(|section| section.executable) {
        let end = Rva(section.rva.0 + section.size);
        builder.add_code(section.rva..end);
        code.extend((section.rva.0..end.0).map(Rva));
    }
    match pdb {
        Some(pdb) => {
            let pdb = Pdb::open_path(pdb).expect("a PDB");
            assert_eq!(builder.add_pdb(&pdb, Detail::Lines).expect("symbols"), 0, "damaged modules");
        }
        None => {
            for function in &image.functions().entries {
                builder.add_function(function.start..function.end);
            }
            for export in image.exports().expect("exports").code(&image) {
                builder.add_export(export.rva, export.name());
            }
        }
    }
    (builder.build(), code)
}

/// PDB, export, nearest export.
type Own = [Option<(String, u32)>; 3];

fn own(names: Names<'_>) -> Own {
    [names.pdb, names.export, names.nearest_export].map(|name| name.map(|n| (n.text.into_owned(), n.offset)))
}

/// Compares the names of all addresses, as instructions and as return addresses. The following may
/// differ:
///
/// - Wine's Debug Help does not know the end of a symbol without a length, that is, of a public
///   symbol or an export. It returns the name for the first byte only; Microsoft's continues to the
///   next symbol. These symbols are returned.
/// - With `choices`: of several names for one function, we use the least, Debug Help any of them.
///   It also names data and labels in a procedure, where we name the procedure.
fn compare(
    program_name: &str,
    code: &[Rva],
    ours: &SymbolTable,
    theirs: &DebugHelp,
    choices: bool,
) -> BTreeSet<String> {
    let (mut same, mut unnamed, mut chosen, mut different) = (0, 0, 0, 0);
    let mut cut = BTreeSet::new();
    for &rva in code {
        for kind in [AddressKind::Instruction, AddressKind::Return] {
            let (mine, other) = (own(ours.names(rva, kind)), own(theirs.names(rva, kind)));
            let mut named = mine.iter().flatten();
            if mine == other {
                same += 1;
            } else if other == Own::default()
                && named.clone().all(|(name, offset)| begins(theirs, Rva(rva.0 - offset), name))
            {
                unnamed += 1;
                cut.extend(named.next().map(|(name, _)| name.clone()));
            } else if choices
                && let (Some((_, mine)), Some((_, other))) = (&mine[0], &other[0])
                && other <= mine
            {
                chosen += 1;
            } else {
                different += 1;
                if different <= SHOWN {
                    eprintln!("{program_name} {rva} {kind:?}: ours {mine:?}, Debug Help {other:?}");
                }
            }
        }
    }
    println!(
        "{program_name}: {} addresses compared twice: {same} results equal, {unnamed} after the first byte of a symbol \
         without a length, {chosen} another name of the function or one inside, {different} different",
        code.len()
    );
    assert_eq!(different, 0);
    assert!(same > 40 * chosen);
    cut
}

/// Whether Debug Help also has a symbol with this name that starts here.
fn begins(debug_help: &DebugHelp, rva: Rva, name: &str) -> bool {
    let names = own(debug_help.names(rva, AddressKind::Instruction));
    names.iter().flatten().any(|found| *found == (name.to_owned(), 0))
}

/// The file's name and the line. Wine writes Unix paths as paths of its drives.
fn location(line: Option<Line<'_>>) -> Option<(String, u32)> {
    line.map(|line| (line.file.rsplit(['/', '\\']).next().unwrap_or_default().to_owned(), line.line))
}

/// Compares lines and inlined functions.
fn same_lines(program_name: &str, code: &[Rva], ours: &SymbolTable, theirs: &DebugHelp) {
    let mut different = [0; 2];
    let (mut lines, mut inlined) = (0, 0);
    for &rva in code {
        let line =
            [ours as &dyn Symbols, theirs].map(|names| location(names.line(rva, AddressKind::Instruction)));
        let inlines = [ours as &dyn Symbols, theirs].map(|names| {
            let inlines = names.inlines(rva, AddressKind::Instruction).into_iter();
            inlines.map(|inline| (inline.function.into_owned(), location(inline.line))).collect::<Vec<_>>()
        });
        lines += usize::from(line[0].is_some());
        inlined += usize::from(!inlines[0].is_empty());
        different[0] += usize::from(line[0] != line[1]);
        different[1] += usize::from(inlines[0] != inlines[1]);
        if (line[0] != line[1] || inlines[0] != inlines[1]) && different[0] + different[1] <= SHOWN {
            eprintln!("{program_name} {rva}: {line:?} {inlines:?}");
        }
    }
    println!(
        "{program_name}: {lines} addresses with a line, {inlined} with inlined functions; different: {different:?}"
    );
    assert!(lines > 0 && different[0] == 0);
    // Wine names inlined members of a class without the class: here `Square` for
    // `shapes::Square::Square`.
    assert!(inlined > 10 * different[1]);
}

#[test]
fn names_of_a_program_with_a_pdb() {
    let Some(program) = fixture("program.exe") else { return };
    let (table, code) = ours(&program, Some(&program.with_extension("pdb")));
    let debug_help = DebugHelp::of_file(&program, OsStr::new("")).expect("Debug Help");
    let cut = compare("PDB", &code, &table, &debug_help, false);
    same_lines("lines", &code, &table, &debug_help);
    let allowed = ["bare_sum", "bare_turn"].map(str::to_owned);
    assert!(cut.is_subset(&allowed.into()), "{cut:?}: only these have no procedure");
}

#[test]
fn names_of_a_library_with_exports_only() {
    let Some(library) = fixture("exports.dll") else { return };
    let (table, code) = ours(&library, None);
    let debug_help = DebugHelp::of_file(&library, OsStr::new("")).expect("Debug Help");
    let cut = compare("exports", &code, &table, &debug_help, false);
    let allowed = ["bare_sum", "call_each", "entry"].map(str::to_owned);
    assert!(cut.is_subset(&allowed.into()), "{cut:?}: only these are exported");
}

/// Output of Microsoft's compiler and linker.
#[test]
fn names_of_programs_with_pdbs_from_microsoft_tools() {
    for (image, pdb) in [
        ("dump_syms/dump_syms_regtest64.exe", "dump_syms/dump_syms_regtest64.pdb"),
        ("symbolic/CrashWithException.exe", "symbolic/CrashWithException.pdb"),
    ] {
        let file = |name| stackhound_corpus::bytes(&format!("symbols/pairs/{name}"));
        let (Some(bytes), Some(pdb)) = (file(image), file(pdb)) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Image::parse(&bytes).expect("an image").pdb().expect("a PDB's name");
        let program = folder.path().join("program.exe");
        let database = folder.path().join(identity.file_name());
        std::fs::write(&program, &bytes).expect("written");
        std::fs::write(&database, &pdb).expect("written");
        let (table, code) = ours(&program, Some(&database));
        let debug_help = DebugHelp::of_file(&program, OsStr::new("")).expect("Debug Help");
        compare(image, &code, &table, &debug_help, true);
    }
}
