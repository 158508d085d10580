//! The detections of a YAML file of Sigma become the same syntax tree as conditions of Fibratus, with
//! names of the event's data as fields.
//!
//! The parser is `rsigma-parser`. Its evaluator is not used, because it has two answers and its own
//! view of events. Comparisons ignore case unless a modifier says otherwise.

use std::sync::Arc;
use std::time::Duration;

use rsigma_parser::{
    ConditionExpr, ConditionOperator, CorrelationCondition, CorrelationRule, CorrelationType, Detection,
    DetectionItem, Detections, Level, LogSource, Modifier, Quantifier, SigmaString, SigmaValue, SpecialChar,
    StringPart, WindowMode,
};

use super::SigmaRule;
use crate::error::{Error, ErrorKind};
use crate::events::EventName;
use crate::functions::Function;
use crate::needs::Needs;
use crate::rule::{Head, RuleCondition};
use crate::source::{File, Source, SourceLocation, Span};
use crate::syntax::{
    Comparison, Condition, Correlation, CorrelationKind, CountRange, Expression, ExpressionKind, Operator,
    TextTest,
};

/// The limit of combinations of `2 of selection*`, and of encodings of a value.
const COMBINATIONS_MAX: usize = 1 << 10;

/// Reads the rules of a file.
pub(super) fn read(file: &Arc<File>) -> Result<Vec<SigmaRule>, Error> {
    let whole = || file.location(0..0);
    let collection = rsigma_parser::parse_sigma_yaml(&file.text)
        .map_err(|error| Error::new(whole(), ErrorKind::Yaml(one_line(&error.to_string()))))?;
    if let Some(error) = collection.errors.first() {
        return Err(Error::new(location_of(file, error), ErrorKind::Yaml(one_line(error))));
    }
    let mut rules: Vec<SigmaRule> = collection.rules.iter().map(|rule| of_detections(file, rule)).collect();
    rules.extend(collection.correlations.iter().map(|rule| of_correlation(file, rule)));
    if rules.is_empty() {
        return Err(Error::new(whole(), ErrorKind::NoRule));
    }
    Ok(rules)
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The location that an error of the parser names: `line 3 column 5`, or a name in quotes.
fn location_of(file: &File, error: &str) -> SourceLocation {
    let number = |word: &str| {
        let rest = error.split_once(word)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
    };
    if let Some(line) = number("line ") {
        let start: usize = file.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let column = number("column ").unwrap_or(1).saturating_sub(1);
        return file.location(start + column..start + column);
    }
    let quoted = error.split('\'').nth(1).filter(|quoted| !quoted.is_empty());
    let found = quoted.and_then(|quoted| Some((file.text.find(quoted)?, quoted.len())));
    found.map_or_else(|| file.location(0..0), |(at, length)| file.location(at..at + length))
}

/// What a rule states in addition to its detections.
fn head(
    (title, id, name): (&str, Option<&String>, Option<&String>),
    description: Option<&String>,
    level: Option<Level>,
    (tags, references, author): (&[String], &[String], Option<&String>),
) -> Head {
    let mut head = Head {
        id: id.cloned().unwrap_or_else(|| title.to_owned()),
        name: title.to_owned(),
        alias: name.cloned().unwrap_or_default(),
        description: description.cloned().unwrap_or_default(),
        severity: match level {
            None => String::new(),
            Some(Level::Informational) => "info".to_owned(),
            Some(level) => level.as_str().to_owned(),
        },
        is_enabled: true,
        tags: tags.to_vec(),
        references: references.to_vec(),
        authors: author.cloned().into_iter().collect(),
        ..Head::default()
    };
    for tag in tags {
        let Some(attack) = tag.strip_prefix("attack.") else { continue };
        let upper = attack.to_ascii_uppercase();
        if upper.strip_prefix('T').is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit())) {
            let kind = if upper.contains('.') { "subtechnique.id" } else { "technique.id" };
            head.labels.entry(kind.to_owned()).or_insert(upper);
        } else if let Some((_, id, name)) = TACTICS.iter().find(|(tag, ..)| *tag == attack) {
            head.labels.entry("tactic.id".to_owned()).or_insert_with(|| (*id).to_owned());
            head.labels.entry("tactic.name".to_owned()).or_insert_with(|| (*name).to_owned());
        }
    }
    head
}

