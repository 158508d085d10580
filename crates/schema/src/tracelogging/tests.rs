use proptest::prelude::*;
use stackhound_types::PointerSize::Eight;

use super::*;
use crate::testing::blocks::{event_metadata, field};
use crate::testing::{Shape, Writer, debug, decoded, flatten, hex, pointer_sizes, shapes, utf16z};

/// The payload, decoded along the descriptors, reads as `expected`.
#[track_caller]
fn check(fields: &[Vec<u8>], payload: &[u8], expected: &str) {
    let item = event_metadata("E", &fields.concat());
    let metadata = EventMetadata::parse(&item).unwrap();
    let schema = metadata.schema(Guid::ZERO, 0).unwrap();
    assert_eq!(decoded(&schema, payload, Eight), expected);
}

#[test]
fn types_are_read_with_and_without_an_out_type() {
    #[track_caller]
    fn one(descriptor: &str, payload: &str, expected: &str) {
        check(&[field("v", descriptor)], &hex(payload), &format!("v={expected}"));
    }
    one("00", "", "null");
    one("01", "480069000000", "Hi");
    one("02", "486900", "Hi");
    one("03", "ff", "-1");
    one("04", "ff", "255");
    one("84 02", "4d", "M");
    one("84 03", "01", "true");
    one("86 02", "4d00", "M");
    one("86 07", "01bb", "443");
    one("88 04", "ff000000", "0xff");
    one("88 05", "04000000", "4");
    one("88 08", "c0a80001", "192.168.0.1");
    one("87 0e", "220000c0", "0xc0000022");
    one("0b", "0000c03f", "1.5");
    one("0d", "01000000", "true");
    one("0e", "0200 0a0b", "0x0a0b");
    one("8e 09", "1000 20010db8000000000000000000000001", "2001:db8::1");
    one("10", "0010000000000000", "0x1000");
    one("11", "008044d5deb19d01", "1970-01-01T00:00:00.0393216Z");
    one("13", "0101 000000000005 12000000", "S-1-5-18");
    one("14", "ff000000", "0xff");
    one("95 25", "ff00000000000000", "0xff");
    one("16", "0400 48006900", "Hi");
    one("97 23", "0300 c3a921", "é!");
    one("19", "0100 0a", "0x0a");
    // Tags of one to four bytes may follow an out type. They have no effect.
    one("88 84 05", "ff000000", "0xff");
    one("88 84 81 82 83 05", "ff000000", "0xff");
    one("88 80 00", "ff000000", "255");
    // A custom field has type information in the metadata and a length in the payload.
    one("60 0300 aabbcc", "0200 0a0b", "0x0a0b");
    one("e8 84 01 0300 aabbcc", "0200 0a0b", "0x0a0b");
}

#[test]
fn arrays_and_structures() {
    check(&[field("a", "24 0300")], &hex("010203"), "a=[1, 2, 3]");
    check(&[field("a", "44")], &hex("0200 0102"), "a=[1, 2]");
    check(&[field("a", "c8 84 05")], &hex("0100 ff000000"), "a=[0xff]");
    check(&[field("a", "a8 04 0100")], &hex("ff000000"), "a=[0xff]");
    check(&[field("a", "41")], &[vec![2, 0], utf16z("x"), utf16z("yz")].concat(), "a=[x, yz]");
    check(
        &[field("s", "98 02"), field("b", "01"), field("c", "02"), field("d", "04")],
        &[utf16z("x"), hex("7900 07")].concat(),
        "s={b=x c=y} d=7",
    );
    check(
        &[field("s", "d8 02"), field("t", "98 01"), field("a", "04"), field("b", "04"), field("c", "04")],
        &hex("0200 01020304 09"),
        "s=[{t={a=1} b=2}, {t={a=3} b=4}] c=9",
    );
    check(&[field("s", "b8 01 0200"), field("a", "04")], &hex("0102"), "s=[{a=1}, {a=2}]");
}

#[test]
fn names_and_tags_precede_the_fields() {
    let item = [&hex("0a00 8105")[..], b"Caf\xc3\xa9\0", b"after the block!"].concat();
    let metadata = EventMetadata::parse(&item).unwrap();
    assert_eq!((metadata.tags, &*metadata.name()), (0x85, "Café"));
    assert!(matches!(metadata.name(), Cow::Borrowed(_)));
    let schema = |opcode| metadata.schema(Guid::ZERO, opcode).unwrap();
    assert_eq!(&*schema(0).event_name, "Café");
    assert_eq!(&*schema(1).event_name, "Café/Start");
    assert_eq!(&*schema(2).event_name, "Café/Stop");
    assert_eq!(&*schema(77).event_name, "Café");
    assert_eq!(EventMetadata::parse(&hex("0700 ff81 8200 00")).unwrap().tags, 0x7f << 21 | 1 << 14 | 2 << 7);
    assert_eq!(EventMetadata::parse(&hex("0600 00 41ff 00")).unwrap().name(), "A\u{fffd}");
}

