//! Detection Findings of the Open Cybersecurity Schema Framework: class 2004 of version 1.5.
//!
//! Follows the schema's `events/findings/detection_finding.json` and the objects that it
//! references. OCSF has no call stacks: they are in the `data` of the evidence. Other data without
//! a field is in `unmapped`.

use serde_json::{Value, json};
use stackhound_detect::baseline::Novelty;
use stackhound_detect::report::{EventContext, Finding, ProcessReport};
use stackhound_detect::{Analytic, Severity, Verdict};
use stackhound_facts::{FactId, FactRow, FactSet, FactValue};

use super::attack::{self, Technique};
use super::ecs::pruned;
use super::form::{Documents, Form, Options};
use super::mapped::{self, Schema};
use super::shown::{self, known};
use crate::json::finding::Suppressed;
use crate::json::frame::Frame;
use crate::json::value::Hex;

/// Version of the schema, the first one with verdicts of evidence.
const OCSF: &str = "1.5.0";

pub(super) fn documents(_: Options) -> Box<dyn Form> {
    Box::new(Documents(document))
}

/// The document of a finding.
fn document(event_context: &EventContext, finding: &Finding) -> Value {
    let analytic = &finding.analytic;
    let is_found = finding.outcome.verdict == Verdict::Yes;
    let explanation = shown::explanation(event_context, finding);
    let uid = shown::finding_uid(event_context, finding).to_string();
    let verdict = shown::verdict(finding);
    let (status_id, status) = if finding.suppressed.is_some() { (3, "Suppressed") } else { (1, "New") };
    let time = event_context.time.map(shown::milliseconds);
    let (severity_id, severity) = severity(is_found.then_some(finding.outcome.severity));
    let (confidence_id, confidence) = confidence(finding);
    let mut document = pruned(json!({
        "activity_id": 1,
        "activity_name": "Create",
        "category_uid": 2,
        "category_name": "Findings",
        "class_uid": 2004,
        "class_name": "Detection Finding",
        "type_uid": 200_401,
        "type_name": "Detection Finding: Create",
        // The class requires this field. `unmapped.time` is absent if the input has no time.
        "time": time.unwrap_or(0),
        "count": event_context.count,
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "status_detail": finding.suppressed.as_deref().map(shown::suppression),
        "confidence_id": confidence_id,
        "confidence": confidence,
        "is_alert": finding.is_reported(),
        "message": format!("{}{verdict}: {}. {explanation}", analytic.name(), analytic.title()),
        "metadata": {
            "version": OCSF,
            "product": { "name": "Stackhound", "vendor_name": "Stackhound", "version": shown::VERSION },
            "uid": uid,
            "log_name": known(&event_context.location.file),
            "log_provider": known(&event_context.event.provider),
            "event_code": known(&event_context.event.name),
        },
        "finding_info": {
            "uid": uid,
            "title": analytic.title(),
            "desc": explanation,
            "first_seen_time": time,
            "analytic": {
                "uid": analytic.name(),
                "name": analytic.title(),
                "desc": known(&analytic.meaning()),
                "type_id": 1,
                "type": "Rule",
                "version": shown::version(analytic),
            },
            "attacks": if is_found { attacks(analytic) } else { Vec::new() },
        },
        "evidences": [evidence(event_context, finding)],
        "resources": resources(event_context),
        "unmapped": unmapped(event_context, finding),
    }));
    if !event_context.host.is_empty() {
        document["device"] = json!({ "type_id": 0, "hostname": event_context.host });
    }
    document
}

/// `severity_id` with its caption. Undetermined answers have no severity.
fn severity(severity: Option<Severity>) -> (u8, &'static str) {
    match severity {
        None => (0, "Unknown"),
        Some(Severity::Info) => (1, "Informational"),
        Some(Severity::Low) => (2, "Low"),
        Some(Severity::Medium) => (3, "Medium"),
        Some(Severity::High) => (4, "High"),
        Some(Severity::Critical) => (5, "Critical"),
    }
}

/// `confidence_id` with its caption. A severity states how rarely benign programs cause the
/// finding; missing inputs lower the confidence by one step.
fn confidence(finding: &Finding) -> (u8, &'static str) {
    let outcome = &finding.outcome;
    if outcome.verdict != Verdict::Yes {
        return (0, "Unknown");
    }
    match (outcome.severity, outcome.missing.is_empty()) {
        (Severity::High | Severity::Critical, true) => (3, "High"),
        (Severity::High | Severity::Critical, false) | (Severity::Medium, true) => (2, "Medium"),
        _ => (1, "Low"),
    }
}

