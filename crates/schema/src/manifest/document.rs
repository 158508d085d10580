//! Reads the XML of a manifest into plain lists, without resolving references between them.
//!
//! The reader ignores document types and expands only the five predefined entities of XML. Elements
//! are found by name anywhere in a provider; only their order within templates and maps matters,
//! and whether opcodes are inside a task.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::error::Error;
use crate::limits::MAX_NESTING;

/// The maximum number of elements in a document. The largest manifests of Windows have a tenth of
/// it.
const MAX_ELEMENTS: usize = 200_000;

/// The relevant content of a manifest, unresolved.
#[derive(Debug, Default)]
pub struct Document {
    /// Only providers with a GUID attribute, whether or not it is valid.
    pub providers: Vec<ProviderElement>,
    pub tables: Vec<StringTable>,
}

/// A `provider` element. Missing attributes are empty, here and in the other elements.
#[derive(Debug, Default)]
pub struct ProviderElement {
    pub name: String,
    pub guid: String,
    pub message: String,
    pub resource_file: String,
    pub message_file: String,
    pub parameter_file: String,
    pub channels: Vec<ChannelElement>,
    pub levels: Vec<NamedElement>,
    pub tasks: Vec<NamedElement>,
    pub opcodes: Vec<OpcodeElement>,
    pub keywords: Vec<NamedElement>,
    pub events: Vec<EventElement>,
    pub templates: Vec<Template>,
    pub maps: Vec<MapElement>,
}

/// A `level`, `task` or `keyword` element.
#[derive(Debug, Default)]
pub struct NamedElement {
    pub name: String,
    /// The value, or the mask of a keyword.
    pub value: String,
    pub message: String,
}

/// A `channel` or `importChannel` element.
#[derive(Debug, Default)]
pub struct ChannelElement {
    /// The id by which events refer to it, if not by its name.
    pub id: String,
    pub named: NamedElement,
}

/// An `opcode` element.
#[derive(Debug, Default)]
pub struct OpcodeElement {
    /// The task that contains it, as an index into the provider's tasks.
    pub task: Option<usize>,
    pub named: NamedElement,
}

/// An `event` element.
#[derive(Debug, Default)]
pub struct EventElement {
    pub value: String,
    pub version: String,
    pub symbol: String,
    pub message: String,
    pub channel: String,
    pub level: String,
    pub opcode: String,
    pub task: String,
    /// Names separated by white space.
    pub keywords: String,
    pub template: String,
}

/// A `template` element.
#[derive(Debug, Default)]
pub struct Template {
    pub id: String,
    /// In the form of a schema: structures precede their members.
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
    /// The number of direct members of a structure; `None` for other fields.
    pub members: Option<u16>,
}

/// A `valueMap` or `bitMap` element.
#[derive(Debug)]
pub struct MapElement {
    pub name: String,
    pub is_bit_map: bool,
    /// Values and messages.
    pub entries: Vec<(String, String)>,
}

/// A `stringTable` element.
#[derive(Debug)]
pub struct StringTable {
    /// The culture of the enclosing `resources` element.
    pub culture: String,
    /// Ids and texts.
    pub strings: Vec<(String, String)>,
}

impl Document {
    /// Reads a whole document.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the text is not well-formed or has too many elements.
    pub fn parse(text: &str) -> Result<Document, Error> {
        let mut reader = Reader::from_str(text);
        let mut document = Document::default();
        let mut state = State::default();
        for _ in 0..MAX_ELEMENTS {
            // Comments, text, declarations and document types are skipped.
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
                return Err(error(
                    &reader,
                    "well-formed elements with at most 8 levels of nested structures",
                ));
            }
        }
        Err(error(&reader, "at most 200000 elements"))
    }
}

fn error(reader: &Reader<&[u8]>, expected: &'static str) -> Error {
    Error::Metadata { offset: usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX), expected }
}

/// The position of the reader in the document.
#[derive(Default)]
struct State {
    in_provider: bool,
    /// The enclosing task, as an index into the provider's tasks.
    open_task: Option<usize>,
    /// The enclosing structures, as indices into the data of the last template.
    open_structs: Vec<usize>,
    in_template: bool,
    in_map: bool,
    /// Set because `event` elements also occur in performance tracking.
    in_events: bool,
    culture: String,
}

