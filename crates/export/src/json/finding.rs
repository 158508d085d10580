//! Findings, alerts and the summary: the lines of `hunt --format ndjson`.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use stackhound_detect::alert::Alert as AlertReport;
use stackhound_detect::baseline::Novelty;
use stackhound_detect::report::{EventContext, EventReport, Finding as FindingReport, SourceLocation};
use stackhound_detect::tuning::{Suppression, SuppressionCount, TuningReport};
use stackhound_detect::{Analytic, Severity, Totals};

use super::VERSION;
use super::facts::{EventTarget, Facts, ProcessFacts, ThreadFacts};
use super::stack::Stack;
use super::value::{Hex, Time};
use crate::findings::related;
use crate::findings::shown::{self, known};

/// The answer of one detection for one event.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Finding<'a> {
    #[cfg_attr(test, schemars(extend("const" = "finding")))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// The detection, such as `CS07`, or the id of the rule.
    detection: &'a str,
    title: &'a str,
    /// The rule that a user wrote; null for detections.
    rule: Option<Rule<'a>>,
    #[cfg_attr(test, schemars(extend("enum" = ["yes", "undetermined"])))]
    verdict: &'static str,
    /// Severity; for undetermined answers, the highest possible severity.
    #[cfg_attr(test, schemars(extend("enum" = ["info", "low", "medium", "high", "critical"])))]
    severity: &'static str,
    /// Codes of the reasons, such as `caller-unbacked`.
    reasons: Vec<&'static str>,
    /// The reasons as sentences that name the frame.
    explanation: String,
    /// The evidence that the answer is based on.
    inputs_used: Vec<&'static str>,
    /// The missing evidence. For undetermined answers, all of it together would decide. Of rules, the
    /// names of fields in conditions, of functions that ask the running system, and `events` if events
    /// were lost.
    inputs_missing: Vec<&'a str>,
    /// The loss that makes modules a missing input; null if they are missing for another reason, or are
    /// not missing.
    lost: Option<Lost<'a>>,
    /// ATT&CK techniques.
    attack: Vec<&'a str>,
    /// Key of the alert that contains the finding. Null if all answers about the event are
    /// undetermined.
    alert: Option<&'a str>,
    /// Why the finding is not reported; null if it is. Such findings are written only on request,
    /// and are in no alert.
    suppressed: Option<Suppressed<'a>>,
    /// Comparison with the baseline; null without one, and for undetermined answers.
    #[cfg_attr(test, schemars(extend("enum" = ["known", "new-process", "new-stack", "new", "excluded", null])))]
    baseline: Option<&'static str>,
    input: Input<'a>,
    /// Number of raw events that are folded into the record.
    count: u64,
    time: Option<Time>,
    /// Name of the computer.
    host: Option<&'a str>,
    /// The acting process.
    pid: Option<u32>,
    /// The acting thread.
    tid: Option<u32>,
    process: Option<ProcessFacts<'a>>,
    thread: Option<ThreadFacts<'a>>,
    provider: Option<&'a str>,
    /// Name of the event, as in `events`.
    event: Option<&'a str>,
    /// The process and thread that the event acts on; null if they are the acting ones.
    target: Option<EventTarget<'a>>,
    operation: Operation<'a>,
    /// Index in `stack.frames` of the frame that the finding concerns; null if there is none.
    frame_index: Option<usize>,
    stack: Stack<'a>,
    /// Executable files of the process and its stack that were created before the event, as far as
    /// the input reports it.
    created_files: Vec<CreatedFile<'a>>,
    /// Other reports that the image of the process was tampered with, in the order of time.
    tampering: Vec<Tampering<'a>>,
}

/// An interval in which records are missing, so that not all modules of the stack's process are known at
/// the time of the event.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Lost<'a> {
    /// Id of the process.
    pid: u32,
    /// File name of its program.
    process: Option<&'a str>,
    /// Begin of the interval; null if it is not known.
    from: Option<Time>,
    /// End of the interval; null if it is not known.
    until: Option<Time>,
}

/// A rule and its match.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Rule<'a> {
    /// The file, as named by the user.
    file: Option<&'a str>,
    version: Option<&'a str>,
    /// The text that the rule has for people, with the values of the event.
    text: Option<&'a str>,
    /// Whether the answer is undetermined only because an exception of the rule is.
    is_possible: bool,
    /// The first of `inputs_missing`.
    missing: Option<&'a str>,
    /// The earlier events of a sequence, in their order.
    earlier: Vec<Earlier>,
}

