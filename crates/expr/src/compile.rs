//! From the syntax tree to a matcher: fields are resolved, literals prepared.

use std::collections::HashMap;
use std::slice;

use crate::error::Error;
use crate::eval::{Matcher, Node, OneOf, Pair, PairQuestion, Question, Test};
use crate::literal::{Literal, Operand};
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
    /// The index in `fields` of a name that was resolved before.
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
            Expression::Comparison(field, comparison) => {
                // `!=` is about all values together: it holds if there are some and none equals.
                let is_different = matches!(comparison, Comparison::Text(TextOperator::NotEqual, ..));
                let field = self.field(field)?;
                self.comparison(field, comparison, negated != is_different)?
            }
        })
    }

    /// Any of the operands: all literals in one question, and each field in its own.
    fn comparison(&mut self, field: usize, comparison: &'e Comparison, negated: bool) -> Result<Node, Error> {
        let question = |test| Node::Question(Question::new(field, test, negated));
        let (operands, pair) = match comparison {
            Comparison::Order(relation, operand) => (slice::from_ref(operand), Pair::Order(*relation)),
            Comparison::In(case, operands) => (&operands[..], Pair::Equal(*case)),
            Comparison::Is(operand) => (slice::from_ref(operand), Pair::Same),
            Comparison::Bits(operator, bits) => return Ok(question(Test::Bits(*operator, *bits))),
            Comparison::Text(operator, case, operands) => {
                let part = |part| Pair::Part(part, *case);
                let pair = match operator {
                    TextOperator::Equal | TextOperator::NotEqual => Pair::Equal(*case),
                    TextOperator::Glob => return Ok(question(globs(operands, *case))),
                    TextOperator::Contains => part(Part::Anywhere),
                    TextOperator::StartsWith => part(Part::Start),
                    TextOperator::EndsWith => part(Part::End),
                };
                (&operands[..], pair)
            }
        };
        let mut nodes: Vec<Node> = literals(pair, operands).into_iter().map(question).collect();
        for operand in operands {
            if let Operand::Field(other) = operand {
                let right = self.operand(other)?;
                nodes.push(Node::Pair(PairQuestion { left: field, right, pair, negated }));
            }
        }
        Ok(join(nodes, negated))
    }

    fn nodes(&mut self, parts: &'e [Expression], negated: bool) -> Result<Vec<Node>, Error> {
        parts.iter().map(|part| self.node(part, negated)).collect()
    }

    fn field(&mut self, field: &'e Field) -> Result<usize, Error> {
        self.resolved(&field.name).ok_or_else(|| Error::UnknownField {
            at: field.at,
            name: field.name.clone(),
            suggestion: self.suggestion(&field.name),
        })
    }

    /// The field of a bare word on the right side, which may have been meant as text.
    fn operand(&mut self, field: &'e Field) -> Result<usize, Error> {
        self.resolved(&field.name).ok_or_else(|| Error::Unquoted {
            at: field.at,
            word: field.name.clone(),
            suggestion: self.suggestion(&field.name),
        })
    }

    fn resolved(&mut self, name: &'e str) -> Option<usize> {
        if let Some(&index) = self.indices.get(name) {
            return Some(index);
        }
        let resolved = (self.resolve)(name)?;
        let index = self.fields.len();
        self.fields.push(resolved);
        self.indices.insert(name, index);
        Some(index)
    }

    fn suggestion(&self, name: &str) -> Option<String> {
        most_similar(name, self.candidates).map(str::to_owned)
    }
}

/// All of the nodes together, or any of them: without constants, and without lists in a list of
/// their kind.
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

/// The test for all literals among the operands, if there are any.
fn literals(pair: Pair, operands: &[Operand]) -> Option<Test> {
    let mut literals = literals_of(operands).peekable();
    let first = *literals.peek()?;
    Some(match pair {
        Pair::Order(relation) => Test::Order(relation, first.clone()),
        Pair::Same => Test::Is(OneOf::new(first, Case::Sensitive)),
        Pair::Equal(case) => Test::OneOf(literals.map(|literal| OneOf::new(literal, case)).collect()),
        Pair::Part(part, case) => {
            Test::Part(part, literals.map(|literal| Needle::new(&literal.text, case)).collect())
        }
    })
}

fn globs(operands: &[Operand], case: Case) -> Test {
    Test::Glob(literals_of(operands).map(|pattern| Glob::new(&pattern.text, case)).collect())
}

fn literals_of(operands: &[Operand]) -> impl Iterator<Item = &Literal> {
    operands.iter().filter_map(|operand| match operand {
        Operand::Literal(literal) => Some(literal),
        Operand::Field(_) => None,
    })
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
