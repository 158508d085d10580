//! From the syntax tree to a matcher: fields are resolved, literals prepared.

use std::collections::HashMap;

use crate::error::Error;
use crate::eval::{Matcher, Node, OneOf, Question, Test};
use crate::needle::{Needle, Part};
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
    let root = compiler.node(expression, false)?;
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
    /// The node of an expression, or of its negation.
    fn node(&mut self, expression: &'e Expression, negated: bool) -> Result<Node, Error> {
        Ok(match expression {
            Expression::Or(parts) => join(self.nodes(parts, negated)?, negated),
            Expression::And(parts) => join(self.nodes(parts, negated)?, !negated),
            Expression::Not(part) => self.node(part, !negated)?,
            Expression::Constant(holds) => Node::Constant(*holds != negated),
            Expression::Comparison(field, comparison) => Node::Question(Question {
                field: self.field(field)?,
                test: test(comparison),
                about_others: matches!(comparison, Comparison::Text(TextOperator::NotEqual, ..)),
                negated,
            }),
        })
    }

    fn nodes(&mut self, parts: &'e [Expression], negated: bool) -> Result<Vec<Node>, Error> {
        parts.iter().map(|part| self.node(part, negated)).collect()
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

/// All of the nodes together, or any of them: without constants, and without lists in a list of their kind.
fn join(nodes: Vec<Node>, all: bool) -> Node {
    let mut joined = Vec::with_capacity(nodes.len());
    for node in nodes {
        match node {
            // `true` adds nothing to all, and decides any; `false` the other way round.
            Node::Constant(holds) if holds == all => {}
            Node::Constant(holds) => return Node::Constant(holds),
            Node::All(parts) if all => joined.extend(parts),
            Node::Any(parts) if !all => joined.extend(parts),
            other => joined.push(other),
        }
    }
    match (joined.len(), all) {
        (0, _) => Node::Constant(all),
        (1, _) => joined.remove(0),
        (_, true) => Node::All(joined.into()),
        (_, false) => Node::Any(joined.into()),
    }
}

/// What each value is asked. For `!=` this is equality: the negation is about all values together.
fn test(comparison: &Comparison) -> Test {
    match comparison {
        Comparison::Order(relation, literal) => Test::Order(*relation, literal.clone()),
        Comparison::In(case, literals) => {
            Test::OneOf(literals.iter().map(|literal| OneOf::new(literal, *case)).collect())
        }
        Comparison::Is(literal) => Test::Is(OneOf::new(literal, Case::Sensitive)),
        Comparison::Bits(operator, bits) => Test::Bits(*operator, *bits),
        Comparison::Text(operator, case, literal) => {
            let part = |part| Test::Part(part, Needle::new(&literal.text, *case));
            match operator {
                TextOperator::Equal | TextOperator::NotEqual => {
                    Test::OneOf([OneOf::new(literal, *case)].into())
                }
                TextOperator::Glob => Test::Glob(Glob::new(&literal.text, *case)),
                TextOperator::Contains => part(Part::Anywhere),
                TextOperator::StartsWith => part(Part::Start),
                TextOperator::EndsWith => part(Part::End),
            }
        }
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