/// An earlier event of a sequence.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Earlier {
    /// Number of the event in the order of the input, starting at 1.
    record: u64,
    time: Option<Time>,
}

/// An executable file and its creation.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct CreatedFile<'a> {
    path: Option<&'a str>,
    /// Time of the last creation before the event.
    time: Option<Time>,
    /// Seconds from the creation to the event.
    seconds_before: Option<f64>,
    /// Id of the creating process.
    pid: Option<u32>,
    /// Path of the program of the creating process.
    process: Option<&'a str>,
    /// SHA-256 of the file, as hexadecimal digits.
    sha256: Option<String>,
}

/// A report that the image of a process was tampered with.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Tampering<'a> {
    /// The kind, in the words of the source, such as `Image is replaced`.
    kind: Option<&'a str>,
    time: Option<Time>,
    /// Seconds from the report to the event; negative if the report came later.
    seconds_before: Option<f64>,
}

/// The cause of a suppression.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Suppressed<'a> {
    #[cfg_attr(test, schemars(extend("enum" = ["exception", "severity", "baseline"])))]
    by: &'static str,
    reason: &'a str,
    /// The last day on which the rule applies, such as `2027-01-31`; null if it does not expire.
    expires: Option<&'a str>,
    /// Line of the rule in the file of lists; null for a baseline.
    line: Option<usize>,
}

impl<'a> Suppressed<'a> {
    pub(crate) fn new(cause: &'a Suppression) -> Suppressed<'a> {
        Suppressed {
            by: cause.by.name(),
            reason: &cause.reason,
            expires: known(&cause.expires),
            line: cause.line,
        }
    }
}

/// The location of an event in its input.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Input<'a> {
    /// The file, as named by the user, or the session of live events.
    file: &'a str,
    /// Number of the line or event in the file, starting at 1.
    record: u64,
}

/// The operation of the event.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct Operation<'a> {
    /// The system service, such as `NtOpenProcess`.
    service: Option<&'a str>,
    /// The requested access rights.
    access: Option<Hex>,
    /// Start address of the thread that was started.
    start_address: Option<Hex>,
    /// Module or function at the start address.
    start_name: Option<&'a str>,
    /// The memory that the operation concerns, if the event states it.
    region: Option<TargetRegion>,
    /// The change of memory that the event reports; null for other events.
    memory_change: Option<MemoryChange<'a>>,
}

/// The memory that an operation concerns.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct TargetRegion {
    /// The first address; the routine of an asynchronous procedure call; the instruction pointer of
    /// a changed context.
    address: Hex,
    /// The size in bytes.
    size: Option<u64>,
    /// The protection after the operation, such as `RWX`.
    protection: Option<String>,
    /// The protection before it was changed.
    old_protection: Option<String>,
}

/// A change of memory.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct MemoryChange<'a> {
    #[cfg_attr(test, schemars(extend("enum" = ["allocate", "protect", "map", "write", "load-image"])))]
    change: &'static str,
    /// The first address.
    address: Hex,
    /// The size in bytes.
    size: Hex,
    /// File name of the module at the address.
    module: Option<&'a str>,
    /// Offset in the module.
    rva: Option<Hex>,
    /// The exported function that the change covers, if the image file is available: the first one
    /// that attacks patch, otherwise the first one.
    export: Option<&'a str>,
    /// The code that made the change, by the stack of the event.
    #[cfg_attr(test, schemars(extend("enum" = ["kernel", "protected-process", "loader", "hook", "runtime", "own-image", "unknown", "image", "unbacked"])))]
    author: &'static str,
    /// How many times the pages became executable again after they had been executable before.
    cycles: u32,
    /// The mean time between these, in milliseconds.
    period_ms: Option<u64>,
}

