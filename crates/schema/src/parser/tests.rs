//! Tests of the types that properties can and cannot be read as.

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use proptest::prelude::*;
use stackhound_types::{
    Address, FileTime, Guid, Pid,
    PointerSize::{Eight, Four},
    RawTime, Tid,
};

use super::*;
use crate::model::{Length, Map, MapKind, OutType, Value};
use crate::testing::{hex, malicious_schemas, pointer_sizes, schema, utf16, utf16z};
use crate::text::{Ansi, Utf16};
use stackhound_types::Sid;

fn plan(fields: Vec<Field>) -> Plan {
    Plan::new(Arc::new(schema(fields)))
}

fn shown(in_type: InType, out_type: OutType) -> Field {
    Field { out_type, ..Field::new("p", in_type) }
}

fn stored(in_type: InType) -> Field {
    Field::new("p", in_type)
}

/// Reads a single property as `T`: the value, `other type`, or another error.
fn read<'e, T: FromEtw<'e> + Debug>(plan: &'e Plan, payload: &'e [u8]) -> String {
    match plan.parser(payload, Eight).parse::<T>("p") {
        Ok(value) => format!("{value:?}"),
        Err(Error::WrongType { property, requested, .. }) => {
            assert_eq!((&*property, requested), ("p", T::TYPE_NAME));
            "other type".into()
        }
        Err(error) => error.to_string(),
    }
}

