//! Errors of images.

use stackhound_types::Rva;

/// An error of an image or of a part of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes are not a PE image.
    #[error("not a PE image ({0})")]
    NotAnImage(&'static str),
    /// A header is truncated or inconsistent.
    #[error("damaged PE header at offset {offset:#x}: expected {expected}")]
    Header {
        /// The offset of the header in the file.
        offset: u64,
        /// The content that was expected.
        expected: &'static str,
    },
    /// A table that the header refers to is truncated or inconsistent.
    #[error("damaged {table} at rva {rva}: {reason}")]
    Table {
        /// The name of the table.
        table: &'static str,
        /// The address of the table.
        rva: Rva,
        /// The reason.
        reason: &'static str,
    },
}