/// Tactics of ATT&CK as tags spell them.
const TACTICS: [(&str, &str, &str); 12] = [
    ("initial-access", "TA0001", "Initial Access"),
    ("execution", "TA0002", "Execution"),
    ("persistence", "TA0003", "Persistence"),
    ("privilege-escalation", "TA0004", "Privilege Escalation"),
    ("defense-evasion", "TA0005", "Defense Evasion"),
    ("credential-access", "TA0006", "Credential Access"),
    ("discovery", "TA0007", "Discovery"),
    ("lateral-movement", "TA0008", "Lateral Movement"),
    ("collection", "TA0009", "Collection"),
    ("exfiltration", "TA0010", "Exfiltration"),
    ("command-and-control", "TA0011", "Command and Control"),
    ("impact", "TA0040", "Impact"),
];

fn of_detections(file: &Arc<File>, rule: &rsigma_parser::SigmaRule) -> SigmaRule {
    let head = head(
        (&rule.title, rule.id.as_ref(), rule.name.as_ref()),
        rule.description.as_ref(),
        rule.level,
        (&rule.tags, &rule.references, rule.author.as_ref()),
    );
    let builder = Builder { file, source: Arc::new(Source::new(file, &file.text, 0)) };
    let condition = builder.log_source(&rule.logsource).and_then(|events| {
        let tree = builder.detections(&rule.detection)?;
        Ok(RuleCondition { tree: Condition::Event(tree), events: vec![events], needs: Needs::NONE })
    });
    SigmaRule { head, text: rule.detection.condition_strings.join("\n"), condition }
}

fn of_correlation(file: &Arc<File>, rule: &CorrelationRule) -> SigmaRule {
    let head = head(
        (&rule.title, rule.id.as_ref(), rule.name.as_ref()),
        rule.description.as_ref(),
        rule.level,
        (&rule.tags, &rule.references, rule.author.as_ref()),
    );
    let unsupported = |what: &str| Error::new(file.location(0..0), ErrorKind::Unsupported(what.to_owned()));
    let correlation = || {
        let range = || match &rule.condition {
            CorrelationCondition::Threshold { predicates, field, .. } => Ok((
                range(predicates).ok_or_else(|| unsupported("the operator `neq` in a correlation"))?,
                field,
            )),
            CorrelationCondition::Extended(_) => Err(unsupported("a condition of rules in a correlation")),
        };
        let kind = match rule.correlation_type {
            CorrelationType::EventCount => CorrelationKind::EventCount(range()?.0),
            CorrelationType::ValueCount => {
                let (range, field) = range()?;
                let [field] = field.as_deref().unwrap_or_default() else {
                    return Err(unsupported("`value_count` without exactly one field"));
                };
                CorrelationKind::ValueCount(range, field.clone())
            }
            CorrelationType::Temporal => CorrelationKind::Temporal,
            CorrelationType::TemporalOrdered => CorrelationKind::TemporalOrdered,
            other => return Err(unsupported(&format!("the correlation `{}`", other.as_str()))),
        };
        if rule.window != WindowMode::Sliding {
            return Err(unsupported(&format!("the window `{}`", rule.window.as_str())));
        }
        if !rule.aliases.is_empty() {
            return Err(unsupported("`aliases` in a correlation"));
        }
        let correlation = Correlation {
            kind,
            rules: rule.rules.clone(),
            group_by: rule.group_by.clone(),
            span: Duration::from_secs(rule.timespan.seconds),
            generate: rule.generate,
        };
        let tree = Condition::Correlation(correlation);
        Ok(RuleCondition { tree, events: Vec::new(), needs: Needs::NONE })
    };
    let text = format!("{} of {}", rule.correlation_type.as_str(), rule.rules.join(", "));
    SigmaRule { head, text, condition: correlation() }
}

fn range(predicates: &[(ConditionOperator, u64)]) -> Option<CountRange> {
    let mut range = CountRange { least: 0, most: u64::MAX };
    for (operator, number) in predicates {
        match operator {
            ConditionOperator::Gt => range.least = range.least.max(number.saturating_add(1)),
            ConditionOperator::Gte => range.least = range.least.max(*number),
            ConditionOperator::Lt => range.most = range.most.min(number.checked_sub(1)?),
            ConditionOperator::Lte => range.most = range.most.min(*number),
            ConditionOperator::Eq => {
                (range.least, range.most) = (range.least.max(*number), range.most.min(*number));
            }
            ConditionOperator::Neq => return None,
        }
    }
    Some(range)
}

