//! Conditions to syntax trees, by precedence climbing.
//!
//! The grammar is that of Fibratus. It differs in two points. A macro is an expression of its own,
//! as if it were in parentheses. What follows a superfluous `)` or `,` is reported as a lint
//! finding instead of being ignored silently; see [`Parsed::rest`].

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Lint, LintKind};
use crate::fields::Field;
use crate::functions::Function;
use crate::lex::{Kind, Token, tokens};
use crate::macros::{Expanded, MacroText, Macros};
use crate::source::{Source, SourceLocation, Span};
use crate::syntax::{Comparison, Condition, Expression, ExpressionKind, FieldUse, Operator, Sequence, Slot};

/// The limit of parentheses, negations and macros within each other.
const DEPTH_MAX: usize = 64;
/// The longest condition in bytes.
const LENGTH_MAX: usize = 64 << 10;
/// The limit of tokens of a condition, with those of its macros.
const SIZE_MAX: usize = 1 << 16;
/// The limit of slots of a sequence.
const SLOTS_MAX: usize = 5;
/// The longest time that a sequence may take.
pub(crate) const SPAN_MAX: std::time::Duration = std::time::Duration::from_secs(4 * 3600);

/// A condition, and what is after its end.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub tree: Condition,
    /// What follows a superfluous `)` or `,`, which Fibratus ignores.
    pub rest: Option<Span>,
}

/// Parses the condition of a rule.
pub(crate) fn condition(source: &Arc<Source>, macros: &mut Macros) -> Result<Parsed, Error> {
    let mut parser = Parser::new(source, macros, 0)?;
    let tree = match parser.take_word("sequence") {
        true => Condition::Sequence(parser.sequence()?),
        false => Condition::Event(parser.expression(0)?),
    };
    Ok(Parsed { tree, rest: parser.rest()? })
}

/// What a macro stands for. `depth` is the number of expressions around it.
pub(crate) fn expand(macros: &mut Macros, name: &str, depth: usize) -> Result<Expanded, Error> {
    if let Some(parsed) = macros.parsed(name) {
        return parsed.clone();
    }
    let parsed = match macros.take(name)? {
        MacroText::Expression(source) => expression(&source, macros, depth),
        MacroText::List(values) => list(&values),
    };
    macros.set_parsed(name, &parsed);
    parsed
}

/// Parses the expression of a macro that is `depth` expressions deep.
fn expression(source: &Arc<Source>, macros: &mut Macros, depth: usize) -> Result<Expanded, Error> {
    let mut parser = Parser::new(source, macros, depth)?;
    let tree = parser.expression(0)?;
    let (rest, size, depth) = (parser.rest()?, parser.size, parser.deepest);
    if let Some(rest) = rest {
        Lint::add(&mut macros.lints, &rest, LintKind::Ignored);
    }
    Ok(Expanded { body: Arc::new(tree), size, depth })
}

/// The list of a macro.
fn list(values: &[(String, Arc<Source>)]) -> Result<Expanded, Error> {
    let one = |(text, source): &(String, Arc<Source>)| Expression {
        kind: ExpressionKind::Text(text.clone()),
        span: Span { source: Arc::clone(source), range: 0..source.text().len() },
        is_enclosed: false,
    };
    let values: Vec<Expression> = values.iter().map(one).collect();
    let first = values.first().ok_or_else(|| Error::new(SourceLocation::default(), ErrorKind::EmptyList))?;
    let (span, size) = (first.span.clone(), values.len());
    let body = Expression { kind: ExpressionKind::List(values), span, is_enclosed: true };
    Ok(Expanded { body: Arc::new(body), size, depth: 0 })
}

/// The value of a token that can be in a list.
fn list_value(token: &Kind) -> Option<ExpressionKind> {
    match token {
        Kind::Text(text) => Some(ExpressionKind::Text(text.clone())),
        Kind::Integer(number) => Some(ExpressionKind::Integer(*number)),
        Kind::Address(address) => Some(ExpressionKind::Address(*address)),
        _ => None,
    }
}

struct Parser<'m> {
    tokens: Vec<Token>,
    at: usize,
    macros: &'m mut Macros,
    /// The number of expressions around this expression, also outside of a macro.
    depth: usize,
    /// The same at the start of the text.
    base: usize,
    /// The greatest depth within the text so far, with that of its macros.
    deepest: usize,
    /// Number of tokens, with those of macros.
    size: usize,
    /// The variables of the calls of `foreach` around this expression.
    variables: Vec<String>,
    /// The names of the slots so far.
    aliases: Vec<String>,
}

