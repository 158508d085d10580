//! Records a Windows program in Wine and QEMU, and writes what ETW would have recorded of it: a trace of its system calls
//! and of samples, with call stacks that are exact.
//!
//! `pe_truth FOLDER PROGRAM [ARGUMENT…]` writes to the folder:
//!
//! - `exact.etl`: a trace with the program's image loads; an event for each system call (each call out of the code of
//!   Windows programs); and samples, one for each [`INTERVAL`] calls.
//! - `exact.jsonl`: for each of these events in order, the function that executes in each frame, and a number that is
//!   equal in two events exactly if the frame is the same one. Innermost first, as the stacks in the trace.
//! - `forged.etl`: the same stacks of system calls, a part of each replaced as code that forges stacks does it; and
//!   `forged.jsonl` with the kind of each forgery.
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
