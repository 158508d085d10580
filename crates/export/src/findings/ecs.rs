//! Documents of the Elastic Common Schema, with the field names of Elastic's endpoint package for
//! call stacks (`custom_schemas/custom_call_stack.yml`, `custom_api.yml` and `custom_thread.yml`),
//! so that rules for them work.
//!
//! Own fields are under `callstack` (the answer) and `stackhound` (the event as read). Unknown
//! values are absent, because every field in these documents is a claim.

use serde_json::{Value, json};
use stackhound_detect::baseline::Novelty;
use stackhound_detect::report::{EventContext, Finding, FrameReport};
use stackhound_detect::{Analytic, Severity};
use stackhound_frames::Answer;
use stackhound_images::ImageEvidence;
use stackhound_types::Mode;

use super::attack::{self, Tactic, Technique};
use super::form::{Documents, Form, Options};
use super::mapped::{self, Schema};
use super::related;
use super::shown::{self, known};
use crate::json::finding::Suppressed;
use crate::json::images::code_signature;
use crate::json::value::Hex;

/// Version of the schema.
const ECS: &str = "9.4.0";

pub(super) fn documents(_: Options) -> Box<dyn Form> {
    Box::new(Documents(document))
}

/// The document of a finding.
fn document(event_context: &EventContext, finding: &Finding) -> Value {
    let analytic = &finding.analytic;
    let is_found = finding.is_reported();
    let explanation = shown::explanation(event_context, finding);
    let verdict = shown::verdict(finding);
    let mut document = json!({
        "@timestamp": event_context.time.and_then(shown::time),
        "ecs": { "version": ECS },
        "message": format!("{}{verdict}: {}. {explanation}", analytic.name(), analytic.title()),
        "event": event(event_context, is_found.then_some(finding.outcome.severity), &explanation),
        "rule": {
            "id": analytic.name(),
            "name": analytic.title(),
            "description": analytic.meaning(),
            "category": if analytic.rule().is_some() { "rule" } else { "call stack" },
            "ruleset": analytic.rule().map_or("stackhound", |rule| &rule.file),
            "version": shown::version(analytic),
        },
        "host": { "name": known(&event_context.host) },
        "log": { "file": { "path": known(&event_context.location.file) } },
        "process": null,
        "threat": if is_found { threat(analytic) } else { Value::Null },
        "callstack": answer(event_context, finding, &explanation),
        "stackhound": own(event_context, finding),
    });
    add_process(&mut document, event_context, finding);
    document["event"]["id"] = shown::finding_uid(event_context, finding).to_string().into();
    pruned(document)
}

/// `severity` is `None` for undetermined answers and suppressed findings.
fn event(event_context: &EventContext, severity: Option<Severity>, explanation: &str) -> Value {
    let category = category(&event_context.event.name);
    let kind = if is_process_start(event_context) { "start" } else { "info" };
    json!({
        // `signal` is for alerts of Elastic's own rules. Other answers are not alerts.
        "kind": if severity.is_some() { "alert" } else { "event" },
        "category": match severity {
            Some(_) => vec!["intrusion_detection", category],
            None => vec![category],
        },
        "type": [kind],
        "module": "stackhound",
        "dataset": "stackhound.findings",
        "action": known(&event_context.event.name),
        "provider": known(&event_context.event.provider),
        "severity": severity.map(numbered),
        "reason": explanation,
        "sequence": event_context.location.record,
    })
}

/// The numbers of Elastic's rules for their severities.
fn numbered(severity: Severity) -> u8 {
    match severity {
        Severity::Info => 1,
        Severity::Low => 21,
        Severity::Medium => 47,
        Severity::High => 73,
        Severity::Critical => 99,
    }
}

/// The category of an event, from the beginning of its name.
fn category(name: &str) -> &'static str {
    const CATEGORIES: [(&str, &str); 4] =
        [("Image", "library"), ("File", "file"), ("Registry", "registry"), ("Driver", "driver")];
    let known = CATEGORIES.iter().find(|(start, _)| name.starts_with(start));
    known.map_or("process", |(_, category)| category)
}

/// Whether the event is the start of a process. The stack is then that of its parent.
pub(super) fn is_process_start(event_context: &EventContext) -> bool {
    const NAMES: [&str; 4] = ["Process/Start", "ProcessStart", "ProcessStart/Start", "ProcessCreate"];
    let event = &event_context.event;
    event.target.is_some() && NAMES.contains(&event.name.as_str())
}

/// The fields of facts. Values are texts, or numbers.
const FACTS: Schema = Schema { field: |row| row.ecs, value: |_, value| mapped::plain(value) };

/// As [`FACTS`], for processes whose parent is another object of the document.
const WITHOUT_PARENT: Schema =
    Schema { field: |row| row.ecs.filter(|path| !path.starts_with("parent.")), ..FACTS };

