//! An event with its fields and stack: a line of `events --format ndjson`.
//!
//! The type defines the document and its schema. [`EventRows`](super::event_rows::EventRows) writes
//! the same bytes for many events, much faster.

use std::borrow::Cow;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use stackhound_frames::{CreateEnd, CreateOutcome, Level};
use stackhound_pipeline::EventView;
use stackhound_schema::{Array, Decoder, Field, InType, Item, OutType, Value};
use stackhound_types::HexBytes;

use super::facts::{EventFile, EventRegistry, EventTarget, ProcessFacts, ThreadFacts};
use super::stack::{EventFrames, Stack, StackSummary};
use super::system_call::SystemCall;
use super::value::{Bytes, Hex, Text, Time};

/// An event.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Event<'s, 'c> {
    time: Time,
    /// Raw time: ticks of the session's clock.
    ts: i64,
    /// The processor.
    cpu: Option<u16>,
    /// The process of the event.
    pid: Option<u32>,
    /// The thread of the event.
    tid: Option<u32>,
    process: Option<ProcessFacts<'c>>,
    thread: Option<ThreadFacts<'c>>,
    /// Name or GUID of the provider; of kernel events, their class.
    provider: Cow<'s, str>,
    /// Name of the event; `Class/Type` for kernel classes.
    event: Cow<'s, str>,
    /// Id of the event; 0 for kernel classes and classic providers.
    id: u16,
    opcode: u8,
    version: u8,
    fields: Fields<'s>,
    /// The file that the event is about. Absent for kinds of events that are about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<EventFile<'s>>,
    /// The registry key that the event is about. Absent for kinds of events that are about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    registry: Option<EventRegistry<'c>>,
    /// The process and thread that the event acts on. Absent if they are those of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<EventTarget<'c>>,
    /// The result of creating or opening a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    create: Option<Create>,
    /// The system call that the event enters or leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    syscall: Option<SystemCall>,
    /// The stack, with `--stacks`. Null for events without stacks under the current stack policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(schema_with = "optional_stack"))]
    stack: Option<Option<Stack<'c, EventFrames<'s, 'c>>>>,
}

#[cfg(test)]
fn optional_stack(generator: &mut SchemaGenerator) -> Schema {
    <Option<Stack<'_>>>::json_schema(generator)
}

/// The result of creating or opening a file.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(super) struct Create {
    /// The requested disposition.
    requested: &'static str,
    /// Whether the end of the operation was found, otherwise why not.
    completion: &'static str,
    /// The result; null unless completed.
    result: Option<&'static str>,
    /// The NTSTATUS; null unless completed.
    status: Option<Hex>,
}

impl<'s, 'c> Event<'s, 'c> {
    /// Creates the document of an event; with its stack if `with_stack` is true.
    pub fn new(view: &'s EventView<'c>, with_stack: bool) -> Event<'s, 'c> {
        let has_stack = || view.level() != Level::None;
        let stack = || Stack::new(view.stack_states(), EventFrames(view), StackSummary::of_event(view));
        Event {
            time: Time(view.utc()),
            ts: view.raw_time().0,
            cpu: view.processor(),
            pid: view.pid().map(|pid| pid.0),
            tid: view.tid().map(|tid| tid.0),
            process: ProcessFacts::of_trace(view.process()),
            thread: ThreadFacts::of_trace(view.thread_start()),
            provider: view.provider(),
            event: view.name(),
            id: view.id(),
            opcode: view.opcode(),
            version: view.version(),
            fields: Fields { fields: view.fields(), payload: view.payload() },
            file: EventFile::new(view),
            registry: view.registry().map(EventRegistry::new),
            target: view.target().map(EventTarget::new),
            create: view.create().map(Create::new),
            syscall: SystemCall::of_event(view),
            stack: with_stack.then(|| has_stack().then(stack)),
        }
    }
}

