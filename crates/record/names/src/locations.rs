//! Names of addresses in the recorded program, from its mappings and the functions of the mapped
//! files.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use object::ReadCache;
use rustc_hash::FxHashMap;
use stackhound_calltree::journal::Writer;
use stackhound_calltree::{LocationId, LocationInfo, ModuleId, ModuleInfo};
use stackhound_record_elf::{Image, Located, STUB, demangle};
use stackhound_types::Address;

use crate::maps::Mapping;
use crate::{Process, debug_file};

/// The device and inode of a file, or 0 and the address of a mapping without a file.
type FileKey = (u64, u64);

/// Resolves addresses to locations. Files are read when they are first needed.
#[derive(Debug, Default)]
pub struct Names {
    images: FxHashMap<FileKey, Rc<Image>>,
    /// By file and base, since the program was last replaced.
    modules: FxHashMap<(FileKey, u64), ModuleId>,
    /// By address, as long as the map does not change.
    locations: FxHashMap<u64, LocationId>,
    /// Whether a function starts at an address, as long as the map does not change.
    starts: FxHashMap<u64, bool>,
    /// Whether the target of a call is in a procedure linkage table, as long as the map does not
    /// change.
    linkage: FxHashMap<u64, bool>,
    /// By function and stub.
    entries: FxHashMap<(LocationId, LocationId), LocationId>,
    known: FxHashMap<LocationInfo, LocationId>,
    generation: u64,
}

impl Names {
    /// Discards all modules and locations after the program was replaced.
    pub fn reset(&mut self) {
        self.modules.clear();
        self.locations.clear();
        self.starts.clear();
        self.linkage.clear();
        self.generation = 0;
    }

    /// Whether a function is known to start at an address.
    pub fn is_start(&mut self, process: &mut impl Process, pc: u64) -> bool {
        self.check_map(process);
        if let Some(&known) = self.starts.get(&pc) {
            return known;
        }
        let found = self.in_image(process, pc).is_some_and(|(image, address)| {
            image.function_at(address).is_some_and(|(_, offset)| offset == 0)
        });
        self.starts.insert(pc, found);
        found
    }

    /// Whether an address is in a procedure linkage table.
    pub fn is_linkage(&mut self, process: &mut impl Process, pc: u64) -> bool {
        self.check_map(process);
        if let Some(&known) = self.linkage.get(&pc) {
            return known;
        }
        let found = self.in_image(process, pc).is_some_and(|(image, address)| image.is_linkage(address));
        self.linkage.insert(pc, found);
        found
    }

    /// Discards results for an older map.
    fn check_map(&mut self, process: &mut impl Process) {
        let generation = process.generation();
        if generation != self.generation {
            self.generation = generation;
            self.locations.clear();
            self.starts.clear();
            self.linkage.clear();
        }
    }

    /// The mapping at an address, if it has a name, and its image.
    fn find(&mut self, process: &mut impl Process, pc: u64) -> Option<(Mapping, FileKey, Rc<Image>)> {
        let mapping = process.map().at(pc).filter(|mapping| !mapping.name.as_os_str().is_empty())?.clone();
        let (key, image) = self.image(process, &mapping);
        Some((mapping, key, image))
    }

    /// The image that contains an address, and the address in it as its file states it.
    fn in_image(&mut self, process: &mut impl Process, pc: u64) -> Option<(Rc<Image>, u64)> {
        let (mapping, _, image) = self.find(process, pc)?;
        let address = image.address_of(pc - mapping.addresses.start + mapping.offset)?;
        Some((image, address))
    }

    /// The location of an address. A new location and its module are written to the journal.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn location<W: Write>(
        &mut self,
        process: &mut impl Process,
        pc: u64,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationId> {
        self.check_map(process);
        if let Some(&known) = self.locations.get(&pc) {
            return Ok(known);
        }
        let info = self.describe(process, pc, journal)?;
        let id = self.number(info, journal)?;
        self.locations.insert(pc, id);
        Ok(id)
    }

