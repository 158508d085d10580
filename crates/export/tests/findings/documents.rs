//! Documents with the schemas of others: ECS, OCSF and the Navigator's layer, checked against
//! schemas that were written from their documentation.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::{Input, Reason, Severity, Verdict};
use stackhound_export::findings::FindingsFormat;
use stackhound_frames::Answer;
use stackhound_images::{FactSource, ImageEvidence, ImageFacts, Signature, SignatureState, VersionInfo};

use crate::event_contexts::{access, events, finding, nothing, start, undetermined, yes};
use crate::{lines, schema, validate};

static ECS: LazyLock<Validator> = LazyLock::new(|| schema(include_str!("ecs.schema.json")));
static OCSF: LazyLock<Validator> = LazyLock::new(|| schema(include_str!("ocsf.schema.json")));
static NAVIGATOR: LazyLock<Validator> = LazyLock::new(|| schema(include_str!("navigator.schema.json")));

fn ecs(events: &[(EventContext, Vec<Finding>)]) -> Vec<Value> {
    let documents = lines(FindingsFormat::Ecs, events);
    validate(&ECS, &documents);
    documents
}

fn ocsf(events: &[(EventContext, Vec<Finding>)]) -> Vec<Value> {
    let documents = lines(FindingsFormat::Ocsf, events);
    validate(&OCSF, &documents);
    documents
}

fn layer(events: &[(EventContext, Vec<Finding>)]) -> Value {
    let layers = lines(FindingsFormat::Navigator, events);
    validate(&NAVIGATOR, &layers);
    assert_eq!(layers.len(), 1);
    layers[0].clone()
}

proptest! {
    #[test]
    fn documents_follow_their_schemas(events in events()) {
        let count = events.iter().flat_map(|(_, findings)| findings);
        let count = count.filter(|finding| finding.outcome.verdict != Verdict::No).count();
        assert_eq!((ecs(&events).len(), ocsf(&events).len()), (count, count));
        layer(&events);
    }

    /// The expected score of each technique is computed independently.
    #[test]
    fn scores_of_techniques_are_counts_of_events(events in events()) {
        let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
        for (event_context, findings) in &events {
            let found = findings.iter().filter(|finding| finding.is_reported());
            let mut ids: Vec<&str> = found.flat_map(|finding| finding.analytic.techniques()).collect();
            ids.sort_unstable();
            ids.dedup();
            for id in ids {
                *expected.entry(id).or_default() += event_context.count;
            }
        }
        let layer = layer(&events);
        let techniques = layer["techniques"].as_array().unwrap();
        let written: BTreeMap<&str, u64> = techniques
            .iter()
            .map(|technique| (technique["techniqueID"].as_str().unwrap(), technique["score"].as_u64().unwrap()))
            .collect();
        assert_eq!(written, expected);
    }
}

#[test]
fn ecs_documents_have_elastics_names() {
    let documents = ecs(&[access()]);
    let first = &documents[0];
    assert_eq!(first["event"]["kind"], "alert");
    assert_eq!(first["event"]["category"], json!(["intrusion_detection", "process"]));
    assert_eq!(first["event"]["severity"], 73);
    assert_eq!(first["rule"]["id"], "CS07");
    let thread = &first["process"]["thread"];
    assert_eq!(thread["id"], 5032);
    let thread = &thread["Ext"];
    assert_eq!(thread["call_stack_summary"], "ntdll.dll|KERNELBASE.dll|Unbacked");
    assert_eq!(thread["call_stack_contains_unbacked"], true);
    assert_eq!(thread["call_stack_final_user_module"], json!({ "name": "Unbacked" }));
    assert_eq!(
        thread["call_stack"],
        json!([
            {
                "symbol_info": r"C:\Windows\System32\ntdll.dll!NtOpenProcess+0x14",
                "module_name": "ntdll.dll",
                "module_path": r"C:\Windows\System32\ntdll.dll",
                "instruction_pointer": "0x7ff80009d4c4",
                "rva": "0x9d4c4",
            },
            {
                "symbol_info": r"C:\Windows\System32\KERNELBASE.dll+0x2c13e",
                "module_name": "KERNELBASE.dll",
                "module_path": r"C:\Windows\System32\KERNELBASE.dll",
                "instruction_pointer": "0x7ff80002c13e",
                "rva": "0x2c13e",
            },
            {
                "symbol_info": "Unbacked!0x24f64b7b7a1",
                "module_name": "Unbacked",
                "instruction_pointer": "0x24f64b7b7a1",
                "memory_section": { "protection": "RWX" },
                "protection": "RWX",
                "callsite_leading_bytes": "ffd0",
                "callsite_trailing_bytes": "4885c0",
            },
        ])
    );
    let api = &first["process"]["Ext"]["api"];
    assert_eq!(api["name"], "NtOpenProcess");
    assert_eq!(api["behaviors"], json!(["shellcode", "cross-process"]));
    assert_eq!(api["parameters"]["desired_access_numeric"], 0x1410);
    assert_eq!(first["Target"]["process"]["name"], "lsass.exe");
    assert_eq!(first["threat"]["technique"]["id"], json!(["T1055", "T1620"]));
    assert_eq!(first["threat"]["tactic"]["name"], json!(["Defense Evasion", "Privilege Escalation"]));
    assert_eq!(first["callstack"]["frame"]["index"], 2);
    // A sub-technique is nested in its technique.
    let lsass = &documents[1]["threat"]["technique"];
    assert_eq!((&lsass["id"], &lsass["subtechnique"]["id"]), (&json!(["T1003"]), &json!(["T1003.001"])));
}

