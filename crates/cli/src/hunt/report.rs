//! Writes findings as they arrive, groups them into alerts, and counts them for the closing line.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Result;
use stackhound::detect::alert::{Alert, Alerts, sort};
use stackhound::detect::report::{EventContext, Finding};
use stackhound::detect::tuning::TuningReport;
use stackhound::detect::{DetectionId, Evaluation, Outcome, Severity, Totals, Verdict};
use stackhound::frames::Lists;
use stackhound_export::findings::{FindingsFormat, Writer};

use super::tuning::Tuner;
use super::{Arguments, Format};
use crate::options::Common;
use crate::output::{Sink, counted, grouped};

/// The limit of missing inputs in the closing line.
const MISSING_SHOWN: usize = 3;

pub struct Report<'a> {
    arguments: &'a Arguments,
    writer: Writer,
    sink: Sink,
    tuner: Tuner,
    min_severity: Severity,
    alerts: Alerts,
    /// The alerts of earlier captures.
    closed: Vec<Alert>,
    totals: Totals,
    with_stack: u64,
    /// The number of written findings that are not suppressed.
    written: u64,
    failure: Option<anyhow::Error>,
}

fn findings_format(format: Format) -> FindingsFormat {
    match format {
        Format::Table => FindingsFormat::Table,
        Format::List => FindingsFormat::List,
        Format::Summary => FindingsFormat::Summary,
        Format::Ndjson => FindingsFormat::Ndjson,
        Format::Ecs => FindingsFormat::Ecs,
        Format::Ocsf => FindingsFormat::Ocsf,
        Format::Navigator => FindingsFormat::Navigator,
        Format::Csv => FindingsFormat::Csv,
        Format::Timesketch => FindingsFormat::Timesketch,
    }
}

impl<'a> Report<'a> {
    pub fn open(arguments: &'a Arguments, lists: Lists, is_colored: bool) -> Result<Report<'a>> {
        let format = arguments.format()?;
        let (min_severity, sink) = (arguments.min_severity(format), arguments.output.sentences(format)?);
        let format = findings_format(format);
        let new = if arguments.sources.live { Writer::live } else { Writer::new };
        let alerts = Alerts::new(lists.alert_window());
        Ok(Report {
            arguments,
            writer: new(format, is_colored),
            tuner: Tuner::open(arguments, lists)?,
            sink,
            min_severity,
            alerts,
            closed: Vec::new(),
            totals: Totals::default(),
            with_stack: 0,
            written: 0,
            failure: None,
        })
    }

    /// Whether any answer of the evaluation is written, or concerns rules or a baseline.
    #[inline]
    pub fn wants(&self, evaluation: &Evaluation) -> bool {
        let needs_all = self.tuner.needs_all();
        let is_wanted = |(id, outcome): (DetectionId, &Outcome)| {
            self.is_answer(id, outcome) && (needs_all || outcome.severity >= self.min_severity)
        };
        match self.arguments.all {
            true => evaluation.iter().any(is_wanted),
            // No other answers are written.
            false => evaluation.findings().any(is_wanted),
        }
    }

    fn is_answer(&self, id: DetectionId, outcome: &Outcome) -> bool {
        let is_answer = match outcome.verdict {
            Verdict::Yes => true,
            Verdict::Undetermined => self.arguments.all,
            Verdict::No => false,
        };
        is_answer && self.is_selected(id)
    }

    /// Counts the answer of a rule. Returns whether it is written, or concerns exceptions: not if only
    /// some detections are written.
    pub fn wants_rule(&mut self, finding: &Finding, count: u64) -> bool {
        if !self.arguments.only.is_empty() {
            return false;
        }
        self.totals.add_rule(finding, count);
        let is_answer = finding.outcome.verdict == Verdict::Yes || self.arguments.all;
        is_answer && (self.tuner.needs_all() || finding.outcome.severity >= self.min_severity)
    }

    fn is_selected(&self, id: DetectionId) -> bool {
        self.arguments.only.is_empty() || self.arguments.only.contains(&id)
    }

    /// Writes the selected findings of an event, and those of rules that are
    /// [wanted](Report::wants_rule). Breaks if writing fails.
    pub fn write(
        &mut self,
        event_context: &EventContext,
        evaluation: Option<&Evaluation>,
        of_rules: Vec<Finding>,
    ) -> ControlFlow<()> {
        let answers = evaluation.into_iter().flat_map(Evaluation::iter);
        let selected = answers.filter(|(id, outcome)| self.is_answer(*id, outcome));
        let mut findings: Vec<Finding> = selected.map(|(id, outcome)| Finding::new(id, *outcome)).collect();
        findings.extend(of_rules);
        self.tuner.apply(event_context, &mut findings);
        let shows_suppressed = self.arguments.show_suppressed;
        findings.retain(|finding| {
            finding.outcome.severity >= self.min_severity
                && (shows_suppressed || finding.suppressed.is_none())
        });
        self.alerts.add(event_context, &mut findings);
        self.written += findings.iter().filter(|finding| finding.is_reported()).count() as u64;
        let written = self.writer.write(&mut self.sink, event_context, &findings);
        self.note(written)
    }

    /// Flushes the output. Breaks if writing fails.
    pub fn flush(&mut self) -> ControlFlow<()> {
        let flushed = self.sink.flush();
        self.note(flushed)
    }

    fn note(&mut self, written: std::io::Result<()>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error.into());
                ControlFlow::Break(())
            }
        }
    }

    /// Returns the error of the last write, if it failed.
    pub fn failed(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Adds the totals of an input.
    pub fn count(&mut self, with_stack: u64, totals: &Totals) {
        self.with_stack += with_stack;
        self.totals.merge(totals);
    }

    /// Adds one evaluation that represents a number of events.
    pub fn count_one(&mut self, evaluation: &Evaluation, events: u64, has_stack: bool) {
        self.totals.add(evaluation, events);
        self.with_stack += if has_stack { events } else { 0 };
    }

    /// Starts another capture, so that no alert contains findings of both.
    pub fn next_capture(&mut self) {
        let next = Alerts::new(self.tuner.lists().alert_window());
        let alerts = std::mem::replace(&mut self.alerts, next);
        self.closed.extend(alerts.finish());
    }

    /// Reports the effects of rules and baselines. Returns the counts of evaluations and findings,
    /// for the closing line.
    pub fn closing(&mut self, common: &Common) -> String {
        if !common.quiet {
            self.tuner.announce();
        }
        self.tuner.change(&mut self.totals);
        let selected: Vec<DetectionId> = DetectionId::all().filter(|id| self.is_selected(*id)).collect();
        self.totals.retain(|id| selected.contains(&id));
        closing(&self.totals, self.with_stack, self.min_severity)
    }

    /// Writes the alerts and counts, and the new baseline. Returns whether findings were written.
    pub fn finish(mut self, common: &Common) -> Result<bool> {
        self.failed()?;
        self.closed.extend(self.alerts.finish());
        sort(&mut self.closed);
        let shown = self.arguments.show_suppressed;
        let tuning = self.tuner.report().or_else(|| shown.then(TuningReport::default));
        self.writer.finish(&mut self.sink, &self.closed, &self.totals, tuning.as_ref())?;
        self.sink.finish()?;
        self.tuner.finish(common.quiet)?;
        Ok(self.written > 0)
    }
}

