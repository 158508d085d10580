//! The facts of the catalogue as JSON objects: a key for each fact, null if it is not known. The parts of a path are
//! nested objects, which are null if none of their facts is known.

use std::borrow::Cow;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use stackhound_detect::report::ProcessReport;
#[cfg(test)]
use stackhound_facts::FactType;
use stackhound_facts::{FactId, FactSet, FactValue, ProcessFact, ThreadFact};
use stackhound_pipeline::{EventView, Missing, ProcessView, RegistrySubject, Target, ThreadStart};

/// The known facts about a process or a thread. Its id is a separate key, `pid` or `tid`.
#[derive(Clone, Debug)]
pub struct Facts<'c, F: FactId>(Cow<'c, FactSet<'c, F>>);

/// A process.
pub type ProcessFacts<'c> = Facts<'c, ProcessFact>;

/// A thread.
pub type ThreadFacts<'c> = Facts<'c, ThreadFact>;

impl<'c> ProcessFacts<'c> {
    /// A process of a trace; `None` if it is not known.
    pub fn of_trace(process: Result<ProcessView<'c>, Missing>) -> Option<ProcessFacts<'c>> {
        Some(Facts(Cow::Owned(process.ok()?.facts())))
    }
}

impl<'c> ThreadFacts<'c> {
    /// The start of a thread of a trace; `None` if it is not known.
    pub fn of_trace(start: Result<ThreadStart<'c>, Missing>) -> Option<ThreadFacts<'c>> {
        Some(Facts(Cow::Owned(start.ok()?.facts())))
    }
}

impl<'c, F: FactId> Facts<'c, F> {
    /// The facts of a report; `None` if none is known.
    pub fn reported(facts: &'c FactSet<'static, F>) -> Option<Facts<'c, F>> {
        (!facts.is_empty()).then_some(Facts(Cow::Borrowed(facts)))
    }
}

impl<F: FactId> Serialize for Facts<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Object { facts: &*self.0, rows: F::ALL, prefix: 0 }.serialize(serializer)
    }
}

/// The facts whose paths have a common prefix.
struct Object<'o, F: FactId> {
    facts: &'o FactSet<'o, F>,
    rows: &'o [F],
    /// The length of the prefix.
    prefix: usize,
}

impl<F: FactId> Serialize for Object<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, rows) in entries(self.rows, self.prefix) {
            match rows {
                Entry::Fact(fact) => map.serialize_entry(key, &self.facts.get(fact).map(Value))?,
                Entry::Object(rows) => {
                    let is_known = rows.iter().any(|fact| self.facts.get(*fact).is_some());
                    let object = Object { facts: self.facts, rows, prefix: self.prefix + key.len() + 1 };
                    map.serialize_entry(key, &is_known.then_some(object))?;
                }
            }
        }
        map.end()
    }
}

/// A key of an object.
enum Entry<'o, F> {
    Fact(F),
    Object(&'o [F]),
}

/// The keys of the object whose facts are `rows`.
fn entries<F: FactId>(mut rows: &[F], prefix: usize) -> impl Iterator<Item = (&'static str, Entry<'_, F>)> {
    std::iter::from_fn(move || {
        let (first, rest) = rows.split_first()?;
        let row = first.row();
        let Some(dot) = row.dot_from(prefix) else {
            rows = rest;
            return Some((&row.path[prefix..], Entry::Fact(*first)));
        };
        let key = &row.path.as_bytes()[prefix..dot];
        let mut length = 1;
        while let Some(fact) = rows.get(length) {
            let other = fact.row();
            if other.dot_from(prefix) != Some(dot) || &other.path.as_bytes()[prefix..dot] != key {
                break;
            }
            length += 1;
        }
        let (inside, others) = rows.split_at(length);
        rows = others;
        Some((&row.path[prefix..dot], Entry::Object(inside)))
    })
}

