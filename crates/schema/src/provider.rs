//! Descriptions of providers: their events, and the names of their levels, tasks, opcodes and
//! keywords.
//!
//! XML manifests, templates in image files, descriptions in traces and the built-in tables are all
//! converted to this form. Numbers that a source does not contain are `None`, so that level 0
//! differs from an unknown level.

mod standard;

use std::fmt::Write;
use std::sync::Arc;

use stackhound_types::Guid;

use crate::model::{Map, Schema};

/// A number with a name and an optional text for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<V> {
    /// The number, or the mask of a keyword.
    pub value: V,
    /// The name in the spelling of the source.
    pub name: Box<str>,
    /// The text for display.
    pub message: Option<Box<str>>,
}

/// An opcode of one task or of all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpcodeDescription {
    /// The task that the opcode is limited to; `None` for all tasks of the provider.
    pub task: Option<u16>,
    /// Number and name.
    pub named: Named<u8>,
}

/// One kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDescription {
    /// The id in the event descriptor.
    pub id: u16,
    /// The version in the event descriptor.
    pub version: u8,
    /// The channel; 0 means none.
    pub channel: Option<u8>,
    /// The level, from 1 (critical) to 5 (verbose).
    pub level: Option<u8>,
    /// The opcode.
    pub opcode: Option<u8>,
    /// The task; 0 means none.
    pub task: Option<u16>,
    /// The keyword bits.
    pub keywords: Option<u64>,
    /// The symbolic name of the event for programs.
    pub symbol: Option<Box<str>>,
    /// The name, message and fields.
    pub schema: Arc<Schema>,
}

impl EventDescription {
    /// The description of an event with only its number and its schema.
    pub(crate) fn new(id: u16, version: u8, schema: Arc<Schema>) -> EventDescription {
        EventDescription {
            id,
            version,
            channel: None,
            level: None,
            opcode: None,
            task: None,
            keywords: None,
            symbol: None,
            schema,
        }
    }
}

/// A provider and its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderDescription {
    /// The GUID of the provider.
    pub guid: Guid,
    /// The name. Empty if the source does not contain it.
    pub name: Box<str>,
    /// The name for display.
    pub message: Option<Box<str>>,
    /// The image with the templates, as named in the manifest.
    pub resource_file: Option<Box<str>>,
    /// The image with the texts.
    pub message_file: Option<Box<str>>,
    /// The image with the texts of parameters.
    pub parameter_file: Option<Box<str>>,
    /// Channels by their number in event descriptors.
    pub channels: Vec<Named<u8>>,
    /// The provider's own levels. In images, also the standard levels that it uses.
    pub levels: Vec<Named<u8>>,
    /// Tasks.
    pub tasks: Vec<Named<u16>>,
    /// Opcodes, as for levels.
    pub opcodes: Vec<OpcodeDescription>,
    /// Keywords by mask, as for levels.
    pub keywords: Vec<Named<u64>>,
    /// Names of values and bits.
    pub maps: Vec<Arc<Map>>,
    /// The events that could be read, in the order of the source.
    pub events: Vec<EventDescription>,
    /// The number of events that were skipped because a template or type is unknown.
    pub skipped: usize,
}

impl ProviderDescription {
    /// The name of a level: the provider's own, otherwise the standard name (`win:Error`).
    pub fn level_name(&self, level: u8) -> Option<&str> {
        name_of(&self.levels, level).or_else(|| standard::level(level))
    }

    /// The name of a task.
    pub fn task_name(&self, task: u16) -> Option<&str> {
        name_of(&self.tasks, task)
    }

    /// The name of an opcode: that of the task, otherwise that of all tasks, otherwise the standard
    /// name (`win:Start`).
    pub fn opcode_name(&self, task: u16, opcode: u8) -> Option<&str> {
        let with = |of: Option<u16>| {
            let found = self.opcodes.iter().find(|found| found.task == of && found.named.value == opcode);
            found.map(|found| &*found.named.name)
        };
        with(Some(task)).or_else(|| with(None)).or_else(|| standard::opcode(opcode))
    }

    /// The name of a channel: the provider's own, otherwise the standard name.
    pub fn channel_name(&self, channel: u8) -> Option<&str> {
        name_of(&self.channels, channel).or_else(|| standard::channel(channel))
    }

    /// The names of all keywords whose whole mask is set, the provider's own first. Bits without a
    /// name are omitted.
    pub fn keyword_names(&self, keywords: u64) -> impl Iterator<Item = &str> {
        let is_set = move |mask: u64| mask != 0 && keywords & mask == mask;
        let own = self.keywords.iter().filter(move |keyword| is_set(keyword.value));
        let standard = standard::KEYWORDS.iter().filter(move |(mask, _)| {
            is_set(*mask) && !self.keywords.iter().any(|keyword| keyword.value == *mask)
        });
        own.map(|keyword| &*keyword.name).chain(standard.map(|(_, name)| *name))
    }

    /// The approximate memory use of the names in bytes. It is used to limit the descriptions that
    /// a file can add.
    pub(crate) fn approximate_bytes(&self) -> usize {
        fn of<V>(names: &[Named<V>]) -> usize {
            let text = |named: &Named<V>| named.name.len() + named.message.as_deref().map_or(0, str::len);
            names.iter().map(|named| size_of::<Named<V>>() + text(named)).sum()
        }
        let opcodes: usize =
            self.opcodes.iter().map(|opcode| of(std::slice::from_ref(&opcode.named)) + 8).sum();
        let names = of(&self.channels) + of(&self.levels) + of(&self.tasks) + of(&self.keywords) + opcodes;
        size_of::<ProviderDescription>() + self.name.len() + names
    }
}

fn name_of<V: Copy + PartialEq>(names: &[Named<V>], value: V) -> Option<&str> {
    names.iter().find(|named| named.value == value).map(|named| &*named.name)
}

/// Formats a message for display: `%n` becomes a line end, `%t` a tab, `%%` a percent sign, and
/// placeholders lose their format (`%1!s!` becomes `%1`). White space at the end is removed.
pub fn readable(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let mut chars = after.chars();
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('b') => text.push(' '),
            Some(c @ ('%' | '.' | '!')) => text.push(c),
            Some(c) if c.is_ascii_digit() => {
                let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                // Writing to a string cannot fail.
                let _ = write!(text, "%{}", &after[..digits]);
                let format = after[digits..].strip_prefix('!').and_then(|format| format.split_once('!'));
                rest = format.map_or(&after[digits..], |(_, rest)| rest);
                continue;
            }
            // Any other character keeps its percent sign.
            _ => {
                text.push('%');
                rest = after;
                continue;
            }
        }
        rest = chars.as_str();
    }
    text.push_str(rest);
    text.truncate(text.trim_end().len());
    text
}

pub(crate) use standard::{channel_number, keyword_mask, level_number, opcode_number};

#[cfg(test)]
mod tests;
