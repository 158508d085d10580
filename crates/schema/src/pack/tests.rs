//! Tests of packed payloads, and of packing and decoding as inverse functions.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use stackhound_types::{
    Address, FileTime, Pid,
    PointerSize::{Eight, Four},
    RawTime,
};

use super::*;
use crate::decode::Item;
use crate::model::OutType;
use crate::parser::SystemTime;
use crate::testing::{Shape, Writer, debug, flatten, hex, pointer_sizes, schema, shapes, utf16};
use stackhound_types::Sid;

fn stored(in_type: InType) -> Field {
    Field::new("p", in_type)
}

fn shown(in_type: InType, out_type: OutType) -> Field {
    Field { out_type, ..stored(in_type) }
}

/// Packs one field with a value.
#[track_caller]
fn check(field: Field, value: impl Into<OwnedValue>, expected: Result<&str, &str>) {
    let description = format!("{field:?}");
    let packed = schema(vec![field]).pack(&[("p", value.into())], Eight);
    match expected {
        Ok(bytes) => assert_eq!(packed, Ok(hex(bytes)), "{description}"),
        Err(error) => {
            assert_eq!(packed.map_err(|error| error.to_string()), Err(error.into()), "{description}")
        }
    }
}

#[test]
fn numbers_are_written_as_the_type_of_their_property() {
    use InType::*;
    let too_big = Err("property p: expected a number that fits its type");
    check(stored(U8), 0xfe_u64, Ok("fe"));
    check(stored(U8), 0x100, too_big);
    check(stored(U8), -1, too_big);
    check(stored(I8), -2, Ok("fe"));
    check(stored(I8), 0x80, too_big);
    check(stored(U16), 0x1234, Ok("3412"));
    check(stored(I16), -2, Ok("feff"));
    check(stored(U32), 0x1234_5678, Ok("78563412"));
    check(stored(HexInt32), 0x1234_5678_u32, Ok("78563412"));
    check(stored(I32), -2_i64, Ok("feffffff"));
    check(stored(U64), u64::MAX, Ok("ffffffffffffffff"));
    check(stored(I64), u64::MAX, too_big);
    check(stored(HexInt64), 1_u8, Ok("0100000000000000"));
    check(stored(Pointer), Address(0x7ff6_0000_1000), Ok("00100000f67f0000"));
    check(shown(U32, OutType::Pid), stackhound_types::Pid(7), Ok("07000000"));
    check(shown(I32, OutType::NtStatus), 0xc000_0022_u32, Ok("220000c0"));
    check(shown(U32, OutType::NtStatus), 0xc000_0022_u32 as i32, Ok("220000c0"));
    check(shown(U16, OutType::Port), 443, Ok("01bb"));
    check(stored(U32), "text", Err("property p is U32, not text"));
    check(stored(U32), true, Err("property p is U32, not a Boolean"));
    check(stored(U32), 1.5, Err("property p is U32, not a floating-point number"));
    let short = schema(vec![stored(Pointer)]);
    assert_eq!(short.pack(&[("p", Address(0x1234).into())], Four), Ok(hex("34120000")));
    assert!(short.pack(&[("p", Address(1 << 32).into())], Four).is_err());
}

