//! The detections that depend on stacks and modules only.
//!
//! A stack is a line, innermost frame first: `ntdll kernelbase app kernel32 ntdll`. Short names
//! stand for paths (see [`notation`]). `!` is code in no module, `!7ff812340000` with its address;
//! `?` is code whose module is not known; `jit` is JIT-compiled code. `ntdll!Name` is a function,
//! whose name only some detectors know. `K` is a frame of a driver, `K!` a kernel frame in no
//! driver, `K?` a kernel frame whose driver is not known. `~` after a frame makes it 32-bit code of
//! a 64-bit system.

mod callback;
mod entry;
mod lsass;
mod missing_evidence;
mod named;
mod notation;
mod others;
mod unbacked;
mod verdicts;
