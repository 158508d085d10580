//! Modules as libraries, each with a symbol table of the names of the profile's frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use fxprof_processed_profile::debugid::DebugId;
use fxprof_processed_profile::{LibraryHandle, LibraryInfo, Profile as Output, Symbol, SymbolTable};
use stackhound_types::PdbIdentity;

use stackhound_profile::Profile;
use stackhound_profile::{Frame, Module, ModuleOffset, Origin};

/// The libraries, in the order of the profile's modules.
pub struct Libraries {
    handles: Vec<LibraryHandle>,
    tables: Vec<Arc<SymbolTable>>,
}

impl Libraries {
    pub fn new(profile: &Profile, output: &mut Output) -> Libraries {
        // Functions by start address: name, and size as far as frames show it.
        let mut functions: Vec<BTreeMap<u32, (&str, u32)>> = vec![BTreeMap::new(); profile.modules().len()];
        for frame in profile.frames() {
            // An inlined function has the addresses of the function that contains it.
            let Some(location) = frame.location.as_ref().filter(|_| frame.origin != Origin::Inlined) else {
                continue;
            };
            let start = start(location);
            let size = location.instruction().saturating_sub(start).saturating_add(1);
            let function = functions[location.module.index()].entry(start).or_insert((&frame.name, size));
            if function.0 == frame.name {
                function.1 = function.1.max(size);
            }
        }
        let tables: Vec<_> = functions.into_iter().map(table).collect();
        let handles = profile.modules().iter().zip(&tables);
        let handles = handles.map(|(module, table)| output.add_lib(library(module, table.clone()))).collect();
        Libraries { handles, tables }
    }

    /// The library and address of a frame, if its symbol table gives the address the frame's name.
    pub fn find(&self, frame: &Frame) -> Option<(LibraryHandle, u32)> {
        let location = frame.location.as_ref().filter(|_| frame.origin != Origin::Inlined)?;
        let module = location.module.index();
        let symbol = self.tables[module].lookup(location.instruction())?;
        (symbol.name == frame.name).then(|| (self.handles[module], location.instruction()))
    }
}

/// The start of the named function. A name without an offset covers one instruction.
fn start(location: &ModuleOffset) -> u32 {
    location.offset.map_or(location.instruction(), |offset| location.rva.saturating_sub(offset))
}

fn table(functions: BTreeMap<u32, (&str, u32)>) -> Arc<SymbolTable> {
    let symbols = functions.into_iter().map(|(address, (name, size))| Symbol {
        address,
        size: Some(size),
        name: name.to_owned(),
    });
    Arc::new(SymbolTable::new(symbols.collect()))
}

fn library(module: &Module, table: Arc<SymbolTable>) -> LibraryInfo {
    let pdb = module.pdb.as_ref();
    let debug_path = pdb.map_or(&module.name, |pdb| &pdb.name);
    let debug_name = pdb.map_or(module.name.as_str(), PdbIdentity::file_name);
    LibraryInfo {
        name: module.name.clone(),
        debug_name: debug_name.to_owned(),
        path: module.path.clone(),
        debug_path: debug_path.clone(),
        debug_id: pdb
            .map_or(DebugId::nil(), |pdb| DebugId::from_guid_age(&pdb.guid.0, pdb.age).unwrap_or_default()),
        code_id: module.image.map(|image| image.store_key()),
        arch: None,
        symbol_table: Some(table),
    }
}
