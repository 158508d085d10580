//! What Debug Help says of a module.

use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGEHLP_MODULEW64, SymDeferred, SymDia, SymExport, SymNone, SymPdb,
};

use crate::text::from_wide;

/// Where the names of a module come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolSource {
    /// There are none.
    None,
    /// A PDB that fits the image.
    Pdb,
    /// A PDB that does not fit the image. Its names are no evidence.
    UnmatchedPdb,
    /// The export directory.
    Exports,
    /// Another kind of symbols, as a number of `SYM_TYPE` (dbghelp.h): COFF or CodeView in the image, for one.
    Other(i32),
}

/// A module of a session, its symbols loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// File name without folders and ending; at most 31 characters.
    pub name: String,
    /// Path of the image; at most 255 characters.
    pub image: String,
    /// Path of the PDB that was loaded, or empty.
    pub pdb: String,
    /// Where it begins.
    pub base: u64,
    /// Bytes from there.
    pub size: u32,
    /// `TimeDateStamp` of the image.
    pub time_date_stamp: u32,
    /// The processor it is for, as an image has it (`IMAGE_FILE_MACHINE_*`); 0 if not known.
    pub machine: u32,
    /// Where names come from.
    pub source: SymbolSource,
    /// How many symbols were counted, where the library counts them.
    pub symbols: u32,
}

impl Module {
    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset < u64::from(self.size))
    }
}

/// Whether the symbols are still to be loaded.
pub(super) fn is_deferred(info: &IMAGEHLP_MODULEW64) -> bool {
    info.SymType == SymDeferred
}

impl From<&IMAGEHLP_MODULEW64> for Module {
    fn from(info: &IMAGEHLP_MODULEW64) -> Self {
        let source = match info.SymType {
            _ if info.PdbUnmatched != 0 => SymbolSource::UnmatchedPdb,
            #[expect(non_upper_case_globals, reason = "the spelling of Windows")]
            SymPdb | SymDia => SymbolSource::Pdb,
            #[expect(non_upper_case_globals, reason = "the spelling of Windows")]
            SymExport => SymbolSource::Exports,
            #[expect(non_upper_case_globals, reason = "the spelling of Windows")]
            SymNone | SymDeferred => SymbolSource::None,
            other => SymbolSource::Other(other),
        };
        Module {
            name: from_wide(&info.ModuleName),
            image: from_wide(&info.ImageName),
            pdb: from_wide(&info.LoadedPdbName),
            base: info.BaseOfImage,
            size: info.ImageSize,
            time_date_stamp: info.TimeDateStamp,
            machine: info.MachineType,
            source,
            symbols: info.NumSyms,
        }
    }
}
