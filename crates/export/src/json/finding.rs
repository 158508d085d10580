//! Findings and alerts: the lines of `hunt --format ndjson`.

use schemars::JsonSchema;
use serde::Serialize;
use stackhound_detect::alert::Alert as AlertReport;
use stackhound_detect::report::{EventContext, EventReport, Finding as FindingReport, SourceLocation};

use super::VERSION;
use super::process::Process;
use super::stack::Stack;
use super::value::{Hex, Time};
use crate::findings::shown::{self, known};

/// The answer of one detection about one event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding<'a> {
    #[schemars(extend("const" = "finding"))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// The detection, such as `CS07`.
    detection: &'static str,
    title: &'static str,
    #[schemars(extend("enum" = ["yes", "undetermined"]))]
    verdict: &'static str,
    /// Of an undetermined answer: how severe it would be at most.
    #[schemars(extend("enum" = ["info", "low", "medium", "high", "critical"]))]
    severity: &'static str,
    /// Codes of the reasons, such as `caller-unbacked`.
    reasons: Vec<&'static str>,
    /// The reasons as sentences that name the frame.
    explanation: String,
    /// The evidence that the answer rests on.
    inputs_used: Vec<&'static str>,
    /// The evidence that was missing. Of an undetermined answer: what would decide it.
    inputs_missing: Vec<&'static str>,
    /// ATT&CK techniques.
    attack: &'static [&'static str],
    /// Key of the alert that the finding belongs to. Null if all answers about the event are undetermined.
    alert: Option<&'a str>,
    input: Input<'a>,
    /// Raw events that are folded into the record.
    count: u64,
    time: Option<Time>,
    /// The computer.
    host: Option<&'a str>,
    /// The process that acted.
    pid: Option<u32>,
    /// The thread that acted.
    tid: Option<u32>,
    process: Process<'a>,
    provider: Option<&'a str>,
    /// The event's name, as in `events`.
    event: Option<&'a str>,
    operation: Operation<'a>,
    /// Index of the frame that the finding is about in `stack.frames`; null if it is about none.
    frame_index: Option<usize>,
    stack: Stack<'a>,
}

/// Where an event was read.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Input<'a> {
    /// The file, as it was named; the session of live events.
    file: &'a str,
    /// Number of the line or event in it, from 1.
    record: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Operation<'a> {
    /// The system service, such as `NtOpenProcess`.
    service: Option<&'a str>,
    /// The process that it was done to; null if to none.
    target: Option<Target<'a>>,
    /// The rights that were asked for.
    access: Option<Hex>,
    /// Where a thread was started.
    start_address: Option<Hex>,
    /// The module or function there.
    start_name: Option<&'a str>,
}

/// The process that something was done to.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Target<'a> {
    pid: Option<u32>,
    /// File name of its program.
    name: Option<&'a str>,
    /// Path of its program.
    path: Option<&'a str>,
}

impl<'a> Finding<'a> {
    /// A detection's answer about an event.
    pub fn new(event_context: &'a EventContext, finding: &'a FindingReport) -> Finding<'a> {
        let detection = finding.id.detection();
        let SourceLocation { file, record } = &event_context.location;
        Finding {
            r#type: "finding",
            schema_version: VERSION,
            detection: detection.name,
            title: detection.title,
            verdict: finding.outcome.verdict.name(),
            severity: finding.outcome.severity.name(),
            reasons: shown::reasons(finding),
            explanation: shown::explanation(event_context, finding),
            inputs_used: shown::used(finding),
            inputs_missing: shown::missing(finding),
            attack: detection.attack,
            alert: known(&finding.alert),
            input: Input { file, record: *record },
            count: event_context.count,
            time: event_context.time.and_then(Time::from_ticks),
            host: known(&event_context.host),
            pid: event_context.process.pid,
            tid: event_context.process.tid,
            process: Process::of_finding(&event_context.process),
            provider: known(&event_context.event.provider),
            event: known(&event_context.event.name),
            operation: Operation::new(&event_context.event),
            frame_index: shown::frame(event_context, finding).map(|(index, _)| index),
            stack: Stack::of_finding(event_context),
        }
    }
}

impl<'a> Operation<'a> {
    fn new(event: &'a EventReport) -> Operation<'a> {
        let is_targeted = event.target_pid.is_some() || !event.target.is_empty();
        Operation {
            service: known(&event.service),
            target: is_targeted.then(|| Target {
                pid: event.target_pid,
                name: known(shown::file_name(&event.target)),
                path: known(&event.target),
            }),
            access: event.access.map(|access| Hex(access.into())),
            start_address: event.start_address.map(Hex),
            start_name: known(&event.start_name),
        }
    }
}

/// The findings about one process within some time. Alerts follow the findings, the highest score first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Alert<'a> {
    #[schemars(extend("const" = "alert"))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// The key that its findings have as `alert`. Equal when the same process does the same in another trace of it.
    alert: &'a str,
    /// From 1 to 100.
    score: u32,
    /// The highest severity of its findings.
    #[schemars(extend("enum" = ["info", "low", "medium", "high", "critical"]))]
    severity: &'static str,
    /// Raw events; one that several detections found counts for each.
    count: u64,
    host: Option<&'a str>,
    pid: Option<u32>,
    process: Process<'a>,
    /// Time of the first event.
    first_seen: Option<Time>,
    /// Time of the last event.
    last_seen: Option<Time>,
    /// The detections that found something, the most severe first.
    detections: Vec<AlertDetection>,
    /// ATT&CK techniques of all detections.
    attack: Vec<&'static str>,
}

/// What one detection contributes to an alert.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct AlertDetection {
    /// Such as `CS07`.
    detection: &'static str,
    title: &'static str,
    /// The highest severity of its findings.
    #[schemars(extend("enum" = ["info", "low", "medium", "high", "critical"]))]
    severity: &'static str,
    /// Raw events.
    count: u64,
}

impl<'a> Alert<'a> {
    /// Findings that were put together.
    pub fn new(alert: &'a AlertReport) -> Alert<'a> {
        let detections = alert.by_severity();
        let mut attack: Vec<&str> =
            detections.iter().flat_map(|(id, ..)| id.detection().attack).copied().collect();
        attack.sort_unstable();
        attack.dedup();
        let one =
            |(id, severity, count): &(stackhound_detect::DetectionId, stackhound_detect::Severity, u64)| {
                let detection = id.detection();
                AlertDetection {
                    detection: detection.name,
                    title: detection.title,
                    severity: severity.name(),
                    count: *count,
                }
            };
        Alert {
            r#type: "alert",
            schema_version: VERSION,
            alert: &alert.key,
            score: alert.score(),
            severity: alert.severity.name(),
            count: alert.count(),
            host: known(&alert.host),
            pid: alert.process.pid,
            process: Process::of_finding(&alert.process),
            first_seen: alert.times.and_then(|(first, _)| Time::from_ticks(first)),
            last_seen: alert.times.and_then(|(_, last)| Time::from_ticks(last)),
            detections: detections.iter().map(one).collect(),
            attack,
        }
    }
}