struct Builder<'f> {
    file: &'f Arc<File>,
    source: Arc<Source>,
}

/// Where in the text of a value the text of the rule is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Whole,
    Anywhere,
    Start,
    End,
}

impl Builder<'_> {
    /// The location of a name in the file.
    fn span(&self, name: &str) -> Span {
        let at = self.file.text.find(name).unwrap_or(0);
        let length = if name.is_empty() { 0 } else { name.len().min(self.file.text.len() - at) };
        Span { source: Arc::clone(&self.source), range: at..at + length }
    }

    fn error(&self, name: &str, kind: ErrorKind) -> Error {
        Error::new(self.span(name).location(), kind)
    }

    fn unsupported(&self, name: &str, what: String) -> Error {
        self.error(name, ErrorKind::Unsupported(what))
    }

    fn expression(&self, name: &str, kind: ExpressionKind) -> Expression {
        Expression { kind, span: self.span(name), is_enclosed: true }
    }

    /// The log source as a name of events.
    fn log_source(&self, source: &LogSource) -> Result<Vec<String>, Error> {
        let other =
            |what: &str, name: &str| Err(self.error(name, ErrorKind::LogSource(format!("{what} `{name}`"))));
        if let Some(product) = source.product.as_deref().filter(|product| *product != "windows") {
            return other("the product", product);
        }
        let name = match (source.category.as_deref(), source.service.as_deref()) {
            (Some(category), _) => (format!("sigma.{category}"), "the category", category),
            (None, Some(service)) => (format!("sigma.service.{service}"), "the service", service),
            (None, None) => {
                let kind = ErrorKind::LogSource("a log source without category and service".to_owned());
                return Err(self.error("logsource", kind));
            }
        };
        let (name, what, value) = name;
        match EventName::of(&name) {
            Some(_) => Ok(vec![name]),
            None => other(what, value),
        }
    }

    fn detections(&self, detections: &Detections) -> Result<Expression, Error> {
        let mut any = Vec::new();
        for condition in &detections.conditions {
            any.push(self.condition(condition, detections)?);
        }
        Ok(self.any("condition", any))
    }

    fn any(&self, name: &str, mut parts: Vec<Expression>) -> Expression {
        match parts.len() {
            0 => self.expression(name, ExpressionKind::Truth(false)),
            1 => parts.remove(0),
            _ => self.expression(name, ExpressionKind::Or(parts)),
        }
    }

    fn all(&self, name: &str, mut parts: Vec<Expression>) -> Expression {
        match parts.len() {
            0 => self.expression(name, ExpressionKind::Truth(true)),
            1 => parts.remove(0),
            _ => self.expression(name, ExpressionKind::And(parts)),
        }
    }

    fn condition(&self, condition: &ConditionExpr, detections: &Detections) -> Result<Expression, Error> {
        let each = |parts: &[ConditionExpr]| -> Result<Vec<Expression>, Error> {
            parts.iter().map(|part| self.condition(part, detections)).collect()
        };
        Ok(match condition {
            ConditionExpr::And(parts) => self.all("condition", each(parts)?),
            ConditionExpr::Or(parts) => self.any("condition", each(parts)?),
            ConditionExpr::Not(part) => {
                let part = self.condition(part, detections)?;
                self.expression("condition", ExpressionKind::Not(Box::new(part)))
            }
            ConditionExpr::Identifier(name) => self.named(name, detections)?,
            ConditionExpr::Selector { quantifier, pattern } => {
                let mut names: Vec<&String> =
                    detections.named.keys().filter(|name| pattern.matches_detection_name(name)).collect();
                names.sort();
                if names.is_empty() {
                    let kind = ErrorKind::Unsupported(format!("`{pattern}`, which names no detection,"));
                    return Err(self.error("condition", kind));
                }
                let parts: Result<Vec<_>, Error> =
                    names.iter().map(|name| self.named(name, detections)).collect();
                let parts = parts?;
                match quantifier {
                    Quantifier::Any => self.any("condition", parts),
                    Quantifier::All => self.all("condition", parts),
                    Quantifier::Count(count) => self.some_of(*count, parts)?,
                }
            }
        })
    }

    /// At least `count` of the parts.
    fn some_of(&self, count: u64, parts: Vec<Expression>) -> Result<Expression, Error> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        for index in 0..parts.len() {
            let with: Vec<Vec<usize>> = sets
                .iter()
                .filter(|set| set.len() < count)
                .map(|set| set.iter().copied().chain([index]).collect())
                .collect();
            sets.extend(with);
            if sets.len() > COMBINATIONS_MAX {
                return Err(self.unsupported("condition", format!("`{count} of` so many detections")));
            }
        }
        let whole = sets.into_iter().filter(|set| set.len() == count);
        let any = whole
            .map(|set| self.all("condition", set.into_iter().map(|index| parts[index].clone()).collect()));
        Ok(self.any("condition", any.collect()))
    }

    fn named(&self, name: &str, detections: &Detections) -> Result<Expression, Error> {
        match detections.named.get(name) {
            Some(detection) => self.detection(name, detection),
            None => Err(self.unsupported(name, format!("the detection `{name}`, which does not exist,"))),
        }
    }

    fn detection(&self, name: &str, detection: &Detection) -> Result<Expression, Error> {
        Ok(match detection {
            Detection::AllOf(items) => {
                let parts: Result<Vec<_>, Error> = items.iter().map(|item| self.item(item)).collect();
                self.all(name, parts?)
            }
            Detection::AnyOf(parts) => {
                let parts: Result<Vec<_>, Error> =
                    parts.iter().map(|part| self.detection(name, part)).collect();
                self.any(name, parts?)
            }
            Detection::And(parts) => {
                let parts: Result<Vec<_>, Error> =
                    parts.iter().map(|part| self.detection(name, part)).collect();
                self.all(name, parts?)
            }
            Detection::Keywords(values) => {
                let parts: Result<Vec<_>, Error> =
                    values.iter().map(|value| self.value("*", value, &[Modifier::Contains])).collect();
                self.any(name, parts?)
            }
            Detection::ArrayMatch { field, .. } => {
                return Err(self.unsupported(field, "a detection for the elements of a list".to_owned()));
            }
            Detection::Conditional { .. } => {
                return Err(self.unsupported(name, "a condition within a detection".to_owned()));
            }
        })
    }

    fn item(&self, item: &DetectionItem) -> Result<Expression, Error> {
        let name = item.field.name.as_deref().unwrap_or("*");
        let modifiers = &item.field.modifiers;
        let mut modifiers_of_values: Vec<Modifier> = modifiers.clone();
        if item.field.name.is_none() && modifiers.is_empty() {
            modifiers_of_values.push(Modifier::Contains);
        }
        let parts: Result<Vec<_>, Error> =
            item.values.iter().map(|value| self.value(name, value, &modifiers_of_values)).collect();
        let (parts, is_negated) = (parts?, modifiers.contains(&Modifier::Neq));
        let joined =
            if modifiers.contains(&Modifier::All) { self.all(name, parts) } else { self.any(name, parts) };
        Ok(match is_negated {
            true => self.expression(name, ExpressionKind::Not(Box::new(joined))),
            false => joined,
        })
    }

    fn value(&self, name: &str, value: &SigmaValue, modifiers: &[Modifier]) -> Result<Expression, Error> {
        use Modifier::*;
        let has = |modifier| modifiers.contains(&modifier);
        let data = || self.expression(name, ExpressionKind::Data(name.to_owned()));
        let compared = |operator, right| {
            let comparison =
                Comparison { left: data(), operator, is_negated: false, right: self.expression(name, right) };
            self.expression(name, ExpressionKind::Comparison(Box::new(comparison)))
        };
        let exists = |wanted: bool| {
            let exists = self.expression(name, ExpressionKind::Exists(name.to_owned()));
            match wanted {
                true => exists,
                false => self.expression(name, ExpressionKind::Not(Box::new(exists))),
            }
        };
        let refused = [Expand, Minute, Hour, Day, Week, Month, Year, Utf16be, Utf16].into_iter();
        if let Some(modifier) = refused.into_iter().find(|modifier| has(*modifier)) {
            return Err(self.unsupported(name, format!("the modifier `{modifier:?}`").to_lowercase()));
        }
        if has(Exists) {
            return match value {
                SigmaValue::Bool(wanted) => Ok(exists(*wanted)),
                _ => Err(self.unsupported(name, "a value of `exists` other than true and false".to_owned())),
            };
        }
        let order = [
            (Gt, Operator::Greater),
            (Gte, Operator::GreaterOrEqual),
            (Lt, Operator::Less),
            (Lte, Operator::LessOrEqual),
        ];
        let order = order.into_iter().find(|(modifier, _)| has(*modifier)).map(|(_, operator)| operator);
        let operator = |exact: Operator| order.unwrap_or(exact);
        let text = match value {
            SigmaValue::Null => return Ok(exists(false)),
            SigmaValue::Bool(truth) => {
                let text = if *truth { "true" } else { "false" };
                return Ok(compared(Operator::EqualIgnoringCase, ExpressionKind::Text(text.to_owned())));
            }
            SigmaValue::Integer(number) => match u64::try_from(*number) {
                Ok(number) if !has(Contains) && !has(StartsWith) && !has(EndsWith) => {
                    return Ok(compared(operator(Operator::Equal), ExpressionKind::Integer(number)));
                }
                _ => SigmaString::from_raw(&number.to_string()),
            },
            SigmaValue::Float(number) => {
                return Ok(compared(operator(Operator::Equal), ExpressionKind::Decimal(*number)));
            }
            SigmaValue::String(text) => text.clone(),
        };
        if let Some(order) = order {
            return Ok(compared(order, ExpressionKind::Text(text.original)));
        }
        if has(FieldRef) {
            let operator = match (has(StartsWith), has(EndsWith), has(Contains)) {
                (true, ..) => text_operator(TextTest::StartsWith, true),
                (_, true, _) => text_operator(TextTest::EndsWith, true),
                (_, _, true) => text_operator(TextTest::Contains, true),
                _ => Operator::EqualIgnoringCase,
            };
            return Ok(compared(operator, ExpressionKind::Data(text.original)));
        }
        let call = |function: &str, argument: String| {
            let function = Function::of(function).expect("a function of the table");
            let arguments = vec![data(), self.expression(name, ExpressionKind::Text(argument))];
            self.expression(name, ExpressionKind::Call { function, arguments })
        };
        if has(Cidr) {
            return Ok(call("cidr_contains", text.original));
        }
        if has(Re) {
            let flags: String = [(IgnoreCase, 'i'), (Multiline, 'm'), (DotAll, 's')]
                .into_iter()
                .filter(|(modifier, _)| has(*modifier))
                .map(|(_, flag)| flag)
                .collect();
            let flags = if flags.is_empty() { String::new() } else { format!("(?{flags})") };
            return Ok(call("regex", format!("{flags}{}", text.original)));
        }
        let ends = match (has(Contains), has(StartsWith), has(EndsWith)) {
            (true, ..) => Anchor::Anywhere,
            (_, true, _) => Anchor::Start,
            (_, _, true) => Anchor::End,
            _ => Anchor::Whole,
        };
        let is_cased = has(Cased) || has(Base64) || has(Base64Offset);
        let mut any = Vec::new();
        for text in variants(&text, modifiers) {
            any.push(match operator_of(&text, ends, is_cased) {
                Some((operator, text)) => compared(operator, ExpressionKind::Text(text)),
                None => call("regex", regular_expression(&text, ends, is_cased)),
            });
        }
        if any.len() > COMBINATIONS_MAX {
            return Err(self.unsupported(name, "a value with so many encodings".to_owned()));
        }
        Ok(self.any(name, any))
    }
}

