//! Tokens to the syntax tree, by recursive descent.

use crate::error::Error;
use crate::lex::{Kind, Lexer, TEXT_MARK, Token, is_reserved};
use crate::literal::{Literal, Operand, OutOfRange, truth_value};
use crate::number::Number;
use crate::syntax::{Comparison, Expression, Field, Operator, TextOperator};
use crate::{MAX_DEPTH, MAX_LENGTH};

/// Parses a whole filter.
pub(crate) fn parse(source: &str) -> Result<Expression, Error> {
    if source.len() > MAX_LENGTH {
        return Err(Error::TooLong { length: source.len() });
    }
    let mut lexer = Lexer::new(source);
    let current = lexer.next()?;
    let mut parser = Parser { source, lexer, current, previous: "", depth: 0 };
    let expression = parser.disjunction()?;
    if parser.current.kind != Kind::End {
        return Err(parser.expected("`and`, `or` or the end"));
    }
    Ok(expression)
}

struct Parser<'s> {
    source: &'s str,
    lexer: Lexer<'s>,
    current: Token<'s>,
    /// Text of the token before, for messages.
    previous: &'s str,
    /// How many parentheses and `not` are open.
    depth: usize,
}

impl<'s> Parser<'s> {
    fn disjunction(&mut self) -> Result<Expression, Error> {
        self.joined("or", Self::conjunction, Expression::Or)
    }

    fn conjunction(&mut self) -> Result<Expression, Error> {
        self.joined("and", Self::operand, Expression::And)
    }

    /// One part, or several with the keyword between them. A chain is one node, so its length costs
    /// no depth.
    fn joined(
        &mut self,
        keyword: &str,
        part: fn(&mut Self) -> Result<Expression, Error>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, Error> {
        let first = part(self)?;
        if !self.current.is_keyword(keyword) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.current.is_keyword(keyword) {
            self.advance()?;
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn operand(&mut self) -> Result<Expression, Error> {
        if self.current.is_keyword("not") {
            let part = self.nested(Self::operand)?;
            return Ok(Expression::Not(Box::new(part)));
        }
        if self.current.kind == Kind::Open {
            let part = self.nested(Self::disjunction)?;
            self.close("`and`, `or` or `)`")?;
            return Ok(part);
        }
        if let Some(constant) = self.constant()? {
            return Ok(constant);
        }
        let field = self.field()?;
        let comparison = self.comparison()?;
        Ok(Expression::Comparison(field, comparison))
    }

    /// `true` or `false` where nothing is compared with it. Before an operator it is a field.
    fn constant(&mut self) -> Result<Option<Expression>, Error> {
        let truth = truth_value(self.current.text).filter(|_| self.current.kind == Kind::Word);
        let Some(truth) = truth else { return Ok(None) };
        let ends = match self.lexer.clone().next() {
            Ok(next) => {
                matches!(next.kind, Kind::End | Kind::Close)
                    || next.is_keyword("and")
                    || next.is_keyword("or")
            }
            Err(_) => false,
        };
        if ends {
            self.advance()?;
        }
        Ok(ends.then_some(Expression::Constant(truth)))
    }

    /// Parses the expression after the current token, one level deeper.
    fn nested(&mut self, part: fn(&mut Self) -> Result<Expression, Error>) -> Result<Expression, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep { at: self.current.start });
        }
        self.depth += 1;
        self.advance()?;
        let expression = part(self)?;
        self.depth -= 1;
        Ok(expression)
    }

    /// A word, quoted text, or a word that ends in a dot with quoted text directly after it.
    fn field(&mut self) -> Result<Field, Error> {
        let at = self.current.start;
        let name = match self.current.kind {
            Kind::Quoted => self.advance()?.unquote(),
            Kind::Word if !is_reserved(self.current.text) => return self.bare_field(),
            _ => return Err(self.expected("a field, `not` or `(`")),
        };
        Ok(Field { name, at })
    }

