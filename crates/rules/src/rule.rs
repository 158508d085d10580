//! What a library consists of. Does not read files.

use std::collections::BTreeMap;

use crate::error::{Error, Lint};
use crate::needs::Needs;
use crate::syntax::Condition;

/// Rules with their macros.
#[derive(Debug, Default)]
pub struct Library {
    /// The rules in the order of their files.
    pub rules: Vec<Rule>,
    /// Files that cannot be read, and files of macros with errors.
    pub errors: Vec<Error>,
    /// What is suspicious about macros.
    pub lints: Vec<Lint>,
}

/// A rule of a library.
#[derive(Debug)]
pub struct Rule {
    /// The path of its file as the user named it.
    pub file: String,
    /// What it states in addition to its condition.
    pub head: Head,
    /// The text of its condition.
    pub text: String,
    /// Its condition, or why it cannot be used.
    pub condition: Result<RuleCondition, Error>,
    /// What is suspicious about it, in the order of locations.
    pub lints: Vec<Lint>,
}

/// A condition that was checked.
#[derive(Debug)]
pub struct RuleCondition {
    /// The condition.
    pub tree: Condition,
    /// The names of the events that it can hold for, of each slot.
    pub events: Vec<Vec<String>>,
    /// What an evaluation needs.
    pub needs: Needs,
}

/// What a rule states in addition to its condition.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Head {
    /// A UUID.
    pub id: String,
    /// The title.
    pub name: String,
    /// The name by which correlations refer to it; empty if it has none.
    pub alias: String,
    /// Such as `1.0.5`.
    pub version: String,
    /// What the rule detects.
    pub description: String,
    /// The text of a finding, with fields such as `%ps.exe`.
    pub output: String,
    /// Notes for people.
    pub notes: String,
    /// One of `low`, `medium`, `high` and `critical`; empty if it is not stated.
    pub severity: String,
    /// Whether the rule is used.
    pub is_enabled: bool,
    /// Such as `technique.id: T1055`.
    pub labels: BTreeMap<String, String>,
    /// Free tags.
    pub tags: Vec<String>,
    /// Links.
    pub references: Vec<String>,
    /// Who wrote it.
    pub authors: Vec<String>,
    /// What Fibratus does, such as `kill`. Never executed here.
    pub actions: Vec<String>,
    /// The version of Fibratus that the rule is written for.
    pub min_engine_version: String,
}

impl Head {
    /// Whether a correlation means this rule.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.id == name || self.alias == name || self.name == name
    }
}
