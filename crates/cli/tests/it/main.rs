//! Tests of the program, in one binary, which is linked once and uses all processors.

mod apc;
mod behaviour;
mod calltree;
mod captures;
mod chain;
mod colors;
mod complaints;
mod completions;
mod contract;
mod convert;
mod corpus;
mod demonstration;
mod diff;
mod documentation;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod emulated;
mod endings;
mod filters;
#[path = "../../../calltree/tests/fixtures/mod.rs"]
mod fixtures;
mod grouping;
mod hunt;
mod hunt_tuning;
#[cfg(feature = "authenticode")]
mod images;
mod inlines;
mod inputs;
mod kstack;
mod live;
mod mutations;
mod names;
mod numbers;
mod one_answer;
mod one_fact;
mod one_hunt;
#[cfg(unix)]
mod open;
mod packets;
mod parquet_tables;
mod playbooks;
mod profile;
mod program;
mod provider_names;
mod providers;
#[cfg(unix)]
mod query;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod recording;
mod rules;
mod shown;
mod summary;
mod symbol_store;
mod symbols;
mod tables;
mod text;
mod usage;
