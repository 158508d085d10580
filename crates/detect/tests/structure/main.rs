//! The detections that stacks and modules decide, case by case.
//!
//! A stack is a line, innermost frame first: `ntdll kernelbase app kernel32 ntdll`. Short names stand for paths (see
//! [`notation`]); `!` is code in no module, `!7ff812340000` at an address, `?` code of which that is not known, `jit` compiled
//! code; `ntdll!Name` is a function that only some evaluates can name; `K` is a frame of a driver, `K!` one of none, `K?` one of
//! which that is not known. `~` behind a frame makes it
//! 32-bit code of a 64-bit system.

mod entry;
mod missing_evidence;
mod named;
mod notation;
mod others;
mod unbacked;
mod verdicts;
