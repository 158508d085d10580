//! Checks conditions: types, events, needs, and what is suspicious.

use std::collections::BTreeSet;

use crate::error::{Error, ErrorKind, Lint, LintKind};
use crate::evaluate::is_only_for_lists;
use crate::events::{self, Event};
use crate::fields::part;
use crate::needs::Needs;
use crate::syntax::{Comparison, Condition, Expression, ExpressionKind, Operator, TextTest};
use crate::types::{Elements, Type};

/// The results for a condition.
pub(crate) struct Checked {
    /// The names of the events that each expression can hold for; none if it names no event.
    pub events: Vec<Vec<String>>,
    pub needs: Needs,
}

/// Checks a condition, and adds what is suspicious.
///
/// # Errors
/// The first type error.
pub(crate) fn condition(condition: &Condition, lints: &mut Vec<Lint>) -> Result<Checked, Error> {
    let mut checker = Checker { needs: Needs::NONE, lints, variables: Vec::new() };
    let mut events = Vec::new();
    for expression in condition.expressions() {
        checker.predicate(expression)?;
        let named = events_of(expression).unwrap_or_default();
        for name in &named {
            let needs = Event::of(name).map(|event| event.needs).unwrap_or_default();
            checker.needs = checker.needs.with(needs);
        }
        events.push(named.into_iter().collect());
    }
    if let Condition::Sequence(sequence) = condition {
        for field in sequence.slots.iter().flat_map(|slot| &slot.by) {
            checker.needs = checker.needs.with(field.field.needs);
        }
    }
    Ok(Checked { events, needs: checker.needs })
}

/// Finds events that a macro names and that do not exist; not in other macros that it uses.
pub(crate) fn macro_events(body: &Expression, lints: &mut Vec<Lint>) {
    match &body.kind {
        ExpressionKind::Macro { .. } => {}
        ExpressionKind::Comparison(comparison) => unknown_events(comparison, lints),
        _ => body.parts().into_iter().for_each(|part| macro_events(part, lints)),
    }
}

/// The events that an expression can hold for; `None` if it says nothing about it.
fn events_of(expression: &Expression) -> Option<BTreeSet<String>> {
    match &expression.kind {
        ExpressionKind::And(parts) => {
            let mut known: Option<BTreeSet<String>> = None;
            for events in parts.iter().filter_map(events_of) {
                known = Some(match known {
                    Some(known) => known.intersection(&events).cloned().collect(),
                    None => events,
                });
            }
            known
        }
        ExpressionKind::Or(parts) => {
            let events: Option<Vec<_>> = parts.iter().map(events_of).collect();
            Some(events?.into_iter().flatten().collect())
        }
        ExpressionKind::Macro { body, .. } => events_of(body),
        ExpressionKind::Comparison(comparison) => named_events(comparison),
        _ => None,
    }
}

fn field_name(expression: &Expression) -> Option<&'static str> {
    match &expression.kind {
        ExpressionKind::Field(field) => Some(field.field.name),
        _ => None,
    }
}

