//! The second evaluation of conditions: literal, for each event anew, in three values.

use std::net::Ipv4Addr;

use stackhound_rules::evaluate::{Mode, Verdict};
use stackhound_rules::syntax::{Comparison, Expression, ExpressionKind, FieldUse, Operator, TextTest};
use stackhound_rules::{Function, Type};

use crate::event::{Data, Datum, Event, List, key, text};

/// Three values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Truth {
    No,
    Unknown,
    Yes,
}

impl Truth {
    pub fn not(self) -> Truth {
        match self {
            Truth::No => Truth::Yes,
            Truth::Unknown => Truth::Unknown,
            Truth::Yes => Truth::No,
        }
    }
}

/// The events that a condition refers to: its own, and those of earlier slots by their names.
#[derive(Clone, Copy)]
pub struct Scope<'e> {
    pub mode: Mode,
    pub event: &'e Event,
    pub earlier: &'e [(Option<String>, &'e Event)],
    /// Whether a negated comparison that is unknown counts as true.
    pub assumes: bool,
    /// The variables of `foreach` around this expression.
    pub variables: &'e [(String, Item<'e>)],
}

/// What a variable of `foreach` stands for.
#[derive(Clone, Copy)]
pub enum Item<'e> {
    Element(&'e List, usize),
    Value(&'e Datum),
}

/// The values of an expression.
struct Operand {
    data: Data,
    /// Whether it is of a type with several values.
    is_list: bool,
}

/// The answer of a condition about one event.
pub fn verdict(expression: &Expression, scope: Scope<'_>) -> Option<Verdict> {
    match scope.holds(expression, false) {
        Truth::No => None,
        Truth::Yes => Some(Verdict::Yes),
        Truth::Unknown => {
            let assuming = Scope { assumes: true, ..scope };
            Some(match assuming.holds(expression, false) {
                Truth::Yes => Verdict::Possible,
                _ => Verdict::Undetermined,
            })
        }
    }
}

/// The category of an event.
pub fn category(name: &str) -> &'static str {
    let lines = include_str!("../../src/events.txt").lines();
    let mut words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
    words.find(|words| words[0] == name).map_or("", |words| words[1])
}

fn zero(value_type: Type) -> Datum {
    match value_type {
        Type::Number | Type::Time => Datum::Number(0),
        Type::Decimal => Datum::Decimal(0.0),
        Type::Truth => Datum::Truth(false),
        Type::Address => text("0.0.0.0"),
        Type::Texts | Type::Elements(_) => Datum::Absent,
        Type::Text | Type::Any => text(""),
    }
}

/// The type of a part of an element.
pub fn part_type(part: &str) -> Type {
    match part {
        "offset" | "allocation_size" | "size" | "pid" | "tid" | "sessionid" | "checksum" => Type::Number,
        "is_unbacked" | "module.signature.exists" | "module.signature.trusted" | "token.is_elevated" => {
            Type::Truth
        }
        "entropy" => Type::Decimal,
        "args" => Type::Texts,
        _ => Type::Text,
    }
}

