//! An event with its fields and its stack: a line of `events --format ndjson`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use stackhound_frames::{CreateEnd, CreateOutcome, Level};
use stackhound_pipeline::EventView;
use stackhound_schema::{Array, Decoder, Field, InType, Item, OutType, Value};
use stackhound_types::HexBytes;

use super::process::Process;
use super::stack::{EventFrames, Stack, StackSummary};
use super::value::{Bytes, Hex, Text, Time};

/// An event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Event<'s, 'c> {
    time: Time,
    /// Raw time: ticks of the session's clock.
    ts: i64,
    /// The processor.
    cpu: Option<u16>,
    /// The process that owns the event.
    pid: Option<u32>,
    /// The thread that owns the event.
    tid: Option<u32>,
    process: Option<Process<'c>>,
    /// The provider's name or GUID; `Kernel` for events of the kernel's classes.
    provider: Cow<'s, str>,
    /// The event's name: `Class/Type` for events of the kernel's classes.
    event: Cow<'s, str>,
    /// The event's id; 0 for events of the kernel's classes and of classic providers.
    id: u16,
    opcode: u8,
    version: u8,
    fields: Fields<'s>,
    /// The outcome of the creation or opening of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    create: Option<Create>,
    /// The stack, with `--stacks`. Null for events whose stacks the policy leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_stack")]
    stack: Option<Option<Stack<'c, EventFrames<'s, 'c>>>>,
}

fn optional_stack(generator: &mut SchemaGenerator) -> Schema {
    <Option<Stack<'_>>>::json_schema(generator)
}

/// What the creation or opening of a file came to.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct Create {
    /// The disposition that was asked for.
    requested: &'static str,
    /// Whether the end of the operation was found, and if not, why.
    completion: &'static str,
    /// What was done; null unless completed.
    result: Option<&'static str>,
    /// NTSTATUS; null unless completed.
    status: Option<Hex>,
}

impl<'s, 'c> Event<'s, 'c> {
    /// An event, with its stack if it is wanted.
    pub fn new(view: &'s EventView<'c>, with_stack: bool) -> Event<'s, 'c> {
        let has_stack = || view.level() != Level::None;
        let stack = || Stack::new(view.stack_states(), EventFrames(view), StackSummary::of_event(view));
        Event {
            time: Time(view.utc()),
            ts: view.raw_time().0,
            cpu: view.processor(),
            pid: view.pid().map(|pid| pid.0),
            tid: view.tid().map(|tid| tid.0),
            process: Process::named(view.process_name()),
            provider: view.provider(),
            event: view.name(),
            id: view.id(),
            opcode: view.opcode(),
            version: view.version(),
            fields: Fields { fields: view.fields(), payload: view.payload() },
            create: view.create().map(Create::new),
            stack: with_stack.then(|| has_stack().then(stack)),
        }
    }
}

impl Create {
    fn new(CreateOutcome { requested, end }: CreateOutcome) -> Create {
        let completed = match end {
            CreateEnd::Completed { status, result, .. } => Some((status, result)),
            _ => None,
        };
        Create {
            requested: requested.name(),
            completion: end.name(),
            result: completed.map(|(_, result)| result.name()),
            status: completed.map(|(status, _)| Hex(status.into())),
        }
    }
}

/// The fields of a payload, or its bytes where no schema is known.
#[derive(Clone, Debug)]
struct Fields<'a> {
    fields: Option<Decoder<'a>>,
    payload: &'a [u8],
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(fields) = &self.fields {
            return Members(fields).serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        if !self.payload.is_empty() {
            map.serialize_entry("raw", &Bytes(self.payload))?;
        }
        map.end()
    }
}

/// Decoded fields. The error of what cannot be decoded is under `error`, after the fields that can.
struct Members<'d, 'a>(&'d Decoder<'a>);

impl Serialize for Members<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for decoded in self.0.clone() {
            match decoded {
                Ok(decoded) => {
                    map.serialize_entry(&*decoded.field.name, &Content(decoded.field, decoded.item))?
                }
                Err(error) => map.serialize_entry("error", &Text(error))?,
            }
        }
        map.end()
    }
}

impl JsonSchema for Fields<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<FieldValue>();
        json_schema!({
            "type": "object",
            "description": "The payload by the names that the provider gives. The declared type of a field decides the JSON type.",
            "additionalProperties": value,
        })
    }
}

/// Only for the schema: what a field can be.
struct FieldValue;

impl JsonSchema for FieldValue {
    fn schema_name() -> Cow<'static, str> {
        "FieldValue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (value, fields) =
            (generator.subschema_for::<FieldValue>(), generator.subschema_for::<Fields<'_>>());
        json_schema!({
            "description": "A value, an array of values, or a structure.",
            "anyOf": [
                { "type": ["null", "boolean", "number", "string"] },
                { "type": "array", "items": value },
                fields,
            ],
        })
    }
}

struct Content<'a>(&'a Field, Item<'a>);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.1 {
            Item::Value(value) => Single(self.0, *value).serialize(serializer),
            Item::Array(array) => elements(*array, serializer),
            Item::Struct(members) => Members(members).serialize(serializer),
        }
    }
}

fn elements<S: Serializer>(array: Array<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut sequence = serializer.serialize_seq(Some(array.len()))?;
    for item in array {
        sequence.serialize_element(&Content(array.field(), item))?;
    }
    sequence.end()
}

/// A value in the JSON type that its field's declared types give it, whatever it is: numbers up to 32 bits and fractions
/// are numbers, integers of 64 bits decimal text, pointers and masks `"0x…"`, what has names or a form of its own text.
/// What is no value is null.
struct Single<'a>(&'a Field, Value<'a>);

impl Serialize for Single<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Single(field, value) = *self;
        if field.map.is_some() {
            return serializer.collect_str(&field.render(value));
        }
        match (value, field.out_type) {
            (Value::Null, _) => serializer.serialize_none(),
            (Value::Bool(truth), _) => serializer.serialize_bool(truth),
            (Value::Unsigned(0xffff_ffff), OutType::Pid | OutType::Tid) => serializer.serialize_none(),
            (Value::Unsigned(number), OutType::Port) => {
                serializer.serialize_u16((number as u16).swap_bytes())
            }
            (Value::Unsigned(number), OutType::Boolean) => serializer.serialize_bool(number != 0),
            (Value::Unsigned(_) | Value::Signed(_), _) if is_wide(field.in_type) => {
                serializer.collect_str(&field.render(value))
            }
            (
                Value::Unsigned(number),
                OutType::Default
                | OutType::Pid
                | OutType::Tid
                | OutType::Signed
                | OutType::Unsigned
                | OutType::Other(_),
            ) => serializer.serialize_u64(number),
            (Value::Signed(number), OutType::Default | OutType::Signed | OutType::Unsigned) => {
                serializer.serialize_i64(number)
            }
            (Value::Hex(number) | Value::Pointer(number), _) => Hex(number).serialize(serializer),
            // What is not finite is null, as JSON has no number for it.
            (Value::Float(number), _) => serializer.serialize_f64(number),
            (Value::RawTime(time), _) => serializer.collect_str(&time.0),
            (Value::Binary(bytes), OutType::Default) => serializer.collect_str(&HexBytes(bytes)),
            _ => serializer.collect_str(&field.render(value)),
        }
    }
}

/// Whether integers of this type need more bits than numbers of JSON are sure to keep.
fn is_wide(in_type: InType) -> bool {
    matches!(in_type, InType::I64 | InType::U64)
}
