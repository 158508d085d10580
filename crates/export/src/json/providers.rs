//! Descriptions of providers: what `providers` writes.

use schemars::JsonSchema;
use serde::Serialize;

use super::value::Hex;

/// A provider of a list: `providers list --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProviderSummary<'k> {
    /// Its name.
    pub name: Option<&'k str>,
    /// Its GUID.
    pub guid: String,
    /// Events that are described.
    pub events: usize,
    /// Keywords that are described.
    pub keywords: usize,
    /// Where the description comes from.
    pub origin: &'k str,
}

/// Everything about a provider: `providers show --format json` is a list of these.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Provider<'k> {
    /// Its name.
    pub name: Option<&'k str>,
    /// Its GUID.
    pub guid: String,
    /// Where the description comes from.
    pub origin: &'k str,
    /// Its name for people.
    pub message: Option<&'k str>,
    /// The image with its resources.
    pub resource_file: Option<&'k str>,
    /// The image with its messages.
    pub message_file: Option<&'k str>,
    /// The image with the texts of its parameters.
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
    /// Parts of the description that were not understood.
    pub not_understood: usize,
}

/// A number with its name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Named<'k> {
    /// The number.
    pub value: u16,
    /// Its name.
    pub name: &'k str,
    /// Its name for people.
    pub message: Option<&'k str>,
}

/// A keyword.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Keyword<'k> {
    /// Its bits.
    pub mask: Hex,
    /// Its name.
    pub name: &'k str,
    /// Its name for people.
    pub message: Option<&'k str>,
}

/// An opcode, of one task or of all.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Opcode<'k> {
    /// The task that it belongs to.
    pub task: Option<u16>,
    /// The opcode.
    #[serde(flatten)]
    pub named: Named<'k>,
}

/// Names of the values of a field.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Map<'k> {
    /// Its name.
    pub name: &'k str,
    /// Whether the names are those of bits, which are combined.
    pub bits: bool,
    /// The values.
    pub entries: Vec<MapEntry<'k>>,
}

/// A value of a map.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MapEntry<'k> {
    /// The value or bits.
    pub value: u32,
    /// Its name.
    pub name: &'k str,
}

/// An event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventDescription<'k> {
    /// Its id.
    pub id: u16,
    /// Version of its fields.
    pub version: u8,
    /// Its name.
    pub name: &'k str,
    /// The name that programs have for it.
    pub symbol: Option<&'k str>,
    /// Its channel.
    pub channel: Option<u8>,
    /// Its level.
    pub level: Option<u8>,
    /// Its opcode.
    pub opcode: Option<u8>,
    /// Its task.
    pub task: Option<u16>,
    /// Its keywords.
    pub keyword: Option<Hex>,
    /// Its message, with `%1` and so on for the fields.
    pub message: Option<&'k str>,
    /// Its fields.
    pub fields: Vec<FieldDescription<'k>>,
}

/// A field of an event.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FieldDescription<'k> {
    /// Its name.
    pub name: &'k str,
    /// How it is stored, as manifests have it.
    pub in_type: &'static str,
    /// What it means, as manifests have it.
    pub out_type: Option<&'static str>,
    /// How many values there are: a number or the field that states it.
    pub array_length: Option<String>,
    /// How long a value is: a number or the field that states it.
    pub length: Option<String>,
    /// The map with the names of its values.
    pub map: Option<&'k str>,
    /// Fields of a structure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<FieldDescription<'k>>>,
}