    /// The location of a function that was called at a stub. A function without a name has the name
    /// in the stub: the files of system libraries do not name the variants of a function that are
    /// chosen for the processor.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn entry<W: Write>(
        &mut self,
        process: &mut impl Process,
        (pc, stub): (u64, u64),
        journal: &mut Writer<W>,
    ) -> io::Result<LocationId> {
        let stub_location = self.location(process, stub, journal)?;
        let mut info = self.describe(process, pc, journal)?;
        if info.symbol.is_none() {
            let name = self.describe(process, stub, journal)?.symbol;
            info.symbol = name.and_then(|name| Some(name.strip_suffix(STUB)?.to_owned()));
        }
        let function = self.number(info, journal)?;
        Ok(match self.entries.entry((function, stub_location)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(journal.entry(function, stub_location)?),
        })
    }

    fn number<W: Write>(&mut self, info: LocationInfo, journal: &mut Writer<W>) -> io::Result<LocationId> {
        Ok(match self.known.entry(info) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = journal.location(new.key())?;
                *new.insert(id)
            }
        })
    }

    fn describe<W: Write>(
        &mut self,
        process: &mut impl Process,
        pc: u64,
        journal: &mut Writer<W>,
    ) -> io::Result<LocationInfo> {
        let unnamed = LocationInfo {
            address: Some(Address(pc)),
            module: None,
            rva: None,
            symbol: None,
            symbol_offset: 0,
        };
        let Some((mapping, key, image)) = self.find(process, pc) else { return Ok(unnamed) };
        let Located { base, function } = image.locate(pc, mapping.addresses.start, mapping.offset);
        let module = match self.modules.entry((key, base)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = journal.module(&module_info(&mapping.name, base))?;
                *new.insert(id)
            }
        };
        Ok(LocationInfo {
            module: Some(module),
            rva: Some(pc.wrapping_sub(base)),
            symbol: function.map(|(name, _)| demangle(name)),
            symbol_offset: function.map_or(0, |(_, offset)| offset),
            ..unnamed
        })
    }

    /// The image of a mapping, read from its file or, if the kernel provides it, from memory.
    fn image(&mut self, process: &mut impl Process, mapping: &Mapping) -> (FileKey, Rc<Image>) {
        let has_file = mapping.file.1 != 0;
        let key = if has_file { mapping.file } else { (0, mapping.addresses.start) };
        let image = self.images.entry(key).or_insert_with(|| {
            Rc::new(if has_file {
                read_file(&mapping.name, mapping.file)
            } else {
                read_memory(process, mapping)
            })
        });
        (key, Rc::clone(image))
    }
}

/// Returns an empty image unless the file at the path is still the mapped one.
fn read_file(path: &Path, file: FileKey) -> Image {
    let same =
        |opened: &File| opened.metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == file);
    match File::open(path) {
        Ok(opened) if same(&opened) => {
            let data = ReadCache::new(opened);
            let debug = debug_file::open(path, &data, Path::new(debug_file::GLOBAL)).map(ReadCache::new);
            Image::read(&data, debug.as_ref())
        }
        _ => Image::default(),
    }
}

/// The `[vdso]` is an ELF file of the kernel that exists only in memory.
fn read_memory(process: &impl Process, mapping: &Mapping) -> Image {
    const SIZE_MAX: u64 = 1 << 16;
    if !mapping.name.as_os_str().as_encoded_bytes().starts_with(b"[vdso") {
        return Image::default();
    }
    let size = mapping.addresses.end - mapping.addresses.start;
    let mut bytes = vec![0; size.min(SIZE_MAX) as usize];
    let length = process.read(mapping.addresses.start, &mut bytes);
    Image::read(&bytes[..length], None::<&[u8]>)
}

fn module_info(path: &Path, base: u64) -> ModuleInfo {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let is_file = path.is_absolute();
    ModuleInfo {
        name: name.into_owned(),
        path: is_file.then(|| path.to_string_lossy().into_owned()),
        base: Some(Address(base)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_after_their_files() {
        let info = module_info(Path::new("/usr/lib/libc.so.6"), 0x1000);
        assert_eq!((info.name.as_str(), info.path.as_deref()), ("libc.so.6", Some("/usr/lib/libc.so.6")));
        let info = module_info(Path::new("[vdso]"), 0x1000);
        assert_eq!((info.name.as_str(), info.path.as_deref()), ("[vdso]", None));
    }
}
