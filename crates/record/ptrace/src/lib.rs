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
mod code;
mod control;

mod elf;
mod error;
mod instruction;
mod launch;
mod machine;
mod maps;
mod names;

pub use error::Error;
pub use machine::Ending;

/// probe
pub fn probe(arguments: &[std::ffi::OsString], limit: u64) {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let tid = launch::launch(arguments).unwrap_or_else(|e| panic!("{e}"));
    let mut machine = machine::Machine::new(tid).unwrap();
    let start = std::time::Instant::now();
    let (mut n, mut calls, mut rets, mut sw, mut sig, mut th) = (0u64, 0u64, 0u64, 0, 0, 0);
    while n < limit && let Some(event) = machine.next(&stop).unwrap() {
        match event {
            machine::Event::Executed { instruction, .. } => {
                n += 1;
                match instruction.class { instruction::Class::Call => calls += 1, instruction::Class::Return => rets += 1, _ => {} }
            }
            machine::Event::Switched { .. } => sw += 1,
            machine::Event::Delivered { .. } => sig += 1,
            machine::Event::Started { .. } => th += 1,
            event => eprintln!("{event:?}"),
        }
    }
    let t = start.elapsed().as_secs_f64();
    let end = machine.release().unwrap();
    eprintln!("{n} calls {calls} rets {rets} switches {sw} signals {sig} threads {th} {end:?} {:.0}/s", n as f64 / t);
}
