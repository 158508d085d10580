//! The level of detail of each event, by default and with config files.

use std::io::Cursor;
use std::sync::Arc;

use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_frames::{Decisions, EventNames, KernelSymbols, Level, Origin, Policy, PolicyText};
use stackhound_live::ClassicEvent;
use stackhound_schema::{Identity, SchemaStore, kernel};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};

const AUDIT: &str = "Microsoft-Windows-Kernel-Audit-API-Calls";
const PROCESS: &str = "Microsoft-Windows-Kernel-Process";
const FILE: &str = "Microsoft-Windows-Kernel-File";

/// Provider, event and level of each kind of event that the built-in policy distinguishes.
const ROWS: [(&str, &str, Level); 43] = [
    ("Process", "Process/Start", Level::Full),
    (PROCESS, "ProcessStart/Start", Level::Full),
    ("Process", "Process/End", Level::Modules),
    ("Thread", "Thread/Start", Level::Full),
    ("Thread", "Thread/End", Level::Full),
    (PROCESS, "ThreadStart/Start", Level::Full),
    (PROCESS, "ThreadStop/Stop", Level::Full),
    ("Image", "Image/Load", Level::Full),
    ("Image", "Image/Unload", Level::Modules),
    (PROCESS, "ImageLoad", Level::Full),
    ("Registry", "Registry/Create", Level::Full),
    ("Registry", "Registry/Delete", Level::Full),
    ("Registry", "Registry/SetValue", Level::Full),
    ("Registry", "Registry/DeleteValue", Level::Full),
    ("Registry", "Registry/Open", Level::Modules),
    ("Registry", "Registry/QueryValue", Level::Modules),
    ("FileIo", "FileIo/Create", Level::Full),
    ("FileIo", "FileIo/CreateNew", Level::Full),
    ("FileIo", "FileIo/Create(open)", Level::Modules),
    ("FileIo", "FileIo/CreateNew(open)", Level::Modules),
    (FILE, "Create", Level::Full),
    (FILE, "Create(open)", Level::Modules),
    (FILE, "CreateNewFile", Level::Full),
    ("FileIo", "FileIo/Delete", Level::Full),
    ("FileIo", "FileIo/DeletePath", Level::Full),
    (FILE, "DeletePath", Level::Full),
    ("FileIo", "FileIo/Rename", Level::Full),
    ("FileIo", "FileIo/RenamePath", Level::Full),
    (FILE, "RenamePath", Level::Full),
    ("FileIo", "FileIo/Read", Level::Modules),
    (AUDIT, "OpenProcess", Level::Full),
    (AUDIT, "OpenThread", Level::Full),
    (AUDIT, "SetThreadContext", Level::Full),
    (AUDIT, "CreateSymbolicLink", Level::Full),
    // The name of all events in the provider's manifest.
    (AUDIT, "task_0", Level::Full),
    ("PageFault", "PageFault/VirtualAlloc", Level::Full),
    ("ThreadPool", "ThreadPool/CallbackEnqueue", Level::Full),
    ("ThreadPool", "ThreadPool/CallbackStart", Level::Full),
    ("PerfInfo", "PerfInfo/SampledProfile", Level::Modules),
    ("Thread", "Thread/CSwitch", Level::Modules),
    ("PageFault", "PageFault/VirtualFree", Level::Modules),
    ("unknown", "Hook(0x7777)", Level::Modules),
    ("Other-Provider", "Event", Level::Modules),
];

#[test]
fn the_built_in_policy_has_the_expected_levels() {
    let policy = Policy::default();
    for (provider, event, level) in ROWS {
        assert_eq!(policy.level(provider, event), level, "{provider} {event}");
    }
    assert_eq!(policy.kernel_symbols(), KernelSymbols::Modules);
}

#[test]
fn built_in_patterns_name_known_events() {
    let known: Vec<&str> = kernel::events().map(|event| event.name).collect();
    for setting in Policy::default().settings() {
        let Some(name) = setting.key.strip_prefix("events.\"").and_then(|key| key.strip_suffix('"')) else {
            continue;
        };
        let is_plain = !name.contains([':', '*']);
        assert!(!is_plain || known.contains(&name), "{name}");
    }
}

fn with_files(files: &[&str]) -> Policy {
    let mut policy = Policy::default();
    for (number, text) in files.iter().enumerate() {
        policy.put(toml::from_str(text).unwrap(), Origin::Named(format!("file {number}").into()));
    }
    policy
}

