//! Evaluation of a compiled filter, once per event: no allocation, no names.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use crate::encoding::Text;
use crate::literal::Literal;
use crate::needle::{Needle, Part, is_part};
use crate::number::Number;
use crate::syntax::{BitOperator, Case, Relation};
use crate::text::{Glob, is_written};
use crate::unnamed::{self, NamePattern};

/// A value of a field.
///
/// Values without a kind of their own (GUIDs, times, addresses, SIDs) are passed as text in their
/// usual spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Text.
    Text(&'v str),
    /// Text as UTF-16LE bytes. An odd last byte is ignored, and ill-formed units are read as
    /// U+FFFD.
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
    /// A function whose name is not known: the text is the module, `!` and the name, or the name
    /// alone if the module is empty. A name has at least one character, and `!` only in `operator!`.
    /// A test is unknown only if the name decides it.
    UnnamedFunction {
        /// The name of the module.
        module: &'v str,
    },
    /// The field is known to have no value, such as a list without elements: no test passes.
    Absent,
}

/// Takes the values of a field one by one; after [`ControlFlow::Break`] it needs no more of them.
pub type Visitor<'v> = dyn FnMut(Value<'_>) -> ControlFlow<()> + 'v;

/// A filter is undecided because a field is missing: the index of the field in [`Matcher::fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided(pub usize);

/// A compiled filter, whose fields are resolved to `F`.
#[derive(Clone, Debug)]
pub struct Matcher<F> {
    fields: Box<[F]>,
    root: Node,
}

/// The compiled form of an expression: negations are moved into the tests, and nested lists of the
/// same kind are flattened.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Constant(bool),
    Any(Box<[Node]>),
    All(Box<[Node]>),
    Question(Question),
    Pair(PairQuestion),
}

/// A field and the test of its values.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Index into [`Matcher::fields`].
    pub(crate) field: usize,
    pub(crate) test: Test,
    /// Holds if there are values and none passes the test; otherwise, if some value passes it.
    pub(crate) negated: bool,
    /// The texts of the test, prepared when the first function without a name is tested.
    names: OnceLock<Box<[NamePattern]>>,
}

impl Question {
    pub(crate) fn new(field: usize, test: Test, negated: bool) -> Question {
        Question { field, test, negated, names: OnceLock::new() }
    }

    /// Whether the value passes the test; `None` if that is not known.
    fn passes(&self, value: Value<'_>) -> Option<bool> {
        match (value, &self.test) {
            (Value::Unknown, _) => None,
            (Value::UnnamedFunction { .. }, Test::Bits(..)) => Some(false),
            (Value::UnnamedFunction { module }, Test::Order(relation, literal)) => {
                unnamed::order(module, &literal.text).map(|order| relation.allows(order))
            }
            (Value::UnnamedFunction { module }, test) => {
                unnamed::matches_any(self.names.get_or_init(|| test.name_patterns()), module)
            }
            _ => Some(self.test.passes(value)),
        }
    }
}

/// Two fields and the test of each pair of their values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairQuestion {
    /// Indices into [`Matcher::fields`].
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) pair: Pair,
    /// Holds if there are values and no pair of them passes; otherwise, if some pair does.
    pub(crate) negated: bool,
}

/// A test of a single value.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    OneOf(Box<[OneOf]>),
    Is(OneOf),
    Order(Relation, Literal),
    Part(Part, Box<[Needle]>),
    Glob(Box<[Glob]>),
    Bits(BitOperator, u64),
}

