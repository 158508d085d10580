//! Files with rules and macros, in YAML.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::error::{Error, ErrorKind};
use crate::macros::MacroText;
use crate::rule::Head;
use crate::sigma::{self, SigmaRule};
use crate::source::{File, Source, SourceLocation};

/// The content of a file.
pub(crate) enum Content {
    Rule(Box<RuleText>),
    Macros(Vec<(String, MacroText)>),
    /// Rules of Sigma.
    Sigma(Vec<SigmaRule>),
}

/// A rule as it is written.
pub(crate) struct RuleText {
    pub head: Head,
    pub condition: Arc<Source>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Rule {
    id: String,
    name: String,
    version: String,
    condition: Spanned<String>,
    min_engine_version: String,
    description: Option<String>,
    output: Option<String>,
    notes: Option<String>,
    severity: Option<Spanned<String>>,
    enabled: Option<bool>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    references: Vec<String>,
    #[serde(default)]
    authors: OneOrMore,
    #[serde(default)]
    action: Vec<Action>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    name: String,
    #[serde(default, rename = "whitelist")]
    _whitelist: Vec<String>,
}

/// A text or several.
#[derive(Default)]
struct OneOrMore(Vec<String>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Macro {
    r#macro: Spanned<String>,
    expr: Option<Spanned<String>>,
    list: Option<Vec<Spanned<String>>>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

/// The form of a document.
enum Form {
    Macros,
    Rule,
    Other,
}

const SEVERITIES: [&str; 4] = ["low", "medium", "high", "critical"];

/// Reads a file.
pub(crate) fn read(file: &Arc<File>) -> Result<Content, Error> {
    if sigma::is_sigma(&file.text) {
        return sigma::read(file).map(Content::Sigma);
    }
    let form: Form = yaml(file)?;
    match form {
        Form::Rule => rule(file).map(|rule| Content::Rule(Box::new(rule))),
        Form::Macros => macros(file).map(Content::Macros),
        Form::Other => Err(Error::new(file.location(0..0), ErrorKind::NoRule)),
    }
}

fn yaml<'de, T: Deserialize<'de>>(file: &'de File) -> Result<T, Error> {
    serde_saphyr::from_str(&file.text).map_err(|error| {
        let located = error.location().map(|location| location_of(file, &location));
        let location = located.unwrap_or_else(|| file.location(0..0));
        Error::new(location, ErrorKind::Yaml(sentence(&error)))
    })
}

/// The first line of a message, without the location, which is known otherwise.
fn sentence(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or(line);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn start(location: &Location) -> usize {
    location.span().byte_offset().map_or(0, |offset| offset as usize)
}

fn location_of(file: &File, location: &Location) -> SourceLocation {
    let start = start(location);
    file.location(start..start + 1)
}

fn source(file: &Arc<File>, text: &Spanned<String>) -> Arc<Source> {
    Arc::new(Source::new(file, &text.value, start(&text.defined)))
}

fn rule(file: &Arc<File>) -> Result<RuleText, Error> {
    let rule: Rule = yaml(file)?;
    let severity = match &rule.severity {
        None => String::new(),
        Some(severity) if SEVERITIES.contains(&&*severity.value) => severity.value.clone(),
        Some(severity) => {
            let kind = ErrorKind::Severity(severity.value.clone());
            return Err(Error::new(location_of(file, &severity.defined), kind));
        }
    };
    let condition = source(file, &rule.condition);
    let head = Head {
        id: rule.id,
        name: rule.name,
        alias: String::new(),
        version: rule.version,
        description: rule.description.unwrap_or_default(),
        output: rule.output.unwrap_or_default(),
        notes: rule.notes.unwrap_or_default(),
        severity,
        is_enabled: rule.enabled.unwrap_or(true),
        labels: rule.labels,
        tags: rule.tags,
        references: rule.references,
        authors: rule.authors.0,
        actions: rule.action.into_iter().map(|action| action.name).collect(),
        min_engine_version: rule.min_engine_version,
    };
    Ok(RuleText { head, condition })
}

fn macros(file: &Arc<File>) -> Result<Vec<(String, MacroText)>, Error> {
    let macros: Vec<Macro> = yaml(file)?;
    let text = |one: Macro| {
        let name = one.r#macro.value.clone();
        let text = match (one.expr, one.list) {
            (Some(expression), None) => MacroText::Expression(source(file, &expression)),
            (None, Some(list)) if list.is_empty() => {
                return Err(Error::new(location_of(file, &one.r#macro.defined), ErrorKind::EmptyList));
            }
            (None, Some(list)) => MacroText::List(
                list.into_iter().map(|value| (value.value.clone(), source(file, &value))).collect(),
            ),
            _ => {
                let kind = ErrorKind::MacroText(name);
                return Err(Error::new(location_of(file, &one.r#macro.defined), kind));
            }
        };
        Ok((name, text))
    };
    macros.into_iter().map(text).collect()
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Form, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = Form;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule with `condition`, or a list of macros")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Form, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Form::Macros)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Form, A::Error> {
                let mut form = Form::Other;
                while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                    if key == "condition" {
                        form = Form::Rule;
                    }
                }
                Ok(form)
            }
        }
        deserializer.deserialize_any(Forms)
    }
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMore, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(OneOrMore(texts))
            }
        }
        deserializer.deserialize_any(Texts)
    }
}