fn text_operator(test: TextTest, ignores_case: bool) -> Operator {
    Operator::Text { test, ignores_case }
}

/// The operator and the text that a value means; `None` if it has a literal `*` or `?` next to
/// wildcards, which a pattern cannot express.
fn operator_of(text: &SigmaString, ends: Anchor, is_cased: bool) -> Option<(Operator, String)> {
    let plain = |parts: &[StringPart]| -> String {
        let texts = parts.iter().map(|part| match part {
            StringPart::Plain(text) => text.as_str(),
            StringPart::Special(SpecialChar::WildcardMulti) => "*",
            StringPart::Special(SpecialChar::WildcardSingle) => "?",
        });
        texts.collect()
    };
    if text.is_plain() {
        let operator = match (ends, is_cased) {
            (Anchor::Whole, true) => Operator::Equal,
            (Anchor::Whole, false) => Operator::EqualIgnoringCase,
            (Anchor::Anywhere, _) => text_operator(TextTest::Contains, !is_cased),
            (Anchor::Start, _) => text_operator(TextTest::StartsWith, !is_cased),
            (Anchor::End, _) => text_operator(TextTest::EndsWith, !is_cased),
        };
        return Some((operator, plain(&text.parts)));
    }
    let has_literal = text.parts.iter().any(|part| match part {
        StringPart::Plain(text) => text.contains(['*', '?']),
        StringPart::Special(_) => false,
    });
    if has_literal {
        return None;
    }
    let pattern = plain(&text.parts);
    let pattern = match ends {
        Anchor::Whole => pattern,
        Anchor::Anywhere => format!("*{pattern}*"),
        Anchor::Start => format!("{pattern}*"),
        Anchor::End => format!("*{pattern}"),
    };
    Some((text_operator(TextTest::Matches, !is_cased), pattern))
}

