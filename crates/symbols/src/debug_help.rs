//! Names from the Debug Help library of Windows, for modules of live processes, whose files need
//! not be available.
//!
//! The results of the library are converted to the form of our own tables: public names are
//! demangled, and an export that the library returns is treated as the nearest export.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use stackhound_types::{AddressKind, Rva};
use stackhound_windows::Error;
use stackhound_windows::debug_help::{self, Module, Session, Symbol, SymbolSource};

use crate::demangle::{demangle, demangle_public};
use crate::name::{Inline, Line, NEAREST_EXPORT_MAX, Name, Names, Symbols};

/// `IMAGE_FILE_MACHINE_I386`
const MACHINE_X86: u32 = 0x014c;
/// The base address for a module from a file: far from fixed mappings, with space for any size.
const FILE_BASE: u64 = 0x7ff0_0000_0000;

/// One module of a live process, or of a file, with names from Debug Help.
///
/// Each query takes the library's single lock and microseconds of time. Several threads are not
/// faster than one.
#[derive(Debug)]
pub struct DebugHelp {
    session: Arc<Session>,
    module: Module,
}

impl DebugHelp {
    /// Opens an image file. PDBs are searched for in its folder and through the path, which has the
    /// syntax of `_NT_SYMBOL_PATH`. A server in the path is queried.
    pub fn of_file(image: &Path, search_path: &OsStr) -> Result<Self, Error> {
        let session = Session::of_files(search_path)?;
        let module = session.load(image, FILE_BASE, 0)?;
        Ok(DebugHelp { session: Arc::new(session), module })
    }

    /// Opens all modules that a live process currently has. Their symbols are loaded.
    pub fn of_process(process_id: u32, search_path: &OsStr) -> Result<Vec<Self>, Error> {
        let session = Arc::new(Session::of_process(process_id, search_path)?);
        let mut bases = session.bases()?;
        bases.sort_unstable();
        let modules = bases.into_iter().filter_map(|base| session.module_at(base));
        Ok(modules.map(|module| DebugHelp { session: Arc::clone(&session), module }).collect())
    }

    /// Returns the library's description of the module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The address to query for an RVA of the module.
    fn address(&self, rva: Rva, kind: AddressKind) -> Option<u64> {
        let address = self.module.base.checked_add(u64::from(kind.looked_up(rva).0))?;
        self.module.contains(address).then_some(address)
    }

    fn is_fitting(&self) -> bool {
        self.module.source != SymbolSource::UnmatchedPdb
    }

    fn demangled(&self, symbol: &Symbol) -> Cow<'static, str> {
        let x86 = symbol.public && self.module.machine == MACHINE_X86;
        Cow::Owned(demangle_public(&symbol.name, x86).into_owned())
    }
}

fn inline(inline: debug_help::Inline) -> Inline<'static> {
    Inline { function: Cow::Owned(demangle(&inline.function).into_owned()), line: inline.line.map(line) }
}

fn line(line: debug_help::Line) -> Line<'static> {
    Line { file: Cow::Owned(line.file), line: line.line }
}

impl Symbols for DebugHelp {
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_> {
        let mut names = Names::default();
        let Some(address) = self.address(rva, kind) else { return names };
        let Some(symbol) = self.session.symbol_at(address) else { return names };
        let Some(start) = address.checked_sub(symbol.displacement) else { return names };
        let Some(begins) = start.checked_sub(self.module.base) else { return names };
        let Some(offset) = u64::from(rva.0).checked_sub(begins).and_then(|offset| offset.try_into().ok())
        else {
            return names;
        };
        let name = Name { text: self.demangled(&symbol), offset };
        match self.module.source {
            SymbolSource::Pdb | SymbolSource::Other(_) => names.pdb = Some(name),
            SymbolSource::Exports => {
                // Only if the address is in the exported function, and not in a later one without a
                // name.
                let same = symbol.displacement == 0 || self.session.function_at(address) == Some(start);
                names.export = same.then(|| name.clone());
                names.nearest_export = (same || offset <= NEAREST_EXPORT_MAX).then_some(name);
            }
            SymbolSource::None | SymbolSource::UnmatchedPdb => {}
        }
        names
    }

    fn line(&self, rva: Rva, kind: AddressKind) -> Option<Line<'_>> {
        let address = self.address(rva, kind).filter(|_| self.is_fitting())?;
        self.session.line_at(address).map(line)
    }

    fn inlines(&self, rva: Rva, kind: AddressKind) -> Vec<Inline<'_>> {
        let Some(address) = self.address(rva, kind).filter(|_| self.is_fitting()) else { return Vec::new() };
        self.session.inlines_at(address).into_iter().map(inline).collect()
    }

    /// The size of the PDB, which the library maps. Its other memory is unknown.
    fn memory(&self) -> usize {
        let pdb = std::fs::metadata(&self.module.pdb).map_or(0, |file| file.len());
        size_of::<Self>() + usize::try_from(pdb).unwrap_or(usize::MAX / 2)
    }
}
