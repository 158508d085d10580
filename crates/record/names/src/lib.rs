//! Names of addresses in a Linux process, as locations of a journal: from its map of memory, the symbol
//! tables of the mapped files, and their separate debug files.
//!
//! The recorders of programs use it. It does not control processes: a [`Process`] provides the map, as
//! it was at the recorded position. It is empty on other systems.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![forbid(unsafe_code)]

mod debug_file;
mod entries;
mod locations;
mod maps;

pub use entries::{Entered, Entries};
pub use locations::Names;
pub use maps::{Mapping, MemoryMap};

/// The memory of a recorded process.
pub trait Process {
    /// Returns the current map.
    fn map(&mut self) -> &MemoryMap;
    /// Returns a number above 0 that increases whenever the map has changed.
    fn generation(&mut self) -> u64;
    /// Reads memory. Returns the number of bytes that could be read.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;
}
