//! Applies `[severity]`, `[[exceptions]]` and the baseline to findings, and collects a new baseline.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use stackhound_detect::baseline::{self, Baseline, Learner, Novelty};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::{Suppression, Tuning, TuningReport};
use stackhound_detect::{Analytic, Severity, Totals, Verdict, add_count};
use stackhound_frames::Lists;

/// The rules and the baseline of a policy, with counts of their effects.
#[derive(Debug)]
pub(crate) struct Tuner {
    lists: Lists,
    rules: Tuning,
    known: Option<Baseline>,
    /// The suppression of known findings.
    by_baseline: Arc<Suppression>,
    learner: Option<Learner>,
    novelty: [u64; Novelty::ALL.len()],
    known_suppressed: u64,
    /// Raw events whose findings got another severity, or none.
    changes: BTreeMap<(Analytic, Severity, Option<Severity>), u64>,
}

impl Tuner {
    /// `lists` are those of the detections.
    pub fn new(lists: Lists, rules: Tuning, known: Option<Baseline>) -> Tuner {
        Tuner {
            lists,
            rules,
            known,
            by_baseline: Suppression::by_baseline(),
            learner: None,
            novelty: Default::default(),
            known_suppressed: 0,
            changes: BTreeMap::new(),
        }
    }

    /// The lists of the detections.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Also collects a new baseline.
    pub fn learn(&mut self) {
        self.learner = Some(Learner::default());
    }

    /// Whether findings of any severity matter, because rules or a baseline concern them.
    pub fn needs_all(&self) -> bool {
        !self.rules.is_empty() || self.known.is_some() || self.learner.is_some()
    }

    /// Applies everything to the answers about one event.
    pub fn apply(&mut self, event_context: &EventContext, findings: &mut [Finding]) {
        if !self.needs_all() {
            return;
        }
        let count = event_context.count;
        let before: Vec<Severity> = findings.iter().map(|finding| finding.outcome.severity).collect();
        for finding in &mut *findings {
            self.rules.apply(event_context, finding);
        }
        if let Some(known) = &self.known {
            let is_usual = baseline::is_usual(findings);
            for finding in findings.iter_mut().filter(|finding| finding.is_reported()) {
                let Some(id) = finding.analytic.detection() else { continue };
                let novelty = known.compare(&self.lists, event_context, id);
                finding.novelty = Some(novelty);
                add_count(&mut self.novelty[novelty as usize], count);
                if is_usual && novelty == Novelty::Known {
                    add_count(&mut self.known_suppressed, count);
                    finding.suppressed = Some(Arc::clone(&self.by_baseline));
                }
            }
        }
        if let Some(learner) = &mut self.learner {
            learner.add(&self.lists, event_context, findings);
        }
        for (finding, from) in findings.iter().zip(before) {
            let to = finding.suppressed.is_none().then_some(finding.outcome.severity);
            if finding.outcome.verdict == Verdict::Yes && to != Some(from) {
                add_count(self.changes.entry((finding.analytic.clone(), from, to)).or_default(), count);
            }
        }
    }

    /// Changes the counts of findings accordingly. The next call concerns later findings.
    pub fn take_changes(&mut self, totals: &mut Totals) {
        for ((of, from, to), count) in take(&mut self.changes) {
            totals.change(&of, from, to, count);
        }
    }

    /// The effects since the last call, if there are rules or a baseline.
    pub fn take_report(&mut self) -> Option<TuningReport> {
        if self.rules.is_empty() && self.known.is_none() {
            return None;
        }
        let novelty = take(&mut self.novelty);
        Some(TuningReport {
            rules: self.rules.take_counts(),
            novelty: self.known.as_ref().map(|_| novelty),
            known: take(&mut self.known_suppressed),
        })
    }

    /// The baseline with the usual findings so far, and the number of findings beyond its limits;
    /// `None` if none is collected.
    pub fn learned(&mut self) -> Option<(Baseline, u64)> {
        let learner = self.learner.replace(Learner::default())?;
        let mut baseline = self.known.clone().unwrap_or_default();
        let skipped = learner.finish(&mut baseline);
        Some((baseline, skipped))
    }
}
