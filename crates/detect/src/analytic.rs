//! What a finding is the answer of: a detection, or a rule that a user wrote.

use std::sync::Arc;

use crate::catalogue::DetectionId;

/// A rule that a user wrote.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuleInfo {
    /// The title.
    pub name: String,
    /// The id, such as a UUID.
    pub id: String,
    /// The version, such as `1.0.5`; empty if the rule states none.
    pub version: String,
    /// What it detects; empty if the rule does not state it.
    pub description: String,
    /// The path of the file, as the user named it.
    pub file: String,
    /// ATT&CK techniques with their names, as the rule states them.
    pub techniques: Vec<(String, String)>,
    /// ATT&CK tactics with their names, as the rule states them.
    pub tactics: Vec<(String, String)>,
}

/// A detection or a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Analytic {
    /// A detection.
    Detection(DetectionId),
    /// A rule.
    Rule(Arc<RuleInfo>),
}

/// The number of characters of a rule's id in tables.
const LABEL_LENGTH: usize = 8;

impl Analytic {
    /// The detection, if it is one.
    pub fn detection(&self) -> Option<DetectionId> {
        match self {
            Analytic::Detection(id) => Some(*id),
            Analytic::Rule(_) => None,
        }
    }

    /// The rule, if it is one.
    pub fn rule(&self) -> Option<&RuleInfo> {
        match self {
            Analytic::Detection(_) => None,
            Analytic::Rule(rule) => Some(rule),
        }
    }

    /// The name of the detection, or the id of the rule.
    pub fn name(&self) -> &str {
        match self {
            Analytic::Detection(id) => id.name(),
            Analytic::Rule(rule) => &rule.id,
        }
    }

    /// The name of the detection, or the beginning of the rule's id, for tables.
    pub fn label(&self) -> &str {
        let name = self.name();
        name.char_indices().nth(LABEL_LENGTH).map_or(name, |(end, _)| &name[..end])
    }

    /// The title.
    pub fn title(&self) -> &str {
        match self {
            Analytic::Detection(id) => id.detection().title,
            Analytic::Rule(rule) => &rule.name,
        }
    }

    /// The ATT&CK techniques.
    pub fn techniques(&self) -> Vec<&str> {
        match self {
            Analytic::Detection(id) => id.detection().attack.to_vec(),
            Analytic::Rule(rule) => rule.techniques.iter().map(|(id, _)| id.as_str()).collect(),
        }
    }

    /// What it means on one line: the first paragraph of the explanation without the heading, or
    /// the description of the rule.
    pub fn meaning(&self) -> String {
        let one_line = |text: &str, skipped: usize| {
            let lines = text.lines().skip(skipped).map(str::trim);
            lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
        };
        match self {
            Analytic::Detection(id) => one_line(id.detection().explanation, 1),
            Analytic::Rule(rule) => one_line(rule.description.trim(), 0),
        }
    }
}

impl From<DetectionId> for Analytic {
    fn from(id: DetectionId) -> Analytic {
        Analytic::Detection(id)
    }
}
