//! Records a Windows program in Wine and QEMU, and writes what ETW would have recorded of it: a trace of its system calls
//! and of samples, with call stacks that are exact.
//!
//! `pe_truth FOLDER PROGRAM [ARGUMENT…]` writes to the folder:
//!
//! - `exact.etl`: a trace with the program's image loads; an event for each system call (each call out of the code of
//!   Windows programs); and samples, one for each `INTERVAL` calls.
//! - `exact.jsonl`: for each of these events in order, its time in units of 100 ns since the begin of the trace, its
//!   thread, and for each frame, innermost first, the function that was called, the one that executes, and a number that
//!   is equal in two events exactly if the frame is the same one.
//! - `forged.etl`: the stack of each system call once more for each kind of forgery, changed as code does that forges
//!   stacks; and `forged.jsonl` with the time and the kind of each.
//!
//! The program must be started so that Wine does not execute itself again: with `WINELOADERNOEXEC=1`, by `wine64`.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    truth::main()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "pe_truth/truth.rs"]
mod truth;
