//! What came of checking a file.

use std::collections::BTreeMap;
use std::fmt;

use crate::Rule;

/// How often each rule was checked and violated.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The rules that apply to the file. A rule that is missing was never checked.
    pub tallies: BTreeMap<Rule, Tally>,
}

/// What came of one rule.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// How often it was checked.
    pub checks: u64,
    /// How often it was violated.
    pub violations: u64,
    /// The first violation.
    pub first: Option<Violation>,
}

/// A place where a rule does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Offset in the file, in bytes, of the buffer or record; 0 for what concerns the whole file. In a compressed
    /// buffer, a record's offset is the buffer's plus that in the expanded buffer.
    pub offset: usize,
    /// What was found.
    pub found: String,
}

impl Report {
    /// The rules that are violated.
    pub fn violated(&self) -> Vec<Rule> {
        let violated = self.tallies.iter().filter(|(_, tally)| tally.violations > 0);
        violated.map(|(rule, _)| *rule).collect()
    }

    /// Compares the violated rules with those that are known to be, and describes each difference in a line: rules that
    /// are violated and not expected, and rules that are expected and not violated.
    pub fn differences(&self, expected: &[Rule]) -> Vec<String> {
        let violated = self.violated();
        let unexpected = self.tallies.iter().filter(|(rule, _)| !expected.contains(rule));
        let unexpected = unexpected.filter_map(|(rule, tally)| {
            let Violation { offset, found } = tally.first.as_ref()?;
            let Tally { checks, violations, .. } = tally;
            Some(format!("{rule} violated {violations} of {checks} times, first at {offset:#x}: {found}"))
        });
        let missing = expected.iter().filter(|rule| !violated.contains(rule));
        unexpected
            .chain(missing.map(|rule| format!("{rule} expected to be violated, but it holds")))
            .collect()
    }

    /// Counts a check, and a violation unless `holds`; returns `holds`.
    pub(crate) fn check(
        &mut self,
        rule: Rule,
        offset: usize,
        holds: bool,
        found: impl FnOnce() -> String,
    ) -> bool {
        let tally = self.tallies.entry(rule).or_default();
        tally.checks += 1;
        if !holds {
            tally.violations += 1;
            tally.first.get_or_insert_with(|| Violation { offset, found: found() });
        }
        holds
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id(), self.holds())
    }
}
