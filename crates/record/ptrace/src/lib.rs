//! Records a Linux program exactly: every call, every return and every change of stack.
//!
//! The program runs one instruction at a time under `ptrace`, and one thread at a time, so that its
//! instructions have one order. The exact tracker of the stack model processes its effects on
//! stacks, and the results are written to a journal. Addresses get names from the symbol tables of
//! the mapped files. Tracing a child needs no privileges.
//!
//! The crate handles Linux, x86-64 and ELF. It does not read or show journals. It is empty on other
//! systems. `docs/exact.md` describes what is recorded, and the limitations.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// Each unsafe block with a system call has a comment on its soundness.
#![deny(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block)]

mod affinity;
mod asleep;
mod code;
mod control;
mod error;
mod event;
mod instruction;
mod launch;
mod machine;
mod recorder;
mod stacks;

pub use error::Error;
pub use event::Ending;
pub use recorder::{Recorded, Recorder, Totals, wait_for_end};
