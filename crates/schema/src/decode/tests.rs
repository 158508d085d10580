use std::sync::Arc;

use proptest::prelude::*;
use stackhound_types::PointerSize::{self, Eight, Four};

use super::{Decoder, Item};
use crate::error::Error;
use crate::limits::MAX_EMPTY_ELEMENTS;
use crate::model::{Count, Field, InType, Length, Schema};
use crate::plan::Plan;
use crate::testing::{
    Writer, debug, decoded, flatten, hex, malicious_schemas, pointer_sizes, schema, shapes, utf16, utf16z,
};

fn field(name: &str, in_type: InType) -> Field {
    Field::new(name, in_type)
}

fn counted(name: &str, in_type: InType, count: Count) -> Field {
    Field { count, ..field(name, in_type) }
}

fn sized(name: &str, in_type: InType, length: Length) -> Field {
    Field { length, ..field(name, in_type) }
}

/// The payload, decoded along the fields with 8-byte pointers, reads as `expected`.
#[track_caller]
fn check(fields: Vec<Field>, payload: &[u8], expected: &str) {
    assert_eq!(decoded(&schema(fields), payload, Eight), expected);
}

#[test]
fn every_storage_type() {
    use InType::*;
    #[track_caller]
    fn one(in_type: InType, payload: &str, expected: &str) {
        check(vec![field("v", in_type)], &hex(payload), &format!("v={expected}"));
    }
    one(Null, "", "null");
    one(I8, "fe", "-2");
    one(U8, "fe", "254");
    one(I16, "feff", "-2");
    one(U16, "feff", "65534");
    one(I32, "feffffff", "-2");
    one(U32, "feffffff", "4294967294");
    one(I64, "feffffffffffffff", "-2");
    one(U64, "feffffffffffffff", "18446744073709551614");
    one(F32, "0000c03f", "1.5");
    one(F64, "000000000000f8bf", "-1.5");
    one(Bool32, "00010000", "true");
    one(Bool8, "00", "false");
    one(HexInt32, "efbeadde", "0xdeadbeef");
    one(HexInt64, "0100000000000080", "0x8000000000000001");
    one(Pointer, "0010a3fc7ff70000", "0xf77ffca31000");
    one(Guid, "ad4a819e0432d2119a82006008a86939", "9e814aad-3204-11d2-9a82-006008a86939");
    one(FileTime, "0080 3ed5 deb1 9d01", "1970-01-01T00:00:00.0000000Z");
    one(SystemTime, "e507 0900 0400 0900 0e00 3b00 2300 2203", "2021-09-09T14:59:35.8020000Z");
    one(RawTime, "0500000000000000", "5");
    one(Utf16, "4800e9000000", "Hé");
    one(Ansi, "48c3a900", "Hé");
    one(Ansi, "48e900", "Hé");
    one(Binary, "0a0b", "0x0a0b");
    one(CountedBinary, "02000a0b", "0x0a0b");
    one(CountedUtf16, "040048000000", "H\0");
    one(CountedAnsi, "02004849", "HI");
    one(Utf16Char, "e900", "é");
    one(AnsiChar, "41", "A");
    one(Sid, "0102 0000 0000 0005 20000000 20020000", "S-1-5-32-544");
    one(Sid, "0100 0000 0000 0005", "S-1-5");
    one(Sid, "0101 0100 0000 0005 07000000", "S-1-0x010000000005-7");
    one(WbemSid, "00000000", "null");
    one(WbemSid, "0100000000000000 0000000000000000 0101 0000 0000 0005 12000000", "S-1-5-18");
    one(WbemSid, "0000000000000000 0000000000000000 0101 0000 0000 0005 12000000", "S-1-5-18");
}

