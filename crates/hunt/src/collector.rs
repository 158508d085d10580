//! Makes findings of answers: selects and tunes them, groups them into alerts, and counts them.

use stackhound_detect::alert::{Alert, Alerts, sort};
use stackhound_detect::baseline::Baseline;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::TuningReport;
use stackhound_detect::{DetectionId, Evaluation, Outcome, Severity, Totals, Verdict};

use crate::policy::FindingSelection;
use crate::tuner::Tuner;

/// The findings about one event.
#[derive(Clone, Debug)]
pub struct EventFindings {
    /// The event.
    pub context: EventContext,
    /// At least one finding, each with its alert.
    pub findings: Vec<Finding>,
}

/// What a hunt found.
#[derive(Clone, Debug)]
pub struct HuntReport {
    /// The findings by process, the highest score first.
    pub alerts: Vec<Alert>,
    /// The answers about all evaluated events, after tuning.
    pub totals: Totals,
    /// The number of evaluated events with at least a part of a stack.
    pub with_stack: u64,
    /// The findings that were suppressed; `None` if the policy suppresses none.
    pub tuning: Option<TuningReport>,
}

/// Collects the findings of a hunt, from traces and from other sources of evaluations.
#[derive(Debug)]
pub struct FindingCollector {
    selection: FindingSelection,
    tuner: Tuner,
    alerts: Alerts,
    /// The alerts of earlier captures.
    closed: Vec<Alert>,
    totals: Totals,
    with_stack: u64,
}

impl FindingCollector {
    pub(crate) fn new(selection: FindingSelection, tuner: Tuner) -> FindingCollector {
        FindingCollector {
            selection,
            alerts: Alerts::new(tuner.lists().alert_window()),
            tuner,
            closed: Vec::new(),
            totals: Totals::default(),
            with_stack: 0,
        }
    }

    pub(crate) fn learn(&mut self) {
        self.tuner.learn();
    }

    /// Whether any answer of the evaluation is passed on, or concerns exceptions or a baseline.
    #[inline]
    pub fn wants(&self, evaluation: &Evaluation) -> bool {
        let needs_all = self.tuner.needs_all();
        let is_wanted = |(id, outcome): (DetectionId, &Outcome)| {
            self.is_answer(id, outcome) && (needs_all || outcome.severity >= self.selection.min_severity)
        };
        match self.selection.undetermined {
            true => evaluation.iter().any(is_wanted),
            // No other answers are passed on.
            false => evaluation.findings().any(is_wanted),
        }
    }

    fn is_answer(&self, id: DetectionId, outcome: &Outcome) -> bool {
        let is_answer = match outcome.verdict {
            Verdict::Yes => true,
            Verdict::Undetermined => self.selection.undetermined,
            Verdict::No => false,
        };
        is_answer && self.selection.analytics.has(id)
    }

    /// Counts answers of rules about a number of equal events. Returns those that are passed on, or
    /// concern exceptions: none if only some detections are selected.
    pub fn rule_findings(&mut self, findings: impl Iterator<Item = Finding>, events: u64) -> Vec<Finding> {
        if !self.selection.analytics.has_rules() {
            return Vec::new();
        }
        let counted = findings.inspect(|finding| self.totals.add_rule(finding, events));
        let is_wanted = |finding: &Finding| {
            let is_answer = finding.outcome.verdict == Verdict::Yes || self.selection.undetermined;
            let needs_all = self.tuner.needs_all();
            is_answer && (needs_all || finding.outcome.severity >= self.selection.min_severity)
        };
        counted.filter(is_wanted).collect()
    }

    /// Adds the answers about an event: an evaluation that is [wanted](FindingCollector::wants), and
    /// [findings of rules](FindingCollector::rule_findings). Returns those that are passed on, if
    /// there are any.
    pub fn add(
        &mut self,
        context: EventContext,
        evaluation: Option<&Evaluation>,
        rule_findings: Vec<Finding>,
    ) -> Option<EventFindings> {
        let answers = evaluation.into_iter().flat_map(Evaluation::iter);
        let selected = answers.filter(|(id, outcome)| self.is_answer(*id, outcome));
        let mut findings: Vec<Finding> = selected.map(|(id, outcome)| Finding::new(id, *outcome)).collect();
        findings.extend(rule_findings);
        self.tuner.apply(&context, &mut findings);
        findings.retain(|finding| {
            finding.outcome.severity >= self.selection.min_severity
                && (self.selection.suppressed || finding.suppressed.is_none())
        });
        self.alerts.add(&context, &mut findings);
        (!findings.is_empty()).then_some(EventFindings { context, findings })
    }

    /// Counts one evaluation that represents a number of events.
    pub fn count(&mut self, evaluation: &Evaluation, events: u64, has_stack: bool) {
        self.totals.add(evaluation, events);
        self.with_stack += if has_stack { events } else { 0 };
    }

    /// Counts the evaluations of a trace.
    pub(crate) fn count_all(&mut self, totals: &Totals, with_stack: u64) {
        self.totals.merge(totals);
        self.with_stack += with_stack;
    }

    /// Ends the alerts of a capture, so that none contains findings of two.
    pub(crate) fn end_capture(&mut self) {
        let next = Alerts::new(self.tuner.lists().alert_window());
        let alerts = std::mem::replace(&mut self.alerts, next);
        self.closed.extend(alerts.finish());
    }

    /// The lowest severity that is passed on.
    pub fn min_severity(&self) -> Severity {
        self.selection.min_severity
    }

    /// The report about everything since the last one.
    pub fn take_report(&mut self) -> HuntReport {
        self.end_capture();
        let mut alerts = std::mem::take(&mut self.closed);
        sort(&mut alerts);
        let mut totals = std::mem::take(&mut self.totals);
        self.tuner.take_changes(&mut totals);
        totals.retain(|id| self.selection.analytics.has(id));
        let tuning =
            self.tuner.take_report().or_else(|| self.selection.suppressed.then(TuningReport::default));
        HuntReport { alerts, totals, with_stack: std::mem::take(&mut self.with_stack), tuning }
    }

    /// The baseline with the usual findings since it was last taken, and the number of findings
    /// beyond its limits; `None` if none is collected.
    pub fn take_baseline(&mut self) -> Option<(Baseline, u64)> {
        self.tuner.learned()
    }
}