/// One entry per tactic of each technique.
fn attacks(analytic: &Analytic) -> Vec<Value> {
    if let Some(rule) = analytic.rule() {
        // The class requires a tactic.
        let Some(tactic) = rule.tactics.first() else { return Vec::new() };
        let named = |named, url: fn(&str) -> String| {
            let (id, _): &(String, String) = named;
            json!({ "uid": id, "name": attack::shown_name(named), "src_url": url(id) })
        };
        let one = |technique| {
            json!({
                "version": attack::VERSION,
                "tactic": named(tactic, attack::tactic_url),
                "technique": named(technique, attack::url),
            })
        };
        return rule.techniques.iter().map(one).collect();
    }
    let named = analytic.techniques();
    let named = named.iter().filter_map(|id| attack::technique(id));
    let of = |technique: &Technique| json!({ "uid": technique.id, "name": technique.name, "src_url": technique.url() });
    let pairs = named.flat_map(|technique| technique.tactics.iter().map(move |tactic| (technique, tactic)));
    pairs
        .map(|(technique, tactic)| {
            json!({
                "version": attack::VERSION,
                "tactic": { "uid": tactic.id, "name": tactic.name, "src_url": tactic.url() },
                "technique": of(technique.parent()),
                "sub_technique": technique.is_sub().then(|| of(technique)),
            })
        })
        .collect()
}

fn evidence(event_context: &EventContext, finding: &Finding) -> Value {
    let EventContext { process, event, .. } = event_context;
    let (verdict_id, verdict) = match finding.outcome.verdict {
        Verdict::Yes => (4, "Suspicious"),
        Verdict::Undetermined | Verdict::No => (7, "Insufficient Data"),
    };
    let mut actor = process_object(process);
    actor["uid"] = shown::entity(&event_context.host, process).to_string().into();
    json!({
        "name": known(&event.name),
        "uid": format!("{}:{}", event_context.location.file, event_context.location.record),
        "verdict_id": verdict_id,
        "verdict": verdict,
        "process": actor,
        "api": known(&event.service).map(|service| json!({ "operation": service })),
        "data": {
            "stack": event_context.stack.iter().map(|frame| json!(Frame::of_finding(frame))).collect::<Vec<_>>(),
            "frame": shown::frame(event_context, finding).map(|(index, _)| index),
            "summary": known(&event_context.summary),
            "final_user_module": event_context.final_user_module,
            "target": event.target.as_ref().map(process_object),
        },
    })
}

/// The fields of facts.
const FACTS: Schema = Schema { field: |row| row.ocsf, value: spelled };

/// Times are milliseconds since 1970, and identities are texts.
fn spelled(row: &FactRow, value: &FactValue<'_>) -> Value {
    match value {
        FactValue::Time(time) => {
            u64::try_from(time.0).map_or(Value::Null, |time| shown::milliseconds(time).into())
        }
        value if row.ocsf.is_some_and(|path| path.ends_with(".uid")) => value.to_string().into(),
        value => mapped::plain(value),
    }
}

/// The object of a process, with the fields that the schema requires beside those of facts.
fn process_object(report: &ProcessReport) -> Value {
    let mut process = json!({ "pid": report.pid, "tid": report.tid });
    mapped::add(&mut process, &report.facts, FACTS);
    for at in ["/file", "/parent_process/file"] {
        let Some(file) = process.pointer_mut(at) else { continue };
        let name = file["path"].as_str().map(|path| shown::file_name(path).to_owned());
        file["name"] = json!(name);
        file["type_id"] = json!(1);
        file["type"] = json!("Regular File");
    }
    if let Some(level) = process["integrity"].as_str() {
        const LEVELS: [&str; 6] = ["untrusted", "low", "medium", "high", "system", "protected"];
        let number = LEVELS.iter().position(|known| *known == level).map_or(99, |index| index + 1);
        process["integrity_id"] = json!(number);
    }
    process
}

/// The target process.
fn resources(event_context: &EventContext) -> Vec<Value> {
    let target = event_context.event.target.as_ref();
    let Some(target) = target.filter(|target| target.pid.is_some() || !target.path_or_name().is_empty())
    else {
        return Vec::new();
    };
    vec![json!({
        "type": "process",
        "name": known(target.path_or_name()),
        "uid": target.pid.map(|pid| pid.to_string()),
    })]
}

/// The facts without a field of the schema.
fn others<F: FactId>(facts: &FactSet<'_, F>) -> Value {
    mapped::add(&mut Value::Null, facts, FACTS)
}

fn unmapped(event_context: &EventContext, finding: &Finding) -> Value {
    let event = &event_context.event;
    json!({
        "verdict": finding.outcome.verdict.name(),
        "severity": finding.outcome.severity.name(),
        "reasons": shown::reasons(finding),
        "inputs_used": shown::used(finding),
        "inputs_missing": shown::missing(finding),
        "rule": shown::rule(finding),
        "alert": known(&finding.alert),
        "suppressed": finding.suppressed.as_deref().map(Suppressed::new),
        "baseline": finding.novelty.map(Novelty::name),
        "time": event_context.time.and_then(shown::time),
        "input": { "file": known(&event_context.location.file), "record": event_context.location.record },
        "access": event.access.map(|access| Hex(access.into())),
        "start_address": event.start_address.map(Hex),
        "start_name": known(&event.start_name),
        "process": others(&event_context.process.facts),
        "thread": others(&event_context.process.thread),
        "target": event.target.as_ref().map(|target| json!({
            "process": others(&target.facts),
            "thread": others(&target.thread),
        })),
    })
}