#[test]
fn padding_is_skipped() {
    let fields = || vec![field("a", InType::U8), Field::padding(3), field("b", InType::U32)];
    check(fields(), &hex("01 eeeeee 02000000 ff"), "a=1 b=2 +1");
    check(fields(), &hex("01 ee"), "a=1 !field 1 at payload offset 0x1: expected 3 bytes +1");
    let repeated = counted("s", InType::Struct { members: 2 }, Count::Fixed(2));
    let fields = vec![repeated, field("a", InType::U8), Field::padding(1), field("b", InType::U16)];
    check(fields, &hex("01ee 02ee 0300"), "s=[{a=1}, {a=2}] b=3");
}

#[test]
fn pointer_size_decides_pointers_and_token_images() {
    let schema = schema(vec![
        field("key", InType::Pointer),
        field("sid", InType::WbemSid),
        field("name", InType::Ansi),
    ]);
    let sid = "0101 0000 0000 0005 12000000";
    let name = "6100";
    let four = hex(&format!("01020304 ffffffff 00000000 {sid} {name}"));
    assert_eq!(decoded(&schema, &four, Four), "key=0x4030201 sid=S-1-5-18 name=a");
    let eight = hex(&format!("0102030405060708 ffffffff00000000 0000000000000000 {sid} {name}"));
    assert_eq!(decoded(&schema, &eight, Eight), "key=0x807060504030201 sid=S-1-5-18 name=a");
}

#[test]
fn texts_with_and_without_length() {
    let text = [utf16("ab"), utf16("\0c"), utf16("\0")].concat();
    check(vec![sized("t", InType::Utf16, Length::Fixed(5))], &text, "t=ab");
    check(vec![sized("t", InType::Utf16, Length::Rest)], &text, "t=ab\0c");
    check(vec![field("t", InType::Utf16), field("u", InType::Utf16)], &text, "t=ab u=c");
    let counted = vec![field("n", InType::U8), sized("t", InType::Utf16, Length::Field(0))];
    check(counted.clone(), &[&[5], &*text].concat(), "n=5 t=ab\0c");
    check(counted, &[&[2], &*text].concat(), "n=2 t=ab +6");
    let ansi = b"ab\0c\0";
    check(vec![sized("t", InType::Ansi, Length::Fixed(5))], ansi, "t=ab");
    check(vec![sized("t", InType::Ansi, Length::Rest)], ansi, "t=ab\0c");
    check(
        vec![field("n", InType::U16), sized("b", InType::Binary, Length::Field(0))],
        &hex("0300 010203 04"),
        "n=3 b=0x010203 +1",
    );
}

#[test]
fn the_last_text_may_lack_its_terminator() {
    check(vec![field("t", InType::Utf16)], &utf16("ab"), "t=ab");
    check(vec![field("t", InType::Utf16)], &[utf16("ab"), vec![7]].concat(), "t=ab +1");
    check(vec![field("t", InType::Ansi)], b"ab", "t=ab");
    check(vec![field("t", InType::Utf16)], &[], "!field 0 at payload offset 0x0: expected 2 bytes");
    check(vec![field("t", InType::Ansi)], &[], "!field 0 at payload offset 0x0: expected 1 byte");
}

#[test]
fn arrays_and_structures() {
    let count = field("n", InType::U16);
    check(
        vec![count.clone(), counted("a", InType::U16, Count::Field(0)), field("z", InType::U8)],
        &hex("0200 0100 0200 09"),
        "n=2 a=[1, 2] z=9",
    );
    check(vec![counted("a", InType::U16, Count::Fixed(0))], &[1], "a=[] +1");
    check(
        vec![counted("a", InType::Utf16, Count::Prefixed)],
        &[vec![2, 0], utf16z("x"), utf16z("yz")].concat(),
        "a=[x, yz]",
    );
    check(vec![counted("a", InType::U32, Count::Rest)], &hex("01000000 02000000 0300"), "a=[1, 2] +2");
    check(vec![counted("a", InType::Ansi, Count::Rest)], b"x\0yz", "a=[x, yz]");
    check(
        vec![
            count,
            counted("s", InType::Struct { members: 2 }, Count::Field(0)),
            field("id", InType::U8),
            field("inner", InType::Struct { members: 1 }),
            field("text", InType::Ansi),
            field("z", InType::U8),
        ],
        b"\x02\x00\x01one\0\x02two\0\x07",
        "n=2 s=[{id=1 inner={text=one}}, {id=2 inner={text=two}}] z=7",
    );
    // Within an array of structures, a length refers to the same element.
    check(
        vec![
            counted("s", InType::Struct { members: 2 }, Count::Rest),
            field("n", InType::U8),
            sized("b", InType::Binary, Length::Field(1)),
        ],
        &hex("01 aa 02 bbcc 00"),
        "s=[{n=1 b=0xaa}, {n=2 b=0xbbcc}, {n=0 b=0x}]",
    );
}

