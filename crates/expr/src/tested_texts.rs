//! The texts that a filter compares a field with, for callers that know all possible texts in
//! advance.

use std::slice;

use crate::Filter;
use crate::encoding::Text;
use crate::literal::Operand;
use crate::syntax::{Case, Comparison, Expression, TextOperator};
use crate::text::Glob;

/// The right side of a comparison: a text, a pattern, or part of a text.
#[derive(Clone, Copy, Debug)]
pub struct TestedText<'f> {
    text: &'f str,
    case: Case,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// `=`, `!=`, `in`, `is`
    Whole,
    /// `~`
    Pattern,
    /// `contains`, `startswith`, `endswith`, `<` to `>=`
    Part,
}

impl<'f> TestedText<'f> {
    /// As it is written, without quotes.
    pub fn as_str(self) -> &'f str {
        self.text
    }

    /// Whether all of the field's text is compared, by equality or a pattern.
    pub fn is_whole(self) -> bool {
        self.kind != Kind::Part
    }

    /// The required text before the first of these separators, if there is one.
    pub fn before(self, separator: char) -> Option<Self> {
        self.text.split_once(separator).map(|(text, _)| Self { text, ..self })
    }

    /// Whether one of the texts equals it, or fits its pattern.
    pub fn fits_any<'t>(self, mut texts: impl Iterator<Item = &'t str>) -> bool {
        if self.kind == Kind::Pattern {
            let glob = Glob::new(self.text, self.case);
            return texts.any(|text| glob.matches(Text::Utf8(text)));
        }
        let wanted = self.case.prepare(self.text);
        texts.any(|text| self.case.prepare(text) == wanted)
    }
}

impl Filter {
    /// The texts that a field is compared with, in the order of the filter. Excludes other fields
    /// and bit tests.
    pub fn tested_texts<'f>(&'f self, field: &str) -> Vec<TestedText<'f>> {
        let mut found = Vec::new();
        let mut left: Vec<&Expression> = self.expression.iter().collect();
        while let Some(expression) = left.pop() {
            match expression {
                Expression::Or(parts) | Expression::And(parts) => left.extend(parts.iter().rev()),
                Expression::Not(part) => left.push(part),
                Expression::Comparison(compared, comparison) if compared.name == field => {
                    found.extend(of_comparison(comparison));
                }
                Expression::Comparison(..) | Expression::Constant(_) => {}
            }
        }
        found
    }
}

fn of_comparison(comparison: &Comparison) -> impl Iterator<Item = TestedText<'_>> {
    let (operands, case, kind) = match comparison {
        Comparison::Text(operator, case, operands) => {
            let kind = match operator {
                TextOperator::Equal | TextOperator::NotEqual => Kind::Whole,
                TextOperator::Glob => Kind::Pattern,
                TextOperator::Contains | TextOperator::StartsWith | TextOperator::EndsWith => Kind::Part,
            };
            (operands.as_slice(), *case, kind)
        }
        Comparison::In(case, operands) => (operands.as_slice(), *case, Kind::Whole),
        Comparison::Is(operand) => (slice::from_ref(operand), Case::Sensitive, Kind::Whole),
        Comparison::Order(_, operand) => (slice::from_ref(operand), Case::Sensitive, Kind::Part),
        Comparison::Bits(..) => (&[][..], Case::Sensitive, Kind::Part),
    };
    operands.iter().filter_map(move |operand| match operand {
        Operand::Literal(literal) => Some(TestedText { text: &literal.text, case, kind }),
        Operand::Field(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::Filter;

    #[test]
    fn texts_of_a_field() {
        let filter = Filter::parse(
            "a = 'x!y' and (b = 'z' or not a i~ ('K*!n', 'm')) and a in (1, 'T!') and a contains 'part' and a != b",
        )
        .expect("valid");
        let texts = filter.tested_texts("a");
        let shown: Vec<_> = texts.iter().map(|text| (text.as_str(), text.is_whole())).collect();
        let whole = ["x!y", "K*!n", "m", "1", "T!"].map(|text| (text, true));
        assert_eq!(shown, [&whole[..], &[("part", false)]].concat());
        let names = || ["X", "kernel", "t"].into_iter();
        let fits: Vec<_> =
            texts.iter().map(|text| text.before('!').map(|text| text.fits_any(names()))).collect();
        assert_eq!(fits, [Some(false), Some(true), None, None, Some(false), None]);
    }
}
