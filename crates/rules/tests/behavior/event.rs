//! Events of tests: fields with their values, by the text of the field in conditions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackhound_expr::{Value, Visitor};
use stackhound_rules::evaluate::{
    Elements, FieldRef, MissingInputs, Mode, Position, ResolvedField, RuleEvent, RuleSet, Verdict,
};
use stackhound_rules::syntax::FieldUse;
use stackhound_rules::{EventName, Library, Part};

/// A value of a field.
#[derive(Clone, PartialEq, Debug)]
pub enum Datum {
    Text(String),
    Number(i64),
    Decimal(f64),
    Truth(bool),
    Unknown,
    Absent,
}

/// All values of a field; none if it is missing.
pub type Data = Vec<Datum>;

/// What `foreach` visits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct List {
    /// The values of the parts of each element.
    pub elements: Vec<BTreeMap<String, Data>>,
    pub is_complete: bool,
}

/// An event.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    pub name: EventName,
    pub at: Position,
    pub fields: BTreeMap<String, Data>,
    pub lists: BTreeMap<String, List>,
}

pub fn text(text: &str) -> Datum {
    Datum::Text(text.to_owned())
}

impl Datum {
    pub fn text(&self) -> Option<String> {
        match self {
            Datum::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Datum::Text(text) => Value::Text(text),
            Datum::Number(number) => Value::Signed(*number),
            Datum::Decimal(number) => Value::Float(*number),
            Datum::Truth(truth) => Value::Bool(*truth),
            Datum::Unknown => Value::Unknown,
            Datum::Absent => Value::Absent,
        }
    }
}

impl Event {
    pub fn new(name: &str) -> Event {
        Event {
            name: EventName::of(name).unwrap(),
            at: Position::default(),
            fields: BTreeMap::new(),
            lists: BTreeMap::new(),
        }
    }

    pub fn with(mut self, field: &str, data: Data) -> Event {
        self.fields.insert(field.to_owned(), data);
        self
    }

    pub fn at(mut self, time: i64, record: u64) -> Event {
        self.at = Position { time, record };
        self
    }
}

fn visit_all(data: Option<&Data>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    data.into_iter().flatten().try_for_each(|datum| visit(datum.value()))
}

impl RuleEvent for Event {
    type Field = String;

    fn visit(&self, field: &String, visit: &mut Visitor<'_>) -> ControlFlow<()> {
        visit_all(self.fields.get(field), visit)
    }

    fn elements(&self, field: &String) -> Elements {
        let Some(list) = self.lists.get(field) else { return Elements::default() };
        Elements { known: list.elements.len(), is_complete: list.is_complete }
    }

    fn visit_part(
        &self,
        field: &String,
        index: usize,
        part: &'static Part,
        visit: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        visit_all(self.lists[field].elements[index].get(part.name), visit)
    }
}

/// The text of a field in conditions, by its current name.
pub fn key(field: &FieldUse) -> String {
    match &field.argument {
        Some(argument) => format!("{}[{argument}]", field.field.name),
        None => field.field.name.to_owned(),
    }
}

/// The rules of a library for events of tests, which have all fields.
pub fn rule_set(library: &Library, mode: Mode) -> RuleSet<String> {
    let resolve = |field: FieldRef<'_>| match field {
        FieldRef::Field(field) => key(field),
        FieldRef::Data(name) => name.to_owned(),
    };
    RuleSet::new(library, mode, |field, _| Some(ResolvedField { field: resolve(field), cost: 0 }))
}

/// The answer of the only rule of a set for the next event.
pub fn answer(set: &mut RuleSet<String>, event: &Event) -> Option<Verdict> {
    answer_with_missing(set, event).map(|(verdict, _)| verdict)
}

/// The same, with what the answer lacks.
pub fn answer_with_missing(set: &mut RuleSet<String>, event: &Event) -> Option<(Verdict, MissingInputs)> {
    let mut found = None;
    set.evaluate(event.name, event.at, event, |answer| {
        assert_eq!(found, None, "two answers");
        assert_eq!(answer.missing.is_empty(), answer.verdict == Verdict::Yes, "{:?}", answer.missing);
        found = Some((answer.verdict, answer.missing.clone()));
    });
    found
}

/// A library of one rule with a condition.
pub fn library(condition: &str) -> Library {
    let lines: String = condition.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("name: R\nid: 1\nversion: 1.0.0\nmin-engine-version: 3.0.0\ncondition: |\n{lines}");
    let library = Library::read([("rule.yml", text.as_bytes())]);
    assert_eq!(library.errors, [], "{condition}");
    assert!(library.rules[0].condition.is_ok(), "{condition}: {:?}", library.rules[0].condition);
    library
}
