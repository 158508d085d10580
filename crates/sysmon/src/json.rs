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

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::time;

mod write;

pub use write::{flat, winlogbeat};

/// A field of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    EventId,
    Provider,
    Channel,
    Host,
    /// The machine that collected the event, which can differ from its source.
    Collector,
    Utc,
    Timestamp,
    Count,
    Image,
    Pid,
    Tid,
    ProcessGuid,
    CommandLine,
    ParentPid,
    User,
    Integrity,
    TargetImage,
    TargetPid,
    Access,
    CallTrace,
    NewThread,
    StartAddress,
    StartModule,
    StartFunction,
    ImageLoaded,
    Hashes,
    Signed,
    Signature,
    SignatureStatus,
    OriginalFileName,
    Company,
    Product,
    Description,
    FileVersion,
    CreatedFile,
    Tampering,
    /// A column of this name, which tables also have for other purposes.
    TamperingColumn,
}

const FIELDS: usize = Field::TamperingColumn as usize + 1;

impl Field {
    fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// A part of a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Part of the Elastic Common Schema.
    EcsEvent,
    Host,
    Process,
    Thread,
    Parent,
    File,
    FileHash,
    FileSignature,
    FileVersion,
    User,
}

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Into(DocumentPart),
    Field(Field),
    Nothing,
}

impl DocumentPart {
    /// The meaning of a name in this part.
    fn step(self, name: &str) -> Step {
        use Step::{Into, Nothing};
        let field = |field: Option<Field>| field.map_or(Nothing, Step::Field);
        match (self, name) {
            (DocumentPart::Root, "winlog") => Into(DocumentPart::Winlog),
            (DocumentPart::Root, "Event") => Into(DocumentPart::Event),
            (DocumentPart::Root, "event") => Into(DocumentPart::EcsEvent),
            (DocumentPart::Root, "process") => Into(DocumentPart::Process),
            (DocumentPart::Root, "file" | "dll") => Into(DocumentPart::File),
            (DocumentPart::Root, "user") => Into(DocumentPart::User),
            // Wrappers of Elastic, Chainsaw, Wazuh and Splunk.
            (DocumentPart::Root, "_source" | "document" | "data" | "result") => Into(DocumentPart::Root),
            (DocumentPart::Root, "win") => Into(DocumentPart::Wazuh),
            (DocumentPart::Wazuh, "system") => Into(DocumentPart::WazuhSystem),
            (DocumentPart::Wazuh, "eventdata") => Into(DocumentPart::WazuhData),
            (DocumentPart::WazuhSystem, "providerName") => Step::Field(Field::Provider),
            (DocumentPart::WazuhSystem, "eventID") => Step::Field(Field::EventId),
            (DocumentPart::WazuhSystem, "channel") => Step::Field(Field::Channel),
            (DocumentPart::WazuhSystem, "computer") => Step::Field(Field::Host),
            (DocumentPart::WazuhSystem, "systemTime") => Step::Field(Field::Timestamp),
            (DocumentPart::WazuhData, _) => field(capitalized(name).and_then(|name| data(&name))),
            // Names in the tables of collectors.
            (DocumentPart::Root, "Source" | "source") => Step::Field(Field::Channel),
            (DocumentPart::Root, "EventCode") => Step::Field(Field::EventId),
            (DocumentPart::Root, "TimeGenerated") => Step::Field(Field::Timestamp),
            // A name, or an object with one.
            (DocumentPart::Root, "host") => Into(DocumentPart::Host),
            (DocumentPart::Root | DocumentPart::Winlog, "event_data")
            | (DocumentPart::Event | DocumentPart::Root, "EventData") => Into(DocumentPart::Data),
            (DocumentPart::Event | DocumentPart::Root, "System") => Into(DocumentPart::System),
            (DocumentPart::Root, "Type") => Step::Field(Field::TamperingColumn),
            (DocumentPart::Root, _) => field(header(name).or_else(|| row(name)).or_else(|| data(name))),
            (DocumentPart::System, "Provider" | "Provider_attributes") => Into(DocumentPart::Provider),
            (DocumentPart::Winlog | DocumentPart::System, _) => field(header(name)),
            (DocumentPart::Provider, "Name") | (DocumentPart::EcsEvent, "provider") => {
                Step::Field(Field::Provider)
            }
            (DocumentPart::Provider, "#attributes") => Into(DocumentPart::Provider),
            (DocumentPart::Data, _) => field(data(name)),
            (DocumentPart::EcsEvent, "code") => Step::Field(Field::EventId),
            (DocumentPart::Host, "name" | "hostname") => Step::Field(Field::Collector),
            (DocumentPart::Process, "thread") => Into(DocumentPart::Thread),
            (DocumentPart::Process, "parent") => Into(DocumentPart::Parent),
            (DocumentPart::Process, "executable") => Step::Field(Field::Image),
            (DocumentPart::Process, "pid") => Step::Field(Field::Pid),
            (DocumentPart::Process, "entity_id") => Step::Field(Field::ProcessGuid),
            (DocumentPart::Process, "command_line") => Step::Field(Field::CommandLine),
            (DocumentPart::Thread, "id") => Step::Field(Field::Tid),
            (DocumentPart::Parent, "pid") => Step::Field(Field::ParentPid),
            (DocumentPart::File, "path") => Step::Field(Field::ImageLoaded),
            (DocumentPart::File, "hash") => Into(DocumentPart::FileHash),
            (DocumentPart::File, "pe") => Into(DocumentPart::FileVersion),
            (DocumentPart::FileVersion, "original_file_name") => Step::Field(Field::OriginalFileName),
            (DocumentPart::FileVersion, "company") => Step::Field(Field::Company),
            (DocumentPart::FileVersion, "product") => Step::Field(Field::Product),
            (DocumentPart::FileVersion, "description") => Step::Field(Field::Description),
            (DocumentPart::FileVersion, "file_version") => Step::Field(Field::FileVersion),
            (DocumentPart::File, "code_signature") => Into(DocumentPart::FileSignature),
            (DocumentPart::User, "name") => Step::Field(Field::User),
            (DocumentPart::FileHash, "sha256") => Step::Field(Field::Hashes),
            (DocumentPart::FileSignature, "signed") => Step::Field(Field::Signed),
            (DocumentPart::FileSignature, "subject_name") => Step::Field(Field::Signature),
            (DocumentPart::FileSignature, "status") => Step::Field(Field::SignatureStatus),
            _ => Nothing,
        }
    }
}

