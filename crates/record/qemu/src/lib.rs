//! Records a whole x86-64 system exactly: every call, every return and every change of stack of its
//! kernel and its programs, from the first instruction of the kernel in its own half of the address
//! space on.
//!
//! The system runs in QEMU, which this crate starts with its [plugin](stackhound_qemu_plugin). The
//! plugin's records arrive through shared memory, the exact tracker of the stack model processes them, and the
//! results are written to a journal, as those of single programs.
//!
//! What the kernel and its threads are, the [guest](stackhound_record_guest) finds in the memory of the
//! system. Functions of programs have names if their files are in the initial file system.
//!
//! The module [`program`] records one Linux program instead, in QEMU's emulator of programs.
//!
//! The crate does not read or show journals. It is empty on other systems than Linux. `docs/systems.md`
//! describes what is recorded, and the limitations.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

mod emulator;
mod error;
mod files;
mod inbox;
mod names;
pub mod program;
mod recorder;
mod shared;
mod steps;

pub use emulator::System;
pub use error::Error;
pub use recorder::{Ending, Recorded, Recorder, Returns, Totals};
