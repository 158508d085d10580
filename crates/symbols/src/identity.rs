//! What names a module, an image file or a PDB exactly.

use std::fmt;

use uuid::Uuid;

/// An address in a module: bytes from where it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Rva(pub u32);

impl fmt::Display for Rva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What names an image file on a symbol server, beside its file name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ImageIdentity {
    /// `TimeDateStamp` of the file header: a time, or a hash in reproducible builds.
    pub time_date_stamp: u32,
    /// `SizeOfImage` of the optional header.
    pub size: u32,
}

impl ImageIdentity {
    /// The folder's name in a symbol store: the stamp in eight upper-case digits, the size in lower-case ones.
    pub fn store_key(&self) -> String {
        format!("{:08X}{:x}", self.time_date_stamp, self.size)
    }
}

/// What names a PDB: the RSDS entry of an image's debug directory, or the PDB's own header with the age of its DBI stream.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PdbIdentity {
    /// Path or file name, as the linker wrote it.
    pub name: String,
    /// The same for all versions of a PDB that fit one image.
    pub guid: Uuid,
    /// Counts how often the PDB was written.
    pub age: u32,
}

impl PdbIdentity {
    /// The last component of its name.
    pub fn file_name(&self) -> &str {
        self.name.rsplit(['\\', '/']).next().unwrap_or(&self.name)
    }

    /// The folder's name in a symbol store: the GUID in upper-case digits, the age in lower-case ones.
    pub fn store_key(&self) -> String {
        format!("{:X}{:x}", self.guid.as_simple(), self.age)
    }
}

/// What is known of a module: enough to find its files, or too little.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ModuleIdentity {
    /// File name, without folders.
    pub name: String,
    /// Of its image.
    pub image: Option<ImageIdentity>,
    /// Of its PDB.
    pub pdb: Option<PdbIdentity>,
}
