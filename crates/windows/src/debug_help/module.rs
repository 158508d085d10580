//! Module information of Debug Help.

use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGEHLP_MODULEW64, SymDeferred, SymDia, SymExport, SymNone, SymPdb,
};

use crate::text::from_wide;

/// The source of the names of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolSource {
    /// No names.
    None,
    /// A PDB that matches the image.
    Pdb,
    /// A PDB that does not match the image. Its names are not evidence.
    UnmatchedPdb,
    /// The export directory.
    Exports,
    /// Another kind of symbols, as a number of `SYM_TYPE` (dbghelp.h), such as COFF or CodeView in
    /// the image.
    Other(i32),
}

/// A module of a session, with its symbols loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// The file name without folders and extension; at most 31 characters.
    pub name: String,
    /// The path of the image; at most 255 characters.
    pub image: String,
    /// The path of the loaded PDB, or empty.
    pub pdb: String,
    /// The base address.
    pub base: u64,
    /// The size in bytes.
    pub size: u32,
    /// `TimeDateStamp` of the image.
    pub time_date_stamp: u32,
    /// The processor, as stated in the image (`IMAGE_FILE_MACHINE_*`); 0 if not known.
    pub machine: u32,
    /// The source of names.
    pub source: SymbolSource,
    /// The number of symbols, if the library counts them.
    pub symbols: u32,
}

impl Module {
    /// Whether the module contains an address.
    pub fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset < u64::from(self.size))
    }
}

/// Whether the symbols are not loaded yet.
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
