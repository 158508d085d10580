//! Collects the symbols of a module and selects names.

#[cfg(feature = "pdb")]
mod pdb;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use stackhound_types::Rva;

use super::names::Interner;
use super::spans::{Span, flatten};
use super::{Code, Inlines, Lines, NONE, Ranges, Starts, SymbolTable};
use crate::demangle::{demangle, demangle_public};
use crate::image::{Image, ImageError};
#[cfg(feature = "pdb")]
pub use pdb::Detail;

/// Builds a [`SymbolTable`] from any combination of a PDB, exports, function ranges and ranges of
/// code, in any order.
#[derive(Debug, Default)]
pub struct SymbolTableBuilder {
    names: Interner,
    procedures: Vec<Span<u32>>,
    publics: Vec<Public>,
    /// Address and name.
    exports: Vec<(u32, u32)>,
    /// Start and end.
    functions: Vec<(u32, u32)>,
    /// Start, end, and the start of the function that they belong to.
    chunks: Vec<(u32, u32, u32)>,
    /// Start and end.
    code: Vec<(u32, u32)>,
    lines: Vec<Span<FileLine>>,
    /// By depth: the function and the source location in it.
    inlines: Vec<Vec<Span<(u32, FileLine)>>>,
    /// The number of ranges from the PDB.
    #[cfg(feature = "pdb")]
    ranges: usize,
}

type FileLine = (u32, u32);

#[cfg_attr(not(feature = "pdb"), allow(dead_code, reason = "only PDBs have them"))]
#[derive(Debug)]
struct Public {
    rva: u32,
    /// The name as in the PDB.
    name: Box<str>,
    function: bool,
    x86: bool,
}

/// A start address and a name.
type Begins = (u32, u32);

impl SymbolTableBuilder {
    /// Creates a builder without any names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an exported function. Forwarders have no address and must not be added.
    pub fn add_export(&mut self, rva: Rva, name: &str) {
        if let Some(name) = self.names.number(&demangle(name)) {
            self.exports.push((rva.0, name));
        }
    }

    /// Adds the range of a function without a name, as in unwind tables.
    pub fn add_function(&mut self, range: Range<Rva>) {
        self.functions.push((range.start.0, range.end.0));
    }

    /// Adds a part of a function that is separate from the function's start.
    pub fn add_chunk(&mut self, range: Range<Rva>, function: Rva) {
        self.chunks.push((range.start.0, range.end.0, function.0));
    }

    /// Adds the range of a section of code.
    pub fn add_code(&mut self, range: Range<Rva>) {
        self.code.push((range.start.0, range.end.0));
    }

    /// Selects names and sorts them.
    pub fn build(mut self) -> SymbolTable {
        let code = merged(std::mem::take(&mut self.code));
        let mut procedures = std::mem::take(&mut self.procedures);
        procedures.sort_by_key(|span| (span.start, Reverse(span.end), self.names.get(span.value)));

        let exports = self.exports(&code);
        let exported = self.exported(&exports, &procedures);
        let publics = self.publics(&procedures, &code);

        let begin =
            |span: Span<u32>| Span { start: span.start, end: span.end, value: (span.start, span.value) };
        let named = procedures.into_iter().chain(publics).map(begin).collect();
        let mut kept = Kept { all: std::mem::take(&mut self.names), names: Interner::default() };
        let pdb = kept.ranges(flatten(named));
        let exported = kept.ranges(flatten(exported));
        let starts = exports.iter().map(|export| export.0).collect();
        let names = exports.iter().map(|export| kept.number(export.1)).collect();
        let lines = kept.lines(flatten(std::mem::take(&mut self.lines)));
        let inlines = kept.inlines(std::mem::take(&mut self.inlines));
        SymbolTable {
            names: kept.names.finish(),
            pdb,
            exported,
            exports: Starts { starts, names },
            code,
            lines,
            inlines,
        }
    }

    /// Returns one export for each address in code.
    fn exports(&mut self, code: &Code) -> Vec<Begins> {
        let mut exports = std::mem::take(&mut self.exports);
        if !code.starts.is_empty() {
            exports.retain(|export| code.contains(export.0));
        }
        exports.sort_by_key(|&(start, name)| (start, self.names.get(name)));
        exports.dedup_by_key(|export| export.0);
        exports
    }

    /// Returns the ranges of exports, as far as their ends are known.
    fn exported(&self, exports: &[Begins], procedures: &[Span<u32>]) -> Vec<Span<Begins>> {
        let mut ends: HashMap<u32, u32> = HashMap::new();
        let procedures = procedures.iter().map(|span| (span.start, span.end));
        for (start, end) in procedures.chain(self.functions.iter().copied()) {
            let known = ends.entry(start).or_insert(end);
            *known = end.max(*known);
        }
        let exported = exports.iter().map(|&(start, name)| {
            let end = ends.get(&start).copied().unwrap_or(start.saturating_add(1));
            Span { start, end, value: (start, name) }
        });
        // Offsets are not negative, so chunks before their function get no name from it.
        let chunks = self.chunks.iter().filter(|(start, _, function)| function < start);
        let chunks = chunks.filter_map(|&(start, end, function)| {
            let export = exports.binary_search_by_key(&function, |export| export.0).ok()?;
            Some(Span { start, end, value: exports[export] })
        });
        exported.chain(chunks).collect()
    }

