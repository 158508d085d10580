//! A provider has one name: the names that `info --full` prints select the events that it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stackhound::Guid;
use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{
    EtlWriter, EventClass, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session,
};
use stackhound::schema::kernel::class_guid;
use stackhound::schema::{SchemaStore, provider_guid};
use stackhound::types::{PointerSize, RawTime};

use crate::program::{stackhound, text};

const LOGGER: Guid = Guid::new(1, 2, 3, [4; 8]);
const TWINS: [Guid; 2] = [Guid::new(7, 1, 1, [1; 8]), Guid::new(7, 2, 2, [2; 8])];
const NAMELESS: Guid = Guid::new(9, 9, 9, [9; 8]);

/// Traits with a name, or metadata with the name of an event and no fields.
fn named(prefix: &[u8], name: &str) -> Vec<u8> {
    let size = u16::try_from(2 + prefix.len() + name.len() + 1).expect("a short name");
    [&size.to_le_bytes(), prefix, name.as_bytes(), &[0]].concat()
}

fn event<'a>(provider: Guid, items: &'a [ItemSpec<'a>]) -> HeaderSpec<'a> {
    // No table describes an event with this id.
    let descriptor =
        Descriptor { id: 60_000, version: 0, channel: 0, level: 4, opcode: 0, task: 0, keyword: 0 };
    let (issuer, activity) = (Issuer::UNKNOWN, Guid::ZERO);
    HeaderSpec::Event { provider, descriptor, property: 0, issuer, activity, items }
}

fn classic(guid: Guid, opcode: u8) -> HeaderSpec<'static> {
    let class = EventClass { guid, opcode, level: 0, version: 2 };
    HeaderSpec::Full { class, issuer: Issuer::UNKNOWN }
}

fn kernel(hook_id: u16) -> HeaderSpec<'static> {
    HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: None, counters: &[] }
}