#[test]
fn other_values_are_written_as_their_own_types() {
    use InType::*;
    check(stored(F32), 1.5_f32, Ok("0000c03f"));
    check(stored(F64), 1.5, Ok("000000000000f83f"));
    check(stored(Bool32), true, Ok("01000000"));
    check(stored(Bool8), true, Ok("01"));
    check(shown(U32, OutType::Boolean), true, Ok("01000000"));
    let guid: stackhound_types::Guid = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
    check(stored(InType::Guid), guid, Ok("33221100 5544 7766 8899aabbccddeeff"));
    check(stored(InType::FileTime), stackhound_types::FileTime(9), Ok("0900000000000000"));
    check(shown(I64, OutType::DateTime), stackhound_types::FileTime(9), Ok("0900000000000000"));
    check(stored(InType::RawTime), stackhound_types::RawTime(9), Ok("0900000000000000"));
    let date = crate::SystemTime::from([2024, 2, 4, 29, 23, 59, 58, 999]);
    check(stored(InType::SystemTime), date, Ok("e807 0200 0400 1d00 1700 3b00 3a00 e703"));
    let sid = hex("01 01 000000000005 12000000");
    check(stored(InType::Sid), crate::Sid(&sid), Ok("01 01 000000000005 12000000"));
    check(stored(InType::Sid), crate::Sid(&sid[..11]), Err("property p: expected a security identifier"));
    check(
        stored(WbemSid),
        crate::Sid(&sid),
        Ok("10000000000000000000000000000000 01 01 000000000005 12000000"),
    );
    check(stored(WbemSid), OwnedValue::Null, Ok("00000000"));
    check(stored(Binary), &b"ab"[..], Ok("6162"));
    check(stored(CountedBinary), vec![1, 2], Ok("0200 0102"));
    check(shown(U32, OutType::Ipv4), "127.0.0.1".parse::<IpAddr>().unwrap(), Ok("7f000001"));
    let six = Field { length: Length::Fixed(16), ..shown(Binary, OutType::Ipv6) };
    check(six, "::1".parse::<IpAddr>().unwrap(), Ok("00000000000000000000000000000001"));
    let socket = shown(Binary, OutType::SocketAddress);
    let v4: SocketAddr = "127.0.0.1:443".parse().unwrap();
    check(socket.clone(), v4, Ok("0200 01bb 7f000001 0000000000000000"));
    let v6: SocketAddr = "[::1%3]:443".parse().unwrap();
    check(socket, v6, Ok("1700 01bb 00000000 00000000000000000000000000000001 03000000"));
}

#[test]
fn text_is_written_in_the_encoding_of_its_property() {
    use InType::*;
    let fixed = |length, in_type| Field { length: Length::Fixed(length), ..stored(in_type) };
    let too_long = Err("property p: expected the number of bytes that its length states");
    check(stored(Utf16), "aä", Ok("6100 e400 0000"));
    check(stored(Ansi), "aä", Ok("61 c3a4 00"));
    check(stored(CountedUtf16), "aä", Ok("0400 6100 e400"));
    check(stored(CountedAnsi), "aä", Ok("0300 61 c3a4"));
    // Text in another code page.
    check(stored(Ansi), &b"a\xe4"[..], Ok("61 e4 00"));
    check(stored(Utf16), &b"a\0"[..], Ok("6100 0000"));
    check(stored(Utf16), &b"a"[..], Err("property p is Utf16, not bytes"));
    check(stored(Utf16), "a\0b", Err("property p: expected text without a zero character"));
    check(stored(CountedUtf16), "a\0b", Ok("0600 6100 0000 6200"));
    check(fixed(3, Utf16), "ab", Ok("6100 6200 0000"));
    check(fixed(3, Ansi), "abc", Ok("616263"));
    check(fixed(3, Ansi), "abcd", too_long);
    check(fixed(3, Binary), &b"ab"[..], too_long);
    check(Field { length: Length::Rest, ..stored(Utf16) }, "ab", Ok("6100 6200"));
    let chars = |in_type| Field { count: Count::Fixed(4), ..stored(in_type) };
    check(chars(Utf16Char), "ab", Ok("6100 6200 0000 0000"));
    check(chars(AnsiChar), "abcd", Ok("61626364"));
    check(chars(AnsiChar), "abcde", Err("property p: expected the number of elements that its count states"));
    check(stored(Utf16Char), "ä", Ok("e400"));
    check(stored(Utf16Char), "ab", Err("property p: expected a single unit of text"));
    check(shown(Binary, OutType::Xml), "<a/>", Ok("3c612f3e"));
    check(stored(Binary), "<a/>", Err("property p is Binary, not text"));
    check(stored(Utf16), 45, Err("property p is Utf16, not a number"));
}

fn count(count: Count, field: Field) -> Field {
    Field { count, ..field }
}

/// `n`, `list` of `n` u16, `size`, `text` of `size` units, two `points` of `m` and `bytes` of
/// length `m`.
fn referring() -> Schema {
    schema(vec![
        Field::new("n", InType::U16),
        count(Count::Field(0), Field::new("list", InType::U16)),
        Field::new("size", InType::U8),
        Field { length: Length::Field(2), ..Field::new("text", InType::Utf16) },
        count(Count::Fixed(2), Field::new("points", InType::Struct { members: 2 })),
        Field::new("m", InType::U32),
        Field { length: Length::Field(5), ..Field::new("bytes", InType::Binary) },
        Field::padding(1),
        Field::new("last", InType::Ansi),
    ])
}

