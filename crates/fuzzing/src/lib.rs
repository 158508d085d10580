//! Fuzz targets as plain functions. They check that arbitrary bytes cause no panic and no endless
//! loop, and the invariants of each layer.
//!
//! Every [`Target`] takes arbitrary bytes, exercises the library with them, and panics if an
//! invariant is violated. `fuzz/` runs the targets with a coverage-guided fuzzer, `tests/replay.rs`
//! with valid and with damaged inputs.
//!
//! The targets use only the public interfaces of the tested crates.
#![forbid(unsafe_code)]

mod container;
mod correlation;
mod decompression;
mod etl_file;
mod image;
mod journal;
mod kstack;
mod metadata;
mod operations;
mod payloads;
mod pipeline;
mod records;
mod rules;
mod seeds;
mod signatures;
mod sysmon;

pub use container::container;
pub use decompression::decompression;
pub use etl_file::etl_file;
pub use image::image;
pub use journal::journal;
pub use kstack::{kstack_answer, kstack_request};
pub use metadata::metadata;
pub use payloads::payloads;
pub use pipeline::pipeline;
pub use records::records;
pub use rules::rules;
pub use signatures::signatures;
pub use sysmon::sysmon;

/// One function to be fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// Runs the target; panics if an invariant is violated.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 14] = [
    Target { name: "container", run: container, seeds: seeds::trace_files },
    Target { name: "records", run: records, seeds: seeds::records },
    Target { name: "decompression", run: decompression, seeds: seeds::chunks },
    Target { name: "metadata", run: metadata, seeds: seeds::metadata },
    Target { name: "payloads", run: payloads, seeds: seeds::payloads },
    Target { name: "pipeline", run: pipeline, seeds: seeds::operations },
    Target { name: "etl_file", run: etl_file, seeds: seeds::trace_files },
    Target { name: "image", run: image, seeds: image::images },
    Target { name: "journal", run: journal, seeds: journal::pages },
    Target { name: "sysmon", run: sysmon, seeds: sysmon::rows },
    Target { name: "kstack_request", run: kstack_request, seeds: kstack::calls },
    Target { name: "kstack_answer", run: kstack_answer, seeds: kstack::answers },
    Target { name: "signatures", run: signatures, seeds: signatures::files },
    Target { name: "rules", run: rules, seeds: rules::files },
];
