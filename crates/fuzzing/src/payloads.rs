//! Decodes arbitrary payloads with the schemas of kernel events, and with arbitrary schemas.

use std::fmt::Write;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use stackhound_schema::{
    Count, Decoded, Decoder, Error, EventMetadata, Field, InType, Item, Length, MAX_EMPTY_ELEMENTS,
    MAX_NESTING, OutType, Plan, Schema, SchemaSource, kernel,
};
use stackhound_types::{Guid, PointerSize};

#[derive(Arbitrary, Debug)]
struct Case {
    is_32_bit: bool,
    version: u8,
    kind: Kind,
}

#[derive(Arbitrary, Debug)]
enum Kind {
    /// A hook id; most of these are not in the tables.
    HookId(u16),
    /// The index of an event in the tables.
    Known(u16),
    TraceLogging(Vec<Descriptor>),
    /// Schemas that metadata cannot describe: counts and lengths refer to any other field.
    Any(Vec<AnyField>),
}

/// A TraceLogging field: its two type bytes, and a count that is used for types with a count.
#[derive(Arbitrary, Debug)]
struct Descriptor(u8, u8, u16);

#[derive(Arbitrary, Debug)]
struct AnyField {
    in_type: u8,
    members: u8,
    out_type: u8,
    count: AnyNumber,
    length: AnyNumber,
}

#[derive(Arbitrary, Debug)]
enum AnyNumber {
    Natural,
    Fixed(u16),
    Field(u8),
    Prefixed,
    Rest,
}

/// Decodes bytes with a schema that other bytes select, and formats every value.
pub fn payloads(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(case) = Case::arbitrary(&mut input) else { return };
    let payload = input.take_rest();
    let pointer = if case.is_32_bit { PointerSize::Four } else { PointerSize::Eight };
    match &case.kind {
        Kind::HookId(hook_id) => decode_kernel(*hook_id, case.version, pointer, payload),
        Kind::Known(number) => {
            let known: Vec<_> = kernel::events().collect();
            let event = known[usize::from(*number) % known.len()];
            if let Some(hook_id) = event.hook_id {
                assert_eq!(kernel::name(hook_id), Some(event.name));
                decode_kernel(hook_id, case.version, pointer, payload);
            }
            let opcode = event.hook_id.map_or(case.version, |hook_id| hook_id as u8);
            if let Some(schema) =
                kernel::lookup_classic_for(event.class, opcode, case.version, pointer, payload)
            {
                decode_everything(&Plan::new(Arc::new(schema.clone())), payload, pointer);
            }
        }
        Kind::TraceLogging(descriptors) => {
            let metadata = metadata_of(descriptors);
            let event = EventMetadata::parse(&metadata).expect("tags and a name");
            if let Ok(schema) = event.schema(Guid::ZERO, case.version) {
                decode_everything(&Plan::new(Arc::new(schema)), payload, pointer);
            }
        }
        Kind::Any(fields) => {
            let schema = Schema {
                source: SchemaSource::BuiltIn,
                provider: Guid::ZERO,
                event_name: "event".into(),
                message: None,
                fields: fields.iter().map(AnyField::field).collect(),
            };
            decode_everything(&Plan::new(Arc::new(schema)), payload, pointer);
        }
    }
}

fn decode_kernel(hook_id: u16, version: u8, pointer: PointerSize, payload: &[u8]) {
    assert_eq!(kernel::lookup(hook_id, version, pointer).is_some(), kernel::name(hook_id).is_some());
    if let Some(schema) = kernel::lookup_for(hook_id, version, pointer, payload) {
        decode_everything(&Plan::new(Arc::new(schema.clone())), payload, pointer);
    }
}

/// The metadata of an event with these fields.
fn metadata_of(descriptors: &[Descriptor]) -> Vec<u8> {
    const CHAIN: u8 = 0x80;
    const CONSTANT_COUNT: u8 = 0x20;
    let mut block = vec![0, 0, 0, b'e', 0];
    for Descriptor(in_type, out_type, count) in descriptors.iter().take(1000) {
        block.extend([b'f', 0, *in_type | CHAIN, *out_type & !CHAIN]);
        // Custom types have a length at the same offset.
        if in_type & CONSTANT_COUNT != 0 {
            let count = if in_type & 0x60 == 0x60 { 0 } else { *count };
            block.extend(count.to_le_bytes());
        }
    }
    let size = block.len() as u16;
    block[..2].copy_from_slice(&size.to_le_bytes());
    block
}

