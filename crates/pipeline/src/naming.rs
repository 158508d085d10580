//! Names for frames: which of the symbolizer's modules each module of the system is.

use stackhound_frames::identity;
use stackhound_symbols::{FrameNumber, ModuleNumber, ResolvedFrame, SymbolStats, Symbolizer};
use stackhound_system::{ModuleId, ModuleRef};
use stackhound_types::{AddressKind, Rva};

use crate::slots;

/// A symbolizer for the modules of one trace.
#[derive(Debug)]
pub struct Naming {
    symbolizer: Symbolizer,
    /// By module of the system. Identities are compared once for each, not once for each frame. A module that was
    /// forgotten has left its index to another one.
    modules: Vec<Option<(ModuleId, ModuleNumber)>>,
}

impl Naming {
    pub(crate) fn new(symbolizer: Symbolizer) -> Naming {
        Naming { symbolizer, modules: Vec::new() }
    }

    /// The symbolizer's number of a module.
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

    /// The number of an address, whose names will come. `None` for offsets that no image has.
    pub fn request(&mut self, module: ModuleRef<'_>, rva: u64, kind: AddressKind) -> Option<FrameNumber> {
        let rva = Rva(u32::try_from(rva).ok()?);
        let module = self.module(module);
        Some(self.symbolizer.request(module, rva, kind))
    }

    /// Lets the threads begin with what was requested.
    pub(crate) fn flush(&mut self) {
        self.symbolizer.flush();
    }

    /// Waits for the names of a frame.
    pub fn wait(&mut self, frame: FrameNumber) {
        self.symbolizer.wait_through(frame);
    }

    /// Waits for the names of all frames that were asked for.
    pub fn wait_for_all(&mut self) {
        self.symbolizer.wait();
    }

    /// What a frame was resolved to. `None` if it was not waited for.
    pub fn frame(&self, frame: FrameNumber) -> Option<&ResolvedFrame> {
        self.symbolizer.frame(frame)
    }

    /// Counters of the work on symbols.
    pub fn stats(&self) -> SymbolStats {
        self.symbolizer.stats()
    }
}
