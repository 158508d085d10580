//! The fields of many events as JSON: the value of `fields` of the type [`Event`](super::event::Event),
//! byte for byte.

use std::io;
use std::sync::Arc;

use stackhound_etl::record::Record;
use stackhound_schema::{Array, Decoder, Field, Item, MapKind, OutType, Plan, Schema, Value};

use super::append;
use super::event::Form;
use crate::escape::json;

pub use super::append::Times;

/// The keys of the fields of all events with a schema.
#[derive(Debug)]
pub struct FieldRow {
    plan: Arc<Plan>,
    /// A comma and the key of each field, by index.
    keys: Box<[Box<[u8]>]>,
}

impl FieldRow {
    /// The keys for a schema.
    pub fn new(plan: Arc<Plan>) -> FieldRow {
        FieldRow { keys: keys(plan.schema()), plan }
    }
}

/// A comma and the key of each field.
fn keys(schema: &Schema) -> Box<[Box<[u8]>]> {
    let key = |field: &Field| {
        let mut key = b",".to_vec();
        append::text(&mut key, &field.name);
        key.push(b':');
        key.into_boxed_slice()
    };
    schema.fields.iter().map(key).collect()
}

/// Appends the fields of a record, or its bytes if no schema is known.
///
/// # Errors
/// None that the caller can cause.
pub fn append_fields(
    out: &mut Vec<u8>,
    times: &mut Times,
    schema: Option<&FieldRow>,
    record: &Record<'_>,
) -> io::Result<()> {
    let payload = record.payload();
    let Some(schema) = schema else {
        if payload.is_empty() {
            out.extend_from_slice(b"{}");
            return Ok(());
        }
        out.extend_from_slice(b"{\"raw\":");
        append::hex_bytes(out, payload);
        out.push(b'}');
        return Ok(());
    };
    let fields = schema.plan.decode(payload, record.pointer_size());
    FieldWriter { schema, times, out }.members(fields)
}

/// Appends decoded fields.
struct FieldWriter<'w> {
    schema: &'w FieldRow,
    times: &'w mut Times,
    out: &'w mut Vec<u8>,
}

