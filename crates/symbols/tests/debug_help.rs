//! Debug Help and our own reader must give every address the same names: of a small program with a PDB, and of one that
//! has exports only. `scripts/windows-check.sh` makes both and runs this.
#![cfg(windows)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stackhound_symbols::image::Image;
use stackhound_symbols::pdb::Pdb;
use stackhound_symbols::table::{Detail, SymbolTable, SymbolTableBuilder};
use stackhound_symbols::{DebugHelp, Line, Names, Symbols};
use stackhound_types::{AddressKind, Rva};

/// How many differences are shown.
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

/// Pdb, export, nearest export.
type Own = [Option<(String, u32)>; 3];

fn own(names: Names<'_>) -> Own {
    [names.pdb, names.export, names.nearest_export].map(|name| name.map(|n| (n.text.into_owned(), n.offset)))
}

/// Compares the names of all addresses, as instructions and as return addresses. What may differ:
///
/// - Wine's Debug Help knows no end of a symbol without a length, a public one or an export, and gives it its first byte
///   only; Microsoft's goes on to the next. These symbols are returned.
/// - With `choices`: of several names for one function we take the least, Debug Help any. And it names data and labels
///   in a procedure, where we name the procedure.
fn compare(
    what: &str,
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
                    eprintln!("{what} {rva} {kind:?}: ours {mine:?}, Debug Help {other:?}");
                }
            }
        }
    }
    println!(
        "{what}: {} addresses compared twice: {same} answers the same, {unnamed} behind the first byte of a symbol \
         without a length, {chosen} another name of the function or one inside, {different} different",
        code.len()
    );
    assert_eq!(different, 0);
    assert!(same > 40 * chosen);
    cut
}

/// Whether Debug Help, too, has a symbol of this name beginning here.
fn begins(debug_help: &DebugHelp, rva: Rva, name: &str) -> bool {
    let names = own(debug_help.names(rva, AddressKind::Instruction));
    names.iter().flatten().any(|found| *found == (name.to_owned(), 0))
}

/// The file's name and the line. Wine writes the paths of Unix as those of its drives.
fn location(line: Option<Line<'_>>) -> Option<(String, u32)> {
    line.map(|line| (line.file.rsplit(['/', '\\']).next().unwrap_or_default().to_owned(), line.line))
}

/// Compares lines and inlined functions.
fn same_lines(what: &str, code: &[Rva], ours: &SymbolTable, theirs: &DebugHelp) {
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
            eprintln!("{what} {rva}: {line:?} {inlines:?}");
        }
    }
    println!(
        "{what}: {lines} addresses with a line, {inlined} with inlined functions; different: {different:?}"
    );
    assert!(lines > 0 && different[0] == 0);
    // Wine names inlined members of a class without the class: here `Square` for `shapes::Square::Square`.
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
fn names_of_a_library_that_has_exports_only() {
    let Some(library) = fixture("exports.dll") else { return };
    let (table, code) = ours(&library, None);
    let debug_help = DebugHelp::of_file(&library, OsStr::new("")).expect("Debug Help");
    let cut = compare("exports", &code, &table, &debug_help, false);
    let allowed = ["bare_sum", "call_each", "entry"].map(str::to_owned);
    assert!(cut.is_subset(&allowed.into()), "{cut:?}: only these are exported");
}

/// What Microsoft's compiler and linker wrote.
#[test]
fn names_of_programs_with_pdbs_of_microsofts() {
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
