//! Tests of the class tables and views with traces that Windows wrote.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use stackhound_etl::EtlFile;
use stackhound_etl::record::Record;
use stackhound_schema::kernel::view::DbgIdRsds;
use stackhound_schema::{Item, Schema, kernel};
use stackhound_types::{Guid, PointerSize};

const IMAGE_ID: Guid =
    Guid::new(0xb3e6_75d7, 0x2554, 0x4f18, [0x83, 0x0b, 0x27, 0x62, 0x73, 0x25, 0x60, 0xde]);

/// Calls a function for every record of a trace.
fn for_each_record(name: &str, mut call: impl FnMut(&Record<'_>)) {
    let bytes = stackhound_corpus::etl_file(name).expect("a readable trace");
    let etl_file = EtlFile::open(bytes.into()).expect("a readable trace");
    for buffer in &etl_file.index().buffers {
        let (block, damage) = etl_file.block(buffer, None).expect("a readable buffer");
        assert_eq!(damage, [], "{name}");
        block.entries().iter().for_each(|entry| call(&block.record(entry)));
    }
}

/// Some traces were constructed with payloads of 64-bit systems in 32-bit headers.
fn pointer_size(name: &str, record: &Record<'_>) -> PointerSize {
    if name.contains("_64_") { PointerSize::Eight } else { record.pointer_size() }
}

fn schema_of(record: &Record<'_>, pointer: PointerSize) -> Option<&'static Schema> {
    let (version, payload) = (record.version(), record.payload());
    match record.hook_id() {
        Some(hook_id) => kernel::lookup_for(hook_id, version, pointer, payload),
        None if record.kind().is_classic() => {
            kernel::lookup_classic_for(record.guid()?, record.opcode(), version, pointer, payload)
        }
        None => None,
    }
}

fn facts() -> Option<Json> {
    Some(serde_json::from_str(&stackhound_corpus::text("etl/facts.json")?).expect("facts in JSON"))
}

#[test]
fn every_kernel_record_is_decoded_to_its_end() {
    let Some(facts) = facts() else { return };
    let mut n_records = 0;
    let mut layouts = BTreeSet::new();
    for (name, _) in stackhound_corpus::trace_files() {
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for_each_record(&name, |record| {
            let pointer = pointer_size(&name, record);
            let Some(schema) = schema_of(record, pointer) else {
                assert_eq!(record.hook_id(), None, "{name}: a hook id without a name");
                return;
            };
            let mut decoder = schema.decode(record.payload(), pointer);
            let error = decoder.by_ref().find_map(Result::err);
            let event = &schema.event_name;
            assert_eq!(error, None, "{name}: {event} version {}", record.version());
            assert!(decoder.rest().is_empty(), "{name}: {event} version {}", record.version());
            n_records += 1;
            layouts.insert((event, record.version(), pointer));
            *names.entry(event).or_default() += u64::from(record.hook_id().is_some());
        });
        // The facts contain only the most important hook ids.
        for (event, count) in
            facts[&*name]["kernel_hooks_named"].as_object().expect("an object of counts by name")
        {
            assert_eq!(names.get(&**event).copied(), count.as_u64(), "{name}: {event}");
        }
        let hook_id_count: u64 = counts(&facts[&*name]["kernel_hooks"]);
        assert_eq!(names.values().sum::<u64>(), hook_id_count, "{name}");
    }
    println!("{n_records} records of {} layouts", layouts.len());
}

fn counts(object: &Json) -> u64 {
    object.as_object().expect("an object of counts").values().filter_map(Json::as_u64).sum()
}

#[test]
fn payloads_match_the_counts_of_the_facts() {
    let Some(facts) = facts() else { return };
    for (name, _) in stackhound_corpus::trace_files() {
        let mut n_frames = 0;
        let mut pdbs = BTreeSet::new();
        for_each_record(&name, |record| {
            let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
            match (record.hook_id(), record.guid(), record.opcode()) {
                (Some(0x1820), ..) => {
                    let schema = schema_of(record, pointer).expect("a known layout of stacks");
                    let fields =
                        schema.decode(payload, pointer).map(|field| field.expect("a readable stack").item);
                    n_frames += fields
                        .map(|item| if let Item::Array(all) = item { all.len() } else { 0 })
                        .sum::<usize>();
                }
                (None, Some(IMAGE_ID), 36) => {
                    let pdb = DbgIdRsds::parse(payload, version, pointer).expect("a readable PDB identity");
                    pdbs.insert((pdb.guid, pdb.age));
                }
                _ => {}
            }
        });
        let fact = |key: &str| facts[&*name][key].as_u64().map(|count| count as usize);
        assert_eq!(Some(n_frames), fact("stack_frames_0x1820"), "{name}");
        assert_eq!(Some(pdbs.len()), fact("distinct_rsds"), "{name}");
    }
}
