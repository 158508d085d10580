//! Evaluation of a compiled filter, once per event: no allocation, no names.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::encoding::Text;
use crate::literal::Literal;
use crate::needle::{Needle, Part};
use crate::number::Number;
use crate::syntax::{BitOperator, Case, Relation};
use crate::text::{Glob, is_written};

/// A value of a field.
///
/// What has no kind of its own (GUIDs, times, addresses, SIDs) is given as the text a person would write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Text.
    Text(&'v str),
    /// Text as UTF-16LE bytes. An odd last byte is no part of it, and ill-formed units are read as U+FFFD.
    Utf16(&'v [u8]),
    /// Text of one byte a character, read as Latin-1.
    Latin1(&'v [u8]),
    /// An integer without sign.
    Unsigned(u64),
    /// An integer with sign.
    Signed(i64),
    /// A floating point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A value that is there, and not known.
    Unknown,
}

/// Takes the values of a field one by one; after [`ControlFlow::Break`] it needs no more of them.
pub type Visitor<'v> = dyn FnMut(Value<'_>) -> ControlFlow<()> + 'v;

/// A filter could not decide, since a field is missing: its place in [`Matcher::fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided(pub usize);

/// A filter whose fields are resolved to `F`, ready to be asked about events.
#[derive(Clone, Debug)]
pub struct Matcher<F> {
    fields: Box<[F]>,
    root: Node,
}

/// The compiled form of an expression: its negations stand at its questions, and no list in a list of its kind.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Constant(bool),
    Any(Box<[Node]>),
    All(Box<[Node]>),
    Question(Question),
}

/// A field and what its values are asked.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Index into [`Matcher::fields`].
    pub(crate) field: usize,
    pub(crate) test: Test,
    /// Holds if there are values and none passes the test; otherwise, if some value passes it.
    pub(crate) about_others: bool,
    /// Holds where it would not.
    pub(crate) negated: bool,
}

/// What a single value is asked.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    OneOf(Box<[OneOf]>),
    Is(OneOf),
    Order(Relation, Literal),
    Part(Part, Needle),
    Glob(Glob),
    Bits(BitOperator, u64),
}

/// A literal to be equal with.
#[derive(Clone, Debug)]
pub(crate) struct OneOf {
    needle: Needle,
    number: Option<Number>,
}

impl<F> Matcher<F> {
    pub(crate) fn new(fields: Vec<F>, root: Node) -> Self {
        Self { fields: fields.into(), root }
    }

    /// The fields that the filter reads, each once, in the order of their first use.
    pub fn fields(&self) -> &[F] {
        &self.fields
    }

    /// Asks about cheap fields before it asks about dear ones, as far as a list of `and` or `or` leaves the choice.
    ///
    /// `cost` tells the class of a field: fields of a higher class are asked only where those of lower ones that stand
    /// beside them have not decided. Fields of one class keep their order. What passes stays the same.
    #[must_use]
    pub fn cheapest_first(mut self, cost: impl Fn(&F) -> u8) -> Self {
        let costs: Vec<u8> = self.fields.iter().map(cost).collect();
        self.root.sort(&costs);
        self
    }

    /// Whether an event passes; what could not be decided does not.
    pub fn matches(&self, lookup: impl FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>) -> bool {
        self.decide(lookup) == Ok(true)
    }

    /// Whether an event passes.
    ///
    /// `lookup` is called with a field and a visitor, and hands the visitor every value that the event has for the
    /// field: none if the field is missing, several for a list. It should stop at [`ControlFlow::Break`], as
    /// `visit(value)?` and `try_for_each(visit)` do; values after it change nothing. A field is looked up as often as
    /// the filter names it, and not at all where the rest has already decided.
    ///
    /// # Errors
    /// A field is missing, or not all of its values are known, and the others do not decide.
    pub fn decide(
        &self,
        mut lookup: impl FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Undecided> {
        self.holds(&self.root, &mut lookup)
    }

    fn holds<L>(&self, node: &Node, lookup: &mut L) -> Result<bool, Undecided>
    where
        L: FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        match node {
            Node::Constant(holds) => Ok(*holds),
            Node::Any(nodes) => self.first(nodes, true, lookup),
            Node::All(nodes) => self.first(nodes, false, lookup),
            Node::Question(question) => {
                let passed = self.ask(question.field, &question.test, lookup);
                let passed = passed.ok_or(Undecided(question.field))?;
                Ok((passed != question.about_others) != question.negated)
            }
        }
    }

    /// What decides a list if one of it comes to this; otherwise the opposite, if all of it is known.
    fn first<L>(&self, nodes: &[Node], deciding: bool, lookup: &mut L) -> Result<bool, Undecided>
    where
        L: FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let mut rest = Ok(!deciding);
        for node in nodes {
            match self.holds(node, lookup) {
                Ok(holds) if holds == deciding => return Ok(deciding),
                Ok(_) => {}
                Err(undecided) => rest = rest.and(Err(undecided)),
            }
        }
        rest
    }

    /// Whether a value passes the test; `None` if there is no value, or if none of those that are known does and not all
    /// are.
    fn ask<L>(&self, field: usize, test: &Test, lookup: &mut L) -> Option<bool>
    where
        L: FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let (mut passed, mut is_known) = (None, true);
        let _ = lookup(&self.fields[field], &mut |value| {
            match value {
                Value::Unknown => is_known = false,
                _ if passed == Some(true) => {}
                _ => passed = Some(test.passes(value)),
            }
            if passed == Some(true) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        passed.filter(|&passed| passed || is_known)
    }
}

