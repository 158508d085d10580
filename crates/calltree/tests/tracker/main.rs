//! Tests the exact tracker with hand-written scripts, generated executions with known frames, a
//! literal implementation of its rules, and arbitrary steps.

mod arbitrary;
#[path = "../execution/mod.rs"]
mod execution;
mod found;
mod limits;
mod literal;
mod notation;
#[path = "../stepping/oracle.rs"]
mod oracle;
mod rings;
mod scripts;
mod truth;
