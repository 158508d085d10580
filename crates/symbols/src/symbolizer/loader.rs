//! The seam between resolving and loading: what a module's files give.

use std::fmt;

use stackhound_types::ModuleIdentity;

use crate::failure::Failure;
use crate::name::Symbols;

/// What was loaded of a module.
#[derive(Default)]
pub struct Loaded {
    /// Its names, of whatever files there are. `None` if there are none.
    pub symbols: Option<Box<dyn Symbols>>,
    /// Its image as it is in the file, if it is at hand and call sites are wanted.
    pub image: Option<Vec<u8>>,
    /// The files that could not be used, each once.
    pub failures: Vec<Failure>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("symbols", &self.symbols.is_some())
            .field("image", &self.image.as_ref().map(Vec::len))
            .field("failures", &self.failures)
            .finish()
    }
}

impl Loaded {
    /// Bytes of memory, about.
    pub(super) fn memory(&self) -> usize {
        const EMPTY: usize = 512;
        let symbols = self.symbols.as_ref().map_or(0, |symbols| symbols.memory());
        EMPTY + symbols + self.image.as_ref().map_or(0, Vec::len)
    }
}

/// Loads a module. Called on worker threads only, never for one module on two at a time; again if its table was
/// given up. What it gives must depend on the module alone.
pub type Loader = Box<dyn Fn(&ModuleIdentity) -> Loaded + Send + Sync>;