/// An operator between two expressions.
#[derive(Clone, Copy)]
enum Infix {
    Or,
    And,
    Comparison(Operator, bool),
}

impl Infix {
    fn precedence(self) -> u8 {
        match self {
            Infix::Or => 1,
            Infix::And => 2,
            Infix::Comparison(operator, _) => operator.precedence(),
        }
    }
}

impl<'m> Parser<'m> {
    fn new(source: &Arc<Source>, macros: &'m mut Macros, depth: usize) -> Result<Parser<'m>, Error> {
        if source.text().len() > LENGTH_MAX {
            return Err(Error::new(source.location(0..1), ErrorKind::TooLong));
        }
        let tokens = tokens(source)?;
        let size = tokens.len();
        let (base, deepest) = (depth, 0);
        Ok(Parser {
            tokens,
            at: 0,
            macros,
            depth,
            base,
            deepest,
            size,
            variables: Vec::new(),
            aliases: Vec::new(),
        })
    }

    fn current(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn advance(&mut self) -> Token {
        let token = self.current().clone();
        self.at += 1;
        token
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.current().kind, Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_word = self.is_word(word);
        self.at += usize::from(is_word);
        is_word
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.current().kind, Kind::Sign(found) if found == sign)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_sign = self.is_sign(sign);
        self.at += usize::from(is_sign);
        is_sign
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.current().span.location(), kind)
    }

    fn expected(&self, what: &'static str) -> Error {
        self.error(ErrorKind::Expected(what))
    }

    /// What follows the condition. A superfluous sign ends it.
    fn rest(&self) -> Result<Option<Span>, Error> {
        match &self.current().kind {
            Kind::End => Ok(None),
            Kind::Sign(")" | ",") => {
                let end = &self.tokens[self.tokens.len() - 1].span;
                Ok(Some(self.current().span.to(end)))
            }
            _ => Err(self.expected("an operator, `and`, `or` or the end")),
        }
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(self.error(ErrorKind::TooDeep));
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth - self.base);
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// After the word `sequence`.
    fn sequence(&mut self) -> Result<Sequence, Error> {
        let (mut max_span, mut by_all) = (None, Vec::new());
        loop {
            if self.take_word("maxspan") {
                max_span = match self.current().kind {
                    Kind::Duration(duration) if duration <= SPAN_MAX => Some(duration),
                    Kind::Duration(_) => return Err(self.error(ErrorKind::SpanTooLong)),
                    _ => return Err(self.expected("a time span such as `2m`")),
                };
                self.at += 1;
            } else if self.take_word("by") {
                by_all = self.field_list()?;
            } else {
                break;
            }
        }
        let (mut slots, mut with_by) = (Vec::new(), 0);
        while self.is_sign("|") {
            if slots.len() >= SLOTS_MAX {
                return Err(self.error(ErrorKind::TooManySlots(SLOTS_MAX)));
            }
            self.at += 1;
            let expression = self.expression(0)?;
            if !self.take_sign("|") {
                return Err(self.expected("an operator, `and`, `or` or `|`"));
            }
            let (mut by, mut alias) = (by_all.clone(), None);
            if self.is_word("by") {
                if !by_all.is_empty() {
                    return Err(self.error(ErrorKind::ByTwice));
                }
                self.at += 1;
                by = self.field_list()?;
                with_by += 1;
            } else if self.take_word("as") {
                let Kind::Word(name) = self.advance().kind else {
                    self.at -= 1;
                    return Err(self.expected("a name for the slot"));
                };
                self.aliases.push(name.clone());
                alias = Some(name);
            }
            slots.push(Slot { expression, by, alias });
        }
        if slots.is_empty() {
            return Err(self.expected("a slot such as `|evt.name = 'CreateProcess'|`"));
        }
        if with_by > 0 && with_by < slots.len() {
            return Err(self.error(ErrorKind::ByOfSomeSlots));
        }
        Ok(Sequence { max_span, slots })
    }

    fn field_list(&mut self) -> Result<Vec<FieldUse>, Error> {
        let mut fields = Vec::new();
        loop {
            let Kind::Word(name) = &self.current().kind else { return Err(self.expected("a field")) };
            let name = name.clone();
            fields.push(self.field(&name)?);
            if !self.take_sign(",") {
                return Ok(fields);
            }
        }
    }

