//! Windows: the kernel by its image in memory, and drivers by the kernel's list of modules. Functions have the
//! names under which images export them.
//!
//! The list is read again whenever a driver creates a device, which nearly all do when they begin. No
//! exported function is called at switches between threads, so that threads are not known; nor are
//! programs. This has only been tried on memory that tests wrote.

use rustc_hash::FxHashMap;
use stackhound_types::Address;

use crate::memory::{Memory, half, short, word};
use crate::system::{Code, Event, Function, Hook, Mapping, System, Task};

/// Maximum distance of the first instruction from the start of the kernel's image.
const IMAGE_MAX: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Offsets in the headers of images of 64 bits.
const SIGNATURE_AT: u64 = 0x3c;
const OPTIONAL: u64 = 24;
const IMAGE_SIZE: u64 = OPTIONAL + 56;
const EXPORTS: u64 = OPTIONAL + 112;
/// The magic of optional headers of 64 bits.
const MAGIC_64: u16 = 0x20b;
/// Offsets in the directory of exports.
const FUNCTION_COUNT: u64 = 20;
const NAME_COUNT: u64 = 24;
const FUNCTIONS: u64 = 28;
const NAMES: u64 = 32;
const ORDINALS: u64 = 36;
/// Maximum number of exported functions.
const EXPORTS_MAX: u32 = 1 << 16;
/// Maximum length of the name of a function.
const NAME_MAX: usize = 512;
/// Offsets in an entry of the list of modules (`KLDR_DATA_TABLE_ENTRY`), the same in all versions.
const ENTRY_BASE: u64 = 0x30;
const ENTRY_SIZE: u64 = 0x40;
const ENTRY_PATH: u64 = 0x48;
/// Maximum number of modules.
const MODULES_MAX: usize = 4096;
/// Maximum length of a path in bytes.
const PATH_MAX: usize = 1024;
/// The list of modules, and the function that drivers call when they begin.
const LIST: &str = "PsLoadedModuleList";
const CREATE_DEVICE: &str = "IoCreateDevice";

/// A running Windows kernel.
#[derive(Debug)]
pub struct Windows {
    list: u64,
    hooks: Vec<Hook>,
    /// By address.
    modules: Vec<Module>,
}

#[derive(Debug)]
struct Module {
    base: u64,
    end: u64,
    /// The name of its file, without extension.
    name: String,
    path: Option<String>,
    exports: FxHashMap<u64, String>,
}

impl Windows {
    /// Finds a Windows kernel that executes an instruction at an address.
    pub fn find(at: Address, memory: &mut dyn Memory) -> Option<Windows> {
        let first = at.0 & !(PAGE - 1);
        let candidates = (0..IMAGE_MAX / PAGE).map_while(|pages| first.checked_sub(pages * PAGE));
        for base in candidates {
            // A page that cannot be read does not end the search: images have gaps.
            let is_image = short(memory, base) == Some(u16::from_le_bytes(*b"MZ"));
            let Some(end) = is_image.then(|| image_end(memory, base)).flatten() else { continue };
            if at.0 >= end {
                continue;
            }
            let exports = exports(memory, base, end)?;
            let address_of = |name: &str| exports.iter().find(|(_, known)| *known == name).map(|(&at, _)| at);
            let (list, hook) = (address_of(LIST)?, address_of(CREATE_DEVICE)?);
            let kernel = Module { base, end, name: "ntoskrnl".to_owned(), path: None, exports };
            let hooks = vec![Hook { address: Address(hook), reads_memory: true }];
            let mut windows = Windows { list, hooks, modules: vec![kernel] };
            windows.read_modules(memory);
            return Some(windows);
        }
        None
    }

    /// Adds the modules of the list that are not known yet.
    fn read_modules(&mut self, memory: &mut dyn Memory) -> Option<()> {
        let mut entry = word(memory, self.list)?;
        for _ in 0..MODULES_MAX {
            if entry == self.list {
                break;
            }
            let base = word(memory, entry.wrapping_add(ENTRY_BASE))?;
            let size = half(memory, entry.wrapping_add(ENTRY_SIZE))?;
            let path = unicode(memory, entry.wrapping_add(ENTRY_PATH));
            if let Some(end) = base.checked_add(u64::from(size)) {
                self.add(base, end, path, memory);
            }
            entry = word(memory, entry)?;
        }
        Some(())
    }

    fn add(&mut self, base: u64, end: u64, path: Option<String>, memory: &mut dyn Memory) {
        if let Some(known) = self.modules.iter_mut().find(|known| (known.base, known.end) == (base, end)) {
            if known.path.is_none() {
                known.path = path;
            }
            return;
        }
        // Memory of a module that was unloaded.
        self.modules.retain(|known| known.end <= base || end <= known.base);
        let file = path.as_deref().and_then(|path| path.rsplit('\\').next()).unwrap_or_default();
        let name = file.rsplit_once('.').map_or(file, |(name, _)| name).to_owned();
        let exports = exports(memory, base, end).unwrap_or_default();
        let at = self.modules.partition_point(|known| known.base < base);
        self.modules.insert(at, Module { base, end, name, path, exports });
    }
}