/// Adds the process, with the stack in the thread that it belongs to, and the target.
fn add_process(document: &mut Value, event_context: &EventContext, finding: &Finding) {
    let target = event_context.event.target.as_ref();
    let (process, started) = (&event_context.process, target.filter(|_| is_process_start(event_context)));
    let image = process_image(event_context);
    let schema = if started.is_some() { WITHOUT_PARENT } else { FACTS };
    let mut actor = json!({
        "pid": process.pid,
        "code_signature": image.map(code_signature),
        "pe": image.map(pe),
        "entity_id": process.pid.map(|_| shown::entity(&event_context.host, process).to_string()),
        "thread": { "id": process.tid, "Ext": thread(event_context) },
    });
    document["stackhound"]["process"] = mapped::add(&mut actor, &process.facts, schema);
    document["stackhound"]["thread"] = mapped::add(&mut actor["thread"], &process.thread, FACTS);
    if let Some(target) = target {
        let mut object = json!({ "pid": target.pid, "thread": { "id": target.tid } });
        let of_process = mapped::add(&mut object, &target.facts, schema);
        let of_thread = mapped::add(&mut object["thread"], &target.thread, FACTS);
        document["stackhound"]["target"] = json!({ "process": of_process, "thread": of_thread });
        if started.is_some() {
            object["parent"] = actor;
            actor = object;
        } else {
            let start = event_context.event.start_address.map(|start| json!(Hex(start)));
            if let Some(start) = start {
                mapped::put(&mut object, "thread.Ext.start_address", start);
            }
            document["Target"] = json!({ "process": object });
        }
    }
    let found = finding.is_reported();
    let start_name = known(&event_context.event.start_name);
    let start_name = start_name.map(shown::elastic_name);
    actor["Ext"]["api"] = json!({
        "name": known(&event_context.event.service),
        "behaviors": found.then(|| super::behaviors::of(event_context, finding)),
        "parameters": { "desired_access_numeric": event_context.event.access },
        "metadata": { "target_address_name": start_name },
    });
    document["process"] = actor;
}

/// The texts of the version resource.
fn pe(evidence: &ImageEvidence) -> Value {
    json!({
        "original_file_name": evidence.original_file_name().map(|(name, _)| name),
        "company": evidence.text(|version| version.company.as_ref()).map(|(text, _)| text),
        "product": evidence.text(|version| version.product.as_ref()).map(|(text, _)| text),
        "description": evidence.text(|version| version.description.as_ref()).map(|(text, _)| text),
        "file_version": evidence.text(|version| version.file_version.as_ref()).map(|(text, _)| text),
    })
}

/// What is known about the image of the acting process, if a frame of the stack is in it.
fn process_image(event_context: &EventContext) -> Option<&ImageEvidence> {
    let path = known(event_context.process.path())?;
    let is_own = |frame: &&FrameReport| frame.module.eq_ignore_ascii_case(path);
    event_context.stack.iter().find(is_own).map(|frame| &frame.image)
}

/// The stack with derived fields.
fn thread(event_context: &EventContext) -> Value {
    let user = || event_context.stack.iter().filter(|frame| frame.mode == Mode::User);
    let is_named = |frame: &&FrameReport| {
        let name = event_context.final_user_module.as_deref();
        !frame.module.is_empty() && name.is_some_and(|name| frame.module_name().eq_ignore_ascii_case(name))
    };
    let module = user().find(is_named);
    let summary: Vec<&str> = event_context.summary.split('|').map(shown::elastic_name).collect();
    json!({
        "call_stack": user().map(frame).collect::<Vec<_>>(),
        "call_stack_summary": known(&summary.join("|")),
        "call_stack_contains_unbacked": match event_context.contains_unbacked {
            Answer::Yes => Some(true),
            Answer::No => user().next().map(|_| false),
            Answer::Undetermined => None,
        },
        "call_stack_final_user_module": {
            "name": match &event_context.final_user_module {
                Some(name) => shown::elastic_name(name),
                None if event_context.has_user_part => "Kernel",
                None => "Undetermined",
            },
            "path": module.map(|frame| &frame.module),
            "code_signature": module.map(|frame| code_signature(&frame.image)),
            "protection": module.and_then(|frame| frame.page_protection).map(shown::protection),
        },
    })
}

fn frame(frame: &FrameReport) -> Value {
    let protection = frame.page_protection.map(shown::protection);
    json!({
        "symbol_info": symbol_info(frame),
        "module_name": shown::module_name(frame),
        "module_path": known(&frame.module),
        "instruction_pointer": frame.address.map(Hex),
        "rva": frame.rva.map(Hex),
        "memory_section": { "protection": &protection },
        "protection": &protection,
        "callsite_leading_bytes": shown::hex_bytes(&frame.leading_bytes),
        "callsite_trailing_bytes": shown::hex_bytes(&frame.trailing_bytes),
    })
}

/// The path of the module with the function, or the address if there is no name.
fn symbol_info(frame: &FrameReport) -> String {
    let module = known(&frame.module).unwrap_or(shown::module_name(frame));
    match (frame.symbol(), frame.rva, frame.address) {
        (Some(symbol), ..) => format!("{module}!{symbol}"),
        (None, Some(rva), _) => format!("{module}+{rva:#x}"),
        (None, None, Some(address)) => format!("{module}!{address:#x}"),
        (None, None, None) => module.to_owned(),
    }
}

