//! Findings and alerts.

use stackhound_detect::Verdict;
use stackhound_detect::alert::Alert;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_export::escape::json;
use stackhound_export::json::finding as document;
use stackhound_types::FileTime;

use super::{Pending, TableId};
use crate::layout::{Column, NumberColumn, Table, TextColumn, Type};
use crate::rows::Rows;

#[derive(Clone, Copy, Debug)]
pub(super) struct FindingColumns {
    number: NumberColumn,
    time: NumberColumn,
    detection: TextColumn,
    title: TextColumn,
    severity: TextColumn,
    pid: NumberColumn,
    tid: NumberColumn,
    process: TextColumn,
    process_uid: NumberColumn,
    event: TextColumn,
    stack_id: NumberColumn,
    alert: TextColumn,
    document: TextColumn,
}

pub(super) fn findings_table() -> (Table, FindingColumns) {
    let mut t = Table::new(TableId::Findings.name(), "A finding of a detection about an event.");
    let text = |name, doc| Column::required(name, Type::Text, doc);
    let number = |name, r#type, doc| Column::optional(name, r#type, doc);
    let columns = FindingColumns {
        number: t.number(Column::required("number", Type::UInt64, "The event, in `events`.")),
        time: t.number(number("time", Type::Time, "Time of the event.")),
        detection: t.text(text("detection", "The detection, such as `CS07`.")),
        title: t.text(text("title", "Title of the detection.")),
        severity: t.text(text("severity", "`info`, `low`, `medium`, `high` or `critical`.")),
        pid: t.number(number("pid", Type::UInt32, "The acting process.")),
        tid: t.number(number("tid", Type::UInt32, "The acting thread.")),
        process: t.text(Column::optional("process", Type::Text, "File name of its program.")),
        process_uid: t.number(number(
            "process_uid",
            Type::UInt64,
            "The process of the event, in `processes`.",
        )),
        event: t.text(text("event", "Name of the event.")),
        stack_id: t.number(number("stack_id", Type::UInt64, "The stack of the event, in `stacks`.")),
        alert: t.text(text("alert", "Key of its alert, in `alerts`.")),
        document: t.text(text("document", "The finding with all facts, as JSON: a line of `hunt`.")),
    };
    (t, columns)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AlertColumns {
    alert: TextColumn,
    score: NumberColumn,
    severity: TextColumn,
    count: NumberColumn,
    pid: NumberColumn,
    process: TextColumn,
    first_seen: NumberColumn,
    last_seen: NumberColumn,
    document: TextColumn,
}

pub(super) fn alerts_table() -> (Table, AlertColumns) {
    let mut t = Table::new(TableId::Alerts.name(), "The findings about one process within a time window.");
    let text = |name, doc| Column::required(name, Type::Text, doc);
    let time = |name, doc| Column::optional(name, Type::Time, doc);
    let columns = AlertColumns {
        alert: t.text(text("alert", "Key of the alert.")),
        score: t.number(Column::required("score", Type::UInt32, "Score from 1 to 100.")),
        severity: t.text(text("severity", "The highest severity of its findings.")),
        count: t.number(Column::required("count", Type::UInt64, "Number of findings.")),
        pid: t.number(Column::optional("pid", Type::UInt32, "The acting process.")),
        process: t.text(Column::optional("process", Type::Text, "File name of its program.")),
        first_seen: t.number(time("first_seen", "Time of the first event.")),
        last_seen: t.number(time("last_seen", "Time of the last event.")),
        document: t.text(text("document", "The alert with all facts, as JSON: a line of `hunt`.")),
    };
    (t, columns)
}

fn time(ticks: u64) -> Option<FileTime> {
    Some(FileTime(i64::try_from(ticks).ok()?))
}

/// The event of a finding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventIds {
    pub number: u64,
    pub process_uid: Option<u64>,
    pub stack_id: Option<u64>,
}

/// Collects findings.
#[derive(Debug)]
pub(crate) struct Findings(Pending<FindingColumns>);

impl Findings {
    pub fn new(trace: u64) -> Findings {
        Findings(Pending::new(findings_table(), trace))
    }

    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }

    pub fn take(&mut self) -> Rows {
        self.0.take()
    }

    /// Adds the findings about an event.
    pub fn push(&mut self, ids: EventIds, event_context: &EventContext, findings: &[Finding]) {
        let Pending { rows, columns: c, .. } = &mut self.0;
        for finding in findings.iter().filter(|finding| finding.outcome.verdict == Verdict::Yes) {
            let process = &event_context.process;
            rows.begin();
            rows.number(c.number, ids.number);
            event_context.time.and_then(time).iter().for_each(|&time| rows.time(c.time, time));
            rows.text(c.detection, finding.analytic.name());
            rows.text(c.title, finding.analytic.title());
            rows.text(c.severity, finding.outcome.severity.name());
            process.pid.iter().for_each(|&pid| rows.number(c.pid, pid));
            process.tid.iter().for_each(|&tid| rows.number(c.tid, tid));
            if !process.name().is_empty() {
                rows.text(c.process, process.name());
            }
            ids.process_uid.iter().for_each(|&uid| rows.number(c.process_uid, uid));
            rows.text(c.event, &event_context.event.name);
            ids.stack_id.iter().for_each(|&id| rows.number(c.stack_id, id));
            rows.text(c.alert, &finding.alert);
            rows.bytes(c.document, |bytes| json(bytes, &document::Finding::new(event_context, finding)));
        }
    }
}

/// The rows of alerts.
#[derive(Debug)]
pub(crate) struct Alerts;

impl Alerts {
    pub fn rows(alerts: &[Alert], trace: u64) -> Rows {
        let Pending { mut rows, columns: c, .. } = Pending::new(alerts_table(), trace);
        for alert in alerts {
            rows.begin();
            rows.text(c.alert, &alert.key);
            rows.number(c.score, alert.score());
            rows.text(c.severity, alert.severity.name());
            rows.number(c.count, alert.count());
            alert.process.pid.iter().for_each(|&pid| rows.number(c.pid, pid));
            if !alert.process.name().is_empty() {
                rows.text(c.process, alert.process.name());
            }
            if let Some((first, last)) = alert.times {
                time(first).iter().for_each(|&first| rows.time(c.first_seen, first));
                time(last).iter().for_each(|&last| rows.time(c.last_seen, last));
            }
            rows.bytes(c.document, |bytes| json(bytes, &document::Alert::new(alert)));
        }
        rows
    }
}
