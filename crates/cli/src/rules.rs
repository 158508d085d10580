//! `rules`: checks, lists and explains detection rules.

pub mod files;
mod test;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use stackhound_export::escape::Plain;
use stackhound_export::json::rules as json;
use stackhound_rules::source::SourceLocation;
use stackhound_rules::{Library, Lint, Need, Rule};

use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, counted, message};

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Check rules: errors, what is suspicious, and what each rule requires
    ///
    /// The exit code is 1 if a rule cannot be used or something is suspicious.
    Check(Check),
    /// List rules with their severities, events and requirements
    List(List),
    /// Run the test cases of rules
    ///
    /// The exit code is 1 if a case fails.
    Test(test::Test),
    /// Explain a rule: its description, events, requirements and condition
    Explain(Explain),
}

#[derive(Args, Debug)]
pub struct Files {
    /// Files and directories with rules and macros in YAML (.yml, .yaml)
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Check {
    #[command(flatten)]
    pub files: Files,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    pub files: Files,
}

#[derive(Args, Debug)]
pub struct Explain {
    /// Explain this rule: its id, or a part of its name in any case
    #[arg(value_name = "RULE")]
    pub rule: String,
    #[command(flatten)]
    pub files: Files,
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Check(arguments) => check(arguments, common),
        Verb::List(arguments) => list(arguments, common),
        Verb::Test(arguments) => test::run(arguments, common),
        Verb::Explain(arguments) => explain(arguments),
    }
}

fn check(arguments: &Check, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let library = files::read(&arguments.files.paths)?;
    let mut sink = arguments.output.sentences(format)?;
    match format {
        ListFormat::Json => sink.json(&document(&library))?,
        ListFormat::Table => problems(&mut sink, &library)?,
    }
    sink.finish()?;
    let errors = library.errors.len() + library.rules.iter().filter(|rule| rule.condition.is_err()).count();
    let lints = lints(&library).len();
    if !common.quiet {
        let rules = counted(library.rules.len() as u64, "rule", "rules");
        let errors = counted(errors as u64, "error", "errors");
        message(format_args!(
            "{rules}, {errors}, {}",
            counted(lints as u64, "lint finding", "lint findings")
        ));
    }
    Ok(Outcome { found: errors + lints > 0, ..Outcome::default() })
}

/// All errors and lint findings with their lines.
fn problems(out: &mut impl Write, library: &Library) -> io::Result<()> {
    let mut problem = |location: &SourceLocation, kind: &str, sentence: &str| {
        writeln!(out, "{}: {kind}: {}", Plain(location), Plain(sentence))?;
        writeln!(out, "{}", location.marked())
    };
    for error in &library.errors {
        problem(&error.location, "error", &error.kind.to_string())?;
    }
    for rule in &library.rules {
        if let Err(error) = &rule.condition {
            problem(&error.location, "error", &error.kind.to_string())?;
        }
    }
    lints(library)
        .into_iter()
        .try_for_each(|lint| problem(&lint.location, lint.kind.code(), &lint.kind.to_string()))
}

/// All lint findings, by location. A macro that several rules use is reported once.
fn lints(library: &Library) -> Vec<&Lint> {
    let of_rules = library.rules.iter().flat_map(|rule| &rule.lints);
    let mut lints: Vec<&Lint> = of_rules.chain(&library.lints).collect();
    lints.sort_unstable();
    lints.dedup();
    lints
}

fn document(library: &Library) -> json::Rules<'_> {
    let unreadable = library.errors.iter().map(|error| json::Rule {
        file: &error.location.file,
        id: None,
        name: None,
        severity: None,
        enabled: false,
        loads: false,
        error: Some(located(&error.location, error.kind.to_string())),
        lints: Vec::new(),
        needs: Vec::new(),
        events: Vec::new(),
    });
    let rules = library.rules.iter().map(|rule| {
        let (error, condition) = match &rule.condition {
            Ok(condition) => (None, Some(condition)),
            Err(error) => (Some(located(&error.location, error.kind.to_string())), None),
        };
        json::Rule {
            file: &rule.file,
            id: Some(&rule.head.id),
            name: Some(&rule.head.name),
            severity: Some(&*rule.head.severity).filter(|severity| !severity.is_empty()),
            enabled: rule.head.is_enabled,
            loads: error.is_none(),
            error,
            lints: rule.lints.iter().map(lint).collect(),
            needs: condition
                .into_iter()
                .flat_map(|condition| condition.needs.iter())
                .map(Need::name)
                .collect(),
            events: condition
                .into_iter()
                .flat_map(|condition| &condition.events)
                .map(Vec::as_slice)
                .collect(),
        }
    });
    json::Rules::new(unreadable.chain(rules).collect(), library.lints.iter().map(lint).collect())
}

fn lint(lint: &Lint) -> json::Lint<'_> {
    json::Lint { code: lint.kind.code(), problem: located(&lint.location, lint.kind.to_string()) }
}

