//! The syntax tree of conditions.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::fields::Field;
use crate::functions::Function;
use crate::source::Span;

/// The condition of a rule.
#[derive(Clone, Debug)]
pub enum Condition {
    /// About one event.
    Event(Expression),
    /// About events in an order.
    Sequence(Sequence),
    /// About answers of other rules.
    Correlation(Correlation),
}

/// Answers of other rules within a time.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// What is counted.
    pub kind: CorrelationKind,
    /// The other rules, by id or name.
    pub rules: Vec<String>,
    /// Names of values of the events' data that are the same.
    pub group_by: Vec<String>,
    /// The longest time from the first to the last event.
    pub span: Duration,
    /// Whether the other rules have findings of their own.
    pub generate: bool,
}

/// The kinds of correlations.
#[derive(Clone, Debug)]
pub enum CorrelationKind {
    /// The number of events is in a range.
    EventCount(CountRange),
    /// The number of different values is in a range.
    ValueCount(CountRange, String),
    /// All rules have an answer, in any order.
    Temporal,
    /// All rules have an answer, in their order.
    TemporalOrdered,
}

/// A range of numbers, with both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountRange {
    /// The least number.
    pub least: u64,
    /// The greatest number.
    pub most: u64,
}

/// Events in an order.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The longest time from the first to the last event.
    pub max_span: Option<Duration>,
    /// At least one.
    pub slots: Vec<Slot>,
}

/// One event of a sequence.
#[derive(Clone, Debug)]
pub struct Slot {
    /// What must hold for the event.
    pub expression: Expression,
    /// Fields whose values are the same in all slots; of a sequence with one list for all slots,
    /// that list.
    pub by: Vec<FieldUse>,
    /// The name under which later slots refer to the event.
    pub alias: Option<String>,
}

/// A part of a condition with its location.
#[derive(Clone, Debug)]
pub struct Expression {
    /// What it is.
    pub kind: ExpressionKind,
    /// Where it is.
    pub span: Span,
    /// Whether it is in parentheses.
    pub is_enclosed: bool,
}

/// The kinds of expressions.
#[derive(Clone, Debug)]
pub enum ExpressionKind {
    /// One of the parts, at least two, holds.
    Or(Vec<Expression>),
    /// All parts, at least two, hold.
    And(Vec<Expression>),
    /// The part does not hold.
    Not(Box<Expression>),
    /// A comparison of two values.
    Comparison(Box<Comparison>),
    /// A field of the event.
    Field(FieldUse),
    /// A value of the event's data by its name there; `*` is each value.
    Data(String),
    /// Whether the event has a value of its data that is not empty.
    Exists(String),
    /// A field of an event of an earlier slot.
    Bound {
        /// The name of the slot.
        alias: String,
        /// The field.
        field: FieldUse,
    },
    /// A part of the element that `foreach` visits, or the element itself.
    Element {
        /// The variable, with `$`.
        variable: String,
        /// The name of the part.
        part: Option<String>,
    },
    /// A text.
    Text(String),
    /// A number.
    Integer(u64),
    /// A fraction.
    Decimal(f64),
    /// An address of IP version 4.
    Address(Ipv4Addr),
    /// `true` or `false`.
    Truth(bool),
    /// Values in parentheses.
    List(Vec<Expression>),
    /// A call of a function.
    Call {
        /// The function.
        function: &'static Function,
        /// Its arguments.
        arguments: Vec<Expression>,
    },
    /// The expression or the list of a macro, as if it were in parentheses.
    Macro {
        /// The name.
        name: String,
        /// What it stands for.
        body: Arc<Expression>,
    },
}

/// A field, with its argument.
#[derive(Clone, Debug)]
pub struct FieldUse {
    /// The field.
    pub field: &'static Field,
    /// The text in brackets.
    pub argument: Option<String>,
    /// Where it is.
    pub span: Span,
}

/// A comparison of two values.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The left side.
    pub left: Expression,
    /// The operator.
    pub operator: Operator,
    /// Whether `not` is before the operator.
    pub is_negated: bool,
    /// The right side.
    pub right: Expression,
}

