//! Every event of every trace in the corpus must be decoded completely, if a description of it is
//! available.

use std::collections::BTreeMap;

use stackhound_corpus as corpus;
use stackhound_etl::EtlFile;
use stackhound_etl::record::Record;
use stackhound_schema::{Decoder, EventDescription, Identity, Item, SchemaSource, SchemaStore};
use stackhound_types::{Guid, Pid, Tid};

/// Events that are described neither in their trace nor in a built-in table.
const UNKNOWN: [(&str, &str, usize); 6] = [
    ("iis-etw-tracing-iis.etl", "7e8ad27f-b271-4ea2-a783-a47bde29143b", 9),
    ("perfview-diaghub.kernel.1.etl", "6f669bfa-816a-4204-a824-47c8e6a00474", 1),
    ("perfview-diaghub.user_injected.1.etl", "9e5f9046-43c6-4f62-ba13-7b19896253ff", 3),
    ("perfview-diaghub.user_paged.1.etl", "6f669bfa-816a-4204-a824-47c8e6a00474", 1),
    ("pyetw-out.etl", "bf6ef1cb-89b5-490a-80ac-b180cfbcff0f", 60),
    ("tx-HTTP_Server.etl", "dd5ef90a-6398-47a4-ad34-4dcecdef795f", 2041),
];

/// An event whose writer states a level of four bytes and writes eight.
const LONGER_THAN_DESCRIBED: &str = "ClrEnableParameters";

/// The events of a trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reading {
    /// Events other than those of the kernel logger.
    events: u64,
    /// Truncated events, by name.
    cut_off: BTreeMap<String, usize>,
    /// Events of providers with bytes after the described fields, by name.
    longer: BTreeMap<String, usize>,
    /// Events without a description, by provider or class.
    unknown: BTreeMap<Guid, usize>,
}

/// Visits all records, buffer by buffer.
fn for_each_record(etl_file: &EtlFile, mut visit: impl FnMut(&Record<'_>)) {
    for buffer in etl_file.index().streams().iter().flatten() {
        let (block, _) = etl_file.block(buffer, None).expect("a readable buffer");
        block.entries().iter().for_each(|entry| visit(&block.record(entry)));
    }
}

/// A store with the descriptions in a trace.
fn learned(etl_file: &EtlFile) -> SchemaStore {
    let mut store = SchemaStore::new();
    for_each_record(etl_file, |record| {
        if let Some(identity) = Identity::of(record) {
            let (pid, tid) = (record.pid().unwrap_or(Pid::IDLE), record.tid().unwrap_or(Tid(0)));
            store.learn(&identity, pid, tid, record.payload()).expect("a readable description");
        }
    });
    store
}

fn read(etl_file: &EtlFile) -> Reading {
    let mut store = learned(etl_file);
    let mut reading = Reading::default();
    for_each_record(etl_file, |record| {
        let Some(identity) = Identity::of(record) else { return };
        reading.events += u64::from(record.hook_id().is_none());
        let Some(plan) = store.lookup(&identity, record.payload(), record.pointer_size()) else {
            *reading.unknown.entry(record.guid().unwrap_or_default()).or_default() += 1;
            return;
        };
        let name = || plan.schema().event_name.to_string();
        let mut decoder = plan.decode(record.payload(), record.pointer_size());
        if !is_complete(&mut decoder) {
            *reading.cut_off.entry(name()).or_default() += 1;
        } else if !decoder.rest().is_empty() && plan.schema().source != SchemaSource::Kernel {
            *reading.longer.entry(name()).or_default() += 1;
        }
    });
    reading
}

/// Whether all fields are complete, including all members of structures.
fn is_complete(decoder: &mut Decoder<'_>) -> bool {
    decoder.all(|decoded| match decoded.map(|decoded| decoded.item) {
        Ok(Item::Value(_) | Item::Array(_)) => true,
        Ok(Item::Struct(mut members)) => is_complete(&mut members),
        Err(_) => false,
    })
}

#[test]
fn described_events_are_decoded_completely() {
    let Some(facts) = corpus::text("etl/facts.json") else { return };
    let facts: serde_json::Value = serde_json::from_str(&facts).expect("facts in JSON");
    for (name, _) in corpus::trace_files() {
        let Some(bytes) = corpus::etl_file(&name) else { return };
        let reading = read(&EtlFile::open(bytes.into()).expect("a readable trace"));

        let counted = |key: &str| facts[&name][key].as_u64().unwrap_or_default();
        assert_eq!(reading.events, counted("classic_guid_events") + counted("manifest_events"), "{name}");
        assert_eq!(reading.cut_off, BTreeMap::new(), "{name}");
        let longer: Vec<&str> = reading.longer.keys().map(String::as_str).collect();
        assert!(longer.is_empty() || longer == [LONGER_THAN_DESCRIBED], "{name}: {longer:?}");
        let unknown = UNKNOWN.iter().filter(|(file, ..)| *file == name);
        let unknown = unknown.map(|(_, guid, count)| (guid.parse().expect("a GUID"), *count)).collect();
        assert_eq!(reading.unknown, unknown, "{name}");
    }
}

/// What traces and tables say about an event. The tables give events of .NET other names, and the
/// manifests that event sources of .NET write have other tasks and opcodes.
fn shown(event: &EventDescription, is_dot_net: bool) -> String {
    let fields: Vec<&str> = event.schema.fields.iter().map(|field| &*field.name).collect();
    let fields = fields.join(" ");
    match is_dot_net {
        true => fields,
        false => format!(
            "{} {:?} {:?} {:?} {fields}",
            event.schema.event_name, event.level, event.task, event.opcode
        ),
    }
}

/// Every description in a trace of an event in the built-in tables says the same. Those of .NET can
/// leave out arrays of structures at the end, and rename a field.
#[test]
fn built_in_descriptions_agree_with_those_of_traces() {
    let mut compared = BTreeMap::new();
    for (name, _) in corpus::trace_files() {
        let Some(bytes) = corpus::etl_file(&name) else { return };
        let store = learned(&EtlFile::open(bytes.into()).expect("a readable trace"));
        for provider in store.learned_providers() {
            let Some(known) = SchemaStore::built_in_providers().find(|known| known.guid == provider.guid)
            else {
                continue;
            };
            let is_dot_net = known.name.starts_with("Microsoft-Windows-DotNET");
            for event in &provider.events {
                let mut versions = known.events.iter();
                let same = versions.find(|known| (known.id, known.version) == (event.id, event.version));
                let Some(same) = same else { continue };
                let (of_trace, of_table) = (shown(event, is_dot_net), shown(same, is_dot_net));
                let of_trace = of_trace.replace("Type Bytes", "Type Promoted");
                let is_equal =
                    if is_dot_net { of_table.starts_with(&of_trace) } else { of_table == of_trace };
                assert!(is_equal, "{name}: {of_trace}, in the table {of_table}");
                *compared.entry(&*known.name).or_insert(0) += 1;
            }
        }
    }
    println!("compared: {compared:?}");
    assert!(compared.is_empty() || compared.len() >= 5, "{compared:?}");
}
