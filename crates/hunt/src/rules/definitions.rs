//! The rules of a hunt, and their answers as findings.

use std::sync::Arc;

use stackhound_detect::report::{EarlierEvent, Finding, RuleMatch};
use stackhound_detect::{Analytic, RuleInfo, Severity, Verdict};
use stackhound_rules::evaluate::{Mode, Position, RuleAnswer, Verdict as Answer};
use stackhound_rules::{Head, Library, Need, Rule};

/// The severity of rules that state none.
const SEVERITY: Severity = Severity::Medium;

/// Rules that users wrote, and how they compare missing fields.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    library: Arc<Library>,
    mode: Mode,
    /// What findings state about each rule.
    infos: Vec<(Arc<RuleInfo>, Severity)>,
}

impl Rules {
    /// The rules of a library. Those with errors are not evaluated.
    pub fn new(library: Library, mode: Mode) -> Rules {
        let infos = library.rules.iter().map(|rule| (Arc::new(info(rule)), severity(&rule.head))).collect();
        Rules { library: Arc::new(library), mode, infos }
    }

    /// The library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// How missing fields are compared.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.library.rules.is_empty()
    }

    /// Whether rules use names of functions: they should then be looked up in advance.
    pub fn names_functions(&self) -> bool {
        let conditions = self.library.rules.iter().filter_map(|rule| rule.condition.as_ref().ok());
        conditions.into_iter().any(|condition| condition.needs.has(Need::FunctionNames))
    }

    /// What findings of a rule name, by its index in the library.
    pub fn analytic(&self, rule: usize) -> Analytic {
        Analytic::Rule(Arc::clone(&self.infos[rule].0))
    }

    /// The finding of an answer.
    pub fn finding(&self, answer: RuleAnswer) -> Finding {
        let RuleAnswer { rule, verdict, missing, text, earlier } = answer;
        let (info, severity) = &self.infos[rule];
        let one = |at: Position| EarlierEvent { record: at.record, time: u64::try_from(at.time).ok() };
        let rule_match = RuleMatch {
            text,
            is_possible: verdict == Answer::Possible,
            missing: missing.iter().map(|missing| missing.name().to_owned()).collect(),
            earlier: earlier.into_iter().map(one).collect(),
        };
        let verdict = if verdict == Answer::Yes { Verdict::Yes } else { Verdict::Undetermined };
        Finding::of_rule(Arc::clone(info), *severity, verdict, rule_match)
    }
}

/// What findings state about a rule.
fn info(rule: &Rule) -> RuleInfo {
    let Head { id, name, version, description, labels, .. } = &rule.head;
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    // Labels are free text.
    let is_id = |id: &str, start: &str| {
        let digits = id.strip_prefix(start).map(|digits| digits.split_once('.').unwrap_or((digits, "000")));
        let are_digits = |text: &str, count| text.len() == count && text.bytes().all(|c| c.is_ascii_digit());
        digits.is_some_and(|(digits, sub)| are_digits(digits, 4) && are_digits(sub, 3))
    };
    let pair = |kind: &str, start: &str| {
        let id = label(&format!("{kind}.id"));
        is_id(&id, start).then(|| (id, label(&format!("{kind}.name"))))
    };
    RuleInfo {
        name: name.clone(),
        id: id.clone(),
        version: version.clone(),
        description: description.clone(),
        file: rule.file.clone(),
        techniques: [pair("technique", "T"), pair("subtechnique", "T")].into_iter().flatten().collect(),
        tactics: pair("tactic", "TA").into_iter().collect(),
    }
}

fn severity(head: &Head) -> Severity {
    Severity::of(&head.severity).unwrap_or(SEVERITY)
}