    /// Returns the public symbols outside of procedures, one for each address, with their ranges.
    fn publics(&mut self, procedures: &[Span<u32>], code: &Code) -> Vec<Span<u32>> {
        let mut publics = std::mem::take(&mut self.publics);
        publics.retain(|public| code.contains(public.rva));
        publics.sort_by_key(|public| public.rva);
        let mut spans = Vec::new();
        let mut procedures = procedures.iter().peekable();
        // The end of the procedures that start at or before the address.
        let mut covered = 0;
        let mut same = publics.chunk_by(|a, b| a.rva == b.rva).peekable();
        while let Some(publics) = same.next() {
            let start = publics[0].rva;
            while let Some(procedure) = procedures.next_if(|procedure| procedure.start <= start) {
                covered = covered.max(procedure.end);
            }
            if start < covered {
                continue;
            }
            let rank =
                |public: &Public| (!public.function, demangle_public(&public.name, public.x86).into_owned());
            let Some((_, name)) = publics.iter().map(rank).min() else { continue };
            let Some(name) = self.names.number(&name) else { continue };
            let next = same.peek().map(|next| next[0].rva);
            let procedure = procedures.peek().map(|procedure| procedure.start);
            let ends = [code.end(start), next, procedure];
            if let Some(end) = ends.into_iter().flatten().min() {
                spans.push(Span { start, end, value: name });
            }
        }
        spans
    }

    /// Adds the data of an image: exports of code, function ranges with their chunks, and sections
    /// of code. Returns the number of entries that could not be read and are missing.
    ///
    /// # Errors
    /// The exports cannot be read. All other data of the image is added.
    pub fn add_image(&mut self, image: &Image<'_>) -> Result<usize, ImageError> {
        for section in image.sections().iter().filter(|section| section.executable) {
            self.add_code(section.rva..Rva(section.rva.0.saturating_add(section.size)));
        }
        let functions = image.functions();
        for function in &functions.entries {
            match function.primary {
                Some(primary) if primary != function.start => {
                    self.add_chunk(function.start..function.end, primary);
                }
                _ => self.add_function(function.start..function.end),
            }
        }
        let exports = image.exports()?;
        for code in exports.code(image) {
            self.add_export(code.rva, code.name());
        }
        Ok(functions.unreadable + exports.unreadable)
    }
}

/// The names that are actually used.
struct Kept {
    all: Interner,
    names: Interner,
}

impl Kept {
    fn number(&mut self, name: u32) -> u32 {
        if name == NONE {
            return NONE;
        }
        self.names.number(self.all.get(name)).unwrap_or(NONE)
    }

    fn ranges(&mut self, flat: Vec<(u32, Option<Begins>)>) -> Ranges {
        let starts = flat.iter().map(|entry| entry.0).collect();
        let begins = flat.iter().map(|&(start, named)| named.map_or(start, |named| named.0)).collect();
        let names = flat.iter().map(|entry| entry.1.map_or(NONE, |named| self.number(named.1))).collect();
        Ranges { starts, begins, names }
    }
}

impl Kept {
    fn lines(&mut self, flat: Vec<(u32, Option<FileLine>)>) -> Lines {
        let location = |entry: &(u32, Option<FileLine>)| entry.1.unwrap_or((NONE, 0));
        Lines {
            starts: flat.iter().map(|entry| entry.0).collect(),
            files: flat.iter().map(|entry| self.number(location(entry).0)).collect(),
            numbers: flat.iter().map(|entry| location(entry).1).collect(),
        }
    }

    fn inlines(&mut self, by_depth: Vec<Vec<Span<(u32, FileLine)>>>) -> Inlines {
        let mut depths = Vec::new();
        let mut all = Vec::new();
        for spans in by_depth {
            all.extend(flatten(spans));
            depths.push(all.len() as u32);
        }
        let functions =
            all.iter().map(|entry| entry.1.map_or(NONE, |inline| self.number(inline.0))).collect();
        let locations =
            all.into_iter().map(|(start, inline)| (start, inline.map(|inline| inline.1))).collect();
        Inlines { depths: depths.into(), lines: self.lines(locations), functions }
    }
}

/// Merges ranges that overlap or touch.
fn merged(mut ranges: Vec<(u32, u32)>) -> Code {
    ranges.retain(|range| range.0 < range.1);
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    let (starts, ends): (Vec<_>, Vec<_>) = merged.into_iter().unzip();
    Code { starts: starts.into(), ends: ends.into() }
}
