use stackhound_types::PointerSize::{Eight, Four};

use super::*;
use crate::testing::{decoded, hex};

const RUNTIME: &str = "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4";
const RUNDOWN: &str = "a669021c-c450-4609-a035-5af59af4df18";
const PRIVATE: &str = "763fd754-7086-4dfe-95eb-c01a46faf4ca";
const PROCESS: &str = "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716";
const NETWORK: &str = "7dd42a49-5329-4832-8dfd-43d979153a88";
const THREATS: &str = "f4e1897c-bb5d-5668-f1d8-040f4d8dd344";
const TRACING: &str = "b675ec37-bdb6-4648-bc92-f3fdc74d3ca2";

fn plan(provider: &str, id: u16, version: u8) -> &'static Arc<Plan> {
    let found = lookup(provider.parse().unwrap(), id, version).unwrap();
    assert_eq!(found.version, version, "{provider} {id}");
    found.plan
}

#[test]
fn all_tables_are_read() {
    assert_eq!(INDEX.entries.len(), TABLES.len());
    for provider in providers() {
        assert!(names().any(|name| name == (provider.guid, &*provider.name)));
        assert_eq!(find(&provider.name.to_uppercase()), Some(provider.guid));
        for event in &provider.events {
            let name = &event.schema.event_name;
            assert!(event.schema.fields.iter().all(|field| !field.is_padding()), "{name}");
            let found = lookup(provider.guid, event.id, event.version).expect("a description");
            assert_eq!(found.version, event.version, "{name}");
        }
    }
}

/// Names and GUIDs are known before any table is read.
#[test]
fn a_table_is_read_when_it_is_needed() {
    let index = Index::new(&TABLES);
    let is_read = |index: &Index| index.entries.iter().filter(|entry| entry.provider.get().is_some()).count();
    let threats = index.entry(THREATS.parse().unwrap()).unwrap();
    assert_eq!((threats.name, is_read(&index)), ("Microsoft-Windows-Threat-Intelligence", 0));
    let events = &threats.provider().description.events;
    assert_eq!(events.iter().map(|event| event.id).collect::<HashSet<_>>().len(), 34);
    assert_eq!(is_read(&index), 1);
}

/// Providers that users select by name: GUID, a keyword and its name.
#[test]
fn well_known_providers_have_names_and_keywords() {
    for (name, guid, mask, keyword) in [
        ("Microsoft-Windows-Kernel-Network", NETWORK, 0x10, Some("KERNEL_NETWORK_KEYWORD_IPV4")),
        ("Microsoft-Windows-Kernel-Process", PROCESS, 0x40, Some("WINEVENT_KEYWORD_IMAGE")),
        (
            "Microsoft-Windows-Kernel-File",
            "edd08927-9cc4-4e65-b970-c2560fb5c289",
            0x80,
            Some("KERNEL_FILE_KEYWORD_CREATE"),
        ),
        (
            "Microsoft-Windows-Kernel-Registry",
            "70eb4f03-c1de-4f73-a051-33d13d5413bd",
            0x1000,
            Some("CreateKey"),
        ),
        (
            "Microsoft-Windows-Threat-Intelligence",
            THREATS,
            0x8_0000,
            Some("KERNEL_THREATINT_KEYWORD_WRITEVM_REMOTE"),
        ),
        ("Microsoft-Windows-DotNETRuntime", RUNTIME, 0x8000, Some("ExceptionKeyword")),
        ("Microsoft-Windows-PowerShell", "a0c1853b-5c40-4b15-8766-3cf1c58f985a", 1, Some("Runspace")),
        (
            "Microsoft-Windows-WinINet",
            "43d1a55c-76d6-4f7e-995c-64c711e5cafe",
            1,
            Some("WININET_KEYWORD_HANDLES"),
        ),
        ("Microsoft-Windows-HttpService", "dd5ef90a-6398-47a4-ad34-4dcecdef795f", 1, None),
        ("Microsoft-Windows-Kernel-Audit-API-Calls", "e02a841c-75a3-4fa7-afc8-ae09cf9b7f23", 1, None),
    ] {
        let provider = provider(guid.parse().unwrap()).unwrap();
        assert_eq!(&*provider.name, name);
        assert_eq!(provider.keyword_names(mask).next(), keyword, "{name}");
    }
}

