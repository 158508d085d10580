//! The identity of image files, PDBs and modules.

use crate::guid::Guid;
use crate::path::last_component;

/// The identity of an image file on a symbol server, in addition to its file name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ImageIdentity {
    /// `TimeDateStamp` of the file header: a time, or a hash in reproducible builds.
    pub time_date_stamp: u32,
    /// `SizeOfImage` of the optional header.
    pub size: u32,
}

impl ImageIdentity {
    /// The name of the directory in a symbol store: the time stamp as eight uppercase digits, then
    /// the size as lowercase digits, both hexadecimal.
    pub fn store_key(&self) -> String {
        format!("{:08X}{:x}", self.time_date_stamp, self.size)
    }
}

/// The identity of a PDB: from the RSDS entry of an image's debug directory, or from the PDB's own
/// header with the age of its DBI stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PdbIdentity<N = String> {
    /// Path or file name as the linker wrote it.
    pub name: N,
    /// The GUID, which is the same for all versions of a PDB that match one image.
    pub guid: Guid,
    /// The age: the number of times that the PDB was written.
    pub age: u32,
}

impl<N: AsRef<str>> PdbIdentity<N> {
    /// The last component of the name.
    pub fn file_name(&self) -> &str {
        last_component(self.name.as_ref())
    }

    /// The name of the directory in a symbol store: the GUID as uppercase digits, then the age as
    /// lowercase digits, both hexadecimal.
    pub fn store_key(&self) -> String {
        format!("{:X}{:x}", self.guid, self.age)
    }
}

/// The known facts that identify a module. They may not suffice to find its files.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ModuleIdentity {
    /// File name without directories.
    pub name: String,
    /// Identity of its image.
    pub image: Option<ImageIdentity>,
    /// Identity of its PDB.
    pub pdb: Option<PdbIdentity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_stores_have_folders_for_images_and_pdbs() {
        let image = ImageIdentity { time_date_stamp: 0xab_cdef, size: 0x1f_0000 };
        assert_eq!(image.store_key(), "00ABCDEF1f0000");
        let guid = Guid::from_u128(0x89c3b9fd_1c79_6a0f_430e_0cef0646f003);
        let pdb = PdbIdentity { name: r"d:\build\kernel32.pdb", guid, age: 10 };
        assert_eq!(pdb.store_key(), "89C3B9FD1C796A0F430E0CEF0646F003a");
        assert_eq!(pdb.file_name(), "kernel32.pdb");
    }
}
