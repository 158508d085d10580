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
//! [`schemas`] generates a JSON Schema of each document from these types. The schemas are published
//! in `docs/schema/`, with a folder for each [`VERSION`].
//!
//! Formats of other tools (profiles, ECS, OCSF, ATT&CK Navigator) are in other modules and follow
//! the schemas of these tools.

mod append;
pub mod butterfly;
pub mod chain;
pub mod diff;
pub mod event;
mod event_facts;
pub mod event_rows;
pub mod field_rows;
pub mod finding;
pub mod frame;
pub mod images;
pub mod info;
pub mod process;
pub mod providers;
pub mod rules;
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

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// Version of the documents. It is raised if a key is removed or renamed, or if its type or meaning
/// changes, but not if a key is added.
pub const VERSION: u32 = 1;

/// The schema of each document with its name, which is the name of its file in `docs/schema/`.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("alert", schema::<finding::Alert<'_>>("alert")),
        ("backtrace", schema::<tree::Backtrace<'_>>("backtrace")),
        ("butterfly", schema::<butterfly::Butterfly<'_>>("butterfly")),
        ("butterfly-of-captures", schema::<butterfly::ButterflyOfCaptures<'_>>("butterfly-of-captures")),
        ("call", schema::<tree::CallLine<'_>>("call")),
        ("call-stacks", schema::<stacks::CallStacks<'_>>("call-stacks")),
        ("calls", schema::<tree::Calls<'_>>("calls")),
        ("diff", schema::<diff::Diff<'_>>("diff")),
        ("event", schema::<event::Event<'_, '_>>("event")),
        ("finding", schema::<finding::Finding<'_>>("finding")),
        ("hunt-summary", schema::<finding::Summary<'_>>("hunt-summary")),
        ("image", schema::<images::Image<'_>>("image")),
        ("images", schema::<Vec<images::Image<'_>>>("images")),
        ("info", schema::<info::FileInfo>("info")),
        ("info-files", schema::<info::Files<'_>>("info-files")),
        ("kernel-stack", schema::<thread_stack::KernelStack<'_>>("kernel-stack")),
        ("kernel-stacks", schema::<thread_stack::KernelStacks<'_>>("kernel-stacks")),
        ("modules", schema::<Vec<symbols::Module>>("modules")),
        ("names", schema::<Vec<symbols::AddressNames<'_>>>("names")),
        ("provider-list", schema::<Vec<providers::ProviderSummary<'_>>>("provider-list")),
        ("providers", schema::<Vec<providers::Provider<'_>>>("providers")),
        ("range", schema::<tree::RangeLine<'_>>("range")),
        ("ranges", schema::<tree::Ranges<'_>>("ranges")),
        ("rules", schema::<rules::Rules<'_>>("rules")),
        ("settings", schema::<Vec<symbols::Setting>>("settings")),
        ("stack", schema::<tree::StackDocument<'_>>("stack")),
        ("stack-change", schema::<tree::StackChange<'_>>("stack-change")),
        ("stack-changes", schema::<tree::StackChanges<'_>>("stack-changes")),
        ("stacks", schema::<stacks::Stacks<EventStacks<'_>>>("stacks")),
        (
            "stacks-of-captures",
            schema::<stacks::StacksOfCaptures<stacks::CaptureStacks<'_, EventStacks<'_>>>>(
                "stacks-of-captures",
            ),
        ),
        ("stubs", schema::<Vec<symbols::Stub>>("stubs")),
        ("summary", schema::<Vec<summary::Summary<'_>>>("summary")),
        ("symbols", schema::<symbols::SymbolReport>("symbols")),
        ("top-chain", schema::<chain::TopChain>("top-chain")),
        ("top-cpu", schema::<top::TopCpu<'_>>("top-cpu")),
        ("top-cpu-of-captures", schema::<top::TopCpuOfCaptures<'_>>("top-cpu-of-captures")),
        ("top-costs", schema::<top::TopCosts<'_>>("top-costs")),
        ("top-costs-of-captures", schema::<top::TopCostsOfCaptures<'_>>("top-costs-of-captures")),
        ("top-wait", schema::<top::TopWait<'_>>("top-wait")),
        ("top-wait-of-captures", schema::<top::TopWaitOfCaptures<'_>>("top-wait-of-captures")),
        ("thread", schema::<threads::ThreadRow<'_>>("thread")),
        ("threads", schema::<threads::Threads<'_>>("threads")),
        ("tree", schema::<tree::TreeDocument<'_>>("tree")),
    ]
}

type EventStacks<'a> = stacks::EventStacks<'a, stacks::StackRow<'a>>;

/// The schema of one document for output: keys that can be absent are not required.
fn schema<T: JsonSchema>(name: &str) -> Schema {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".to_owned(), format!("urn:stackhound:schema:{VERSION}:{name}").into());
    schema
}