impl FieldWriter<'_> {
    /// Appends fields. If one cannot be decoded, the error follows under the key `error`.
    fn members(&mut self, mut fields: Decoder<'_>) -> io::Result<()> {
        let start = self.out.len();
        loop {
            while let Some((index, field, value)) = fields.next_value() {
                self.out.extend_from_slice(&self.schema.keys[index]);
                self.value(field, value)?;
            }
            match fields.next() {
                None => break,
                Some(Ok(decoded)) => {
                    self.out.extend_from_slice(&self.schema.keys[decoded.index]);
                    self.item(decoded.field, decoded.item)?;
                }
                Some(Err(error)) => {
                    self.out.extend_from_slice(b",\"error\":");
                    append::shown(self.out, error);
                }
            }
        }
        // The comma before the first key becomes the brace.
        match self.out.get_mut(start) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
        Ok(())
    }

    fn item(&mut self, field: &Field, item: Item<'_>) -> io::Result<()> {
        match item {
            Item::Value(value) => self.value(field, value),
            Item::Array(array) => self.array(array),
            Item::Struct(members) => self.members(members),
        }
    }

    fn array(&mut self, array: Array<'_>) -> io::Result<()> {
        let field = array.field();
        self.out.push(b'[');
        match array.values() {
            Some(values) => {
                for (index, value) in values.enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.value(field, value)?;
                }
            }
            None => {
                for (index, item) in array.iter().enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.item(field, item)?;
                }
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn value(&mut self, field: &Field, value: Value<'_>) -> io::Result<()> {
        let out = &mut *self.out;
        match Form::of(field, value) {
            Form::Null => out.extend_from_slice(b"null"),
            Form::Boolean(truth) => append::boolean(out, truth),
            Form::Unsigned(number) => append::integer(out, number),
            Form::Signed(number) => append::integer(out, number),
            Form::Hex(number) => append::hex(out, number),
            Form::Float(number) => json(out, &number)?,
            Form::Ticks(ticks) => append::decimal_text(out, ticks),
            Form::Bytes(bytes) => append::hex_bytes(out, bytes),
            Form::Rendered => self.rendered(field, value),
        }
        Ok(())
    }

    /// Appends the text of [`Field::render`].
    fn rendered(&mut self, field: &Field, value: Value<'_>) {
        let out = &mut *self.out;
        if let Some(map) = &field.map {
            let number = value.as_u64().filter(|_| map.kind == MapKind::Values);
            return match number.and_then(|number| map.value_name(number)) {
                Some(name) => append::text(out, name),
                None => append::shown(out, field.render(value)),
            };
        }
        match (value, field.out_type) {
            (Value::Unsigned(number), OutType::Default) => append::decimal_text(out, number),
            (Value::Signed(number), OutType::Default) => append::decimal_text(out, number),
            (Value::Unsigned(number), OutType::Hex | OutType::CodePointer) => append::hex(out, number),
            (Value::Utf16(bytes), _) => append::utf16(out, bytes),
            (Value::Ansi(bytes), _) => append::ansi(out, bytes),
            (Value::Guid(guid), _) => append::guid(out, guid),
            (Value::FileTime(time), _) => self.times.time(out, time),
            _ => append::shown(out, field.render(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stackhound_schema::{Count, InType, Length, Map, SchemaSource};
    use stackhound_types::{Guid, PointerSize};

    use super::super::event::Fields;
    use super::*;

    fn out_types() -> impl Strategy<Value = OutType> {
        prop::sample::select(vec![
            OutType::Default,
            OutType::Default,
            OutType::String,
            OutType::Boolean,
            OutType::Hex,
            OutType::Pid,
            OutType::Tid,
            OutType::Port,
            OutType::Ipv4,
            OutType::Ipv6,
            OutType::SocketAddress,
            OutType::Xml,
            OutType::Json,
            OutType::Win32Error,
            OutType::NtStatus,
            OutType::HResult,
            OutType::DateTime,
            OutType::Signed,
            OutType::Unsigned,
            OutType::Utf8,
            OutType::CodePointer,
            OutType::Other(9),
        ])
    }

    fn maps() -> impl Strategy<Value = Option<Arc<Map>>> {
        let kinds = prop::sample::select(vec![MapKind::Values, MapKind::Bits]);
        let entries = prop::collection::vec((0_u32..9, any::<String>()), 1..5);
        let map = (kinds, entries).prop_map(|(kind, entries)| {
            let entries = entries.into_iter().map(|(number, name)| (number, name.into())).collect();
            Arc::new(Map { name: "Map".into(), kind, entries })
        });
        prop::option::weighted(0.2, map)
    }

    fn fields() -> impl Strategy<Value = Vec<Field>> {
        let counts = prop_oneof![
            4 => Just(Count::One),
            1 => (0_u16..4).prop_map(Count::Fixed),
            1 => Just(Count::Field(0)),
            1 => Just(Count::Prefixed),
            1 => Just(Count::Rest),
        ];
        let lengths = prop_oneof![
            4 => Just(Length::Natural),
            1 => (0_u16..9).prop_map(Length::Fixed),
            1 => Just(Length::Field(0)),
            1 => Just(Length::Rest),
        ];
        let in_types = InType::all().map(|in_type| match in_type {
            InType::Struct { .. } => InType::Struct { members: 2 },
            other => other,
        });
        let in_types = prop::sample::select(in_types.collect::<Vec<_>>());
        let field = (any::<String>(), in_types, out_types(), counts, lengths, maps());
        let field = field.prop_map(|(name, in_type, out_type, count, length, map)| Field {
            name: name.into(),
            in_type,
            out_type,
            count,
            length,
            map,
        });
        prop::collection::vec(field, 0..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn fields_are_those_of_the_document(
            fields in fields(),
            payload in prop::collection::vec(prop_oneof![3 => 0_u8..9, 1 => any::<u8>()], 0..200),
            pointer in prop::sample::select(vec![PointerSize::Four, PointerSize::Eight]),
        ) {
            let plan = Plan::new(Arc::new(Schema {
                source: SchemaSource::Manifest,
                provider: Guid::ZERO,
                event_name: "Event".into(),
                message: None,
                fields,
            }));
            let mut expected = Vec::new();
            json(&mut expected, &Fields { fields: Some(plan.decode(&payload, pointer)), payload: &payload }).unwrap();
            let row = FieldRow::new(Arc::new(plan));
            let mut appended = Vec::new();
            let fields = row.plan.decode(&payload, pointer);
            let mut times = Times::default();
            FieldWriter { schema: &row, times: &mut times, out: &mut appended }.members(fields).unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&appended), String::from_utf8_lossy(&expected));
        }
    }
}
