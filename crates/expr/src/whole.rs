//! What a filter wants the whole of a field's text to be, for those who can say before or after that nothing is so.

use std::fmt::{self, Display, Formatter};

use crate::Filter;
use crate::encoding::Text;
use crate::literal::Operand;
use crate::syntax::{Case, Comparison, Expression, TextOperator};
use crate::text::Glob;

/// A text, or a pattern of one: the right side of `=`, `!=`, `in`, `is` and `~`.
#[derive(Clone, Copy, Debug)]
pub struct WholeText<'f> {
    text: &'f str,
    case: Case,
    is_pattern: bool,
}

impl<'f> WholeText<'f> {
    /// What it wants the text before the first of these separators to be, if it has one.
    pub fn before(self, separator: char) -> Option<Self> {
        self.text.split_once(separator).map(|(text, _)| Self { text, ..self })
    }

    /// Whether one of the texts is what is wanted.
    pub fn fits_any<'t>(self, mut texts: impl Iterator<Item = &'t str>) -> bool {
        if self.is_pattern {
            let glob = Glob::new(self.text, self.case);
            return texts.any(|text| glob.matches(Text::Utf8(text)));
        }
        let wanted = self.case.prepare(self.text);
        texts.any(|text| self.case.prepare(text) == wanted)
    }
}

/// Without quotes.
impl Display for WholeText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

impl Filter {
    /// The texts and patterns that a field is compared with as a whole, in the order of the text.
    pub fn whole_texts<'f>(&'f self, field: &str) -> Vec<WholeText<'f>> {
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

fn of_comparison(comparison: &Comparison) -> impl Iterator<Item = WholeText<'_>> {
    use TextOperator::{Equal, Glob, NotEqual};
    let (operands, case, is_pattern) = match comparison {
        Comparison::Text(operator @ (Equal | NotEqual | Glob), case, operands) => {
            (operands.as_slice(), *case, *operator == Glob)
        }
        Comparison::In(case, operands) => (operands.as_slice(), *case, false),
        Comparison::Is(operand) => (std::slice::from_ref(operand), Case::Sensitive, false),
        Comparison::Text(..) | Comparison::Order(..) | Comparison::Bits(..) => {
            (&[][..], Case::Sensitive, false)
        }
    };
    operands.iter().filter_map(move |operand| match operand {
        Operand::Literal(literal) => Some(WholeText { text: &literal.text, case, is_pattern }),
        Operand::Field(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::Filter;

    #[test]
    fn whole_texts_of_a_field() {
        let filter = Filter::parse(
            "a = 'x!y' and (b = 'z' or not a i~ ('K*!n', 'm')) and a in (1, 'T!') and a contains 'part' and a != b",
        )
        .expect("valid");
        let texts = filter.whole_texts("a");
        let shown: Vec<String> = texts.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["x!y", "K*!n", "m", "1", "T!"]);
        let names = || ["X", "kernel", "t"].into_iter();
        let fits: Vec<_> =
            texts.iter().map(|text| text.before('!').map(|text| text.fits_any(names()))).collect();
        assert_eq!(fits, [Some(false), Some(true), None, None, Some(false)]);
    }
}