impl<'e> Scope<'e> {
    pub fn of(event: &'e Event, mode: Mode) -> Scope<'e> {
        Scope { mode, event, earlier: &[], assumes: false, variables: &[] }
    }

    /// Whether an expression holds. `is_negated`: under an odd number of negations.
    pub fn holds(&self, expression: &Expression, is_negated: bool) -> Truth {
        match &expression.kind {
            ExpressionKind::Or(parts) => {
                self.first(Truth::Yes, parts.iter().map(|part| self.holds(part, is_negated)))
            }
            ExpressionKind::And(parts) => {
                self.first(Truth::No, parts.iter().map(|part| self.holds(part, is_negated)))
            }
            ExpressionKind::Not(part) => {
                let is_field = matches!(part.kind, ExpressionKind::Field(_));
                if is_field && self.mode == Mode::Compatible {
                    return Truth::No;
                }
                self.holds(part, !is_negated).not()
            }
            ExpressionKind::Macro { body, .. } => self.holds(body, is_negated),
            ExpressionKind::Comparison(comparison) => self.comparison(comparison, is_negated),
            ExpressionKind::Call { function, arguments } if function.has_variable => {
                self.foreach(arguments, is_negated)
            }
            _ => {
                let fits = |datum: &Datum, _: &Datum| *datum == Datum::Truth(true);
                let data = self.operand(expression).data;
                self.settled(any_pair(&data, &[Datum::Truth(true)], fits), is_negated)
            }
        }
    }

    /// The first value that decides, or whether all others are known.
    fn first(&self, deciding: Truth, values: impl Iterator<Item = Truth>) -> Truth {
        let mut all = deciding.not();
        for value in values {
            if value == deciding {
                return deciding;
            }
            if value == Truth::Unknown {
                all = Truth::Unknown;
            }
        }
        all
    }

    /// The answer of a comparison before its negation.
    fn settled(&self, truth: Truth, is_negated: bool) -> Truth {
        if truth == Truth::Unknown && (self.mode == Mode::Compatible || (self.assumes && is_negated)) {
            return Truth::No;
        }
        truth
    }

    fn foreach(&self, arguments: &[Expression], is_negated: bool) -> Truth {
        let ExpressionKind::Element { variable, .. } = &arguments[1].kind else { panic!("no variable") };
        let with = |item: Item<'_>| {
            let mut variables = self.variables.to_vec();
            variables.push((variable.clone(), item));
            Scope { variables: &variables, ..*self }.holds(&arguments[2], is_negated)
        };
        let ExpressionKind::Field(field) = &arguments[0].kind else { panic!("no field") };
        let rest = self.settled(Truth::Unknown, is_negated);
        if matches!(field.field.value_type, Type::Elements(_)) {
            let (list, none) = (self.event.lists.get(&key(field)), List::default());
            let list = list.unwrap_or(&none);
            let rest = if list.is_complete { Truth::No } else { rest };
            let each = (0..list.elements.len()).map(|index| with(Item::Element(list, index)));
            return self.first(Truth::Yes, each.chain([rest]));
        }
        let data = self.field(field, self.event).data;
        let rest = if data.is_empty() { rest } else { Truth::No };
        let each = data.iter().filter(|datum| **datum != Datum::Absent).map(|datum| match datum {
            Datum::Unknown => self.settled(Truth::Unknown, is_negated),
            datum => with(Item::Value(datum)),
        });
        self.first(Truth::Yes, each.chain([rest]))
    }

    fn comparison(&self, comparison: &Comparison, is_negated: bool) -> Truth {
        let Comparison { left, operator, right, is_negated: has_not } = comparison;
        let is_exception = *has_not != (*operator == Operator::NotEqual);
        let (left, right) = (self.operand(left), self.operand(right));
        let truth = self.settled(self.raw(&left, *operator, &right), is_negated != is_exception);
        if is_exception { truth.not() } else { truth }
    }

    /// A comparison; of `!=`, whether the sides are equal.
    fn raw(&self, left: &Operand, operator: Operator, right: &Operand) -> Truth {
        let is_scalar = left.is_list && !right.is_list;
        let (own, other) = (&left.data, &right.data);
        match operator {
            Operator::Equal | Operator::NotEqual => {
                any_pair(own, other, |own, other| equal(own, other, false))
            }
            Operator::EqualIgnoringCase => any_pair(own, other, |own, other| equal(own, other, true)),
            Operator::Less => any_pair(own, other, |own, other| order(own, other, &[-1])),
            Operator::LessOrEqual => any_pair(own, other, |own, other| order(own, other, &[-1, 0])),
            Operator::Greater => any_pair(own, other, |own, other| order(own, other, &[1])),
            Operator::GreaterOrEqual => any_pair(own, other, |own, other| order(own, other, &[0, 1])),
            Operator::Text { test: TextTest::In, ignores_case } => {
                any_pair(own, other, |own, other| equal(own, other, ignores_case))
            }
            Operator::Text { test: TextTest::Intersects, ignores_case } => {
                let each = other.iter().map(|other| {
                    let other = std::slice::from_ref(other);
                    any_pair(own, other, |own, other| equal(own, other, ignores_case))
                });
                let rest = if other.is_empty() { Truth::Unknown } else { Truth::Yes };
                self.first(Truth::No, each.chain([rest]))
            }
            Operator::Text { test, ignores_case } => {
                let only_for_lists = match test {
                    TextTest::Contains => ignores_case,
                    TextTest::StartsWith | TextTest::EndsWith | TextTest::Matches => true,
                    _ => false,
                };
                if self.mode == Mode::Compatible && is_scalar && only_for_lists {
                    return Truth::No;
                }
                any_pair(own, other, |own, other| match (own, other) {
                    (Datum::Text(own), Datum::Text(other)) if test == TextTest::Matches => {
                        fits_pattern(own.as_bytes(), other.as_bytes(), ignores_case)
                    }
                    (Datum::Text(own), Datum::Text(other)) => match ignores_case {
                        true => test_text(test, &own.to_lowercase(), &other.to_lowercase()),
                        false => test_text(test, own, other),
                    },
                    _ => false,
                })
            }
        }
    }

