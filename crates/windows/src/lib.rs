//! What Stackhound asks of Windows itself.
//!
//! The Debug Help library: names of addresses in live processes and in files. Event Tracing for Windows: sessions, and
//! the events of live ones. The Trace Data Helper: what is known of providers of events. The memory of live processes, their
//! threads and modules, and those of the kernel. Devices of drivers. All calls into Windows stand in this crate, and nothing
//! of them shows in its signatures. Functions that not every Windows has, nor Wine, are found when the program runs.
//!
//! Knows Windows; must not know recordings, nor what is done with the answers. Empty on other systems.
#![cfg(windows)]
// The only room that calls the system: each block says what makes it sound.
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
