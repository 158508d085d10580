//! Another reader, `pdb2`, finds the same symbols, lines and inlined functions at the same
//! addresses.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pdb2::{FallibleIterator, IdData, SymbolData, TypeData};
use stackhound_symbols::pdb::{Pdb, SymbolKind};
use stackhound_types::Rva;

use crate::fixtures::{bytes, native, open};

/// The results of both readers.
#[derive(Default)]
struct Content {
    /// Name, address, whether it is marked as a function.
    publics: BTreeSet<(String, u32, bool)>,
    /// Name, start and length.
    procedures: BTreeSet<(String, u32, u32)>,
    /// Address, file, line.
    lines: BTreeSet<(u32, String, u32)>,
    /// Address, length, depth, function, line.
    inlines: BTreeSet<(u32, u32, usize, String, u32)>,
    /// Entries that `pdb2` could not read.
    modules_without_lines: usize,
}

/// Whether the code is from a source line.
fn is_line(line: &pdb2::LineInfo) -> bool {
    !matches!(line.line_start, 0xf0_0f00 | 0xfe_efee)
}

fn ours(pdb: &Pdb) -> Content {
    let mut content = Content::default();
    for public in pdb.publics().expect("publics").iter() {
        let function = public.kind == SymbolKind::Public { function: true };
        let rva = pdb.rva(public.location);
        content.publics.extend(rva.map(|rva| (public.name.to_string(), rva.0, function)));
    }
    let sources = pdb.source_names().expect("names of files");
    let items = pdb.item_names();
    for module in pdb.modules() {
        let module = module.expect("a module");
        for symbol in module.symbols() {
            let rva = pdb.rva(symbol.location);
            content.procedures.extend(rva.map(|rva| (symbol.name.to_string(), rva.0, symbol.length)));
        }
        for line in module.lines() {
            let file = line.file.and_then(|file| sources.name(file));
            if let (Some(Rva(rva)), Some(file)) = (pdb.rva(line.location), file) {
                content.lines.insert((rva, file.into_owned(), line.line));
            }
        }
        for inline in module.inlines() {
            if inline.function.is_of_another_module() {
                continue;
            }
            let name = items.name(inline.function).expect("a name");
            let rva = pdb.rva(inline.location);
            content.inlines.extend(rva.map(|rva| (rva.0, inline.length, inline.depth, name, inline.line)));
        }
    }
    content
}