    /// Two expressions with an operator of at least this precedence, or one.
    fn expression(&mut self, least: u8) -> Result<Expression, Error> {
        let mut left = self.unary()?;
        while let Some((infix, words)) = self.infix() {
            let precedence = infix.precedence();
            if precedence < least {
                break;
            }
            self.at += words;
            let right = self.deeper(|parser| parser.expression(precedence + 1))?;
            let span = left.span.to(&right.span);
            let kind = match infix {
                Infix::Or => match left.kind {
                    ExpressionKind::Or(mut parts) if !left.is_enclosed => {
                        parts.push(right);
                        ExpressionKind::Or(parts)
                    }
                    kind => ExpressionKind::Or(vec![Expression { kind, ..left }, right]),
                },
                Infix::And => match left.kind {
                    ExpressionKind::And(mut parts) if !left.is_enclosed => {
                        parts.push(right);
                        ExpressionKind::And(parts)
                    }
                    kind => ExpressionKind::And(vec![Expression { kind, ..left }, right]),
                },
                Infix::Comparison(operator, is_negated) => {
                    ExpressionKind::Comparison(Box::new(Comparison { left, operator, is_negated, right }))
                }
            };
            left = Expression { kind, span, is_enclosed: false };
        }
        Ok(left)
    }

    /// The operator at the current token, and its number of tokens.
    fn infix(&self) -> Option<(Infix, usize)> {
        let operator = |token: &Token| match &token.kind {
            Kind::Word(word) => Operator::of(word),
            Kind::Sign(sign) => Operator::of(sign),
            _ => None,
        };
        if self.is_word("or") {
            return Some((Infix::Or, 1));
        }
        if self.is_word("and") {
            return Some((Infix::And, 1));
        }
        if self.is_word("not") {
            let operator = self.tokens.get(self.at + 1).and_then(operator)?;
            return Some((Infix::Comparison(operator, true), 2));
        }
        Some((Infix::Comparison(operator(self.current())?, false), 1))
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        let start = self.current().span.clone();
        if self.take_word("not") {
            // Binds more tightly than `and`, and less tightly than comparisons.
            let part = self.deeper(|parser| parser.expression(4))?;
            let span = start.to(&part.span);
            return Ok(Expression { kind: ExpressionKind::Not(Box::new(part)), span, is_enclosed: false });
        }
        if !self.take_sign("(") {
            return self.primary();
        }
        let is_list = list_value(&self.current().kind).is_some();
        let inner = match is_list {
            true => self.list()?,
            false => self.deeper(|parser| parser.expression(0))?,
        };
        let end = self.current().span.clone();
        if !self.take_sign(")") {
            return Err(self.expected(if is_list {
                "`,` or `)`"
            } else {
                "an operator, `and`, `or` or `)`"
            }));
        }
        Ok(Expression { span: start.to(&end), is_enclosed: true, ..inner })
    }

