//! Descriptions of providers, as `providers` writes them.

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::value::Hex;

/// A provider of the list: `providers list --format json` is a list of these.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ProviderSummary<'k> {
    /// Name of the provider.
    pub name: Option<&'k str>,
    /// GUID of the provider.
    pub guid: String,
    /// Number of described events.
    pub events: usize,
    /// Number of described keywords.
    pub keywords: usize,
    /// Source of the description.
    pub origin: &'k str,
}

/// The complete description of a provider: `providers show --format json` is a list of these.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Provider<'k> {
    /// Name of the provider.
    pub name: Option<&'k str>,
    /// GUID of the provider.
    pub guid: String,
    /// Source of the description.
    pub origin: &'k str,
    /// Display name.
    pub message: Option<&'k str>,
    /// The image that contains the resources.
    pub resource_file: Option<&'k str>,
    /// The image that contains the messages.
    pub message_file: Option<&'k str>,
    /// The image that contains the texts of parameters.
    pub parameter_file: Option<&'k str>,
    /// Channels.
    pub channels: Vec<Named<'k>>,
    /// Levels.
    pub levels: Vec<Named<'k>>,
    /// Keywords.
    pub keywords: Vec<Keyword<'k>>,
    /// Tasks.
    pub tasks: Vec<Named<'k>>,
    /// Opcodes.
    pub opcodes: Vec<Opcode<'k>>,
    /// Names of values.
    pub maps: Vec<Map<'k>>,
    /// Events.
    pub events: Vec<EventDescription<'k>>,
    /// Number of parts of the description that were not understood.
    pub not_understood: usize,
}

/// A number with its name.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Named<'k> {
    /// The value.
    pub value: u16,
    /// The name.
    pub name: &'k str,
    /// Display name.
    pub message: Option<&'k str>,
}

/// A keyword.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Keyword<'k> {
    /// The bits.
    pub mask: Hex,
    /// The name.
    pub name: &'k str,
    /// Display name.
    pub message: Option<&'k str>,
}

/// An opcode of one task or of all tasks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Opcode<'k> {
    /// The task of the opcode.
    pub task: Option<u16>,
    /// The opcode.
    #[serde(flatten)]
    pub named: Named<'k>,
}

/// Names of the values of a field.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Map<'k> {
    /// Name of the map.
    pub name: &'k str,
    /// Whether the names are those of bits that can be combined.
    pub bits: bool,
    /// The values.
    pub entries: Vec<MapEntry<'k>>,
}

/// A value of a map.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MapEntry<'k> {
    /// The value or bits.
    pub value: u32,
    /// The name.
    pub name: &'k str,
}

/// An event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EventDescription<'k> {
    /// Id of the event.
    pub id: u16,
    /// Version of its fields.
    pub version: u8,
    /// Name of the event.
    pub name: &'k str,
    /// The symbol that programs use for the event.
    pub symbol: Option<&'k str>,
    /// Channel.
    pub channel: Option<u8>,
    /// Level.
    pub level: Option<u8>,
    /// Opcode.
    pub opcode: Option<u8>,
    /// Task.
    pub task: Option<u16>,
    /// Keywords.
    pub keyword: Option<Hex>,
    /// Message, with `%1` and so on for the fields.
    pub message: Option<&'k str>,
    /// Fields.
    pub fields: Vec<FieldDescription<'k>>,
}

/// A field of an event.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FieldDescription<'k> {
    /// Name of the field.
    pub name: &'k str,
    /// Type in which the value is stored, as in manifests.
    pub in_type: &'static str,
    /// Type in which the value is shown, as in manifests.
    pub out_type: Option<&'static str>,
    /// Number of values: a number, or the field that contains it.
    pub array_length: Option<String>,
    /// Length of a value: a number, or the field that contains it.
    pub length: Option<String>,
    /// The map with names of values.
    pub map: Option<&'k str>,
    /// Fields of a structure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<FieldDescription<'k>>>,
}