    /// The values of a field, in compatible mode without those that are not known.
    pub fn values(&self, field: &FieldUse) -> Data {
        self.field(field, self.event).data
    }

    /// The values of an expression.
    pub fn data(&self, expression: &Expression) -> Data {
        self.operand(expression).data
    }

    fn field(&self, field: &FieldUse, event: &Event) -> Operand {
        let is_list = field.field.value_type == Type::Texts && field.argument.is_none();
        let data = match field.field.name {
            "evt.name" => vec![text(event.name.name())],
            "evt.category" => vec![text(category(event.name.name()))],
            _ => event.fields.get(&key(field)).cloned().unwrap_or_default(),
        };
        let value_type = match field.field.value_type {
            Type::Texts if field.argument.is_some() => Type::Text,
            value_type => value_type,
        };
        Operand { data: self.filled(data, value_type), is_list }
    }

    fn filled(&self, mut data: Data, value_type: Type) -> Data {
        if self.mode == Mode::Compatible {
            data.retain(|datum| !matches!(datum, Datum::Unknown | Datum::Absent));
            if data.is_empty() {
                data.push(zero(value_type));
            }
        }
        data
    }

    fn operand(&self, expression: &Expression) -> Operand {
        let one = |datum| Operand { data: vec![datum], is_list: false };
        match &expression.kind {
            ExpressionKind::Field(field) => self.field(field, self.event),
            ExpressionKind::Bound { alias, field } => {
                let slot = self.earlier.iter().find(|(name, _)| name.as_ref() == Some(alias));
                self.field(field, slot.expect("an earlier slot").1)
            }
            ExpressionKind::Element { variable, part } => {
                let found = self.variables.iter().rev().find(|(name, _)| name == variable);
                match (found.expect("a variable").1, part) {
                    (Item::Element(list, index), Some(part)) => {
                        let data = list.elements[index].get(part).cloned().unwrap_or_default();
                        let value_type = part_type(part);
                        Operand { data: self.filled(data, value_type), is_list: value_type == Type::Texts }
                    }
                    (Item::Value(datum), None) => one(datum.clone()),
                    _ => panic!("no value"),
                }
            }
            ExpressionKind::Text(value) => one(text(value)),
            ExpressionKind::Integer(number) => one(Datum::Number(*number as i64)),
            ExpressionKind::Decimal(number) => one(Datum::Decimal(*number)),
            ExpressionKind::Address(address) => one(text(&address.to_string())),
            ExpressionKind::Truth(truth) => one(Datum::Truth(*truth)),
            ExpressionKind::List(values) => {
                let data = values.iter().flat_map(|value| self.operand(value).data).collect();
                Operand { data, is_list: true }
            }
            ExpressionKind::Macro { body, .. } => self.operand(body),
            ExpressionKind::Call { function, arguments } if !function.has_variable => {
                self.call(function, arguments)
            }
            _ => one(match self.holds(expression, false) {
                Truth::Unknown => Datum::Unknown,
                truth => Datum::Truth(truth == Truth::Yes),
            }),
        }
    }