#[test]
fn network_events_have_process_and_addresses() {
    let fields = "ea0e0000 10000000 01020304 05060708 01bb c350 01000000 02000000 00000000 0900000000000000";
    let read = decoded(plan(NETWORK, 10, 0).schema(), &hex(fields), Eight);
    assert_eq!(
        read,
        "PID=3818 size=16 daddr=1.2.3.4 saddr=5.6.7.8 dport=443 sport=50000 startime=1 endtime=2 seqnum=0 connid=0x9"
    );
}

#[test]
fn errors_in_a_table_are_reported() {
    #[track_caller]
    fn check(events: &str, expected: &str) {
        let text = format!("provider P 22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716 {{ {events} }}");
        assert_eq!(Provider::read("t", &text).unwrap_err().to_string(), expected);
    }
    check("1 A v0 { B nonsense }", "P 1 A: unknown type nonsense");
    check("1 A v0 {} 1 B v0 {}", "P 1 B is defined twice, or its versions are not in ascending order");
    check("1 A v1 {} v0 {}", "P 1 A is defined twice, or its versions are not in ascending order");
    check("1 A v0 { B u8", "t.txt: line 1: expected the type of an event");
    check(
        "1 A v0 {} } values M {} values M {",
        "M is defined twice, or its versions are not in ascending order",
    );
}

/// The sizes of events without texts in traces, by pointer size. A zero payload of this size must
/// be decoded without missing or trailing bytes.
#[test]
fn layouts_have_the_sizes_of_events_in_traces() {
    for (provider, id, version, pointer, size) in [
        (RUNTIME, 1, 1, Eight, 18),
        (RUNTIME, 1, 2, Eight, 26),
        (RUNTIME, 2, 1, Eight, 10),
        (RUNTIME, 3, 1, Eight, 2),
        (RUNTIME, 4, 1, Eight, 94),
        (RUNTIME, 4, 2, Eight, 110),
        (RUNTIME, 5, 1, Eight, 22),
        (RUNTIME, 9, 1, Eight, 10),
        (RUNTIME, 13, 1, Eight, 6),
        (RUNTIME, 23, 0, Four, 23),
        (RUNTIME, 23, 0, Eight, 27),
        (RUNTIME, 25, 0, Eight, 6),
        (RUNTIME, 29, 0, Four, 10),
        (RUNTIME, 29, 0, Eight, 18),
        (RUNTIME, 35, 0, Eight, 6),
        (RUNTIME, 50, 0, Four, 10),
        (RUNTIME, 85, 0, Eight, 30),
        (RUNTIME, 200, 0, Eight, 10),
        (RUNTIME, 202, 0, Eight, 18),
        (RUNTIME, 205, 2, Eight, 38),
        (RUNDOWN, 146, 1, Four, 2),
        (PRIVATE, 2, 1, Four, 22),
        (PRIVATE, 5, 1, Eight, 30),
        (PRIVATE, 7, 1, Four, 6),
        (PRIVATE, 11, 0, Eight, 2),
        (PRIVATE, 20, 0, Eight, 10),
        (PRIVATE, 21, 0, Four, 22),
        (PRIVATE, 26, 0, Eight, 6),
        (PROCESS, 3, 1, Eight, 68),
        (PROCESS, 4, 1, Eight, 76),
        (PROCESS, 7, 0, Eight, 10),
        (NETWORK, 10, 0, Eight, 40),
        (NETWORK, 11, 0, Eight, 32),
        (NETWORK, 26, 0, Eight, 64),
        (NETWORK, 27, 0, Eight, 56),
        (NETWORK, 42, 0, Eight, 32),
        (TRACING, 8, 0, Eight, 16),
    ] {
        let schema = plan(provider, id, version).schema();
        let read = decoded(schema, &vec![0; size], pointer);
        let clean = !read.contains(['!', '+']);
        assert!(clean, "{provider} {id} v{version} of {size} bytes: {read}");
    }
    // Events with arrays: frames, map entries, generations, buckets and times.
    for (provider, id, version, pointer, count_at, count, size) in [
        (RUNTIME, 82, 0, Four, 4, 67, 276),
        (RUNTIME, 190, 0, Eight, 17, 3, 45),
        (RUNTIME, 204, 3, Four, 54, 4, 218),
        (RUNTIME, 204, 3, Eight, 82, 5, 486),
        (RUNTIME, 205, 4, Eight, 46, 8, 82),
        (RUNTIME, 208, 0, Eight, 2, 1, 36),
        (RUNTIME, 209, 0, Eight, 12, 9, 158),
        (RUNTIME, 21, 0, Eight, 4, 28, 458),
        (RUNTIME, 22, 0, Four, 4, 4080, 65290),
    ] {
        let mut payload = vec![0; size];
        payload[count_at..count_at + 2].copy_from_slice(&u16::to_le_bytes(count));
        let schema = plan(provider, id, version).schema();
        let read = decoded(schema, &payload, pointer);
        assert!(!read.contains(['!', '+']), "{id} v{version} of {size} bytes: {read}");
    }
}

