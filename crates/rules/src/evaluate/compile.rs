//! Compiles the condition of one event to a matcher, for events with one name.
//!
//! Comparisons with the name and category of the event are decided here. The fields that remain are
//! resolved once.

use regex::{Regex, RegexSetBuilder};
use stackhound_expr::{self as expr, Case, Filter, Literal, Matcher, Operand, TextOperator, field};

use super::term::{Call, FieldTerm, ForEach, Network, PatternTest, Prepared, Term, Zero};
use super::{FieldRef, Mode, ResolvedField};
use crate::error::{Error, ErrorKind};
use crate::events::Event;
use crate::fields::{Part, part};
use crate::functions::Function;
use crate::syntax::{Comparison, Expression, ExpressionKind, FieldUse, Operator, TextTest};
use crate::types::{Elements, Type};

/// The limit of memory of a compiled regular expression, in bytes.
const EXPRESSION_SIZE_MAX: usize = 1 << 20;

/// The fields that rules read of events with one name.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldNames(Vec<FieldName>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum FieldName {
    Field(&'static str, Option<String>),
    Data(String),
}

impl FieldNames {
    fn index(&mut self, name: FieldName) -> usize {
        self.0.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.0.push(name);
            self.0.len() - 1
        })
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// The limit of a compiled condition with its macros, in bytes of its text as a filter.
const CONDITION_SIZE_MAX: usize = 4 << 20;

/// Compiles conditions about events with one name.
pub(crate) struct Compiler<'c, F> {
    pub event: Event,
    pub mode: Mode,
    pub names: &'c mut FieldNames,
    pub resolve: &'c mut dyn FnMut(FieldRef<'_>) -> Option<ResolvedField<F>>,
    /// The index among the kept values of a field of an earlier slot.
    pub bound: &'c dyn Fn(&str, &FieldUse) -> usize,
    /// The variables of `foreach` around this expression, with their elements; `None` for texts.
    pub variables: Vec<(String, Option<Elements>)>,
    /// Whether this expression is negated.
    pub is_negated: bool,
}

/// A filter under construction, whose field names are indexes of terms.
struct Terms<F>(Vec<Option<Term<F>>>);

impl<F> Terms<F> {
    fn field(&mut self, term: Term<F>) -> expr::Field {
        self.0.push(Some(term));
        field((self.0.len() - 1).to_string())
    }
}

