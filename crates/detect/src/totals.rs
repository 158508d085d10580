//! Statistics of answers: verdicts, severities and missing evidence by detection.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::analytic::{Analytic, RuleInfo};
use crate::catalogue::{DETECTIONS, DetectionId};
use crate::evaluate::Evaluation;
use crate::report::Finding;
use crate::verdict::{Input, Outcome, Severity, Verdict};

/// The answers of one detection, counted in raw events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Answers yes, in the order of [`Severity::ALL`].
    pub yes: [u64; Severity::ALL.len()],
    /// Answers no.
    pub no: u64,
    /// Answers undetermined.
    pub undetermined: u64,
    /// Undetermined answers by missing input, in the order of [`Input::ALL`]. An answer that misses
    /// two inputs is counted for both.
    pub missing: [u64; Input::ALL.len()],
}

/// The answers of one rule other than no, counted in raw events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleTally {
    /// Answers yes, in the order of [`Severity::ALL`].
    pub yes: [u64; Severity::ALL.len()],
    /// Answers undetermined, the possible ones included.
    pub undetermined: u64,
    /// Those of them that are only undetermined because an exception is.
    pub possible: u64,
    /// Undetermined answers by the missing field.
    pub missing: BTreeMap<String, u64>,
}

/// The answers of all detections and rules, counted in raw events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Number of evaluated events.
    pub events: u64,
    tallies: [Tally; DETECTIONS.len()],
    rules: BTreeMap<Arc<RuleInfo>, RuleTally>,
}

/// Adds a number of events. A row can state any number, so that sums stop at the largest one.
pub fn add_count(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

impl Totals {
    /// Adds an evaluation that applies to `count` raw events. An evaluation that is reused for many
    /// events is best added once with their number.
    pub fn add(&mut self, evaluation: &Evaluation, count: u64) {
        add_count(&mut self.events, count);
        for (id, outcome) in evaluation.iter() {
            self.add_outcome(id, outcome, count);
        }
    }

    /// Adds the answer of one detection, if not all detections are of interest. The caller counts
    /// the events.
    pub fn add_outcome(&mut self, id: DetectionId, outcome: &Outcome, count: u64) {
        let tally = &mut self.tallies[id.index()];
        match outcome.verdict {
            Verdict::Yes => add_count(&mut tally.yes[outcome.severity as usize], count),
            Verdict::No => add_count(&mut tally.no, count),
            Verdict::Undetermined => {
                add_count(&mut tally.undetermined, count);
                for input in outcome.missing.iter() {
                    add_count(&mut tally.missing[input as usize], count);
                }
            }
        }
    }

    /// Adds the answer of a rule that applies to `count` raw events; other findings are ignored. The
    /// caller counts the events.
    pub fn add_rule(&mut self, finding: &Finding, count: u64) {
        let (Analytic::Rule(rule), Some(found)) = (&finding.analytic, &finding.rule_match) else { return };
        let tally = self.rules.entry(Arc::clone(rule)).or_default();
        if finding.outcome.verdict == Verdict::Yes {
            return add_count(&mut tally.yes[finding.outcome.severity as usize], count);
        }
        add_count(&mut tally.undetermined, count);
        if found.is_possible {
            add_count(&mut tally.possible, count);
        }
        for missing in &found.missing {
            add_count(tally.missing.entry(missing.clone()).or_default(), count);
        }
    }

    /// The answers of rules, sorted by name.
    pub fn rules(&self) -> impl Iterator<Item = (&Arc<RuleInfo>, &RuleTally)> {
        self.rules.iter()
    }

    /// The findings of a severity, of detections and rules.
    pub fn findings(&self, severity: Severity) -> u64 {
        let of_detections = self.tallies.iter().map(|tally| tally.yes[severity as usize]);
        let of_rules = self.rules.values().map(|tally| tally.yes[severity as usize]);
        of_detections.chain(of_rules).fold(0, u64::saturating_add)
    }

    /// The undetermined answers of detections and rules.
    pub fn undetermined(&self) -> u64 {
        let of_detections = self.tallies.iter().map(|tally| tally.undetermined);
        let of_rules = self.rules.values().map(|tally| tally.undetermined);
        of_detections.chain(of_rules).fold(0, u64::saturating_add)
    }

    /// The missing evidence of undetermined answers, with the number of answers, the most frequent
    /// first.
    pub fn wanted(&self) -> Vec<(&str, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        let of_detections =
            self.tallies.iter().flat_map(Tally::wanted).map(|(input, count)| (input.name(), count));
        let of_rules =
            self.rules.values().flat_map(|tally| &tally.missing).map(|(name, count)| (&**name, *count));
        for (name, count) in of_detections.chain(of_rules) {
            add_count(sums.entry(name).or_default(), count);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        sums
    }

    /// Moves `count` raw events with findings of one severity to another, or removes them.
    pub fn change(&mut self, of: &Analytic, from: Severity, to: Option<Severity>, count: u64) {
        let yes = match of {
            Analytic::Detection(id) => &mut self.tallies[id.index()].yes,
            Analytic::Rule(rule) => &mut self.rules.entry(Arc::clone(rule)).or_default().yes,
        };
        yes[from as usize] = yes[from as usize].saturating_sub(count);
        if let Some(to) = to {
            add_count(&mut yes[to as usize], count);
        }
    }

    /// Adds other totals.
    pub fn merge(&mut self, other: &Totals) {
        add_count(&mut self.events, other.events);
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            let counts = [(&mut tally.no, other.no), (&mut tally.undetermined, other.undetermined)];
            let yes = tally.yes.iter_mut().zip(other.yes);
            let missing = tally.missing.iter_mut().zip(other.missing);
            counts.into_iter().chain(yes).chain(missing).for_each(|(sum, count)| add_count(sum, count));
        }
        for (rule, other) in &other.rules {
            let tally = self.rules.entry(Arc::clone(rule)).or_default();
            tally.yes.iter_mut().zip(other.yes).for_each(|(sum, count)| add_count(sum, count));
            add_count(&mut tally.undetermined, other.undetermined);
            add_count(&mut tally.possible, other.possible);
            for (name, count) in &other.missing {
                add_count(tally.missing.entry(name.clone()).or_default(), *count);
            }
        }
    }

    /// Removes the answers of detections that are not wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(DetectionId) -> bool) {
        let unwanted = DetectionId::all().filter(|id| !is_wanted(*id));
        unwanted.for_each(|id| self.tallies[id.index()] = Tally::default());
    }

    /// The answers of one detection.
    pub fn tally(&self, id: DetectionId) -> &Tally {
        &self.tallies[id.index()]
    }

    /// The answers of all detections, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (DetectionId, &Tally)> {
        DetectionId::all().zip(&self.tallies)
    }
}

