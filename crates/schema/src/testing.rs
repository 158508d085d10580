//! Helpers for the tests of this crate: payloads and schemas, given or random, and decoded payloads
//! as text.

pub mod blocks;
pub mod compiled;

use std::sync::Arc;

use proptest::prelude::*;
use stackhound_types::{FileTime, Guid, PointerSize, RawTime};

use crate::decode::{Decoder, Item};
use crate::model::{Count, Field, InType, Length, Schema, SchemaSource, Value};
use crate::provider::EventDescription;

/// A schema with the given fields.
pub fn schema(fields: Vec<Field>) -> Schema {
    Schema {
        source: SchemaSource::BuiltIn,
        provider: Guid::ZERO,
        event_name: "Event".into(),
        message: None,
        fields,
    }
}

/// The description of an event with only a schema.
pub fn event(schema: Schema) -> EventDescription {
    EventDescription::new(0, 0, Arc::new(schema))
}

/// UTF-16LE bytes with a terminating zero.
pub fn utf16z(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// UTF-16LE bytes.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Bytes from hexadecimal digits. Blanks are ignored.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// All items of a decoder, such as `a=1 b=[1, 2] c={d=x} !field 3 … +4`: fields, then the error,
/// then the number of remaining bytes.
pub fn decoded(schema: &Schema, payload: &[u8], pointer: PointerSize) -> String {
    let mut decoder = schema.decode(payload, pointer);
    let mut text = fields(&mut decoder);
    if !decoder.rest().is_empty() {
        text += &format!(" +{}", decoder.rest().len());
    }
    text
}

fn fields(decoder: &mut Decoder<'_>) -> String {
    let mut parts = Vec::new();
    for decoded in decoder {
        parts.push(match decoded {
            Ok(decoded) => format!("{}={}", decoded.field.name, item(decoded.field, decoded.item)),
            Err(error) => format!("!{error}"),
        });
    }
    parts.join(" ")
}

pub fn item(field: &Field, item: Item<'_>) -> String {
    match item {
        Item::Value(Value::Null) => "null".into(),
        Item::Value(value) => field.render(value).to_string(),
        Item::Array(array) => {
            let elements: Vec<String> = array.iter().map(|element| self::item(field, element)).collect();
            format!("[{}]", elements.join(", "))
        }
        Item::Struct(mut members) => format!("{{{}}}", fields(&mut members)),
    }
}

/// The structure of a random schema.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A field that is not a structure.
    Leaf(InType, Count),
    /// A structure.
    Struct(Vec<Shape>, Count),
}

/// Schemas with every in-type that needs no length, with arrays and nested structures.
pub fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let count = prop_oneof![
        3 => Just(Count::One),
        1 => (0_u16..4).prop_map(Count::Fixed),
        1 => Just(Count::Prefixed)
    ];
    let in_type = prop::sample::select(vec![
        InType::Utf16,
        InType::Ansi,
        InType::I8,
        InType::U8,
        InType::I16,
        InType::U16,
        InType::I32,
        InType::U32,
        InType::I64,
        InType::U64,
        InType::F32,
        InType::F64,
        InType::Bool32,
        InType::CountedBinary,
        InType::Guid,
        InType::Pointer,
        InType::FileTime,
        InType::SystemTime,
        InType::Sid,
        InType::HexInt32,
        InType::HexInt64,
        InType::CountedUtf16,
        InType::CountedAnsi,
    ]);
    let leaf = (in_type, count.clone()).prop_map(|(in_type, count)| Shape::Leaf(in_type, count));
    let shape = leaf.prop_recursive(4, 24, 5, move |inner| {
        (prop::collection::vec(inner, 1..5), count.clone())
            .prop_map(|(members, count)| Shape::Struct(members, count))
    });
    prop::collection::vec(shape, 0..8)
}

/// Converts shapes to the flat form of a schema. The names are `f0`, `f1`, …
pub fn flatten(shapes: &[Shape], fields: &mut Vec<Field>) {
    for shape in shapes {
        let name = format!("f{}", fields.len());
        match shape {
            Shape::Leaf(in_type, count) => {
                fields.push(Field { count: *count, ..Field::new(name, *in_type) });
            }
            Shape::Struct(members, count) => {
                let in_type = InType::Struct { members: members.len().try_into().unwrap() };
                fields.push(Field { count: *count, ..Field::new(name, in_type) });
                flatten(members, fields);
            }
        }
    }
}

