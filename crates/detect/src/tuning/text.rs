//! The TOML form of the rules.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use stackhound_frames::lists::{ListsError, Pattern};
use stackhound_types::{FileTime, TICKS_PER_SECOND, start_of_day};
use toml::Spanned;

use super::{Condition, Exception, SeverityRule, SuppressedBy, Suppression, Tuning};
use crate::catalogue::DetectionId;
use crate::verdict::Severity;

/// The sections of the file that are read here.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    severity: BTreeMap<Spanned<Id>, Rules>,
    #[serde(default)]
    exceptions: Vec<Spanned<ExceptionText>>,
}

/// The id of a detection or of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
enum Id {
    Detection(DetectionId),
    Rule(String),
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Id, String> {
        let mut ids = DetectionId::all().map(DetectionId::name);
        let (first, last) = (ids.next().unwrap_or_default(), ids.last().unwrap_or_default());
        let is_uuid = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        match DetectionId::parse(&text) {
            Some(id) => Ok(Id::Detection(id)),
            None if is_uuid => Ok(Id::Rule(text)),
            None => Err(format!(
                "there is no detection `{text}`; write an id from {first} to {last}, or the id of a rule"
            )),
        }
    }
}

/// A severity; `None` is "off".
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Level(Option<Severity>);

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Level, String> {
        let names = Severity::ALL.map(Severity::name).join(", ");
        match (&*text, Severity::of(&text)) {
            ("off", _) => Ok(Level(None)),
            (_, Some(severity)) => Ok(Level(Some(severity))),
            _ => Err(format!("`{text}` is not a severity; write one of {names}, or off")),
        }
    }
}

/// The last day of an exception, and the start of the next day.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
struct Expiry(String, FileTime);

impl TryFrom<String> for Expiry {
    type Error = String;

    fn try_from(text: String) -> Result<Expiry, String> {
        let day = start_of_day(&text)
            .ok_or_else(|| format!("`{text}` is not a date; write one such as 2027-01-31"))?;
        Ok(Expiry(text, FileTime(day.0 + 86_400 * TICKS_PER_SECOND)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptionText {
    detection: Option<Id>,
    rule: Option<Pattern>,
    process: Option<Pattern>,
    module: Option<Pattern>,
    signer: Option<Pattern>,
    command_line: Option<Pattern>,
    host: Option<Pattern>,
    reason: String,
    expires: Option<Expiry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    severity: Level,
    process: Option<Pattern>,
    module: Option<Pattern>,
    signer: Option<Pattern>,
}

/// The value of a detection: a severity, a rule with conditions, or a list of such rules.
struct Rules(Vec<RuleText>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rules, D::Error> {
        deserializer.deserialize_any(RulesVisitor)
    }
}

struct RulesVisitor;

impl<'de> Visitor<'de> for RulesVisitor {
    type Value = Rules;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a severity, `{ severity = …, process = … }`, or a list of these tables")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rules, E> {
        let severity = Level::try_from(text.to_owned()).map_err(E::custom)?;
        Ok(Rules(vec![RuleText { severity, process: None, module: None, signer: None }]))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rules, A::Error> {
        Ok(Rules(vec![RuleText::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Rules, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Rules)
    }
}

pub(super) fn parse(text: &str) -> Result<Tuning, ListsError> {
    let line = |start: usize| 1 + text[..start.min(text.len())].matches('\n').count();
    let file: File = toml::from_str(text).map_err(|error: toml::de::Error| ListsError {
        line: error.span().map_or(1, |span| line(span.start)),
        message: error.message().to_owned(),
    })?;
    let mut tuning = Tuning::default();
    for (id, Rules(rules)) in file.severity {
        let at = line(id.span().start);
        let (name, detection, rule) = match id.into_inner() {
            Id::Detection(id) => (id.name().to_owned(), Some(id), None),
            Id::Rule(id) => (id.clone(), None, Some(Pattern::from(id.clone()))),
        };
        for RuleText { severity, process, module, signer } in rules {
            let suppression = Suppression {
                by: SuppressedBy::Severity,
                line: Some(at),
                reason: format!("{name} is off"),
                expires: String::new(),
            };
            tuning.severity.push(SeverityRule {
                condition: Condition {
                    detection,
                    rule: rule.clone(),
                    process,
                    module,
                    signer,
                    ..Condition::default()
                },
                severity: severity.0,
                suppression: Arc::new(suppression),
                suppressed: 0,
            });
        }
    }
    for exception in file.exceptions {
        let at = line(exception.span().start);
        tuning.exceptions.push(exception.into_inner().at(at)?);
    }
    Ok(tuning)
}

impl ExceptionText {
    /// The exception that begins in this line.
    fn at(self, line: usize) -> Result<Exception, ListsError> {
        let ExceptionText { detection, rule, process, module, signer, command_line, host, reason, expires } =
            self;
        let (detection, rule) = match detection {
            None => (None, rule),
            Some(Id::Detection(id)) => (Some(id), rule),
            Some(Id::Rule(id)) => (None, Some(Pattern::from(id.clone()))),
        };
        let condition = Condition { detection, rule, process, module, signer, command_line, host };
        let message = if condition == Condition::default() {
            "an exception needs at least one of detection, rule, process, module, signer, command_line, host"
        } else if reason.trim().is_empty() {
            "the reason of an exception is empty; write why its findings are expected"
        } else {
            let (expires, end) = expires.map_or((String::new(), None), |Expiry(text, end)| (text, Some(end)));
            let suppression = Suppression { by: SuppressedBy::Exception, line: Some(line), reason, expires };
            return Ok(Exception {
                condition,
                end,
                suppression: Arc::new(suppression),
                suppressed: 0,
                expired: 0,
            });
        };
        Err(ListsError { line, message: message.to_owned() })
    }
}