impl AnyField {
    fn field(&self) -> Field {
        let count = match self.count {
            AnyNumber::Natural => Count::One,
            AnyNumber::Fixed(count) => Count::Fixed(count),
            AnyNumber::Field(field) => Count::Field((field % 16).into()),
            AnyNumber::Prefixed => Count::Prefixed,
            AnyNumber::Rest => Count::Rest,
        };
        let length = match self.length {
            AnyNumber::Natural | AnyNumber::Prefixed => Length::Natural,
            AnyNumber::Fixed(length) => Length::Fixed(length),
            AnyNumber::Field(field) => Length::Field((field % 16).into()),
            AnyNumber::Rest => Length::Rest,
        };
        let out_types = [
            OutType::Default,
            OutType::String,
            OutType::Boolean,
            OutType::Hex,
            OutType::Port,
            OutType::Ipv4,
            OutType::Ipv6,
            OutType::SocketAddress,
            OutType::NtStatus,
            OutType::DateTime,
            OutType::Signed,
            OutType::Utf8,
        ];
        let out_type = out_types[usize::from(self.out_type) % out_types.len()];
        Field { out_type, count, length, ..Field::new("field", self.in_type()) }
    }

    fn in_type(&self) -> InType {
        match InType::all().cycle().nth(self.in_type.into()) {
            Some(InType::Struct { .. }) | None => InType::Struct { members: self.members.into() },
            Some(other) => other,
        }
    }
}

/// Decodes and formats all values of a payload, and compares them with the results of single
/// look-ups.
pub(crate) fn decode_everything(plan: &Plan, payload: &[u8], pointer: PointerSize) {
    let mut visit = Visit { steps: 0, text: String::new() };
    visit.fields(plan.decode(payload, pointer));
    // A byte is in at most one value per nesting level. An element of an array takes two steps: one
    // in its array and its own.
    let limit = 2 * (payload.len() + MAX_EMPTY_ELEMENTS + plan.schema().fields.len()) * (MAX_NESTING + 2);
    assert!(visit.steps <= limit, "{} steps for {} bytes", visit.steps, payload.len());

    for decoded in plan.decode(payload, pointer) {
        let Ok(Decoded { index, item: Item::Value(value), .. }) = decoded else { continue };
        let single = plan.value(payload, pointer, index).map(|value| format!("{value:?}"));
        assert_eq!(single, Ok(format!("{value:?}")), "a look-up of a single field has the same result");
    }
    let schema = plan.schema();
    assert!(schema.top_level().all(|index| schema.field_index(&schema.fields[index].name).is_some()));
}

struct Visit {
    steps: usize,
    /// The last formatted value.
    text: String,
}

impl Visit {
    fn fields(&mut self, mut decoder: Decoder<'_>) {
        let mut offset = decoder.offset();
        while let Some(decoded) = decoder.next() {
            self.steps += 1;
            assert!(decoder.offset() >= offset, "decoding advances");
            offset = decoder.offset();
            match decoded {
                Ok(decoded) => self.item(decoded.field, decoded.item),
                Err(error) => {
                    self.error(error);
                    assert!(decoder.next().is_none(), "nothing follows an error");
                }
            }
        }
    }

    fn item(&mut self, field: &Field, item: Item<'_>) {
        match item {
            Item::Value(value) => {
                self.text.clear();
                write!(self.text, "{}", field.render(value)).expect("writing to a String succeeds");
                let _ = (value.text(), value.as_u64(), value.as_i64());
            }
            Item::Array(array) => {
                let mut count = 0;
                for element in array {
                    self.steps += 1;
                    count += 1;
                    self.item(field, element);
                }
                assert_eq!(count, array.len());
            }
            Item::Struct(members) => self.fields(members),
        }
    }

    fn error(&mut self, error: Error) {
        assert!(matches!(error, Error::Payload { .. }), "{error}");
    }
}
