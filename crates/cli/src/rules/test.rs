//! `rules test`: runs the test cases of rules.
//!
//! A file of cases names a rule, and for each case events and the expected verdict. Events are those
//! of Windows logs as JSON has them, events of a trace, or names and values of fields.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::Value as Json;
use stackhound::Pipeline;
use stackhound::detect::report::Finding;
use stackhound::detect::{Binaries, Severity};
use stackhound::expr::{Value, Visitor};
use stackhound::hunt::{Analytics, FindingSelection, Hunt, Policy, Rules};
use stackhound::trace::TraceFiles;
use stackhound_rules::evaluate::{
    Elements, FieldRef, Mode, Position, ResolvedField, RuleEvent, RuleSet, Verdict,
};
use stackhound_rules::{EventName, Part};
use stackhound_sysmon::rules::{LogRules, WindowsEvent};
use strum::IntoStaticStr;

use super::Files;
use super::files::{content, read, yaml_files};
use crate::hunt::policy;
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{Sink, counted, message};

#[derive(Args, Debug)]
pub struct Test {
    #[command(flatten)]
    pub files: Files,
    /// Compare missing fields as Fibratus does: as empty, 0 or false
    #[arg(long)]
    pub compat: bool,
}

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The id or the name of the rule.
    rule: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    verdict: Expected,
    #[serde(default)]
    events: Vec<Json>,
    /// A file with one event per line.
    events_file: Option<PathBuf>,
    /// A trace.
    trace: Option<PathBuf>,
    /// A folder with the symbol files of the trace.
    symbols: Option<PathBuf>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
enum Expected {
    Yes,
    Possible,
    Undetermined,
    No,
}

impl Expected {
    fn of(verdict: Option<Verdict>) -> Expected {
        match verdict {
            None => Expected::No,
            Some(Verdict::Undetermined) => Expected::Undetermined,
            Some(Verdict::Possible) => Expected::Possible,
            Some(Verdict::Yes) => Expected::Yes,
        }
    }

    fn name(self) -> &'static str {
        self.into()
    }
}

/// Runs all cases. Something was found if a case fails.
pub fn run(arguments: &Test, common: &Common) -> Result<Outcome> {
    let mode = if arguments.compat { Mode::Compatible } else { Mode::Strict };
    let policy = policy::for_rules(Rules::new(read(&arguments.files.paths)?, mode), common)?;
    let library = policy.rules.library();
    let (mut passed, mut failed, mut tested) = (0, 0, vec![false; library.rules.len()]);
    let mut sink = Sink::text(None)?;
    for path in yaml_files(&arguments.files.paths)? {
        let (name, bytes) = content(&path)?;
        let Ok(text) = str::from_utf8(&bytes) else { continue };
        if !stackhound_rules::has_cases(text) {
            continue;
        }
        let file: File = serde_saphyr::from_str(text).map_err(|error| {
            let location = error.location().map_or((1, 1), |location| (location.line(), location.column()));
            let sentence = error.without_snippet().to_string();
            anyhow!("{name}:{}:{}: {}", location.0, location.1, sentence.lines().next().unwrap_or_default())
        })?;
        let is_named = |head: &stackhound_rules::Head| head.id == file.rule || head.name == file.rule;
        let Some(rule) = library.rules.iter().position(|rule| is_named(&rule.head)) else {
            bail!("{name}: there is no rule `{}` in these files", file.rule);
        };
        if let Err(error) = &library.rules[rule].condition {
            bail!("{error}");
        }
        tested[rule] = true;
        for case in &file.cases {
            let folder = path.parent().unwrap_or(Path::new(""));
            let verdict = case.verdict(&policy, rule, folder);
            let found = Expected::of(verdict.with_context(|| format!("{name}: {}", case.name))?);
            if found == case.verdict {
                passed += 1;
                continue;
            }
            failed += 1;
            let (expected, found) = (case.verdict.name(), found.name());
            writeln!(sink, "{name}: {}: expected {expected}, found {found}", case.name)?;
        }
    }
    sink.finish()?;
    if passed + failed == 0 {
        bail!("expected files with `cases` in the folders of the rules, found none");
    }
    if !common.quiet {
        let without = tested.iter().filter(|is_tested| !**is_tested).count() as u64;
        let without = match without {
            0 => String::new(),
            count => format!(", {} without cases", counted(count, "rule", "rules")),
        };
        message(format_args!("{}, {failed} failed{without}", counted(passed + failed, "case", "cases")));
    }
    Ok(Outcome { found: failed > 0, ..Outcome::default() })
}