impl<'a> Finding<'a> {
    /// Converts an answer about an event.
    pub fn new(event_context: &'a EventContext, finding: &'a FindingReport) -> Finding<'a> {
        let rule = finding.analytic.rule().zip(finding.rule_match.as_deref()).map(|(rule, found)| Rule {
            file: known(&rule.file),
            version: known(&rule.version),
            text: known(&found.text),
            is_possible: found.is_possible,
            missing: shown::missing(finding).first().copied(),
            earlier: found
                .earlier
                .iter()
                .map(|event| Earlier { record: event.record, time: event.time.and_then(Time::from_ticks) })
                .collect(),
        });
        let SourceLocation { file, record } = &event_context.location;
        Finding {
            r#type: "finding",
            schema_version: VERSION,
            detection: finding.analytic.name(),
            title: finding.analytic.title(),
            rule,
            verdict: finding.outcome.verdict.name(),
            severity: finding.outcome.severity.name(),
            reasons: shown::reasons(finding),
            explanation: shown::explanation(event_context, finding),
            inputs_used: shown::used(finding),
            inputs_missing: shown::missing(finding),
            lost: shown::loss(event_context, finding).map(|lost| Lost {
                pid: lost.pid,
                process: known(&lost.process),
                from: lost.from.and_then(Time::from_ticks),
                until: lost.until.and_then(Time::from_ticks),
            }),
            attack: finding.analytic.techniques(),
            alert: known(&finding.alert),
            suppressed: finding.suppressed.as_deref().map(Suppressed::new),
            baseline: finding.novelty.map(Novelty::name),
            input: Input { file, record: *record },
            count: event_context.count,
            time: event_context.time.and_then(Time::from_ticks),
            host: known(&event_context.host),
            pid: event_context.process.pid,
            tid: event_context.process.tid,
            process: Facts::reported(&event_context.process.facts),
            thread: Facts::reported(&event_context.process.thread),
            provider: known(&event_context.event.provider),
            event: known(&event_context.event.name),
            target: event_context.event.target.as_ref().map(EventTarget::reported),
            operation: Operation::new(&event_context.event),
            frame_index: shown::frame(event_context, finding).map(|(index, _)| index),
            stack: Stack::of_finding(event_context),
            created_files: event_context
                .created_files
                .iter()
                .map(|file| CreatedFile {
                    path: known(&file.path),
                    time: Time::from_ticks(file.time),
                    seconds_before: related::seconds_before(event_context, Some(file.time)),
                    pid: file.pid,
                    process: known(&file.process),
                    sha256: related::sha256(file),
                })
                .collect(),
            tampering: event_context
                .tampering
                .iter()
                .map(|tampering| Tampering {
                    kind: known(&tampering.kind),
                    time: tampering.time.and_then(Time::from_ticks),
                    seconds_before: related::seconds_before(event_context, tampering.time),
                })
                .collect(),
        }
    }
}

impl<'a> Operation<'a> {
    fn new(event: &'a EventReport) -> Operation<'a> {
        Operation {
            service: known(&event.service),
            access: event.access.map(|access| Hex(access.into())),
            start_address: event.start_address.map(Hex),
            start_name: known(&event.start_name),
            region: event.region.map(|region| TargetRegion {
                address: Hex(region.address),
                size: region.size,
                protection: region.protection.map(shown::protection),
                old_protection: region.old_protection.map(shown::protection),
            }),
            memory_change: event.memory.as_ref().map(|change| MemoryChange {
                change: change.kind,
                address: Hex(change.address),
                size: Hex(change.size),
                module: known(shown::file_name(&change.module)),
                rva: change.rva.map(Hex),
                export: change.export.as_deref(),
                author: change.author,
                cycles: change.cycles,
                period_ms: change.period.map(|period| period / 10_000),
            }),
        }
    }
}

/// The findings about one process within a time window. Alerts are written after the findings, the
/// highest score first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Alert<'a> {
    #[cfg_attr(test, schemars(extend("const" = "alert")))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// The key of the alert, as in `alert` of its findings. It is the same in every trace of the
    /// same activity.
    alert: &'a str,
    /// Score from 1 to 100.
    score: u32,
    /// The highest severity of its findings.
    #[cfg_attr(test, schemars(extend("enum" = ["info", "low", "medium", "high", "critical"])))]
    severity: &'static str,
    /// Number of raw events. An event with findings of several detections is counted once per
    /// detection.
    count: u64,
    /// Number of raw events with findings. A record of a log is counted once for its findings of
    /// detections and once for those of rules.
    events: u64,
    host: Option<&'a str>,
    pid: Option<u32>,
    process: Option<ProcessFacts<'a>>,
    /// Time of the first event.
    first_seen: Option<Time>,
    /// Time of the last event.
    last_seen: Option<Time>,
    /// The detections and rules with findings, the most severe first.
    detections: Vec<AlertDetection<'a>>,
    /// ATT&CK techniques of all of them.
    attack: Vec<&'a str>,
}

