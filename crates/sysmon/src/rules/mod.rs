//! Evaluates rules on events of Windows logs: Sysmon's, and for rules of Sigma those of other
//! channels.
//!
//! An event states all its data, so a name that it does not have is known to be absent for rules of
//! Sigma. Fields of conditions that Sysmon does not report stay missing.

mod event;
mod field;

use std::io::{BufRead, Seek};
use std::ops::ControlFlow;

pub use event::WindowsEvent;
pub use field::LogField;
use stackhound_detect::report::{EventContext, EventReport, ProcessReport, SourceLocation};
use stackhound_expr::{Value, Visitor};
use stackhound_facts::{FactId, FactType, FactValue, ProcessFact, ProcessFacts};
use stackhound_rules::evaluate::{
    Answer, Elements, Mode, Position, RuleAnswer, RuleEvent, RuleSet, arguments,
};
use stackhound_rules::names::flags;
use stackhound_rules::{DataForm, DataSource, Library, Part};
use stackhound_types::file_name;

use crate::blocks;
use crate::event_context::aim;
use crate::field::Field;
use crate::hunt::{Error, Format, detect_format};
use crate::row::Aim;

const CONTINUE: ControlFlow<()> = ControlFlow::Continue(());

/// The rules of a library, for events of Windows logs.
#[derive(Debug)]
pub struct LogRules {
    rules: RuleSet<LogField>,
}

impl LogRules {
    /// Compiles the rules of a library.
    pub fn new(library: &Library, mode: Mode) -> LogRules {
        LogRules { rules: RuleSet::new(library, mode, LogField::resolve) }
    }

    /// Evaluates the rules about an event; `record` is its number in its source. Events must be
    /// passed in the order of their time for sequences.
    pub fn evaluate(&mut self, event: &WindowsEvent, record: u64) -> Vec<RuleAnswer> {
        let time = event.time.and_then(|time| i64::try_from(time).ok()).unwrap_or(0);
        let at = Position { time, record };
        let mut answers = Vec::new();
        for name in field::names(event) {
            self.rules.evaluate(name, at, event, |answer: &Answer<'_, WindowsEvent>| {
                answers.push(answer.into());
            });
        }
        answers
    }

    /// Evaluates the rules about all events of a file, and calls `on` for each event with answers
    /// until it breaks. Returns the number of events.
    ///
    /// # Errors
    /// If the format is unknown, or the file cannot be read completely. Lines and records that
    /// cannot be read are skipped, since the hunt for findings of detections reports them.
    pub fn hunt(
        &mut self,
        mut input: impl BufRead + Seek,
        mut on: impl FnMut(&WindowsEvent, u64, Vec<RuleAnswer>) -> ControlFlow<()>,
    ) -> Result<u64, Error> {
        let mut count = 0;
        let mut one = |json: &[u8], record: u64| {
            let document = serde_json::from_slice(json).ok();
            let Some(event) = document.as_ref().and_then(WindowsEvent::of) else { return CONTINUE };
            count += 1;
            let answers = self.evaluate(&event, record);
            if answers.is_empty() { CONTINUE } else { on(&event, record, answers) }
        };
        match detect_format(input.fill_buf()?) {
            Some(Format::Json) => blocks::for_each_json(blocks::lines(input), &mut one)?,
            Some(Format::Evtx) => {
                let mut parser = blocks::records(input, 1).map_err(crate::hunt::evtx_error)?;
                blocks::for_each_json(blocks::listed(&mut parser), &mut one)?;
            }
            None => return Err(Error::UnknownFormat),
        }
        Ok(count)
    }
}

impl WindowsEvent {
    /// The event with its process, for findings.
    pub fn context(&self, file: &str, record: u64) -> EventContext {
        let get = |field: Field| {
            // Names of the acting process itself precede those in events with a target.
            let mut names = field.names().data.iter().rev();
            names.find_map(|name| self.get(name)).unwrap_or_default()
        };
        let number = |field: Field| get(field).parse().ok();
        let target_pid = number(Field::TargetPid);
        let target_path = get(Field::TargetImage);
        let is_targeted = target_pid.is_some() || !target_path.is_empty();
        EventContext {
            location: SourceLocation { file: file.to_owned(), record },
            count: self.count,
            time: self.time,
            host: self.host.clone(),
            process: ProcessReport {
                pid: number(Field::Pid),
                tid: number(Field::Tid),
                facts: ProcessFacts::new(|fact| self.process_fact(fact)),
                ..ProcessReport::default()
            },
            event: EventReport {
                name: self.id.map(|id| format!("EventID({id})")).unwrap_or_default(),
                provider: if self.provider.is_empty() { self.channel.clone() } else { self.provider.clone() },
                target: is_targeted.then(|| aim(&Aim { pid: target_pid, image: target_path })),
                ..EventReport::default()
            },
            ..EventContext::default()
        }
    }