fn located(location: &SourceLocation, message: String) -> json::Problem<'_> {
    json::Problem { file: &location.file, line: location.line, column: location.column, message }
}

fn list(arguments: &List, common: &Common) -> Result<Outcome> {
    let library = files::read(&arguments.files.paths)?;
    if let (Some(error), true) = (library.errors.first(), library.rules.is_empty()) {
        bail!("{}: {}", error.location, error.kind);
    }
    let mut sink = Sink::rows(None)?;
    for rule in &library.rules {
        let severity = if rule.head.severity.is_empty() { "-" } else { &rule.head.severity };
        writeln!(sink, "{severity:<8}  {}", Plain(&rule.head.name))?;
        match &rule.condition {
            Ok(condition) => {
                writeln!(sink, "          {}", events(&condition.events))?;
                writeln!(sink, "          needs {}", needs(rule))?;
            }
            Err(error) => writeln!(sink, "          cannot be used: {}", Plain(error))?,
        }
    }
    sink.finish()?;
    if !common.quiet {
        let rules = counted(library.rules.len() as u64, "rule", "rules");
        let errors = match library.errors.len() {
            0 => String::new(),
            errors => format!(
                ", {}; `stackhound rules check` shows them",
                counted(errors as u64, "error", "errors")
            ),
        };
        message(format_args!("{rules}{errors}"));
    }
    Ok(Outcome::default())
}

/// The events of each slot, in their order.
fn events(slots: &[Vec<String>]) -> String {
    slots.iter().map(|names| names.join(" or ")).collect::<Vec<_>>().join(", then ")
}

fn needs(rule: &Rule) -> String {
    let needs = rule.condition.iter().flat_map(|condition| condition.needs.iter());
    needs.map(Need::name).collect::<Vec<_>>().join(", ")
}

fn explain(arguments: &Explain) -> Result<Outcome> {
    let library = files::read(&arguments.files.paths)?;
    let rule = find(&library, &arguments.rule)?;
    let mut sink = Sink::text(None)?;
    let head = &rule.head;
    writeln!(sink, "{}", Plain(&head.name))?;
    writeln!(sink, "Rule {}, version {}, {}", Plain(&head.id), Plain(&head.version), Plain(&rule.file))?;
    for (label, value) in [
        ("Severity", &*head.severity),
        ("ATT&CK", &*attack(rule)),
        ("Actions (never executed on traces)", &*head.actions.join(", ")),
    ] {
        if !value.is_empty() {
            writeln!(sink, "{label}: {}", Plain(value))?;
        }
    }
    for text in [&head.description, &head.notes] {
        if !text.trim().is_empty() {
            writeln!(sink)?;
            lines(&mut sink, text, "")?;
        }
    }
    writeln!(sink)?;
    match &rule.condition {
        Ok(condition) => {
            writeln!(sink, "Events: {}", events(&condition.events))?;
            writeln!(sink, "Needs: {}", needs(rule))?;
        }
        Err(error) => writeln!(sink, "Cannot be used: {}", Plain(error))?,
    }
    for lint in &rule.lints {
        writeln!(sink, "Line {}: {}", lint.location.line, Plain(&lint.kind))?;
    }
    writeln!(sink, "\nCondition:")?;
    lines(&mut sink, &rule.text, "  ")?;
    sink.finish()?;
    Ok(Outcome::default())
}

/// The lines of a text, without control characters.
fn lines(out: &mut impl Write, text: &str, indentation: &str) -> io::Result<()> {
    text.trim_end().lines().try_for_each(|line| writeln!(out, "{indentation}{}", Plain(line)))
}

/// The techniques and tactics in the labels.
fn attack(rule: &Rule) -> String {
    let of = |label: &str| rule.head.labels.get(label).map(String::as_str);
    let ids = ["tactic.id", "technique.id", "subtechnique.id"].into_iter().filter_map(of);
    ids.collect::<Vec<_>>().join(", ")
}

fn find<'l>(library: &'l Library, wanted: &str) -> Result<&'l Rule> {
    if let Some(rule) = library.rules.iter().find(|rule| rule.head.id.eq_ignore_ascii_case(wanted)) {
        return Ok(rule);
    }
    let wanted_name = wanted.to_lowercase();
    let with_name = |rule: &&Rule| rule.head.name.to_lowercase().contains(&wanted_name);
    let found: Vec<&Rule> = library.rules.iter().filter(with_name).collect();
    match &found[..] {
        [rule] => Ok(rule),
        [] => Err(anyhow!("no rule has the id or name `{wanted}`; `stackhound rules list` lists all")),
        several => {
            let names: Vec<_> = several.iter().map(|rule| format!("`{}`", rule.head.name)).collect();
            Err(anyhow!("several rules are named like `{wanted}`: {}", names.join(", ")))
        }
    }
}
