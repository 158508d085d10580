//! `test_schema_key`: 20 cases. The events that share a schema.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use stackhound::Guid;
use stackhound::etl::record::ExtendedType;
use stackhound::schema::{Identity, SchemaStore};
use stackhound::testing::{OwnedEvent, RecordBuilder};

use crate::rows::{Rows, builder, check, incomplete};
use crate::schemas::{POWERSHELL_7937, POWERSHELL_7942, store};

const FIRST: Guid = Guid([1; 16]);
const SECOND: Guid = Guid([2; 16]);

fn event(provider: Guid, id: u16, version: u8, opcode: u8, level: u8, keyword: u64) -> OwnedEvent {
    let builder = RecordBuilder::new(provider, id, version).opcode(opcode).level(level).keyword(keyword);
    builder.with_payload(&[]).expect("no payload")
}

/// TraceLogging metadata: a size, no tags, a name, and a u32 field for each of the names.
fn self_described(name: &str, fields: &[&str]) -> OwnedEvent {
    let mut metadata = vec![0, 0, 0];
    metadata.extend(name.bytes().chain([0]));
    for field in fields {
        metadata.extend(field.bytes().chain([0, 8]));
    }
    let size = metadata.len() as u16;
    metadata[..2].copy_from_slice(&size.to_le_bytes());
    let builder = RecordBuilder::new(FIRST, 1, 2).opcode(3).level(4).keyword(5);
    builder.extended(ExtendedType::SCHEMA, metadata).with_payload(&[0; 4]).expect("a short payload")
}

/// Whether two events have the same schema key, and whether their keys have the same hash.
fn compared(first: &OwnedEvent, second: &OwnedEvent) -> (bool, bool) {
    let records = [first.event().record(), second.event().record()];
    let [first, second] = records.each_ref().map(|record| Identity::of(record).expect("an event"));
    let hash = |identity: &Identity<'_>| {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        hasher.finish()
    };
    (first == second, hash(&first) == hash(&second))
}

/// The address of the schema of an event, which does not depend on the lifetime of the event.
fn kept(store: &mut SchemaStore, event: OwnedEvent) -> usize {
    Arc::as_ptr(&event.plan(store).expect("a description")).addr()
}

pub fn rows() -> Rows {
    let some = || event(FIRST, 1, 2, 3, 4, 5);
    let empty = || event(Guid::ZERO, 0, 0, 0, 0, 0);
    let pairs = [
        (["empty events are equal", "empty events hash alike"], compared(&empty(), &empty()), true),
        (["equal events are equal", "equal events hash alike"], compared(&some(), &some()), true),
        (
            ["another provider", "another provider hashes differently"],
            compared(&some(), &event(SECOND, 1, 2, 3, 4, 5)),
            false,
        ),
        (
            ["another id", "another id hashes differently"],
            compared(&some(), &event(FIRST, 0, 2, 3, 4, 5)),
            false,
        ),
        (
            ["another version", "another version hashes differently"],
            compared(&some(), &event(FIRST, 1, 0, 3, 4, 5)),
            false,
        ),
        (
            ["another opcode", "another opcode hashes differently"],
            compared(&some(), &event(FIRST, 1, 2, 0, 4, 5)),
            false,
        ),
        // Intentional: neither changes the layout of the payload.
        (
            ["another level is the same kind of event", "another level hashes alike"],
            compared(&some(), &event(FIRST, 1, 2, 3, 0, 5)),
            true,
        ),
        (
            ["another keyword is the same kind of event", "another keyword hashes alike"],
            compared(&some(), &event(FIRST, 1, 2, 3, 4, 0)),
            true,
        ),
        (
            ["another TraceLogging name", "another TraceLogging name hashes differently"],
            compared(&self_described("net", &[]), &self_described("proc", &[])),
            false,
        ),
        (
            ["the same TraceLogging name", "the same TraceLogging name hashes alike"],
            compared(&self_described("net", &["a"]), &self_described("net", &["a"])),
            true,
        ),
        // Intentional: a name alone does not determine the fields.
        (
            ["the same name with other fields", "the same name with other fields hashes differently"],
            compared(&self_described("net", &["a"]), &self_described("net", &["b"])),
            false,
        ),
    ];
    let mut names = check(pairs.iter().flat_map(|&([equal, hash], (is_equal, hashes_alike), expected)| {
        [(equal, is_equal, expected), (hash, hashes_alike, expected)]
    }));
    let mut store = store();
    let (store, first) = (&mut store, self_described("net", &["a"]));
    let of_first = kept(store, first.clone());
    names.extend(check([
        (
            "a schema outlives the event that contained it",
            kept(store, self_described("net", &["a"])) == of_first,
            true,
        ),
        ("other fields have another schema", kept(store, self_described("net", &["b"])) == of_first, false),
        (
            "events of one id share a schema",
            kept(store, incomplete(&builder(POWERSHELL_7937)))
                == kept(store, incomplete(&builder(POWERSHELL_7937).level(5).keyword(1))),
            true,
        ),
        (
            "events of two ids do not share a schema",
            kept(store, incomplete(&builder(POWERSHELL_7937)))
                == kept(store, incomplete(&builder(POWERSHELL_7942))),
            false,
        ),
    ]));
    names
}
