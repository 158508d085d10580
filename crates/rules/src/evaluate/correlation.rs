//! Correlations: answers of other rules within a time, by the values that their events share.

use std::collections::{HashSet, VecDeque};

use hashbrown::HashMap;

use super::missing::MissingInputs;
use super::sequence::{Certainty, Kept, Position};
use crate::syntax::{Correlation, CorrelationKind, CountRange};

/// The limits of groups, and of answers of one group.
const GROUPS_MAX: usize = 1 << 14;
const ANSWERS_MAX: usize = 1 << 14;

/// An answer of one of the other rules.
#[derive(Debug)]
struct OtherAnswer {
    at: Position,
    /// The position among the rules of the correlation.
    rule: usize,
    is_certain: bool,
    missing: MissingInputs,
    /// The value that is counted.
    value: Kept,
}

/// The state of a correlation.
#[derive(Debug)]
pub(crate) struct CorrelationState {
    kind: CorrelationKind,
    rules: usize,
    /// The longest time in units of 100 ns.
    span: i64,
    groups: HashMap<Box<[Kept]>, VecDeque<OtherAnswer>, foldhash::fast::RandomState>,
    /// The number of answers that were dropped to bound the memory.
    pub dropped: u64,
}

impl CorrelationState {
    pub fn new(correlation: &Correlation) -> CorrelationState {
        CorrelationState {
            kind: correlation.kind.clone(),
            rules: correlation.rules.len(),
            span: i64::try_from(correlation.span.as_nanos() / 100).unwrap_or(i64::MAX),
            groups: HashMap::default(),
            dropped: 0,
        }
    }

    /// Adds an answer. Returns the certainty of the correlation with it, what its answers lack, and the
    /// positions of the earlier ones; `None` if it does not hold.
    pub fn add(
        &mut self,
        group: Box<[Kept]>,
        at: Position,
        (rule, certainty, missing): (usize, Certainty, MissingInputs),
        value: Kept,
    ) -> Option<(Certainty, MissingInputs, Vec<Position>)> {
        let from = at.time.saturating_sub(self.span);
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            self.groups.retain(|_, answers| answers.back().is_some_and(|last| last.at.time > from));
            if self.groups.len() >= GROUPS_MAX {
                self.dropped += self.groups.values().map(|answers| answers.len() as u64).sum::<u64>();
                self.groups.clear();
            }
        }
        let answers = self.groups.entry(group).or_default();
        while answers.front().is_some_and(|first| first.at.time <= from) {
            answers.pop_front();
        }
        if answers.len() >= ANSWERS_MAX {
            answers.pop_front();
            self.dropped += 1;
        }
        let is_certain = certainty == Certainty::Certain;
        answers.push_back(OtherAnswer { at, rule, is_certain, missing, value });
        let is_certain = holds(&self.kind, self.rules, answers.iter().filter(|answer| answer.is_certain));
        let certainty = match is_certain && certainty == Certainty::Certain {
            true => Certainty::Certain,
            false if holds(&self.kind, self.rules, answers.iter()) => Certainty::Undetermined,
            false => return None,
        };
        let mut missing = MissingInputs::NONE;
        answers.iter().for_each(|answer| missing.add_all(&answer.missing));
        let earlier = answers.iter().take(answers.len() - 1).rev().take(EARLIER_MAX).map(|answer| answer.at);
        let mut earlier: Vec<Position> = earlier.collect();
        earlier.reverse();
        Some((certainty, missing, earlier))
    }
}

/// The limit of earlier events in a finding.
const EARLIER_MAX: usize = 16;

fn holds<'a>(kind: &CorrelationKind, rules: usize, answers: impl Iterator<Item = &'a OtherAnswer>) -> bool {
    let is_in = |range: &CountRange, count: usize| (range.least..=range.most).contains(&(count as u64));
    match kind {
        CorrelationKind::EventCount(range) => is_in(range, answers.count()),
        CorrelationKind::ValueCount(range, _) => {
            let values: HashSet<&Kept> = answers.map(|answer| &answer.value).collect();
            is_in(range, values.len())
        }
        CorrelationKind::Temporal => {
            let found: HashSet<usize> = answers.map(|answer| answer.rule).collect();
            found.len() == rules
        }
        CorrelationKind::TemporalOrdered => {
            let next = answers.fold(0, |next, answer| if answer.rule == next { next + 1 } else { next });
            next == rules
        }
    }
}
