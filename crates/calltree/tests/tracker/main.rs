//! The exact tracker against stories worked out by hand, against generated executions with known truth, against a literal
//! form of its rules, and against arbitrary steps.

mod arbitrary;
#[path = "../execution/mod.rs"]
mod execution;
mod found;
mod limits;
mod literal;
mod notation;
mod scripts;
mod truth;