#[test]
fn files_override_and_the_most_specific_pattern_applies() {
    let policy = with_files(&[
        r#"
            kernel_symbols = "full"
            [events]
            "FileIo/*" = "none"
            "FileIo/Create" = "modules"
            "Registry/{Set,Delete}Value" = "modules"
        "#,
        r#"
            [events]
            "FileIo/Re*" = "full"
            "Microsoft-*:*" = "none"
        "#,
    ]);
    for (provider, event, level) in [
        // The wildcard of the file overrides the built-in name.
        ("FileIo", "FileIo/Delete", Level::None),
        ("FileIo", "FileIo/Create", Level::Modules),
        ("FileIo", "FileIo/Create(open)", Level::None),
        ("FileIo", "FileIo/Read", Level::Full),
        ("Registry", "Registry/SetValue", Level::Modules),
        ("Registry", "Registry/Create", Level::Full),
        (AUDIT, "OpenProcess", Level::None),
        ("Other-Provider", "Event", Level::Modules),
    ] {
        assert_eq!(policy.level(provider, event), level, "{provider} {event}");
    }
    assert_eq!(policy.kernel_symbols(), KernelSymbols::Full);
}

#[test]
fn settings_have_their_origin() {
    let policy = with_files(&[
        "kernel_symbols = \"off\"\n[events]\n\"Process/Start\" = \"none\"",
        "[events]\n\"*\" = \"full\"",
    ]);
    let settings = policy.settings();
    let of = |key: &str| {
        let setting = settings.iter().filter(|setting| setting.key == key);
        setting.map(|setting| format!("{} {}", setting.value, setting.origin)).collect::<Vec<_>>()
    };
    assert_eq!(of("kernel_symbols"), ["off file 0"]);
    assert_eq!(of("events.\"Process/Start\""), ["none file 0"]);
    assert_eq!(of("events.\"*\""), ["full file 1"]);
    assert_eq!(of("events.\"Thread/Start\""), ["full default"]);
}

#[test]
fn policy_errors_are_reported() {
    for (text, reason) in [
        ("levels = 1", "unknown field `levels`"),
        ("kernel_symbols = \"some\"", "unknown variant `some`"),
        ("[events]\n\"A\" = \"all\"", "unknown variant `all`"),
        ("[events]\n\"A[\" = \"full\"", "`A[` is not a valid pattern of event names"),
        ("[events]\n\"a{b\" = \"full\"", "`a{b` is not a valid pattern of event names"),
    ] {
        let error = toml::from_str::<PolicyText>(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

const PROVIDER: Guid = Guid([9; 16]);

/// The level of each record, with the names from the caller.
fn decide(
    decisions: &mut Decisions,
    headers: &[HeaderSpec<'_>],
    is_open: bool,
    mut names: impl FnMut() -> EventNames<'static>,
) -> Vec<Level> {
    let session = Session::default();
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    for (number, header) in headers.iter().enumerate() {
        let record = RecordSpec {
            time: RawTime(start + 1 + number as i64),
            pointer_size: PointerSize::Eight,
            header: *header,
            payload: Payload::Bytes(&[]),
        };
        writer.write(0, &record).unwrap();
    }
    let (file, _) = writer.finish().unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let block = Arc::new(etl_file.block(&etl_file.index().buffers[1], None).unwrap().0);
    let events = (0..headers.len() as u32).map(|index| Event::new(&block, index, TraceTime(0)));
    events.map(|event| decisions.level(&event, is_open, &mut names)).collect()
}

fn kernel_event(hook_id: u16) -> HeaderSpec<'static> {
    HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: None, counters: &[] }
}

/// The names of a kernel event: the class, and the class and type.
fn kernel_names(hook_id: u16) -> EventNames<'static> {
    let event = kernel::name(hook_id).unwrap_or("Hook");
    EventNames { provider: class_of(event).into(), event: event.into(), are_known: true }
}

fn class_of(event: &str) -> &str {
    event.split_once('/').map_or("unknown", |(class, _)| class)
}

fn manifest_event(id: u16) -> HeaderSpec<'static> {
    of_provider(PROVIDER, id)
}

fn of_provider(provider: Guid, id: u16) -> HeaderSpec<'static> {
    let descriptor = Descriptor { id, version: 0, channel: 0, level: 0, opcode: 0, task: 0, keyword: 0 };
    HeaderSpec::Event {
        provider,
        descriptor,
        property: 0,
        issuer: Issuer::new(Pid(7), Tid(8)),
        activity: Guid::ZERO,
        items: &[],
    }
}

#[test]
fn each_kind_of_event_is_matched_by_name_once() {
    let mut decisions = Decisions::new(Policy::default());
    for (hook_id, is_open, level) in [
        (0x0301, false, Level::Full),
        (0x0302, false, Level::Modules),
        (0x0440, false, Level::Full),
        (0x0440, true, Level::Modules),
        (0x7777, false, Level::Modules),
    ] {
        let mut calls = 0;
        let levels = decide(&mut decisions, &[kernel_event(hook_id); 3], is_open, || {
            calls += 1;
            kernel_names(hook_id)
        });
        assert_eq!((levels, calls), (vec![level; 3], 1), "{hook_id:#06x}");
    }

    let mut calls = 0;
    let names = |are_known| {
        move || {
            let names = ("Microsoft-Windows-Kernel-Process", "ProcessStart/Start");
            EventNames { provider: names.0.into(), event: names.1.into(), are_known }
        }
    };
    let known = names(true);
    let levels = decide(&mut decisions, &[manifest_event(1); 3], false, || {
        calls += 1;
        known()
    });
    assert_eq!((levels, calls), (vec![Level::Full; 3], 1));
    // Without a schema, the name can change.
    let (mut calls, unknown) = (0, names(false));
    decide(&mut decisions, &[manifest_event(2); 3], false, || {
        calls += 1;
        unknown()
    });
    assert_eq!(calls, 3);
}

