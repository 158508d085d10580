//! What became of all questions: how many were answered, how, and what was missing.

use crate::catalogue::{DETECTIONS, DetectionId};
use crate::verdict::{Evaluation, Input, Outcome, Severity, Verdict};

/// The answers to one detection's question, in raw events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Those that were yes, by [`Severity::ALL`].
    pub yes: [u64; Severity::ALL.len()],
    /// Those that were no.
    pub no: u64,
    /// Those that were undetermined.
    pub undetermined: u64,
    /// Those of them that missed an input, by [`Input::ALL`]. One that missed two is in both.
    pub missing: [u64; Input::ALL.len()],
}

/// The answers to all questions, in raw events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Events that were evaluated.
    pub events: u64,
    tallies: [Tally; DETECTIONS.len()],
}

impl Totals {
    /// Counts an evaluation that holds for so many raw events. Evaluations that are kept for many events are best counted
    /// once with their number.
    pub fn add(&mut self, evaluation: &Evaluation, count: u64) {
        self.events += count;
        for (id, outcome) in evaluation.iter() {
            self.add_outcome(id, outcome, count);
        }
    }

    /// Counts one answer alone, where not all detections are of interest. The events are then counted by the caller.
    pub fn add_outcome(&mut self, id: DetectionId, outcome: &Outcome, count: u64) {
        let tally = &mut self.tallies[id.index()];
        match outcome.verdict {
            Verdict::Yes => tally.yes[outcome.severity as usize] += count,
            Verdict::No => tally.no += count,
            Verdict::Undetermined => {
                tally.undetermined += count;
                for input in outcome.missing.iter() {
                    tally.missing[input as usize] += count;
                }
            }
        }
    }

    /// Counts what was counted elsewhere.
    pub fn merge(&mut self, other: &Totals) {
        self.events += other.events;
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            let counts = [(&mut tally.no, other.no), (&mut tally.undetermined, other.undetermined)];
            let yes = tally.yes.iter_mut().zip(other.yes);
            let missing = tally.missing.iter_mut().zip(other.missing);
            counts.into_iter().chain(yes).chain(missing).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Forgets the answers to questions that are of no interest.
    pub fn retain(&mut self, is_wanted: impl Fn(DetectionId) -> bool) {
        let unwanted = DetectionId::all().filter(|id| !is_wanted(*id));
        unwanted.for_each(|id| self.tallies[id.index()] = Tally::default());
    }

    /// The answers to one detection's question.
    pub fn tally(&self, id: DetectionId) -> &Tally {
        &self.tallies[id.index()]
    }

    /// All of them, in the order of detections.
    pub fn iter(&self) -> impl Iterator<Item = (DetectionId, &Tally)> {
        DetectionId::all().zip(&self.tallies)
    }
}

impl Tally {
    /// Those that were yes.
    pub fn findings(&self) -> u64 {
        self.yes.iter().sum()
    }

    /// How severe they are at most; `None` if none was yes.
    pub fn severity(&self) -> Option<Severity> {
        Severity::ALL.into_iter().rev().find(|severity| self.yes[*severity as usize] > 0)
    }

    /// The inputs that undetermined answers missed, with their numbers, the most frequent first.
    pub fn wanted(&self) -> Vec<(Input, u64)> {
        let mut wanted: Vec<_> =
            Input::ALL.into_iter().zip(self.missing).filter(|(_, count)| *count > 0).collect();
        wanted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Inputs, Reason};

    #[test]
    fn each_answer_is_counted_where_it_belongs() {
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
    fn totals_add_up_and_unwanted_ones_go() {
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