impl<F> Compiler<'_, F> {
    /// Compiles a condition; `None` if it never holds for events with this name.
    ///
    /// # Errors
    /// If it is longer or deeper than a filter can be, or a regular expression is too large.
    pub fn matcher(&mut self, expression: &Expression) -> Result<Option<Matcher<Term<F>>>, Error> {
        let mut terms = Terms(Vec::new());
        let filter = self.predicate(expression, &mut terms)?;
        match filter == Filter::nothing() {
            true => Ok(None),
            false => Self::compile(&filter, terms, expression).map(Some),
        }
    }

    fn compile(
        filter: &Filter,
        mut terms: Terms<F>,
        expression: &Expression,
    ) -> Result<Matcher<Term<F>>, Error> {
        let mut take = |name: &str| terms.0.get_mut(name.parse::<usize>().ok()?)?.take();
        let matcher = filter.compile_within(CONDITION_SIZE_MAX, &[], &mut take).map_err(|error| {
            let kind = match error {
                expr::Error::TooLong { .. } => ErrorKind::TooLong,
                _ => ErrorKind::TooDeep,
            };
            Error::new(expression.span.location(), kind)
        })?;
        Ok(matcher.cheapest_first(Term::cost))
    }

    fn predicate(&mut self, expression: &Expression, terms: &mut Terms<F>) -> Result<Filter, Error> {
        match &expression.kind {
            ExpressionKind::And(parts) => {
                let mut all = Filter::everything();
                for part in parts {
                    let part = self.predicate(part, terms)?;
                    if part == Filter::nothing() {
                        return Ok(part);
                    }
                    all = if all == Filter::everything() { part } else { all & part };
                }
                Ok(all)
            }
            ExpressionKind::Or(parts) => {
                let mut any = Filter::nothing();
                for part in parts {
                    let part = self.predicate(part, terms)?;
                    if part == Filter::everything() {
                        return Ok(part);
                    }
                    any = match (any == Filter::nothing(), part == Filter::nothing()) {
                        (true, _) => part,
                        (false, true) => any,
                        (false, false) => any | part,
                    };
                }
                Ok(any)
            }
            // Fibratus has no value for a negated field, which is then false.
            ExpressionKind::Not(part)
                if self.mode == Mode::Compatible && matches!(part.kind, ExpressionKind::Field(_)) =>
            {
                Ok(Filter::nothing())
            }
            ExpressionKind::Not(part) => {
                self.is_negated = !self.is_negated;
                let part = self.predicate(part, terms);
                self.is_negated = !self.is_negated;
                Ok(!part?)
            }
            ExpressionKind::Macro { body, .. } => self.predicate(body, terms),
            ExpressionKind::Comparison(comparison) => self.comparison(comparison, terms),
            ExpressionKind::Truth(truth) => Ok(if *truth { Filter::everything() } else { Filter::nothing() }),
            _ => {
                let term = self.term(expression)?;
                Ok(terms.field(term).equals(true))
            }
        }
    }

    fn comparison(&mut self, comparison: &Comparison, terms: &mut Terms<F>) -> Result<Filter, Error> {
        let filter = match self.of_event_name(comparison) {
            Some(true) => Filter::everything(),
            Some(false) => Filter::nothing(),
            None => self.positive(comparison, terms)?,
        };
        Ok(if comparison.is_negated { !filter } else { filter })
    }

    /// The result of a comparison with the name or category of the event.
    fn of_event_name(&self, comparison: &Comparison) -> Option<bool> {
        let ExpressionKind::Field(field) = &comparison.left.resolved().kind else { return None };
        let own = match field.field.name {
            "evt.name" => self.event.name,
            "evt.category" => self.event.category,
            _ => return None,
        };
        let mut texts = literals(&comparison.right)?.into_iter().map(|literal| literal.to_string());
        let quoted = format!("'{own}'");
        match comparison.operator {
            Operator::Equal | Operator::Text { test: TextTest::In, ignores_case: false } => {
                Some(texts.any(|text| text == quoted))
            }
            Operator::EqualIgnoringCase | Operator::Text { test: TextTest::In, ignores_case: true } => {
                Some(texts.any(|text| text.eq_ignore_ascii_case(&quoted)))
            }
            Operator::NotEqual => Some(!texts.any(|text| text == quoted)),
            _ => None,
        }
    }

    fn positive(
        &mut self,
        Comparison { left, operator, right, .. }: &Comparison,
        terms: &mut Terms<F>,
    ) -> Result<Filter, Error> {
        let left_type = self.type_of(left);
        let left_term = self.term(left)?;
        let literals = literals(right);
        let case = |ignored| if ignored { Case::Ignored } else { Case::Sensitive };
        let (test, ignores_case) = match *operator {
            Operator::Text { test, ignores_case } => (test, ignores_case),
            Operator::EqualIgnoringCase => (TextTest::In, true),
            Operator::Equal => (TextTest::In, false),
            Operator::NotEqual => {
                let operands = self.operands(right, literals, terms)?;
                return Ok(!terms.field(left_term).compares(TextOperator::Equal, Case::Sensitive, operands));
            }
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
                let mut operands = self.operands(right, literals, terms)?;
                let Some(operand) = operands.pop() else { return Ok(Filter::nothing()) };
                let field = terms.field(left_term);
                return Ok(match operator {
                    Operator::Less => field.less(operand),
                    Operator::LessOrEqual => field.at_most(operand),
                    Operator::Greater => field.greater(operand),
                    _ => field.at_least(operand),
                });
            }
        };
        if self.mode == Mode::Compatible && is_never(left_type, test, ignores_case, right) {
            return Ok(Filter::nothing());
        }
        let operator = match test {
            TextTest::In => TextOperator::Equal,
            TextTest::Contains => TextOperator::Contains,
            TextTest::StartsWith => TextOperator::StartsWith,
            TextTest::EndsWith => TextOperator::EndsWith,
            TextTest::Matches => {
                let Some(literals) = literals else {
                    let (value, patterns) = (Box::new(left_term), [self.term(right)?].into());
                    let test = PatternTest::Glob { ignores_case };
                    return Ok(terms.field(Term::Pattern { value, patterns, test }).equals(true));
                };
                return Ok(terms.field(left_term).compares(TextOperator::Glob, case(ignores_case), literals));
            }
            TextTest::Fuzzy | TextTest::FuzzyNormalized => {
                let patterns = match literals {
                    Some(_) => texts(right).into_iter().map(|text| Term::Text(text.into())).collect(),
                    None => [self.term(right)?].into(),
                };
                let ignores_diacritics = test == TextTest::FuzzyNormalized;
                let test = PatternTest::Fuzzy { ignores_case, ignores_diacritics };
                let term = Term::Pattern { value: Box::new(left_term), patterns, test };
                return Ok(terms.field(term).equals(true));
            }
            TextTest::Intersects => {
                let mut all = Vec::new();
                for operand in self.operands(right, literals, terms)? {
                    let field = terms.field(self.term(left)?);
                    all.push(field.compares(TextOperator::Equal, case(ignores_case), [operand]));
                }
                return Ok(Filter::all_of(all));
            }
        };
        let operands = self.operands(right, literals, terms)?;
        Ok(terms.field(left_term).compares(operator, case(ignores_case), operands))
    }

    /// The right side of a comparison: the values, or a field.
    fn operands(
        &mut self,
        right: &Expression,
        literals: Option<Vec<Literal>>,
        terms: &mut Terms<F>,
    ) -> Result<Vec<Operand>, Error> {
        match literals {
            Some(literals) => Ok(literals.into_iter().map(Operand::Literal).collect()),
            None => {
                let term = self.term(right)?;
                Ok(vec![Operand::Field(terms.field(term))])
            }
        }
    }

    fn term(&mut self, expression: &Expression) -> Result<Term<F>, Error> {
        Ok(match &expression.kind {
            ExpressionKind::Field(field) => match field.field.name {
                "evt.name" => Term::Text(self.event.name.into()),
                "evt.category" => Term::Text(self.event.category.into()),
                _ => Term::Field(self.field(field)),
            },
            ExpressionKind::Bound { alias, field } => {
                let name = field.field.name.into();
                Term::Bound { index: (self.bound)(alias, field), zero: zero(field), name }
            }
            ExpressionKind::Element { variable, part } => self.element(variable, part.as_deref()),
            ExpressionKind::Data(name) => Term::Field(self.data(name)),
            ExpressionKind::Exists(name) => Term::Exists(self.data(name)),
            ExpressionKind::Text(text) => Term::Text(text.as_str().into()),
            ExpressionKind::Integer(number) => Term::Number(*number),
            ExpressionKind::Decimal(number) => Term::Decimal(*number),
            ExpressionKind::Address(address) => Term::Text(address.to_string().into()),
            ExpressionKind::Truth(truth) => Term::Truth(*truth),
            // A list where one value is expected: its first value.
            ExpressionKind::List(values) => match values.first() {
                Some(first) => self.term(first)?,
                None => Term::Text("".into()),
            },
            ExpressionKind::Macro { body, .. } => self.term(body)?,
            ExpressionKind::Call { function, arguments } if function.has_variable => {
                self.for_each(arguments)?
            }
            ExpressionKind::Call { function, arguments } => self.call(function, arguments, expression)?,
            ExpressionKind::Or(_)
            | ExpressionKind::And(_)
            | ExpressionKind::Not(_)
            | ExpressionKind::Comparison(_) => match self.matcher(expression)? {
                Some(matcher) => Term::Holds(Box::new(matcher)),
                None => Term::Truth(false),
            },
        })
    }

    /// Resolves a field.
    pub fn field(&mut self, field: &FieldUse) -> FieldTerm<F> {
        let resolved = (self.resolve)(FieldRef::Field(field));
        let (resolved, cost) = resolved.map_or((None, 0), |found| (Some(found.field), found.cost));
        let index = self.names.index(FieldName::Field(field.field.name, field.argument.clone()));
        FieldTerm { field: resolved, index, zero: zero(field), name: field.field.name.into(), cost }
    }

    /// Resolves a name in the data of events.
    pub fn data(&mut self, name: &str) -> FieldTerm<F> {
        let resolved = (self.resolve)(FieldRef::Data(name));
        let (resolved, cost) = resolved.map_or((None, 0), |found| (Some(found.field), found.cost));
        let index = self.names.index(FieldName::Data(name.to_owned()));
        FieldTerm { field: resolved, index, zero: Zero::Text, name: name.into(), cost }
    }

    fn element(&self, variable: &str, wanted: Option<&str>) -> Term<F> {
        let position = self.variables.iter().rposition(|(name, _)| name == variable);
        let position = position.unwrap_or_default();
        let elements = self.variables.get(position).and_then(|(_, elements)| *elements);
        let found: Option<&'static Part> =
            wanted.zip(elements).and_then(|(wanted, elements)| part(elements, wanted).ok());
        Term::Element { outward: self.variables.len().saturating_sub(position + 1), part: found }
    }

    fn for_each(&mut self, arguments: &[Expression]) -> Result<Term<F>, Error> {
        let [elements, variable, predicate, ..] = arguments else { return Ok(Term::Truth(false)) };
        let ExpressionKind::Element { variable, .. } = &variable.kind else { return Ok(Term::Truth(false)) };
        let kind = match self.type_of(elements) {
            Type::Elements(elements) => Some(elements),
            _ => None,
        };
        let elements = self.term(elements)?;
        let is_negated = self.is_negated;
        let mut terms = Terms(Vec::new());
        self.variables.push((variable.clone(), kind));
        let filter = self.predicate(predicate, &mut terms);
        self.variables.pop();
        let filter = filter?;
        if filter == Filter::nothing() {
            return Ok(Term::Truth(false));
        }
        let filter = if is_negated { !filter } else { filter };
        let predicate = Self::compile(&filter, terms, predicate)?;
        Ok(Term::ForEach(Box::new(ForEach { elements, predicate, is_negated })))
    }

    fn call(
        &mut self,
        function: &'static Function,
        arguments: &[Expression],
        expression: &Expression,
    ) -> Result<Term<F>, Error> {
        let later = || arguments.iter().skip(1).flat_map(texts);
        let prepared = match function.name {
            // Fibratus skips networks and expressions that it cannot read.
            "cidr_contains" => Prepared::Networks(later().filter_map(Network::parse).collect()),
            "regex" => {
                let valid = later().filter(|text| Regex::new(text).is_ok());
                let set = RegexSetBuilder::new(valid).size_limit(EXPRESSION_SIZE_MAX).build();
                let error = || Error::new(expression.span.location(), ErrorKind::RegularExpression);
                Prepared::Expressions(set.map_err(|_| error())?)
            }
            _ => Prepared::Nothing,
        };
        let arguments = arguments.iter().map(|argument| self.term(argument));
        let arguments = arguments.collect::<Result<_, _>>()?;
        Ok(Term::Call(Box::new(Call { function, arguments, prepared })))
    }

    /// The type of the left side of a comparison, as far as it matters.
    fn type_of(&self, expression: &Expression) -> Type {
        match &expression.resolved().kind {
            ExpressionKind::Field(field) | ExpressionKind::Bound { field, .. } => {
                if field.field.value_type == Type::Texts && field.argument.is_some() {
                    Type::Text
                } else {
                    field.field.value_type
                }
            }
            ExpressionKind::Call { function, .. } => function.result,
            _ => Type::Any,
        }
    }
}