/// Writes random values for the shapes, and predicts the decoded values in the form of [`debug`].
pub struct Writer {
    state: u64,
    pointer: PointerSize,
    /// The bytes that were written.
    pub payload: Vec<u8>,
}

impl Writer {
    /// Equal seeds result in equal values.
    pub fn new(seed: u64, pointer: PointerSize) -> Writer {
        Writer { state: seed, pointer, payload: Vec::new() }
    }

    /// Splitmix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.payload.extend_from_slice(&bytes);
    }

    /// Writes all fields. Returns the expected text.
    pub fn fields(&mut self, shapes: &[Shape]) -> String {
        shapes.iter().map(|shape| self.field(shape)).collect::<Vec<_>>().join(" ")
    }

    fn field(&mut self, shape: &Shape) -> String {
        let (Shape::Leaf(_, count) | Shape::Struct(_, count)) = shape;
        let count = match count {
            Count::One => return self.element(shape),
            Count::Fixed(count) => *count,
            _ => {
                let count = (self.random() % 4) as u16;
                self.put(count.to_le_bytes());
                count
            }
        };
        let elements: Vec<String> = (0..count).map(|_| self.element(shape)).collect();
        format!("[{}]", elements.join(", "))
    }

    fn element(&mut self, shape: &Shape) -> String {
        match shape {
            Shape::Struct(members, _) => format!("{{{}}}", self.fields(members)),
            Shape::Leaf(in_type, _) => self.leaf(*in_type),
        }
    }

    fn leaf(&mut self, in_type: InType) -> String {
        let n = self.random();
        // Without zero bytes, which would end a text.
        let letters: Vec<u8> = (0..n % 7).map(|i| 1 + ((n >> i) % 255) as u8).collect();
        let wide: Vec<u8> = letters.iter().flat_map(|&letter| u16::from(letter).to_le_bytes()).collect();
        let start = self.payload.len();
        let value = match in_type {
            InType::Utf16 => {
                self.payload.extend(&wide);
                self.put([0, 0]);
                Value::Utf16(&wide)
            }
            InType::Ansi => {
                self.payload.extend(&letters);
                self.put([0]);
                Value::Ansi(&letters)
            }
            InType::CountedUtf16 => {
                self.put((wide.len() as u16).to_le_bytes());
                self.payload.extend(&wide);
                Value::Utf16(&wide)
            }
            InType::CountedAnsi | InType::CountedBinary => {
                self.put((letters.len() as u16).to_le_bytes());
                self.payload.extend(&letters);
                if in_type == InType::CountedAnsi { Value::Ansi(&letters) } else { Value::Binary(&letters) }
            }
            InType::I8 => {
                self.put((n as i8).to_le_bytes());
                Value::Signed((n as i8).into())
            }
            InType::U8 => {
                self.put((n as u8).to_le_bytes());
                Value::Unsigned((n as u8).into())
            }
            InType::I16 => {
                self.put((n as i16).to_le_bytes());
                Value::Signed((n as i16).into())
            }
            InType::U16 => {
                self.put((n as u16).to_le_bytes());
                Value::Unsigned((n as u16).into())
            }
            InType::I32 => {
                self.put((n as i32).to_le_bytes());
                Value::Signed((n as i32).into())
            }
            InType::U32 => {
                self.put((n as u32).to_le_bytes());
                Value::Unsigned((n as u32).into())
            }
            InType::I64 => {
                self.put(n.to_le_bytes());
                Value::Signed(n as i64)
            }
            InType::U64 => {
                self.put(n.to_le_bytes());
                Value::Unsigned(n)
            }
            InType::F32 => {
                let number = n as u16 as f32 / 8.0;
                self.put(number.to_le_bytes());
                Value::Float(number.into())
            }
            InType::F64 => {
                let number = n as u32 as f64 / 8.0;
                self.put(number.to_le_bytes());
                Value::Float(number)
            }
            InType::Bool32 => {
                self.put((n as u32 & 2).to_le_bytes());
                Value::Bool(n & 2 != 0)
            }
            InType::HexInt32 => {
                self.put((n as u32).to_le_bytes());
                Value::Hex((n as u32).into())
            }
            InType::HexInt64 => {
                self.put(n.to_le_bytes());
                Value::Hex(n)
            }
            InType::Pointer => match self.pointer {
                PointerSize::Four => {
                    self.put((n as u32).to_le_bytes());
                    Value::Pointer((n as u32).into())
                }
                PointerSize::Eight => {
                    self.put(n.to_le_bytes());
                    Value::Pointer(n)
                }
            },
            InType::Guid => {
                let bytes = (u128::from(n) << 64 | u128::from(!n)).to_le_bytes();
                self.put(bytes);
                Value::Guid(Guid(bytes))
            }
            InType::FileTime => {
                self.put(n.to_le_bytes());
                Value::FileTime(FileTime(n as i64))
            }
            InType::RawTime => {
                self.put(n.to_le_bytes());
                Value::RawTime(RawTime(n as i64))
            }
            InType::SystemTime => {
                let parts: [u16; 8] = std::array::from_fn(|i| (n >> i) as u16);
                parts.iter().for_each(|part| self.put(part.to_le_bytes()));
                Value::SystemTime(parts)
            }
            InType::Sid => {
                let count = (n % 4) as u8;
                self.put([1, count, 0, 0, 0, 0, 0, 5]);
                (0..count).for_each(|i| self.put((n as u32).rotate_left(i.into()).to_le_bytes()));
                Value::Sid(&self.payload[start..])
            }
            _ => panic!("{in_type:?} needs more than a value"),
        };
        format!("{value:?}")
    }
}

