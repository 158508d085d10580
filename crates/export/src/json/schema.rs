//! Checks that the published JSON Schemas match the types. `STACKHOUND_WRITE_SCHEMAS=1` writes
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::*;

/// The schema of each document with its name, which is the name of its file in `docs/schema/`.
fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("alert", schema::<finding::Alert<'_>>("alert")),
        ("backtrace", schema::<tree::Backtrace<'_>>("backtrace")),
        ("butterfly", schema::<butterfly::Butterfly<'_>>("butterfly")),
        ("butterfly-of-captures", of_captures::<butterfly::Butterfly<'_>>("butterfly-of-captures")),
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
        ("stacks-of-captures", of_captures::<stacks::Stacks<EventStacks<'_>>>("stacks-of-captures")),
        ("stubs", schema::<Vec<symbols::Stub>>("stubs")),
        ("summary", schema::<Vec<summary::Summary<'_>>>("summary")),
        ("symbols", schema::<symbols::SymbolReport>("symbols")),
        ("top-chain", schema::<chain::TopChain>("top-chain")),
        ("top-cpu", schema::<top::TopCpu<'_>>("top-cpu")),
        ("top-cpu-of-captures", of_captures::<top::TopCpu<'_>>("top-cpu-of-captures")),
        ("top-costs", schema::<top::TopCosts<'_>>("top-costs")),
        ("top-costs-of-captures", of_captures::<top::TopCosts<'_>>("top-costs-of-captures")),
        ("top-wait", schema::<top::TopWait<'_>>("top-wait")),
        ("top-wait-of-captures", of_captures::<top::TopWait<'_>>("top-wait-of-captures")),
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

/// The schema of the documents of several captures.
fn of_captures<D: JsonSchema>(name: &str) -> Schema {
    schema::<info::OfCaptures<'_, D>>(name)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(VERSION.to_string())
}

/// Sorts keys, because their order depends on features that other crates enable.
fn sorted(schema: Value) -> Value {
    match schema {
        Value::Object(keywords) => {
            let keywords: BTreeMap<String, Value> = keywords.into_iter().collect();
            keywords.into_iter().map(|(keyword, value)| (keyword, sorted(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(sorted).collect(),
        value => value,
    }
}

#[test]
fn published_schemas_match_the_types() {
    let is_written = std::env::var_os("STACKHOUND_WRITE_SCHEMAS").is_some();
    if is_written {
        std::fs::create_dir_all(folder()).expect("a folder");
    }
    let mut names = BTreeSet::new();
    for (name, schema) in schemas() {
        let path = folder().join(format!("{name}.json"));
        let schema = sorted(schema.to_value());
        if is_written {
            std::fs::write(&path, serde_json::to_string_pretty(&schema).expect("JSON") + "\n")
                .expect("written");
        }
        let published = std::fs::read(&path).expect("a published schema");
        let published: Value = serde_json::from_slice(&published).expect("JSON");
        assert!(published == schema, "{name}: run with STACKHOUND_WRITE_SCHEMAS=1");
        assert!(names.insert(format!("{name}.json")), "{name} occurs twice");
    }
    let published: BTreeSet<String> = std::fs::read_dir(folder())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(published, names);
}