    fn call(&self, function: &Function, arguments: &[Expression]) -> Operand {
        let operands: Vec<Operand> = arguments.iter().map(|argument| self.operand(argument)).collect();
        let is_list = operands[0].is_list;
        let one = |datum| Operand { data: vec![datum], is_list: false };
        let none = |data| Operand { data, is_list: is_list && function.result == Type::Any };
        if operands.iter().any(|operand| operand.data.is_empty()) {
            return none(Vec::new());
        }
        let all = || operands.iter().flat_map(|operand| &operand.data);
        let takes_all = matches!(function.name, "length" | "count");
        if takes_all && is_list {
            let items: Vec<&Datum> =
                operands[0].data.iter().filter(|datum| **datum != Datum::Absent).collect();
            if items.contains(&&Datum::Unknown) {
                return one(Datum::Unknown);
            }
            let texts: Vec<String> = items.into_iter().map(shown).collect();
            return one(Datum::Number(match function.name {
                "length" => texts.len() as i64,
                _ => count(&texts, &operands[1..]),
            }));
        }
        if is_list && matches!(function.name, "base" | "dir") {
            let each = operands[0].data.iter().map(|datum| match datum {
                Datum::Text(value) => path_function(function.name, value, &operands[1..]),
                other => other.clone(),
            });
            return Operand { data: each.collect(), is_list: true };
        }
        for special in [Datum::Unknown, Datum::Absent] {
            if all().any(|datum| *datum == special) {
                return none(vec![special]);
            }
        }
        let texts: Vec<String> = operands.iter().map(|operand| shown(&operand.data[0])).collect();
        let number = |index: usize| match operands.get(index).map(|operand| &operand.data[0]) {
            Some(Datum::Number(number)) => Some(*number),
            _ => None,
        };
        one(match function.name {
            "concat" => Datum::Text(texts.concat()),
            "lower" => Datum::Text(texts[0].to_lowercase()),
            "upper" => Datum::Text(texts[0].to_uppercase()),
            "ltrim" => text(texts[0].strip_prefix(&*texts[1]).unwrap_or(&texts[0])),
            "rtrim" => text(texts[0].strip_suffix(&*texts[1]).unwrap_or(&texts[0])),
            "length" => Datum::Number(texts[0].chars().count() as i64),
            "count" => {
                let words: Vec<String> = texts[0].split_whitespace().map(str::to_owned).collect();
                Datum::Number(count(&words, &operands[1..]))
            }
            "indexof" => Datum::Number(texts[0].find(&*texts[1]).map_or(-1, |index| index as i64)),
            "substr" => {
                let length = texts[0].len() as i64;
                let (start, end) = (number(1).unwrap_or(0), number(2));
                let is_inside =
                    (0..length).contains(&start) && end.is_none_or(|end| end >= start && end < length);
                match is_inside {
                    true => text(&texts[0][start as usize..end.unwrap_or(length) as usize]),
                    false => text(&texts[0]),
                }
            }
            "regex" => {
                let fits = |pattern: &String| {
                    regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(&texts[0]))
                };
                Datum::Truth(texts[1..].iter().any(fits))
            }
            "cidr_contains" => Datum::Truth(texts[1..].iter().any(|range| is_in_range(&texts[0], range))),
            name => path_function(name, &texts[0], &operands[1..]),
        })
    }
}

/// Whether a pair of known values fits.
pub fn any_pair(left: &[Datum], right: &[Datum], fits: impl Fn(&Datum, &Datum) -> bool) -> Truth {
    let is_known = |data: &[Datum]| !data.is_empty() && !data.contains(&Datum::Unknown);
    match left.iter().any(|own| right.iter().any(|other| fits(own, other))) {
        true => Truth::Yes,
        false if is_known(left) && is_known(right) => Truth::No,
        false => Truth::Unknown,
    }
}

fn shown(datum: &Datum) -> String {
    match datum {
        Datum::Text(text) => text.clone(),
        Datum::Number(number) => number.to_string(),
        Datum::Decimal(number) => number.to_string(),
        Datum::Truth(truth) => truth.to_string(),
        Datum::Unknown | Datum::Absent => String::new(),
    }
}

pub fn equal(own: &Datum, other: &Datum, ignores_case: bool) -> bool {
    match (own, other) {
        (Datum::Unknown | Datum::Absent, _) | (_, Datum::Unknown | Datum::Absent) => false,
        (Datum::Text(own), Datum::Text(other)) if ignores_case => own.to_lowercase() == other.to_lowercase(),
        // Numbers in lists are texts.
        (Datum::Number(number), Datum::Text(text)) | (Datum::Text(text), Datum::Number(number)) => {
            *text == number.to_string()
        }
        (own, other) => own == other,
    }
}

