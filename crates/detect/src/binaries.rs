//! Evidence from files: function names and code of the modules in stacks.
//!
//! A file is loaded when a detection needs it for the first time. If the loaded files take too much
//! memory, the least recently used one is unloaded. Answers from a file depend only on the module
//! and are cached, so unloading changes no answer.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_frames::lists::Functions;
use stackhound_frames::{Module, ModuleIndex, Modules};
use stackhound_symbols::{Loaded, Origin, Symbols};
use stackhound_types::{AddressKind, Rva};

pub use crate::images::ExportInRange;
use crate::images::reach::Reach;
use crate::images::site::Site;
use crate::images::{ImageError, ImageFile, ServiceNames};

/// Loads the files of a module. The result must depend only on the module, and must be the file of
/// exactly this module.
pub type Load = Box<dyn Fn(&Module) -> Loaded + Send>;

/// A module and an offset in it.
pub type CodeLocation = (ModuleIndex, u64);

/// The result of a look-up in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<T> {
    /// The requested data.
    Found(T),
    /// The file is not available.
    NoFile,
    /// The file cannot be read.
    Unreadable,
    /// The file is for a processor that is not supported.
    Unsupported,
}

impl<T> Lookup<T> {
    /// Applies a function to the requested data.
    pub fn map<U>(self, other: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Found(found) => Lookup::Found(other(found)),
            Lookup::NoFile => Lookup::NoFile,
            Lookup::Unreadable => Lookup::Unreadable,
            Lookup::Unsupported => Lookup::Unsupported,
        }
    }

    /// The requested data, if it was found.
    pub fn found(self) -> Option<T> {
        if let Lookup::Found(found) = self { Some(found) } else { None }
    }
}

/// The function that contains an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionName {
    /// Its name.
    pub text: Box<str>,
    /// Bytes from the start of the function to the address.
    pub offset: u32,
    /// The source of the name. Never the nearest export, which can be the name of another function.
    pub origin: Origin,
}

/// Bytes around an address of an image, at most 16 on each side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BytesAround {
    /// Bytes before the address, in the order of addresses.
    pub before: Vec<u8>,
    /// Bytes from the address on.
    pub after: Vec<u8>,
}

/// The files of modules.
pub struct Binaries {
    load: Option<Load>,
    /// By module.
    modules: Vec<Answers>,
    /// Maximum memory of loaded files, in bytes.
    memory_max: usize,
    memory: usize,
    /// Number of cached answers of all modules.
    answers: usize,
    /// Counts uses of files, to find the least recently used one.
    clock: u64,
}

impl fmt::Debug for Binaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binaries")
            .field("modules", &self.modules.len())
            .field("memory", &self.memory)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

/// Default limit for the memory of loaded files, in bytes.
const MEMORY_MAX: usize = 512 << 20;
/// Maximum number of cached answers: about 50 MB.
const ANSWERS_MAX: usize = 1 << 18;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The cached answers about a module.
#[derive(Default)]
struct Answers {
    /// The file, unless it was unloaded.
    file: Option<Box<File>>,
    /// Whether there is an image, known once the file was loaded. The names of its services remain
    /// after it is unloaded.
    image: Option<Result<Arc<ServiceNames>, NoImage>>,
    sites: Map<u32, Site>,
    reaches: Map<u32, Reach>,
    functions: Map<(u32, bool), Option<FunctionName>>,
    /// By the start and the size of a range.
    exports: Map<(u32, u32), Option<ExportInRange>>,
}

/// Why a module has no image.
#[derive(Clone, Copy)]
enum NoImage {
    NoFile,
    Error(ImageError),
}

impl<T> From<NoImage> for Lookup<T> {
    fn from(none: NoImage) -> Lookup<T> {
        match none {
            NoImage::NoFile => Lookup::NoFile,
            NoImage::Error(ImageError::Unreadable) => Lookup::Unreadable,
            NoImage::Error(ImageError::Unsupported) => Lookup::Unsupported,
        }
    }
}

struct File {
    symbols: Option<Box<dyn Symbols>>,
    image: Option<ImageFile>,
    memory: usize,
    /// Time of the last use, by [`Binaries::clock`].
    used: u64,
}

impl Binaries {
    /// No files: all answers that need them are undetermined.
    pub fn none() -> Binaries {
        Binaries { load: None, modules: Vec::new(), memory_max: 0, memory: 0, answers: 0, clock: 0 }
    }

    /// Files that `load` loads. It is called again for a module whose file was unloaded.
    pub fn new(load: Load) -> Binaries {
        Binaries { load: Some(load), memory_max: MEMORY_MAX, ..Binaries::none() }
    }

