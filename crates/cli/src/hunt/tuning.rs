//! Applies `[severity]`, `[[exceptions]]` and the baseline to findings, and collects a new baseline.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use stackhound::detect::baseline::{self, Baseline, Learner, Novelty};
use stackhound::detect::report::{EventContext, Finding};
use stackhound::detect::tuning::{Suppression, SuppressionCount, Tuning, TuningReport};
use stackhound::detect::{Analytic, Severity, Totals, Verdict, add_count};
use stackhound::frames::Lists;

use super::{Arguments, baseline as file};
use crate::inputs;
use crate::output::{counted, grouped, message};

/// The rules and baselines of the arguments, with counts of their effects.
pub struct Tuner {
    lists: Lists,
    rules: Tuning,
    known: Option<Baseline>,
    /// The suppression of known findings.
    by_baseline: Arc<Suppression>,
    learner: Option<(Learner, PathBuf)>,
    novelty: [u64; Novelty::ALL.len()],
    known_suppressed: u64,
    /// Raw events whose findings got another severity, or none.
    changes: BTreeMap<(Analytic, Severity, Option<Severity>), u64>,
}

impl Tuner {
    /// Reads the files of the arguments. `lists` are those of the detections.
    pub fn open(arguments: &Arguments, lists: Lists) -> Result<Tuner> {
        let rules = match &arguments.lists {
            None => Tuning::default(),
            Some(path) => Tuning::parse(&inputs::text(path)?)
                .map_err(|error| anyhow!("{}:{}: {}", path.display(), error.line, error.message))?,
        };
        Ok(Tuner {
            lists,
            rules,
            known: arguments.baseline.as_deref().map(file::read).transpose()?,
            by_baseline: Suppression::by_baseline(),
            learner: arguments.write_baseline.clone().map(|path| (Learner::default(), path)),
            novelty: Default::default(),
            known_suppressed: 0,
            changes: BTreeMap::new(),
        })
    }

    pub fn lists(&self) -> &Lists {
        &self.lists
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
        if let Some((learner, _)) = &mut self.learner {
            learner.add(&self.lists, event_context, findings);
        }
        for (finding, from) in findings.iter().zip(before) {
            let to = finding.suppressed.is_none().then_some(finding.outcome.severity);
            if finding.outcome.verdict == Verdict::Yes && to != Some(from) {
                add_count(self.changes.entry((finding.analytic.clone(), from, to)).or_default(), count);
            }
        }
    }

    /// Changes the counts of findings accordingly.
    pub fn change(&self, totals: &mut Totals) {
        for ((of, from, to), count) in &self.changes {
            totals.change(of, *from, *to, *count);
        }
    }

    /// The effects, if there are rules or a baseline.
    pub fn report(&self) -> Option<TuningReport> {
        let has_any = !self.rules.is_empty() || self.known.is_some();
        has_any.then(|| TuningReport {
            rules: self.rules.counts(),
            novelty: self.known.as_ref().map(|_| self.novelty),
            known: self.known_suppressed,
        })
    }

    /// Writes the effects to standard error, one line for each kind.
    pub fn announce(&self) {
        let rules = self.rules.counts();
        let each = |wanted: fn(&SuppressionCount) -> u64| -> Vec<String> {
            let counted = rules.iter().filter(|rule| wanted(rule) > 0);
            counted
                .map(|rule| format!("{} {}", grouped(wanted(rule)), described(&rule.suppression)))
                .collect()
        };
        let (suppressed, expired) = (each(|rule| rule.suppressed), each(|rule| rule.expired));
        if !suppressed.is_empty() {
            message(format_args!("suppressed findings: {}", suppressed.join(", ")));
        }
        if !expired.is_empty() {
            message(format_args!(
                "findings of expired exceptions, which no longer apply: {}",
                expired.join(", ")
            ));
        }
        if self.known.is_some() {
            let [_, process, stack, new, excluded] = self.novelty.map(grouped);
            message(format_args!(
                "baseline: {} suppressed, {process} new process, {stack} new stack, {new} new process and stack, {excluded} not compared",
                counted(self.known_suppressed, "known finding", "known findings")
            ));
        }
    }

    /// Writes the new baseline, if one is requested.
    pub fn finish(self, is_quiet: bool) -> Result<()> {
        let Some((learner, path)) = self.learner else { return Ok(()) };
        let mut baseline = self.known.unwrap_or_default();
        let skipped = learner.finish(&mut baseline);
        file::write(&path, &baseline)?;
        if !is_quiet {
            let skipped = match skipped {
                0 => String::new(),
                _ => format!(", {} beyond the limits not learned", counted(skipped, "finding", "findings")),
            };
            let entries = counted(baseline.len() as u64, "entry", "entries");
            message(format_args!("{}: {entries}{skipped}", path.display()));
        }
        Ok(())
    }
}

/// A rule as text: `by the exception in line 12 (reason)`.
fn described(rule: &Suppression) -> String {
    let Suppression { by, line, reason, expires } = rule;
    let until = if expires.is_empty() { String::new() } else { format!(", until {expires}") };
    match line {
        Some(line) => format!("by {} in line {line} ({reason}{until})", by.name()),
        None => format!("by {} ({reason})", by.name()),
    }
}
