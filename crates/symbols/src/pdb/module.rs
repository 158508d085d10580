//! What the compiler wrote about one object file.

use std::collections::HashSet;

use ms_pdb::BStr;
use ms_pdb::StreamData;
use ms_pdb::dbi::{IterModuleInfo, ModuleInfo};
use ms_pdb::modi::ModiStreamData;
use ms_pdb::syms::{Proc, SymKind, Thunk};

use super::{Pdb, PdbError, SectionOffset};

/// What a symbol is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SymbolKind {
    /// A function with a length.
    Procedure {
        /// Seen by other modules.
        global: bool,
    },
    /// Code that the linker made, such as a jump to an imported function.
    Thunk,
    /// What the linker knew of: a function, a label, or data. Its name is decorated.
    Public {
        /// Said to be a function. Labels in code are not, as little as data.
        function: bool,
    },
}

/// A name in a PDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'p> {
    /// As it is in the record: mostly UTF-8.
    pub name: &'p BStr,
    /// What it is.
    pub kind: SymbolKind,
    /// Where it begins.
    pub location: SectionOffset,
    /// Bytes it takes; 0 for publics.
    pub length: u32,
}

/// Modules of a PDB. Each stream is read when it is its turn.
#[derive(Debug)]
pub struct Modules<'p> {
    pdb: &'p Pdb,
    rest: IterRest<'p>,
    read: HashSet<u32>,
}

/// `IterModuleInfo` with the trait that it lacks.
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
        const WHAT: &str = "module";
        let Some(stream) = module.stream() else { return Ok(None) };
        if !self.read.insert(stream) {
            return Err(PdbError::damaged(WHAT, format!("stream {stream} belongs to two modules")));
        }
        let stream = self.pdb.streams.read(stream, WHAT)?;
        let content =
            ModiStreamData::new(stream, module.header()).map_err(|error| PdbError::damaged(WHAT, error))?;
        Ok(Some(Module { content }))
    }
}

impl Iterator for Modules<'_> {
    /// One with a stream. An error is of that module only.
    type Item = Result<Module, PdbError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some(module) = self.rest.0.next() else {
                // What is left over is no record.
                let left = std::mem::replace(&mut self.rest.0, IterModuleInfo::new(&[])).rest().len();
                let reason = || format!("{left} bytes that are no record");
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
    /// Its procedures and thunks, in the order of the stream.
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