#[test]
fn counts_and_lengths_are_computed() {
    let point = |bytes: &[u8]| OwnedValue::structure([("bytes", bytes)]);
    let mut values = vec![
        ("list", OwnedValue::list([1, 2])),
        ("text", "a".into()),
        ("points", OwnedValue::list([point(b"xy"), point(b"")])),
        ("last", "z".into()),
    ];
    let expected = hex("0200 0100 0200 01 6100 02000000 7879 00000000 00 7a00");
    assert_eq!(referring().pack(&values, Eight), Ok(expected.clone()));
    values.push(("n", 2.into()));
    assert_eq!(referring().pack(&values, Eight), Ok(expected));
    values.pop();
    for (name, value, expected) in [
        ("n", 3, "property list: expected the number of elements that its count states"),
        ("size", 2, "property text: expected the number of bytes that its length states"),
        ("other", 2, "there is no property other"),
    ] {
        values.push((name, value.into()));
        let error = referring().pack(&values, Eight).unwrap_err();
        assert_eq!(error.to_string(), expected);
        values.pop();
    }
    values[2].1 = OwnedValue::list([OwnedValue::structure([("other", 1)]), point(b"")]);
    assert_eq!(referring().pack(&values, Eight), Err(Error::NoProperty("other".into())));
}

#[test]
fn the_length_of_a_member_can_precede_its_structure() {
    let schema = schema(vec![
        Field::new("size", InType::U8),
        Field::new("inner", InType::Struct { members: 1 }),
        Field { length: Length::Field(0), ..Field::new("text", InType::Ansi) },
    ]);
    let values = [("inner", OwnedValue::structure([("text", "abc")]))];
    assert_eq!(schema.pack(&values, Eight), Ok(b"\x03abc".to_vec()));
}

#[test]
fn missing_values_are_errors_or_zeros() {
    let none: [(&str, OwnedValue); 0] = [];
    let schema = referring();
    assert_eq!(schema.pack(&none, Eight), Err(Error::NotGiven("n".into())));
    let empty = hex("0000 00 00000000 00000000 00 00");
    assert_eq!(schema.pack_incomplete(&none, Eight), Ok(empty));
    let counted = [("n", OwnedValue::from(2)), ("last", "z".into())];
    assert_eq!(
        schema.pack_incomplete(&counted, Eight),
        Ok(hex("0200 0000 0000 00 00000000 00000000 00 7a00"))
    );
    assert_eq!(schema.pack(&counted, Eight), Err(Error::NotGiven("list".into())));
    let wrong = [("last", OwnedValue::from(45))];
    assert!(matches!(schema.pack_incomplete(&wrong, Eight), Err(Error::WrongType { .. })));
}

#[test]
fn zeros_of_every_type_can_be_read() {
    use InType::*;
    for in_type in [
        Null,
        Utf16,
        Ansi,
        I8,
        U8,
        I16,
        U16,
        I32,
        U32,
        I64,
        U64,
        F32,
        F64,
        Bool32,
        Bool8,
        Binary,
        CountedBinary,
        Guid,
        Pointer,
        FileTime,
        SystemTime,
        Sid,
        WbemSid,
        HexInt32,
        HexInt64,
        CountedUtf16,
        CountedAnsi,
        Utf16Char,
        AnsiChar,
        RawTime,
    ] {
        for (length, count) in [
            (Length::Natural, Count::One),
            (Length::Fixed(3), Count::One),
            (Length::Natural, Count::Fixed(2)),
            (Length::Natural, Count::Prefixed),
            (Length::Natural, Count::Rest),
        ] {
            let field = Field { length, count, ..stored(in_type) };
            let schema = schema(vec![field, Field::new("after", InType::U32)]);
            let values = [("after", OwnedValue::from(7))];
            let payload = schema.pack_incomplete(&values, Four).unwrap();
            let read: Vec<_> = schema.decode(&payload, Four).collect();
            let takes_all = count == Count::Rest || (in_type, length) == (Binary, Length::Natural);
            if !takes_all {
                assert_eq!(read.len(), 2, "{in_type:?} {length:?} {count:?}: {read:?}");
                let after = read[1].as_ref().unwrap().item.value().unwrap();
                assert_eq!(after.as_u64(), Some(7), "{in_type:?} {length:?} {count:?}");
            }
        }
    }
}

