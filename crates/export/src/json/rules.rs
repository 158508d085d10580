//! Rules and what is wrong with them, as `rules check` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::VERSION;

/// The rules of some folders: `rules check --format json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Rules<'r> {
    #[cfg_attr(test, schemars(extend("const" = "rules")))]
    r#type: &'static str,
    /// Version of the schema.
    schema_version: u32,
    /// The rules in the order of their files. A file that cannot be read is a rule without an id.
    rules: Vec<Rule<'r>>,
    /// What is suspicious about macros.
    lints: Vec<Lint<'r>>,
}

/// A rule.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Rule<'r> {
    /// Path of the file, as the user named it.
    pub file: &'r str,
    /// The id. Null if the file cannot be read.
    pub id: Option<&'r str>,
    /// The title. Null if the file cannot be read.
    pub name: Option<&'r str>,
    /// The severity that the rule states. Null if it states none.
    #[cfg_attr(test, schemars(extend("enum" = ["low", "medium", "high", "critical", null])))]
    pub severity: Option<&'r str>,
    /// Whether the rule is not disabled in its file.
    pub enabled: bool,
    /// Whether the rule can be used.
    pub loads: bool,
    /// Why it cannot be used. Null if it can.
    pub error: Option<Problem<'r>>,
    /// What is suspicious about it, macros that it uses included.
    pub lints: Vec<Lint<'r>>,
    /// What an evaluation requires, such as `file-events`, `stacks` or `signatures`.
    pub needs: Vec<&'static str>,
    /// The names of the events that it can hold for, of each event of a sequence.
    pub events: Vec<&'r [String]>,
}

/// An error with its place.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Problem<'r> {
    /// Path of the file.
    pub file: &'r str,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// A sentence.
    pub message: String,
}

/// A lint finding.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Lint<'r> {
    /// The kind, such as `never-matches`.
    pub code: &'static str,
    /// Where and what.
    #[serde(flatten)]
    pub problem: Problem<'r>,
}

impl<'r> Rules<'r> {
    /// The document for some rules.
    pub fn new(rules: Vec<Rule<'r>>, lints: Vec<Lint<'r>>) -> Rules<'r> {
        Rules { r#type: "rules", schema_version: VERSION, rules, lints }
    }
}