impl State {
    /// Adds an element to the document. `None` if it is not well-formed or is nested too deeply.
    fn enter(&mut self, document: &mut Document, element: &BytesStart<'_>, has_content: bool) -> Option<()> {
        match element.local_name().as_ref() {
            "provider" => self.provider(document, element, has_content)?,
            "resources" => [self.culture] = attributes(element, ["culture"])?,
            "stringTable" => {
                document.tables.push(StringTable { culture: self.culture.clone(), strings: Vec::new() });
            }
            "string" => {
                if let Some(table) = document.tables.last_mut() {
                    let [id, value] = attributes(element, ["id", "value"])?;
                    table.strings.push((id, value));
                }
            }
            kind if self.in_provider => {
                self.in_provider(document.providers.last_mut()?, kind, element, has_content)?;
            }
            _ => {}
        }
        Some(())
    }

    fn provider(
        &mut self,
        document: &mut Document,
        element: &BytesStart<'_>,
        has_content: bool,
    ) -> Option<()> {
        let names = ["name", "guid", "message", "resourceFileName", "messageFileName", "parameterFileName"];
        let [name, guid, message, resource_file, message_file, parameter_file] = attributes(element, names)?;
        // Counters also have `provider` elements, but without a GUID.
        if guid.is_empty() {
            return Some(());
        }
        document.providers.push(ProviderElement {
            name,
            guid,
            message,
            resource_file,
            message_file,
            parameter_file,
            ..ProviderElement::default()
        });
        self.in_provider = has_content;
        (self.in_events, self.in_template, self.in_map, self.open_task) = (false, false, false, None);
        Some(())
    }

    fn in_provider(
        &mut self,
        provider: &mut ProviderElement,
        kind: &str,
        element: &BytesStart<'_>,
        has_content: bool,
    ) -> Option<()> {
        match kind {
            "channel" | "importChannel" => {
                let [id] = attributes(element, ["chid"])?;
                provider.channels.push(ChannelElement { id, named: named(element, "value")? });
            }
            "level" => provider.levels.push(named(element, "value")?),
            "keyword" => provider.keywords.push(named(element, "mask")?),
            "task" => {
                self.open_task = has_content.then_some(provider.tasks.len());
                provider.tasks.push(named(element, "value")?);
            }
            "opcode" => {
                provider
                    .opcodes
                    .push(OpcodeElement { task: self.open_task, named: named(element, "value")? });
            }
            "events" => self.in_events = has_content,
            "event" if self.in_events => provider.events.push(event(element)?),
            "template" => {
                let [id] = attributes(element, ["tid"])?;
                provider.templates.push(Template { id, data: Vec::new() });
                self.open_structs.clear();
                self.in_template = has_content;
            }
            "data" | "struct" if self.in_template => {
                self.data(&mut provider.templates.last_mut()?.data, element, kind == "struct", has_content)?;
            }
            "valueMap" | "bitMap" => {
                let [name] = attributes(element, ["name"])?;
                provider.maps.push(MapElement { name, is_bit_map: kind == "bitMap", entries: Vec::new() });
                self.in_map = has_content;
            }
            "map" if self.in_map => {
                let [value, message] = attributes(element, ["value", "message"])?;
                provider.maps.last_mut()?.entries.push((value, message));
            }
            _ => {}
        }
        Some(())
    }

    fn data(
        &mut self,
        data: &mut Vec<DataElement>,
        element: &BytesStart<'_>,
        is_struct: bool,
        has_content: bool,
    ) -> Option<()> {
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
            "provider" => self.in_provider = false,
            "task" => self.open_task = None,
            "struct" => drop(self.open_structs.pop()),
            "template" => self.in_template = false,
            "valueMap" | "bitMap" => self.in_map = false,
            "events" => self.in_events = false,
            _ => {}
        }
    }
}

fn named(element: &BytesStart<'_>, value: &str) -> Option<NamedElement> {
    let [name, value, message] = attributes(element, ["name", value, "message"])?;
    Some(NamedElement { name, value, message })
}

fn event(element: &BytesStart<'_>) -> Option<EventElement> {
    let names = [
        "value", "version", "symbol", "message", "channel", "level", "opcode", "task", "keywords", "template",
    ];
    let [value, version, symbol, message, channel, level, opcode, task, keywords, template] =
        attributes(element, names)?;
    Some(EventElement { value, version, symbol, message, channel, level, opcode, task, keywords, template })
}

/// The values of the named attributes; a missing attribute is empty. `None` if the element is not
/// well-formed.
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
