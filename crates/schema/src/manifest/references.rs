//! Resolves the references between the parts of a manifest.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use stackhound_types::Guid;

use super::document::{
    ChannelElement, DataElement, EventElement, MapElement, NamedElement, ProviderElement, StringTable,
    Template,
};
use crate::model::{Count, Field, InType, Length, Map, MapKind, OutType, Schema, SchemaSource};
use crate::naming::event_name;
use crate::provider::{
    EventDescription, Named, OpcodeDescription, ProviderDescription, channel_number, keyword_mask,
    level_number, opcode_number,
};
use crate::tdh::{in_type_number, out_type_number};

/// The number that the message compiler assigns to the first channel without a number.
const FIRST_CHANNEL: u8 = 16;

/// All texts by id. The requested culture takes precedence.
pub struct Strings<'a>(HashMap<&'a str, &'a str>);

impl<'a> Strings<'a> {
    pub fn of(tables: &'a [StringTable], culture: Option<&str>) -> Strings<'a> {
        let rank = |table: &&StringTable| {
            let is = |culture: &str| table.culture.eq_ignore_ascii_case(culture);
            if culture.is_some_and(is) { 0 } else { 1 + u8::from(!is("en-US")) }
        };
        let mut tables: Vec<&StringTable> = tables.iter().collect();
        tables.sort_by_key(rank);
        let mut strings = HashMap::new();
        for (id, text) in tables.iter().flat_map(|table| &table.strings) {
            strings.entry(id.as_str()).or_insert(text.as_str());
        }
        Strings(strings)
    }

    /// A text, or the text that it refers to.
    fn text(&self, text: &'a str) -> &'a str {
        let id = text.trim().strip_prefix("$(string.").and_then(|rest| rest.strip_suffix(')'));
        id.and_then(|id| self.0.get(id).copied()).unwrap_or(text)
    }

    fn message(&self, text: &'a str) -> Option<Box<str>> {
        let text = self.text(text);
        if text.is_empty() { None } else { Some(text.into()) }
    }
}

/// The parts of a provider, by the names that are used to refer to them.
pub struct References<'a> {
    strings: &'a Strings<'a>,
    templates: HashMap<&'a str, &'a Template>,
    maps: HashMap<&'a str, Arc<Map>>,
    channels: HashMap<&'a str, u8>,
    levels: HashMap<&'a str, u8>,
    tasks: HashMap<&'a str, u16>,
    /// By the number of the task too, if the opcode belongs to a task.
    opcodes: HashMap<(Option<u16>, &'a str), u8>,
    keywords: HashMap<&'a str, u64>,
}

impl<'a> References<'a> {
    /// Resolves a whole provider and subtracts its memory use from the budget; `None` if the budget
    /// is exceeded.
    pub fn describe(
        element: &'a ProviderElement,
        guid: Guid,
        strings: &'a Strings<'a>,
        budget: &mut usize,
    ) -> Option<ProviderDescription> {
        let named = |element: &'a NamedElement| strings.named(element);
        let mut provider = ProviderDescription {
            guid,
            name: element.name.as_str().into(),
            message: strings.message(&element.message),
            resource_file: boxed(&element.resource_file),
            message_file: boxed(&element.message_file),
            parameter_file: boxed(&element.parameter_file),
            levels: element.levels.iter().filter_map(named).collect(),
            tasks: element.tasks.iter().filter_map(|task| strings.named(task)).collect(),
            keywords: element.keywords.iter().filter_map(|keyword| strings.named(keyword)).collect(),
            maps: element.maps.iter().map(|map| Arc::new(strings.map(map))).collect(),
            ..ProviderDescription::default()
        };
        for opcode in &element.opcodes {
            let task = opcode.task.and_then(|task| number(&element.tasks[task].value));
            let named = strings.named(&opcode.named);
            provider.opcodes.extend(named.map(|named| OpcodeDescription { task, named }));
        }
        let mut references = References {
            strings,
            templates: element.templates.iter().map(|template| (template.id.as_str(), template)).collect(),
            maps: element
                .maps
                .iter()
                .map(|map| map.name.as_str())
                .zip(provider.maps.iter().cloned())
                .collect(),
            channels: HashMap::new(),
            levels: numbers(&element.levels),
            tasks: numbers(&element.tasks),
            opcodes: HashMap::new(),
            keywords: numbers(&element.keywords),
        };
        for opcode in &element.opcodes {
            let task = opcode.task.and_then(|task| number(&element.tasks[task].value));
            let value = number(&opcode.named.value);
            references.opcodes.extend(value.map(|value| ((task, opcode.named.name.as_str()), value)));
        }
        provider.channels = references.channels(&element.channels);
        *budget = budget.checked_sub(provider.approximate_bytes())?;
        for event in &element.events {
            match references.event(event, &provider) {
                Some(event) => {
                    *budget = budget.checked_sub(event.schema.approximate_bytes())?;
                    provider.events.push(event);
                }
                None => provider.skipped += 1,
            }
        }
        Some(provider)
    }

    /// The channels with their numbers. Channels without a number are numbered as the message
    /// compiler does.
    fn channels(&mut self, elements: &'a [ChannelElement]) -> Vec<Named<u8>> {
        let mut next = FIRST_CHANNEL;
        let mut channels = Vec::new();
        for ChannelElement { id, named } in elements {
            let value = number(&named.value).or_else(|| channel_number(&named.name)).unwrap_or_else(|| {
                let value = next;
                next = next.saturating_add(1);
                value
            });
            self.channels.extend([(id.as_str(), value), (named.name.as_str(), value)]);
            let message = self.strings.message(&named.message);
            channels.push(Named { value, name: named.name.as_str().into(), message });
        }
        channels
    }

    /// `None` if the event's id or version is invalid, or if its template or a type is unknown.
    fn event(&self, element: &'a EventElement, provider: &ProviderDescription) -> Option<EventDescription> {
        let id = number(&element.value)?;
        let version = if element.version.is_empty() { 0 } else { number(&element.version)? };
        let task = resolve(&element.task, |name| self.tasks.get(name).copied());
        let opcode = resolve(&element.opcode, |name| {
            let own = self.opcodes.get(&(task, name)).or_else(|| self.opcodes.get(&(None, name)));
            own.copied().or_else(|| opcode_number(name))
        });
        let level =
            resolve(&element.level, |name| self.levels.get(name).copied().or_else(|| level_number(name)));
        let channel = resolve(&element.channel, |name| {
            self.channels.get(name).copied().or_else(|| channel_number(name))
        });
        let keywords = element.keywords.split_whitespace().try_fold(0, |mask, name| {
            let known = self.keywords.get(name).copied().or_else(|| keyword_mask(name));
            Some(mask | known.or_else(|| number(name))?)
        });
        let fields = match &*element.template {
            "" => Vec::new(),
            template => self.fields(self.templates.get(template)?)?,
        };
        let schema = Schema {
            source: SchemaSource::Manifest,
            provider: provider.guid,
            event_name: name(element, id, task, opcode, provider).into(),
            message: self.strings.message(&element.message),
            fields,
        };
        Some(EventDescription {
            id,
            version,
            channel,
            level,
            opcode,
            task,
            keywords,
            symbol: boxed(&element.symbol),
            schema: Arc::new(schema),
        })
    }

    fn fields(&self, template: &Template) -> Option<Vec<Field>> {
        // The index of the last field with each name.
        let mut field_indices = HashMap::new();
        let mut fields = Vec::with_capacity(template.data.len());
        for data in &template.data {
            fields.push(self.field(data, &field_indices)?);
            field_indices.insert(data.name.as_str(), u16::try_from(fields.len() - 1).ok()?);
        }
        Some(fields)
    }

    fn field(&self, data: &DataElement, field_indices: &HashMap<&str, u16>) -> Option<Field> {
        let out_type = out_type_number(&data.out_type).map_or(OutType::Default, OutType::from_tdh);
        let in_type = match data.members {
            Some(members) => InType::Struct { members },
            None => InType::from_tdh(in_type_number(&data.in_type)?, out_type)?,
        };
        let count = match (data.count.as_str(), data.count.parse()) {
            ("", _) => Count::One,
            (_, Ok(count)) => Count::Fixed(count),
            (name, Err(_)) => Count::Field(*field_indices.get(name)?),
        };
        let length = match (data.length.as_str(), data.length.parse()) {
            _ if !in_type.takes_length() => Length::Natural,
            ("", _) if out_type == OutType::Ipv6 => Length::Fixed(16),
            ("", _) => Length::Natural,
            (_, Ok(length)) => Length::Fixed(length),
            (name, Err(_)) => Length::Field(*field_indices.get(name)?),
        };
        let map = self.maps.get(data.map.as_str()).cloned();
        Some(Field { out_type, count, length, map, ..Field::new(data.name.as_str(), in_type) })
    }
}

impl<'a> Strings<'a> {
    fn named<V: TryFrom<u64>>(&self, element: &'a NamedElement) -> Option<Named<V>> {
        let message = self.message(&element.message);
        Some(Named { value: number(&element.value)?, name: element.name.as_str().into(), message })
    }

    fn map(&self, map: &'a MapElement) -> Map {
        let entries = map
            .entries
            .iter()
            .filter_map(|(value, message)| Some((number(value)?, self.text(message).trim_end().into())));
        Map {
            name: map.name.as_str().into(),
            kind: if map.is_bit_map { MapKind::Bits } else { MapKind::Values },
            entries: entries.collect(),
        }
    }
}

/// The name from task and opcode, otherwise the symbol or the id. Dumps of providers have numbers
/// instead of names.
fn name(
    element: &EventElement,
    id: u16,
    task: Option<u16>,
    opcode: Option<u8>,
    provider: &ProviderDescription,
) -> String {
    let task_name = match number::<u16>(&element.task) {
        Some(number) => provider.task_name(number).unwrap_or_default(),
        None => &element.task,
    };
    let opcode_name = match number::<u8>(&element.opcode) {
        Some(_) => provider.opcode_name(task.unwrap_or(0), opcode.unwrap_or(0)).unwrap_or_default(),
        None => &element.opcode,
    };
    // For events without task and opcode, which are rare, the symbol describes the event.
    match event_name(task_name, opcode_name) {
        name if !name.is_empty() => name,
        _ if !element.symbol.is_empty() => element.symbol.clone(),
        _ => format!("EventID({id})"),
    }
}

/// Resolves a reference by name or by number. An empty reference is zero; an unknown name is
/// `None`.
fn resolve<V: TryFrom<u64> + Default>(text: &str, known: impl FnOnce(&str) -> Option<V>) -> Option<V> {
    let text = text.trim();
    if text.is_empty() { Some(V::default()) } else { known(text).or_else(|| number(text)) }
}

fn numbers<V: TryFrom<u64>>(elements: &[NamedElement]) -> HashMap<&str, V> {
    elements.iter().filter_map(|element| Some((element.name.as_str(), number(&element.value)?))).collect()
}

/// Parses a decimal or hexadecimal number.
fn number<V: TryFrom<u64>>(text: &str) -> Option<V> {
    let text = text.trim();
    let value = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => u64::from_str(text),
    };
    V::try_from(value.ok()?).ok()
}

fn boxed(text: &str) -> Option<Box<str>> {
    if text.is_empty() { None } else { Some(text.into()) }
}
