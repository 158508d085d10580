//! Analyses of traces: what threads did, what it cost, and which stacks were responsible.
//!
//! An analysis observes the events of a [`Pipeline`](stackhound_pipeline::Pipeline) in one pass and
//! keeps sums by thread and stack. Amounts are raw ticks or bytes; they are converted only for
//! output. What is not known, because records are missing or contradict each other, is a sum of its
//! own and is never distributed over other rows.
//!
//! [`Collector`] keeps single samples, switches and events instead of sums, for viewers with a time
//! axis.
//!
//! This crate does not know how results are shown.
#![forbid(unsafe_code)]

pub mod chain;
mod collector;
pub mod contents;
pub mod costs;
pub mod cpu;
pub mod diff;
mod fields;
pub mod gc;
pub mod labels;
mod loss;
pub mod needed;
pub mod packets;
mod parts;
mod repeats;
pub mod rows;
pub mod scheduling;
mod services;
pub mod slices;
pub mod stack_counts;
mod stacks;
pub mod wait;
mod window;

pub use collector::{Collector, Counted, Limits};
pub use window::Window;

/// Nanoseconds of raw ticks, rounded down.
pub fn nanos(clock: &stackhound_etl::Clock, ticks: u64) -> u64 {
    let second = u128::from(clock.ticks_per_second().max(1));
    u64::try_from(u128::from(ticks) * 1_000_000_000 / second).unwrap_or(u64::MAX)
}
