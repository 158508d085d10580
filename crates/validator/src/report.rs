//! The result of checking a file.

use std::collections::BTreeMap;
use std::fmt;

use crate::Rule;

/// The number of checks and violations of each rule.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// The results of the rules that apply to the file. A missing rule was never checked.
    pub tallies: BTreeMap<Rule, Tally>,
}

/// The result of one rule.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Number of checks.
    pub checks: u64,
    /// Number of violations.
    pub violations: u64,
    /// The first violation.
    pub first: Option<Violation>,
}

/// A violation of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Offset of the buffer or record in the file, in bytes; 0 for the whole file. For a record in
    /// a compressed buffer, it is the offset of the buffer plus that of the record in the expanded
    /// buffer.
    pub offset: usize,
    /// The value that violates the rule.
    pub found: String,
}

impl Report {
    /// The rules that are violated.
    pub fn violated(&self) -> Vec<Rule> {
        let violated = self.tallies.iter().filter(|(_, tally)| tally.violations > 0);
        violated.map(|(rule, _)| *rule).collect()
    }

    /// Compares the violated rules with the expected ones, and describes each difference in one
    /// line: unexpected violations, and expected violations that did not occur.
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

    /// Counts a check, and a violation unless `holds`. Returns `holds`.
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