/// The texts of a value or a list.
fn texts(expression: &Expression) -> Vec<(&str, &Expression)> {
    let expression = expression.resolved();
    match &expression.kind {
        ExpressionKind::Text(text) => vec![(text, expression)],
        ExpressionKind::List(values) => values.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

fn named_events(comparison: &Comparison) -> Option<BTreeSet<String>> {
    let is_selecting = !comparison.is_negated
        && matches!(
            comparison.operator,
            Operator::Equal | Operator::EqualIgnoringCase | Operator::Text { test: TextTest::In, .. }
        );
    if !is_selecting {
        return None;
    }
    let names = texts(&comparison.right).into_iter().map(|(text, _)| text);
    match field_name(&comparison.left)? {
        "evt.name" => Some(names.map(str::to_owned).collect()),
        "evt.category" => Some(names.flat_map(events::of_category).map(str::to_owned).collect()),
        _ => None,
    }
}

fn unknown_events(comparison: &Comparison, lints: &mut Vec<Lint>) {
    if field_name(&comparison.left) != Some("evt.name") {
        return;
    }
    for (name, expression) in texts(&comparison.right) {
        if Event::of(name).is_none() {
            let suggestion = stackhound_expr::most_similar(name, &events::names()).map(str::to_owned);
            let kind = LintKind::UnknownEvent { name: name.to_owned(), suggestion };
            Lint::add(lints, &expression.span, kind);
        }
    }
}

struct Checker<'l> {
    needs: Needs,
    lints: &'l mut Vec<Lint>,
    /// The variables of `foreach` around this expression, with their elements; `None` for texts.
    variables: Vec<(String, Option<Elements>)>,
}

impl Checker<'_> {
    fn lint(&mut self, expression: &Expression, kind: LintKind) {
        Lint::add(self.lints, &expression.span, kind);
    }

    /// An expression that is true or false.
    fn predicate(&mut self, expression: &Expression) -> Result<(), Error> {
        match &expression.kind {
            ExpressionKind::Or(parts) => parts.iter().try_for_each(|part| self.predicate(part)),
            ExpressionKind::And(parts) => {
                // Elsewhere, it makes no difference.
                if let Some(first) = parts.first() {
                    self.open_macro(first);
                }
                parts.iter().try_for_each(|part| self.predicate(part))
            }
            ExpressionKind::Not(part) => {
                self.open_macro(part);
                self.predicate(part)
            }
            ExpressionKind::Macro { body, .. } => self.predicate(body),
            ExpressionKind::Comparison(comparison) => self.comparison(comparison),
            _ => match self.value(expression)? {
                Type::Truth | Type::Any => Ok(()),
                other => Err(Error::new(
                    expression.span.location(),
                    ErrorKind::Type { expected: Type::Truth.name(), found: other.name() },
                )),
            },
        }
    }

    fn open_macro(&mut self, expression: &Expression) {
        let ExpressionKind::Macro { name, body } = &expression.kind else { return };
        if !expression.is_enclosed && !body.is_enclosed && matches!(body.kind, ExpressionKind::Or(_)) {
            self.lint(expression, LintKind::OpenMacro(name.clone()));
        }
    }

    fn comparison(&mut self, comparison: &Comparison) -> Result<(), Error> {
        let Comparison { left, operator, right, .. } = comparison;
        let left_type = self.value(left)?;
        self.value(right)?;
        if let Type::Elements(elements) = left_type {
            let kind = ErrorKind::Type { expected: "a value", found: elements.name() };
            return Err(Error::new(left.span.location(), kind));
        }
        unknown_events(comparison, self.lints);
        let Operator::Text { test, ignores_case } = *operator else { return Ok(()) };
        let is_list = matches!(right.resolved().kind, ExpressionKind::List(_));
        // A field may have several values.
        let is_one = matches!(right.resolved().kind, ExpressionKind::Text(_) | ExpressionKind::Integer(_));
        if test == TextTest::In && is_one {
            let kind = ErrorKind::Expected("a list in parentheses after `in`");
            return Err(Error::new(right.span.location(), kind));
        }
        if let Some(field) = field_name(left)
            && left_type == Type::Texts
            && is_only_for_lists(test, ignores_case)
            && !is_list
            && let ExpressionKind::Text(text) = &right.resolved().kind
        {
            let value = format!("'{}'", text.replace('\\', r"\\"));
            self.lint(right, LintKind::ListWithValue { field, operator: operator.spelling(), value });
        }
        if test == TextTest::Matches {
            for (pattern, expression) in texts(right) {
                self.pattern(field_name(left), pattern, expression);
            }
        }
        Ok(())
    }

    fn pattern(&mut self, field: Option<&'static str>, pattern: &str, expression: &Expression) {
        if pattern.ends_with('\\') {
            self.lint(expression, LintKind::FolderOnly);
        }
        let Some(field) = field else { return };
        let lower = pattern.to_ascii_lowercase();
        let reason = match field {
            "thread.callstack.summary" if lower.contains('!') => "it has names of modules, not of functions",
            "thread.callstack.summary" if lower.contains("ntoskrnl") || lower.contains(".sys") => {
                "it has user modules only"
            }
            "thread.callstack.kernel_summary" if lower.contains('!') => {
                "it has names of modules, not of functions"
            }
            "thread.callstack.modules" | "ps.modules"
                if !lower.starts_with(['*', '?']) && !lower.contains('\\') =>
            {
                r"its values are paths, so that a file name needs `*\\` before it"
            }
            _ => return,
        };
        self.lint(expression, LintKind::NeverMatches { field, reason });
    }

    /// The type of a value.
    fn value(&mut self, expression: &Expression) -> Result<Type, Error> {
        Ok(match &expression.kind {
            ExpressionKind::Field(field) | ExpressionKind::Bound { field, .. } => {
                self.needs = self.needs.with(field.field.needs);
                match field.field.value_type {
                    // The argument selects one of several values.
                    Type::Texts if field.argument.is_some() => Type::Text,
                    value_type => value_type,
                }
            }
            ExpressionKind::Text(text) => {
                if text.to_ascii_lowercase().contains("program files(x86)") {
                    self.lint(expression, LintKind::MissingBlank);
                }
                Type::Text
            }
            ExpressionKind::Integer(_) => Type::Number,
            ExpressionKind::Decimal(_) => Type::Decimal,
            ExpressionKind::Address(_) => Type::Address,
            ExpressionKind::Data(_) => Type::Any,
            ExpressionKind::Exists(_) => Type::Truth,
            ExpressionKind::Truth(_) => Type::Truth,
            ExpressionKind::List(values) => {
                for value in values {
                    self.value(value)?;
                }
                Type::Texts
            }
            ExpressionKind::Macro { body, .. } => self.value(body)?,
            ExpressionKind::Element { variable, part } => {
                self.element(expression, variable, part.as_deref())?
            }
            ExpressionKind::Call { function, arguments } => {
                self.needs = self.needs.with(function.needs);
                if function.has_variable {
                    self.foreach(arguments)?;
                } else {
                    for (index, argument) in arguments.iter().enumerate() {
                        let found = self.value(argument)?;
                        self.argument(function.argument(index), found, argument)?;
                    }
                }
                function.result
            }
            ExpressionKind::Or(_)
            | ExpressionKind::And(_)
            | ExpressionKind::Not(_)
            | ExpressionKind::Comparison(_) => {
                self.predicate(expression)?;
                Type::Truth
            }
        })
    }

    fn argument(&self, expected: Type, found: Type, argument: &Expression) -> Result<(), Error> {
        let fits = expected == found
            || [expected, found].contains(&Type::Any)
            // Addresses can be written as texts, and texts stand for lists of one.
            || matches!((expected, found), (Type::Address, Type::Text) | (Type::Texts, Type::Text));
        if fits {
            return Ok(());
        }
        let kind = ErrorKind::Type { expected: expected.name(), found: found.name() };
        Err(Error::new(argument.span.location(), kind))
    }

    /// The arguments of `foreach`: elements, a variable, a predicate, and further fields.
    fn foreach(&mut self, arguments: &[Expression]) -> Result<(), Error> {
        let [elements, variable, predicate, captured @ ..] = arguments else { return Ok(()) };
        let elements = match self.value(elements)? {
            Type::Elements(elements) => Some(elements),
            Type::Texts | Type::Any => None,
            other => {
                let kind = ErrorKind::Type { expected: "elements or a list of texts", found: other.name() };
                return Err(Error::new(elements.span.location(), kind));
            }
        };
        let ExpressionKind::Element { variable, .. } = &variable.kind else { return Ok(()) };
        self.variables.push((variable.clone(), elements));
        let result = self.predicate(predicate);
        self.variables.pop();
        result?;
        for field in captured {
            self.value(field)?;
        }
        Ok(())
    }

    fn element(&mut self, expression: &Expression, name: &str, wanted: Option<&str>) -> Result<Type, Error> {
        let elements = self.variables.iter().rev().find(|(known, _)| known == name);
        let Some(elements) = elements.and_then(|(_, elements)| *elements) else {
            return Ok(Type::Any);
        };
        let Some(wanted) = wanted else { return Ok(Type::Elements(elements)) };
        match part(elements, wanted) {
            Ok(part) => {
                self.needs = self.needs.with(part.needs);
                Ok(part.value_type)
            }
            Err(known) => {
                let kind = ErrorKind::Part { element: elements.name(), part: wanted.to_owned(), known };
                Err(Error::new(expression.span.location(), kind))
            }
        }
    }
}
