//! Every function and public symbol that another program listed is found and has the same name.

use std::collections::{BTreeMap, HashMap, HashSet};

use stackhound_symbols::Symbols;
use stackhound_symbols::demangle::demangle_public;
use stackhound_symbols::pdb::Pdb;
use stackhound_types::{AddressKind, Rva};

use crate::fixtures::{GOLDEN, bytes, open, table};
use crate::wording;

/// A line of a symbol list.
struct Listed<'s> {
    function: bool,
    rva: Rva,
    size: u32,
    name: &'s str,
}

fn listed(sym: &str) -> impl Iterator<Item = Listed<'_>> {
    sym.lines().filter_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        // Several symbols have the address.
        let rest = rest.strip_prefix("m ").unwrap_or(rest);
        let hex = |digits| u32::from_str_radix(digits, 16).expect("a number");
        match kind {
            "FUNC" => {
                let [rva, size, _, name] = rest.splitn(4, ' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                Some(Listed { function: true, rva: Rva(hex(rva)), size: hex(size), name })
            }
            "PUBLIC" => {
                let [rva, _, name] = rest.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                Some(Listed { function: false, rva: Rva(hex(rva)), size: 0, name })
            }
            _ => None,
        }
    })
}

/// All names in a PDB by the address of their start.
fn all_names(pdb: &Pdb) -> HashMap<Rva, HashSet<String>> {
    let mut all: HashMap<Rva, HashSet<String>> = HashMap::new();
    let x86 = pdb.machine() == 0x14c;
    for public in pdb.publics().expect("publics").iter() {
        if let Some(rva) = pdb.rva(public.location) {
            all.entry(rva).or_default().insert(demangle_public(&public.name.to_string(), x86).into_owned());
        }
    }
    for module in pdb.modules() {
        for symbol in module.expect("a module").symbols() {
            for range in pdb.ranges(symbol.location, symbol.length) {
                all.entry(range.start).or_default().insert(symbol.name.to_string());
            }
        }
    }
    all
}

#[test]
fn names_agree_with_the_golden_lists() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (pdb_name, sym) in GOLDEN {
        let (Some(pdb), Some(sym)) = (bytes(pdb_name), bytes(sym)) else { return };
        let sym = String::from_utf8(sym).expect("text");
        let pdb = open(&pdb);
        let table = table(&pdb);
        let all = all_names(&pdb);
        for Listed { function, rva, size: _, name } in listed(&sym) {
            let ours = table.names(rva, AddressKind::Instruction).pdb;
            let starts_here = ours.as_ref().filter(|ours| ours.offset == 0);
            if let Some(rule) = starts_here.and_then(|ours| wording::same(name, &ours.text)) {
                *counts.entry(rule).or_default() += 1;
                continue;
            }
            let known = all.get(&rva).into_iter().flatten().any(|known| wording::same(name, known).is_some());
            let rule = match (&ours, starts_here) {
                (_, Some(_)) if known => "another name of the same address",
                (Some(_), None) if known && !function => "a public symbol inside of a procedure",
                (None, _) if name.starts_with("<unknown in ") => "golden: code without a symbol",
                _ => {
                    wrong.push(format!("{pdb_name}: {rva} {name}\n    {ours:?}"));
                    continue;
                }
            };
            *counts.entry(rule).or_default() += 1;
        }
    }
    for (rule, count) in &counts {
        println!("{count:6} {rule}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Breakpad includes the padding between two parts of a function. The gap has no name.
#[test]
fn function_ranges_agree_with_the_golden_lists() {
    let mut wrong = Vec::new();
    let (mut same, mut over_padding) = (0, 0);
    for (pdb_name, sym) in GOLDEN {
        let (Some(pdb), Some(sym)) = (bytes(pdb_name), bytes(sym)) else { return };
        let sym = String::from_utf8(sym).expect("text");
        let pdb = open(&pdb);
        let table = table(&pdb);
        let mut ranges: HashMap<Rva, HashSet<Rva>> = HashMap::new();
        for module in pdb.modules() {
            for symbol in module.expect("a module").symbols() {
                for range in pdb.ranges(symbol.location, symbol.length) {
                    ranges.entry(range.start).or_default().insert(range.end);
                }
            }
        }
        for Listed { rva, size, name, .. } in listed(&sym).filter(|listed| listed.function) {
            let end = Rva(rva.0 + size);
            let unnamed_or_same = |rva| {
                let ours = table.names(Rva(rva), AddressKind::Instruction).pdb;
                ours.is_none_or(|ours| wording::same(name, &ours.text).is_some())
            };
            match ranges.get(&rva) {
                Some(ends) if ends.contains(&end) => same += 1,
                Some(_) if pdb.is_rearranged() && (rva.0..end.0).all(unnamed_or_same) => over_padding += 1,
                found => wrong.push(format!("{pdb_name}: {rva}..{end} {name}: {found:x?}")),
            }
        }
    }
    println!("{same} the same, {over_padding} with padding");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
