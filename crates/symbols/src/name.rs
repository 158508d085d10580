//! The names of an address and their sources.

use std::borrow::Cow;

use stackhound_types::{AddressKind, Rva};
use strum::IntoStaticStr;

/// The largest offset from the nearest export at which it names an address, in bytes. Hardly any
/// function is longer, so an export that is further away belongs to another function.
pub const NEAREST_EXPORT_MAX: u32 = 0x1_0000;

/// The source of a name. The better one is the smaller one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Origin {
    /// A procedure or public symbol of the PDB.
    Pdb,
    /// The export directory: the exported function contains the address.
    Export,
    /// The export directory: the nearest export before the address, at most [`NEAREST_EXPORT_MAX`]
    /// away. It may belong to another function.
    NearestExport,
}

impl Origin {
    /// Returns the name in output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The source with a name in output.
    pub fn from_name(name: &str) -> Option<Origin> {
        [Origin::Pdb, Origin::Export, Origin::NearestExport].into_iter().find(|origin| origin.name() == name)
    }
}

/// One name of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name<'t> {
    /// The name, demangled if it was mangled.
    pub text: Cow<'t, str>,
    /// Offset of the queried address from the start of the named symbol, in bytes.
    pub offset: u32,
}

/// All names of an address. They are independent of each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Names<'t> {
    /// See [`Origin::Pdb`].
    pub pdb: Option<Name<'t>>,
    /// See [`Origin::Export`].
    pub export: Option<Name<'t>>,
    /// See [`Origin::NearestExport`]. If `export` is set, this is set to the same name.
    pub nearest_export: Option<Name<'t>>,
}

impl<'t> Names<'t> {
    /// Returns the preferred name: the first of PDB, export, nearest export.
    pub fn best(&self) -> Option<(Origin, &Name<'t>)> {
        let all = [
            (Origin::Pdb, &self.pdb),
            (Origin::Export, &self.export),
            (Origin::NearestExport, &self.nearest_export),
        ];
        all.into_iter().find_map(|(origin, name)| Some((origin, name.as_ref()?)))
    }
}

/// A location in source code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'t> {
    /// The path, as the compiler wrote it.
    pub file: Cow<'t, str>,
    /// The line number, from 1.
    pub line: u32,
}

/// A function that was inlined into the function that contains the address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inline<'t> {
    /// Its name.
    pub function: Cow<'t, str>,
    /// The source location of the address within it.
    pub line: Option<Line<'t>>,
}

/// The names of one module.
pub trait Symbols: Send + Sync {
    /// Returns all names of an address. Addresses outside of the module's code have none.
    fn names(&self, rva: Rva, kind: AddressKind) -> Names<'_>;

    /// Returns the source location of an address in the function that [`Symbols::names`] returns.
    /// If the address is in inlined functions, this is the location of the call;
    /// [`Symbols::inlines`] returns the locations in them.
    fn line(&self, rva: Rva, kind: AddressKind) -> Option<Line<'_>>;

    /// Returns the functions that are inlined at an address, innermost first.
    fn inlines(&self, rva: Rva, kind: AddressKind) -> Vec<Inline<'_>>;

    /// Returns the approximate memory use, in bytes.
    fn memory(&self) -> usize;
}