/// The name with its first letter in upper case.
fn capitalized(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    Some(format!("{}{}", first.to_ascii_uppercase(), &name[first.len_utf8()..]))
}

/// Names of fields that every event has.
fn header(name: &str) -> Option<Field> {
    Some(match name {
        "EventID" | "event_id" | "EventId" => Field::EventId,
        "Provider" | "provider_name" | "SourceName" | "source_name" | "ProviderName" => Field::Provider,
        "Channel" | "channel" | "log_name" | "LogName" => Field::Channel,
        "Computer" | "computer_name" | "Hostname" | "ComputerName" => Field::Host,
        "@timestamp" => Field::Timestamp,
        _ => return None,
    })
}

/// Names of fields in rows that represent several equal events.
fn row(name: &str) -> Option<Field> {
    Some(match name {
        "utc" => Field::Utc,
        "count" => Field::Count,
        "pid" => Field::Pid,
        "tid" => Field::Tid,
        "process_guid" => Field::ProcessGuid,
        "source_image" => Field::Image,
        "target_image" => Field::TargetImage,
        "target_pid" => Field::TargetPid,
        "granted_access" => Field::Access,
        "calltrace" => Field::CallTrace,
        "new_thread_id" => Field::NewThread,
        "start_address" => Field::StartAddress,
        "start_module" => Field::StartModule,
        "start_function" => Field::StartFunction,
        _ => return None,
    })
}

