//! Common parts of the tables: rows with names, events to read, and the required number of rows for
//! each file.

use std::fmt::Debug;
use std::sync::mpsc;

use stackhound::testing::{OwnedEvent, RecordBuilder, incoming};
use stackhound::{EventView, Guid, Provider, Trace};

use crate::schemas::{IMAGE, Kind, store};

/// Names of the rows of a table.
pub type Rows = Vec<&'static str>;

/// Compares each result with the expected one. Row names must be unique.
#[track_caller]
pub fn check<T: PartialEq + Debug>(rows: impl IntoIterator<Item = (&'static str, T, T)>) -> Rows {
    let mut names = Rows::new();
    for (name, found, expected) in rows {
        assert_eq!(found, expected, "{name}");
        assert!(!names.contains(&name), "{name} occurs twice");
        names.push(name);
    }
    names
}

/// An event of a kind, without values.
pub fn builder(kind: Kind) -> RecordBuilder {
    let Kind { provider, id, version, opcode } = kind;
    if provider == IMAGE {
        RecordBuilder::classic(provider, opcode, version)
    } else {
        RecordBuilder::new(provider, id, version).opcode(opcode)
    }
}

/// The same event, with zeros for missing values.
pub fn incomplete(builder: &RecordBuilder) -> OwnedEvent {
    builder.pack_incomplete(&mut store()).expect("values that suit")
}

/// A trace of one event.
pub fn trace(event: &OwnedEvent) -> Trace {
    Trace::blocks(incoming([event.clone()]).expect("an event that can be written")).schemas(store())
}

/// The result of a provider's handler for an event.
pub fn read<T: Send + 'static>(
    provider: Guid,
    event: &OwnedEvent,
    mut read: impl FnMut(&EventView<'_>) -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let provider = Provider::guid(provider).on_event(move |view| {
        let _ = sender.send(read(view));
    });
    trace(event).enable(provider).run(|_| ()).expect("a trace");
    receiver.recv().expect("the handler was called")
}

#[test]
fn every_file_has_at_least_the_cases_of_krabs() {
    let files = [
        ("test_schema_key", 20, crate::schema_key::rows()),
        ("test_record_property_thunk", 18, crate::record_property_thunk::rows()),
        ("test_record_builder", 17, crate::record_builder::rows()),
        ("test_guid_parser, test_guid", 19, crate::guid::rows()),
        ("test_parser", 10, crate::parser::rows()),
        ("test_collection_view", 7, crate::collection_view::rows()),
        ("test_synth_record, test_parse_types", 3, crate::synth_record::rows()),
        ("describe_EventRecord", 11, crate::event_record::rows()),
        ("describe_Proxy", 10, crate::proxy::rows()),
        ("describe_InvalidParsing", 7, crate::invalid_parsing::rows()),
        ("describe_Asserts", 6, crate::asserts::rows()),
        ("describe_Fluent", 2, crate::fluent::rows()),
        ("test_filter", 78, crate::filter::rows()),
        ("test_event_callbacks", 6, crate::event_callbacks::rows()),
        ("test_user_providers", 5, crate::user_providers::rows()),
        ("test_kernel_providers", 4, crate::kernel_providers::rows()),
        ("describe_UnicodeString", 19, crate::managed_text::utf16_rows()),
        ("describe_AnsiString", 19, crate::managed_text::ansi_rows()),
        ("describe_Predicate", 12, crate::managed_predicate::rows()),
        ("describe_OnError", 2, crate::on_error::rows()),
    ];
    for (file, cases, rows) in &files {
        println!("{file}: {} rows for {cases} cases", rows.len());
        rows.iter().for_each(|row| println!("    {row}"));
        assert!(rows.len() >= *cases, "{file} has {} rows of {cases}", rows.len());
    }
    let cases: usize = files.iter().map(|(_, cases, _)| cases).sum();
    println!("{} rows for {cases} cases", files.iter().map(|(.., rows)| rows.len()).sum::<usize>());
}
