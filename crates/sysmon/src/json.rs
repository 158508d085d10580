//! Sysmon events in JSON: maps the names of log shippers to fields, and writes rows.
//!
//! Supported are documents of Winlogbeat (`winlog.event_data.X`, also with the fields that the
//! Elastic Common Schema moves elsewhere), flat objects of NXLog and Velociraptor (`EventID`,
//! `CallTrace`, … at the top level), output of `evtx_dump` and Chainsaw (`Event.EventData.X`),
//! exports of Sentinel (`EventData` as a text of JSON or XML), Wazuh (`data.win.eventdata.x`) and
//! Splunk (`result.X`), and rows with `event_id`, `calltrace` and `count`. Names can also be joined
//! by dots.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::LazyLock;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::field::{FIELD_COUNT, FIELDS, Field, capitalized};
use crate::time;

mod write;

pub use write::{flat, winlogbeat};

/// A part of a document.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum DocumentPart {
    Root,
    Winlog,
    Event,
    System,
    /// Attributes of an element of [`DocumentPart::System`], in a separate object.
    Provider,
    Data,
    /// Part of a Wazuh document, whose names begin with lower-case letters.
    Wazuh,
    WazuhSystem,
    WazuhData,
    /// Part of the Elastic Common Schema with this path.
    Ecs(&'static str),
}

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Into(DocumentPart),
    Field(Field),
    Nothing,
}

/// The meanings of the names of all fields in the parts of documents that have them.
static STEPS: LazyLock<HashMap<(DocumentPart, &str), Step, RandomState>> = LazyLock::new(|| {
    let mut steps = HashMap::default();
    for names in &FIELDS {
        let Some(field) = names.field else { continue };
        for path in names.ecs.iter().chain(names.row_ecs) {
            let (mut path, mut step) = (*path, Step::Field(field));
            while let Some((outer, name)) = path.rsplit_once('.') {
                let part = DocumentPart::Ecs(outer);
                steps.insert((part, name), step);
                (path, step) = (outer, Step::Into(part));
            }
            steps.insert((DocumentPart::Root, path), step);
        }
        // A path with the same outer name has precedence.
        let mut add = |parts: &[DocumentPart], names: &[&'static str]| {
            for name in names {
                for part in parts {
                    steps.entry((*part, *name)).or_insert(Step::Field(field));
                }
            }
        };
        add(&[DocumentPart::Root, DocumentPart::Winlog, DocumentPart::System], names.header);
        add(&[DocumentPart::Root], names.top);
        add(&[DocumentPart::Root, DocumentPart::Data], names.data);
    }
    steps
});

impl DocumentPart {
    /// The meaning of a name in this part.
    fn step(self, name: &str) -> Step {
        use Step::Into;
        match (self, name) {
            (DocumentPart::Root, "winlog") => Into(DocumentPart::Winlog),
            (DocumentPart::Root, "Event") => Into(DocumentPart::Event),
            (DocumentPart::Root, "win") => Into(DocumentPart::Wazuh),
            // Wrappers of Elastic, Chainsaw, Wazuh and Splunk.
            (DocumentPart::Root, "_source" | "document" | "data" | "result") => Into(DocumentPart::Root),
            // Files and images have the same names.
            (DocumentPart::Root, "file") => Into(DocumentPart::Ecs("dll")),
            (DocumentPart::Root | DocumentPart::Winlog, "event_data")
            | (DocumentPart::Root | DocumentPart::Event, "EventData") => Into(DocumentPart::Data),
            (DocumentPart::Root | DocumentPart::Event, "System") => Into(DocumentPart::System),
            (DocumentPart::System, "Provider" | "Provider_attributes")
            | (DocumentPart::Provider, "#attributes") => Into(DocumentPart::Provider),
            (DocumentPart::Provider, "Name") => Step::Field(Field::Provider),
            (DocumentPart::Wazuh, "system") => Into(DocumentPart::WazuhSystem),
            (DocumentPart::Wazuh, "eventdata") => Into(DocumentPart::WazuhData),
            (DocumentPart::WazuhSystem, "systemTime") => Step::Field(Field::Timestamp),
            (DocumentPart::WazuhSystem, _) => DocumentPart::System.field_step(&capitalized(name)),
            (DocumentPart::WazuhData, _) => DocumentPart::Data.field_step(&capitalized(name)),
            _ => self.field_step(name),
        }
    }

