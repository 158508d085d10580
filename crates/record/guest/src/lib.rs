//! What a running x86-64 system tells about itself in its memory: the functions of its kernel, its
//! threads and their stacks, and the files that its programs are executed from.
//!
//! The memory comes from a [`Memory`], at moments that the system's [hooks](Hook) define. It is
//! untrusted: wrong structures give fewer names, and never an error.
//!
//! The crate does not know emulators, traces or files on disk.

mod linux;
mod memory;
mod symbols;
mod task;

pub use linux::Linux;
pub use memory::Memory;
pub use symbols::Function;
pub use task::{Event, Hook, Mapping, Task};
