//! NDJSON, checked against the published schema and compared with the written findings.

use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};
use stackhound_detect::alert::Alerts;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::{Totals, Verdict};
use stackhound_export::findings::FindingsFormat;
use stackhound_facts::{FactId, FactSet, FactValue};
use stackhound_types::Mode;

use crate::event_contexts::{access, event_with_answers, events, nothing};
use crate::{lines, schema, validate, written};

static FINDING: LazyLock<Validator> =
    LazyLock::new(|| schema(include_str!("../../../../docs/schema/1/finding.json")));
static ALERT: LazyLock<Validator> =
    LazyLock::new(|| schema(include_str!("../../../../docs/schema/1/alert.json")));

fn hex(value: &Value) -> Option<u64> {
    let digits = value.as_str()?.strip_prefix("0x").expect("0x");
    Some(u64::from_str_radix(digits, 16).expect("digits"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().map(|number| number.try_into().unwrap())
}

fn bytes(value: &Value) -> Vec<u8> {
    let digits = text(value);
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Checks that a line contains all facts of a finding.
fn compare(line: &Value, event_context: &EventContext, finding: &Finding) {
    assert_eq!(text(&line["detection"]), finding.analytic.name());
    assert_eq!(text(&line["verdict"]), finding.outcome.verdict.name());
    assert_eq!(text(&line["severity"]), finding.outcome.severity.name());
    let codes: Vec<_> = finding.outcome.reasons.iter().map(|reason| reason.code()).collect();
    assert_eq!(line["reasons"], json!(codes));
    let (used, missing) = (finding.outcome.used, finding.outcome.missing);
    assert_eq!(line["inputs_used"], json!(used.iter().map(|input| input.name()).collect::<Vec<_>>()));
    let of_rule = finding.rule_match.as_ref();
    let missing: Vec<&str> = missing
        .iter()
        .map(|input| input.name())
        .chain(of_rule.into_iter().flat_map(|found| &found.missing).map(String::as_str))
        .collect();
    assert_eq!(line["inputs_missing"], json!(missing));
    assert_eq!(line["rule"].is_null(), of_rule.is_none());
    if let (Some(found), Some(rule)) = (of_rule, finding.analytic.rule()) {
        assert_eq!(text(&line["title"]), rule.name);
        assert_eq!(text(&line["rule"]["text"]), found.text);
        assert_eq!(line["rule"]["is_possible"], found.is_possible);
        assert_eq!(line["rule"]["missing"], line["inputs_missing"].get(0).cloned().unwrap_or_default());
        let records: Vec<u64> = found.earlier.iter().map(|event| event.record).collect();
        let written = line["rule"]["earlier"].as_array().unwrap().iter();
        assert_eq!(written.map(|event| event["record"].as_u64().unwrap()).collect::<Vec<_>>(), records);
    }
    assert_eq!(text(&line["alert"]), finding.alert);
    assert_eq!(
        line["input"],
        json!({ "file": event_context.location.file, "record": event_context.location.record })
    );
    assert_eq!(line["count"], event_context.count);
    assert_eq!(text(&line["host"]), event_context.host);
    let process = &event_context.process;
    assert_eq!(number(&line["pid"]), process.pid);
    assert_eq!(number(&line["tid"]), process.tid);
    check_facts(&line["process"], &process.facts);
    check_facts(&line["thread"], &process.thread);
    let event = &event_context.event;
    assert_eq!(text(&line["event"]), event.name);
    assert_eq!(text(&line["provider"]), event.provider);
    let operation = &line["operation"];
    assert_eq!(text(&operation["service"]), event.service);
    assert_eq!(line["target"].is_null(), event.target.is_none());
    if let Some(target) = &event.target {
        assert_eq!(number(&line["target"]["pid"]), target.pid);
        assert_eq!(number(&line["target"]["tid"]), target.tid);
        check_facts(&line["target"]["process"], &target.facts);
        check_facts(&line["target"]["thread"], &target.thread);
    }
    assert_eq!(hex(&operation["region"]["address"]), event.region.map(|region| region.address));
    assert_eq!(operation["region"]["size"].as_u64(), event.region.and_then(|region| region.size));
    assert_eq!(hex(&operation["access"]), event.access.map(u64::from));
    assert_eq!(hex(&operation["start_address"]), event.start_address);
    assert_eq!(text(&operation["start_name"]), event.start_name);
    let index =
        finding.outcome.frame.map(u64::from).filter(|index| (*index as usize) < event_context.stack.len());
    assert_eq!(line["frame_index"].as_u64(), index);
    let stack = &line["stack"];
    let states = [&stack["state"]].into_iter().chain(stack["also"].as_array().unwrap());
    assert_eq!(states.filter_map(Value::as_str).collect::<Vec<_>>(), event_context.states);
    assert_eq!(text(&stack["summary"]), event_context.summary);
    assert_eq!(text(&stack["kernel_summary"]), event_context.kernel_summary);
    assert_eq!(text(&stack["contains_unbacked"]), event_context.contains_unbacked.name());
    assert_eq!(stack["final_user_module"].as_str(), event_context.final_user_module.as_deref());
    assert_eq!(stack["final_kernel_module"].as_str(), event_context.final_kernel_module.as_deref());
    let frames = stack["frames"].as_array().unwrap();
    assert_eq!(frames.len(), event_context.stack.len());
    for (line, frame) in frames.iter().zip(&event_context.stack) {
        assert_eq!((hex(&line["address"]), hex(&line["rva"])), (frame.address, frame.rva));
        assert_eq!(line["module"].as_str(), frame.module_or_runtime());
        assert_eq!(line["path"].as_str(), Some(&*frame.module).filter(|path| path.contains('\\')));
        let function = frame.function.as_ref();
        assert_eq!(line["symbol"].as_str(), function.map(|function| &*function.text));
        assert_eq!(line["offset"].as_u64(), function.map(|function| function.offset));
        assert_eq!(text(&line["backing"]), frame.backing.name());
        assert_eq!(text(&line["mode"]), frame.mode.name());
        assert_eq!(line["wow64"] == true, frame.is_wow64);
        assert_eq!(bytes(&line["call_site"]["leading_bytes"]), frame.leading_bytes);
        assert_eq!(bytes(&line["call_site"]["trailing_bytes"]), frame.trailing_bytes);
        let region = &line["region"];
        assert_eq!(region.is_null(), frame.mode == Mode::Kernel);
        if frame.mode == Mode::User {
            assert_eq!(text(&region["kind"]), frame.region.kind.name());
            assert_eq!(hex(&region["base"]), frame.region.extent.map(|(base, _)| base.0));
            assert_eq!(region["page_protection"].is_null(), frame.page_protection.is_none());
        }
    }
}

/// Every fact is in an object at its path; null if it is not known.
fn check_facts<F: FactId>(object: &Value, facts: &FactSet<'_, F>) {
    for fact in F::ALL {
        let pointer = format!("/{}", fact.row().path.replace('.', "/"));
        let written = object.pointer(&pointer).unwrap_or(&Value::Null);
        let expected = match facts.get(*fact) {
            None => Value::Null,
            Some(FactValue::Number(number)) => json!(number),
            Some(shown) => json!(shown.to_string()),
        };
        assert_eq!(written, &expected, "{pointer}");
    }
}

proptest! {
    #[test]
    fn lines_follow_the_schema_and_are_complete(event in event_with_answers()) {
        let lines = lines(FindingsFormat::Ndjson, std::slice::from_ref(&event));
        validate(&FINDING, &lines);
        let (event_context, findings) = event;
        let expected: Vec<&Finding> =
            findings.iter().filter(|finding| finding.outcome.verdict != Verdict::No).collect();
        assert_eq!(lines.len(), expected.len());
        for (line, finding) in lines.iter().zip(expected) {
            compare(line, &event_context, finding);
        }
    }
}

proptest! {
    /// Alerts come after the findings, the highest score first, and follow the schema.
    #[test]
    fn alerts_follow_the_findings(mut events in events()) {
        let mut alerts = Alerts::new(600_000_000);
        for (event_context, findings) in &mut events {
            alerts.add(event_context, findings);
        }
        let mut alerts = alerts.finish();
        let expected: Vec<_> = alerts.iter().map(|alert| (json!(alert.key), json!(alert.score()))).collect();
        alerts.reverse();
        let text = written(FindingsFormat::Ndjson, false, &events, &alerts, &Totals::default());
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (findings, alerts) = lines.split_at(lines.len() - expected.len());
        validate(&FINDING, findings);
        validate(&ALERT, alerts);
        let found: Vec<_> = alerts.iter().map(|alert| (alert["alert"].clone(), alert["score"].clone())).collect();
        assert_eq!(found, expected);
        let of_alerts = findings.iter().filter(|finding| finding["verdict"] == "yes" && finding["suppressed"].is_null()).map(|finding| &finding["alert"]);
        assert!(of_alerts.into_iter().all(|key| alerts.iter().any(|alert| alert["alert"] == *key)));
    }
}

#[test]
fn each_finding_is_a_line() {
    let lines = lines(FindingsFormat::Ndjson, &[access()]);
    let first = &lines[0];
    assert_eq!((&first["type"], &first["schema_version"]), (&json!("finding"), &json!(1)));
    assert_eq!(first["time"], "2023-01-01T00:00:00.0000001Z");
    assert_eq!(first["process"]["start_time"], "2023-01-01T00:00:00.0000000Z");
    assert_eq!(first["reasons"], json!(["sensitive-operation", "caller-unbacked"]));
    let explanation = first["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("unbacked 0x24f64b7b7a1, in no module, calls the native API."),
        "{explanation}"
    );
    assert_eq!(first["frame_index"], 2);
    assert_eq!(first["operation"]["access"], "0x1410");
    let target = &first["target"];
    assert_eq!(
        (&target["pid"], &target["tid"], &target["thread"]),
        (&json!(612), &Value::Null, &Value::Null)
    );
    assert_eq!(target["process"]["path"], r"C:\Windows\System32\lsass.exe");
    assert_eq!(
        first["stack"]["frames"][2],
        json!({
            "address": "0x24f64b7b7a1", "mode": "user", "module": null, "rva": null, "backing": "unbacked",
            "region": {
                "kind": "private", "base": null, "size": null, "protection": null, "page_protection": "RWX",
                "evidence": null,
            },
            "symbol": null, "offset": null, "origin": null,
            "call_site": { "leading_bytes": "ffd0", "trailing_bytes": "4885c0" },
        })
    );
    assert_eq!(first["attack"], json!(["T1055", "T1620"]));
    let verdicts: Vec<_> = lines.iter().map(|line| text(&line["verdict"])).collect();
    assert_eq!(verdicts, ["yes", "yes", "undetermined"]);
}

#[test]
fn unknown_values_are_null() {
    let lines = lines(FindingsFormat::Ndjson, &[nothing()]);
    let line = &lines[0];
    for key in [
        "alert",
        "time",
        "host",
        "pid",
        "tid",
        "process",
        "thread",
        "provider",
        "event",
        "target",
        "frame_index",
    ] {
        assert_eq!(line[key], Value::Null, "{key}");
    }
    assert!(line["operation"].as_object().unwrap().values().all(Value::is_null));
    assert_eq!((&line["stack"]["frames"], &line["inputs_missing"]), (&json!([]), &json!(["stack"])));
    assert_eq!((&line["stack"]["state"], &line["stack"]["final_user_module"]), (&Value::Null, &Value::Null));
}
