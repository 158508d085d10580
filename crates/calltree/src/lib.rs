//! The stack model.
#![forbid(unsafe_code)]
pub mod change;
pub mod id;
pub mod kind;
pub mod tracker;