#[test]
fn events_and_fields_have_their_usual_names() {
    for (provider, id, version, name, fields) in [
        (RUNTIME, 1, 2, "GC/Start", "Count Depth Reason Type ClrInstanceID ClientSequenceNumber"),
        (RUNTIME, 7, 1, "GC/RestartEEStart", "ClrInstanceID"),
        (RUNTIME, 9, 1, "GC/SuspendEEStart", "Reason Count ClrInstanceID"),
        (RUNTIME, 14, 1, "GC/FinalizersStart", "ClrInstanceID"),
        (RUNTIME, 202, 0, "GC/MarkWithType", "HeapNum ClrInstanceID Type Promoted"),
        (
            RUNTIME,
            80,
            1,
            "Exception/Start",
            "ExceptionType ExceptionMessage ExceptionEIP ExceptionHRESULT ExceptionFlags ClrInstanceID",
        ),
        (RUNDOWN, 148, 1, "Method/DCStopInit", "ClrInstanceID"),
        (PRIVATE, 196, 0, "Binding/FusionMessage", "ClrInstanceID Prepend Message"),
        (
            PROCESS,
            1,
            1,
            "ProcessStart/Start",
            "ProcessID CreateTime ParentProcessID SessionID Flags ImageName",
        ),
        (
            THREATS,
            14,
            1,
            "KERNEL_THREATINT_TASK_WRITEVM",
            "OperationStatus CallingProcessId CallingProcessCreateTime CallingProcessStartKey \
             CallingProcessSignatureLevel CallingProcessSectionSignatureLevel CallingProcessProtection CallingThreadId \
             CallingThreadCreateTime TargetProcessId TargetProcessCreateTime TargetProcessStartKey \
             TargetProcessSignatureLevel TargetProcessSectionSignatureLevel TargetProcessProtection BaseAddress \
             BytesCopied",
        ),
        (TRACING, 14, 0, "ETW_TASK_PROVIDER/ETW_OPCODE_ENABLE", "ProviderName SessionName"),
    ] {
        let schema = plan(provider, id, version).schema();
        assert_eq!(&*schema.event_name, name);
        let names: Vec<&str> = schema.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names.join(" "), fields, "{name}");
    }
}

#[test]
fn unknown_versions_use_the_highest_lower_version() {
    let version = |id, version| lookup(RUNTIME.parse().unwrap(), id, version).map(|found| found.version);
    assert_eq!([0, 1, 2, 3, 255].map(|v| version(1, v)), [0, 1, 2, 2, 2].map(Some));
    assert_eq!([2, 3, 4].map(|v| version(204, v)), [None, Some(3), Some(3)]);
    assert_eq!(version(9999, 0), None);
    assert!(lookup(Guid::ZERO, 1, 0).is_none());
}