impl Tally {
    /// The number of answers yes.
    pub fn findings(&self) -> u64 {
        self.yes.into_iter().fold(0, u64::saturating_add)
    }

    /// The highest severity of the findings; `None` if there are none.
    pub fn severity(&self) -> Option<Severity> {
        Severity::ALL.into_iter().rev().find(|severity| self.yes[*severity as usize] > 0)
    }

    /// The inputs that undetermined answers missed, with their counts, the most frequent first.
    pub fn wanted(&self) -> Vec<(Input, u64)> {
        let mut wanted: Vec<_> =
            Input::ALL.iter().copied().zip(self.missing).filter(|(_, count)| *count > 0).collect();
        wanted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Inputs, Reason};

    #[test]
    fn answers_are_counted_by_detection_and_verdict() {
        let id = DetectionId::new(6).unwrap();
        let inputs = Inputs::NONE;
        let mut totals = Totals::default();
        let missing = inputs.with(Input::Symbols).with(Input::ImageIdentity);
        let undetermined = Outcome::undetermined(Severity::High, Reason::ImageMissing, inputs, missing);
        totals.add_outcome(id, &Outcome::yes(Severity::Low, None, Reason::TopImage, inputs), 3);
        totals.add_outcome(id, &Outcome::yes(Severity::High, None, Reason::TopImage, inputs), 2);
        totals.add_outcome(id, &Outcome::no(Reason::AllBacked, inputs), 7);
        totals.add_outcome(id, &undetermined, 5);
        let one = Outcome { missing: inputs.with(Input::ImageIdentity), ..undetermined };
        totals.add_outcome(id, &one, 1);
        let tally = totals.tally(id);
        assert_eq!((tally.yes, tally.findings()), ([0, 3, 0, 2, 0], 5));
        assert_eq!((tally.no, tally.undetermined), (7, 6));
        assert_eq!(tally.severity(), Some(Severity::High));
        assert_eq!(tally.wanted(), [(Input::ImageIdentity, 6), (Input::Symbols, 5)]);
        assert!(totals.iter().all(|(other, tally)| other == id || *tally == Tally::default()));
    }

    #[test]
    fn the_largest_counts_are_added() {
        let id = DetectionId::new(6).unwrap();
        let yes = |severity| Outcome::yes(severity, None, Reason::TopImage, Inputs::NONE);
        let missing = Inputs::NONE.with(Input::Modules);
        let undetermined = Outcome::undetermined(Severity::High, Reason::FrameUnknown, Inputs::NONE, missing);
        let no = Outcome::no(Reason::AllBacked, Inputs::NONE);
        let mut totals = Totals::default();
        let evaluation = Evaluation::new([no; DETECTIONS.len()]);
        for _ in 0..2 {
            totals.add(&evaluation, u64::MAX);
            for outcome in [yes(Severity::Low), yes(Severity::High), undetermined] {
                totals.add_outcome(id, &outcome, u64::MAX);
            }
        }
        totals.merge(&totals.clone());
        totals.change(&id.into(), Severity::Low, Some(Severity::High), u64::MAX);
        let tally = totals.tally(id);
        assert_eq!((totals.events, tally.no, tally.undetermined), (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!((tally.yes, tally.findings()), ([0, 0, 0, u64::MAX, 0], u64::MAX));
        assert_eq!(tally.wanted(), [(Input::Modules, u64::MAX)]);
    }

    #[test]
    fn totals_are_merged_and_unwanted_detections_removed() {
        let (one, other) = (DetectionId::new(6).unwrap(), DetectionId::new(7).unwrap());
        let missing = Inputs::NONE.with(Input::Modules);
        let mut totals = Totals { events: 2, ..Totals::default() };
        totals.add_outcome(one, &Outcome::yes(Severity::Low, None, Reason::TopImage, Inputs::NONE), 3);
        let mut more = Totals { events: 5, ..Totals::default() };
        more.add_outcome(one, &Outcome::yes(Severity::Low, None, Reason::TopImage, Inputs::NONE), 4);
        let undetermined = Outcome::undetermined(Severity::High, Reason::FrameUnknown, Inputs::NONE, missing);
        more.add_outcome(other, &undetermined, 1);
        more.add_outcome(other, &Outcome::no(Reason::AllBacked, Inputs::NONE), 9);
        totals.merge(&more);
        assert_eq!((totals.events, totals.tally(one).yes[1], totals.tally(other).no), (7, 7, 9));
        assert_eq!(totals.tally(other).wanted(), [(Input::Modules, 1)]);
        totals.retain(|id| id == one);
        assert_eq!((totals.tally(one).findings(), totals.tally(other)), (7, &Tally::default()));
    }
}
