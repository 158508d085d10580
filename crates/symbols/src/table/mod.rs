//! The names of one module, compact and sorted: made once from a PDB and exports, kept in memory or in a file.
//!
//! Which name an address has:
//!
//! - `pdb`: the procedure that contains it; if several do, the one that begins last, then the one that ends first, then
//!   the least name. Where there is none, the public symbol in code before it, up to the next symbol or the end of the
//!   section; of several at one address those that are said to be functions, then the least name, after demangling. In
//!   a rearranged image each part of a procedure counts from its own start.
//! - `export`: the exported function that contains it: from the export up to the end of the function range, or else of
//!   the procedure, that begins there; without either only its first byte. Chunks of the function that lie behind it
//!   count. Of several at one address the least name.
//! - `nearest_export`: `export`, or else the last export in code at or before it, if it is itself in code.
//!
//! Of lines that overlap, that which begins last counts, and of functions compiled into others at one depth.
//!
//! Knows addresses and names; must not know where a table is kept.

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

use crate::name::{Inline, Line, Name, Names, Symbols};
use names::NameTable;

/// Stands for no name, in columns of names.
const NONE: u32 = u32::MAX;

/// The names of a module by address. A look-up is a binary search; names are lent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolTable {
    names: NameTable,
    pdb: Ranges,
    /// Exported functions as far as their ends are known.
    exported: Ranges,
    exports: Starts,
    code: Code,
    lines: Lines,
    /// Functions that were compiled into others, by how many others they are in.
    inlines: Inlines,
}

/// Addresses, each with what is named there. Good up to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ranges {
    starts: Box<[u32]>,
    /// Where the named thing begins: at or before the start.
    begins: Box<[u32]>,
    /// [`NONE`] where nothing is named.
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

/// Addresses, each with its place in the source code. Good up to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Lines {
    starts: Box<[u32]>,
    /// [`NONE`] where none is known.
    files: Box<[u32]>,
    numbers: Box<[u32]>,
}

/// For each depth a sorted list, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Inlines {
    /// Where the list of each depth ends.
    depths: Box<[u32]>,
    lines: Lines,
    /// The function; [`NONE`] where none is.
    functions: Box<[u32]>,
}

/// Which of the sorted addresses is the last at or before this one.
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

    /// The end of the code that an address is in.
    fn end(&self, address: u32) -> Option<u32> {
        let end = self.ends[last_before(&self.starts, address)?];
        (address < end).then_some(end)
    }
}

impl SymbolTable {
    /// A name for an address; `begins` is at or before it.
    fn name(&self, (begins, name): (u32, u32), rva: Rva) -> Option<Name<'_>> {
        let text = Cow::Borrowed(self.names.get(name)?);
        Some(Name { text, offset: rva.0.checked_sub(begins)? })
    }

    /// The place of an entry.
    fn location<'t>(&'t self, lines: &Lines, at: usize) -> Option<Line<'t>> {
        let file = Cow::Borrowed(self.names.get(lines.files[at])?);
        Some(Line { file, line: lines.numbers[at] })
    }

    fn nearest_export(&self, address: u32) -> Option<(u32, u32)> {
        if !self.code.contains(address) {
            return None;
        }
        let at = last_before(&self.exports.starts, address)?;
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
