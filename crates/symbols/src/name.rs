//! The names of an address, and where each comes from.

use std::borrow::Cow;

use stackhound_types::{AddressKind, Rva};

/// Where a name comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// A procedure or public symbol of the PDB.
    Pdb,
    /// The export directory: the address is in the exported function.
    Export,
    /// The export directory: the nearest export before the address, whatever function the address is in.
    NearestExport,
}

impl Origin {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Pdb => "pdb",
            Origin::Export => "export",
            Origin::NearestExport => "nearest_export",
        }
    }
}

/// One name of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name<'t> {
    /// Demangled if it was mangled.
    pub text: Cow<'t, str>,
    /// Bytes from the start of what is named to the address that was asked for.
    pub offset: u32,
}

/// All names of an address. None stands for another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names<'t> {
    /// See [`Origin::Pdb`].
    pub pdb: Option<Name<'t>>,
    /// See [`Origin::Export`].
    pub export: Option<Name<'t>>,
    /// See [`Origin::NearestExport`]. Also there if `export` is, and then equal.
    pub nearest_export: Option<Name<'t>>,
}

impl<'t> Names<'t> {
    /// The name to show if only one is shown: the first of PDB, export, nearest export.
    pub fn best(&self) -> Option<(Origin, &Name<'t>)> {
        let all = [
            (Origin::Pdb, &self.pdb),
            (Origin::Export, &self.export),
            (Origin::NearestExport, &self.nearest_export),
        ];
        all.into_iter().find_map(|(origin, name)| Some((origin, name.as_ref()?)))
    }
}

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'t> {
    /// Path, as the compiler wrote it.
    pub file: Cow<'t, str>,
    /// Number of the line, from 1.
    pub line: u32,
}

/// A function that was compiled into the one that the address is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inline<'t> {
    /// Its name.
    pub function: Cow<'t, str>,
    /// Where in it the address is.
    pub line: Option<Line<'t>>,
}

/// The names of one module.
pub trait Symbols: Send + Sync {
    /// All names of an address. Addresses outside the module's code have none.
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_>;

    /// Where an address is in the source code of the function that [`Symbols::names`] names. Where others were compiled
    /// into it, the place of the call; [`Symbols::inlines`] have the places in them.
    fn line(&self, rva: Rva, kind: AddressKind) -> Option<Line<'_>>;

    /// The functions compiled into the one at an address, innermost first.
    fn inlines(&self, rva: Rva, kind: AddressKind) -> Vec<Inline<'_>>;

    /// Bytes of memory that these names take, about.
    fn memory(&self) -> usize;
}