    /// The meaning of a name in the table of fields.
    fn field_step(self, name: &str) -> Step {
        STEPS.get(&(self, name)).copied().unwrap_or(Step::Nothing)
    }
}

/// The fields of one event, as positions in the texts of their [`Reader`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    texts: [(u32, u32); FIELD_COUNT],
    given: u64,
    /// The time of the event in units of 100 ns since 1601, parsed once.
    pub(crate) time: Option<u64>,
}

impl Fields {
    const NONE: Fields = Fields { texts: [(0, 0); FIELD_COUNT], given: 0, time: None };

    /// The text of a field, empty if the field is missing. Numbers are decimal.
    pub(crate) fn text<'t>(&self, texts: &'t str, field: Field) -> &'t str {
        let (from, to) = self.texts[field as usize];
        if self.has(field) { &texts[from as usize..to as usize] } else { "" }
    }

    /// Whether a field is present.
    pub(crate) fn has(&self, field: Field) -> bool {
        self.given & (1 << field as u32) != 0
    }
}

/// A name of the last document with its meaning.
#[derive(Debug)]
struct KnownName {
    location: DocumentPart,
    name: String,
    step: Step,
}

/// The limit of remembered names.
const NAMES_MAX: usize = 256;

/// Reads documents. The texts of all their fields are concatenated, so that a document needs no
/// allocation of its own.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) texts: String,
    fields: Fields,
    with_stacks: bool,
    /// The names of a document in their order. Documents of a file have the same names in the same
    /// order, so that one comparison finds the meaning of a name.
    names: Vec<KnownName>,
    next_name: usize,
}

impl Reader {
    /// A reader of all events, or only of evidence: events with stacks are then errors, found
    /// without reading the rest of the document if it begins with their number.
    pub(crate) fn new(with_stacks: bool) -> Reader {
        Reader { texts: String::new(), fields: Fields::NONE, with_stacks, names: Vec::new(), next_name: 0 }
    }

    /// Whether the event is to be read, as far as its number is known.
    fn is_wanted(&self) -> bool {
        self.with_stacks || !matches!(self.fields.text(&self.texts, Field::EventId), "10" | "8")
    }

    /// Reads the fields of a JSON object. Their texts are appended to `texts`.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub(crate) fn read(&mut self, json: &[u8]) -> Result<Fields, serde_json::Error> {
        self.fields = Fields::NONE;
        self.next_name = 0;
        let mut reader = serde_json::Deserializer::from_slice(json);
        reader.deserialize_map(Value { reader: self, step: Step::Into(DocumentPart::Root) })?;
        reader.end()?;
        let mut fields = self.fields;
        let time = |field| time::parse(fields.text(&self.texts, field));
        fields.time = time(Field::Utc).or_else(|| time(Field::Timestamp));
        Ok(fields)
    }

    /// The meaning of a name, whose parts can be joined by dots.
    fn step(&mut self, location: DocumentPart, name: &str) -> Step {
        let at = self.next_name;
        self.next_name += 1;
        if let Some(known) = self.names.get(at)
            && known.location == location
            && *known.name == *name
        {
            return known.step;
        }
        let mut step = Step::Into(location);
        for part in name.split('.') {
            step = match step {
                Step::Into(location) => location.step(part),
                Step::Field(_) | Step::Nothing => Step::Nothing,
            };
        }
        if step == Step::Field(Field::CallTrace) && !self.with_stacks {
            step = Step::Nothing;
        }
        let count = self.names.len();
        match self.names.get_mut(at) {
            Some(known) => {
                (known.location, known.step) = (location, step);
                name.clone_into(&mut known.name);
            }
            None if at < NAMES_MAX && at == count => {
                self.names.push(KnownName { location, name: name.to_owned(), step });
            }
            None => {}
        }
        step
    }

    /// Adds the fields in elements such as `<Data Name="X">text</Data>`.
    fn read_xml(&mut self, xml: &str) {
        for element in xml.split("<Data ").skip(1) {
            let name = element.split_once("Name=").and_then(|(_, rest)| {
                let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
                rest[1..].split_once(quote)
            });
            let Some((name, rest)) = name else { continue };
            let text = rest.split_once('>').and_then(|(_, rest)| rest.split_once("</Data>"));
            if let (Step::Field(field), Some((text, _))) = (self.step(DocumentPart::Data, name), text) {
                self.set(field, unescaped(text));
            }
        }
    }

    /// Adds a field with the value that `write` appends.
    fn add<E>(&mut self, field: Field, write: impl FnOnce(&mut String) -> Result<(), E>) -> Result<(), E> {
        let from = self.texts.len();
        write(&mut self.texts)?;
        // Blocks of text are much smaller than 4 GiB.
        self.fields.texts[field as usize] = (from as u32, self.texts.len() as u32);
        self.fields.given |= 1 << field as u32;
        Ok(())
    }

    fn set(&mut self, field: Field, value: impl fmt::Display) {
        // Writing to a string cannot fail.
        let _ = self.add(field, |texts| write!(texts, "{value}"));
    }

    /// Adds a field with a JSON value.
    fn set_json(&mut self, field: Field, json: &str) -> Result<(), serde_json::Error> {
        if let Some(text) = json.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            return self.add(field, |texts| push_unescaped(texts, json, text));
        }
        if json.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.add(field, |texts| {
                texts.push_str(json);
                Ok(())
            });
        }
        serde_json::Deserializer::from_str(json)
            .deserialize_any(Value { reader: self, step: Step::Field(field) })
    }
}

