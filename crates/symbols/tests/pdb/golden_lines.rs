//! Every line that another program listed is found.

use std::collections::HashMap;

use stackhound_symbols::Symbols;
use stackhound_symbols::pdb::Pdb;
use stackhound_types::{AddressKind, Rva};

use crate::fixtures::{GOLDEN, bytes, open, table};

/// All source locations of each address in a PDB. There are several if the linker folded functions.
fn all_lines(pdb: &Pdb) -> HashMap<u32, Vec<(String, u32)>> {
    let sources = pdb.source_names().expect("names of files");
    let mut all: HashMap<u32, Vec<_>> = HashMap::new();
    for module in pdb.modules() {
        for line in module.expect("a module").lines() {
            let file = line.file.and_then(|file| sources.name(file)).unwrap_or_default();
            for address in pdb
                .ranges(line.location, line.length)
                .into_iter()
                .flat_map(|range| range.start.0..range.end.0)
            {
                all.entry(address).or_default().push((file.to_string(), line.line));
            }
        }
    }
    all
}

#[test]
fn lines_agree_with_the_golden_lists() {
    let mut wrong = Vec::new();
    let (mut same, mut folded, mut hidden) = (0, 0, 0);
    for (pdb_name, sym) in GOLDEN {
        let (Some(pdb), Some(sym)) = (bytes(pdb_name), bytes(sym)) else { return };
        let sym = String::from_utf8(sym).expect("text");
        let pdb = open(&pdb);
        let table = table(&pdb);
        let all = all_lines(&pdb);
        let mut files = HashMap::new();
        let hex = |digits| u32::from_str_radix(digits, 16).ok();
        for line in sym.lines() {
            if let Some(file) = line.strip_prefix("FILE ") {
                files.extend(file.split_once(' '));
                continue;
            }
            let [rva, size, number, file] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            let (Some(rva), Some(size), Ok(number)) = (hex(rva), hex(size), number.parse::<u32>()) else {
                continue;
            };
            // Lines without code.
            if size == 0 {
                continue;
            }
            let expected = (files[file], number);
            for at in [rva, rva + size - 1] {
                let ours = table.line(Rva(at), AddressKind::Instruction);
                let ours = ours.as_ref().map(|line| (&*line.file, line.line));
                let others = all.get(&at).map_or(&[][..], Vec::as_slice);
                if ours == Some(expected) {
                    same += 1;
                } else if others.iter().any(|(file, line)| (file.as_str(), *line) == expected) {
                    folded += 1;
                } else if ours.is_none() && others.iter().all(|other| other.1 == 0) {
                    // Golden lists contain the number for code without a line, or continue with the
                    // previous line.
                    hidden += 1;
                } else {
                    wrong.push(format!("{pdb_name}: {at:#x} ({line}): {expected:?}, {ours:?}"));
                }
            }
        }
    }
    println!("{same} the same, {folded} of another function at the address, {hidden} of no line");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
