//! Compares views with class tables, which are written independently. Both read the same bytes, and
//! must agree on every field for every version and pointer size.

#[path = "../decoded/mod.rs"]
mod decoded;

mod cases;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use stackhound_schema::{Error, Schema, kernel};
use stackhound_types::{Guid, PointerSize};

use decoded::{DecodedValue, Row, dynamic, flatten};

/// The events that a view reads.
#[derive(Clone, Copy)]
enum Source {
    /// Events with these hook ids.
    HookIds(&'static [u16]),
    /// Types of a class without a group.
    Class(&'static str, &'static [u8]),
}

/// The rows of a view, by the field names of the table.
type Rows = Result<Vec<Row>, Error>;

/// A view, and the entries of the tables for the same payload.
struct Case {
    source: Source,
    /// Reads a payload with hook id or type, version and pointer size.
    view: fn(&[u8], u16, u8, PointerSize) -> Rows,
    /// Fields of the table that the view does not have.
    left_out: &'static [&'static str],
    /// The maximum length of payloads.
    longest: usize,
}

impl Case {
    fn events(&self) -> Vec<(u16, Option<Guid>)> {
        match self.source {
            Source::HookIds(hook_ids) => hook_ids.iter().map(|&hook_id| (hook_id, None)).collect(),
            Source::Class(guid, types) => {
                let guid = guid.parse().expect("a GUID");
                types.iter().map(|&opcode| (opcode.into(), Some(guid))).collect()
            }
        }
    }
}

/// Bytes with many zeros and small numbers, so that texts end and SIDs occur.
fn payloads(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => any::<u8>(), 2 => 0_u8..4, 1 => Just(0)];
    prop_oneof![
        4 => prop::collection::vec(byte, 0..=longest),
        1 => prop::collection::vec(0_u8..3, longest..=longest),
    ]
}

fn schema_of(
    event: (u16, Option<Guid>),
    version: u8,
    pointer: PointerSize,
    payload: &[u8],
) -> &'static Schema {
    let (number, class) = event;
    match class {
        None => kernel::lookup_for(number, version, pointer, payload),
        Some(class) => kernel::lookup_classic_for(class, number as u8, version, pointer, payload),
    }
    .expect("an event of the tables")
}

#[test]
fn views_and_tables_agree() {
    let agreed = Cell::new(0);
    for case in cases::all() {
        for event in case.events() {
            let config = Config { cases: 600, failure_persistence: None, ..Config::default() };
            let mut runner =
                TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
            let pointers = prop_oneof![Just(PointerSize::Four), Just(PointerSize::Eight)];
            let input = (payloads(case.longest), 0_u8..7, pointers);
            let result = runner.run(&input, |(payload, version, pointer)| {
                agreed.set(agreed.get() + check(case, event, version, pointer, &payload)?);
                Ok(())
            });
            if let Err(error) = result {
                panic!("{:#06x}: {error}", event.0);
            }
        }
    }
    let agreed = agreed.get();
    println!("{agreed} payloads read by views and by tables");
    // Too few payloads would make the test meaningless.
    assert!(agreed > 10_000, "{agreed}");
}

/// Returns 1 if the payload was long enough for the view.
fn check(
    case: &Case,
    event: (u16, Option<Guid>),
    version: u8,
    pointer: PointerSize,
    payload: &[u8],
) -> Result<u64, TestCaseError> {
    let schema = schema_of(event, version, pointer, payload);
    let fields = dynamic(schema, payload, pointer);
    let rows = match (case.view)(payload, event.0, version, pointer) {
        Ok(rows) => rows,
        Err(error) => {
            prop_assert!(fields.cut_off, "the view has {error}, the table has {fields:?}");
            return Ok(0);
        }
    };
    for (name, decoded) in &rows {
        let expected = fields.get(name);
        let agrees = match (decoded, expected) {
            // A text without any bytes is empty in a view, and missing in a decoder.
            (DecodedValue::Text(text), None) => text.is_empty(),
            (DecodedValue::Absent, None | Some(DecodedValue::Absent)) => true,
            (decoded, Some(expected)) => decoded == expected,
            (_, None) => false,
        };
        prop_assert!(agrees, "{name}: the view has {decoded:?}, the table has {expected:?}");
    }
    for (name, value) in &fields {
        let known = rows.iter().any(|(row, _)| *row == name) || case.left_out.contains(&&**name);
        prop_assert!(known, "the view lacks {name}, which is {value:?}");
    }
    Ok(1)
}

#[test]
fn the_comparison_detects_differences() {
    let payload = [1, 0, 0, 0, 2, 0, 0, 0];
    let schema = schema_of((0x0501, None), 0, PointerSize::Four, &payload);
    let fields = dynamic(schema, &payload, PointerSize::Four);
    assert_eq!(fields.get("TThreadId"), Some(&DecodedValue::Number(1)));
    assert_eq!(fields.get("ProcessId"), Some(&DecodedValue::Number(2)));
    assert_eq!(fields.get("StackBase"), None);
    let mut numbers = Vec::new();
    for decoded in schema.decode(&payload, PointerSize::Four).flatten() {
        flatten(decoded.field.name.to_string(), decoded.item, &mut numbers);
    }
    assert_eq!(numbers.len(), 2);
}
