//! The catalogue of facts: what can be known about a process, a thread and the objects of an event, and how each fact
//! is named in filters, rules and outputs.
//!
//! A fact is a row of an enum in `catalogue.rs`, and a getter for each kind of input: the crate
//! `pipeline` has those of traces, `sysmon` those of Sysmon's data. Everything else iterates over the rows: filters and
//! their completion, JSON documents and their schemas, tables, CSV, ECS and OCSF, the names in rules, the
//! documentation.
//!
//! This crate does not know where facts come from, and does not write any output.

#![forbid(unsafe_code)]

mod catalogue;
mod row;
mod set;
mod value;

pub use catalogue::{EventFact, ProcessFact, ThreadFact};
pub use row::{FactId, FactRow, FactType};
pub use set::FactSet;
pub use value::FactValue;

/// The known facts about a process.
pub type ProcessFacts<'a> = FactSet<'a, ProcessFact>;

/// The known facts about a thread.
pub type ThreadFacts<'a> = FactSet<'a, ThreadFact>;
