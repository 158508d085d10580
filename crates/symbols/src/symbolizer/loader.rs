//! The seam between resolving and loading: what a module's files give.

use std::fmt;

use crate::failure::Failure;
use crate::name::Symbols;
use crate::symbolizer::CallSite;
use crate::{ModuleIdentity, Rva};

/// Reads the code of an image at an address: fills the slice from its start, and says how many bytes there are.
pub type ReadCode = Box<dyn Fn(Rva, &mut [u8]) -> usize + Send + Sync>;

/// What was loaded of a module.
#[derive(Default)]
pub struct Loaded {
    /// Its names, of whatever files there are. `None` if there are none.
    pub symbols: Option<Box<dyn Symbols>>,
    /// Its code, if the image is at hand.
    pub code: Option<ReadCode>,
    /// The files that could not be used, each once.
    pub failures: Vec<Failure>,
    /// Bytes that were downloaded for it.
    pub downloaded: u64,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("symbols", &self.symbols.is_some())
            .field("code", &self.code.is_some())
            .field("failures", &self.failures)
            .finish()
    }
}

impl Loaded {
    /// Bytes of memory, about.
    pub(super) fn memory(&self) -> usize {
        const EMPTY: usize = 512;
        EMPTY + self.symbols.as_ref().map_or(0, |symbols| symbols.memory())
    }

    /// The code around an address.
    pub(super) fn call_site(&self, rva: Rva) -> Option<CallSite> {
        let code = self.code.as_ref()?;
        let mut bytes = [0; 2 * CallSite::REACH as usize];
        let back = rva.0.min(CallSite::REACH) as usize;
        let wanted = &mut bytes[..back + CallSite::REACH as usize];
        let there = code(Rva(rva.0 - back as u32), wanted).min(wanted.len());
        let (before, after) = bytes[..there].split_at_checked(back)?;
        Some(CallSite { before: before.into(), after: after.into() })
    }
}

/// Loads a module. Called on worker threads only, never for one module on two at a time; again if its table was
/// given up. What it gives must depend on the module alone.
pub type Loader = Box<dyn Fn(&ModuleIdentity) -> Loaded + Send + Sync>;
