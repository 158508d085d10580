//! The syntax tree and its canonical text.
//!
//! Both directions use the operator spellings of this file: the parser reads them, `Display` writes them.

use std::fmt::{self, Display, Formatter};

use crate::lex::{bare_length, is_bare};
use crate::number::{Number, is_numeral};

/// A whole filter or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    /// Two or more parts of which one must hold.
    Or(Vec<Expression>),
    /// Two or more parts that must all hold.
    And(Vec<Expression>),
    /// Holds where its part does not.
    Not(Box<Expression>),
    /// One field against one or more literals.
    Comparison(Field, Comparison),
}

/// A field by name.
#[derive(Clone, Debug)]
pub(crate) struct Field {
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

/// What is asked of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Comparison {
    /// `<`, `<=`, `>`, `>=`.
    Order(Relation, Literal),
    /// The operators that know a variant that ignores case.
    Text(TextOperator, Case, Literal),
    /// `in` with at least one literal.
    In(Case, Vec<Literal>),
}

/// An operator that asks for an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Relation {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operator on one value that has a variant ignoring case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TextOperator {
    Equal,
    NotEqual,
    Glob,
    Contains,
    StartsWith,
    EndsWith,
}

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Case {
    Sensitive,
    Ignored,
}

/// An operator before its value is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operator {
    Order(Relation),
    Text(TextOperator, Case),
    In(Case),
}

/// The operator that takes a list.
const IN: &str = "in";

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
        by_spelling(&RELATIONS, spelling)
            .map(Self::Order)
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

/// A value as the filter spells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Literal {
    /// The text between the quotes, or the bare word.
    pub(crate) text: Box<str>,
    /// What a bare numeral, `true` or `false` stands for.
    pub(crate) number: Option<Number>,
}

impl Literal {
    /// A literal in quotes: text and nothing else.
    pub(crate) fn quoted(text: String) -> Self {
        Self { text: text.into(), number: None }
    }

    /// A bare word: text that is a number, too, if it looks like one. `None` if that number is out of range.
    pub(crate) fn bare(word: &str) -> Option<Self> {
        let number = if word.eq_ignore_ascii_case("true") {
            Some(Number::Integer(1))
        } else if word.eq_ignore_ascii_case("false") {
            Some(Number::Integer(0))
        } else if is_numeral(word) {
            Some(Number::parse(word)?)
        } else {
            None
        };
        Some(Self { text: word.into(), number })
    }
}

/// Parses back to the same tree; parentheses only where they are needed.
impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(parts) => separated(f, parts, " or ", |f, part| match part {
                Self::Or(_) => write!(f, "({part})"),
                _ => write!(f, "{part}"),
            }),
            Self::And(parts) => separated(f, parts, " and ", |f, part| match part {
                Self::Or(_) | Self::And(_) => write!(f, "({part})"),
                _ => write!(f, "{part}"),
            }),
            Self::Not(part) => match **part {
                Self::Or(_) | Self::And(_) => write!(f, "not ({part})"),
                _ => write!(f, "not {part}"),
            },
            Self::Comparison(field, comparison) => write!(f, "{field} {comparison}"),
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if is_bare(&self.name) {
            return f.write_str(&self.name);
        }
        // Quotes only for what follows the last dot of the part that can stand bare, as in `fields."Odd Name"`.
        let bare = &self.name[..bare_length(&self.name)];
        let (bare, rest) = self.name.split_at(bare.rfind('.').map_or(0, |dot| dot + 1));
        write!(f, "{bare}\"{}\"", rest.replace('"', "\"\""))
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(relation, literal) => write!(f, "{} {literal}", spelling_of(&RELATIONS, *relation)),
            Self::Text(operator, case, literal) => {
                write!(f, "{case}{} {literal}", spelling_of(&TEXT_OPERATORS, *operator))
            }
            Self::In(case, literals) => {
                write!(f, "{case}{IN} (")?;
                separated(f, literals, ", ", |f, literal| write!(f, "{literal}"))?;
                f.write_str(")")
            }
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

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(_) => f.write_str(&self.text),
            None => write!(f, "'{}'", self.text.replace('\'', "''")),
        }
    }
}

fn separated<T>(
    f: &mut Formatter<'_>,
    parts: &[T],
    separator: &str,
    mut write: impl FnMut(&mut Formatter<'_>, &T) -> fmt::Result,
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
    use crate::parse::parse;

    fn literal() -> impl Strategy<Value = Literal> {
        prop_oneof![
            any::<String>().prop_map(Literal::quoted),
            r#"['" a\\]{0,4}"#.prop_map(Literal::quoted),
            "-?[0-9]{1,20}|-?0x[0-9a-fA-F]{1,16}|-?[0-9]{1,4}\\.[0-9]{1,4}|true|FALSE"
                .prop_map(|word| Literal::bare(&word).expect("within range")),
        ]
    }

    fn case() -> impl Strategy<Value = Case> {
        prop_oneof![Just(Case::Sensitive), Just(Case::Ignored)]
    }

    fn comparison() -> impl Strategy<Value = Comparison> {
        let relation = proptest::sample::select(RELATIONS.map(|(_, relation)| relation).to_vec());
        let operator = proptest::sample::select(TEXT_OPERATORS.map(|(_, operator)| operator).to_vec());
        prop_oneof![
            (relation, literal()).prop_map(|(relation, literal)| Comparison::Order(relation, literal)),
            (operator, case(), literal())
                .prop_map(|(operator, case, literal)| Comparison::Text(operator, case, literal)),
            (case(), vec(literal(), 1..4)).prop_map(|(case, literals)| Comparison::In(case, literals)),
        ]
    }

    fn field() -> impl Strategy<Value = Field> {
        let name = prop_oneof![
            "[a-z]{1,4}(\\.[A-Za-z]{1,4}){0,2}",
            "[a.\" ']{0,5}",
            "and|OR|not|i|in|true|contains",
            any::<String>()
        ];
        name.prop_map(|name| Field { name, at: 0 })
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let leaf = (field(), comparison()).prop_map(|(field, test)| Expression::Comparison(field, test));
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
        check("((a<1))AND(NOT(b=x))", "a < 1 and not b = 'x'");
        check(
            "(a=1 and b=2) or (c=3 and not (d=4 or e=5))",
            "a = 1 and b = 2 or c = 3 and not (d = 4 or e = 5)",
        );
        check("a=1 and (b=2 and c=3)", "a = 1 and (b = 2 and c = 3)");
        check("a IIN(\"it's\",0X1F,True)", "a iin ('it''s', 0X1F, True)");
        check("'fields.Odd ''Name' I~ *", "fields.\"Odd 'Name\" i~ '*'");
        check("'and' iContains \"\"", "\"and\" icontains ''");
    }

    proptest! {
        #[test]
        fn written_expressions_parse_back(expression in expression()) {
            let text = expression.to_string();
            prop_assert_eq!(parse(&text), Ok(expression), "{}", text);
        }
    }
}
