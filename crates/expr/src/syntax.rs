//! The syntax tree and its canonical text.
//!
//! Both directions use the operator spellings of this file: the parser reads them, `Display` writes
//! them.

use std::fmt::{self, Display, Formatter};
use std::slice;

use crate::lex::{TEXT_MARK, bare_length, is_bare};
use crate::literal::Operand;

/// A whole filter or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// Two or more parts of which one must hold.
    Or(Vec<Expression>),
    /// Two or more parts that must all hold.
    And(Vec<Expression>),
    /// Holds where its part does not.
    Not(Box<Expression>),
    /// One field against one or more values or fields.
    Comparison(Field, Comparison),
    /// Always holds, or never.
    Constant(bool),
}

/// A field by name; see [`field`](crate::field).
#[derive(Clone, Debug)]
pub struct Field {
    /// The whole name, dots included, without quotes.
    pub(crate) name: String,
    /// Byte offset in the source, for errors. Not part of the field's identity.
    pub(crate) at: usize,
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The test of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Comparison {
    /// `<`, `<=`, `>`, `>=`.
    Order(Relation, Operand),
    /// The operators that know a variant that ignores case, with at least one operand. `=` and `!=`
    /// have one.
    Text(TextOperator, Case, Vec<Operand>),
    /// `in` with at least one operand.
    In(Case, Vec<Operand>),
    /// `is`: equality within one kind.
    Is(Operand),
    /// `hasany`, `hasall`, with the bits.
    Bits(BitOperator, u64),
}

/// An operator on the bits of an integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BitOperator {
    Any,
    All,
}

/// An ordering operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Relation {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operator on one value that has a variant ignoring case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TextOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `~`
    Glob,
    /// `contains`
    Contains,
    /// `startswith`
    StartsWith,
    /// `endswith`
    EndsWith,
}

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    /// They differ.
    Sensitive,
    /// They are the same.
    Ignored,
}

/// An operator before its value is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operator {
    Order(Relation),
    Text(TextOperator, Case),
    In(Case),
    Is,
    Bits(BitOperator),
}

/// The operator that takes a list.
const IN: &str = "in";

/// The operator that does not compare across kinds.
const IS: &str = "is";

const BIT_OPERATORS: [(&str, BitOperator); 2] = [("hasany", BitOperator::Any), ("hasall", BitOperator::All)];

const RELATIONS: [(&str, Relation); 4] = [
    ("<", Relation::Less),
    ("<=", Relation::LessOrEqual),
    (">", Relation::Greater),
    (">=", Relation::GreaterOrEqual),
];

const TEXT_OPERATORS: [(&str, TextOperator); 6] = [
    ("=", TextOperator::Equal),
    ("!=", TextOperator::NotEqual),
    ("~", TextOperator::Glob),
    ("contains", TextOperator::Contains),
    ("startswith", TextOperator::StartsWith),
    ("endswith", TextOperator::EndsWith),
];

impl Operator {
    /// Finds an operator, with or without the prefix `i`; words in any case.
    pub(crate) fn from_spelling(spelling: &str) -> Option<Self> {
        let with_case = |spelling: &str, case| {
            if spelling.eq_ignore_ascii_case(IN) {
                return Some(Self::In(case));
            }
            by_spelling(&TEXT_OPERATORS, spelling).map(|operator| Self::Text(operator, case))
        };
        if spelling.eq_ignore_ascii_case(IS) {
            return Some(Self::Is);
        }
        by_spelling(&RELATIONS, spelling)
            .map(Self::Order)
            .or_else(|| by_spelling(&BIT_OPERATORS, spelling).map(Self::Bits))
            .or_else(|| with_case(spelling, Case::Sensitive))
            .or_else(|| with_case(spelling.strip_prefix(['i', 'I'])?, Case::Ignored))
    }
}

fn by_spelling<O: Copy>(operators: &[(&str, O)], spelling: &str) -> Option<O> {
    operators.iter().find(|(known, _)| known.eq_ignore_ascii_case(spelling)).map(|(_, operator)| *operator)
}

