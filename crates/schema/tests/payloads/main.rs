//! Decodes payloads of single events from the tests of other projects, and compares the result with
//! the values that those tests expect.
//!
//! The payloads are not part of the repository. The module `readings` assigns a field to every
//! expected value. A record or value without an assignment is an error.

#[path = "../decoded/mod.rs"]
mod decoded;

mod headers;
mod readings;
mod upstream;

use std::collections::BTreeMap;

use stackhound_schema::{Item, kernel};
use stackhound_types::{Guid, PointerSize};

use decoded::{DecodedValue, Fields, dynamic};
use readings::{Event, Ours, Reading};
use upstream::{Expectation, Record, Upstream};

/// A payload that was decoded with the class tables.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The bytes of the payload.
    pub payload: &'a [u8],
    /// The decoded fields.
    pub fields: Fields,
    /// The formatted single values.
    shown: BTreeMap<String, String>,
    /// The number of bytes that no field has consumed.
    unused: usize,
}

/// Counts of compared records and values.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    records: usize,
    with_expectations: usize,
    read: usize,
    /// Records whose values all agree.
    agreed: usize,
    values: usize,
    values_agreed: usize,
}

#[test]
fn values_match_those_of_other_projects() {
    let mut totals = Totals::default();
    for upstream in Upstream::ALL {
        let Some(text) = stackhound_corpus::text(&format!("payloads/{}", upstream.file())) else { return };
        let records = upstream.records(&text);
        let readings = upstream.readings();
        for reading in readings {
            assert!(reading.record < records.len(), "{upstream:?} has no record {}", reading.record);
        }
        for (number, record) in records.iter().enumerate() {
            totals.records += 1;
            if record.expectations.is_empty() {
                continue;
            }
            totals.with_expectations += 1;
            let reading = readings.iter().find(|reading| reading.record == number);
            let reading =
                reading.unwrap_or_else(|| panic!("{upstream:?} {number} ({}) has no reading", record.name));
            assert_eq!(record.name, reading.name, "{upstream:?} {number}");
            compare(upstream, reading, record, &mut totals);
        }
    }
    println!("{totals:?}");
    let expected =
        Totals { records: 86, with_expectations: 81, read: 69, agreed: 67, values: 627, values_agreed: 625 };
    assert_eq!(totals, expected);
}

fn compare(upstream: Upstream, reading: &Reading, record: &Record, totals: &mut Totals) {
    let label = format!("{upstream:?} {} ({})", reading.record, reading.name);
    let decoded = match reading.event {
        Event::NotKernel(reason) => {
            println!("{label}: not read: {reason}");
            return;
        }
        Event::Container(read) => {
            let fields = read(&record.payload);
            let texts = (&fields).into_iter().filter_map(|(name, value)| match value {
                DecodedValue::Text(text) => Some((name.to_owned(), text.clone())),
                _ => None,
            });
            let shown = texts.collect();
            Decoded { payload: &record.payload, fields, shown, unused: 0 }
        }
        Event::HookId(hook_id, version) => {
            let class = kernel::class_of_group((hook_id >> 8) as u8).expect("a class with a group");
            // If the corpus contains the event of the record, it must be the same one.
            if let Some((guid, opcode, version_there, _)) = record.event {
                assert_eq!(
                    (guid, u16::from(opcode), version_there),
                    (class, hook_id & 0xFF, version),
                    "{label}"
                );
            }
            let schema = kernel::lookup_for(hook_id, version, record.pointer(), &record.payload);
            decode(schema.expect("a known hook id"), record)
        }
        Event::Class(guid, opcode) => {
            let guid: Guid = guid.parse().expect("a GUID");
            let schema = kernel::lookup_classic_for(guid, opcode, 0, record.pointer(), &record.payload);
            decode(schema.expect("a known class"), record)
        }
    };
    totals.read += 1;
    let mut all = true;
    for expectation in &record.expectations {
        let ours =
            reading.rows.iter().flat_map(|table| table.iter()).find(|(name, _)| *name == expectation.name);
        let (_, ours) = ours.unwrap_or_else(|| panic!("{label}: no reading for {}", expectation.name));
        match outcome(ours, expectation, &decoded, upstream) {
            Outcome::NoValue => {}
            Outcome::Agrees => {
                totals.values += 1;
                totals.values_agreed += 1;
            }
            Outcome::UpstreamWrong(reason) => {
                println!("{label}: upstream expects {} = {}: {reason}", expectation.name, expectation.text);
                totals.values += 1;
                all = false;
            }
            Outcome::Differs(value) => {
                panic!("{label}: {} is {value:?}, not {}", expectation.name, expectation.text)
            }
        }
    }
    totals.agreed += usize::from(all);
}

fn decode<'a>(schema: &stackhound_schema::Schema, record: &'a Record) -> Decoded<'a> {
    let pointer = record.pointer();
    let mut shown = BTreeMap::new();
    let mut decoder = schema.decode(&record.payload, pointer);
    for decoded in decoder.by_ref().flatten() {
        if let Item::Value(value) = decoded.item {
            shown.insert(decoded.field.name.to_string(), decoded.field.render(value).to_string());
        }
    }
    let unused = decoder.rest().len();
    Decoded { payload: &record.payload, fields: dynamic(schema, &record.payload, pointer), shown, unused }
}

enum Outcome {
    Agrees,
    /// The expected value is not in the payload.
    NoValue,
    UpstreamWrong(&'static str),
    Differs(Option<DecodedValue>),
}

fn outcome(ours: &Ours, expectation: &Expectation, decoded: &Decoded<'_>, upstream: Upstream) -> Outcome {
    let field = |name: &str| decoded.fields.get(name);
    let value = match *ours {
        Ours::Is(name) => field(name).cloned(),
        Ours::At(name, index) => match field(name) {
            Some(DecodedValue::List(list)) => list.get(index).cloned(),
            _ => None,
        },
        Ours::Count(name) => match field(name) {
            Some(DecodedValue::List(list)) => {
                Some(list.len().try_into().map_or(DecodedValue::Absent, |n: u32| n.into()))
            }
            _ => None,
        },
        Ours::By(value) => Some(value(decoded)),
        Ours::Shown(name, theirs, ours) => {
            let same =
                expectation.text == theirs && decoded.shown.get(name).is_some_and(|shown| shown == ours);
            return if same { Outcome::Agrees } else { Outcome::Differs(field(name).cloned()) };
        }
        Ours::Constant(name, theirs, number) => {
            let same = expectation.text == theirs && field(name) == Some(&DecodedValue::Number(number));
            return if same { Outcome::Agrees } else { Outcome::Differs(field(name).cloned()) };
        }
        Ours::Whole => {
            let same = !decoded.fields.cut_off && decoded.unused == 0;
            return if same { Outcome::Agrees } else { Outcome::Differs(None) };
        }
        Ours::NoValue => return Outcome::NoValue,
        Ours::Wrong(name, number, reason) => {
            let ours = field(name) == Some(&DecodedValue::Number(number));
            return if ours {
                Outcome::UpstreamWrong(reason)
            } else {
                Outcome::Differs(field(name).cloned())
            };
        }
    };
    match value {
        Some(value) if upstream.value(expectation, &value).as_ref() == Some(&value) => Outcome::Agrees,
        value => Outcome::Differs(value),
    }
}

impl Record {
    fn pointer(&self) -> PointerSize {
        match self.event {
            Some((.., false)) => PointerSize::Four,
            _ => PointerSize::Eight,
        }
    }
}