    /// The values after `(`.
    fn list(&mut self) -> Result<Expression, Error> {
        let start = self.current().span.clone();
        let mut values = Vec::new();
        loop {
            let Some(kind) = list_value(&self.current().kind) else {
                return Err(self.expected("a text, a number or an address"));
            };
            let value = self.advance().span;
            let span = start.to(&value);
            values.push(Expression { kind, span: value, is_enclosed: false });
            if !self.take_sign(",") {
                return Ok(Expression { kind: ExpressionKind::List(values), span, is_enclosed: false });
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, Error> {
        let token = self.current().clone();
        let simple = |kind| Ok(Expression { kind, span: token.span.clone(), is_enclosed: false });
        if let Some(kind) = list_value(&token.kind) {
            self.at += 1;
            return simple(kind);
        }
        let word = match token.kind.clone() {
            Kind::Word(word) => word,
            Kind::Decimal(number) => {
                self.at += 1;
                return simple(ExpressionKind::Decimal(number));
            }
            _ => return Err(self.expected("a field or a value")),
        };
        for truth in [true, false] {
            if word.eq_ignore_ascii_case(if truth { "true" } else { "false" }) {
                self.at += 1;
                return simple(ExpressionKind::Truth(truth));
            }
        }
        if let Some(name) = word.strip_prefix('$') {
            return self.variable(name);
        }
        let is_call = matches!(self.tokens.get(self.at + 1).map(|next| &next.kind), Some(Kind::Sign("(")));
        if is_call && let Some(function) = Function::of(&word) {
            self.at += 2;
            return self.call(function, &token.span);
        }
        if self.macros.has(&word) {
            return self.expanded(word);
        }
        let field = self.field(&word)?;
        let span = field.span.clone();
        Ok(Expression { kind: ExpressionKind::Field(field), span, is_enclosed: false })
    }

    /// A macro at the current token.
    fn expanded(&mut self, name: String) -> Result<Expression, Error> {
        let expanded = self.deeper(|parser| expand(parser.macros, &name, parser.depth))?;
        // It may have been parsed where there was more room for it.
        self.deepest = self.deepest.max(self.depth - self.base + 1 + expanded.depth);
        if self.deepest > DEPTH_MAX {
            return Err(self.error(ErrorKind::TooDeep));
        }
        self.size += expanded.size;
        if self.size > SIZE_MAX {
            return Err(self.error(ErrorKind::TooLong));
        }
        let span = self.advance().span;
        let kind = ExpressionKind::Macro { name, body: expanded.body };
        Ok(Expression { kind, span, is_enclosed: false })
    }

    /// A field at the current token, with its argument.
    fn field(&mut self, name: &str) -> Result<FieldUse, Error> {
        let Some(field) = Field::of(name) else {
            let mut names: Vec<&str> = Field::names().chain(Function::names()).collect();
            names.sort_unstable();
            names.extend(self.macros.names());
            let suggestion = stackhound_expr::most_similar(name, &names).map(str::to_owned);
            return Err(self.error(ErrorKind::Unknown { name: name.to_owned(), suggestion }));
        };
        let start = self.advance().span;
        if !self.take_sign("[") {
            return match field.takes_argument {
                true => {
                    self.at -= 1;
                    Err(self.error(ErrorKind::NoArgument(name.to_owned())))
                }
                false => Ok(FieldUse { field, argument: None, span: start }),
            };
        }
        let argument = match self.advance().kind {
            Kind::Word(argument) => argument,
            Kind::Integer(number) => number.to_string(),
            _ => {
                self.at -= 1;
                return Err(self.expected("a name or a number"));
            }
        };
        let end = self.current().span.clone();
        if !self.take_sign("]") {
            return Err(self.expected("`]`"));
        }
        Ok(FieldUse { field, argument: Some(argument), span: start.to(&end) })
    }

    /// A name with `$`: of a variable of `foreach`, or of an earlier slot.
    fn variable(&mut self, name: &str) -> Result<Expression, Error> {
        let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
        let span = self.current().span.clone();
        if self.variables.iter().any(|known| known == first) {
            self.at += 1;
            let kind = ExpressionKind::Element { variable: first.to_owned(), part: rest.map(str::to_owned) };
            return Ok(Expression { kind, span, is_enclosed: false });
        }
        if !self.aliases.iter().any(|known| known == first) {
            return Err(self.error(ErrorKind::UnknownVariable(first.to_owned())));
        }
        let rest = rest.ok_or_else(|| self.expected("a field after the name of the slot"))?;
        let field = self.field(rest)?;
        let span = field.span.clone();
        let kind = ExpressionKind::Bound { alias: first.to_owned(), field };
        Ok(Expression { kind, span, is_enclosed: false })
    }

    /// The arguments of a call, after `(`.
    fn call(&mut self, function: &'static Function, start: &Span) -> Result<Expression, Error> {
        let mut arguments = Vec::new();
        let variables = self.variables.len();
        while !self.is_sign(")") {
            // The second argument of `foreach` is a variable that the later ones use.
            if function.has_variable && arguments.len() == 1 {
                let Kind::Word(name) = &self.current().kind else {
                    return Err(self.expected("a variable such as `$frame`"));
                };
                let Some(name) = name.strip_prefix('$').map(str::to_owned) else {
                    return Err(self.expected("a variable such as `$frame`"));
                };
                self.variables.push(name);
            }
            arguments.push(self.deeper(|parser| parser.expression(0))?);
            if !self.take_sign(",") {
                break;
            }
        }
        self.variables.truncate(variables);
        let end = self.current().span.clone();
        if !self.take_sign(")") {
            return Err(self.expected("`,` or `)`"));
        }
        let span = start.to(&end);
        function.check_count(arguments.len()).map_err(|kind| Error::new(span.location(), kind))?;
        Ok(Expression { kind: ExpressionKind::Call { function, arguments }, span, is_enclosed: false })
    }
}
