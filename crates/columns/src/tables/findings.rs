//! Findings and alerts.

use stackhound_detect::Verdict;
use stackhound_detect::alert::Alert;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_export::escape::json;
use stackhound_export::json::finding as document;
use stackhound_types::FileTime;

use super::{Pending, TableId};
use crate::rows::Rows;

columns! {
    pub(crate) FindingColumns {
        /// The event, in `events`.
        number: number required UInt64,
        /// Time of the event.
        time: number optional Time,
        /// The detection, such as `CS07`.
        detection: text required,
        /// Title of the detection.
        title: text required,
        /// `info`, `low`, `medium`, `high` or `critical`.
        severity: text required,
        /// The acting process.
        pid: number optional UInt32,
        /// The acting thread.
        tid: number optional UInt32,
        /// File name of its program.
        process: text optional,
        /// The process of the event, in `processes`.
        process_uid: number optional UInt64,
        /// Name of the event.
        event: text required,
        /// The stack of the event, in `stacks`.
        stack_id: number optional UInt64,
        /// Key of its alert, in `alerts`.
        alert: text required,
        /// The finding with all facts, as JSON: a line of `hunt`.
        document: text required,
    }
}

columns! {
    pub(super) AlertColumns {
        /// Key of the alert.
        alert: text required,
        /// Score from 1 to 100.
        score: number required UInt32,
        /// The highest severity of its findings.
        severity: text required,
        /// Number of findings.
        count: number required UInt64,
        /// The acting process.
        pid: number optional UInt32,
        /// File name of its program.
        process: text optional,
        /// Time of the first event.
        first_seen: number optional Time,
        /// Time of the last event.
        last_seen: number optional Time,
        /// The alert with all facts, as JSON: a line of `hunt`.
        document: text required,
    }
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
pub(crate) type Findings = Pending<FindingColumns>;

impl Findings {
    pub fn of(trace: u64) -> Findings {
        Pending::new(TableId::Findings, FindingColumns::of, trace)
    }

    /// Adds the findings about an event.
    pub fn push(&mut self, ids: EventIds, event_context: &EventContext, findings: &[Finding]) {
        let Pending { rows, columns: c, .. } = self;
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
        let Pending { mut rows, columns: c, .. } = Pending::new(TableId::Alerts, AlertColumns::of, trace);
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
