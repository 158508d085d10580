//! Evaluation of a compiled filter, once per event: no allocation, no names.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::number::Number;
use crate::syntax::{Case, Literal, Relation};
use crate::text::{Glob, ends_with_folded, equals_folded, is_written, starts_with_folded};

/// A value of a field.
///
/// What has no kind of its own (GUIDs, times, addresses, SIDs) is given as the text a person would write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Text.
    Text(&'v str),
    /// An integer without sign.
    Unsigned(u64),
    /// An integer with sign.
    Signed(i64),
    /// A floating point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

/// Takes the values of a field one by one; after [`ControlFlow::Break`] it needs no more of them.
pub type Visitor<'v> = dyn FnMut(Value<'_>) -> ControlFlow<()> + 'v;

/// A filter whose fields are resolved to `F`, ready to be asked about events.
#[derive(Clone, Debug)]
pub struct Matcher<F> {
    fields: Box<[F]>,
    root: Node,
}

/// The compiled form of an expression; `field` is an index into [`Matcher::fields`].
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Any(Box<[Node]>),
    All(Box<[Node]>),
    Not(Box<Node>),
    /// Some value passes the test.
    Has {
        field: usize,
        test: Test,
    },
    /// There are values, and none passes the test.
    HasOther {
        field: usize,
        test: Test,
    },
}

/// What a single value is asked.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    OneOf(OneOf),
    Order(Relation, Literal),
    Contains(Box<str>),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
    StartsWithFolded(Box<str>),
    EndsWithFolded(Box<str>),
    Glob(Glob),
}

/// Equality with any of some literals.
#[derive(Clone, Debug)]
pub(crate) struct OneOf {
    /// Their text is prepared for `case`.
    literals: Box<[Literal]>,
    case: Case,
    /// Whether there are numbers among the literals, so that text is read as a number only where it can matter.
    numeric: bool,
}

impl<F> Matcher<F> {
    pub(crate) fn new(fields: Vec<F>, root: Node) -> Self {
        Self { fields: fields.into(), root }
    }

    /// The fields that the filter reads, each once, in the order of their first use.
    pub fn fields(&self) -> &[F] {
        &self.fields
    }

    /// Whether an event passes.
    ///
    /// `lookup` is called with a field and a visitor, and hands the visitor every value that the event has for the
    /// field: none if the field is missing, several for a list. It should stop at [`ControlFlow::Break`], as
    /// `visit(value)?` and `try_for_each(visit)` do; values after it change nothing. A field is looked up as often as
    /// the filter names it, and not at all where the rest has already decided.
    pub fn matches(&self, mut lookup: impl FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>) -> bool {
        self.holds(&self.root, &mut lookup)
    }

    fn holds<L>(&self, node: &Node, lookup: &mut L) -> bool
    where
        L: FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        match node {
            Node::Any(nodes) => nodes.iter().any(|node| self.holds(node, lookup)),
            Node::All(nodes) => nodes.iter().all(|node| self.holds(node, lookup)),
            Node::Not(node) => !self.holds(node, lookup),
            Node::Has { field, test } => self.ask(*field, test, lookup) == Some(true),
            Node::HasOther { field, test } => self.ask(*field, test, lookup) == Some(false),
        }
    }

    /// Whether a value passes the test; `None` if there is no value.
    fn ask<L>(&self, field: usize, test: &Test, lookup: &mut L) -> Option<bool>
    where
        L: FnMut(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let mut passed = None;
        let _ = lookup(&self.fields[field], &mut |value| {
            if passed != Some(true) {
                passed = Some(test.passes(value));
            }
            if passed == Some(true) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        passed
    }
}

impl Test {
    fn passes(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Self::OneOf(one_of), _) => one_of.passes(value),
            (Self::Order(relation, literal), _) => {
                value.order(literal).is_some_and(|order| relation.allows(order))
            }
            (Self::Contains(literal), Value::Text(text)) => text.contains(&**literal),
            (Self::StartsWith(literal), Value::Text(text)) => text.starts_with(&**literal),
            (Self::EndsWith(literal), Value::Text(text)) => text.ends_with(&**literal),
            (Self::StartsWithFolded(literal), Value::Text(text)) => starts_with_folded(text, literal),
            (Self::EndsWithFolded(literal), Value::Text(text)) => ends_with_folded(text, literal),
            (Self::Glob(glob), Value::Text(text)) => glob.matches(text),
            _ => false,
        }
    }
}

impl OneOf {
    pub(crate) fn new(literals: &[Literal], case: Case) -> Self {
        let prepare =
            |literal: &Literal| Literal { text: case.prepare(&literal.text), number: literal.number };
        Self {
            literals: literals.iter().map(prepare).collect(),
            case,
            numeric: literals.iter().any(|literal| literal.number.is_some()),
        }
    }

    fn passes(&self, value: Value<'_>) -> bool {
        let number = if self.numeric { value.number() } else { None };
        self.literals.iter().any(|literal| match (number, literal.number) {
            (Some(number), Some(expected)) => number.compare(expected) == Some(Ordering::Equal),
            _ => value.is_text(&literal.text, self.case),
        })
    }
}

impl Value<'_> {
    /// The number that the value is, or that its text spells.
    fn number(self) -> Option<Number> {
        match self {
            Self::Text(text) => Number::parse(text),
            Self::Unsigned(value) => Some(Number::Integer(value.into())),
            Self::Signed(value) => Some(Number::Integer(value.into())),
            Self::Float(value) => Some(Number::Float(value)),
            Self::Bool(value) => Some(Number::Integer(value.into())),
        }
    }

    /// Whether the value is written as `literal`, which is prepared for `case`.
    fn is_text(self, literal: &str, case: Case) -> bool {
        match self {
            Self::Text(text) if case == Case::Ignored => equals_folded(text, literal),
            Self::Text(text) => text == literal,
            Self::Unsigned(value) => is_written(value, literal, case),
            Self::Signed(value) => is_written(value, literal, case),
            Self::Float(value) => is_written(value, literal, case),
            Self::Bool(value) => is_written(value, literal, case),
        }
    }

    /// On which side of the literal the value lies; `None` if there is no order between them.
    fn order(self, literal: &Literal) -> Option<Ordering> {
        if let Some(expected) = literal.number
            && let Some(number) = self.number()
        {
            return number.compare(expected);
        }
        match self {
            Self::Text(text) => Some(text.cmp(&literal.text)),
            _ => None,
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
