//! The output contract: one type for each JSON document that the program writes, and its schema.
//!
//! | module | documents |
//! |---|---|
//! | [`event`] | events with their fields and stacks |
//! | [`finding`] | findings and alerts |
//! | [`stacks`] | the most frequent stacks |
//! | [`thread_stack`] | kernel stacks of threads |
//! | [`tree`] | the stack model: stacks, call trees, ranges, calls |
//! | [`info`], [`providers`], [`symbols`] | facts about files, providers, modules and settings |
//!
//! They share [`frame`], [`stack`], [`process`] and [`value`], so that a frame is spelled the same in all of them.
//!
//! - A key has one JSON type in a document, whatever its value. Counts, ids and raw times are integers; addresses, offsets in
//!   modules, masks, keys and 64-bit hashes are `"0x…"` texts.
//! - What is not known is null. What is not asked for, or does not exist for the kind of thing, is absent.
//! - `pid` and `tid` are ids; `process` and `thread` are what is known of them.
//!
//! [`schemas`] generates a JSON Schema of each document from these types. They are published in `docs/schema/`, in a folder for
//! each [`VERSION`].
//!
//! Formats of other tools (profiles, ECS, OCSF, ATT&CK Navigator) are in modules of their own and follow the schemas of those
//! tools.

pub mod event;
pub mod finding;
pub mod frame;
pub mod info;
pub mod process;
pub mod providers;
pub mod stack;
pub mod stacks;
pub mod symbols;
pub mod thread_stack;
pub mod tree;
pub mod value;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// Version of the contract. It is raised when a key is removed or renamed, or changes its type or meaning; not when a key is
/// added.
pub const VERSION: u32 = 1;

/// The schema of each document by its name, which is that of its file in `docs/schema/`.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("alert", schema::<finding::Alert<'_>>("alert")),
        ("backtrace", schema::<tree::Backtrace<'_>>("backtrace")),
        ("call", schema::<tree::CallLine<'_>>("call")),
        ("calls", schema::<tree::Calls<'_>>("calls")),
        ("event", schema::<event::Event<'_, '_>>("event")),
        ("finding", schema::<finding::Finding<'_>>("finding")),
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
        ("symbols", schema::<symbols::SymbolReport>("symbols")),
        ("tree", schema::<tree::TreeDocument<'_>>("tree")),
    ]
}

type EventStacks<'a> = stacks::EventStacks<'a, stacks::StackRow<'a>>;

/// The schema of one document, as it is written: keys that can be left out are the ones that are not required.
fn schema<T: JsonSchema>(name: &str) -> Schema {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("$id".to_owned(), format!("urn:stackhound:schema:{VERSION}:{name}").into());
    schema
}