/// Appends the text of a JSON string, which is given with and without its quotes.
fn push_unescaped(texts: &mut String, json: &str, mut text: &str) -> Result<(), serde_json::Error> {
    let start = texts.len();
    while let Some(at) = memchr::memchr(b'\\', text.as_bytes()) {
        let (before, escape) = text.split_at(at);
        let escaped = match escape.as_bytes().get(1) {
            Some(b'\\') => '\\',
            Some(b'"') => '"',
            Some(b'/') => '/',
            _ => {
                // Paths contain only the escapes above.
                let all: Cow<'_, str> = serde_json::from_str(json)?;
                texts.truncate(start);
                texts.push_str(&all);
                return Ok(());
            }
        };
        texts.push_str(before);
        texts.push(escaped);
        text = &escape[2..];
    }
    texts.push_str(text);
    Ok(())
}

/// Replaces the escapes of an XML text. `&amp;` is last, because its replacement can begin another
/// escape.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return text.into();
    }
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    escapes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)).into()
}

/// A value of a document with its meaning. The value of a field is a text or number, the first item
/// of a list, or the text of an XML element with attributes (`#text`, in rows of Velociraptor
/// `Value`). Values in place of an object are ignored.
struct Value<'r> {
    reader: &'r mut Reader,
    step: Step,
}

impl Value<'_> {
    fn set<E>(self, value: impl fmt::Display) -> Result<(), E> {
        if let Step::Field(field) = self.step {
            self.reader.set(field, value);
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one object per line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Value { reader, step: outer } = self;
        while let Some(name) = map.next_key::<Name<'de>>()? {
            let step = match outer {
                Step::Into(part) => reader.step(part, &name.0),
                Step::Field(_) if matches!(&*name.0, "#text" | "Value") => outer,
                Step::Field(_) | Step::Nothing => Step::Nothing,
            };
            match step {
                Step::Field(field) => {
                    let value: &RawValue = map.next_value()?;
                    reader.set_json(field, value.get()).map_err(A::Error::custom)?;
                    if field == Field::EventId && !reader.is_wanted() {
                        return Err(A::Error::custom("not evidence"));
                    }
                }
                Step::Into(_) => map.next_value_seed(Value { reader, step })?,
                Step::Nothing => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.step {
            Step::Into(DocumentPart::Ecs("host")) => self.reader.set(Field::Collector, text),
            Step::Into(DocumentPart::Provider) => self.reader.set(Field::Provider, text),
            // Tables without columns for the data contain it as one text.
            Step::Into(DocumentPart::Data) if text.trim_start().starts_with('{') => {
                let mut input = serde_json::Deserializer::from_str(text);
                input.deserialize_map(self).map_err(E::custom)?;
            }
            Step::Into(DocumentPart::Data) => self.reader.read_xml(text),
            _ => self.set(text)?,
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if let Step::Field(_) = self.step {
            list.next_element_seed(self)?;
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.set(value)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.set(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.set(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.set(number)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
