//! The JSON documents that the program writes: one type per document, and their schemas.
//!
//! | module | documents |
//! |---|---|
//! | [`event`] | events with their fields and stacks; [`event_rows`] and [`field_rows`] write many of them |
//! | [`finding`] | findings, alerts and the summary of a hunt |
//! | [`stacks`] | the most frequent stacks |
//! | [`thread_stack`] | kernel stacks of threads |
//! | [`summary`] | the first answers about a trace |
//! | [`top`], [`chain`] | what costs time, and the critical path of a thread |
//! | [`butterfly`] | callers and callees of a function |
//! | [`diff`] | the differences of two traces |
//! | [`tree`], [`threads`] | the stack model: stacks, call trees, ranges, calls, threads |
//! | [`images`] | facts about image files |
//! | [`info`], [`providers`], [`symbols`], [`rules`] | facts about files, providers, modules, settings and rules |
//!
//! They share [`frame`], [`stack`], [`process`] and [`value`], so that frames have the same form in
//! all of them.
//!
//! - A key has one JSON type in a document, whatever its value. Counts, ids and raw times are
//!   integers. Addresses, offsets in modules, masks, keys and 64-bit hashes are `"0x…"` texts.
//! - Values that are not known are null. Values that were not requested, or that do not exist for
//!   the kind of object, are absent.
//! - `pid` and `tid` are ids. `process` and `thread` contain the other known facts about them.
//!
//! The tests generate a JSON Schema of each document from these types. The schemas are published in
//! `docs/schema/`, with a folder for each [`VERSION`].
//!
//! Formats of other tools (profiles, ECS, OCSF, ATT&CK Navigator) are in other modules and follow
//! the schemas of these tools.

mod append;
pub mod butterfly;
pub mod chain;
pub mod diff;
pub mod event;
pub mod event_rows;
pub(crate) mod facts;
pub mod field_rows;
pub mod finding;
pub mod frame;
pub mod images;
pub mod info;
pub mod process;
pub mod providers;
pub mod rules;
#[cfg(test)]
mod schema;
pub mod stack;
pub mod stacks;
pub mod summary;
pub mod symbols;
mod system_call;
pub mod thread_stack;
pub mod threads;
pub mod top;
pub mod tree;
pub mod value;

/// Version of the documents. It is raised if a key is removed or renamed, or if its type or meaning
/// changes, but not if a key is added.
pub const VERSION: u32 = 1;
