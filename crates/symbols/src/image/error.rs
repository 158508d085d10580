//! Why an image or a part of it cannot be read.

use stackhound_types::Rva;

/// Why an image or a part of it cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes are something else than a PE image.
    #[error("not a PE image ({0})")]
    NotAnImage(&'static str),
    /// A header is cut off or contradicts itself.
    #[error("damaged PE header at offset {offset:#x}: expected {expected}")]
    Header {
        /// Of the header in the file.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// A table that the header points to is cut off or contradicts itself.
    #[error("damaged {table} at rva {rva}: {reason}")]
    Table {
        /// Which table.
        table: &'static str,
        /// Where it should be.
        rva: Rva,
        /// What is wrong with it.
        reason: &'static str,
    },
}
