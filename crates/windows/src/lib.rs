//! Stackhound's calls of Windows functions.
//!
//! - Debug Help library: names of addresses in live processes and in files.
//! - Event Tracing for Windows: sessions, and the events of live sessions.
//! - Trace Data Helper: descriptions of event providers.
//! - Memory, threads and modules of live processes, kernel modules, and devices of drivers.
//!
//! All calls of Windows functions are in this crate, and no Windows types appear in its signatures.
//! Functions that some versions of Windows, or Wine, do not have are looked up at run time.
//!
//! This crate does not read trace files and does not interpret the results. It is empty on other
//! systems.
#![cfg(windows)]
// This is the only crate that calls the system. Each unsafe block states why it is sound.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

#[cfg(all(windows, not(target_pointer_width = "64")))]
compile_error!(
    "structures and handles are those of 64-bit Windows; a 32-bit program could not see 64-bit modules either"
);

pub mod console;
pub mod debug_help;
pub mod device;
pub mod drivers;
mod error;
pub mod etw;
pub mod memory;
mod privilege;
pub mod process;
mod snapshot;
pub mod tdh;
mod text;
pub mod threads;
mod time;

pub use error::Error;