#[test]
fn signatures_are_those_of_the_image() {
    let signed = |source, state, signer: &str| ImageFacts {
        signature: Some(Signature { state, reason: None, signer: Some(signer.into()) }),
        version: VersionInfo { original_file_name: Some("mimi.exe".into()), ..VersionInfo::default() },
        ..ImageFacts::new(source)
    };
    let of = |state| ImageEvidence::from(signed(FactSource::Sysmon, state, "Example"));
    for (state, expected) in [
        (SignatureState::Valid, json!({"exists": true, "valid": true, "trusted": true})),
        (SignatureState::RootNotChecked, json!({"exists": true})),
        (SignatureState::RootNotTrusted, json!({"exists": true, "trusted": false})),
        (SignatureState::Invalid, json!({"exists": true, "valid": false})),
        (SignatureState::Unsigned, json!({"exists": false})),
        (SignatureState::NotEmbedded, json!({})),
        (SignatureState::Unknown, json!({})),
    ] {
        let (mut event_context, findings) = access();
        event_context.stack[1].module = event_context.process.path().to_owned();
        event_context.stack[1].image = of(state);
        let process = ecs(&[(event_context, findings)])[0]["process"].clone();
        let mut expected = expected;
        expected["status"] = state.name().into();
        expected["subject_name"] = "Example".into();
        assert_eq!(process["code_signature"], expected);
        assert_eq!(process["pe"], json!({"original_file_name": "mimi.exe"}));
    }
}

#[test]
fn stacks_of_process_starts_belong_to_the_parent() {
    let document = &ecs(&[start()])[0];
    assert_eq!(document["event"]["type"], json!(["start"]));
    let process = &document["process"];
    assert_eq!((&process["pid"], &process["name"]), (&json!(200), &json!("child.exe")));
    assert_eq!(process["thread"], Value::Null);
    let parent = &process["parent"];
    assert_eq!((&parent["pid"], &parent["name"]), (&json!(100), &json!("parent.exe")));
    let stack = parent["thread"]["Ext"]["call_stack"].as_array().unwrap();
    assert_eq!(stack.len(), 1, "kernel frames are in callstack.kernel");
    assert_eq!(document["callstack"]["kernel"].as_array().unwrap().len(), 1);
    assert_eq!(document["callstack"]["frame"]["index"], 1);
    assert_eq!(process["Ext"]["api"]["behaviors"], json!(["direct_syscall", "parent-child"]));
}

#[test]
fn behaviors_depend_on_reasons_too() {
    let (event_context, _) = access();
    let because = |id, reason| (event_context.clone(), vec![finding(id, yes(Severity::High, 2, reason))]);
    let documents = ecs(&[
        because("CS09", Reason::WritableCode),
        because("CS09", Reason::PrivateCode),
        because("CS19", Reason::StartUnbacked),
    ]);
    let behaviors: Vec<_> =
        documents.iter().map(|document| &document["process"]["Ext"]["api"]["behaviors"]).collect();
    assert_eq!(behaviors[0], &json!(["unbacked_code", "unbacked_rwx", "cross-process"]));
    assert_eq!(behaviors[1], &json!(["unbacked_code", "cross-process"]));
    // Only the address is known: what the memory contains was not read.
    assert_eq!(behaviors[2], &json!(["suspicious_start", "cross-process"]));
}

#[test]
fn absent_stacks_are_not_clean() {
    let contains = |event_context: EventContext| {
        let outcome = yes(Severity::High, 0, Reason::TopUnknown);
        let document = &ecs(&[(event_context, vec![finding("CS02", outcome)])])[0];
        document["process"]["thread"]["Ext"]["call_stack_contains_unbacked"].clone()
    };
    let (mut event_context, _) = access();
    assert_eq!(contains(event_context.clone()), true);
    event_context.contains_unbacked = Answer::No;
    assert_eq!(contains(event_context.clone()), false);
    event_context.contains_unbacked = Answer::Undetermined;
    assert_eq!(contains(event_context.clone()), Value::Null);
    (event_context.contains_unbacked, event_context.stack) = (Answer::No, Vec::new());
    assert_eq!(contains(event_context), Value::Null);
}