    /// Sets the maximum memory of loaded files, in bytes. The last used file is kept even if it is
    /// larger.
    pub fn with_memory_max(self, memory_max: usize) -> Binaries {
        Binaries { memory_max, ..self }
    }

    /// Approximate memory of the loaded files, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether there are no files.
    pub fn is_none(&self) -> bool {
        self.load.is_none()
    }

    /// The function that contains an address; `None` if no file names it. Does not allocate for
    /// addresses that were looked up before.
    pub fn function(
        &mut self,
        modules: &Modules,
        (module, offset): CodeLocation,
        kind: AddressKind,
    ) -> Option<&FunctionName> {
        if self.is_none() {
            return None;
        }
        let rva = Rva(u32::try_from(offset).ok()?);
        let key = (rva.0, kind == AddressKind::Return);
        let index = self.answers_index(module);
        if !self.modules[index].functions.contains_key(&key) {
            let name = self.file(modules, module).and_then(|file| name(file.symbols.as_deref()?, rva, kind));
            self.count_answer();
            self.modules[index].functions.insert(key, name);
        }
        self.modules[index].functions.get(&key)?.as_ref()
    }

    /// The function that starts at an address; `None` if no file names one.
    pub fn function_start(&mut self, modules: &Modules, location: CodeLocation) -> Option<&str> {
        let function = self.function(modules, location, AddressKind::Instruction)?;
        (function.offset == 0).then_some(&*function.text)
    }

    /// Whether the bytes before an address are an instruction that enters the kernel; `None` if no
    /// file has them.
    pub(crate) fn follows_system_call(&mut self, modules: &Modules, location: CodeLocation) -> Option<bool> {
        self.site(modules, location).found()?.enters_kernel
    }