/// Reads the property as each of the types. Types that are not in `accepted` must return
/// `WrongType`.
#[track_caller]
fn check(field: Field, payload: &[u8], accepted: &[(&str, &str)]) {
    let description = format!("{field:?}");
    let plan = plan(vec![field]);
    type Read = for<'e> fn(&'e Plan, &'e [u8]) -> String;
    let types: [(&str, Read); 30] = [
        ("u8", |plan, payload| read::<u8>(plan, payload)),
        ("u16", |plan, payload| read::<u16>(plan, payload)),
        ("u32", |plan, payload| read::<u32>(plan, payload)),
        ("u64", |plan, payload| read::<u64>(plan, payload)),
        ("i8", |plan, payload| read::<i8>(plan, payload)),
        ("i16", |plan, payload| read::<i16>(plan, payload)),
        ("i32", |plan, payload| read::<i32>(plan, payload)),
        ("i64", |plan, payload| read::<i64>(plan, payload)),
        ("f32", |plan, payload| read::<f32>(plan, payload)),
        ("f64", |plan, payload| read::<f64>(plan, payload)),
        ("bool", |plan, payload| read::<bool>(plan, payload)),
        ("Guid", |plan, payload| read::<Guid>(plan, payload)),
        ("Address", |plan, payload| read::<Address>(plan, payload)),
        ("Pid", |plan, payload| read::<Pid>(plan, payload)),
        ("Tid", |plan, payload| read::<Tid>(plan, payload)),
        ("Sid", |plan, payload| read::<Sid<'_>>(plan, payload)),
        ("IpAddr", |plan, payload| read::<IpAddr>(plan, payload)),
        ("SocketAddr", |plan, payload| read::<SocketAddr>(plan, payload)),
        ("FileTime", |plan, payload| read::<FileTime>(plan, payload)),
        ("RawTime", |plan, payload| read::<RawTime>(plan, payload)),
        ("SystemTime", |plan, payload| read::<SystemTime>(plan, payload)),
        ("bytes", |plan, payload| read::<&[u8]>(plan, payload)),
        ("Utf16", |plan, payload| read::<Utf16<'_>>(plan, payload)),
        ("Ansi", |plan, payload| read::<Ansi<'_>>(plan, payload)),
        ("text", |plan, payload| read::<Cow<'_, str>>(plan, payload)),
        ("EnumText", |plan, payload| read::<EnumText<'_>>(plan, payload)),
        ("Flags", |plan, payload| read::<Flags<'_>>(plan, payload)),
        ("Structure", |plan, payload| read::<Structure<'_>>(plan, payload)),
        ("Vec<u8>", |plan, payload| read::<Vec<u8>>(plan, payload)),
        ("Vec<u32>", |plan, payload| read::<Vec<u32>>(plan, payload)),
    ];
    for (name, read) in types {
        let expected = accepted.iter().find(|(accepted, _)| *accepted == name);
        let expected = expected.map_or("other type", |(_, value)| value);
        assert_eq!(read(&plan, payload), expected, "{description} as {name}");
    }
    assert!(accepted.iter().all(|(name, _)| types.iter().any(|(known, _)| known == name)));
}

#[test]
fn integers_are_read_as_wider_types_only() {
    use InType::*;
    for (in_type, payload, accepted) in [
        (U8, "fe", "u8=254 u16=254 u32=254 u64=254 i16=254 i32=254 i64=254 Pid=Pid(254) Tid=Tid(254)"),
        (U16, "feff", "u16=65534 u32=65534 u64=65534 i32=65534 i64=65534 Pid=Pid(65534) Tid=Tid(65534)"),
        (
            U32,
            "feffffff",
            "u32=4294967294 u64=4294967294 i64=4294967294 Pid=Pid(4294967294) Tid=Tid(4294967294) \
             Address=0xfffffffe",
        ),
        (
            HexInt32,
            "78563412",
            "u32=305419896 u64=305419896 i64=305419896 Pid=Pid(305419896) Tid=Tid(305419896) \
             Address=0x12345678",
        ),
        (U64, "0100000000000080", "u64=9223372036854775809 Address=0x8000000000000001"),
        (HexInt64, "0100000000000080", "u64=9223372036854775809 Address=0x8000000000000001"),
        (Pointer, "0100000000000080", "u64=9223372036854775809 Address=0x8000000000000001"),
        (I8, "fe", "i8=-2 i16=-2 i32=-2 i64=-2"),
        (I16, "feff", "i16=-2 i32=-2 i64=-2"),
        (I32, "feffffff", "i32=-2 i64=-2"),
        (I64, "feffffffffffffff", "i64=-2"),
    ] {
        let accepted: Vec<_> = accepted.split_whitespace().map(|row| row.split_once('=').unwrap()).collect();
        check(stored(in_type), &hex(payload), &accepted);
    }
}

#[test]
fn the_out_type_of_a_number_does_not_restrict_its_types() {
    use OutType::*;
    let pids =
        [("u32", "7"), ("u64", "7"), ("i64", "7"), ("Pid", "Pid(7)"), ("Tid", "Tid(7)"), ("Address", "0x7")];
    for out_type in [Pid, Tid, Hex, Unsigned] {
        check(shown(InType::U32, out_type), &[7, 0, 0, 0], &pids);
    }
    // Codes are compared with signed and with unsigned constants.
    let code = [
        ("u32", "3221225506"),
        ("i32", "-1073741790"),
        ("u64", "3221225506"),
        ("i64", "3221225506"),
        ("Pid", "Pid(3221225506)"),
        ("Tid", "Tid(3221225506)"),
        ("Address", "0xc0000022"),
    ];
    for out_type in [NtStatus, HResult, Win32Error] {
        check(shown(InType::U32, out_type), &hex("220000c0"), &code);
        check(shown(InType::HexInt32, out_type), &hex("220000c0"), &code);
    }
    let signed = [
        ("u32", "3221225506"),
        ("i32", "-1073741790"),
        ("i64", "-1073741790"),
        ("Pid", "Pid(3221225506)"),
        ("Tid", "Tid(3221225506)"),
    ];
    check(shown(InType::I32, NtStatus), &hex("220000c0"), &signed);
    // Ports are stored in network byte order and read as numbers.
    let port = ["u16", "u32", "u64", "i32", "i64"].map(|name| (name, "443"));
    let ids = [("Pid", "Pid(443)"), ("Tid", "Tid(443)")];
    check(shown(InType::U16, Port), &hex("01bb"), &[&port[..], &ids].concat());
}

#[test]
fn other_values_are_read_as_their_own_types() {
    use InType::*;
    check(stored(F32), &1.5_f32.to_le_bytes(), &[("f32", "1.5"), ("f64", "1.5")]);
    check(stored(F64), &1.5_f64.to_le_bytes(), &[("f64", "1.5")]);
    check(stored(Bool32), &[0, 1, 0, 0], &[("bool", "true")]);
    check(stored(Bool8), &[0], &[("bool", "false")]);
    check(stored(FileTime), &[9, 0, 0, 0, 0, 0, 0, 0], &[("FileTime", "FileTime(9)")]);
    check(stored(RawTime), &[9, 0, 0, 0, 0, 0, 0, 0], &[("RawTime", "RawTime(9)")]);
    let guid = "{00112233-4455-6677-8899-aabbccddeeff}";
    check(stored(Guid), &hex("33221100 5544 7766 8899aabbccddeeff"), &[("Guid", guid)]);
    let date = "SystemTime { year: 2024, month: 2, day_of_week: 4, day: 29, hour: 23, minute: 59, second: 58, \
                millisecond: 999 }";
    check(stored(SystemTime), &hex("e807 0200 0400 1d00 1700 3b00 3a00 e703"), &[("SystemTime", date)]);
    let sid = hex("01 01 000000000005 12000000");
    check(stored(Sid), &sid, &[("Sid", &*format!("Sid({sid:?})"))]);
    check(stored(Binary), &[1, 2], &[("bytes", "[1, 2]"), ("Vec<u8>", "[1, 2]")]);
    check(stored(CountedBinary), &[1, 0, 9], &[("bytes", "[9]"), ("Vec<u8>", "[9]")]);
    let as_date = [("i64", "9"), ("u64", "9"), ("FileTime", "FileTime(9)"), ("Address", "0x9")];
    check(shown(U64, OutType::DateTime), &[9, 0, 0, 0, 0, 0, 0, 0], &[&as_date[1..]].concat());
}

#[test]
fn text_is_read_in_its_own_encoding_only() {
    let both = |view| [(view, "\"aä\""), ("text", "\"aä\"")];
    for (field, payload, accepted) in [
        (stored(InType::Utf16), utf16z("aä"), both("Utf16")),
        // The last text of a payload may lack its terminator.
        (stored(InType::Utf16), utf16("aä"), both("Utf16")),
        (stored(InType::CountedUtf16), [vec![4, 0], utf16("aä")].concat(), both("Utf16")),
        (stored(InType::Ansi), b"a\xc3\xa4\0".to_vec(), both("Ansi")),
        (stored(InType::Ansi), b"a\xc3\xa4".to_vec(), both("Ansi")),
        (stored(InType::Ansi), b"a\xe4\0".to_vec(), both("Ansi")),
        (stored(InType::CountedAnsi), b"\x03\0a\xc3\xa4".to_vec(), both("Ansi")),
        (
            Field { count: Count::Fixed(4), ..stored(InType::Utf16Char) },
            [utf16z("aä"), vec![7, 0]].concat(),
            both("Utf16"),
        ),
    ] {
        check(field, &payload, &accepted);
    }
    let xml = Field { out_type: OutType::Xml, ..stored(InType::Binary) };
    check(
        xml,
        b"<a/>",
        &[("text", "\"<a/>\""), ("bytes", "[60, 97, 47, 62]"), ("Vec<u8>", "[60, 97, 47, 62]")],
    );
}

#[test]
fn network_addresses_are_read() {
    use InType::{Binary, U32};
    let four = [
        ("u32", "16777343"),
        ("u64", "16777343"),
        ("i64", "16777343"),
        ("Pid", "Pid(16777343)"),
        ("Tid", "Tid(16777343)"),
        ("Address", "0x100007f"),
        ("IpAddr", "127.0.0.1"),
    ];
    check(shown(U32, OutType::Ipv4), &[127, 0, 0, 1], &four);
    let rows = |bytes: &[u8], name: &'static str, value: &str| {
        let bytes = format!("{bytes:?}");
        vec![("bytes", bytes.clone()), ("Vec<u8>", bytes), (name, value.to_owned())]
    };
    let six = hex("20010db8 00000000 00000000 00000001");
    let v4 = hex("0200 01bb 7f000001 0000000000000000");
    let v6 = hex("1700 01bb 00000000 20010db8000000000000000000000001 03000000");
    for (out_type, bytes, name, expected) in [
        (OutType::Ipv6, &six[..], "IpAddr", "2001:db8::1"),
        (OutType::Ipv6, &six[..9], "IpAddr", "property p: expected an address of 4 or 16 bytes"),
        (OutType::SocketAddress, &v4, "SocketAddr", "127.0.0.1:443"),
        (OutType::SocketAddress, &v4[..8], "SocketAddr", "127.0.0.1:443"),
        (OutType::SocketAddress, &v6, "SocketAddr", "[2001:db8::1%3]:443"),
        (OutType::SocketAddress, &v6[..24], "SocketAddr", "[2001:db8::1]:443"),
        (
            OutType::SocketAddress,
            &v6[..23],
            "SocketAddr",
            "property p: expected an IPv4 or IPv6 socket address",
        ),
    ] {
        let accepted = rows(bytes, name, expected);
        let accepted: Vec<(&str, &str)> = accepted.iter().map(|(a, b)| (*a, &**b)).collect();
        check(shown(Binary, out_type), bytes, &accepted);
    }
}

fn mapped(kind: MapKind) -> Plan {
    let entries = vec![(1, "one".into()), (2, "two".into())];
    let map = Arc::new(Map { name: "Names".into(), kind, entries });
    plan(vec![Field { map: Some(map), ..stored(InType::U32) }])
}

#[test]
fn mapped_numbers_have_texts() {
    for (kind, number, name, text) in [
        (MapKind::Values, 2_u32, Some("two"), "two"),
        (MapKind::Values, 3, None, "3"),
        (MapKind::Bits, 3, None, "one|two"),
        (MapKind::Bits, 5, None, "one|0x4"),
        (MapKind::Bits, 0, None, "0"),
    ] {
        let (plan, payload) = (mapped(kind), number.to_le_bytes());
        let parser = plan.parser(&payload, Eight);
        assert_eq!(parser.parse::<u32>("p"), Ok(number));
        assert_eq!(parser.parse::<Cow<'_, str>>("p").unwrap(), text);
        assert_eq!(parser.parse::<String>("p").unwrap(), text);
        let value = parser.parse::<EnumText<'_>>("p");
        let flags = parser.parse::<Flags<'_>>("p");
        if kind == MapKind::Values {
            assert_eq!(value, Ok(EnumText { value: number.into(), text: name }));
            assert!(matches!(flags, Err(Error::WrongType { .. })));
        } else {
            let flags = flags.unwrap();
            assert_eq!(flags.to_string(), text);
            assert_eq!(flags.unnamed(), u64::from(number & !3));
            assert_eq!(flags.names().count() as u32, (number & 3).count_ones());
            assert!(matches!(value, Err(Error::WrongType { .. })));
        }
    }
    assert_eq!(
        mapped(MapKind::Values).parser(&[2, 0, 0, 0], Eight).parse::<EnumText<'_>>("p").unwrap().to_string(),
        "two"
    );
}

#[test]
fn arrays_and_structures_are_read_by_their_elements_and_members() {
    let count = |count, field| Field { count, ..field };
    let plan = plan(vec![
        Field::new("n", InType::U16),
        count(Count::Field(0), Field::new("numbers", InType::U16)),
        count(Count::Fixed(2), Field::new("points", InType::Struct { members: 2 })),
        Field::new("x", InType::U8),
        Field::new("label", InType::Ansi),
        Field::new("one", InType::Struct { members: 1 }),
        Field::new("x", InType::U32),
        count(Count::Fixed(3), Field::new("raw", InType::U8)),
        Field::padding(2),
        Field::new("last", InType::U32),
    ]);
    let payload = hex("0200 0700 0800 01 6100 02 626200 04000000 010203 ffff 05000000");
    let parser = plan.parser(&payload, Four);
    assert_eq!(parser.parse::<Vec<u32>>("numbers").unwrap(), [7, 8]);
    assert_eq!(parser.parse::<Vec<u16>>("numbers").unwrap(), [7, 8]);
    assert!(matches!(parser.parse::<Vec<u8>>("numbers"), Err(Error::WrongType { .. })));
    assert!(matches!(parser.parse::<u32>("numbers"), Err(Error::WrongType { .. })));
    let points: Vec<Structure<'_>> = parser.parse("points").unwrap();
    let read: Vec<(u8, String)> =
        points.iter().map(|point| (point.parse("x").unwrap(), point.parse("label").unwrap())).collect();
    assert_eq!(read, [(1, "a".into()), (2, "bb".into())]);
    assert_eq!(points[1].parse::<Ansi<'_>>("label").unwrap().bytes(), b"bb");
    let one: Structure<'_> = parser.parse("one").unwrap();
    assert_eq!(one.parse("x"), Ok(4_u32));
    assert_eq!(one.try_parse::<u8>("x"), None);
    assert_eq!(one.parse::<u8>("y"), Err(Error::NoProperty("y".into())));
    assert_eq!(one.parse::<Option<u8>>("y"), Ok(None));
    assert_eq!(one.iter().count(), 1);
    assert_eq!(parser.parse::<&[u8]>("raw").unwrap(), [1, 2, 3]);
    assert_eq!(parser.parse::<Vec<u8>>("raw").unwrap(), [1, 2, 3]);
    assert_eq!(parser.parse("last"), Ok(5_u32));
    assert_eq!(parser.value("n").unwrap().value(), Some(Value::Unsigned(2)));
    assert!(matches!(parser.value("points"), Ok(Item::Array(points)) if points.len() == 2));
    // Members are not properties of the event, and padding is not a property.
    assert_eq!(parser.parse::<u8>("label"), Err(Error::NoProperty("label".into())));
    let names: Vec<&str> = plan.schema().properties().map(|(_, field)| &*field.name).collect();
    assert_eq!(names, ["n", "numbers", "points", "one", "raw", "last"]);
    assert_eq!(parser.iter().count(), names.len());
}

#[test]
fn bytes_are_returned_as_they_are_stored() {
    let plan = plan(vec![
        Field::new("text", InType::Utf16),
        Field::new("counted", InType::CountedAnsi),
        Field { count: Count::Prefixed, ..Field::new("list", InType::U16) },
        Field::new("number", InType::U32),
    ]);
    let payload = hex("61000000 0100 62 0100 0900 01020304");
    let parser = plan.parser(&payload, Eight);
    for (name, expected) in
        [("text", "61000000"), ("counted", "010062"), ("list", "01000900"), ("number", "01020304")]
    {
        assert_eq!(parser.bytes(name).unwrap(), hex(expected), "{name}");
    }
    assert_eq!(parser.bytes("other"), Err(Error::NoProperty("other".into())));
}

#[test]
fn missing_properties_are_reported() {
    let plan =
        plan(vec![stored(InType::U32), Field::new("sid", InType::WbemSid), Field::new("q", InType::U8)]);
    let payload = hex("01000000 00000000 02");
    let parser = plan.parser(&payload, Eight);
    assert_eq!(parser.parse::<u32>("other"), Err(Error::NoProperty("other".into())));
    assert_eq!(parser.parse::<Option<u32>>("other"), Ok(None));
    assert_eq!(parser.parse::<Option<u32>>("p"), Ok(Some(1)));
    assert_eq!(parser.parse::<Option<Sid<'_>>>("sid"), Ok(None));
    assert!(matches!(parser.parse::<Sid<'_>>("sid"), Err(Error::WrongType { .. })));
    assert_eq!((parser.try_parse::<u8>("q"), parser.try_parse::<u16>("other")), (Some(2), None));
    assert_eq!(parser.try_parse::<Option<u16>>("other"), Some(None));
    // A payload that ends too early is not a missing property.
    let short = plan.parser(&payload[..3], Eight);
    assert!(matches!(short.parse::<u32>("p"), Err(Error::Payload { .. })));
    assert!(matches!(short.parse::<Option<u32>>("p"), Err(Error::Payload { .. })));
    assert!(matches!(short.parse::<u8>("q"), Err(Error::Payload { .. })));
    assert_eq!(short.try_parse::<u32>("p"), None);
}

#[test]
fn errors_name_the_property_and_both_types() {
    let several = Field { count: Count::Fixed(2), ..stored(InType::U16) };
    for (field, expected) in [
        (stored(InType::Utf16), "property p is Utf16, not u32"),
        (shown(InType::Binary, OutType::Ipv6), "property p is Binary shown as Ipv6, not u32"),
        (several, "property p is an array of U16, not u32"),
        (stored(InType::Struct { members: 0 }), "property p is a structure, not u32"),
    ] {
        let plan = plan(vec![field]);
        let error = plan.parser(&[0; 32], Eight).parse::<u32>("p").unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn utf16_text_is_compared_and_printed() {
    let plan = plan(vec![stored(InType::Utf16)]);
    let payload = utf16z("grün🦊");
    let text: Utf16<'_> = plan.parser(&payload, Eight).parse("p").unwrap();
    assert!(text == "grün🦊" && text != "grün" && text != "Grün🦊");
    assert_eq!((text.len(), text.is_empty(), text.to_string()), (6, false, "grün🦊".to_owned()));
    assert_eq!(text.units().count(), 6);
    let broken = [0x00, 0xd8, 0x61, 0x00];
    let text: Utf16<'_> = plan.parser(&broken, Eight).parse("p").unwrap();
    assert_eq!(text.to_string(), "\u{fffd}a");
}

proptest! {
    /// Reading one property gives the same value as reading all properties in order.
    #[test]
    fn one_property_reads_as_all_in_order(
        schema in malicious_schemas(),
        payload in prop::collection::vec(any::<u8>(), 0..60),
        pointer in pointer_sizes(),
    ) {
        let plan = Plan::new(Arc::new(schema));
        let parser = plan.parser(&payload, pointer);
        let all: Vec<_> = parser.iter().map_while(Result::ok).collect();
        for decoded in &all {
            if let Item::Value(value) = decoded.item {
                let read = plan.value(&payload, pointer, decoded.index);
                prop_assert!(read == Ok(value) || read.is_err(), "{read:?} instead of {value:?}");
            }
        }
        for (property, field) in plan.schema().properties() {
            let _ = (parser.parse_at::<u64>(property), parser.parse_at::<String>(property));
            let _ = (parser.parse_at::<Vec<u16>>(property), parser.bytes(&field.name));
            let _ = parser.parse_at::<Vec<Structure<'_>>>(property);
        }
    }
}

#[test]
fn a_property_id_of_another_schema_is_rejected_or_read_by_its_index() {
    let (long, short) = (plan(vec![Field::padding(1), stored(InType::U8)]), plan(vec![stored(InType::U8)]));
    let property = long.schema().property("p").unwrap();
    assert!(matches!(short.parser(&[1], Eight).parse_at::<u8>(property), Err(Error::Payload { .. })));
    let text =
        plan(vec![Field { length: Length::Fixed(1), ..Field::new("t", InType::Ansi) }, stored(InType::U8)]);
    assert_eq!(text.parser(&[1, 2], Eight).parse_at::<u8>(property), Ok(2));
}
