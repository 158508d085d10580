//! The most important findings, after the alerts and the counts.

use std::io::{self, Write};

use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::{Analytic, Severity, Verdict};

use super::super::form::{End, Form};
use super::{List, shown, summary};

/// Maximum number of findings.
const FINDINGS_MAX: usize = 10;

/// The most severe findings, one per process and set of detections. Memory does not grow with their
/// number.
#[derive(Debug)]
pub(in super::super) struct Top {
    is_colored: bool,
    /// The most severe first; among equal ones, the earliest first.
    events: Vec<Event>,
}

#[derive(Debug)]
struct Event {
    severity: Severity,
    process: u64,
    detections: Vec<Analytic>,
    event_context: EventContext,
    findings: Vec<Finding>,
}

impl Form for Top {
    fn add(&mut self, _: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        self.keep(event, findings);
        Ok(())
    }

    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()> {
        summary::write(out, self.is_colored, end)?;
        self.blocks(out, "The most severe findings, one per process and set of detections")
    }
}

impl Top {
    pub(super) fn new(is_colored: bool) -> Top {
        Top { is_colored, events: Vec::new() }
    }

    /// Keeps an event if it is one of the most severe so far.
    pub(super) fn keep(&mut self, event_context: &EventContext, findings: &[&Finding]) {
        let found: Vec<&Finding> =
            findings.iter().filter(|finding| finding.outcome.verdict == Verdict::Yes).copied().collect();
        let Some(severity) = found.iter().map(|finding| finding.outcome.severity).max() else { return };
        if self.events.len() == FINDINGS_MAX
            && self.events.last().is_some_and(|least| least.severity >= severity)
        {
            return;
        }
        let process = shown::entity(&event_context.host, &event_context.process).value();
        let detections: Vec<Analytic> = found.iter().map(|finding| finding.analytic.clone()).collect();
        let is_alike = |event: &Event| event.process == process && event.detections == detections;
        match self.events.iter().position(is_alike) {
            Some(index) if self.events[index].severity >= severity => return,
            Some(index) => {
                self.events.remove(index);
            }
            None => self.events.truncate(FINDINGS_MAX - 1),
        }
        let index = self.events.partition_point(|event| event.severity >= severity);
        let findings = found.into_iter().cloned().collect();
        let event = Event { severity, process, detections, event_context: event_context.clone(), findings };
        self.events.insert(index, event);
    }

    /// Writes the kept findings below a heading, if there are any.
    pub(super) fn blocks(self, out: &mut dyn Write, heading: &str) -> io::Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{heading}")?;
        writeln!(out)?;
        let mut table = List::new(self.is_colored);
        self.events.iter().try_for_each(|event| {
            let findings: Vec<&Finding> = event.findings.iter().collect();
            table.add(out, &event.event_context, &findings)
        })
    }
}
