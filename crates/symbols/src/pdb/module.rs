//! The compiler's records for one object file.

use std::collections::HashSet;

use ms_pdb::BStr;
use ms_pdb::StreamData;
use ms_pdb::dbi::{IterModuleInfo, ModuleInfo};
use ms_pdb::modi::ModiStreamData;
use ms_pdb::syms::{Proc, SymKind, Thunk};

use super::{Pdb, PdbError, SectionOffset};

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SymbolKind {
    /// A function with a length.
    Procedure {
        /// Whether it is visible to other modules.
        global: bool,
    },
    /// Code that the linker generated, such as a jump to an imported function.
    Thunk,
    /// A symbol of the linker: a function, a label, or data. Its name is decorated.
    Public {
        /// Whether it is marked as a function. Labels in code and data are not.
        function: bool,
    },
}

/// A name in a PDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'p> {
    /// The name as in the record, usually UTF-8.
    pub name: &'p BStr,
    /// The kind of the symbol.
    pub kind: SymbolKind,
    /// Its start.
    pub location: SectionOffset,
    /// Its size in bytes; 0 for public symbols.
    pub length: u32,
}

/// Iterates over the modules of a PDB. Each stream is read on demand.
#[derive(Debug)]
pub struct Modules<'p> {
    pdb: &'p Pdb,
    rest: IterRest<'p>,
    read: HashSet<u32>,
}

/// `IterModuleInfo` with an implementation of `Debug`.
struct IterRest<'p>(IterModuleInfo<'p>);

impl std::fmt::Debug for IterRest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.rest().len())
    }
}

impl<'p> Modules<'p> {
    pub(super) fn new(pdb: &'p Pdb) -> Self {
        Modules { pdb, rest: IterRest(pdb.dbi.iter_modules()), read: HashSet::new() }
    }

    fn read(&mut self, module: &ModuleInfo<'p>) -> Result<Option<Module>, PdbError> {
        const PART: &str = "module";
        let Some(stream) = module.stream() else { return Ok(None) };
        if !self.read.insert(stream) {
            return Err(PdbError::damaged(PART, format!("stream {stream} belongs to two modules")));
        }
        let stream = self.pdb.streams.read(stream, PART)?;
        let content =
            ModiStreamData::new(stream, module.header()).map_err(|error| PdbError::damaged(PART, error))?;
        Ok(Some(Module { content }))
    }
}

impl Iterator for Modules<'_> {
    /// A module with a stream. An error affects only that module.
    type Item = Result<Module, PdbError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(module) = self.rest.0.next() else {
                // The remaining bytes are not a record.
                let left = std::mem::replace(&mut self.rest.0, IterModuleInfo::new(&[])).rest().len();
                let reason = || format!("{left} bytes that are not a record");
                return (left > 0).then(|| Err(PdbError::damaged("list of modules", reason())));
            };
            if let Some(module) = self.read(&module).transpose() {
                return Some(module);
            }
        }
    }
}

/// The symbols and lines of an object file.
pub struct Module {
    pub(super) content: ModiStreamData<StreamData>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({} bytes)", self.content.stream_data.len())
    }
}

impl Module {
    /// Iterates over its procedures and thunks in the order of the stream.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.content.iter_syms().filter_map(|record| match record.kind {
            SymKind::S_GPROC32 | SymKind::S_GPROC32_ID => procedure(&record.parse_as().ok()?, true),
            SymKind::S_LPROC32
            | SymKind::S_LPROC32_ID
            | SymKind::S_LPROC32_DPC
            | SymKind::S_LPROC32_DPC_ID => procedure(&record.parse_as().ok()?, false),
            SymKind::S_THUNK32 => {
                let thunk: Thunk<'_> = record.parse_as().ok()?;
                let location = thunk.fixed.offset_segment;
                Some(Symbol {
                    name: thunk.name,
                    kind: SymbolKind::Thunk,
                    location: SectionOffset { section: location.segment(), offset: location.offset() },
                    length: u32::from(thunk.fixed.length.get()),
                })
            }
            _ => None,
        })
    }
}

fn procedure<'p>(procedure: &Proc<'p>, global: bool) -> Option<Symbol<'p>> {
    let location = procedure.fixed.offset_segment;
    Some(Symbol {
        name: procedure.name,
        kind: SymbolKind::Procedure { global },
        location: SectionOffset { section: location.segment(), offset: location.offset() },
        length: procedure.fixed.proc_len.get(),
    })
}
