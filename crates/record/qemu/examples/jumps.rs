//! Boots and records a system, and checks what the journal states about jumps: the functions that the kernel calls
//! through retpolines, and those that it reaches by tail calls.
//!
//! `jumps KERNEL INITRD JOURNAL [ARGUMENT…]`
//!
//! What is expected follows from the records of the plugin alone, by a model that knows no frames: which slots contain
//! return addresses that calls stored, and which calls only serve a retpoline. Prints how many jumps and functions there
//! were, and fails if the journal differs.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    check::main()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "jumps/check.rs"]
mod check;
