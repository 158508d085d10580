use std::io;

/// Why a PDB cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PdbError {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// The file starts with none of the known signatures.
    #[error("is no PDB: expected an MSF or MSFZ signature at offset 0")]
    NotPdb,
    /// A portable PDB describes managed code only.
    #[error("is a portable PDB, which has no native code")]
    Portable,
    /// The format before Visual C++ 7 has no GUID that an image could name.
    #[error("is a PDB of the format 2.00, from before 2002")]
    Old,
    /// The end of the file is missing.
    #[error("is truncated: its header says {expected} bytes, there are {found}")]
    Truncated {
        /// Bytes, by the file's own header.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// It says to need more memory than a file of its size can.
    #[error("says that {what} takes {size} bytes, where {limit} are possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// As the file says.
        size: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// Something in it contradicts the format.
    #[error("is damaged: {what}: {reason}")]
    Damaged {
        /// The part that is damaged.
        what: &'static str,
        /// What was expected.
        reason: String,
    },
}

impl PdbError {
    pub(super) fn damaged(what: &'static str, reason: impl ToString) -> PdbError {
        PdbError::Damaged { what, reason: reason.to_string() }
    }
}
