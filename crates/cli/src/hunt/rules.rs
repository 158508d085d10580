//! The rules of `hunt --rules`, and their answers as findings.

use std::sync::Arc;

use anyhow::{Result, bail};
use stackhound::EventView;
use stackhound::detect::report::{EarlierEvent, Finding, RuleMatch};
use stackhound::detect::{Evaluation, RuleInfo, Severity, Verdict};
use stackhound::hunt::{RuleAnswer, RuleSession};
use stackhound_rules::evaluate::{Mode, Position, Verdict as Answer};
use stackhound_rules::{Head, Library, Rule};
use stackhound_sysmon::rules::LogRules;

use super::Arguments;
use super::report::Report;
use crate::options::Common;
use crate::output::{counted, message};

/// The rules of the arguments.
pub struct Rules {
    library: Library,
    mode: Mode,
    /// What findings state about each rule.
    infos: Vec<(Arc<RuleInfo>, Severity)>,
}

/// The severity of rules that state none.
const SEVERITY: Severity = Severity::Medium;

impl Rules {
    /// Reads the files of the arguments. Rules with errors are reported and not used.
    pub fn read(arguments: &Arguments, common: &Common) -> Result<Rules> {
        let library = match arguments.rules.is_empty() {
            true => Library::default(),
            false => crate::rules::read(&arguments.rules)?,
        };
        let of_rules = library.rules.iter().filter_map(|rule| rule.condition.as_ref().err());
        let errors: Vec<_> = library.errors.iter().chain(of_rules).collect();
        let usable = library.rules.iter().filter(|rule| rule.condition.is_ok()).count();
        if let ([error], 0) = (&errors[..], usable) {
            bail!("{error}");
        }
        for error in &errors {
            message(format_args!("{error}"));
        }
        if !arguments.rules.is_empty() && usable == 0 {
            bail!("no rule can be used");
        }
        if !arguments.rules.is_empty() && !common.quiet {
            let errors = match errors.len() as u64 {
                0 => String::new(),
                count => format!(", {}", counted(count, "error", "errors")),
            };
            message(format_args!("{}{errors}", counted(usable as u64, "rule", "rules")));
        }
        let mode = if arguments.compat { Mode::Compatible } else { Mode::Strict };
        let infos = library.rules.iter().map(|rule| (Arc::new(info(rule)), severity(&rule.head))).collect();
        Ok(Rules { library, mode, infos })
    }

    /// Starts the evaluation of one input.
    pub fn session(&self) -> Session<'_> {
        Session {
            rules: self,
            session: RuleSession::new(&self.library, self.mode),
            answers: Vec::new(),
            record: 0,
        }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.library.rules.is_empty()
    }

    /// The rules for events of Windows logs.
    pub fn of_logs(&self) -> LogRules {
        LogRules::new(&self.library, self.mode)
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

/// Evaluates rules on the events of one input.
pub struct Session<'r> {
    rules: &'r Rules,
    session: RuleSession,
    answers: Vec<RuleAnswer>,
    record: u64,
}

impl Session<'_> {
    /// Whether rules use names of functions.
    pub fn names_functions(&self) -> bool {
        self.session.names_functions()
    }

    /// Counts an event of the input, whether it is evaluated or not.
    pub fn count(&mut self) {
        self.record += 1;
    }

    /// Whether rules are about an event.
    pub fn is_about(&self, view: &EventView<'_>) -> bool {
        self.session.is_about(view)
    }

    /// The findings about an event that are written.
    pub fn findings(
        &mut self,
        view: &EventView<'_>,
        evaluation: Option<&Evaluation>,
        report: &mut Report<'_>,
    ) -> Vec<Finding> {
        self.answers.clear();
        self.session.evaluate(view, self.record, evaluation, &mut self.answers);
        let findings = self.answers.drain(..).map(|answer| self.rules.finding(answer));
        findings.filter(|finding| report.wants_rule(finding, 1)).collect()
    }
}