/// Kernel events of the built-in policy: description, hook ids, level.
const RECORDED: [(&str, &[u16], Level); 14] = [
    ("a process is created", &[0x0301], Level::Full),
    ("a thread is created or ends", &[0x0501, 0x0502], Level::Full),
    ("an image is loaded", &[0x030a], Level::Full),
    ("a key is created or deleted", &[0x090a, 0x090c], Level::Full),
    ("a value is set or deleted", &[0x090e, 0x090f], Level::Full),
    ("a file is created", &[0x0440, 0x044e], Level::Full),
    ("a file is deleted", &[0x0446, 0x044f], Level::Full),
    ("a file is renamed", &[0x0447, 0x0450], Level::Full),
    ("memory is allocated", &[0x0262], Level::Full),
    ("a thread pool gets work", &[0x1c20, 0x1c22], Level::Full),
    ("a process ends", &[0x0302], Level::Modules),
    ("a key is opened or queried", &[0x090b, 0x0910], Level::Modules),
    ("a file is read or written", &[0x0443, 0x0444], Level::Modules),
    ("samples and switches", &[0x0f2e, 0x0524], Level::Modules),
];

#[test]
fn kernel_events_have_the_expected_levels() {
    let mut decisions = Decisions::new(Policy::default());
    let mut level_of = |hook_id, is_open| {
        let names = || kernel_names(hook_id);
        decide(&mut decisions, &[kernel_event(hook_id)], is_open, names)[0]
    };
    for (description, hook_ids, level) in RECORDED {
        assert!(hook_ids.iter().all(|&hook_id| level_of(hook_id, false) == level), "{description}");
    }
    assert_eq!([0x0440, 0x044e].map(|hook_id| level_of(hook_id, true)), [Level::Modules; 2]);
}

/// The names of the events are from the built-in schemas.
#[test]
fn known_providers_have_the_expected_levels() {
    const AUDIT_CALLS: &str = "e02a841c-75a3-4fa7-afc8-ae09cf9b7f23";
    const KERNEL_PROCESS: &str = "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716";
    const KERNEL_FILE: &str = "edd08927-9cc4-4e65-b970-c2560fb5c289";
    let mut store = SchemaStore::new();
    let mut decisions = Decisions::new(Policy::default());
    for (provider, ids, level) in [
        (AUDIT_CALLS, &[3, 4, 5, 6][..], Level::Full),
        (KERNEL_PROCESS, &[1, 3, 4, 5], Level::Full),
        (KERNEL_PROCESS, &[2, 6, 7], Level::Modules),
        (KERNEL_FILE, &[12, 18, 19, 26, 27, 29, 30], Level::Full),
        (KERNEL_FILE, &[13, 14, 15, 16, 24], Level::Modules),
    ] {
        for &id in ids {
            let guid: Guid = provider.parse().unwrap();
            let identity = Identity::Manifest { provider: guid, id, version: 0, opcode: 0, task: 0 };
            let plan = store.lookup(&identity, &[], PointerSize::Eight).expect("a built-in schema").clone();
            let provider_name = store.provider_name(guid).expect("a built-in name").to_string();
            let names = || EventNames {
                provider: provider_name.clone().into(),
                event: plan.schema().event_name.to_string().into(),
                are_known: true,
            };
            let levels = decide(&mut decisions, &[of_provider(guid, id)], false, names);
            assert_eq!(levels, [level], "{} {id}", plan.schema().event_name);
        }
    }
}

/// The preset of live sessions requests stacks for the kernel events with [`Level::Full`].
#[test]
fn the_enrichment_preset_requests_the_stacks_that_the_policy_names() {
    let policy = Policy::default();
    // Events of thread pools are logged by their processes, not by a kernel group.
    let named = kernel::events().filter(|event| {
        event.hook_id.is_some()
            && !event.name.starts_with("ThreadPool/")
            && policy.level(class_of(event.name), event.name) == Level::Full
    });
    let stack = |event: kernel::KernelEvent| ClassicEvent::named(event.name).unwrap().to_bytes();
    let mut expected: Vec<_> = named.map(stack).collect();
    expected.sort_unstable();
    expected.dedup();
    let mut stacks = stackhound_live::Session::enrichment("").numbers().unwrap().stacks;
    stacks.sort_unstable();
    assert_eq!(stacks, expected);
}