    /// The bytes around an address, for display.
    pub fn bytes_around(&mut self, modules: &Modules, (module, offset): CodeLocation) -> Lookup<BytesAround> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let rva = u32::try_from(offset).ok().map(Rva);
        let around = self.ask(modules, module, |image| image.around(rva?)).flatten();
        around.map_or(Lookup::Unreadable, |(before, after)| Lookup::Found(BytesAround { before, after }))
    }

    /// The facts that the image has about an address. Decodes nothing for addresses that were
    /// looked up before.
    pub(crate) fn site(&mut self, modules: &Modules, (module, offset): CodeLocation) -> Lookup<Site> {
        if self.is_none() {
            return Lookup::NoFile;
        }
        let index = self.answers_index(module);
        // Offsets that are too large are outside of every image.
        let rva = u32::try_from(offset).unwrap_or(u32::MAX);
        if let Some(site) = self.modules[index].sites.get(&rva) {
            return Lookup::Found(*site);
        }
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let Some(site) = self.ask(modules, module, |image| image.site(Rva(rva))) else {
            return Lookup::Unreadable;
        };
        self.count_answer();
        self.modules[index].sites.insert(rva, site);
        Lookup::Found(site)
    }

    /// The functions that a call of this address can reach.
    pub(crate) fn reach(&mut self, modules: &Modules, module: ModuleIndex, target: Rva) -> Lookup<&Reach> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let index = self.answers_index(module);
        if !self.modules[index].reaches.contains_key(&target.0) {
            let Some(reach) = self.ask(modules, module, |image| image.reach(target)) else {
                return Lookup::Unreadable;
            };
            self.count_answer();
            self.modules[index].reaches.insert(target.0, reach);
        }
        self.modules[index].reaches.get(&target.0).map_or(Lookup::Unreadable, Lookup::Found)
    }

    /// The services of the module's stubs, and those that it imports.
    pub(crate) fn services(&mut self, modules: &Modules, module: ModuleIndex) -> Lookup<&ServiceNames> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        match &self.modules[module.index()].image {
            Some(Ok(services)) => Lookup::Found(services),
            _ => Lookup::NoFile,
        }
    }

    /// Whether bytes of memory can be those of the image: see [`ImageFile::is_like`].
    pub(crate) fn is_like(
        &mut self,
        modules: &Modules,
        (module, offset): CodeLocation,
        memory: &[u8; 32],
    ) -> Lookup<Option<bool>> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let rva = u32::try_from(offset).ok().map(Rva);
        let ask = |image: &ImageFile| rva.and_then(|rva| image.is_like(rva, memory));
        self.ask(modules, module, ask).map_or(Lookup::Unreadable, Lookup::Found)
    }

    /// Whether an address is in a section with code.
    pub(crate) fn is_code(&mut self, modules: &Modules, (module, offset): CodeLocation) -> Lookup<bool> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let rva = u32::try_from(offset).ok().map(Rva);
        let ask = |image: &ImageFile| rva.is_some_and(|rva| image.is_code(rva));
        self.ask(modules, module, ask).map_or(Lookup::Unreadable, Lookup::Found)
    }

    /// The exported function in `size` bytes from an address on: the first one that attacks patch,
    /// according to the lists of `modules`, otherwise the first one. Found without a function means
    /// that the range has none.
    pub fn export_in(
        &mut self,
        modules: &Modules,
        (module, offset): CodeLocation,
        size: u64,
    ) -> Lookup<Option<&ExportInRange>> {
        if let Err(none) = self.image(modules, module) {
            return none.into();
        }
        let Ok(rva) = u32::try_from(offset) else { return Lookup::Unreadable };
        let key = (rva, u32::try_from(size).unwrap_or(u32::MAX));
        let index = self.answers_index(module);
        if !self.modules[index].exports.contains_key(&key) {
            let (lists, file) = (modules.lists(), modules.get(module).name());
            let is_sensitive = |name: &str| lists.has_function(Functions::PatchTargets, file, name);
            let range = Rva(key.0)..Rva(key.0.saturating_add(key.1));
            let Some(found) = self.ask(modules, module, |image| image.export_in(range, is_sensitive)) else {
                return Lookup::Unreadable;
            };
            self.count_answer();
            self.modules[index].exports.insert(key, found);
        }
        Lookup::Found(self.modules[index].exports.get(&key).and_then(Option::as_ref))
    }

    /// The index of the module's answers, which are created if necessary.
    fn answers_index(&mut self, module: ModuleIndex) -> usize {
        if self.modules.len() <= module.index() {
            self.modules.resize_with(module.index() + 1, Answers::default);
        }
        module.index()
    }

    /// Checks that the module has an image, and loads it if necessary.
    fn image(&mut self, modules: &Modules, module: ModuleIndex) -> Result<(), NoImage> {
        if self.is_none() {
            return Err(NoImage::NoFile);
        }
        let index = self.answers_index(module);
        if self.modules[index].image.is_none() {
            self.file(modules, module);
        }
        match &self.modules[index].image {
            Some(Ok(_)) => Ok(()),
            Some(Err(none)) => Err(*none),
            None => Err(NoImage::NoFile),
        }
    }

    fn ask<T>(
        &mut self,
        modules: &Modules,
        module: ModuleIndex,
        question: impl FnOnce(&ImageFile) -> T,
    ) -> Option<T> {
        self.file(modules, module)?.image.as_ref().map(question)
    }

    /// The file of a module, loaded if necessary.
    fn file(&mut self, modules: &Modules, module: ModuleIndex) -> Option<&File> {
        let index = self.answers_index(module);
        self.clock += 1;
        if self.modules[index].file.is_none() {
            let load = self.load.as_ref()?;
            let Loaded { symbols, image, .. } = load(modules.get(module));
            let image =
                image.ok_or(NoImage::NoFile).and_then(|bytes| ImageFile::read(bytes).map_err(NoImage::Error));
            let answers = &mut self.modules[index];
            answers.image.get_or_insert_with(|| {
                image.as_ref().map(|image| Arc::clone(image.services())).map_err(|none| *none)
            });
            let image = image.ok();
            let memory = size_of::<File>()
                + symbols.as_ref().map_or(0, |symbols| symbols.memory())
                + image.as_ref().map_or(0, ImageFile::memory);
            answers.file = Some(Box::new(File { symbols, image, memory, used: self.clock }));
            self.memory += memory;
            self.unload_files(index);
        }
        let file = self.modules[index].file.as_mut()?;
        file.used = self.clock;
        Some(file)
    }

    /// Unloads the least recently used files except for one.
    fn unload_files(&mut self, keep: usize) {
        while self.memory > self.memory_max {
            let files = self.modules.iter_mut().enumerate().filter(|(index, _)| *index != keep);
            let oldest = files
                .filter(|(_, answers)| answers.file.is_some())
                .min_by_key(|(_, answers)| answers.file.as_ref().map(|file| file.used));
            let Some(file) = oldest.and_then(|(_, answers)| answers.file.take()) else { return };
            self.memory -= file.memory;
        }
    }

    /// Counts a new answer. If there are too many, all are removed and will be computed again.
    fn count_answer(&mut self) {
        self.answers += 1;
        if self.answers > ANSWERS_MAX {
            self.answers = 1;
            for answers in &mut self.modules {
                answers.sites = Map::default();
                answers.reaches = Map::default();
                answers.functions = Map::default();
                answers.exports = Map::default();
            }
        }
    }
}

fn name(symbols: &dyn Symbols, rva: Rva, kind: AddressKind) -> Option<FunctionName> {
    let names = symbols.names(rva, kind);
    let (origin, name) = names.best().filter(|(origin, _)| *origin != Origin::NearestExport)?;
    Some(FunctionName { text: name.text.as_ref().into(), offset: name.offset, origin })
}
