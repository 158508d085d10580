//! Reads the XML of a manifest into plain lists, without yet following any reference between them.
//!
//! The reader knows no document types and expands no entities but the five of XML itself. Elements are found by name
//! wherever they stand; only their order within templates and maps counts.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::decode::MAX_NESTING;
use crate::error::Error;

/// How many elements of interest a document may have. The largest manifests of Windows have a tenth of it.
const MAX_ELEMENTS: usize = 200_000;

/// Everything of interest in a manifest, as it is written.
#[derive(Debug, Default)]
pub struct Document {
    pub provider_name: String,
    pub provider_guid: String,
    /// Names and numbers.
    pub opcodes: Vec<(String, String)>,
    pub events: Vec<EventElement>,
    pub templates: Vec<Template>,
    pub maps: Vec<MapElement>,
    /// Ids and texts of the first language.
    pub strings: Vec<(String, String)>,
}

/// An `event` element. Attributes that are not there are empty.
#[derive(Debug, Default)]
pub struct EventElement {
    pub value: String,
    pub version: String,
    pub symbol: String,
    pub message: String,
    pub opcode: String,
    pub task: String,
    pub template: String,
}

/// A `template` element.
#[derive(Debug, Default)]
pub struct Template {
    pub id: String,
    /// In the form of a schema: structures before their members.
    pub data: Vec<DataElement>,
}

/// A `data` or `struct` element.
#[derive(Debug, Default)]
pub struct DataElement {
    pub name: String,
    pub in_type: String,
    pub out_type: String,
    pub count: String,
    pub length: String,
    pub map: String,
    /// The number of direct members, if it is a structure.
    pub members: Option<u16>,
}

/// A `valueMap` or `bitMap` element.
#[derive(Debug)]
pub struct MapElement {
    pub name: String,
    pub is_bit_map: bool,
    /// Numbers and messages.
    pub entries: Vec<(String, String)>,
}

impl Document {
    /// Reads the whole text.
    ///
    /// # Errors
    /// [`Error::Metadata`] where the text is not well-formed or has too many elements.
    pub fn parse(text: &str) -> Result<Document, Error> {
        let mut reader = Reader::from_str(text);
        let mut document = Document::default();
        let mut state = State::default();
        for _ in 0..MAX_ELEMENTS {
            // Comments, text, declarations and document types are passed over.
            let element = loop {
                match reader.read_event() {
                    Ok(Event::Start(element)) => break Some((element, true)),
                    Ok(Event::Empty(element)) => break Some((element, false)),
                    Ok(Event::End(element)) => state.leave(element.local_name().as_ref()),
                    Ok(Event::Eof) => break None,
                    Ok(_) => {}
                    Err(_) => return Err(error(&reader, "well-formed XML")),
                }
            };
            let Some((element, has_content)) = element else {
                return Ok(document);
            };
            if state.enter(&mut document, &element, has_content).is_none() {
                return Err(error(&reader, "well-formed elements, not too deeply nested"));
            }
        }
        Err(error(&reader, "fewer elements"))
    }
}

fn error(reader: &Reader<&[u8]>, expected: &'static str) -> Error {
    Error::Metadata { offset: usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX), expected }
}

/// Where in the document the reader is.
#[derive(Default)]
struct State {
    /// The structures that are open, as indices into the data of the last template.
    open_structs: Vec<usize>,
    in_template: bool,
    in_map: bool,
    /// Performance tracking repeats `event` elements elsewhere.
    in_events: bool,
    string_tables: usize,
}

impl State {
    /// Takes an element into the document. `None` if it is not well-formed.
    fn enter(&mut self, document: &mut Document, element: &BytesStart<'_>, has_content: bool) -> Option<()> {
        match element.local_name().as_ref() {
            "provider" => {
                let [name, guid] = attributes(element, ["name", "guid"])?;
                (document.provider_name, document.provider_guid) = (name, guid);
            }
            "opcode" => {
                let [name, value] = attributes(element, ["name", "value"])?;
                document.opcodes.push((name, value));
            }
            "events" => self.in_events = has_content,
            "event" if self.in_events => {
                let names = ["value", "version", "symbol", "message", "opcode", "task", "template"];
                let [value, version, symbol, message, opcode, task, template] = attributes(element, names)?;
                document.events.push(EventElement {
                    value,
                    version,
                    symbol,
                    message,
                    opcode,
                    task,
                    template,
                });
            }
            "template" => {
                let [id] = attributes(element, ["tid"])?;
                document.templates.push(Template { id, data: Vec::new() });
                self.open_structs.clear();
                self.in_template = has_content;
            }
            kind @ ("data" | "struct") if self.in_template => {
                let is_struct = kind == "struct";
                self.data(document, element, is_struct, has_content)?;
            }
            kind @ ("valueMap" | "bitMap") => {
                let [name] = attributes(element, ["name"])?;
                let is_bit_map = kind == "bitMap";
                document.maps.push(MapElement { name, is_bit_map, entries: Vec::new() });
                self.in_map = has_content;
            }
            "map" if self.in_map => {
                let [value, message] = attributes(element, ["value", "message"])?;
                document.maps.last_mut()?.entries.push((value, message));
            }
            "stringTable" => self.string_tables += 1,
            "string" if self.string_tables == 1 => {
                let [id, value] = attributes(element, ["id", "value"])?;
                document.strings.push((id, value));
            }
            _ => {}
        }
        Some(())
    }

    fn data(
        &mut self,
        document: &mut Document,
        element: &BytesStart<'_>,
        is_struct: bool,
        has_content: bool,
    ) -> Option<()> {
        let data = &mut document.templates.last_mut()?.data;
        if let Some(&open) = self.open_structs.last() {
            let members = data.get_mut(open)?.members.as_mut()?;
            *members = members.checked_add(1)?;
        }
        if is_struct && has_content {
            if self.open_structs.len() >= MAX_NESTING {
                return None;
            }
            self.open_structs.push(data.len());
        }
        let names = ["name", "inType", "outType", "count", "length", "map"];
        let [name, in_type, out_type, count, length, map] = attributes(element, names)?;
        let members = is_struct.then_some(0);
        data.push(DataElement { name, in_type, out_type, count, length, map, members });
        Some(())
    }

    fn leave(&mut self, name: &str) {
        match name {
            "struct" => drop(self.open_structs.pop()),
            "template" => self.in_template = false,
            "valueMap" | "bitMap" => self.in_map = false,
            "events" => self.in_events = false,
            _ => {}
        }
    }
}

/// The values of the named attributes, empty where an element lacks one. `None` if the element is not well-formed.
fn attributes<const N: usize>(element: &BytesStart<'_>, names: [&str; N]) -> Option<[String; N]> {
    let mut values = std::array::from_fn(|_| String::new());
    for attribute in element.attributes().with_checks(false) {
        let attribute = attribute.ok()?;
        let key = attribute.key.local_name();
        if let Some(index) = names.iter().position(|name| *name == key.as_ref()) {
            values[index] = attribute.normalized_value(XmlVersion::default()).ok()?.into_owned();
        }
    }
    Some(values)
}