/// The findings of one detection in an alert.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct AlertDetection<'a> {
    /// The detection, such as `CS07`, or the id of the rule.
    detection: &'a str,
    title: &'a str,
    /// The highest severity of its findings.
    #[cfg_attr(test, schemars(extend("enum" = ["info", "low", "medium", "high", "critical"])))]
    severity: &'static str,
    /// Number of raw events.
    count: u64,
}

impl<'a> Alert<'a> {
    /// Converts an alert.
    pub fn new(alert: &'a AlertReport) -> Alert<'a> {
        let detections = alert.by_severity();
        let mut attack: Vec<&str> = detections.iter().flat_map(|(of, ..)| of.techniques()).collect();
        attack.sort_unstable();
        attack.dedup();
        let one = |(of, severity, count): &(&'a Analytic, Severity, u64)| AlertDetection {
            detection: of.name(),
            title: of.title(),
            severity: severity.name(),
            count: *count,
        };
        Alert {
            r#type: "alert",
            schema_version: VERSION,
            alert: &alert.key,
            score: alert.score(),
            severity: alert.severity.name(),
            count: alert.count(),
            events: alert.events,
            host: known(&alert.host),
            pid: alert.process.pid,
            process: Facts::reported(&alert.process.facts),
            first_seen: alert.times.and_then(|(first, _)| Time::from_ticks(first)),
            last_seen: alert.times.and_then(|(_, last)| Time::from_ticks(last)),
            detections: detections.iter().map(one).collect(),
            attack,
        }
    }
}

/// The numbers of reported and suppressed findings. It is the last line if findings can be
/// suppressed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Summary<'a> {
    #[cfg_attr(test, schemars(extend("const" = "hunt-summary")))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// Number of evaluated events.
    events: u64,
    /// Findings that are not suppressed, including those below the severity that is written.
    findings: SeverityCounts,
    undetermined: u64,
    /// Each rule that can suppress findings.
    rules: Vec<RuleCount<'a>>,
    /// Null without a baseline.
    baseline: Option<BaselineCounts>,
}

/// Findings by severity, in raw events.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct SeverityCounts {
    info: u64,
    low: u64,
    medium: u64,
    high: u64,
    critical: u64,
}

/// The findings of one rule, in raw events.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct RuleCount<'a> {
    #[serde(flatten)]
    rule: Suppressed<'a>,
    /// Findings that the rule suppressed.
    suppressed: u64,
    /// Findings after the expiry of the rule, which are reported.
    expired: u64,
}

/// Findings by their comparison with the baseline, in raw events.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
struct BaselineCounts {
    known: u64,
    new_process: u64,
    new_stack: u64,
    new: u64,
    excluded: u64,
    /// Known findings of at most low severity, which are suppressed.
    suppressed: u64,
}

impl<'a> Summary<'a> {
    /// Converts the counts.
    pub fn new(totals: &Totals, tuning: &'a TuningReport) -> Summary<'a> {
        let count = |severity: Severity| totals.findings(severity);
        let rule = |rule: &'a SuppressionCount| RuleCount {
            rule: Suppressed::new(&rule.suppression),
            suppressed: rule.suppressed,
            expired: rule.expired,
        };
        Summary {
            r#type: "hunt-summary",
            schema_version: VERSION,
            events: totals.events,
            findings: SeverityCounts {
                info: count(Severity::Info),
                low: count(Severity::Low),
                medium: count(Severity::Medium),
                high: count(Severity::High),
                critical: count(Severity::Critical),
            },
            undetermined: totals.undetermined(),
            rules: tuning.rules.iter().map(rule).collect(),
            baseline: tuning.novelty.map(|[known, new_process, new_stack, new, excluded]| BaselineCounts {
                known,
                new_process,
                new_stack,
                new,
                excluded,
                suppressed: tuning.known,
            }),
        }
    }
}
