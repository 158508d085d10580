//! NDJSON against its schema, and back into what it was written from.

use proptest::prelude::*;
use serde_json::{Value, json};
use stackhound_detect::Verdict;
use stackhound_detect::report::{Finding, Sighting};
use stackhound_export::findings::FindingsFormat;

use crate::sightings::{access, event_with_answers, nothing};
use crate::{lines, validate};

const SCHEMA: &str = include_str!("ndjson.schema.json");

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

/// Everything that was written is there again.
fn compare(line: &Value, sighting: &Sighting, finding: &Finding) {
    assert_eq!(text(&line["id"]), finding.id.name());
    assert_eq!(text(&line["verdict"]), finding.outcome.verdict.name());
    assert_eq!(text(&line["severity"]), finding.outcome.severity.name());
    let codes: Vec<_> = finding.outcome.reasons.iter().map(|reason| reason.code()).collect();
    assert_eq!(line["reasons"], json!(codes));
    let (used, missing) = (finding.outcome.used, finding.outcome.missing);
    assert_eq!(line["inputs_used"], json!(used.iter().map(|input| input.name()).collect::<Vec<_>>()));
    assert_eq!(line["inputs_missing"], json!(missing.iter().map(|input| input.name()).collect::<Vec<_>>()));
    assert_eq!(text(&line["alert"]), finding.alert);
    assert_eq!(line["input"], json!({ "file": sighting.place.file, "record": sighting.place.record }));
    assert_eq!(line["count"], sighting.count);
    assert_eq!(text(&line["host"]), sighting.host);
    let process = &sighting.process;
    assert_eq!(number(&line["process"]["pid"]), process.pid);
    assert_eq!(number(&line["process"]["tid"]), process.tid);
    assert_eq!(number(&line["process"]["parent_pid"]), process.parent_pid);
    assert_eq!(text(&line["process"]["name"]), process.name);
    assert_eq!(text(&line["process"]["path"]), process.path);
    assert_eq!(text(&line["process"]["command_line"]), process.command_line);
    let event = &sighting.event;
    assert_eq!(text(&line["event"]["name"]), event.name);
    assert_eq!(text(&line["event"]["provider"]), event.provider);
    assert_eq!(text(&line["event"]["service"]), event.service);
    assert_eq!(text(&line["event"]["target"]["path"]), event.target);
    assert_eq!(number(&line["event"]["target"]["pid"]), event.target_pid);
    assert_eq!(hex(&line["event"]["access"]), event.access.map(u64::from));
    assert_eq!(hex(&line["event"]["start_address"]), event.start_address);
    assert_eq!(text(&line["event"]["start_name"]), event.start_name);
    let index = finding.outcome.frame.map(u64::from).filter(|index| (*index as usize) < sighting.stack.len());
    assert_eq!(line["frame"].as_u64(), index);
    assert_eq!(text(&line["summary"]), sighting.summary);
    assert_eq!(line["final_user_module"].as_str(), sighting.final_user_module.as_deref());
    let stack = line["stack"].as_array().unwrap();
    assert_eq!(stack.len(), sighting.stack.len());
    for (line, frame) in stack.iter().zip(&sighting.stack) {
        assert_eq!((hex(&line["address"]), hex(&line["rva"])), (frame.address, frame.rva));
        assert_eq!((text(&line["module"]), text(&line["symbol"])), (&*frame.module, &*frame.symbol));
        assert_eq!((text(&line["backing"]), text(&line["memory"])), (frame.backing, frame.memory));
        assert_eq!((line["mode"] == "kernel", &line["wow64"]), (frame.is_kernel, &json!(frame.is_wow64)));
        assert_eq!(bytes(&line["leading_bytes"]), frame.leading_bytes);
        assert_eq!(bytes(&line["trailing_bytes"]), frame.trailing_bytes);
        assert_eq!(line["protection"].is_null(), frame.protection.is_none());
    }
}

proptest! {
    #[test]
    fn every_line_follows_the_schema_and_has_everything(event in event_with_answers()) {
        let lines = lines(FindingsFormat::Ndjson, std::slice::from_ref(&event));
        validate(SCHEMA, &lines);
        let (sighting, findings) = event;
        let told: Vec<&Finding> =
            findings.iter().filter(|finding| finding.outcome.verdict != Verdict::No).collect();
        assert_eq!(lines.len(), told.len());
        for (line, finding) in lines.iter().zip(told) {
            compare(line, &sighting, finding);
        }
    }
}

#[test]
fn a_line_is_a_finding() {
    let lines = lines(FindingsFormat::Ndjson, &[access()]);
    let first = &lines[0];
    assert_eq!(first["time"], "2023-01-01T00:00:00.0000001Z");
    assert_eq!(first["process"]["start_time"], "2023-01-01T00:00:00.0000000Z");
    assert_eq!(first["reasons"], json!(["sensitive-operation", "caller-unbacked"]));
    let explanation = first["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("unbacked 0x24f64b7b7a1, in no module, calls the native layer."),
        "{explanation}"
    );
    assert_eq!(first["frame"], 2);
    assert_eq!(first["event"]["access"], "0x1410");
    assert_eq!(
        first["event"]["target"],
        json!({ "pid": 612, "name": "lsass.exe", "path": r"C:\Windows\System32\lsass.exe" })
    );
    assert_eq!(
        first["stack"][2],
        json!({
            "address": "0x24f64b7b7a1", "mode": "user", "wow64": false, "module": null, "rva": null, "symbol": null,
            "backing": "unbacked", "memory": "private", "protection": "RWX", "leading_bytes": "ffd0",
            "trailing_bytes": "4885c0",
        })
    );
    assert_eq!(first["attack"], json!(["T1055", "T1620"]));
    let verdicts: Vec<_> = lines.iter().map(|line| text(&line["verdict"])).collect();
    assert_eq!(verdicts, ["yes", "yes", "undetermined"]);
}

#[test]
fn what_is_unknown_is_null() {
    let lines = lines(FindingsFormat::Ndjson, &[nothing()]);
    let line = &lines[0];
    for key in ["alert", "time", "host", "frame", "final_user_module"] {
        assert_eq!(line[key], Value::Null, "{key}");
    }
    assert!(line["process"].as_object().unwrap().values().all(Value::is_null));
    assert!(line["event"].as_object().unwrap().values().all(Value::is_null));
    assert_eq!((&line["stack"], &line["inputs_missing"]), (&json!([]), &json!(["stack"])));
}
