//! Filters built in Rust: the same trees as those of the text.

use std::ops::{BitAnd, BitOr, Not};

use crate::syntax::{BitOperator, Case, Comparison, Expression, Field, Relation, TextOperator};
use crate::{Filter, MAX_DEPTH, Operand};

/// A field by its name, dots included, to be compared with values and other fields. Quotes are part of the name.
///
/// ```
/// use stackhound_expr::{Filter, field};
///
/// let built = field("pid").equals(812) & !field("fields.Odd Name").icontains("x");
/// assert_eq!(built.to_string(), "pid = 812 and not fields.\"Odd Name\" icontains 'x'");
/// assert_eq!(Filter::parse(&built.to_string()).as_ref(), Ok(&built));
/// ```
pub fn field(name: impl Into<String>) -> Field {
    Field { name: name.into(), at: 0 }
}

/// Each method is one of the [operators](crate#operators) of the language, which are described
/// there.
impl Field {
    /// `=`
    pub fn equals(self, value: impl Into<Operand>) -> Filter {
        self.text(TextOperator::Equal, Case::Sensitive, value)
    }

    /// `i=`
    pub fn iequals(self, value: impl Into<Operand>) -> Filter {
        self.text(TextOperator::Equal, Case::Ignored, value)
    }

    /// `!=`
    pub fn differs(self, value: impl Into<Operand>) -> Filter {
        self.text(TextOperator::NotEqual, Case::Sensitive, value)
    }

    /// `i!=`
    pub fn idiffers(self, value: impl Into<Operand>) -> Filter {
        self.text(TextOperator::NotEqual, Case::Ignored, value)
    }

    /// `is`
    pub fn is(self, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Is(value.into()))
    }

    /// `<`
    pub fn less(self, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Order(Relation::Less, value.into()))
    }

    /// `<=`
    pub fn at_most(self, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Order(Relation::LessOrEqual, value.into()))
    }

    /// `>`
    pub fn greater(self, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Order(Relation::Greater, value.into()))
    }

    /// `>=`
    pub fn at_least(self, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Order(Relation::GreaterOrEqual, value.into()))
    }

    /// `~`
    pub fn matches(self, pattern: &str) -> Filter {
        self.text(TextOperator::Glob, Case::Sensitive, pattern)
    }

    /// `i~`
    pub fn imatches(self, pattern: &str) -> Filter {
        self.text(TextOperator::Glob, Case::Ignored, pattern)
    }

    /// `contains`
    pub fn contains(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::Contains, Case::Sensitive, text)
    }

    /// `icontains`
    pub fn icontains(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::Contains, Case::Ignored, text)
    }

    /// `startswith`
    pub fn starts_with(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::StartsWith, Case::Sensitive, text)
    }

    /// `istartswith`
    pub fn istarts_with(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::StartsWith, Case::Ignored, text)
    }

    /// `endswith`
    pub fn ends_with(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::EndsWith, Case::Sensitive, text)
    }

    /// `iendswith`
    pub fn iends_with(self, text: impl Into<Operand>) -> Filter {
        self.text(TextOperator::EndsWith, Case::Ignored, text)
    }

    /// `in`; of no values, [`Filter::nothing`].
    pub fn one_of(self, values: impl IntoIterator<Item = impl Into<Operand>>) -> Filter {
        self.listed(Case::Sensitive, values)
    }

    /// `iin`; of no values, [`Filter::nothing`].
    pub fn ione_of(self, values: impl IntoIterator<Item = impl Into<Operand>>) -> Filter {
        self.listed(Case::Ignored, values)
    }

    /// A text operator with several values, of which one must fit; of no values,
    /// [`Filter::nothing`]. Only patterns must not be fields.
    pub fn compares(
        self,
        operator: TextOperator,
        case: Case,
        values: impl IntoIterator<Item = impl Into<Operand>>,
    ) -> Filter {
        let values: Vec<Operand> = values.into_iter().map(Into::into).collect();
        match operator {
            _ if values.is_empty() => Filter::nothing(),
            TextOperator::Equal => self.compared(Comparison::In(case, values)),
            TextOperator::NotEqual => !self.compared(Comparison::In(case, values)),
            _ => self.compared(Comparison::Text(operator, case, values)),
        }
    }

    /// `hasany`
    pub fn has_any(self, bits: u64) -> Filter {
        self.compared(Comparison::Bits(BitOperator::Any, bits))
    }

    /// `hasall`
    pub fn has_all(self, bits: u64) -> Filter {
        self.compared(Comparison::Bits(BitOperator::All, bits))
    }

    fn text(self, operator: TextOperator, case: Case, value: impl Into<Operand>) -> Filter {
        self.compared(Comparison::Text(operator, case, vec![value.into()]))
    }

    fn listed(self, case: Case, values: impl IntoIterator<Item = impl Into<Operand>>) -> Filter {
        let values: Vec<Operand> = values.into_iter().map(Into::into).collect();
        if values.is_empty() {
            return Filter::nothing();
        }
        self.compared(Comparison::In(case, values))
    }

    fn compared(self, comparison: Comparison) -> Filter {
        Filter::leaf(Expression::Comparison(self, comparison))
    }
}

