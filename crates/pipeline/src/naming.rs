//! Names for frames: maps the modules of the system to those of the symbolizer.

use stackhound_frames::identity;
use stackhound_symbols::{FrameNumber, ModuleNumber, ResolvedFrame, SymbolStats, Symbolizer};
use stackhound_system::{ModuleId, ModuleRef};
use stackhound_types::{AddressKind, Rva};

use crate::slots;

/// A symbolizer for the modules of one trace.
#[derive(Debug)]
pub struct Naming {
    symbolizer: Symbolizer,
    /// Indexed by module of the system. Identities are compared once per module, not once per
    /// frame. A removed module leaves its index to another one.
    modules: Vec<Option<(ModuleId, ModuleNumber)>>,
}

impl Naming {
    pub(crate) fn new(symbolizer: Symbolizer) -> Naming {
        Naming { symbolizer, modules: Vec::new() }
    }

    /// The number of a module in the symbolizer.
    pub fn module(&mut self, module: ModuleRef<'_>) -> ModuleNumber {
        let (id, index) = (module.id(), module.id().index());
        if let Some(&Some((known, number))) = self.modules.get(index)
            && known == id
        {
            return number;
        }
        let number = self.symbolizer.module(&identity(module));
        *slots::at(&mut self.modules, index) = Some((id, number));
        number
    }

    /// Requests the names of an address and returns its number. `None` for offsets that cannot be
    /// in an image.
    pub fn request(&mut self, module: ModuleRef<'_>, rva: u64, kind: AddressKind) -> Option<FrameNumber> {
        let rva = Rva(u32::try_from(rva).ok()?);
        let module = self.module(module);
        Some(self.symbolizer.request(module, rva, kind))
    }

    /// Starts the work on the requested names.
    pub(crate) fn flush(&mut self) {
        self.symbolizer.flush();
    }

    /// Waits for the names of a frame.
    pub fn wait(&mut self, frame: FrameNumber) {
        self.symbolizer.wait_through(frame);
    }

    /// Waits for the names of all requested frames.
    pub fn wait_for_all(&mut self) {
        self.symbolizer.wait();
    }

    /// The resolved names of a frame. `None` if the caller has not waited for them.
    pub fn frame(&self, frame: FrameNumber) -> Option<&ResolvedFrame> {
        self.symbolizer.frame(frame)
    }

    /// The symbolizer, for modules that are not in the state of the trace.
    pub fn symbolizer(&mut self) -> &mut Symbolizer {
        &mut self.symbolizer
    }

    /// Symbol counters.
    pub fn stats(&self) -> SymbolStats {
        self.symbolizer.stats()
    }
}
