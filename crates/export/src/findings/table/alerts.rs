//! The default view: alerts by score, each with the stack of its most severe event, then counts.

use std::collections::BTreeMap;
use std::io::{self, Write};

use stackhound_detect::Severity;
use stackhound_detect::report::{EventContext, Finding};

use super::super::form::{End, Form};
use super::{List, Top, summary};

/// Maximum number of alerts of which an event is kept. If there are more, the least severe are
/// shown without a stack.
const KEPT_MAX: usize = 1 << 10;

/// The most severe event of each alert, and suppressed findings.
#[derive(Debug)]
pub(in super::super) struct AlertTable {
    is_colored: bool,
    /// By the key of the alert.
    events: BTreeMap<String, Event>,
    suppressed: Top,
}

#[derive(Debug)]
struct Event {
    severity: Severity,
    event_context: EventContext,
    findings: Vec<Finding>,
}

impl AlertTable {
    pub(super) fn new(is_colored: bool) -> AlertTable {
        AlertTable { is_colored, events: BTreeMap::new(), suppressed: Top::new(is_colored) }
    }

    /// Keeps an event if it is the first of the most severe ones of its alert.
    fn keep(&mut self, event_context: &EventContext, findings: &[&Finding]) {
        let reported = || findings.iter().filter(|finding| finding.is_reported());
        let severity = reported().map(|finding| finding.outcome.severity).max();
        let (Some(severity), Some(first)) = (severity, reported().next()) else {
            return self.suppressed.keep(event_context, findings);
        };
        match self.events.get(&first.alert) {
            Some(known) if known.severity >= severity => return,
            Some(_) => {}
            None if self.events.len() < KEPT_MAX => {}
            None => {
                let least = self.events.iter().min_by_key(|(_, event)| event.severity);
                let Some((key, _)) = least.filter(|(_, event)| event.severity < severity) else { return };
                let key = key.clone();
                self.events.remove(&key);
            }
        }
        let findings = findings.iter().map(|finding| (*finding).clone()).collect();
        let event = Event { severity, event_context: event_context.clone(), findings };
        self.events.insert(first.alert.clone(), event);
    }
}

impl Form for AlertTable {
    fn add(&mut self, _: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        self.keep(event, findings);
        Ok(())
    }

    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()> {
        let alerts = end.alerts;
        if !alerts.is_empty() {
            writeln!(out, "Alerts by score, each with its most severe event")?;
            writeln!(out)?;
        }
        for alert in alerts.iter().take(summary::ALERTS_MAX) {
            summary::one_alert(out, self.is_colored, alert)?;
            if let Some(Event { event_context, findings, .. }) = self.events.get(&alert.key) {
                let findings: Vec<&Finding> = findings.iter().collect();
                List::new(self.is_colored).add(out, event_context, &findings)?;
            }
            writeln!(out)?;
        }
        if let Some(more @ 1..) = alerts.len().checked_sub(summary::ALERTS_MAX) {
            writeln!(out, "... and {more} more")?;
            writeln!(out)?;
        }
        summary::findings(out, end.totals)?;
        summary::undetermined_line(out, end.totals)?;
        self.suppressed.blocks(out, "Suppressed findings, one per process and set of detections")
    }
}