fn closing(totals: &Totals, with_stack: u64, min_severity: Severity) -> String {
    let mut text =
        format!(", {} evaluated, {} of them with stacks", grouped(totals.events), grouped(with_stack));
    let mut found: Vec<String> = Vec::new();
    for severity in Severity::ALL.into_iter().rev() {
        match totals.findings(severity) {
            0 => {}
            count if severity < min_severity => {
                found.push(format!("{} {} (not shown)", grouped(count), severity.name()));
            }
            count => found.push(format!("{} {}", grouped(count), severity.name())),
        }
    }
    text += &match (found.is_empty(), totals.events) {
        // No findings without evaluated events would be misleading.
        (true, 0) => "; nothing to evaluate".to_owned(),
        (true, _) => "; no findings".to_owned(),
        (false, _) => format!("; findings: {}", found.join(", ")),
    };
    let undetermined = totals.undetermined();
    if undetermined > 0 {
        text += &format!("; {} undetermined", counted(undetermined, "answer", "answers"));
        let possible: u64 = totals.rules().map(|(_, tally)| tally.possible).sum();
        if possible > 0 {
            text += &format!(" ({} of rules possible)", grouped(possible));
        }
        let shown = totals.wanted().into_iter().take(MISSING_SHOWN);
        let shown: Vec<_> = shown.map(|(name, count)| format!("{name} {}", grouped(count))).collect();
        if !shown.is_empty() {
            text += &format!("; missing evidence: {}", shown.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use stackhound::detect::{Input, Inputs, Reason};

    use super::*;

    #[test]
    fn the_closing_line_counts_findings_and_missing_evidence() {
        let id = |number| DetectionId::new(number).unwrap();
        let mut totals = Totals::default();
        assert_eq!(
            closing(&totals, 0, Severity::Low),
            ", 0 evaluated, 0 of them with stacks; nothing to evaluate"
        );
        totals.events = 12_345;
        assert_eq!(
            closing(&totals, 2_000, Severity::Low),
            ", 12,345 evaluated, 2,000 of them with stacks; no findings"
        );
        let none = Inputs::NONE;
        let yes = |severity| Outcome::yes(severity, None, Reason::TopImage, none);
        totals.add_outcome(id(2), &yes(Severity::High), 3);
        totals.add_outcome(id(8), &yes(Severity::Low), 1_000);
        let open = |missing: &[Input]| {
            Outcome::undetermined(Severity::High, Reason::ImageMissing, none, Inputs::of(missing))
        };
        totals.add_outcome(id(3), &open(&[Input::ImageBytes, Input::Service]), 40);
        totals.add_outcome(id(5), &open(&[Input::ImageBytes]), 2);
        totals.add_outcome(id(15), &open(&[Input::ThreadStart]), 1);
        totals.add_outcome(id(18), &open(&[Input::MemoryBytes]), 1);
        let expected = ", 12,345 evaluated, 2,000 of them with stacks; findings: 3 high, 1,000 low; 44 answers \
                        undetermined; missing evidence: image_bytes 42, service 40, memory_bytes 1";
        assert_eq!(closing(&totals, 2_000, Severity::Low), expected);
        let shown = closing(&totals, 2_000, Severity::Medium);
        assert!(shown.contains("findings: 3 high, 1,000 low (not shown);"), "{shown}");
    }
}