fn regular_expression(text: &SigmaString, ends: Anchor, is_cased: bool) -> String {
    let parts = text.parts.iter().map(|part| match part {
        StringPart::Plain(text) => regex::escape(text),
        StringPart::Special(SpecialChar::WildcardMulti) => ".*".to_owned(),
        StringPart::Special(SpecialChar::WildcardSingle) => ".".to_owned(),
    });
    let body: String = parts.collect();
    let start = if matches!(ends, Anchor::Whole | Anchor::Start) { "^" } else { "" };
    let end = if matches!(ends, Anchor::Whole | Anchor::End) { "$" } else { "" };
    format!("(?s{}){start}{body}{end}", if is_cased { "" } else { "i" })
}

/// The texts that a value stands for: with each kind of dash, and encoded.
fn variants(text: &SigmaString, modifiers: &[Modifier]) -> Vec<SigmaString> {
    let mut all = vec![text.clone()];
    for modifier in modifiers {
        all = match modifier {
            Modifier::WindAsh => all.iter().flat_map(dashes).collect(),
            Modifier::Wide => all.iter().map(|text| SigmaString::from_raw(&wide(&text.original))).collect(),
            Modifier::Base64 => {
                all.iter().map(|text| SigmaString::from_raw(&base64(text.original.as_bytes()))).collect()
            }
            Modifier::Base64Offset => all.iter().flat_map(|text| base64_offsets(&text.original)).collect(),
            _ => continue,
        };
    }
    all
}

