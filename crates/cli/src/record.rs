//! An event as NDJSON: the documented keys, in their order.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use stackhound::frames::{CreateEnd, CreateOutcome, Level, Summary};
use stackhound::schema::{Array, Decoder, Field, InType, Item, OutType, Value};
use stackhound::stacks::StackState;
use stackhound::types::HexBytes;
use stackhound::{Depth, Label, Mode, Seen};
use stackhound_export::Hex;

use crate::frame;
use crate::json::Shown;

/// One line: `time`, `ts`, `cpu`, `pid`, `tid`, `process`, `provider`, `event`, `id`, `opcode`, `version`, `fields`, of
/// files' creations `create`, and `stack` if wanted.
pub struct Line<'s, 'c> {
    pub seen: &'s Seen<'c>,
    pub with_stack: bool,
}

impl Serialize for Line<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seen = self.seen;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &Shown(stackhound::types::Rfc3339(seen.utc())))?;
        map.serialize_entry("ts", &seen.raw_time().0)?;
        map.serialize_entry("cpu", &seen.processor())?;
        map.serialize_entry("pid", &seen.pid().map(|pid| pid.0))?;
        map.serialize_entry("tid", &seen.tid().map(|tid| tid.0))?;
        map.serialize_entry("process", &seen.process_name())?;
        map.serialize_entry("provider", &*seen.provider())?;
        map.serialize_entry("event", &*seen.name())?;
        map.serialize_entry("id", &seen.id())?;
        map.serialize_entry("opcode", &seen.opcode())?;
        map.serialize_entry("version", &seen.version())?;
        match seen.fields() {
            Some(fields) => map.serialize_entry("fields", &Members(fields))?,
            None => map.serialize_entry("fields", &Raw(seen.payload()))?,
        }
        if let Some(create) = seen.create() {
            map.serialize_entry("create", &Create(create))?;
        }
        if self.with_stack {
            map.serialize_entry("stack", &Stack(seen))?;
        }
        map.end()
    }
}

/// The payload of an event without a schema.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.0.is_empty() {
            map.serialize_entry("raw", &Shown(HexBytes(self.0)))?;
        }
        map.end()
    }
}

/// Decoded fields. What cannot be decoded stands under `error`, behind the fields that can.
struct Members<'a>(Decoder<'a>);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for decoded in self.0.clone() {
            match decoded {
                Ok(decoded) => {
                    map.serialize_entry(&*decoded.field.name, &Content(decoded.field, decoded.item))?
                }
                Err(error) => map.serialize_entry("error", &Shown(error))?,
            }
        }
        map.end()
    }
}

struct Content<'a>(&'a Field, Item<'a>);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.1 {
            Item::Value(value) => Single(self.0, *value).serialize(serializer),
            Item::Array(array) => elements(*array, serializer),
            Item::Struct(members) => Members(members.clone()).serialize(serializer),
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

/// What a file's creation came to.
struct Create(CreateOutcome);

impl Serialize for Create {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let CreateOutcome { asked, end } = self.0;
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("asked", asked.name())?;
        map.serialize_entry("end", end.name())?;
        let told = match end {
            CreateEnd::Told { status, happened, .. } => Some((status, happened)),
            _ => None,
        };
        map.serialize_entry("happened", &told.map(|(_, happened)| happened.name()))?;
        map.serialize_entry("status", &told.map(|(status, _)| Hex(status.into())))?;
        map.end()
    }
}

struct Stack<'s, 'c>(&'s Seen<'c>);

impl Serialize for Stack<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seen = self.0;
        if seen.level() == Level::None {
            return serializer.serialize_none();
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", seen.state().name())?;
        let also: Vec<&str> = seen.stack_states().others().map(StackState::name).collect();
        map.serialize_entry("also", &also)?;
        map.serialize_entry("frames", &Frames(seen))?;
        if seen.stack().is_some() && seen.depth(Mode::User) > Depth::Address {
            let mut summary = Summary::default();
            seen.summarize(&mut summary);
            let modules = seen.modules();
            map.serialize_entry("summary", summary.user())?;
            map.serialize_entry("kernel_summary", summary.kernel())?;
            map.serialize_entry("contains_unbacked", summary.contains_unbacked().name())?;
            map.serialize_entry("final_user_module", &summary.final_user_module(&modules))?;
            let kernel = summary.final_kernel_module().map(|module| modules.get(module).name());
            map.serialize_entry("final_kernel_module", &kernel)?;
        }
        map.end()
    }
}

struct Frames<'s, 'c>(&'s Seen<'c>);

impl Serialize for Frames<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for frame in self.0.frames() {
            let names = self.0.names(&frame);
            list.serialize_element(&frame::Json(Label { frame: &frame, names: names.as_deref() }))?;
        }
        list.end()
    }
}
