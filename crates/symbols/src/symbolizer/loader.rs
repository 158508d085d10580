//! The interface between resolving and loading: the data of a module's files.

use std::fmt;

use stackhound_types::ModuleIdentity;

use crate::failure::Failure;
use crate::name::Symbols;

/// The data of a module.
#[derive(Default)]
pub struct Loaded {
    /// Its names, from all available files. `None` if there are none.
    pub symbols: Option<Box<dyn Symbols>>,
    /// Its image as in the file, if it is available and call sites were requested.
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
    /// Returns the approximate memory use, in bytes.
    pub(super) fn memory(&self) -> usize {
        const EMPTY: usize = 512;
        let symbols = self.symbols.as_ref().map_or(0, |symbols| symbols.memory());
        EMPTY + symbols + self.image.as_ref().map_or(0, Vec::len)
    }
}

/// Loads a module. It is called on worker threads only, and never for the same module on two
/// threads at the same time. It is called again if the module's table was evicted. The result must
/// depend on the module alone.
pub type Loader = Box<dyn Fn(&ModuleIdentity) -> Loaded + Send + Sync>;