fn spelling_of<O: Copy + PartialEq>(operators: &[(&'static str, O)], operator: O) -> &'static str {
    operators.iter().find(|(_, known)| *known == operator).map_or("", |(spelling, _)| spelling)
}

impl Expression {
    /// How many parentheses and `not` enclose each other in the text.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Or(parts) | Self::And(parts) => {
                let within = |part: &Self| part.depth() + usize::from(self.parenthesizes(part));
                parts.iter().map(within).max().unwrap_or(0)
            }
            Self::Not(part) => part.depth() + 1 + usize::from(self.parenthesizes(part)),
            Self::Comparison(..) | Self::Constant(_) => 0,
        }
    }

    /// Whether a part of this expression is in parentheses.
    fn parenthesizes(&self, part: &Self) -> bool {
        matches!(
            (self, part),
            (Self::And(_) | Self::Not(_), Self::Or(_) | Self::And(_)) | (Self::Or(_), Self::Or(_))
        )
    }

    /// A length in bytes that no text of this expression falls below.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Or(parts) | Self::And(parts) => parts.iter().map(|part| part.length() + 1).sum(),
            Self::Not(part) => part.length() + 1,
            Self::Constant(_) => 1,
            Self::Comparison(field, comparison) => {
                let operands = match comparison {
                    Comparison::In(_, operands) | Comparison::Text(_, _, operands) => operands.as_slice(),
                    Comparison::Order(_, operand) | Comparison::Is(operand) => slice::from_ref(operand),
                    Comparison::Bits(..) => &[],
                };
                let length = |operand: &Operand| match operand {
                    Operand::Literal(literal) => literal.text.len() + 1,
                    Operand::Field(field) => field.name.len() + 1,
                };
                field.name.len() + operands.iter().map(length).sum::<usize>()
            }
        }
    }
}

/// Parses back to the same tree; parentheses only where they are needed.
impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let part = |f: &mut Formatter<'_>, part: &Self| {
            if self.parenthesizes(part) { write!(f, "({part})") } else { write!(f, "{part}") }
        };
        match self {
            Self::Or(parts) => separated(f, parts, " or ", part),
            Self::And(parts) => separated(f, parts, " and ", part),
            Self::Not(negated) => {
                f.write_str("not ")?;
                part(f, negated)
            }
            Self::Comparison(field, comparison) => write!(f, "{field} {comparison}"),
            Self::Constant(holds) => write!(f, "{holds}"),
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_bare(&self.name) {
            return f.write_str(&self.name);
        }
        self.quoted(f)
    }
}

impl Field {
    /// Quotes only the text after the last dot of the part that can be bare, as in `fields."Odd
    /// Name"`.
    fn quoted(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bare = self.name[..bare_length(&self.name)].split(TEXT_MARK).next().unwrap_or_default();
        let (bare, rest) = self.name.split_at(bare.rfind('.').map_or(0, |dot| dot + 1));
        write!(f, "{bare}\"{}\"", rest.replace('"', "\"\""))
    }
}

/// A bare word is a field here unless it has the mark of text.
impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(literal) => literal.fmt(f),
            Self::Field(field) if field.name.contains(TEXT_MARK) => field.quoted(f),
            Self::Field(field) => field.fmt(f),
        }
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(relation, operand) => write!(f, "{} {operand}", spelling_of(&RELATIONS, *relation)),
            Self::Text(operator, case, operands) => {
                write!(f, "{case}{} ", spelling_of(&TEXT_OPERATORS, *operator))?;
                match operands.as_slice() {
                    [operand] => operand.fmt(f),
                    several => list(f, several),
                }
            }
            Self::In(case, operands) => {
                write!(f, "{case}{IN} ")?;
                list(f, operands)
            }
            Self::Is(operand) => write!(f, "{IS} {operand}"),
            Self::Bits(operator, bits) => write!(f, "{} {bits:#x}", spelling_of(&BIT_OPERATORS, *operator)),
        }
    }
}

/// The prefix of the operator.
impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sensitive => "",
            Self::Ignored => "i",
        })
    }
}

fn list(f: &mut Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    f.write_str("(")?;
    separated(f, operands, ", ", |f, operand| operand.fmt(f))?;
    f.write_str(")")
}

