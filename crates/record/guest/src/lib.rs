//! Reads the memory of a running x86-64 system: the functions of its kernel, its threads and their
//! stacks, and the files that its programs are executed from.
//!
//! The memory comes from a [`Memory`], at moments that the system's [hooks](Hook) define. It is
//! untrusted: wrong structures give fewer names, and never an error.
//!
//! The crate does not know emulators, traces or files on disk.
#![forbid(unsafe_code)]

mod linux;
mod memory;
mod symbols;
mod system;
mod windows;

pub use linux::Linux;
pub use memory::Memory;
pub use system::{Code, Event, Function, Hook, Mapping, System, Task};
pub use windows::Windows;

use stackhound_types::Address;

/// Finds the system whose kernel executes an instruction at an address. It need not have done anything
/// before.
pub fn find(at: Address, memory: &mut dyn Memory) -> Option<Box<dyn System>> {
    match Linux::find(at, memory) {
        Some(linux) => Some(Box::new(linux)),
        None => Some(Box::new(Windows::find(at, memory)?)),
    }
}
