//! Adds the data of a PDB to a table.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::{Public, SymbolTableBuilder};
use crate::demangle::demangle_public;
use crate::pdb::{
    self, INLINE_DEPTH_MAX, ItemId, ItemNames, Module, Pdb, PdbError, SourceFile, SourceNames, Symbol,
    SymbolKind,
};
use crate::table::NONE;
use crate::table::names::Interner;
use crate::table::spans::Span;
use stackhound_types::Rva;

/// Maximum number of ranges; further ones are skipped. A damaged rearranged image can split every
/// line into a thousand ranges.
const RANGES_MAX: usize = 1 << 25;
/// `IMAGE_FILE_MACHINE_I386`
const MACHINE_X86: u16 = 0x014c;

/// The data of a PDB that a table contains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Detail {
    /// The names of functions.
    Names,
    /// Also source lines and inlined functions. Takes several times the memory.
    Lines,
}

impl SymbolTableBuilder {
    /// Adds the symbols of a PDB, and its sections of code. Returns the number of damaged modules,
    /// which are missing.
    ///
    /// # Errors
    /// The public symbols, or names that all modules use, cannot be read.
    pub fn add_pdb(&mut self, pdb: &Pdb, detail: Detail) -> Result<usize, PdbError> {
        for section in pdb.sections().iter().filter(|section| section.code) {
            self.add_code(section.rva..Rva(section.rva.0.saturating_add(section.size)));
        }
        let x86 = pdb.machine() == MACHINE_X86;
        // Assemblers use decorated names for procedures.
        let mut decorated = HashSet::new();
        for public in pdb.publics()?.iter() {
            let Some(rva) = pdb.rva(public.location) else { continue };
            let name: Box<str> = public.name.to_string().into();
            if x86 {
                decorated.insert((public.location, name.clone()));
            }
            let function = public.kind == SymbolKind::Public { function: true };
            self.publics.push(Public { rva: rva.0, name, function, x86 });
        }
        let mut sources = match detail {
            Detail::Names => None,
            Detail::Lines => Some(Sources::new(pdb)?),
        };
        let mut damaged = 0;
        for module in pdb.modules() {
            let Ok(module) = module else {
                damaged += 1;
                continue;
            };
            for symbol in module.symbols() {
                let key: (pdb::SectionOffset, Box<str>) = (symbol.location, symbol.name.to_string().into());
                self.add_procedure(pdb, &symbol, &demangle_public(&key.1, decorated.contains(&key)));
            }
            if let Some(sources) = &mut sources {
                self.add_lines(&module, sources);
            }
        }
        Ok(damaged)
    }

    fn add_procedure(&mut self, pdb: &Pdb, symbol: &Symbol<'_>, name: &str) {
        let Some(name) = self.names.number(name) else { return };
        for range in self.ranges(pdb, symbol.location, symbol.length) {
            self.procedures.push(Span { start: range.start.0, end: range.end.0, value: name });
        }
    }

    /// Returns the ranges of a symbol, up to the maximum number of ranges.
    fn ranges(&mut self, pdb: &Pdb, location: pdb::SectionOffset, length: u32) -> Vec<Range<Rva>> {
        let remaining = RANGES_MAX - self.ranges;
        if remaining == 0 {
            return Vec::new();
        }
        let mut ranges = pdb.ranges(location, length);
        ranges.truncate(remaining);
        self.ranges += ranges.len();
        ranges
    }

    fn add_lines(&mut self, module: &Module, sources: &mut Sources<'_>) {
        for line in module.lines() {
            let location = (sources.file(line.file, &mut self.names), line.line);
            for range in self.ranges(sources.pdb, line.location, line.length) {
                self.lines.push(Span { start: range.start.0, end: range.end.0, value: location });
            }
        }
        for inline in module.inlines() {
            let Some(function) = sources.function(inline.function, &mut self.names) else { continue };
            let location = (sources.file(inline.file, &mut self.names), inline.line);
            if self.inlines.len() <= inline.depth {
                self.inlines.resize_with(INLINE_DEPTH_MAX.min(inline.depth + 1), Vec::new);
            }
            for range in self.ranges(sources.pdb, inline.location, inline.length) {
                let span = Span { start: range.start.0, end: range.end.0, value: (function, location) };
                self.inlines[inline.depth].push(span);
            }
        }
    }
}

/// Names of files and inlined functions, each looked up once.
struct Sources<'p> {
    pdb: &'p Pdb,
    names: SourceNames,
    items: ItemNames<'p>,
    /// The remaining size of file names, in bytes. Each name starts at another offset of the
    /// stream.
    left: usize,
    files: HashMap<SourceFile, u32>,
    functions: HashMap<ItemId, Option<u32>>,
}

impl<'p> Sources<'p> {
    fn new(pdb: &'p Pdb) -> Result<Self, PdbError> {
        let names = pdb.source_names()?;
        let left = names.size();
        let items = pdb.item_names();
        Ok(Sources { pdb, names, items, left, files: HashMap::new(), functions: HashMap::new() })
    }

    fn file(&mut self, file: Option<SourceFile>, names: &mut Interner) -> u32 {
        let Some(file) = file else { return NONE };
        *self.files.entry(file).or_insert_with(|| {
            let Some(name) = self.names.name(file).filter(|name| name.len() <= self.left) else {
                return NONE;
            };
            self.left -= name.len();
            names.number(&name).unwrap_or(NONE)
        })
    }

    fn function(&mut self, item: ItemId, names: &mut Interner) -> Option<u32> {
        let name = || names.number(&self.items.name(item)?);
        *self.functions.entry(item).or_insert_with(name)
    }
}