fn order(own: &Datum, other: &Datum, allowed: &[i8]) -> bool {
    let order = match (own, other) {
        (Datum::Text(own), Datum::Text(other)) => Some(own.cmp(other)),
        (Datum::Number(own), Datum::Number(other)) => Some(own.cmp(other)),
        (Datum::Decimal(own), Datum::Decimal(other)) => own.partial_cmp(other),
        (Datum::Decimal(own), Datum::Number(other)) => own.partial_cmp(&(*other as f64)),
        (Datum::Number(own), Datum::Decimal(other)) => (*own as f64).partial_cmp(other),
        _ => None,
    };
    order.is_some_and(|order| allowed.contains(&(order as i8)))
}

/// An operator on texts, apart from patterns and equality.
fn test_text(test: TextTest, own: &str, other: &str) -> bool {
    match test {
        TextTest::Contains => own.contains(other),
        TextTest::StartsWith => own.starts_with(other),
        TextTest::EndsWith => own.ends_with(other),
        TextTest::Fuzzy => is_subsequence(own, other),
        TextTest::FuzzyNormalized => is_subsequence(&without_marks(own), &without_marks(other)),
        TextTest::Matches | TextTest::In | TextTest::Intersects => panic!("another test"),
    }
}

fn is_subsequence(own: &str, other: &str) -> bool {
    let mut rest = own.chars();
    other.chars().all(|wanted| rest.any(|found| found == wanted))
}

fn without_marks(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'é' | 'è' => 'e',
            'É' | 'È' => 'E',
            c => c,
        })
        .collect()
}

/// Patterns of tests are ASCII.
fn fits_pattern(own: &[u8], pattern: &[u8], ignores_case: bool) -> bool {
    let is_same = |wanted: u8, found: u8| match ignores_case {
        true => wanted.eq_ignore_ascii_case(&found),
        false => wanted == found,
    };
    let (mut at, mut next, mut star) = (0, 0, None);
    while at < own.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((at, next));
                next += 1;
            }
            Some(wanted) if *wanted == b'?' || is_same(*wanted, own[at]) => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((from, resume)) = star else { return false };
                star = Some((from + 1, resume));
                at = from + 1;
                next = resume + 1;
            }
        }
    }
    pattern[next..].iter().all(|rest| *rest == b'*')
}

fn count(items: &[String], rest: &[Operand]) -> i64 {
    let ignores_case = rest.get(1).is_none_or(|truth| truth.data[0] == Datum::Truth(true));
    let pattern = shown(&rest[0].data[0]);
    let fits = |item: &&String| fits_pattern(item.as_bytes(), pattern.as_bytes(), ignores_case);
    items.iter().filter(fits).count() as i64
}

fn is_in_range(address: &str, range: &str) -> bool {
    let bits = |text: &str| text.parse::<Ipv4Addr>().ok().map(u32::from);
    let Some((network, length)) = range.split_once('/') else { return false };
    let (Some(address), Some(network), Ok(length)) = (bits(address), bits(network), length.parse::<u32>())
    else {
        return false;
    };
    let mask = if length == 0 { 0 } else { u32::MAX << (32 - length) };
    address & mask == network & mask
}

/// The functions of paths. The folder of nothing is `.`, as in Go.
fn path_function(name: &str, path: &str, rest: &[Operand]) -> Datum {
    let is_false = rest.first().is_some_and(|truth| truth.data[0] == Datum::Truth(false));
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    let (volume, inner) = path.split_at(if has_drive { 2 } else { 0 });
    let trimmed = inner.trim_end_matches('\\');
    let file = match trimmed.rsplit('\\').next() {
        Some("") if inner.is_empty() => "",
        Some("") | None => r"\",
        Some(file) => file,
    };
    let dot = inner.rsplit('\\').next().unwrap_or_default().rfind('.');
    let extension = dot.map_or("", |dot| &inner.rsplit('\\').next().unwrap_or_default()[dot..]);
    match name {
        "base" => match file.rfind('.') {
            Some(dot) if is_false && dot > 0 => text(&file[..dot]),
            _ => text(file),
        },
        "dir" => match inner.rfind('\\') {
            Some(0) => text(&format!(r"{volume}\")),
            Some(end) => text(&path[..volume.len() + end]),
            None => text(&format!("{volume}.")),
        },
        "ext" => text(if is_false { extension.trim_start_matches('.') } else { extension }),
        "volume" => text(volume),
        "is_abs" => Datum::Truth(has_drive && inner.starts_with('\\')),
        name => panic!("no function {name}"),
    }
}
