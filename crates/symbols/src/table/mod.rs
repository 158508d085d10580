//! The names of one module, compact and sorted. A table is built once from a PDB and exports, and
//! kept in memory or in a file.
//!
//! Choice of the name for an address:
//!
//! - `pdb`: the procedure that contains it. If there are several, the one that starts last, then
//!   the one that ends first, then the least name. Without a procedure, the preceding public symbol
//!   in code, up to the next symbol or the end of the section. Of several symbols at one address,
//!   those that are marked as functions are preferred, then the least name after demangling. In a
//!   rearranged image, offsets are relative to each part of a procedure.
//! - `export`: the exported function that contains it. It extends from the export to the end of the
//!   function range that starts there, or else of the procedure; without either, it is only its
//!   first byte. Later chunks of the function are included. Of several exports at one address, the
//!   least name.
//! - `nearest_export`: `export`, or else the last export in code at or before the address, if it is
//!   at most [`NEAREST_EXPORT_MAX`] bytes away and the address is itself in code.
//!
//! Of overlapping lines, the one that starts last is used; likewise for inlined functions at one
//! depth.
//!
//! The module handles addresses and names. It is independent of the location of a table.

mod builder;
mod file;
mod names;
mod spans;

#[cfg(feature = "pdb")]
pub use builder::Detail;
pub use builder::SymbolTableBuilder;
pub use file::TableError;

use std::borrow::Cow;

use stackhound_types::{AddressKind, Rva};

use crate::name::{Inline, Line, NEAREST_EXPORT_MAX, Name, Names, Symbols};
use names::NameTable;

/// Represents a missing name in columns of names.
const NONE: u32 = u32::MAX;

/// The names of a module by address. A lookup is a binary search, and returns borrowed names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolTable {
    names: NameTable,
    pdb: Ranges,
    /// Exported functions, as far as their ends are known.
    exported: Ranges,
    exports: Starts,
    code: Code,
    lines: Lines,
    /// Inlined functions, by depth.
    inlines: Inlines,
}

/// Addresses with the symbols that apply up to the next address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ranges {
    starts: Box<[u32]>,
    /// The start of the symbol, at or before the address.
    begins: Box<[u32]>,
    /// [`NONE`] if there is no symbol.
    names: Box<[u32]>,
}

/// Addresses with a name each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Starts {
    starts: Box<[u32]>,
    names: Box<[u32]>,
}

/// Ranges of code that do not touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Code {
    starts: Box<[u32]>,
    ends: Box<[u32]>,
}

/// Addresses with the source locations that apply up to the next address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Lines {
    starts: Box<[u32]>,
    /// [`NONE`] if the location is unknown.
    files: Box<[u32]>,
    numbers: Box<[u32]>,
}

/// For each depth a sorted list, one after another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Inlines {
    /// The end of the list of each depth.
    depths: Box<[u32]>,
    lines: Lines,
    /// The function, or [`NONE`] if there is none.
    functions: Box<[u32]>,
}

/// Returns the index of the last sorted address at or before this one.
fn last_before(starts: &[u32], address: u32) -> Option<usize> {
    starts.partition_point(|start| *start <= address).checked_sub(1)
}

impl Ranges {
    fn find(&self, address: u32) -> Option<(u32, u32)> {
        let at = last_before(&self.starts, address)?;
        let name = self.names[at];
        (name != NONE).then_some((self.begins[at], name))
    }
}

impl Inlines {
    /// The entries at an address, outermost first.
    fn find(&self, address: u32) -> impl Iterator<Item = usize> {
        let starts = [0].into_iter().chain(self.depths.iter().copied());
        let depths = starts.zip(self.depths.iter().copied());
        depths.map_while(move |(start, end)| {
            let starts = &self.lines.starts[start as usize..end as usize];
            let at = start as usize + last_before(starts, address)?;
            (self.functions[at] != NONE).then_some(at)
        })
    }
}

impl Code {
    fn contains(&self, address: u32) -> bool {
        self.end(address).is_some()
    }

    /// Returns the end of the code that contains an address.
    fn end(&self, address: u32) -> Option<u32> {
        let end = self.ends[last_before(&self.starts, address)?];
        (address < end).then_some(end)
    }
}

impl SymbolTable {
    /// Returns a name for an address. The start of its symbol must be at or before the address.
    fn name(&self, (begins, name): (u32, u32), rva: Rva) -> Option<Name<'_>> {
        let text = Cow::Borrowed(self.names.get(name)?);
        Some(Name { text, offset: rva.0.checked_sub(begins)? })
    }

    /// Returns the source location of an entry.
    fn location<'t>(&'t self, lines: &Lines, at: usize) -> Option<Line<'t>> {
        // Compilers use line 0 for code that belongs to no line.
        let line = Some(lines.numbers[at]).filter(|&line| line != 0)?;
        Some(Line { file: Cow::Borrowed(self.names.get(lines.files[at])?), line })
    }

    fn nearest_export(&self, address: u32) -> Option<(u32, u32)> {
        if !self.code.contains(address) {
            return None;
        }
        let at = last_before(&self.exports.starts, address)?;
        if address - self.exports.starts[at] > NEAREST_EXPORT_MAX {
            return None;
        }
        Some((self.exports.starts[at], self.exports.names[at]))
    }
}

impl Symbols for SymbolTable {
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_> {
        let address = kind.looked_up(rva).0;
        let name = |found: Option<(u32, u32)>| self.name(found?, rva);
        let export = self.exported.find(address);
        Names {
            pdb: name(self.pdb.find(address)),
            export: name(export),
            nearest_export: name(export.or_else(|| self.nearest_export(address))),
        }
    }

    fn line(&self, rva: Rva, kind: AddressKind) -> Option<Line<'_>> {
        let at = last_before(&self.lines.starts, kind.looked_up(rva).0)?;
        self.location(&self.lines, at)
    }

    fn inlines(&self, rva: Rva, kind: AddressKind) -> Vec<Inline<'_>> {
        let inline = |at| {
            let function = Cow::Borrowed(self.names.get(self.inlines.functions[at])?);
            Some(Inline { function, line: self.location(&self.inlines.lines, at) })
        };
        let mut inlines: Vec<_> = self.inlines.find(kind.looked_up(rva).0).filter_map(inline).collect();
        inlines.reverse();
        inlines
    }

    fn memory(&self) -> usize {
        let columns: usize = self.columns().iter().map(|column| size_of_val(*column)).sum();
        size_of::<Self>() + columns + self.names.text().len()
    }
}