impl Create {
    pub(super) fn new(CreateOutcome { requested, end }: CreateOutcome) -> Create {
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

/// The fields of a payload, or its bytes if no schema is known.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    pub(super) fields: Option<Decoder<'a>>,
    pub(super) payload: &'a [u8],
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

/// Decoded fields. If a field cannot be decoded, the error follows under the key `error`.
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

#[cfg(test)]
impl JsonSchema for Fields<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<FieldValue>();
        json_schema!({
            "type": "object",
            "description": "The decoded fields by name. The declared type of a field determines its JSON type.",
            "additionalProperties": value,
        })
    }
}

/// Exists only for the schema: the possible values of a field.
#[cfg(test)]
struct FieldValue;

#[cfg(test)]
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

struct Single<'a>(&'a Field, Value<'a>);

impl Serialize for Single<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Single(field, value) = *self;
        match Form::of(field, value) {
            Form::Null => serializer.serialize_none(),
            Form::Boolean(truth) => serializer.serialize_bool(truth),
            Form::Unsigned(number) => serializer.serialize_u64(number),
            Form::Signed(number) => serializer.serialize_i64(number),
            Form::Hex(number) => Hex(number).serialize(serializer),
            // JSON has no number for infinities and NaN, so they become null.
            Form::Float(number) => serializer.serialize_f64(number),
            Form::Ticks(ticks) => serializer.collect_str(&ticks),
            Form::Bytes(bytes) => serializer.collect_str(&HexBytes(bytes)),
            Form::Rendered => serializer.collect_str(&field.render(value)),
        }
    }
}

/// A value in the JSON type that its declared type determines, whatever its value: numbers of up to
/// 32 bits and floating-point numbers are numbers, 64-bit integers are decimal text, pointers and
/// masks are `"0x…"`, and values with names or a special format are text. Missing values are null.
pub(super) enum Form<'a> {
    Null,
    Boolean(bool),
    Unsigned(u64),
    Signed(i64),
    Hex(u64),
    Float(f64),
    /// Decimal text.
    Ticks(i64),
    /// Text of hexadecimal digits.
    Bytes(&'a [u8]),
    /// The text of [`Field::render`].
    Rendered,
}

impl<'a> Form<'a> {
    #[inline]
    pub(super) fn of(field: &Field, value: Value<'a>) -> Form<'a> {
        if field.map.is_some() {
            return Form::Rendered;
        }
        match (value, field.out_type) {
            (Value::Null, _) => Form::Null,
            (Value::Bool(truth), _) => Form::Boolean(truth),
            (Value::Unsigned(0xffff_ffff), OutType::Pid | OutType::Tid) => Form::Null,
            (Value::Unsigned(number), OutType::Port) => Form::Unsigned((number as u16).swap_bytes().into()),
            (Value::Unsigned(number), OutType::Boolean) => Form::Boolean(number != 0),
            (Value::Unsigned(_) | Value::Signed(_), _) if is_64_bit(field.in_type) => Form::Rendered,
            (
                Value::Unsigned(number),
                OutType::Default
                | OutType::Pid
                | OutType::Tid
                | OutType::Signed
                | OutType::Unsigned
                | OutType::Other(_),
            ) => Form::Unsigned(number),
            (Value::Signed(number), OutType::Default | OutType::Signed | OutType::Unsigned) => {
                Form::Signed(number)
            }
            (Value::Hex(number) | Value::Pointer(number), _) => Form::Hex(number),
            (Value::Float(number), _) => Form::Float(number),
            (Value::RawTime(time), _) => Form::Ticks(time.0),
            (Value::Binary(bytes), OutType::Default) => Form::Bytes(bytes),
            _ => Form::Rendered,
        }
    }
}

/// Whether integers of this type may exceed the integers that JSON readers preserve.
fn is_64_bit(in_type: InType) -> bool {
    matches!(in_type, InType::I64 | InType::U64)
}