#[test]
fn damaged_metadata_is_rejected() {
    for (item, expected) in [
        ("", "metadata offset 0x0: expected a u16"),
        ("01", "metadata offset 0x0: expected a u16"),
        ("0000", "metadata offset 0x0: expected a block of the stated size"),
        ("0500 0000", "metadata offset 0x0: expected a block of the stated size"),
        ("0200", "metadata offset 0x2: expected a byte"),
        ("0400 0041", "metadata offset 0x3: expected the end of a name"),
        ("0700 8080 8080 00", "metadata offset 0x6: expected at most four bytes of tags"),
    ] {
        assert_eq!(EventMetadata::parse(&hex(item)).unwrap_err().to_string(), expected, "{item}");
    }
    for (descriptor, expected) in [
        ("61", "metadata offset 0x5: expected the end of a name"),
        ("6100", "metadata offset 0x7: expected a byte"),
        ("6100 1a", "metadata offset 0x7: expected a known type"),
        ("6100 1f", "metadata offset 0x7: expected a known type"),
        ("6100 84", "metadata offset 0x8: expected a byte"),
        ("6100 24 01", "metadata offset 0x8: expected a u16"),
        ("6100 60 0300 aabb", "metadata offset 0xa: expected the type information of a custom field"),
    ] {
        let item = event_metadata("E", &hex(descriptor));
        let error = EventMetadata::parse(&item).unwrap().schema(Guid::ZERO, 0).unwrap_err();
        assert_eq!(error.to_string(), expected, "{descriptor}");
    }
}

#[test]
fn provider_traits_are_read() {
    let group = "1300 01 ad4a819e0432d2119a82006008a86939";
    let guid = Some("9e814aad-3204-11d2-9a82-006008a86939".parse().unwrap());
    for (traits, name, expected) in [
        ("", "P", None),
        (group, "P", guid),
        (&*format!("0500 80 0102 {group}"), "P", guid),
        (&*format!("0200 {group}"), "P", None),
        ("1300 01 ad4a", "P", None),
        ("0400 01 00", "P", None),
    ] {
        let rest = [b"P\0", &hex(traits)[..]].concat();
        let item = [&u16::try_from(rest.len() + 2).unwrap().to_le_bytes()[..], &rest, b"more"].concat();
        let parsed = ProviderTraits::parse(&item).unwrap();
        assert_eq!((&*parsed.name(), parsed.group), (name, expected), "{traits}");
    }
    assert!(ProviderTraits::parse(b"\x04\0PP").is_err());
    assert!(ProviderTraits::parse(b"\x09\0P\0").is_err());
}

/// The descriptors of random shapes, with tags and out types that do not change how a value is
/// stored.
fn descriptors(shapes: &[Shape], index: &mut usize, block: &mut Vec<u8>) {
    for shape in shapes {
        block.extend_from_slice(format!("f{index}\0").as_bytes());
        let tagged = *index % 3;
        *index += 1;
        let (Shape::Leaf(_, count) | Shape::Struct(_, count)) = shape;
        let count_flag = match count {
            Count::Fixed(_) => CONSTANT_COUNT,
            Count::Prefixed => VARIABLE_COUNT,
            _ => 0,
        };
        match shape {
            Shape::Struct(members, _) => block.extend([STRUCT | count_flag | CHAIN, members.len() as u8]),
            Shape::Leaf(in_type, _) => {
                let number = number(*in_type) | count_flag;
                match tagged {
                    0 => block.push(number),
                    1 => block.extend([number | CHAIN, 4]),
                    _ => block.extend([number | CHAIN, 4 | CHAIN, 1 | CHAIN, 2]),
                }
            }
        }
        if let Count::Fixed(count) = count {
            block.extend(count.to_le_bytes());
        }
        if let Shape::Struct(members, _) = shape {
            descriptors(members, index, block);
        }
    }
}

fn number(in_type: InType) -> u8 {
    let numbers = [
        (1, InType::Utf16),
        (2, InType::Ansi),
        (3, InType::I8),
        (4, InType::U8),
        (5, InType::I16),
        (6, InType::U16),
        (7, InType::I32),
        (8, InType::U32),
        (9, InType::I64),
        (10, InType::U64),
        (11, InType::F32),
        (12, InType::F64),
        (13, InType::Bool32),
        (15, InType::Guid),
        (16, InType::Pointer),
        (17, InType::FileTime),
        (18, InType::SystemTime),
        (19, InType::Sid),
        (20, InType::HexInt32),
        (21, InType::HexInt64),
        (22, InType::CountedUtf16),
        (23, InType::CountedAnsi),
        (25, InType::CountedBinary),
    ];
    numbers.into_iter().find(|(_, candidate)| *candidate == in_type).unwrap().0
}

proptest! {
    #[test]
    fn described_values_are_decoded(shapes in shapes(), seed: u64, pointer in pointer_sizes()) {
        let mut fields = Vec::new();
        descriptors(&shapes, &mut 0, &mut fields);
        let item = event_metadata("Event", &fields);
        let schema = EventMetadata::parse(&item).unwrap().schema(Guid::ZERO, 0).unwrap();
        let mut expected = Vec::new();
        flatten(&shapes, &mut expected);
        let plain: Vec<Field> =
            schema.fields.iter().map(|field| Field { out_type: OutType::Default, ..field.clone() }).collect();
        prop_assert_eq!(plain, expected);
        let mut writer = Writer::new(seed, pointer);
        let expected = writer.fields(&shapes);
        prop_assert_eq!(debug(schema.decode(&writer.payload, pointer)), expected);
    }
}