impl Node {
    fn sort(&mut self, costs: &[u8]) {
        if let Self::Any(nodes) | Self::All(nodes) = self {
            nodes.iter_mut().for_each(|node| node.sort(costs));
            nodes.sort_by_cached_key(|node| node.cost(costs));
        }
    }

    /// The highest cost of a field in it, and the lowest.
    fn cost(&self, costs: &[u8]) -> (u8, u8) {
        match self {
            Self::Constant(_) => (0, 0),
            Self::Question(question) => (costs[question.field], costs[question.field]),
            Self::Any(nodes) | Self::All(nodes) => {
                let each = || nodes.iter().map(|node| node.cost(costs));
                let highest = each().map(|(highest, _)| highest).max();
                (highest.unwrap_or(0), each().map(|(_, lowest)| lowest).min().unwrap_or(0))
            }
        }
    }
}

impl Test {
    fn passes(&self, value: Value<'_>) -> bool {
        match self {
            Self::OneOf(all) => {
                // Text is read as a number only where that can matter.
                let is_numeric = all.iter().any(|literal| literal.number.is_some());
                let number = if is_numeric { value.number() } else { None };
                all.iter().any(|literal| literal.equals(value, number))
            }
            Self::Is(literal) => {
                let same_kind = value.text().is_some() == literal.number.is_none();
                same_kind && literal.equals(value, literal.number.and_then(|_| value.number()))
            }
            Self::Order(relation, literal) => {
                value.order(literal).is_some_and(|order| relation.allows(order))
            }
            Self::Part(part, needle) => value.text().is_some_and(|text| needle.is_in(*part, text)),
            Self::Glob(glob) => value.text().is_some_and(|text| glob.matches(text)),
            Self::Bits(operator, bits) => match value.number() {
                // Negative numbers are seen as two's complement.
                Some(Number::Integer(number)) => operator.allows(number as u64 & bits, *bits),
                _ => false,
            },
        }
    }
}

impl OneOf {
    pub(crate) fn new(literal: &Literal, case: Case) -> Self {
        Self { needle: Needle::new(&literal.text, case), number: literal.number }
    }

    /// Whether the value, which is or spells `number`, equals the literal.
    fn equals(&self, value: Value<'_>, number: Option<Number>) -> bool {
        match (number, self.number) {
            (Some(number), Some(expected)) => number.compare(expected) == Some(Ordering::Equal),
            _ => value.is_written(&self.needle),
        }
    }
}

impl<'v> Value<'v> {
    fn text(self) -> Option<Text<'v>> {
        match self {
            Self::Text(text) => Some(Text::Utf8(text)),
            Self::Utf16(bytes) => Some(Text::Utf16(bytes.as_chunks().0)),
            Self::Latin1(bytes) => Some(Text::Latin1(bytes)),
            Self::Unsigned(_) | Self::Signed(_) | Self::Float(_) | Self::Bool(_) | Self::Unknown => None,
        }
    }

    /// The number that the value is, or that its text spells.
    fn number(self) -> Option<Number> {
        match self {
            Self::Unsigned(value) => Some(Number::Integer(value.into())),
            Self::Signed(value) => Some(Number::Integer(value.into())),
            Self::Float(value) => Some(Number::Float(value)),
            Self::Bool(value) => Some(Number::Integer(value.into())),
            Self::Text(_) | Self::Utf16(_) | Self::Latin1(_) => self.text()?.number(),
            Self::Unknown => None,
        }
    }

    /// Whether the value is written as the needle.
    fn is_written(self, needle: &Needle) -> bool {
        let (literal, case) = (needle.text(), needle.case());
        match self {
            Self::Unsigned(value) => is_written(value, literal, case),
            Self::Signed(value) => is_written(value, literal, case),
            Self::Float(value) => is_written(value, literal, case),
            Self::Bool(value) => is_written(value, literal, case),
            Self::Text(_) | Self::Utf16(_) | Self::Latin1(_) => {
                self.text().is_some_and(|text| needle.is_in(Part::Whole, text))
            }
            Self::Unknown => false,
        }
    }

    /// On which side of the literal the value lies; `None` if there is no order between them.
    fn order(self, literal: &Literal) -> Option<Ordering> {
        if let Some(expected) = literal.number
            && let Some(number) = self.number()
        {
            return number.compare(expected);
        }
        Some(self.text()?.order(&literal.text))
    }
}

impl BitOperator {
    /// Whether `set` of the wanted bits are enough.
    fn allows(self, set: u64, wanted: u64) -> bool {
        match self {
            Self::Any => set != 0,
            Self::All => set == wanted,
        }
    }
}

impl Relation {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}
