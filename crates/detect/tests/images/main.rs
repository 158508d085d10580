//! The detections that images decide, on images made for it and on real ones.
//!
//! A stack is a line, innermost frame first: `ntdll+1014 app+100a root`. Modules are those of [`world`]; `!` is code in no
//! module, `?` code of which that is not known, `jit` compiled code, `K` a kernel frame; `~` behind a frame makes it 32-bit
//! code of a 64-bit system, `*` the address of an instruction. An answer is a line too: `yes high no-call-before @1
//! -regions`: severity, reasons, frame, what was missing.

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