fn separated<T>(
    f: &mut Formatter<'_>,
    parts: &[T],
    separator: &str,
    write: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        write(f, part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Literal;
    use crate::parse::parse;

    fn literal() -> impl Strategy<Value = Operand> {
        let literal = prop_oneof![
            any::<String>().prop_map(Literal::from),
            r#"['" a\\]{0,4}"#.prop_map(Literal::from),
            "-?[0-9]{1,18}|-?0x[0-9a-fA-F]{1,15}|-?[0-9]{1,4}\\.[0-9]{1,4}|true|FALSE"
                .prop_map(|word| Literal::bare(&word).ok().flatten().expect("a number of 64 bits")),
        ];
        literal.prop_map(Operand::Literal)
    }

    fn operand() -> impl Strategy<Value = Operand> {
        let name = prop_oneof!["[a-z]{1,4}(\\.[A-Za-z]{1,4}){0,2}x", "(in|is|i)", "fields\\.[/ a.\"']{0,5}"];
        prop_oneof![2 => literal(), 1 => name.prop_map(|name| Operand::Field(Field { name, at: 0 }))]
    }

    fn case() -> impl Strategy<Value = Case> {
        prop_oneof![Just(Case::Sensitive), Just(Case::Ignored)]
    }

    fn comparison() -> impl Strategy<Value = Comparison> {
        let relation = proptest::sample::select(RELATIONS.map(|(_, relation)| relation).to_vec());
        let equality = proptest::sample::select(vec![TextOperator::Equal, TextOperator::NotEqual]);
        let part = vec![TextOperator::Contains, TextOperator::StartsWith, TextOperator::EndsWith];
        let part = proptest::sample::select(part);
        prop_oneof![
            (relation, operand()).prop_map(|(relation, operand)| Comparison::Order(relation, operand)),
            (equality, case(), operand()).prop_map(|(operator, case, operand)| Comparison::Text(
                operator,
                case,
                vec![operand]
            )),
            (part, case(), vec(operand(), 1..4))
                .prop_map(|(operator, case, operands)| Comparison::Text(operator, case, operands)),
            (case(), vec(literal(), 1..4)).prop_map(|(case, patterns)| Comparison::Text(
                TextOperator::Glob,
                case,
                patterns
            )),
            (case(), vec(operand(), 1..4)).prop_map(|(case, operands)| Comparison::In(case, operands)),
            operand().prop_map(Comparison::Is),
            any::<u64>().prop_map(|bits| Comparison::Bits(BitOperator::Any, bits)),
            any::<u64>().prop_map(|bits| Comparison::Bits(BitOperator::All, bits)),
        ]
    }

    fn field() -> impl Strategy<Value = Field> {
        let name = prop_oneof![
            "[a-z]{1,4}(\\.[A-Za-z]{1,4}){0,2}",
            "[a.\" ']{0,5}",
            "and|OR|not|i|in|is|true|False|contains|hasany",
            any::<String>()
        ];
        name.prop_map(|name| Field { name, at: 0 })
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let comparison =
            (field(), comparison()).prop_map(|(field, test)| Expression::Comparison(field, test));
        let leaf = prop_oneof![8 => comparison, 1 => any::<bool>().prop_map(Expression::Constant)];
        leaf.prop_recursive(5, 40, 4, |part| {
            prop_oneof![
                vec(part.clone(), 2..4).prop_map(Expression::Or),
                vec(part.clone(), 2..4).prop_map(Expression::And),
                part.prop_map(|part| Expression::Not(Box::new(part))),
            ]
        })
    }

    #[test]
    fn canonical_text() {
        let check = |source: &str, canonical: &str| {
            assert_eq!(
                parse(source).map(|expression| expression.to_string()).as_deref(),
                Ok(canonical),
                "{source}"
            );
        };
        check("((a<1))AND(NOT(b=x))", "a < 1 and not b = x");
        check(
            "(a=1 and b=2) or (c=3 and not (d=4 or e=5))",
            "a = 1 and b = 2 or c = 3 and not (d = 4 or e = 5)",
        );
        check("a=1 and (b=2 and c=3)", "a = 1 and (b = 2 and c = 3)");
        check("a IIN(\"it's\",0X1F,True)", "a iin ('it''s', 0X1F, True)");
        check("'fields.Odd ''Name' I~ \"*\"", "fields.\"Odd 'Name\" i~ '*'");
        check("a=Process/Start or a~(FileIo/*)", "a = 'Process/Start' or a ~ 'FileIo/*'");
        check("a=fields.'Odd Name' and b=fields.\"a/b\"", "a = fields.\"Odd Name\" and b = fields.\"a/b\"");
        check("a contains ('x',fields.y)", "a contains ('x', fields.y)");
        check("'and' iContains \"\"", "\"and\" icontains ''");
        check("TRUE or(False)and not true", "true or false and not true");
        check("true = 1 or a IS x or 'true' is 0X1", "true = 1 or a is x or true is 0X1");
        check("a HasAny 16 and b hasall 0x0F", "a hasany 0x10 and b hasall 0xf");
    }

    proptest! {
        #[test]
        fn written_expressions_parse_back(expression in expression()) {
            let text = expression.to_string();
            prop_assert!(expression.length() <= text.len(), "{}", text);
            prop_assert_eq!(parse(&text), Ok(expression), "{}", text);
        }
    }
}