#[test]
fn the_size_of_payloads_is_limited() {
    let numbers =
        schema(vec![Field::new("n", InType::U32), count(Count::Field(0), Field::new("list", InType::U64))]);
    let values = [("n", OwnedValue::from(u32::MAX))];
    let expected = Error::Content { property: "list".into(), expected: "a payload of less than 64 KiB" };
    assert_eq!(numbers.pack_incomplete(&values, Eight), Err(expected));
    let long = schema(vec![stored(InType::Ansi)]);
    assert!(long.pack(&[("p", OwnedValue::from("x".repeat(0x10000)))], Eight).is_err());
}

#[test]
fn the_last_terminator_can_be_removed() {
    for (last, value, expected) in [
        (stored(InType::Utf16), OwnedValue::from("ab"), "6100 6200"),
        (stored(InType::Ansi), "ab".into(), "6162"),
        (stored(InType::CountedAnsi), "ab".into(), "0200 6162"),
        (stored(InType::U16), 0.into(), "0000"),
    ] {
        let schema = schema(vec![last]);
        let mut payload = schema.pack(&[("p", value)], Eight).unwrap();
        schema.trim_last_nul(&mut payload);
        assert_eq!(payload, hex(expected));
    }
}

#[test]
fn properties_with_the_same_name_take_one_value_each() {
    let schema = schema(vec![stored(InType::U8), stored(InType::U8)]);
    let one = ("p", OwnedValue::from(1));
    assert_eq!(schema.pack(&[one.clone(), ("p", 2.into())], Eight), Ok(vec![1, 2]));
    assert_eq!(schema.pack(&[one], Eight), Err(Error::NotGiven("p".into())));
}

/// The content of a payload as values to pack.
fn owned(schema: &Schema, payload: &[u8], pointer: PointerSize) -> Vec<(String, OwnedValue)> {
    let decoder = schema.decode(payload, pointer).map_while(Result::ok);
    decoder.map(|one| (one.field.name.to_string(), OwnedValue::of(one.field, &one.item))).collect()
}

#[test]
fn decoded_values_can_be_packed() {
    let field = |in_type, bytes: &'static [u8]| (stored(in_type), bytes);
    for (field, bytes) in [
        // Invalid UTF-16, and 8-bit text that is not UTF-8.
        field(InType::Utf16, b"\x00\xd8a\0\0\0"),
        field(InType::Ansi, b"\xe4\0"),
        field(InType::WbemSid, &[0; 4]),
        (shown(InType::U16, OutType::Port), b"\x01\xbb"),
        (count(Count::Fixed(2), stored(InType::Utf16Char)), b"\x00\xd8a\0"),
    ] {
        let schema = schema(vec![field]);
        assert_eq!(schema.pack(&owned(&schema, bytes, Four), Four).as_deref(), Ok(bytes));
    }
}

/// One or two fields, and the value for one of them.
fn parts() -> impl Strategy<Value = Vec<(Part, String)>> {
    let part = prop::sample::select(vec![
        Part::CountedList,
        Part::CountedText(InType::Utf16),
        Part::CountedText(InType::Ansi),
        Part::CountedText(InType::Binary),
        Part::Fixed(InType::Utf16),
        Part::Fixed(InType::Ansi),
        Part::Chars(InType::Utf16Char),
        Part::Chars(InType::AnsiChar),
        Part::Nested,
    ]);
    prop::collection::vec((part, "[a-zäß🦊]{0,9}"), 0..6)
}

#[derive(Clone, Copy, Debug)]
enum Part {
    /// A count, and an array with this number of elements.
    CountedList,
    /// A length, and a text or binary field of this length.
    CountedText(InType),
    /// A text in a field of fixed size.
    Fixed(InType),
    /// A text in an array of characters of fixed size.
    Chars(InType),
    /// A length, and a text of this length in a structure.
    Nested,
}