/// Whether Fibratus has no comparison of a list with one value, which is then false.
fn is_never(left: Type, test: TextTest, ignores_case: bool, right: &Expression) -> bool {
    let is_list = matches!(right.resolved().kind, ExpressionKind::List(_));
    left == Type::Texts && !is_list && is_only_for_lists(test, ignores_case)
}

/// Whether Fibratus compares lists with lists only.
pub(crate) fn is_only_for_lists(test: TextTest, ignores_case: bool) -> bool {
    match test {
        TextTest::Contains => ignores_case,
        TextTest::StartsWith | TextTest::EndsWith | TextTest::Matches => true,
        _ => false,
    }
}

fn zero(field: &FieldUse) -> Zero {
    match field.field.value_type {
        // The argument selects one of several values.
        Type::Texts if field.argument.is_some() => Zero::Text,
        value_type => Zero::of(value_type),
    }
}

/// The values of an expression that is a value or a list; `None` for others.
fn literals(expression: &Expression) -> Option<Vec<Literal>> {
    Some(match &expression.resolved().kind {
        ExpressionKind::Text(text) => vec![Literal::from(text.as_str())],
        ExpressionKind::Integer(number) => vec![Literal::from(*number)],
        ExpressionKind::Decimal(number) => vec![Literal::from(*number)],
        ExpressionKind::Address(address) => vec![Literal::from(*address)],
        ExpressionKind::Truth(truth) => vec![Literal::from(*truth)],
        ExpressionKind::List(values) => {
            let all: Option<Vec<_>> = values.iter().map(literals).collect();
            all?.into_iter().flatten().collect()
        }
        _ => return None,
    })
}

/// The texts of a value or a list.
fn texts(expression: &Expression) -> Vec<&str> {
    match &expression.resolved().kind {
        ExpressionKind::Text(text) => vec![text],
        ExpressionKind::List(values) => values.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
