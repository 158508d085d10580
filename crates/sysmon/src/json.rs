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
}

const FIELDS: usize = Field::FileVersion as usize + 1;

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
}

/// The meaning of a name.
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

/// The fields of one event. Reused for the next event, so that reading does not allocate.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    texts: [String; FIELDS],
    given: u64,
}

impl Fields {
    /// The text of a field, empty if the field is missing. Numbers are decimal.
    pub(crate) fn text(&self, field: Field) -> &str {
        if self.has(field) { &self.texts[field as usize] } else { "" }
    }

    /// Whether a field is present.
    pub(crate) fn has(&self, field: Field) -> bool {
        self.given & 1 << field as u64 != 0
    }

    /// Replaces all fields by those of a JSON object.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub(crate) fn read(&mut self, json: &[u8]) -> Result<(), serde_json::Error> {
        self.given = 0;
        let mut reader = serde_json::Deserializer::from_slice(json);
        reader.deserialize_map(Object { fields: self, location: DocumentPart::Root })?;
        reader.end()
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
                self.set(field, &unescaped(text));
            }
        }
    }

    fn set(&mut self, field: Field, text: &str) {
        let slot = &mut self.texts[field as usize];
        slot.clear();
        slot.push_str(text);
        self.given |= 1 << field as u64;
    }

    fn set_number(&mut self, field: Field, number: impl fmt::Display) {
        self.set(field, "");
        // Writing to a string cannot fail.
        let _ = write!(self.texts[field as usize], "{number}");
    }
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
struct Object<'f> {
    fields: &'f mut Fields,
    location: DocumentPart,
}

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one object per line")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'de>>()? {
            let mut step = Step::Into(self.location);
            for part in name.0.split('.') {
                step = match step {
                    Step::Into(location) => location.step(part),
                    Step::Field(_) | Step::Nothing => Step::Nothing,
                };
            }
            match step {
                Step::Into(location) => map.next_value_seed(Object { fields: self.fields, location })?,
                Step::Field(field) => map.next_value_seed(Value { fields: self.fields, field })?,
                Step::Nothing => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.location {
            DocumentPart::Host => self.fields.set(Field::Collector, text),
            DocumentPart::Provider => self.fields.set(Field::Provider, text),
            // Tables without columns for the data contain it as one text.
            DocumentPart::Data if text.trim_start().starts_with('{') => {
                let mut reader = serde_json::Deserializer::from_str(text);
                reader.deserialize_map(self).map_err(E::custom)?;
            }
            DocumentPart::Data => self.fields.read_xml(text),
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
struct Value<'f> {
    fields: &'f mut Fields,
    field: Field,
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.fields.set(self.field, text);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.fields.set_number(self.field, number);
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.fields.set_number(self.field, number);
        Ok(())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.fields.set_number(self.field, number);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.fields.set(self.field, if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let first = list.next_element_seed(Value { fields: self.fields, field: self.field })?;
        if first.is_some() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'de>>()? {
            match &*name.0 {
                "#text" | "Value" => map.next_value_seed(Value { fields: self.fields, field: self.field })?,
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
