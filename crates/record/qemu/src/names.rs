//! Names of addresses: of functions of the kernel, and of functions in the files that the current
//! process executes.

use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::Space;
use stackhound_calltree::{LocationId, LocationInfo, ModuleId, ModuleInfo};
use stackhound_record_elf::{Image, Located, demangle};
use stackhound_record_guest::System as Guest;
use stackhound_types::Address;

use crate::files::Files;
use crate::steps::KERNEL;

/// Maximum number of locations of programs that are kept to find them fast.
const LOCATIONS_MAX: usize = 1 << 20;

/// The place of code of a program: its space, its process and program.
type Program = (Space, Option<(u32, u32)>);

/// Resolves addresses to locations.
#[derive(Debug, Default)]
pub(crate) struct Names {
    files: Files,
    images: FxHashMap<Rc<str>, Rc<Image>>,
    /// By path, or by name for modules of the kernel, and base.
    modules: FxHashMap<(Rc<str>, u64), ModuleId>,
    of_kernel: FxHashMap<Address, LocationId>,
    thunks: FxHashSet<Address>,
    /// Functions of the kernel that are entered through thunks: by the locations of both.
    entries: FxHashMap<(LocationId, LocationId), LocationId>,
    of_programs: FxHashMap<(Program, Address), LocationId>,
    /// Locations in modules.
    known: FxHashMap<LocationInfo, LocationId>,
}

impl Names {
    pub fn new(files: Files) -> Names {
        Names { files, ..Names::default() }
    }

    /// The kernel has these thunks.
    pub fn set_thunks(&mut self, thunks: Vec<Address>) {
        self.thunks.extend(thunks);
    }

    /// Whether a thunk of the kernel begins at an address.
    pub fn is_thunk(&self, address: Address) -> bool {
        address.0 >= KERNEL && self.thunks.contains(&address)
    }

    /// The location of a function of the kernel that is entered through a thunk. New locations are written to
    /// the journal.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn entry<W: Write>(
        &mut self,
        function: Address,
        thunk: Address,
        guest: Option<&dyn Guest>,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationId> {
        let function = self.location(function, Space::KERNEL, guest, journal)?;
        let thunk = self.location(thunk, Space::KERNEL, guest, journal)?;
        Ok(match self.entries.entry((function, thunk)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(journal.entry(function, thunk)?),
        })
    }

    /// The location of an address. A new location and its module are written to the journal.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn location<W: Write>(
        &mut self,
        address: Address,
        space: Space,
        guest: Option<&dyn Guest>,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationId> {
        if address.0 >= KERNEL {
            return match self.of_kernel.get(&address) {
                Some(&known) => Ok(known),
                None => {
                    let info = self.in_kernel(address, guest, journal)?;
                    let location = journal.location(&info)?;
                    self.of_kernel.insert(address, location);
                    Ok(location)
                }
            };
        }
        let current = guest.and_then(|guest| Some((guest.current()?.process, guest.program()?)));
        let key = ((space, current), address);
        if let Some(&known) = self.of_programs.get(&key) {
            return Ok(known);
        }
        let info = self.in_program(address, guest, journal)?;
        let location = match info.module {
            None => journal.location(&info)?,
            Some(_) => match self.known.entry(info) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let location = journal.location(new.key())?;
                    *new.insert(location)
                }
            },
        };
        if self.of_programs.len() >= LOCATIONS_MAX {
            self.of_programs.clear();
        }
        self.of_programs.insert(key, location);
        Ok(location)
    }

    fn in_kernel<W: Write>(
        &mut self,
        address: Address,
        guest: Option<&dyn Guest>,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationInfo> {
        let Some(code) = guest.and_then(|guest| guest.kernel_code_at(address)) else {
            return Ok(unnamed(address));
        };
        let module = match self.modules.entry((code.module.into(), code.base.0)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let path = code.path.map(str::to_owned);
                let info = ModuleInfo { name: code.module.to_owned(), path, base: Some(code.base) };
                *new.insert(journal.module(&info)?)
            }
        };
        Ok(LocationInfo {
            module: Some(module),
            rva: Some(address.0.wrapping_sub(code.base.0)),
            symbol: code.function.map(|function| function.name.to_owned()),
            symbol_offset: code.function.map_or(0, |function| function.offset),
            ..unnamed(address)
        })
    }

    fn in_program<W: Write>(
        &mut self,
        address: Address,
        guest: Option<&dyn Guest>,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationInfo> {
        let Some(mapping) = guest.and_then(|guest| guest.mapping_at(address)) else {
            return Ok(unnamed(address));
        };
        let files = &self.files;
        let image = self.images.entry(Rc::clone(&mapping.path)).or_insert_with(|| {
            let content = files.get(&*mapping.path);
            Rc::new(content.map_or_else(Image::default, |content| Image::read(&content[..], None::<&[u8]>)))
        });
        let Located { base, function } = image.locate(address.0, mapping.start.0, mapping.offset);
        let function = function.map(|(name, offset)| (demangle(name), offset));
        let module = match self.modules.entry((Rc::clone(&mapping.path), base)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let name = Path::new(&*mapping.path).file_name().unwrap_or_default();
                let info = ModuleInfo {
                    name: name.to_string_lossy().into_owned(),
                    path: Some(mapping.path.to_string()),
                    base: Some(Address(base)),
                };
                *new.insert(journal.module(&info)?)
            }
        };
        Ok(LocationInfo {
            module: Some(module),
            rva: Some(address.0.wrapping_sub(base)),
            symbol_offset: function.as_ref().map_or(0, |(_, offset)| *offset),
            symbol: function.map(|(name, _)| name),
            ..unnamed(address)
        })
    }
}

fn unnamed(address: Address) -> LocationInfo {
    LocationInfo { address: Some(address), module: None, rva: None, symbol: None, symbol_offset: 0 }
}
