//! Records a Linux program exactly: every call, every return and every change of stack.
//!
//! The program runs one instruction at a time under `ptrace`, one thread at a time, so that its instructions have one
//! order. What it does to its stacks goes through the exact tracker of the stack model into a journal; addresses get
//! their names from the symbol tables of the files that are mapped. Tracing a child needs no privileges.
//!
//! Knows Linux, x86-64 and ELF; must not know what is done with the recording. Empty on other systems.
//! What is recorded, and what is not: `docs/exact.md`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// Calls of the system stand in `control` and `launch`: each block says what makes it sound.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

mod affinity;
mod asleep;
mod code;
mod control;
mod elf;
mod error;
mod event;
mod instruction;
mod launch;
mod machine;
mod maps;
mod names;
mod recorder;
mod stacks;

pub use error::Error;
pub use event::Ending;
pub use recorder::{Recorded, Recorder, Totals, wait_for_end};