    /// A word, with the quoted text directly after its last dot.
    fn bare_field(&mut self) -> Result<Field, Error> {
        let word = self.advance()?;
        let mut name = word.text.to_owned();
        if name.ends_with('.') && self.current.kind == Kind::Quoted && self.current.start == word.end() {
            name.push_str(&self.advance()?.unquote());
        }
        Ok(Field { name, at: word.start })
    }

    fn comparison(&mut self) -> Result<Comparison, Error> {
        Ok(match self.operator()? {
            Operator::Order(relation) => Comparison::Order(relation, self.value()?),
            Operator::Text(operator, case) => Comparison::Text(operator, case, self.operands(operator)?),
            Operator::In(case) if self.current.kind == Kind::Open => Comparison::In(case, self.list()?),
            Operator::In(_) => return Err(self.expected("`(`")),
            Operator::Is => Comparison::Is(self.value()?),
            Operator::Bits(operator) => Comparison::Bits(operator, self.bits()?),
        })
    }

    fn bits(&mut self) -> Result<u64, Error> {
        let number = Literal::bare(self.current.text).ok().flatten().and_then(|literal| literal.number);
        let bits = match number {
            Some(Number::Integer(bits)) if self.current.kind == Kind::Word => u64::try_from(bits).ok(),
            _ => None,
        };
        let bits = bits.ok_or_else(|| self.expected("an integer of at most 64 bits"))?;
        self.advance()?;
        Ok(bits)
    }

    fn operator(&mut self) -> Result<Operator, Error> {
        let start = self.current.start;
        // `i` belongs to a symbol directly after it, as in `i=`. Only here: before an operator, `i`
        // is a field.
        if self.current.is_keyword("i") && self.source[self.current.end()..].starts_with(['=', '!', '~']) {
            self.advance()?;
        }
        let spelling = &self.source[start..self.current.end()];
        let Some(operator) = Operator::from_spelling(spelling) else {
            return Err(self.expected("an operator such as `=` or `contains`"));
        };
        self.advance()?;
        self.previous = spelling;
        Ok(operator)
    }

    /// The operand of a text operator: one value, or a list that holds if any of its values does.
    fn operands(&mut self, operator: TextOperator) -> Result<Vec<Operand>, Error> {
        let takes_list = !matches!(operator, TextOperator::Equal | TextOperator::NotEqual);
        let operands = match self.current.kind {
            Kind::Open if takes_list => self.list()?,
            Kind::Open => return Err(self.expected("a value (lists follow `in`)")),
            _ => vec![self.value()?],
        };
        let field = |operand: &Operand| match operand {
            Operand::Field(field) => Some((field.at, field.name.clone())),
            Operand::Literal(_) => None,
        };
        match operands.iter().find_map(field) {
            // Patterns must be known when the filter is compiled.
            Some((at, word)) if operator == TextOperator::Glob => {
                Err(Error::Unquoted { at, word, suggestion: None })
            }
            _ => Ok(operands),
        }
    }

    fn list(&mut self) -> Result<Vec<Operand>, Error> {
        self.advance()?;
        let mut operands = vec![self.value()?];
        while self.current.kind == Kind::Comma {
            self.advance()?;
            operands.push(self.value()?);
        }
        self.close("`,` or `)`")?;
        Ok(operands)
    }

    fn number(&self) -> Result<Option<Literal>, Error> {
        Literal::bare(self.current.text).map_err(|OutOfRange| Error::Number { at: self.current.start })
    }

    /// Quoted text, a number, a truth value, the name of an event, or a field.
    fn value(&mut self) -> Result<Operand, Error> {
        let text = self.current.text;
        let literal = match self.current.kind {
            Kind::Quoted => Literal::quoted(self.current.unquote()),
            Kind::Word if !is_reserved(text) => match self.number()? {
                Some(number) => number,
                None if text.contains(TEXT_MARK) => Literal::quoted(text),
                None => return self.bare_field().map(Operand::Field),
            },
            _ => return Err(self.expected("a value")),
        };
        self.advance()?;
        Ok(Operand::Literal(literal))
    }

    fn close(&mut self, expected: &'static str) -> Result<(), Error> {
        if self.current.kind != Kind::Close {
            return Err(self.expected(expected));
        }
        self.advance()?;
        Ok(())
    }

