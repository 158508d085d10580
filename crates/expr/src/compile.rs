//! From the syntax tree to a matcher: fields are resolved, literals prepared.

use std::collections::HashMap;
use std::slice;

use crate::error::Error;
use crate::eval::{Matcher, Node, OneOf, Test};
use crate::suggest::most_similar;
use crate::syntax::{Case, Comparison, Expression, Field, TextOperator};
use crate::text::Glob;

/// Compiles `expression`; `candidates` are the names that a misspelt field may have meant.
pub(crate) fn compile<F>(
    expression: &Expression,
    candidates: &[&str],
    resolve: impl FnMut(&str) -> Option<F>,
) -> Result<Matcher<F>, Error> {
    let mut compiler = Compiler { candidates, resolve, fields: Vec::new(), indices: HashMap::new() };
    let root = compiler.node(expression)?;
    Ok(Matcher::new(compiler.fields, root))
}

struct Compiler<'c, 'e, F, R> {
    candidates: &'c [&'c str],
    resolve: R,
    fields: Vec<F>,
    /// Where in `fields` a name is that was resolved before.
    indices: HashMap<&'e str, usize>,
}

impl<'e, F, R: FnMut(&str) -> Option<F>> Compiler<'_, 'e, F, R> {
    fn node(&mut self, expression: &'e Expression) -> Result<Node, Error> {
        Ok(match expression {
            Expression::Or(parts) => Node::Any(self.nodes(parts)?),
            Expression::And(parts) => Node::All(self.nodes(parts)?),
            Expression::Not(part) => Node::Not(Box::new(self.node(part)?)),
            Expression::Comparison(field, comparison) => {
                let field = self.field(field)?;
                let test = test(comparison);
                match comparison {
                    Comparison::Text(TextOperator::NotEqual, ..) => Node::HasOther { field, test },
                    _ => Node::Has { field, test },
                }
            }
        })
    }

    fn nodes(&mut self, parts: &'e [Expression]) -> Result<Box<[Node]>, Error> {
        parts.iter().map(|part| self.node(part)).collect()
    }

    fn field(&mut self, field: &'e Field) -> Result<usize, Error> {
        let name = field.name.as_str();
        if let Some(&index) = self.indices.get(name) {
            return Ok(index);
        }
        let Some(resolved) = (self.resolve)(name) else {
            let suggestion = most_similar(name, self.candidates).map(str::to_owned);
            return Err(Error::UnknownField { at: field.at, name: name.to_owned(), suggestion });
        };
        let index = self.fields.len();
        self.fields.push(resolved);
        self.indices.insert(name, index);
        Ok(index)
    }
}

/// What each value is asked. For `!=` this is equality: the negation is about all values together.
fn test(comparison: &Comparison) -> Test {
    use Case::{Ignored, Sensitive};
    match comparison {
        Comparison::Order(relation, literal) => Test::Order(*relation, literal.clone()),
        Comparison::In(case, literals) => Test::OneOf(OneOf::new(literals, *case)),
        Comparison::Text(operator, case, literal) => match (operator, case) {
            (TextOperator::Equal | TextOperator::NotEqual, _) => {
                Test::OneOf(OneOf::new(slice::from_ref(literal), *case))
            }
            (TextOperator::Glob, _) => Test::Glob(Glob::new(&literal.text, *case)),
            (TextOperator::Contains, Sensitive) => Test::Contains(literal.text.clone()),
            (TextOperator::Contains, Ignored) => Test::Glob(Glob::containing(&literal.text, *case)),
            (TextOperator::StartsWith, Sensitive) => Test::StartsWith(literal.text.clone()),
            (TextOperator::StartsWith, Ignored) => Test::StartsWithFolded(case.prepare(&literal.text)),
            (TextOperator::EndsWith, Sensitive) => Test::EndsWith(literal.text.clone()),
            (TextOperator::EndsWith, Ignored) => Test::EndsWithFolded(case.prepare(&literal.text)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_resolved_once() {
        let expression = crate::parse::parse("b = 1 or a = 2 and not (b = 3 or c < 4)").expect("valid");
        let mut asked = Vec::new();
        let matcher = compile(&expression, &[], |name| {
            asked.push(name.to_owned());
            Some(name.to_owned())
        });
        assert_eq!(asked, ["b", "a", "c"]);
        assert_eq!(matcher.expect("all names are known").fields(), ["b", "a", "c"]);
    }
}