impl System for Windows {
    fn symbols(&self) -> usize {
        self.modules.iter().map(|module| module.exports.len()).sum()
    }

    fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    fn kernel_code_at(&self, address: Address) -> Option<Code<'_>> {
        let index = self.modules.partition_point(|module| module.base <= address.0).checked_sub(1)?;
        let module = self.modules.get(index).filter(|module| address.0 < module.end)?;
        // Most functions are not exported: the next exported one before an address is another one.
        let name = module.exports.get(&address.0);
        let function = name.map(|name| Function { name, offset: 0 });
        let base = Address(module.base);
        Some(Code { module: &module.name, path: module.path.as_deref(), base, function })
    }

    fn current(&self) -> Option<&Task> {
        None
    }

    fn thread(&self, _: u32) -> Option<&Task> {
        None
    }

    fn thunks(&self) -> Vec<Address> {
        Vec::new()
    }

    fn functions(&self) -> Vec<Address> {
        Vec::new()
    }

    fn program(&self) -> Option<u32> {
        None
    }

    fn mapping_at(&self, _: Address) -> Option<&Mapping> {
        None
    }

    fn called(&mut self, hook: usize, _: [u64; 2], memory: &mut dyn Memory, _: &mut dyn FnMut(Event)) {
        if hook < self.hooks.len() {
            self.read_modules(memory);
        }
    }
}

/// Returns the address after an image.
fn image_end(memory: &mut dyn Memory, base: u64) -> Option<u64> {
    let header = header(memory, base)?;
    base.checked_add(u64::from(half(memory, header.wrapping_add(IMAGE_SIZE))?))
}

/// Returns the address of the headers, which begin with the signature `PE`.
fn header(memory: &mut dyn Memory, base: u64) -> Option<u64> {
    let header = base.checked_add(u64::from(half(memory, base.wrapping_add(SIGNATURE_AT))?))?;
    let is_image = half(memory, header)? == u32::from_le_bytes(*b"PE\0\0")
        && short(memory, header.wrapping_add(OPTIONAL))? == MAGIC_64;
    is_image.then_some(header)
}

/// Reads the exported functions of an image, by address.
fn exports(memory: &mut dyn Memory, base: u64, end: u64) -> Option<FxHashMap<u64, String>> {
    let header = header(memory, base)?;
    let directory = half(memory, header.wrapping_add(EXPORTS))?;
    let size = half(memory, header.wrapping_add(EXPORTS + 4))?;
    let inside = |rva: u32| Some(base + u64::from(rva)).filter(|&address| rva != 0 && address < end);
    let at = inside(directory)?;
    let mut field = |offset| half(memory, at.wrapping_add(offset));
    let (functions, count) = (inside(field(FUNCTIONS)?)?, field(FUNCTION_COUNT)?);
    let (names, ordinals) = (inside(field(NAMES)?)?, inside(field(ORDINALS)?)?);
    let name_count = field(NAME_COUNT)?.min(EXPORTS_MAX);
    let mut exports = FxHashMap::default();
    for number in 0..u64::from(name_count) {
        let name = half(memory, names.wrapping_add(4 * number)).and_then(inside);
        let ordinal = short(memory, ordinals.wrapping_add(2 * number));
        let Some((name, ordinal)) = name.zip(ordinal) else { continue };
        if u32::from(ordinal) >= count {
            continue;
        }
        let function = half(memory, functions.wrapping_add(4 * u64::from(ordinal)));
        // An address in the directory itself is the name of a function in another module.
        let is_forwarded = |rva: &u32| rva.wrapping_sub(directory) < size;
        let function = function.filter(|rva| !is_forwarded(rva)).and_then(inside);
        let name = crate::memory::text::<NAME_MAX>(memory, name);
        if let Some((function, name)) = function.zip(name) {
            exports.entry(function).or_insert(name);
        }
    }
    Some(exports)
}

/// Reads a `UNICODE_STRING`.
fn unicode(memory: &mut dyn Memory, at: u64) -> Option<String> {
    let length = usize::from(short(memory, at)?).min(PATH_MAX) & !1;
    let mut bytes = vec![0; length];
    let start = word(memory, at.wrapping_add(8))?;
    memory.read(Address(start), &mut bytes)?;
    let (units, _) = bytes.as_chunks::<2>();
    Some(String::from_utf16_lossy(&units.iter().map(|&unit| u16::from_le_bytes(unit)).collect::<Vec<_>>()))
}
