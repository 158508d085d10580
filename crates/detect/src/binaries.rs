//! Evidence from files: names, and the code of images, of the modules in stacks.
//!
//! Files are loaded when a detection asks for them first, and given up when they take too much memory. What a file tells
//! depends on the module alone, so giving up changes no answer.

use std::fmt;

use stackhound_symbols::image::Image;
use stackhound_symbols::{AddressKind, Loaded, Origin, Rva};

use crate::module::{Module, ModuleIndex, Modules};

/// Loads the files of a module. What it gives must depend on the module alone, and must be a file of this very module.
pub type Load = Box<dyn Fn(&Module) -> Loaded + Send>;

/// What a look into a file gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<T> {
    /// What is there.
    Found(T),
    /// The file is not at hand.
    NoFile,
    /// The file cannot be read, or is of a processor whose code is not known.
    Unreadable,
}

/// A function that an address is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionName {
    /// Its name.
    pub text: Box<str>,
    /// Bytes from its start to the address.
    pub offset: u32,
    /// Where the name comes from. Never the nearest export, which can be the name of another function.
    pub origin: Origin,
}

/// The files of modules.
pub struct Binaries {
    load: Option<Load>,
    /// By module.
    files: Vec<Option<Loaded>>,
}

impl fmt::Debug for Binaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binaries").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Binaries {
    /// No files: all that rests on them stays undetermined.
    pub fn none() -> Binaries {
        Binaries { load: None, files: Vec::new() }
    }

    /// Files that `load` loads.
    pub fn new(load: Load) -> Binaries {
        Binaries { load: Some(load), files: Vec::new() }
    }

    fn file(&mut self, modules: &Modules, module: ModuleIndex) -> Option<&Loaded> {
        let load = self.load.as_ref()?;
        if self.files.len() <= module.index() {
            self.files.resize_with(module.index() + 1, || None);
        }
        let file = &mut self.files[module.index()];
        Some(file.get_or_insert_with(|| load(modules.get(module))))
    }

    /// The function that an address is in. `None` where no file names it.
    pub fn function(
        &mut self,
        modules: &Modules,
        (module, offset): (ModuleIndex, u64),
        kind: AddressKind,
    ) -> Option<FunctionName> {
        let rva = Rva(u32::try_from(offset).ok()?);
        let symbols = self.file(modules, module)?.symbols.as_ref()?;
        let names = symbols.names(rva, kind);
        let (origin, name) = names.best().filter(|(origin, _)| *origin != Origin::NearestExport)?;
        Some(FunctionName { text: name.text.as_ref().into(), offset: name.offset, origin })
    }

    /// The function that begins at an address. `None` where no file names one.
    pub fn function_start(&mut self, modules: &Modules, place: (ModuleIndex, u64)) -> Option<Box<str>> {
        let function = self.function(modules, place, AddressKind::Instruction)?;
        (function.offset == 0).then_some(function.text)
    }

    /// The last bytes before an address in a module's image. `None` where the file is not at hand.
    pub fn bytes_before(
        &mut self,
        modules: &Modules,
        (module, offset): (ModuleIndex, u64),
        count: usize,
    ) -> Option<&[u8]> {
        let rva = Rva(u32::try_from(offset).ok()?);
        let bytes = self.file(modules, module)?.image.as_deref()?;
        let image = Image::parse(bytes).ok()?;
        Some(image.call_site(rva, count, 0)?.before)
    }
}
