//! File mapping: the one place of this crate with `unsafe`.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;

/// A file's bytes: mapped where the system allows it, read into memory elsewhere (pipes, some network drives).
///
/// # Errors
/// The file can be neither mapped nor read.
pub fn bytes_of(mut file: File) -> io::Result<Bytes> {
    // SAFETY: a mapping is unsound only while somebody else changes the file. Nothing behind this reads a byte twice
    // and relies on the two readings being equal without a bounds check in between: every reader of recordings and
    // of indexes treats bytes as hostile. A file that is cut shorter meanwhile ends the process with a bus error, never with wrong
    // results; recordings are finished before they are read.
    match unsafe { memmap2::Mmap::map(&file) } {
        Ok(mapping) => Ok(Bytes::from_owner(mapping)),
        Err(_) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes.into())
        }
    }
}
