//! The stack model.
pub mod change;
pub mod id;
pub mod kind;