#[test]
fn arrays_of_characters_are_texts() {
    for (in_type, payload, expected) in [
        (InType::Utf16Char, utf16("ab\0"), Some("ab")),
        (InType::AnsiChar, b"abc".to_vec(), Some("abc")),
        (InType::U8, b"abc".to_vec(), None),
    ] {
        let schema = schema(vec![counted("a", in_type, Count::Fixed(3))]);
        let Some(Ok(decoded)) = schema.decode(&payload, Eight).next() else { panic!("{in_type:?}") };
        let Item::Array(array) = decoded.item else { panic!("{in_type:?}") };
        assert_eq!(array.text().as_deref(), expected);
    }
}

#[test]
fn a_short_payload_gives_the_fields_that_fit() {
    let fields = vec![field("a", InType::U32), field("b", InType::Utf16), field("c", InType::U64)];
    let payload = [vec![1, 0, 0, 0], utf16z("x"), vec![2; 7]].concat();
    check(fields.clone(), &payload, "a=1 b=x !field 2 at payload offset 0x8: expected 8 bytes +7");
    check(fields.clone(), &payload[..8], "a=1 b=x !field 2 at payload offset 0x8: expected 8 bytes");
    check(fields, &payload[..3], "!field 0 at payload offset 0x0: expected 4 bytes +3");
    check(
        vec![counted("a", InType::U16, Count::Prefixed), field("z", InType::U8)],
        &hex("0300 0100 0200 03"),
        "a=[1, 2] !field 0 at payload offset 0x6: expected 2 bytes +1",
    );
    let points = vec![
        counted("p", InType::Struct { members: 2 }, Count::Fixed(2)),
        field("x", InType::U8),
        field("y", InType::U8),
    ];
    check(points, &hex("010203"), "p=[{x=1 y=2}] !field 2 at payload offset 0x3: expected 1 byte +1");
    let point =
        vec![field("p", InType::Struct { members: 2 }), field("x", InType::U8), field("y", InType::U16)];
    check(
        point,
        &hex("0102"),
        "p={x=1 !field 2 at payload offset 0x1: expected 2 bytes} !field 2 at payload offset 0x1: expected 2 bytes +1",
    );
}

#[test]
fn wrong_payloads_are_errors() {
    let bad_sid = "!field 0 at payload offset 0x0: expected a security identifier +72";
    check(vec![field("s", InType::Sid)], &[&[1, 16][..], &[0; 70]].concat(), bad_sid);
    for (name, fields) in [
        ("later field", vec![counted("a", InType::U8, Count::Field(1)), field("n", InType::U8)]),
        ("itself", vec![field("x", InType::Null), counted("a", InType::U8, Count::Field(1))]),
        ("nowhere", vec![field("x", InType::Null), counted("a", InType::U8, Count::Field(99))]),
        ("a text", vec![field("x", InType::Ansi), counted("a", InType::U8, Count::Field(0))]),
        ("negative", vec![field("x", InType::I8), counted("a", InType::U8, Count::Field(0))]),
    ] {
        let text = decoded(&schema(fields), &[0xff, 0, 1], Eight);
        assert!(text.contains("expected a count or length in field"), "{name}: {text}");
    }
}