impl Filter {
    /// `true`: every event passes.
    pub fn everything() -> Self {
        Self::leaf(Expression::Constant(true))
    }

    /// `false`: no event passes.
    pub fn nothing() -> Self {
        Self::leaf(Expression::Constant(false))
    }

    /// Holds if one of the parts holds; of no parts, never.
    pub fn any_of(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().reduce(Self::bitor).unwrap_or_else(Self::nothing)
    }

    /// Holds if all parts hold; of no parts, **never**: a list that was left empty by mistake lets
    /// nothing through.
    pub fn all_of(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().reduce(Self::bitand).unwrap_or_else(Self::nothing)
    }

    /// Holds if no part holds; of no parts, always.
    pub fn none_of(parts: impl IntoIterator<Item = Self>) -> Self {
        !Self::any_of(parts)
    }

    fn leaf(expression: Expression) -> Self {
        Self { expression: Some(expression), depth: 0 }
    }

    /// A list of two filters, with nested lists of the same kind flattened. Costs time proportional
    /// to the shorter one.
    fn joined(self, other: Self, join: Join) -> Self {
        let (Some(left), Some(right)) = (self.expression, other.expression) else { return Self::too_deep() };
        let mut depth = 0;
        let mut parts = Vec::new();
        for (expression, within) in [(left, self.depth), (right, other.depth)] {
            match (join.parts_of(expression), parts.is_empty()) {
                (Ok(list), true) => (parts, depth) = (list, within),
                (Ok(list), false) => {
                    parts.extend(list);
                    depth = depth.max(within);
                }
                (Err(single), _) => {
                    depth = depth.max(within + usize::from(join.parenthesizes(&single)));
                    parts.push(single);
                }
            }
        }
        Self::of(join.list(parts), depth)
    }

    /// A filter that is nested too deep is not kept: taking it apart again takes a stack as deep.
    fn of(expression: Expression, depth: usize) -> Self {
        if depth > MAX_DEPTH { Self::too_deep() } else { Self { expression: Some(expression), depth } }
    }

    fn too_deep() -> Self {
        Self { expression: None, depth: MAX_DEPTH + 1 }
    }
}

/// Which list two filters make.
#[derive(Clone, Copy)]
enum Join {
    And,
    Or,
}

impl Join {
    fn list(self, parts: Vec<Expression>) -> Expression {
        match self {
            Self::And => Expression::And(parts),
            Self::Or => Expression::Or(parts),
        }
    }

    /// Whether a part that is not such a list is in parentheses.
    fn parenthesizes(self, part: &Expression) -> bool {
        matches!((self, part), (Self::And, Expression::Or(_)))
    }

    /// The parts of such a list; any other expression is returned unchanged.
    fn parts_of(self, expression: Expression) -> Result<Vec<Expression>, Expression> {
        match (self, expression) {
            (Self::And, Expression::And(parts)) | (Self::Or, Expression::Or(parts)) => Ok(parts),
            (_, other) => Err(other),
        }
    }
}

/// `and`. A chain is one list, so its length costs no depth.
impl BitAnd for Filter {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.joined(other, Join::And)
    }
}

/// `or`. A chain is one list, so its length costs no depth.
impl BitOr for Filter {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.joined(other, Join::Or)
    }
}

/// `not`; twice, it is the filter itself.
impl Not for Filter {
    type Output = Self;

    fn not(self) -> Self {
        match self.expression {
            None => Self::too_deep(),
            // Its content is then one level higher, and not in parentheses.
            Some(Expression::Not(part)) => {
                let depth = part.depth();
                Self::of(*part, depth)
            }
            Some(Expression::Constant(holds)) => Self::leaf(Expression::Constant(!holds)),
            Some(part) => {
                let parentheses = matches!(part, Expression::Or(_) | Expression::And(_));
                Self::of(Expression::Not(Box::new(part)), self.depth + 1 + usize::from(parentheses))
            }
        }
    }
}