    /// The getter of the catalogue: the data with the names of the fact.
    fn process_fact(&self, fact: ProcessFact) -> Option<FactValue<'static>> {
        if fact == ProcessFact::Name {
            let path = self.process_fact(ProcessFact::Path)?;
            return Some(file_name(&path.to_string()).to_owned().into());
        }
        let row = fact.row();
        let text = row.sigma.iter().find_map(|name| self.get(name)).filter(|text| !text.is_empty())?;
        Some(match (fact, row.r#type) {
            (ProcessFact::Integrity, _) => text.to_ascii_lowercase().into(),
            (_, FactType::Text) => text.to_owned().into(),
            (_, FactType::Number) => FactValue::Number(text.parse().ok()?),
            (_, FactType::Hex | FactType::Time) => return None,
        })
    }

    /// Names of the header that rules of Sigma use like data.
    fn header_text(&self, name: &str) -> Option<String> {
        if name.eq_ignore_ascii_case("EventID") {
            return self.id.map(|id| id.to_string());
        }
        let known = [("Provider_Name", &self.provider), ("Channel", &self.channel), ("Computer", &self.host)];
        let found = known.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, text)| text.clone()).filter(|text| !text.is_empty())
    }
}

impl RuleEvent for WindowsEvent {
    type Field = LogField;

    fn visit(&self, field: &LogField, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        match field {
            LogField::All => self.data.iter().try_for_each(|(_, text)| visit(Value::Text(text))),
            LogField::Named(name) => match self.get(name) {
                Some(text) => visit(Value::Text(text)),
                None => match self.header_text(name) {
                    Some(text) => visit(Value::Text(&text)),
                    None => visit(Value::Absent),
                },
            },
            LogField::Known(DataSource { form: DataForm::Constant(text), .. }) => visit(Value::Text(text)),
            LogField::Known(source) => match source.names.iter().find_map(|name| self.get(name)) {
                Some(text) => spelled(text, source.form, visit),
                None => CONTINUE,
            },
        }
    }

    fn elements(&self, _: &LogField) -> Elements {
        Elements::default()
    }

    fn visit_part(&self, _: &LogField, _: usize, _: &'static Part, _: &mut Visitor<'_>) -> ControlFlow<()> {
        CONTINUE
    }
}

/// Visits a text in the spelling of rules.
fn spelled(text: &str, form: DataForm, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match form {
        DataForm::Text | DataForm::Constant(_) => visit(Value::Text(text)),
        DataForm::FileName => visit(Value::Text(file_name(text))),
        DataForm::Extension => {
            let name = file_name(text);
            visit(Value::Text(name.rfind('.').map_or("", |at| &name[at..])))
        }
        DataForm::Upper => visit(Value::Text(&text.to_uppercase())),
        DataForm::Domain => visit(Value::Text(text.split_once('\\').map_or("", |(domain, _)| domain))),
        DataForm::User => visit(Value::Text(text.split_once('\\').map_or(text, |(_, user)| user))),
        DataForm::Registry => {
            const ROOTS: [(&str, &str); 3] =
                [("HKLM\\", "HKEY_LOCAL_MACHINE"), ("HKU\\", "HKEY_USERS"), ("HKCR\\", "HKEY_CLASSES_ROOT")];
            let root = ROOTS.iter().find(|(short, _)| text.starts_with(short));
            let path = root.map_or_else(
                || text.to_owned(),
                |(short, long)| format!("{long}{}", &text[short.len() - 1..]),
            );
            visit(Value::Text(&path))
        }
        DataForm::FlagList(names) => {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
            let Some(rights) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) else {
                return visit(Value::Unknown);
            };
            flags(names, rights).try_for_each(|name| visit(Value::Text(name)))
        }
        DataForm::Hex => {
            let digits = text.trim_start_matches("0x").trim_start_matches('0').to_ascii_lowercase();
            visit(Value::Text(&digits))
        }
        DataForm::Arguments => {
            let all = arguments(text);
            if all.is_empty() {
                return visit(Value::Absent);
            }
            all.iter().try_for_each(|argument| visit(Value::Text(argument)))
        }
        DataForm::Truth => match text {
            text if text.eq_ignore_ascii_case("true") => visit(Value::Bool(true)),
            text if text.eq_ignore_ascii_case("false") => visit(Value::Bool(false)),
            _ => visit(Value::Unknown),
        },
        DataForm::IsValid => match text {
            text if text.eq_ignore_ascii_case("valid") => visit(Value::Bool(true)),
            text if text.is_empty() || text == "-" || text.eq_ignore_ascii_case("unavailable") => {
                visit(Value::Unknown)
            }
            _ => visit(Value::Bool(false)),
        },
        DataForm::Parts => {
            text.split(';').filter(|part| !part.is_empty()).try_for_each(|part| visit(Value::Text(part)))
        }
        DataForm::StackModules => {
            let modules: Vec<&str> = frames(text).collect();
            modules.iter().rev().try_for_each(|module| visit(Value::Text(module)))?;
            // Sysmon writes a limited number of frames.
            visit(Value::Unknown)
        }
        DataForm::StackSummary => {
            let mut names: Vec<&str> = frames(text).map(file_name).collect();
            names.dedup();
            visit(Value::Text(&names.join("|")))
        }
        DataForm::IsUnbacked => {
            let is_unbacked = frames(text).any(|module| module == "unbacked");
            visit(if is_unbacked { Value::Bool(true) } else { Value::Unknown })
        }
    }
}

/// The modules of the frames of a stack in Sysmon's text, innermost first.
fn frames(call_trace: &str) -> impl Iterator<Item = &str> {
    call_trace.split('|').filter(|frame| !frame.is_empty()).map(|frame| {
        if frame.starts_with("UNKNOWN(") {
            return "unbacked";
        }
        frame.rsplit_once('+').map_or(frame, |(module, _)| module)
    })
}