#[test]
fn elements_without_bytes_are_limited() {
    let limit = MAX_EMPTY_ELEMENTS as u16;
    let nulls = |count| schema(vec![counted("a", InType::Null, Count::Fixed(count))]);
    let Some(Ok(field)) = nulls(limit).decode(&[], Eight).next().map(|d| d.map(|d| format!("{:?}", d.item)))
    else {
        panic!("expected an array of nulls")
    };
    assert!(field.contains(&format!("count: {limit}")));
    assert!(decoded(&nulls(limit + 1), &[], Eight).contains("expected at most 1024 elements without bytes"));
    // Nested arrays share one budget.
    let nested = schema(vec![
        counted("s", InType::Struct { members: 1 }, Count::Fixed(u16::MAX)),
        counted("t", InType::Struct { members: 1 }, Count::Fixed(u16::MAX)),
        counted("a", InType::Null, Count::Fixed(u16::MAX)),
    ]);
    assert!(decoded(&nested, &[], Eight).contains("expected at most 1024 elements without bytes"));
    // Without bytes, an array to the end of the payload has no elements.
    check(vec![counted("a", InType::Null, Count::Rest)], &[1], "a=[] +1");
    check(vec![counted("a", InType::Struct { members: 0 }, Count::Rest)], &[1], "a=[] +1");
}

#[test]
fn structures_nest_eight_deep() {
    let nested = |depth: usize| {
        let mut fields = vec![field("s", InType::Struct { members: 1 }); depth];
        fields.push(field("v", InType::U8));
        decoded(&schema(fields), &[5], Eight)
    };
    assert_eq!(nested(8), "s={s={s={s={s={s={s={s={v=5}}}}}}}}");
    assert!(nested(9).contains("expected at most 8 levels of nested structures"));
}

#[test]
fn a_plan_reads_single_fields() {
    let plan = Plan::new(Arc::new(schema(vec![
        field("a", InType::U32),
        field("n", InType::U16),
        field("p", InType::Pointer),
        counted("fixed", InType::U8, Count::Fixed(2)),
        field("text", InType::Utf16),
        sized("b", InType::Binary, Length::Field(1)),
        field("s", InType::Struct { members: 1 }),
        field("member", InType::U8),
        field("z", InType::U8),
    ])));
    let payload = [hex("01000000 0300 1000000000000000 0708"), utf16z("x"), hex("aabbcc 05 06")].concat();
    for (name, expected) in [
        ("a", "Ok(Unsigned(1))"),
        ("p", "Ok(Pointer(16))"),
        ("fixed", "Err(Payload { field: 3, offset: 14, expected: SingleValue })"),
        ("text", "Ok(Utf16([120, 0]))"),
        ("b", "Ok(Binary([170, 187, 204]))"),
        ("s", "Err(Payload { field: 6, offset: 23, expected: SingleValue })"),
        ("z", "Ok(Unsigned(6))"),
    ] {
        let index = plan.schema().field_index(name).unwrap();
        assert_eq!(format!("{:?}", plan.value(&payload, Eight, index)), expected, "{name}");
    }
    assert_eq!(plan.schema().field_index("member"), None);
    assert!(plan.value(&payload, Four, 3).is_err());
    for not_top_level in [7, 9, usize::MAX] {
        assert!(plan.value(&payload, Eight, not_top_level).is_err());
    }
    assert!(plan.value(&payload[..10], Eight, 4).is_err());
}

/// Visits everything that a decoder yields, and checks properties that hold for any input.
fn visit(decoder: Decoder<'_>, visits: &mut usize) {
    check_values(decoder.clone());
    let mut decoder = decoder;
    let mut offset = decoder.offset();
    while let Some(decoded) = decoder.next() {
        *visits += 1;
        assert!(decoder.offset() >= offset);
        offset = decoder.offset();
        match decoded {
            Ok(decoded) => visit_item(decoded.item, visits),
            Err(_) => assert!(decoder.next().is_none(), "nothing follows an error"),
        }
    }
}