impl Part {
    fn add(self, text: &str, fields: &mut Vec<Field>, values: &mut Vec<(String, OwnedValue)>) {
        let index = fields.len() as u16;
        let name = |offset: u16| format!("f{}", index + offset);
        let number = |at| Field::new(name(at), if text.len() < 5 { InType::U8 } else { InType::U32 });
        let (at, value) = match self {
            Part::CountedList => {
                fields.push(number(0));
                fields.push(count(Count::Field(index), Field::new(name(1), InType::U16)));
                (1, OwnedValue::list(text.encode_utf16()))
            }
            Part::CountedText(in_type) => {
                fields.push(number(0));
                fields.push(Field { length: Length::Field(index), ..Field::new(name(1), in_type) });
                (1, if in_type == InType::Binary { text.as_bytes().into() } else { text.into() })
            }
            Part::Fixed(in_type) => {
                fields.push(Field { length: Length::Fixed(40), ..Field::new(name(0), in_type) });
                (0, text.into())
            }
            Part::Chars(in_type) => {
                fields.push(count(Count::Fixed(40), Field::new(name(0), in_type)));
                (0, text.into())
            }
            Part::Nested => {
                fields.push(number(0));
                fields.push(Field::new(name(1), InType::Struct { members: 1 }));
                fields.push(Field { length: Length::Field(index), ..Field::new("inner", InType::Ansi) });
                (1, OwnedValue::structure([("inner", text)]))
            }
        };
        values.push((name(at), value));
    }
}

fn is_bool(shape: &Shape) -> bool {
    match shape {
        Shape::Leaf(in_type, _) => *in_type == InType::Bool32,
        Shape::Struct(members, _) => members.iter().any(is_bool),
    }
}

proptest! {
    /// Packing the decoded values of any payload gives the same payload. Any number except zero is
    /// true, so payloads with Booleans are only compared by their values.
    #[test]
    fn decoding_and_packing_are_inverse(shapes in shapes(), seed: u64, pointer in pointer_sizes()) {
        let mut fields = Vec::new();
        flatten(&shapes, &mut fields);
        let schema = schema(fields);
        let mut writer = Writer::new(seed, pointer);
        let expected = writer.fields(&shapes);
        let values = owned(&schema, &writer.payload, pointer);
        let packed = schema.pack(&values, pointer).unwrap();
        prop_assert_eq!(debug(schema.decode(&packed, pointer)), expected);
        if !shapes.iter().any(is_bool) {
            prop_assert_eq!(packed, writer.payload);
        }
    }

    /// Decoding a packed payload gives the same values. Counts and lengths are computed.
    #[test]
    fn packing_and_decoding_are_inverse(parts in parts(), pointer in pointer_sizes()) {
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for (part, text) in &parts {
            part.add(text, &mut fields, &mut values);
        }
        let schema = schema(fields);
        let payload = schema.pack(&values, pointer).unwrap();
        let mut read = schema.decode(&payload, pointer).map(Result::unwrap);
        for (name, value) in &values {
            let read = read.find(|read| *read.field.name == **name).unwrap();
            let text = match &read.item {
                Item::Array(array) => array.text(),
                _ => None,
            };
            let given = match (value, text) {
                (OwnedValue::Text(given), Some(text)) => { prop_assert_eq!(given, &*text); continue }
                (value, _) => value,
            };
            prop_assert_eq!(&OwnedValue::of(read.field, &read.item), given);
        }
        prop_assert!(read.next().is_none());
        let empty: [(&str, OwnedValue); 0] = [];
        let zeros = schema.pack_incomplete(&empty, pointer).unwrap();
        prop_assert!(schema.decode(&zeros, pointer).all(|read| read.is_ok()));
    }
}

#[test]
fn typed_values_are_converted() {
    let date = SystemTime::from([1, 2, 3, 4, 5, 6, 7, 8]);
    for (value, expected) in [
        (OwnedValue::from(Pid(7)), OwnedValue::Unsigned(7)),
        (FileTime(7).into(), OwnedValue::FileTime(FileTime(7))),
        (RawTime(7).into(), OwnedValue::RawTime(RawTime(7))),
        (date.into(), OwnedValue::SystemTime(date)),
        (Sid(&[1, 0]).into(), OwnedValue::Sid(vec![1, 0])),
        (utf16("a").into(), OwnedValue::Bytes(vec![97, 0])),
    ] {
        assert_eq!(value, expected);
    }
}
