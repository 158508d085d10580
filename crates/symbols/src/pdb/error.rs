use std::io;

/// An error of a PDB.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PdbError {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file starts with none of the known signatures.
    #[error("not a PDB: expected an MSF or MSFZ signature at offset 0")]
    NotPdb,
    /// A portable PDB, which describes managed code only.
    #[error("expected a PDB with native code, found a portable PDB")]
    Portable,
    /// The format before Visual C++ 7, which has no GUID to which an image could refer.
    #[error("expected a PDB of format 7.00, found format 2.00 from before 2002")]
    Old,
    /// The end of the file is missing.
    #[error("truncated PDB: expected {expected} bytes according to the header, found {found}")]
    Truncated {
        /// The size according to the file header, in bytes.
        expected: u64,
        /// The actual size, in bytes.
        found: u64,
    },
    /// A part is larger than is possible for the size of the file.
    #[error("damaged PDB: {part}: expected a size of at most {limit}, found {size}")]
    TooLarge {
        /// The part.
        part: &'static str,
        /// The stated size.
        size: u64,
        /// The maximum size that is accepted.
        limit: u64,
    },
    /// A part does not conform to the format.
    #[error("damaged PDB: {part}: {reason}")]
    Damaged {
        /// The damaged part.
        part: &'static str,
        /// The reason.
        reason: String,
    },
}

impl PdbError {
    pub(super) fn damaged(part: &'static str, reason: impl ToString) -> PdbError {
        PdbError::Damaged { part, reason: reason.to_string() }
    }
}
