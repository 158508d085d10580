//! The exact tracker against stories worked out by hand, against generated executions with known truth, and against
//! arbitrary steps.

mod arbitrary;
mod found;
mod truth;