fn theirs(bytes: &[u8]) -> pdb2::Result<Content> {
    let mut pdb = pdb2::PDB::open(Cursor::new(bytes))?;
    let addresses = pdb.address_map()?;
    let mut content = Content::default();
    let globals = pdb.global_symbols()?;
    let mut globals = globals.iter();
    while let Some(symbol) = globals.next()? {
        let Ok(SymbolData::Public(public)) = symbol.parse() else { continue };
        let rva = public.offset.to_rva(&addresses);
        content.publics.extend(rva.map(|rva| (public.name.to_string().into_owned(), rva.0, public.function)));
    }
    let strings = pdb.string_table().ok();
    let (items, types) = (pdb.id_information()?, pdb.type_information()?);
    let mut item_finder = items.finder();
    let mut all_items = items.iter();
    while all_items.next()?.is_some() {
        item_finder.update(&all_items);
    }
    let mut type_finder = types.finder();
    let mut all_types = types.iter();
    while all_types.next()?.is_some() {
        type_finder.update(&all_types);
    }
    let function = |id| -> pdb2::Result<String> {
        Ok(match item_finder.find(id)?.parse()? {
            IdData::Function(function) => match function.scope {
                Some(scope) => match item_finder.find(scope)?.parse()? {
                    IdData::String(scope) => format!("{}::{}", scope.name, function.name),
                    other => panic!("{other:?}"),
                },
                None => function.name.to_string().into_owned(),
            },
            IdData::MemberFunction(method) => match type_finder.find(method.parent)?.parse()? {
                TypeData::Class(class) => format!("{}::{}", class.name, method.name),
                TypeData::Union(union) => format!("{}::{}", union.name, method.name),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
    };
    let information = pdb.debug_information()?;
    let mut modules = information.modules()?;
    while let Some(module) = modules.next()? {
        let Some(module) = pdb.module_info(&module)? else { continue };
        let inlinees: HashMap<_, _> =
            module.inlinees()?.map(|inlinee| Ok((inlinee.index(), inlinee))).collect()?;
        let mut symbols = module.symbols()?;
        let mut procedure = None;
        let mut inlines = 0;
        while let Some(symbol) = symbols.next()? {
            match symbol.parse() {
                Ok(SymbolData::Procedure(found)) => {
                    let rva = found.offset.to_rva(&addresses);
                    content
                        .procedures
                        .extend(rva.map(|rva| (found.name.to_string().into_owned(), rva.0, found.len)));
                    procedure = Some(found.offset);
                }
                Ok(SymbolData::Thunk(found)) => {
                    let rva = found.offset.to_rva(&addresses);
                    let thunk =
                        |rva: pdb2::Rva| (found.name.to_string().into_owned(), rva.0, u32::from(found.len));
                    content.procedures.extend(rva.map(thunk));
                }
                Ok(SymbolData::InlineSite(site)) => {
                    let start = procedure.expect("a procedure around");
                    let inlinee = inlinees.get(&site.inlinee).filter(|_| site.inlinee.0 >> 31 == 0);
                    if let Some(inlinee) = inlinee {
                        let name = function(site.inlinee)?;
                        let mut lines = inlinee.lines(start, &site);
                        while let Some(line) = lines.next()? {
                            let rva = line.offset.to_rva(&addresses);
                            let Some((rva, length)) = rva.zip(line.length.filter(|length| *length > 0))
                            else {
                                continue;
                            };
                            content.inlines.insert((rva.0, length, inlines, name.clone(), line.line_start));
                        }
                    }
                    inlines += 1;
                }
                Ok(SymbolData::InlineSiteEnd) => inlines -= 1,
                _ => {}
            }
        }
        // `pdb2` asserts that lines are in the order of their code, which is not always the case.
        let lines = catch_unwind(AssertUnwindSafe(|| -> pdb2::Result<Vec<_>> {
            let program = module.line_program()?;
            let lines = program.lines().filter(|line| Ok(is_line(line) && line.length != Some(0)));
            lines.map(|line| Ok((program.get_file_info(line.file_index)?.name, line))).collect()
        }));
        let Ok(lines) = lines else {
            content.modules_without_lines += 1;
            continue;
        };
        for (file, line) in lines? {
            let file = strings.as_ref().expect("names of files").get(file)?;
            let rva = line.offset.to_rva(&addresses);
            content.lines.extend(rva.map(|rva| (rva.0, file.to_string().into_owned(), line.line_start)));
        }
    }
    Ok(content)
}

/// Marks the original sections as those of the image, which is correct and which `pdb2` requires.
fn with_original_sections(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    // The numbers of the streams: OMAP to and from the source, the sections, and none for the
    // original ones.
    let numbers = bytes.windows(22).position(|numbers| {
        let number = |at: usize| u16::from_le_bytes([numbers[2 * at], numbers[2 * at + 1]]);
        let none = u16::MAX;
        number(1) == none
            && number(3) != none
            && number(4) == number(3) + 1
            && number(10) == none
            && [6, 7, 8].map(number) == [none; 3]
            && number(5) < number(3)
    });
    let at = numbers.expect("the optional debug header");
    bytes.copy_within(at + 10..at + 12, at + 20);
    bytes
}

/// Returns the elements that are in only one of two sets, and the number of excluded ones. Excluded
/// are symbols that `pdb2` finds outside of any image, because it does not support blocks that are
/// marked as removed with the highest bit. Ours are then at the addresses in the other table.
fn differences<T: Ord + Debug>(
    ours: &BTreeSet<T>,
    theirs: &BTreeSet<T>,
    rva: fn(&T) -> u32,
) -> (Vec<String>, usize) {
    let (there, gone): (Vec<_>, Vec<_>) = theirs.difference(ours).partition(|entry| rva(entry) < 1 << 31);
    let ours_only = ours.difference(theirs).filter(|_| gone.is_empty());
    let ours_only = ours_only.map(|entry| format!("ours only {entry:x?}"));
    (ours_only.chain(there.into_iter().map(|entry| format!("theirs only {entry:x?}"))).collect(), gone.len())
}

#[test]
fn another_reader_finds_the_same() {
    for name in native() {
        let Some(bytes) = bytes(name) else { return };
        let pdb = open(&bytes);
        let bytes = if pdb.is_rearranged() { with_original_sections(&bytes) } else { bytes };
        let (ours, theirs) = (ours(&pdb), theirs(&bytes).expect("a PDB"));
        let (publics, _) = differences(&ours.publics, &theirs.publics, |public| public.1);
        let (procedures, _) = differences(&ours.procedures, &theirs.procedures, |procedure| procedure.1);
        let (mut lines, gone) = differences(&ours.lines, &theirs.lines, |line| line.0);
        let (inlines, _) = differences(&ours.inlines, &theirs.inlines, |inline| inline.0);
        println!(
            "{name}: {} public symbols, {} procedures, {} lines ({gone} gone, {} modules refused), {} of inlined functions",
            ours.publics.len(),
            ours.procedures.len(),
            ours.lines.len(),
            theirs.modules_without_lines,
            ours.inlines.len()
        );
        if theirs.modules_without_lines > 0 {
            lines.retain(|line| line.starts_with("theirs"));
        }
        let wrong: Vec<_> = [publics, procedures, lines, inlines].concat();
        assert!(wrong.is_empty(), "{name}: {} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}