/// The values that a decoder yields, in the form that [`Writer`] predicts.
pub fn debug(decoder: Decoder<'_>) -> String {
    let parts: Vec<String> = decoder
        .map(|decoded| match decoded {
            Ok(decoded) => debug_item(decoded.item),
            Err(error) => format!("!{error}"),
        })
        .collect();
    parts.join(" ")
}

fn debug_item(item: Item<'_>) -> String {
    match item {
        Item::Value(value) => format!("{value:?}"),
        Item::Array(array) => {
            format!("[{}]", array.iter().map(debug_item).collect::<Vec<_>>().join(", "))
        }
        Item::Struct(members) => format!("{{{}}}", debug(members)),
    }
}

pub fn pointer_sizes() -> impl Strategy<Value = PointerSize> {
    prop_oneof![Just(PointerSize::Four), Just(PointerSize::Eight)]
}

/// Schemas as malicious metadata may contain them: references to anything, structures of any size.
pub fn malicious_schemas() -> impl Strategy<Value = Schema> {
    let in_type = prop_oneof![
        2 => (0_u16..6).prop_map(|members| InType::Struct { members }),
        1 => any::<u16>().prop_map(|members| InType::Struct { members }),
        8 => prop::sample::select(vec![
            InType::Null,
            InType::Utf16,
            InType::Ansi,
            InType::U8,
            InType::U16,
            InType::I32,
            InType::U64,
            InType::Pointer,
            InType::Binary,
            InType::CountedBinary,
            InType::CountedUtf16,
            InType::Sid,
            InType::WbemSid,
            InType::Guid,
            InType::Utf16Char,
        ]),
    ];
    let count = prop_oneof![
        6 => Just(Count::One),
        1 => (0_u16..5).prop_map(Count::Fixed),
        1 => any::<u16>().prop_map(Count::Fixed),
        2 => (0_u16..12).prop_map(Count::Field),
        1 => Just(Count::Prefixed),
        1 => Just(Count::Rest)
    ];
    let length = prop_oneof![
        6 => Just(Length::Natural),
        1 => (0_u16..9).prop_map(Length::Fixed),
        2 => (0_u16..12).prop_map(Length::Field),
        1 => Just(Length::Rest)
    ];
    let field = (in_type, count, length).prop_map(|(in_type, count, length)| Field {
        count,
        length,
        ..Field::new("f", in_type)
    });
    prop::collection::vec(field, 0..20).prop_map(schema)
}