/// Sysmon's names of fields.
fn data(name: &str) -> Option<Field> {
    Some(match name {
        "UtcTime" => Field::Utc,
        "SourceImage" | "Image" => Field::Image,
        "SourceProcessId" | "ProcessId" => Field::Pid,
        "SourceThreadId" => Field::Tid,
        "SourceProcessGUID" | "SourceProcessGuid" | "ProcessGuid" => Field::ProcessGuid,
        "CommandLine" => Field::CommandLine,
        "ParentProcessId" => Field::ParentPid,
        "User" => Field::User,
        "IntegrityLevel" => Field::Integrity,
        "TargetFilename" => Field::CreatedFile,
        "Type" => Field::Tampering,
        "TargetImage" => Field::TargetImage,
        "TargetProcessId" => Field::TargetPid,
        "GrantedAccess" => Field::Access,
        "CallTrace" => Field::CallTrace,
        "NewThreadId" => Field::NewThread,
        "StartAddress" => Field::StartAddress,
        "StartModule" => Field::StartModule,
        "StartFunction" => Field::StartFunction,
        "ImageLoaded" => Field::ImageLoaded,
        "Hashes" => Field::Hashes,
        "Signed" => Field::Signed,
        "Signature" => Field::Signature,
        "SignatureStatus" => Field::SignatureStatus,
        "OriginalFileName" => Field::OriginalFileName,
        "Company" => Field::Company,
        "Product" => Field::Product,
        "Description" => Field::Description,
        "FileVersion" => Field::FileVersion,
        _ => return None,
    })
}

/// The fields of one event, as positions in the texts of their [`Reader`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    texts: [(u32, u32); FIELDS],
    given: u64,
    /// The time of the event in units of 100 ns since 1601, parsed once.
    pub(crate) time: Option<u64>,
}

impl Fields {
    const NONE: Fields = Fields { texts: [(0, 0); FIELDS], given: 0, time: None };

    /// The text of a field, empty if the field is missing. Numbers are decimal.
    pub(crate) fn text<'t>(&self, texts: &'t str, field: Field) -> &'t str {
        let (from, to) = self.texts[field as usize];
        if self.has(field) { &texts[from as usize..to as usize] } else { "" }
    }

    /// Whether a field is present.
    pub(crate) fn has(&self, field: Field) -> bool {
        self.given & field.bit() != 0
    }
}

/// A name of the last document with its meaning.
#[derive(Debug)]
struct KnownName {
    location: DocumentPart,
    name: Box<str>,
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
        reader.deserialize_map(Object { reader: self, location: DocumentPart::Root })?;
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
        let known = KnownName { location, name: name.into(), step };
        let count = self.names.len();
        match self.names.get_mut(at) {
            Some(replaced) => *replaced = known,
            None if at < NAMES_MAX && at == count => self.names.push(known),
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
            if let (Some(field), Some((text, _))) = (data(name), text) {
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
        self.fields.given |= field.bit();
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
        serde_json::Deserializer::from_str(json).deserialize_any(Value { reader: self, field })
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

/// An object of a document, whose names are mapped to fields.
struct Object<'r> {
    reader: &'r mut Reader,
    location: DocumentPart,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one object per line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'de>>()? {
            match self.reader.step(self.location, &name.0) {
                Step::Into(location) => map.next_value_seed(Object { reader: self.reader, location })?,
                Step::Field(field) => {
                    let value: &RawValue = map.next_value()?;
                    self.reader.set_json(field, value.get()).map_err(A::Error::custom)?;
                    if field == Field::EventId && !self.reader.is_wanted() {
                        return Err(A::Error::custom("not evidence"));
                    }
                }
                Step::Nothing => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.location {
            DocumentPart::Host => self.reader.set(Field::Collector, text),
            DocumentPart::Provider => self.reader.set(Field::Provider, text),
            // Tables without columns for the data contain it as one text.
            DocumentPart::Data if text.trim_start().starts_with('{') => {
                let mut input = serde_json::Deserializer::from_str(text);
                input.deserialize_map(self).map_err(E::custom)?;
            }
            DocumentPart::Data => self.reader.read_xml(text),
            _ => {}
        }
        Ok(())
    }

    // Other values in place of an object are ignored.

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The value of a field: a text or number, the first item of a list, or the text of an XML element
/// with attributes (`#text`, in rows of Velociraptor `Value`).
struct Value<'r> {
    reader: &'r mut Reader,
    field: Field,
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
        f.write_str("a text or number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.reader.set(self.field, text);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.reader.set(self.field, number);
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.reader.set(self.field, number);
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.reader.set(self.field, number);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.reader.set(self.field, if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let first = list.next_element_seed(Value { reader: self.reader, field: self.field })?;
        if first.is_some() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'de>>()? {
            match &*name.0 {
                "#text" | "Value" => map.next_value_seed(Value { reader: self.reader, field: self.field })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