/// The operators of comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// `=`
    Equal,
    /// `~=`: equal, ignoring case.
    EqualIgnoringCase,
    /// `!=`, also written `<>`.
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// An operator on texts.
    Text {
        /// What it tests.
        test: TextTest,
        /// Whether upper and lower case are the same.
        ignores_case: bool,
    },
}

/// The operators on texts, all of which have a form that ignores case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextTest {
    /// `in`
    In,
    /// `contains`
    Contains,
    /// `startswith`
    StartsWith,
    /// `endswith`
    EndsWith,
    /// `matches`: a pattern with `*` and `?`.
    Matches,
    /// `intersects`: all of these are elements of the field.
    Intersects,
    /// `fuzzy`: the characters occur in this order.
    Fuzzy,
    /// `fuzzynorm`: the same without diacritics.
    FuzzyNormalized,
}

const SIGNS: [(&str, Operator); 8] = [
    ("=", Operator::Equal),
    ("~=", Operator::EqualIgnoringCase),
    ("!=", Operator::NotEqual),
    ("<>", Operator::NotEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterOrEqual),
];

const TESTS: [(&str, TextTest); 8] = [
    ("in", TextTest::In),
    ("contains", TextTest::Contains),
    ("startswith", TextTest::StartsWith),
    ("endswith", TextTest::EndsWith),
    ("matches", TextTest::Matches),
    ("intersects", TextTest::Intersects),
    ("fuzzy", TextTest::Fuzzy),
    ("fuzzynorm", TextTest::FuzzyNormalized),
];

impl Operator {
    /// The operator that is spelled so; words in any case.
    pub(crate) fn of(spelling: &str) -> Option<Operator> {
        let test = |spelling: &str, ignores_case| {
            let (_, test) = TESTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(spelling))?;
            Some(Operator::Text { test: *test, ignores_case })
        };
        let sign = SIGNS.iter().find(|(sign, _)| *sign == spelling).map(|(_, operator)| *operator);
        sign.or_else(|| test(spelling, false)).or_else(|| test(spelling.strip_prefix(['i', 'I'])?, true))
    }

    /// Operators on texts bind more tightly than other comparisons.
    pub(crate) fn precedence(self) -> u8 {
        if matches!(self, Operator::Text { .. }) { 5 } else { 4 }
    }

    /// The spelling in conditions.
    pub fn spelling(self) -> String {
        match self {
            Operator::Text { test, ignores_case } => {
                let name = TESTS.iter().find(|(_, known)| *known == test).map_or("", |(name, _)| name);
                format!("{}{name}", if ignores_case { "i" } else { "" })
            }
            sign => SIGNS.iter().find(|(_, known)| *known == sign).map_or("", |(sign, _)| sign).to_owned(),
        }
    }
}

impl Condition {
    /// The expressions about single events, in their order.
    pub fn expressions(&self) -> Vec<&Expression> {
        match self {
            Condition::Event(expression) => vec![expression],
            Condition::Sequence(sequence) => sequence.slots.iter().map(|slot| &slot.expression).collect(),
            Condition::Correlation(_) => Vec::new(),
        }
    }
}

impl Expression {
    /// The expression that a macro stands for; others themselves.
    pub fn resolved(&self) -> &Expression {
        match &self.kind {
            ExpressionKind::Macro { body, .. } => body.resolved(),
            _ => self,
        }
    }

    /// The parts, in their order.
    pub fn parts(&self) -> Vec<&Expression> {
        match &self.kind {
            ExpressionKind::Or(parts) | ExpressionKind::And(parts) | ExpressionKind::List(parts) => {
                parts.iter().collect()
            }
            ExpressionKind::Call { arguments, .. } => arguments.iter().collect(),
            ExpressionKind::Not(part) => vec![part],
            ExpressionKind::Comparison(comparison) => vec![&comparison.left, &comparison.right],
            ExpressionKind::Macro { body, .. } => vec![body],
            _ => Vec::new(),
        }
    }
}