/// The text with each dash that Windows programs accept, where a word begins with one.
fn dashes(text: &SigmaString) -> Vec<SigmaString> {
    const DASHES: [char; 5] = ['-', '/', '\u{2013}', '\u{2014}', '\u{2015}'];
    let with = |dash: char| {
        let mut at_start = true;
        let changed: String = text
            .original
            .chars()
            .map(|c| {
                let is_dash = at_start && matches!(c, '-' | '/');
                at_start = c.is_whitespace() || c == '*';
                if is_dash { dash } else { c }
            })
            .collect();
        SigmaString::new(&changed)
    };
    let mut all: Vec<SigmaString> = DASHES.into_iter().map(with).collect();
    all.dedup();
    all
}

/// The characters as UTF-16LE.
fn wide(text: &str) -> String {
    text.encode_utf16().flat_map(u16::to_le_bytes).map(char::from).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// The text within a longer one that is encoded: without the letters that depend on what is around.
fn base64_offsets(text: &str) -> Vec<SigmaString> {
    // Texts of `wide` have one byte per character.
    let bytes: Vec<u8> = match text.chars().all(|c| u32::from(c) < 256) && text.contains('\0') {
        true => text.chars().map(|c| c as u8).collect(),
        false => text.as_bytes().to_vec(),
    };
    let one = |offset: usize| {
        let mut padded = vec![b' '; offset];
        padded.extend_from_slice(&bytes);
        let encoded = base64(&padded);
        let start = [0, 2, 3][offset];
        let end = encoded.len() - [0, 3, 2][padded.len() % 3];
        SigmaString::from_raw(encoded.get(start..end).unwrap_or_default())
    };
    (0..3).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 4648, and a text within others.
    #[test]
    fn texts_are_encoded() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
        for before in ["", "x", "xy", "xyz"] {
            let whole = base64(format!("{before}http://{before}").as_bytes());
            let found = base64_offsets("http://").iter().any(|part| whole.contains(&part.original));
            assert!(found, "{whole}");
        }
    }

    #[test]
    fn words_can_begin_with_any_dash() {
        let all = dashes(&SigmaString::new("*-a b-c /d"));
        let texts: Vec<&str> = all.iter().map(|text| text.original.as_str()).collect();
        assert_eq!(texts[..2], ["*-a b-c -d", "*/a b-c /d"]);
        assert_eq!(texts.len(), 5);
    }
}