/// The values that are read without a copy of the state must be those of the iterator.
fn check_values(decoder: Decoder<'_>) {
    let (mut quick, mut all) = (decoder.clone(), decoder);
    while let Some(expected) = all.next() {
        match quick.next_value() {
            Some((index, field, value)) => {
                let expected = expected.unwrap();
                assert_eq!((index, field), (expected.index, expected.field));
                assert_eq!(format!("{value:?}"), format!("{:?}", expected.item.value().unwrap()));
            }
            None => assert_eq!(format!("{:?}", quick.next().unwrap()), format!("{expected:?}")),
        }
        assert_eq!(quick.offset(), all.offset());
    }
    assert!(quick.next_value().is_none() && quick.next().is_none());
}

fn visit_item(item: Item<'_>, visits: &mut usize) {
    match item {
        Item::Value(_) => {}
        Item::Array(array) => {
            if let Some(values) = array.values() {
                let all: Vec<_> = array.iter().map(|item| item.value().unwrap()).collect();
                assert_eq!(format!("{:?}", values.collect::<Vec<_>>()), format!("{all:?}"));
            }
            let elements = array.iter();
            assert_eq!(elements.len(), elements.map(|item| visit_item(item, visits)).count());
            *visits += array.len();
        }
        Item::Struct(members) => visit(members, visits),
    }
}

/// A plan must return the same items as the decoder, except that a truncated field is an error.
fn check_plan(schema: Schema, payload: &[u8], pointer: PointerSize) {
    let plan = Plan::new(Arc::new(schema));
    let all: Vec<_> = plan.decode(payload, pointer).collect();
    let failed = all.iter().find_map(|decoded| match decoded {
        Err(Error::Payload { field, .. }) => Some(*field),
        _ => None,
    });
    for decoded in all.iter().flatten() {
        let item = plan.item(payload, pointer, decoded.index);
        let own_and_members = decoded.index..plan.schema().after(decoded.index);
        if failed.is_some_and(|failed| own_and_members.contains(&failed)) {
            assert!(item.is_err());
        } else if let Some(value) = decoded.item.value() {
            let read = plan.value(payload, pointer, decoded.index).unwrap();
            assert_eq!(format!("{read:?}"), format!("{value:?}"));
        } else {
            assert!(plan.value(payload, pointer, decoded.index).is_err());
            let text = |item: &Item<'_>| match item {
                Item::Struct(members) => debug(members.clone()),
                Item::Array(array) => format!("{:?} {}", array.bytes(), array.len()),
                Item::Value(_) => String::new(),
            };
            assert_eq!(text(&item.unwrap()), text(&decoded.item));
        }
    }
}

proptest! {
    #[test]
    fn written_values_are_decoded(
        shapes in shapes(),
        seed: u64,
        pointer in pointer_sizes(),
        tail in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let mut fields = Vec::new();
        flatten(&shapes, &mut fields);
        let schema = schema(fields);
        let mut writer = Writer::new(seed, pointer);
        let expected = writer.fields(&shapes);
        prop_assert_eq!(debug(schema.decode(&writer.payload, pointer)), &*expected);

        let length = writer.payload.len();
        writer.payload.extend(&tail);
        let mut decoder = schema.decode(&writer.payload, pointer);
        decoder.by_ref().for_each(drop);
        prop_assert_eq!(decoder.rest(), &*tail);
        prop_assert_eq!(decoder.offset(), length);
        check_plan(schema, &writer.payload, pointer);
    }

    #[test]
    fn decoding_terminates_for_any_payload_and_schema(
        schema in malicious_schemas(),
        payload in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..300),
        pointer in pointer_sizes(),
    ) {
        let mut visits = 0;
        visit(schema.decode(&payload, pointer), &mut visits);
        // Every byte is in at most one field per level; every field and empty element counts once
        // per level.
        prop_assert!(visits <= (payload.len() + MAX_EMPTY_ELEMENTS) * 60, "{}", visits);
        check_plan(schema, &payload, pointer);
    }
}