impl Case {
    /// The best answer for any of the events; `None` is no.
    fn verdict(&self, policy: &Policy, rule: usize, folder: &Path) -> Result<Option<Verdict>> {
        let (library, mode) = (policy.rules.library(), policy.rules.mode());
        let mut events = self.events.clone();
        if let Some(file) = &self.events_file {
            let text =
                std::fs::read_to_string(folder.join(file)).with_context(|| file.display().to_string())?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                events.push(serde_json::from_str(line).with_context(|| file.display().to_string())?);
            }
        }
        let mut best = match &self.trace {
            Some(trace) => self.of_trace(policy, rule, &folder.join(trace))?,
            None if events.is_empty() => bail!("expected `events`, `events_file` or `trace`"),
            None => None,
        };
        let mut of_logs = LogRules::new(library, mode);
        let mut of_fields = RuleSet::new(library, mode, |used, _| {
            let name = match used {
                FieldRef::Field(used) => match &used.argument {
                    Some(argument) => format!("{}[{argument}]", used.field.name),
                    None => used.field.name.to_owned(),
                },
                FieldRef::Data(name) => name.to_owned(),
            };
            Some(ResolvedField { field: name, cost: 0 })
        });
        for (index, event) in events.iter().enumerate() {
            let record = index as u64 + 1;
            let found = match event.get("event").and_then(Json::as_str) {
                Some(name) => of_given(&mut of_fields, name, event, (rule, record))?,
                None => {
                    let event = WindowsEvent::of(event).ok_or_else(|| {
                        anyhow!("event {record}: expected `event` with a name, or an event of a Windows log")
                    })?;
                    let answers = of_logs.evaluate(&event, record);
                    answers
                        .into_iter()
                        .filter(|answer| answer.rule == rule)
                        .map(|answer| answer.verdict)
                        .max()
                }
            };
            best = best.max(found);
        }
        Ok(best)
    }

    fn of_trace(&self, policy: &Policy, rule: usize, path: &Path) -> Result<Option<Verdict>> {
        let trace = TraceFiles::file(path).open()?;
        let mut pipeline = Pipeline::new(&trace, stackhound::Passes::Two);
        if let Some(symbols) = &self.symbols {
            let folder = path.parent().unwrap_or(Path::new("")).join(symbols);
            pipeline = pipeline.with(naming::from_folder(&folder)?);
        }
        let selection = FindingSelection {
            analytics: Analytics::Rules,
            undetermined: true,
            ..FindingSelection::from_severity(Severity::Info)
        };
        let hunt = Hunt::new(policy.clone(), Binaries::none(), selection);
        let (mut best, analytic) = (None, policy.rules.analytic(rule));
        hunt.run(
            pipeline,
            Vec::new(),
            |_| ControlFlow::Continue(true),
            |event| {
                let own = event.findings.iter().filter(|finding| finding.analytic == analytic);
                best = best.max(own.filter_map(answer).max());
                ControlFlow::Continue(())
            },
        );
        Ok(best)
    }
}

/// The answer of a rule that a finding states.
fn answer(finding: &Finding) -> Option<Verdict> {
    match finding.outcome.verdict {
        stackhound::detect::Verdict::Yes => Some(Verdict::Yes),
        stackhound::detect::Verdict::Undetermined => {
            let is_possible = finding.rule_match.as_ref().is_some_and(|of_rule| of_rule.is_possible);
            Some(if is_possible { Verdict::Possible } else { Verdict::Undetermined })
        }
        stackhound::detect::Verdict::No => None,
    }
}

/// The answer for an event with names and values of fields.
fn of_given(
    rules: &mut RuleSet<String>,
    name: &str,
    event: &Json,
    (rule, record): (usize, u64),
) -> Result<Option<Verdict>> {
    let Some(name) = EventName::of(name) else { bail!("event {record}: there is no event `{name}`") };
    let Json::Object(fields) = event else { bail!("event {record}: expected names and values") };
    // In seconds.
    let time = match fields.get("time") {
        None => 0.0,
        Some(time) => time.as_f64().ok_or_else(|| anyhow!("event {record}: expected `time` in seconds"))?,
    };
    let values = fields.iter().filter(|(name, _)| !["event", "time"].contains(&name.as_str()));
    let given = GivenEvent(values.map(|(name, value)| (name.clone(), value.clone())).collect());
    let mut best = None;
    rules.evaluate(name, Position { time: (time * 1e7) as i64, record }, &given, |answer| {
        if answer.rule == rule {
            best = best.max(Some(answer.verdict));
        }
    });
    Ok(best)
}

/// An event with names and values of fields. `null` is a field that is known to have no value.
struct GivenEvent(BTreeMap<String, Json>);

fn visit_value(value: &Json, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match value {
        Json::Null => visit(Value::Absent),
        Json::Bool(truth) => visit(Value::Bool(*truth)),
        Json::String(text) => visit(Value::Text(text)),
        Json::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => visit(Value::Unsigned(number)),
            (None, Some(number)) => visit(Value::Signed(number)),
            _ => visit(Value::Float(number.as_f64().unwrap_or(f64::NAN))),
        },
        Json::Array(values) if values.is_empty() => visit(Value::Absent),
        Json::Array(values) => values.iter().try_for_each(|value| visit_value(value, visit)),
        Json::Object(_) => ControlFlow::Continue(()),
    }
}

impl RuleEvent for GivenEvent {
    type Field = String;

    fn visit(&self, field: &String, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        self.0.get(field).map_or(ControlFlow::Continue(()), |value| visit_value(value, visit))
    }

    fn elements(&self, field: &String) -> Elements {
        match self.0.get(field) {
            Some(Json::Array(elements)) => Elements { known: elements.len(), is_complete: true },
            Some(Json::Null) => Elements { known: 0, is_complete: true },
            _ => Elements::default(),
        }
    }

    fn visit_part(
        &self,
        field: &String,
        index: usize,
        part: &'static Part,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        let element = self.0.get(field).and_then(|elements| elements.get(index));
        let value = element.and_then(|element| element.get(part.name));
        value.map_or(ControlFlow::Continue(()), |value| visit_value(value, visit))
    }
}