/// A test of two values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pair {
    Equal(Case),
    /// Equal and of one kind.
    Same,
    Order(Relation),
    Part(Part, Case),
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

    /// Asks about cheap fields before it asks about dear ones, as far as a list of `and` or `or`
    /// leaves the choice.
    ///
    /// `cost` returns the cost class of a field: fields of a higher class are read only if the
    /// fields of lower classes in the same list have not decided. Fields of one class keep their
    /// order. The result does not change.
    #[must_use]
    pub fn cheapest_first(mut self, cost: impl Fn(&F) -> u8) -> Self {
        let costs: Vec<u8> = self.fields.iter().map(cost).collect();
        self.root.sort(&costs);
        self
    }

    /// Whether an event passes. An event for which the filter is undecided does not.
    pub fn matches(&self, lookup: impl Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>) -> bool {
        self.decide(lookup) == Ok(true)
    }

    /// Whether an event passes.
    ///
    /// `lookup` is called with a field and a visitor, and passes to the visitor every value that
    /// the event has for the field: none if the field is missing, several for a list. It should
    /// stop at [`ControlFlow::Break`], as `visit(value)?` and `try_for_each(visit)` do; values
    /// after it change nothing. A field is looked up as often as the filter names it, and not at
    /// all where the rest has already decided. Where two fields are compared, one is looked up for
    /// each value of the other.
    ///
    /// # Errors
    /// A field is missing, or not all of its values are known, and the others do not decide.
    pub fn decide(
        &self,
        lookup: impl Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Undecided> {
        self.holds(&self.root, false, &lookup)
    }

    /// The same as [`decide`](Matcher::decide), where negated comparisons that are undecided hold:
    /// `!=`, and those under `not`. An event then passes although an exception depends on a missing
    /// field.
    ///
    /// # Errors
    /// Comparisons that are not negated are undecided.
    pub fn decide_without_exceptions(
        &self,
        lookup: impl Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Undecided> {
        self.holds(&self.root, true, &lookup)
    }

    /// The fields that leave [`decide`](Matcher::decide) without an answer, by their index in
    /// [`fields`](Matcher::fields), in the order of the comparisons: with all of their values known, the
    /// filter is decided. Empty if it is.
    pub fn undecided_fields(&self, lookup: impl Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>) -> Vec<usize> {
        let mut fields = Vec::new();
        self.undecided(&self.root, &lookup, &mut fields);
        fields
    }

    /// Adds the fields of comparisons that are undecided and can decide the node. Returns whether it holds.
    fn undecided<L>(&self, node: &Node, lookup: &L, fields: &mut Vec<usize>) -> Option<bool>
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let before = fields.len();
        let (nodes, deciding) = match node {
            Node::Any(nodes) => (nodes, true),
            Node::All(nodes) => (nodes, false),
            Node::Constant(_) | Node::Question(_) | Node::Pair(_) => {
                let holds = self.holds(node, false, lookup).ok();
                let read = match node {
                    Node::Question(question) => vec![question.field],
                    Node::Pair(question) => vec![question.left, question.right],
                    _ => vec![],
                };
                if holds.is_none() {
                    fields.extend(read.into_iter().filter(|&field| !self.is_known(field, lookup)));
                }
                return holds;
            }
        };
        let mut all = Some(!deciding);
        for node in nodes {
            match self.undecided(node, lookup, fields) {
                Some(holds) if holds == deciding => {
                    fields.truncate(before);
                    return Some(deciding);
                }
                Some(_) => {}
                None => all = None,
            }
        }
        all
    }

    /// Whether a field has values and all are known.
    fn is_known<L>(&self, field: usize, lookup: &L) -> bool
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let mut side = Side::default();
        let _ = lookup(&self.fields[field], &mut |value| {
            side.takes(value);
            ControlFlow::Continue(())
        });
        side.is_complete()
    }

    /// `assumes`: negated comparisons that are undecided hold.
    fn holds<L>(&self, node: &Node, assumes: bool, lookup: &L) -> Result<bool, Undecided>
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let (passed, negated) = match node {
            Node::Constant(holds) => return Ok(*holds),
            Node::Any(nodes) => return self.first(nodes, true, assumes, lookup),
            Node::All(nodes) => return self.first(nodes, false, assumes, lookup),
            Node::Question(question) => {
                let passed = self.ask(question, lookup);
                (passed.ok_or(Undecided(question.field)), question.negated)
            }
            Node::Pair(question) => (self.compare(*question, lookup), question.negated),
        };
        match passed {
            Err(_) if assumes && negated => Ok(true),
            passed => Ok(passed? != negated),
        }
    }

    /// The value that decides a list if one of its parts has it. Otherwise the list has the
    /// opposite value, if all parts are decided.
    fn first<L>(&self, nodes: &[Node], deciding: bool, assumes: bool, lookup: &L) -> Result<bool, Undecided>
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let mut rest = Ok(!deciding);
        for node in nodes {
            match self.holds(node, assumes, lookup) {
                Ok(holds) if holds == deciding => return Ok(deciding),
                Ok(_) => {}
                Err(undecided) => rest = rest.and(Err(undecided)),
            }
        }
        rest
    }

    /// Whether a value passes the test; `None` if there is no value, or if none of those that are
    /// known does and not all are.
    fn ask<L>(&self, question: &Question, lookup: &L) -> Option<bool>
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let (mut passed, mut is_known) = (None, true);
        let _ = lookup(&self.fields[question.field], &mut |value| {
            if passed != Some(true) {
                match question.passes(value) {
                    Some(passes) => passed = Some(passes),
                    None => is_known = false,
                }
            }
            if passed == Some(true) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        passed.filter(|&passed| passed || is_known)
    }

    /// Whether some value of one field passes with some value of the other.
    fn compare<L>(&self, question: PairQuestion, lookup: &L) -> Result<bool, Undecided>
    where
        L: Fn(&F, &mut Visitor<'_>) -> ControlFlow<()>,
    {
        let PairQuestion { left, right, pair, .. } = question;
        let mut passed = Pairs::default();
        let mut sides = [Side::default(); 2];
        let _ = lookup(&self.fields[left], &mut |value| {
            if !sides[0].takes(value) || passed.is_decided(pair) {
                return ControlFlow::Continue(());
            }
            let _ = lookup(&self.fields[right], &mut |other| {
                if sides[1].takes(other) && !passed.is_decided(pair) {
                    passed.add(pair, value, other);
                }
                if passed.is_decided(pair) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if passed.is_decided(pair) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match sides.map(|side| side.is_complete()) {
            _ if passed.any() => Ok(true),
            [false, _] => Err(Undecided(left)),
            [_, false] => Err(Undecided(right)),
            _ => Ok(false),
        }
    }
}

/// The state of a field's values.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    has_value: bool,
    has_unknown: bool,
}

impl Side {
    /// Whether the value is known.
    fn takes(&mut self, value: Value<'_>) -> bool {
        let is_known = value.is_known();
        self.has_value |= is_known;
        self.has_unknown |= !is_known;
        is_known
    }

    fn is_complete(self) -> bool {
        self.has_value && !self.has_unknown
    }
}

/// The pairs of values that were tested, and whether one of them passed.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    as_numbers: Option<bool>,
    as_text: bool,
}

impl Pairs {
    /// A field that is a number may have a name too: numbers have an order, their names have none
    /// then.
    fn add(&mut self, pair: Pair, value: Value<'_>, other: Value<'_>) {
        let passes = pair.passes(value, other);
        if matches!(pair, Pair::Order(_)) && value.numbers(other).is_some() {
            self.as_numbers = Some(passes || self.as_numbers == Some(true));
        } else {
            self.as_text |= passes;
        }
    }

    fn any(self) -> bool {
        self.as_numbers.unwrap_or(self.as_text)
    }

    /// Whether no other pair can change the answer.
    fn is_decided(self, pair: Pair) -> bool {
        self.as_numbers == Some(true) || (self.as_text && !matches!(pair, Pair::Order(_)))
    }
}

impl Pair {
    fn passes(self, value: Value<'_>, other: Value<'_>) -> bool {
        let texts = || value.text().zip(other.text());
        match self {
            Self::Order(relation) => value.order_with(other).is_some_and(|order| relation.allows(order)),
            Self::Part(part, case) => texts().is_some_and(|(text, own)| is_part(part, case, text, own)),
            Self::Same if value.text().is_some() != other.text().is_some() => false,
            Self::Same => Self::Equal(Case::Sensitive).passes(value, other),
            Self::Equal(case) => match value.numbers(other) {
                Some((number, other)) => number.compare(other) == Some(Ordering::Equal),
                None => texts().is_some_and(|(text, own)| is_part(Part::Whole, case, text, own)),
            },
        }
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
            Self::Pair(PairQuestion { left, right, .. }) => {
                (costs[*left].max(costs[*right]), costs[*left].min(costs[*right]))
            }
            Self::Any(nodes) | Self::All(nodes) => {
                let each = || nodes.iter().map(|node| node.cost(costs));
                let highest = each().map(|(highest, _)| highest).max();
                (highest.unwrap_or(0), each().map(|(_, lowest)| lowest).min().unwrap_or(0))
            }
        }
    }
}

impl Test {
    /// The texts of tests of whole texts and parts.
    fn name_patterns(&self) -> Box<[NamePattern]> {
        let of_literal = |literal: &OneOf| NamePattern::of_needle(&literal.needle, Part::Whole);
        match self {
            Self::OneOf(all) => all.iter().map(of_literal).collect(),
            Self::Is(literal) => literal.number.is_none().then(|| of_literal(literal)).into_iter().collect(),
            Self::Part(part, needles) => {
                needles.iter().map(|needle| NamePattern::of_needle(needle, *part)).collect()
            }
            Self::Glob(globs) => globs.iter().cloned().map(NamePattern::new).collect(),
            Self::Order(..) | Self::Bits(..) => [].into(),
        }
    }

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
            Self::Part(part, needles) => {
                value.text().is_some_and(|text| needles.iter().any(|needle| needle.is_in(*part, text)))
            }
            Self::Glob(globs) => value.text().is_some_and(|text| globs.iter().any(|glob| glob.matches(text))),
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
    /// Whether all of the value is known.
    pub fn is_known(self) -> bool {
        !matches!(self, Self::Unknown | Self::UnnamedFunction { .. })
    }

    /// The text, or the text of the number or truth value; `None` if there is no known value.
    /// Allocates only for text that is not UTF-8, and for numbers.
    pub fn to_text(self) -> Option<Cow<'v, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Utf16(_) | Self::Latin1(_) => Some(self.text()?.characters().collect()),
            Self::Unsigned(number) => Some(number.to_string().into()),
            Self::Signed(number) => Some(number.to_string().into()),
            Self::Float(number) => Some(number.to_string().into()),
            Self::Bool(truth) => Some(Cow::Borrowed(if truth { "true" } else { "false" })),
            Self::Unknown | Self::UnnamedFunction { .. } | Self::Absent => None,
        }
    }

    /// The integer that the value is, or that its text spells.
    pub fn to_integer(self) -> Option<i128> {
        match self.number()? {
            Number::Integer(number) => Some(number),
            Number::Float(_) => None,
        }
    }

    fn text(self) -> Option<Text<'v>> {
        match self {
            Self::Text(text) => Some(Text::Utf8(text)),
            Self::Utf16(bytes) => Some(Text::Utf16(bytes.as_chunks().0)),
            Self::Latin1(bytes) => Some(Text::Latin1(bytes)),
            Self::Unsigned(_)
            | Self::Signed(_)
            | Self::Float(_)
            | Self::Bool(_)
            | Self::Unknown
            | Self::UnnamedFunction { .. }
            | Self::Absent => None,
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
            Self::Unknown | Self::UnnamedFunction { .. } | Self::Absent => None,
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
            Self::Unknown | Self::UnnamedFunction { .. } | Self::Absent => false,
        }
    }

    /// Both as numbers, if one is a number and the other one or text that spells one, or if both
    /// are text that spells integers.
    fn numbers(self, other: Self) -> Option<(Number, Number)> {
        let both = self.number().zip(other.number())?;
        let is_text = self.text().is_some() && other.text().is_some();
        let are_integers = matches!(both, (Number::Integer(_), Number::Integer(_)));
        (!is_text || are_integers).then_some(both)
    }

    /// The order relative to another value; `None` if they cannot be compared.
    fn order_with(self, other: Self) -> Option<Ordering> {
        if let Some((number, other)) = self.numbers(other) {
            return number.compare(other);
        }
        let (text, other) = self.text().zip(other.text())?;
        Some(text.characters().cmp(other.characters()))
    }

    /// The order of the value relative to the literal; `None` if they cannot be compared.
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