/// Writes a trace, in a folder of its own.
fn write(headers: &[HeaderSpec<'_>]) -> (tempfile::TempDir, PathBuf) {
    let session = Session::default();
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for (time, header) in (start + 1..).zip(headers) {
        let record = RecordSpec {
            time: RawTime(time),
            pointer_size: PointerSize::Eight,
            header: *header,
            payload: Payload::Bytes(&[0; 64]),
        };
        writer.write(0, &record).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.etl");
    std::fs::write(&path, writer.finish().unwrap().0.into_inner()).unwrap();
    (folder, path)
}

/// The standard output of a verb about a trace.
fn output(arguments: &[&str], trace: &Path) -> String {
    let output = stackhound(&[arguments, &[text(trace), "-q"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{arguments:?} {trace:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn document(arguments: &[&str], trace: &Path) -> Value {
    serde_json::from_str(&output(arguments, trace)).expect("JSON")
}

const EVENTS: [&str; 3] = ["events", "--format", "ndjson"];

/// The providers of a trace, as `info --full` states them.
#[derive(Default)]
struct Providers {
    /// The number of events by name, or by GUID without a name.
    events: BTreeMap<String, u64>,
    guids: BTreeMap<String, BTreeSet<Guid>>,
}

impl Providers {
    fn of(trace: &Path) -> Providers {
        let mut providers = Providers::default();
        let info = document(&["info", "--full", "--format", "json"], trace);
        for (guid, counts) in info["providers"].as_object().expect("providers") {
            let name = counts["name"].as_str().unwrap_or(guid).to_owned();
            let count = |key: &str| counts[key].as_u64().expect("a number");
            *providers.events.entry(name.clone()).or_default() += count("events") - count("stack_records");
            providers.guids.entry(name).or_default().insert(guid.parse().expect("a GUID"));
        }
        providers
    }

    /// The names of several GUIDs. The trace must state them: no table has two equal names.
    fn shared(&self) -> Vec<&str> {
        let built_in = SchemaStore::new();
        let mut shared = Vec::new();
        for (name, guids) in &self.guids {
            let of_tables = guids.iter().filter(|guid| built_in.provider_name(**guid).is_some());
            assert!(of_tables.count() <= 1, "{name}: {guids:?}");
            shared.extend((guids.len() > 1).then_some(&**name));
        }
        shared
    }
}

/// The events of a trace by the name of their provider, as rows show it.
fn rows(trace: &Path) -> BTreeMap<String, u64> {
    let mut rows = BTreeMap::new();
    for line in output(&EVENTS, trace).lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        *rows.entry(event["provider"].as_str().expect("a text").to_owned()).or_default() += 1;
    }
    rows
}

/// Compares all outputs about a trace with `info --full`. Returns the number of names.
fn check(name: &str, trace: &Path, with_filters: bool) -> usize {
    let providers = Providers::of(trace);
    let mut rows = rows(trace);
    // Kernel events of groups without a known class, and messages without a GUID.
    rows.remove("unknown");
    let mut events = providers.events.clone();
    // All records of a provider can be joined to other events.
    events.retain(|_, count| *count > 0);
    assert_eq!(rows, events, "{name}");
    for (provider, guids) in providers.guids.iter().filter(|_| with_filters) {
        let count = |value: &str| {
            let selected = output(&[&EVENTS[..], &["--provider", value]].concat(), trace);
            selected.lines().count() as u64
        };
        assert_eq!(count(provider), providers.events[provider], "{name}: --provider {provider:?}");
        let by_guid: u64 = guids.iter().map(|guid| count(&guid.to_string())).sum();
        assert_eq!(by_guid, providers.events[provider], "{name}: {provider} by its GUIDs");
    }
    let summary = document(&["summary", "--symbol-path", "", "--format", "json"], trace);
    for provider in summary[0]["providers"].as_array().into_iter().flatten() {
        let [provider, guid] = ["provider", "guid"].map(|key| provider[key].as_str().expect("a text"));
        assert!(providers.guids[provider].contains(&guid.parse().expect("a GUID")), "{name}: {provider}");
    }
    let info = output(&["info", "--full"], trace);
    for shared in providers.shared() {
        for guid in &providers.guids[shared] {
            assert!(info.contains(&format!("{guid} {shared}")), "{name}: {info}");
        }
    }
    providers.guids.len()
}

/// Events with and without schemas, of providers with and without names.
#[test]
fn every_name_selects_the_events_that_info_counts() {
    let (traits, metadata) = (named(&[], "Contoso-Logger"), named(&[0], "Happened"));
    let without_traits = [ItemSpec::Schema(&metadata)];
    let with_traits = [ItemSpec::ProviderTraits(&traits), ItemSpec::Schema(&metadata)];
    let (_folder, trace) = write(&[
        event(LOGGER, &[]),
        event(LOGGER, &without_traits),
        event(LOGGER, &with_traits),
        event(provider_guid::HTTP_SERVICE, &[]),
        event(NAMELESS, &[]),
        // Classes with and without a group, and types that no table contains.
        classic(class_guid::LOST_EVENT, 32),
        classic(class_guid::WIN_SAT, 33),
        classic(class_guid::SYS_CONFIG_EX, 0xEE),
        classic(class_guid::PROCESS, 0xEE),
        classic(class_guid::PROCESS, 11),
        kernel(0x030B),
        kernel(0x05EE),
        kernel(0x0F2E),
    ]);
    let expected = [
        ("Contoso-Logger", 3),
        ("Microsoft-Windows-HttpService", 1),
        (&NAMELESS.to_string(), 1),
        ("LostEvent", 1),
        ("WinSAT", 1),
        ("SysConfigEx", 1),
        ("Process", 3),
        ("Thread", 1),
        ("PerfInfo", 1),
        // The header of the trace.
        ("EventTrace", 1),
    ];
    let expected: BTreeMap<String, u64> =
        expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    assert_eq!(rows(&trace), expected);
    assert!(Providers::of(&trace).shared().is_empty());
    check("the written trace", &trace, true);
}

#[test]
fn guids_of_a_name_that_the_trace_gives_to_several_are_shown() {
    let (traits, other) = (named(&[], "Contoso-Twin"), named(&[], "Contoso-Logger"));
    let (of_twins, of_other) = ([ItemSpec::ProviderTraits(&traits)], [ItemSpec::ProviderTraits(&other)]);
    let (_folder, trace) =
        write(&[event(TWINS[0], &of_twins), event(TWINS[1], &of_twins), event(LOGGER, &of_other)]);
    assert_eq!(Providers::of(&trace).shared(), ["Contoso-Twin"]);
    check("the twins", &trace, true);
    let summary = output(&["summary", "--symbol-path", ""], &trace);
    // The line is cut at the width of the screen.
    let contains = format!("1 Contoso-Logger, 1 Contoso-Twin {}", TWINS[0]);
    assert!(summary.contains(&contains), "{summary}");
}

/// A smaller trace contains the first event with the name, and not the other ones.
#[test]
fn names_remain_in_a_cut_trace() {
    let traits = named(&[], "Contoso-Logger");
    let with_traits = [ItemSpec::ProviderTraits(&traits)];
    let (folder, trace) = write(&[
        event(LOGGER, &[]),
        event(LOGGER, &with_traits),
        event(LOGGER, &with_traits),
        // The last event of a trace is kept.
        event(NAMELESS, &[]),
    ]);
    let cut = folder.path().join("cut.etl");
    let condition = "provider = 'Contoso-Logger' and not flags hasany 1";
    output(&["convert", "--where", condition, "-o", text(&cut)], &trace);
    assert_eq!(rows(&cut)["Contoso-Logger"], 2);
    check("the cut trace", &cut, true);
}

#[test]
fn stack_records_are_counted_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["demo", "-q", "--events", "10000", "--out", text(folder.path())];
    assert!(stackhound(&arguments).status.success());
    let trace = folder.path().join("stackhound-demo.etl");
    let info = document(&["info", "--full", "--format", "json"], &trace);
    let stacks = &info["providers"][class_guid::STACK_WALK.to_string()];
    assert!(stacks["events"].as_u64() > Some(0), "{stacks}");
    assert_eq!((&stacks["name"], &stacks["stack_records"]), (&"StackWalk".into(), &stacks["events"]));
    check("the demo", &trace, true);
}

/// The largest traces are left out, and filters are checked on small ones; with
/// `STACKHOUND_WHOLE_CORPUS=1`, on all of them.
#[test]
fn every_name_in_genuine_traces_selects_the_events_that_info_counts() {
    const SIZE_MAX: u64 = 1_000_000;
    const SIZE_WITH_FILTERS_MAX: u64 = 100_000;
    let is_whole = std::env::var_os("STACKHOUND_WHOLE_CORPUS").is_some();
    for (name, path) in stackhound_corpus::trace_files() {
        let size = path.metadata().unwrap().len();
        if is_whole || size <= SIZE_MAX {
            assert!(check(&name, &path, is_whole || size <= SIZE_WITH_FILTERS_MAX) > 0, "{name}");
        }
    }
}
