//! The detections that depend on images, on generated and on real ones.
//!
//! A stack is a line, innermost frame first: `ntdll+1014 app+100a root`. Modules are those of
//! [`world`]. `!` is code in no module, `?` code whose module is not known, `jit` JIT-compiled
//! code, `K` a kernel frame. `~` after a frame makes it 32-bit code of a 64-bit system, `*` makes
//! it the address of an instruction. An answer is a line too, such as `yes high no-call-before @1
//! -regions`: verdict, severity, reasons, frame and missing evidence.

mod entry;
mod genuine;
mod hostile;
#[path = "../../../symbols/tests/support/mod.rs"]
mod made;
mod memory;
mod program;
mod sites;
mod stand_ins;
mod stubs;
mod world;