#[test]
fn undetermined_answers_differ_from_findings() {
    let (event_context, _) = access();
    let outcome = undetermined(Severity::Critical, Reason::ImageMissing, Input::ImageBytes);
    let events = [(event_context, vec![finding("CS05", outcome)]), nothing()];
    for document in ecs(&events) {
        assert_eq!(document["event"]["kind"], "event");
        assert_eq!(document["event"]["category"], json!(["process"]));
        assert_eq!(document["event"]["severity"], Value::Null);
        assert_eq!(document["threat"], Value::Null);
        assert_eq!(document["process"]["Ext"]["api"]["behaviors"], Value::Null);
        assert_eq!(document["callstack"]["verdict"], "undetermined");
        assert!(document["message"].as_str().unwrap().contains("undetermined"));
        assert!(document["callstack"]["inputs_missing"].is_array());
    }
    for document in ocsf(&events) {
        assert_eq!(document["is_alert"], false);
        assert_eq!(document["severity_id"], 0);
        assert_eq!(document["finding_info"]["attacks"], Value::Null);
        assert_eq!(document["evidences"][0]["verdict_id"], 7);
        assert!(document["message"].as_str().unwrap().contains("undetermined"));
    }
    assert_eq!(layer(&events)["techniques"], json!([]));
}

#[test]
fn ocsf_documents_have_severity_and_confidence() {
    let (event_context, mut findings) = access();
    findings[1].outcome.missing = stackhound_detect::Inputs::of(&[Input::ImageIdentity]);
    let documents = ocsf(&[(event_context, findings)]);
    let first = &documents[0];
    assert_eq!((&first["class_uid"], &first["type_uid"]), (&json!(2004), &json!(200_401)));
    assert_eq!(
        (&first["severity_id"], &first["confidence_id"], &first["is_alert"]),
        (&json!(4), &json!(3), &json!(true))
    );
    assert_eq!((&documents[1]["severity_id"], &documents[1]["confidence_id"]), (&json!(5), &json!(2)));
    // 2023-01-01T00:00:00Z is 1,672,531,200 s after 1970.
    assert_eq!(first["time"], 1_672_531_200_000_u64);
    assert_eq!(first["count"], 3);
    let attacks = first["finding_info"]["attacks"].as_array().unwrap();
    let pairs: Vec<_> = attacks
        .iter()
        .map(|attack| {
            (attack["technique"]["uid"].as_str().unwrap(), attack["tactic"]["uid"].as_str().unwrap())
        })
        .collect();
    assert_eq!(pairs, [("T1055", "TA0005"), ("T1055", "TA0004"), ("T1620", "TA0005")]);
    let evidence = &first["evidences"][0];
    assert_eq!(evidence["verdict"], "Suspicious");
    assert_eq!(evidence["process"]["file"]["name"], "tool.exe");
    assert_eq!(evidence["data"]["stack"][2]["backing"], "unbacked");
    assert_eq!(evidence["data"]["frame"], 2);
    assert_eq!(first["resources"][0]["uid"], "612");
    assert_eq!(first["unmapped"]["time"], "2023-01-01T00:00:00.0000001Z");
    let uids: Vec<_> = documents.iter().map(|document| &document["finding_info"]["uid"]).collect();
    assert!(uids[0] != uids[1] && uids[1] != uids[2]);
}

#[test]
fn unknown_times_are_absent() {
    let (mut event_context, findings) = access();
    event_context.time = None;
    let events = [(event_context, findings)];
    assert_eq!(ecs(&events)[0]["@timestamp"], Value::Null);
    let document = &ocsf(&events)[0];
    assert_eq!((&document["time"], &document["unmapped"]["time"]), (&json!(0), &Value::Null));
    assert_eq!(document["finding_info"]["first_seen_time"], Value::Null);
}

#[test]
fn techniques_have_the_highest_severity_and_all_detections() {
    let layer = layer(&[access(), access(), start()]);
    let techniques = layer["techniques"].as_array().unwrap();
    let by_id = |id: &str| techniques.iter().find(|technique| technique["techniqueID"] == id).unwrap();
    let injection = by_id("T1055");
    assert_eq!(
        (&injection["score"], &injection["metadata"]),
        (&json!(6), &json!([{ "name": "CS07", "value": "6" }]))
    );
    let color = |severity: &str| {
        let legend = layer["legendItems"].as_array().unwrap();
        legend.iter().find(|item| item["label"] == severity).unwrap()["color"].clone()
    };
    assert_eq!(injection["color"], color("high"));
    assert_eq!(by_id("T1003.001")["color"], color("critical"));
    assert_eq!(by_id("T1106")["color"], color("low"));
    assert!(techniques.iter().all(|technique| technique["techniqueID"] != "T1036"), "CS11 is undetermined");
    assert_eq!(layer["gradient"]["maxValue"], 6);
}