/// A value in the JSON type of its fact.
pub(crate) struct Value<'a>(pub &'a FactValue<'a>);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            FactValue::Text(text) => serializer.serialize_str(text),
            FactValue::Number(number) => serializer.serialize_u32(*number),
            // Their pieces would be escaped one by one.
            value @ (FactValue::Sid(_) | FactValue::Entity(..)) => {
                serializer.serialize_str(&value.to_string())
            }
            value => serializer.collect_str(value),
        }
    }
}

#[cfg(test)]
impl<F: FactId> JsonSchema for Facts<'_, F> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<F>().rsplit("::").next().unwrap_or_default().replace("Fact", "").into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = object_schema(F::ALL, 0, generator);
        schema.insert("type".to_owned(), "object".into());
        schema.insert(
            "description".to_owned(),
            "The known facts. The id is a separate key, `pid` or `tid`.".into(),
        );
        schema
    }
}

/// The schema of an object that can be null.
#[cfg(test)]
fn object_schema<F: FactId>(rows: &[F], prefix: usize, generator: &mut SchemaGenerator) -> Schema {
    let mut properties = serde_json::Map::new();
    for (key, entry) in entries(rows, prefix) {
        let schema = match entry {
            Entry::Object(rows) => object_schema(rows, prefix + key.len() + 1, generator),
            Entry::Fact(fact) => {
                let row = fact.row();
                let mut schema = match row.r#type {
                    FactType::Text => json_schema!({ "type": ["string", "null"] }),
                    FactType::Number => {
                        json_schema!({ "type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX })
                    }
                    FactType::Hex => generator.subschema_for::<Option<super::value::Hex>>(),
                    FactType::Time => generator.subschema_for::<Option<super::value::Time>>(),
                };
                schema.insert("description".to_owned(), row.doc.into());
                schema
            }
        };
        properties.insert(key.to_owned(), schema.into());
    }
    let required: Vec<&str> = entries(rows, prefix).map(|(key, _)| key).collect();
    json_schema!({ "type": ["object", "null"], "properties": properties, "required": required })
}

/// The file that an event is about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventFile<'s> {
    path: Option<Cow<'s, str>>,
}

/// The registry key that an event is about.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventRegistry<'c> {
    /// Path of the key.
    path: Option<Cow<'c, str>>,
    /// Name of the value, for events about a value; empty for the default value of the key.
    value: Option<Cow<'c, str>>,
}

/// The process and thread that an event acts on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventTarget<'c> {
    /// Id of the process, if it is not the event's own.
    pid: Option<u32>,
    /// Id of the thread, if it is not the event's own.
    tid: Option<u32>,
    process: Option<ProcessFacts<'c>>,
    thread: Option<ThreadFacts<'c>>,
}

impl<'s> EventFile<'s> {
    /// The file of an event; `None` if events of its kind are about none.
    pub fn new(view: &'s EventView<'_>) -> Option<EventFile<'s>> {
        view.is_about_file().then(|| EventFile::at(view.file_path().ok()))
    }

    /// A file with this path, if it is known.
    pub fn at(path: Option<Cow<'s, str>>) -> EventFile<'s> {
        EventFile { path }
    }
}

impl<'c> EventRegistry<'c> {
    /// The key of an event.
    pub fn new(subject: RegistrySubject<'c>) -> EventRegistry<'c> {
        EventRegistry { path: subject.path.ok(), value: subject.value.ok().map(Cow::Owned) }
    }
}

impl<'c> EventTarget<'c> {
    /// The target of an event.
    pub fn new(target: Target<'_, 'c>) -> EventTarget<'c> {
        EventTarget {
            pid: target.pid().map(|pid| pid.0),
            tid: target.tid().map(|tid| tid.0),
            process: ProcessFacts::of_trace(target.process()),
            thread: ThreadFacts::of_trace(target.thread_start()),
        }
    }

    /// The target of a finding.
    pub fn reported(target: &'c ProcessReport) -> EventTarget<'c> {
        EventTarget {
            pid: target.pid,
            tid: target.tid,
            process: Facts::reported(&target.facts),
            thread: Facts::reported(&target.thread),
        }
    }
}