    /// Steps over the current token and returns it.
    fn advance(&mut self) -> Result<Token<'s>, Error> {
        let next = self.lexer.next()?;
        let passed = std::mem::replace(&mut self.current, next);
        self.previous = passed.text;
        Ok(passed)
    }

    /// The error for an unexpected current token.
    fn expected(&self, expected: &'static str) -> Error {
        Error::Expected { at: self.current.start, expected, after: self.previous.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{BitOperator, Case, Relation, TextOperator};

    /// Both texts mean the same tree.
    fn check(text: &str, explicit: &str) {
        let tree = parse(text);
        assert!(tree.is_ok(), "{text}: {tree:?}");
        assert_eq!(tree, parse(explicit), "{text} | {explicit}");
    }

    #[test]
    fn binding() {
        check("a=1 or b=2 and c=3", "a=1 or (b=2 and c=3)");
        check("a=1 and b=2 or c=3", "(a=1 and b=2) or c=3");
        check("a=1 or b=2 and c=3 or d=4", "a=1 or (b=2 and c=3) or d=4");
        check("not a=1 and b=2", "(not (a=1)) and b=2");
        check("not a=1 or b=2", "(not a=1) or b=2");
        check("not not a=1", "not (not (a=1))");
        check("not(a=1)", "not a=1");
        check("((a=1))", "a=1");
        check("A = 1 AND NOT b In (1) Or c IContains x", "A=1 and not b in(1) or c icontains x");
        assert_ne!(parse("a=1 and b=2 and c=3"), parse("(a=1 and b=2) and c=3"));
        assert_ne!(parse("a=1 and b=2 or c=3"), parse("a=1 and (b=2 or c=3)"));
        assert_ne!(parse("not a=1 and b=2"), parse("not (a=1 and b=2)"));
    }

    #[test]
    fn white_space() {
        check("pid=4", "  pid\t=\n4\u{a0}");
        check("a<-1", "a < -1");
        check("a i= x", "a i=x");
        check("a i!=x", "a I!= x");
        check("a i~'*x*'", "a i~ '*x*'");
        check("i=1", "i = 1");
        check("i i=1", "i i= 1");
        check("a in(1,2)", "a in ( 1 , 2 )");
        check("a='x'and b=1", "a='x' and b=1");
    }

    fn comparison(text: &str) -> (String, Comparison) {
        match parse(text) {
            Ok(Expression::Comparison(field, comparison)) => (field.name, comparison),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn operators() {
        use Case::{Ignored, Sensitive};
        let literal = || Operand::from("x");
        let order = |relation| Comparison::Order(relation, literal());
        let text = |operator, case| Comparison::Text(operator, case, vec![literal()]);
        let list = |case| Comparison::In(case, vec![literal()]);
        let check = |operator: &str, expected: Comparison| {
            assert_eq!(comparison(&format!("f {operator}")), ("f".to_owned(), expected), "{operator}");
        };
        check("< 'x'", order(Relation::Less));
        check("<= 'x'", order(Relation::LessOrEqual));
        check("> 'x'", order(Relation::Greater));
        check(">= 'x'", order(Relation::GreaterOrEqual));
        check("= 'x'", text(TextOperator::Equal, Sensitive));
        check("!= 'x'", text(TextOperator::NotEqual, Sensitive));
        check("~ 'x'", text(TextOperator::Glob, Sensitive));
        check("contains 'x'", text(TextOperator::Contains, Sensitive));
        check("startswith 'x'", text(TextOperator::StartsWith, Sensitive));
        check("endswith 'x'", text(TextOperator::EndsWith, Sensitive));
        check("in ('x')", list(Sensitive));
        check("i= 'x'", text(TextOperator::Equal, Ignored));
        check("i!= 'x'", text(TextOperator::NotEqual, Ignored));
        check("i~ 'x'", text(TextOperator::Glob, Ignored));
        check("icontains 'x'", text(TextOperator::Contains, Ignored));
        check("istartswith 'x'", text(TextOperator::StartsWith, Ignored));
        check("iendswith 'x'", text(TextOperator::EndsWith, Ignored));
        check("iin ('x')", list(Ignored));
        check("is 'x'", Comparison::Is(literal()));
        check("hasany 3", Comparison::Bits(BitOperator::Any, 3));
        check("hasall 0xffffffffffffffff", Comparison::Bits(BitOperator::All, u64::MAX));
    }

    #[test]
    fn fields() {
        let check = |text: &str, expected: &str| assert_eq!(comparison(text).0, expected, "{text}");
        check("pid = 1", "pid");
        check("fields.ImageFileName=1", "fields.ImageFileName");
        check(r#"fields."Odd Name" = 1"#, "fields.Odd Name");
        check("fields.'Odd Name' = 1", "fields.Odd Name");
        check("fields.'it''s' = 1", "fields.it's");
        check(r#""fields.Odd Name" = 1"#, "fields.Odd Name");
        check("'not' = 1", "not");
        check("in in (1)", "in");
        check("contains contains 1", "contains");
        check("is is 1", "is");
        check("true = 1", "true");
        check("FALSE in (1)", "FALSE");
        check("true is true", "true");
    }

    #[test]
    fn constants() {
        let constant = |text: &str, expected: bool| {
            assert_eq!(parse(text), Ok(Expression::Constant(expected)), "{text}");
        };
        constant("true", true);
        constant(" FALSE\n", false);
        constant("((true))", true);
        check("not true and false or a=1", "((not (true)) and (false)) or (a=1)");
    }

    #[test]
    fn literals() {
        let quoted = |text: &str| Literal::from(text);
        let check = |text: &str, expected: Literal| {
            let (_, found) = comparison(&format!("f = {text}"));
            let expected = vec![Operand::Literal(expected)];
            assert_eq!(found, Comparison::Text(TextOperator::Equal, Case::Sensitive, expected), "{text}");
        };
        check("'x'", quoted("x"));
        check(r#""x""#, quoted("x"));
        check("''", quoted(""));
        check("'it''s'", quoted("it's"));
        check(r#""it's""#, quoted("it's"));
        check(r#"'"'"#, quoted(r#"""#));
        check(r#""a ""b""""#, quoted(r#"a "b""#));
        check("''''", quoted("'"));
        check(r"'C:\Windows\System32\'", quoted(r"C:\Windows\System32\"));
        check(r"'\\server\share'", quoted(r"\\server\share"));
        check("'two\nlines'", quoted("two\nlines"));
        check("'0x10'", quoted("0x10"));
        check("'true'", quoted("true"));
        check("'and'", quoted("and"));
        for word in ["Process/Start", "FileIo/*", "C:/Windows", "10.0.0.0/8", "/"] {
            check(word, quoted(word));
        }
        let number = |text: &str, value| Literal { text: text.into(), number: Some(value) };
        check("16", number("16", Number::Integer(16)));
        check("-16", number("-16", Number::Integer(-16)));
        check("0x10", number("0x10", Number::Integer(16)));
        check("1.5", number("1.5", Number::Float(1.5)));
        check("true", number("true", Number::Integer(1)));
        check("False", number("False", Number::Integer(0)));
        check("18446744073709551615", number("18446744073709551615", Number::Integer(u64::MAX.into())));
    }

    #[test]
    fn bare_words_are_fields() {
        let check = |text: &str, name: &str| {
            let expected = Comparison::Is(Operand::Field(Field { name: name.to_owned(), at: 0 }));
            assert_eq!(comparison(&format!("f is {text}")).1, expected, "{text}");
        };
        check("pid", "pid");
        check("fields.ProcessId", "fields.ProcessId");
        check("fields.'Odd Name'", "fields.Odd Name");
        check("fields.\"a/b\"", "fields.a/b");
        check("in", "in");
        check("svchost.exe", "svchost.exe");
        check("10.0.0.1", "10.0.0.1");
    }

    #[test]
    fn lists() {
        check("a i~ ('x', 'y')", "a I~ (\"x\",'y')");
        check("a contains ('x')", "a contains 'x'");
        assert_ne!(parse("a contains ('x', y)"), parse("a contains ('x', 'y')"));
    }
}
