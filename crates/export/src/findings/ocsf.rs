//! Detection Findings of the Open Cybersecurity Schema Framework: class 2004 of version 1.5.
//!
//! Follows the schema's `events/findings/detection_finding.json` and the objects that it
//! references. OCSF has no call stacks: they are in the `data` of the evidence. Other data without
//! a field is in `unmapped`.

use serde_json::{Value, json};
use stackhound_detect::baseline::Novelty;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::{Analytic, Severity, Verdict};

use super::attack::{self, Technique};
use super::ecs::pruned;
use super::shown::{self, known};
use crate::json::finding::Suppressed;
use crate::json::frame::Frame;
use crate::json::value::Hex;

/// Version of the schema, the first one with verdicts of evidence.
const OCSF: &str = "1.5.0";

/// The document of a finding.
pub(super) fn document(event_context: &EventContext, finding: &Finding) -> Value {
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
    json!({
        "name": known(&event.name),
        "uid": format!("{}:{}", event_context.location.file, event_context.location.record),
        "verdict_id": verdict_id,
        "verdict": verdict,
        "process": {
            "uid": shown::entity(&event_context.host, process).to_string(),
            "pid": process.pid,
            "tid": process.tid,
            "name": known(&process.name),
            "cmd_line": known(&process.command_line),
            "created_time": process.started.map(shown::milliseconds),
            "file": known(&process.path).map(|path| {
                json!({ "name": shown::file_name(path), "path": path, "type_id": 1, "type": "Regular File" })
            }),
            "parent_process": process.parent_pid.map(|pid| json!({ "pid": pid })),
        },
        "api": known(&event.service).map(|service| json!({ "operation": service })),
        "data": {
            "stack": event_context.stack.iter().map(|frame| json!(Frame::of_finding(frame))).collect::<Vec<_>>(),
            "frame": shown::frame(event_context, finding).map(|(index, _)| index),
            "summary": known(&event_context.summary),
            "final_user_module": event_context.final_user_module,
        },
    })
}

/// The target process.
fn resources(event_context: &EventContext) -> Vec<Value> {
    let event = &event_context.event;
    if event.target.is_empty() && event.target_pid.is_none() {
        return Vec::new();
    }
    vec![json!({
        "type": "process",
        "name": known(&event.target),
        "uid": event.target_pid.map(|pid| pid.to_string()),
    })]
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
    })
}