/// The answer with its evidence.
fn answer(event_context: &EventContext, finding: &Finding, explanation: &str) -> Value {
    let kernel: Vec<String> =
        event_context.stack.iter().filter(|frame| frame.mode == Mode::Kernel).map(symbol_info).collect();
    let at = shown::frame(event_context, finding)
        .map(|(index, at)| json!({ "index": index, "mode": at.mode.name(), "symbol_info": symbol_info(at) }));
    json!({
        "verdict": finding.outcome.verdict.name(),
        "severity": finding.outcome.severity.name(),
        "reasons": shown::reasons(finding),
        "explanation": explanation,
        "inputs_used": shown::used(finding),
        "inputs_missing": shown::missing(finding),
        "frame": at,
        "kernel": kernel,
    })
}

/// The event as read.
fn own(event_context: &EventContext, finding: &Finding) -> Value {
    let event = &event_context.event;
    json!({
        "alert": known(&finding.alert),
        "rule": shown::rule(finding),
        "suppressed": finding.suppressed.as_deref().map(Suppressed::new),
        "baseline": finding.novelty.map(Novelty::name),
        "input": { "file": known(&event_context.location.file), "record": event_context.location.record },
        "count": event_context.count,
        "event": {
            "name": known(&event.name),
            "provider": known(&event.provider),
            "service": known(&event.service),
            "access": event.access.map(|access| Hex(access.into())),
            "start_address": event.start_address.map(Hex),
            "start_name": known(&event.start_name),
        },
        "created_files": event_context.created_files.iter().map(|file| json!({
            "path": known(&file.path),
            "time": shown::time(file.time),
            "seconds_before": related::seconds_before(event_context, Some(file.time)),
            "process": { "pid": file.pid, "path": known(&file.process) },
            "sha256": related::sha256(file),
        })).collect::<Vec<_>>(),
        "tampering": event_context.tampering.iter().map(|tampering| json!({
            "kind": known(&tampering.kind),
            "time": tampering.time.and_then(shown::time),
            "seconds_before": related::seconds_before(event_context, tampering.time),
        })).collect::<Vec<_>>(),
    })
}

/// The techniques. Each field is a list, as ECS represents several of them.
fn threat(analytic: &Analytic) -> Value {
    if let Some(rule) = analytic.rule() {
        if rule.techniques.is_empty() {
            return Value::Null;
        }
        return json!({
            "framework": "MITRE ATT&CK",
            "technique": pairs(&rule.techniques, attack::url),
            "tactic": pairs(&rule.tactics, attack::tactic_url),
        });
    }
    let ids = analytic.techniques();
    let named: Vec<&Technique> = ids.iter().filter_map(|id| attack::technique(id)).collect();
    let (mut techniques, mut tactics): (Vec<&Technique>, Vec<Tactic>) = Default::default();
    for technique in &named {
        if techniques.iter().all(|other| other.id != technique.parent().id) {
            techniques.push(technique.parent());
        }
        tactics
            .extend(technique.tactics.iter().filter(|tactic| !tactics.contains(tactic)).collect::<Vec<_>>());
    }
    let subs: Vec<&Technique> = named.into_iter().filter(|technique| technique.is_sub()).collect();
    let mut technique = listed(&techniques);
    technique["subtechnique"] = listed(&subs);
    json!({
        "framework": "MITRE ATT&CK",
        "technique": technique,
        "tactic": {
            "id": tactics.iter().map(|tactic| tactic.id).collect::<Vec<_>>(),
            "name": tactics.iter().map(|tactic| tactic.name).collect::<Vec<_>>(),
            "reference": tactics.iter().map(Tactic::url).collect::<Vec<_>>(),
        },
    })
}

/// Ids with their names.
fn pairs(named: &[(String, String)], url: fn(&str) -> String) -> Value {
    json!({
        "id": named.iter().map(|(id, _)| id).collect::<Vec<_>>(),
        "name": named.iter().map(attack::shown_name).collect::<Vec<_>>(),
        "reference": named.iter().map(|(id, _)| url(id)).collect::<Vec<_>>(),
    })
}

fn listed(techniques: &[&Technique]) -> Value {
    json!({
        "id": techniques.iter().map(|technique| technique.id).collect::<Vec<_>>(),
        "name": techniques.iter().map(|technique| technique.name).collect::<Vec<_>>(),
        "reference": techniques.iter().map(|technique| technique.url()).collect::<Vec<_>>(),
    })
}

/// Removes null and empty values.
pub(super) fn pruned(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name, pruned(value)))
                .filter(|(_, value)| is_present(value))
                .collect(),
        ),
        Value::Array(values) => Value::Array(values.into_iter().map(pruned).filter(is_present).collect()),
        value => value,
    }
}

fn is_present(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
