use proptest::prelude::*;
use stackhound_types::PointerSize::{Eight, Four};

use super::*;
use crate::testing::blocks::{
    CLASS, Head, MANIFEST, PROVIDER, Stored, event_info, map_info, structure, value,
};
use crate::testing::{decoded, hex, utf16, utf16z};

/// The payload, decoded along the properties, reads as `expected`.
#[track_caller]
fn check(top_level: u32, properties: &[Stored], payload: &[u8], expected: &str) {
    let event = EmbeddedEvent::parse(&event_info(&Head { top_level, ..MANIFEST }, properties)).unwrap();
    assert_eq!(decoded(&event.schema, payload, Eight), expected);
}

/// The name of an event with the given task and opcode names.
#[track_caller]
fn check_name(source: u32, task: &'static str, opcode: &'static str, expected: &str) {
    let event = EmbeddedEvent::parse(&event_info(&Head { source, task, opcode, ..MANIFEST }, &[])).unwrap();
    assert_eq!(&*event.schema.event_name, expected);
}

#[test]
fn names_and_identities_are_read() {
    check_name(0, "Task ", "win:Start ", "Task/Start");
    check_name(0, "Task", "win:Info", "Task");
    check_name(0, "Task", "", "Task");
    check_name(0, "", "Opcode", "Opcode");
    check_name(0, "", "", "EventID(258)");
    check_name(1, "Class", "Type", "Class/Type");
    check_name(1, "", "", "Opcode(6)");

    let head = Head { message: "Started %1.\r\n", ..MANIFEST };
    let event = EmbeddedEvent::parse(&event_info(&head, &[])).unwrap();
    assert_eq!(event.identity, EmbeddedIdentity::Manifest { provider: PROVIDER, id: 0x102, version: 3 });
    assert_eq!(event.schema.provider, PROVIDER);
    assert_eq!(&*event.provider_name, "Provider");
    assert_eq!(event.schema.message.as_deref(), Some("Started %1."));
    let event = EmbeddedEvent::parse(&event_info(&Head { source: 1, ..MANIFEST }, &[])).unwrap();
    assert_eq!(event.identity, EmbeddedIdentity::Classic { class: CLASS, opcode: 6, version: 3 });
    assert_eq!(event.schema.message, None);
}

#[test]
fn types_are_read_by_their_numbers() {
    #[track_caller]
    fn one(in_type: u16, out_type: u16, payload: &str, expected: &str) {
        check(1, &[value("v", in_type, out_type)], &hex(payload), &format!("v={expected}"));
    }
    one(1, 1, "480069000000", "Hi");
    one(2, 1, "486900", "Hi");
    one(4, 13, "01", "true");
    one(8, 18, "ff000000", "0xff");
    one(8, 20, "04000000", "4");
    one(6, 22, "01bb", "443");
    one(8, 23, "0a000001", "10.0.0.1");
    one(14, 24, "20010db8000000000000000000000001", "2001:db8::1");
    one(8, 31, "220000c0", "0xc0000022");
    one(13, 13, "01000000", "true");
    one(15, 14, "ad4a819e0432d2119a82006008a86939", "9e814aad-3204-11d2-9a82-006008a86939");
    one(16, 19, "0010000000000000", "0x1000");
    one(17, 2, "008044d5deb19d01", "1970-01-01T00:00:00.0393216Z");
    one(300, 1, "0400 48006900", "Hi");
    one(304, 1, "48006900", "Hi");
    one(305, 1, "4869", "Hi");
    one(308, 0, "0010000000000000", "0x1000");
    one(310, 0, "00000000", "null");
}

#[test]
fn counts_and_lengths_refer_to_other_properties() {
    check(
        4,
        &[
            value("n", 6, 0),
            Stored { flags: 0xf4, count: 0, ..value("a", 8, 0) },
            Stored { flags: 0xf2, length: 0, ..value("b", 14, 0) },
            Stored { flags: 0xf2, length: 0, ..value("t", 1, 0) },
        ],
        &[hex("0200 01000000 02000000 aabb"), utf16("xy")].concat(),
        "n=2 a=[1, 2] b=0xaabb t=xy",
    );
    check(
        3,
        &[
            Stored { count: 2, ..value("a", 4, 0) },
            Stored { length: 3, ..value("b", 14, 0) },
            Stored { length: 4, ..value("t", 1, 0) },
        ],
        &[hex("0102 aabbcc"), utf16("xy\0\0")].concat(),
        "a=[1, 2] b=0xaabbcc t=xy",
    );
    // A length that repeats the size of a number has no effect.
    check(1, &[Stored { length: 4, ..value("v", 8, 0) }], &hex("01000000"), "v=1");
}

#[test]
fn members_follow_their_structures() {
    // Members follow all top-level properties, and counts refer to this order.
    check(
        3,
        &[
            value("n", 6, 0),
            Stored { flags: 0xf5, count: 0, ..structure("s", 3, 3) },
            value("z", 4, 0),
            value("id", 4, 0),
            structure("inner", 6, 1),
            Stored { flags: 0xf4, count: 3, ..value("a", 4, 0) },
            value("text", 2, 0),
        ],
        b"\x02\x00\x02one\0\x0a\x0b\x01two\0\x0c\x07",
        "n=2 s=[{id=2 inner={text=one} a=[10, 11]}, {id=1 inner={text=two} a=[12]}] z=7",
    );
    // Two fields can use one structure.
    check(
        2,
        &[
            structure("s", 2, 2),
            structure("t", 2, 2),
            value("n", 4, 0),
            Stored { flags: 0xf2, length: 2, ..value("b", 14, 0) },
        ],
        &hex("01 aa 02 bbcc"),
        "s={n=1 b=0xaa} t={n=2 b=0xbbcc}",
    );
}

#[test]
fn malicious_blocks_are_rejected() {
    #[track_caller]
    fn check_error(top_level: u32, properties: &[Stored], expected: &str) {
        let error =
            EmbeddedEvent::parse(&event_info(&Head { top_level, ..MANIFEST }, properties)).unwrap_err();
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    check_error(1, &[structure("s", 0, 1)], "expected at most 8 levels of nested structures");
    check_error(1, &[structure("s", 0, 9)], "expected at most 8 levels of nested structures");
    check_error(1, &[structure("s", 1, 1)], "expected an index below the number of properties");
    check_error(2, &[value("v", 4, 0)], "expected an index below the number of properties");
    check_error(1, &[value("v", 99, 0)], "expected a known type");
    check_error(
        1,
        &[Stored { flags: 4, count: 0, ..value("a", 4, 0) }],
        "expected a count or length in an earlier property",
    );
    check_error(
        1,
        &[Stored { flags: 4, count: 9, ..value("a", 4, 0) }],
        "expected a count or length in an earlier property",
    );
    // Seven levels with forty uses each would be 40^7 fields.
    let mut properties: Vec<Stored> =
        (0..7).flat_map(|level| vec![structure("s", 40 * (level + 1), 40); 40]).collect();
    properties.extend(vec![value("v", 4, 0); 40]);
    check_error(40, &properties, "expected at most 4096 fields");

    check_error(
        257,
        &vec![Stored { map: "M", ..value("v", 4, 0) }; 257],
        "expected at most 256 fields with maps",
    );

    let good = event_info(&Head { top_level: 1, ..MANIFEST }, &[value("v", 4, 0)]);
    for length in 0..good.len() - utf16z("Taskwin:Start").len() {
        let _ = EmbeddedEvent::parse(&good[..length]);
    }
    assert!(EmbeddedEvent::parse(&good[..PROPERTIES]).is_err());
}

#[test]
fn maps_are_read() {
    let entries = [(1, "One "), (4, "Four\r\n")];
    let expected: Vec<(u32, Box<str>)> = vec![(1, "One".into()), (4, "Four".into())];
    for (flag, kind) in
        [(1, MapKind::Values), (2, MapKind::Bits), (8, MapKind::Values), (0x10, MapKind::Bits)]
    {
        let (provider, map) = parse_map(&map_info(flag, 2, &entries)).unwrap();
        assert_eq!(provider, PROVIDER);
        assert_eq!(map, Map { name: "TypeMap".into(), kind, entries: expected.clone() });
    }
    assert_eq!(parse_map(&map_info(4, 2, &entries)).unwrap().1.entries, []);
    assert!(parse_map(&map_info(1, u32::MAX, &entries)).is_err());
    assert!(parse_map(&[0; 20]).is_err());
}

#[test]
fn fields_keep_the_names_of_their_maps() {
    let properties = [structure("s", 1, 1), Stored { map: "TypeMap ", ..value("v", 8, 0) }];
    let event = EmbeddedEvent::parse(&event_info(&Head { top_level: 1, ..MANIFEST }, &properties)).unwrap();
    assert_eq!(event.map_names, [(1, "TypeMap".into())]);
}

proptest! {
    #[test]
    fn damaged_blocks_do_not_panic(
        changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..8),
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut block = event_info(
            &Head { top_level: 3, ..MANIFEST },
            &[
                value("n", 6, 0),
                Stored { flags: 0xf5, count: 0, ..structure("s", 3, 2) },
                Stored { map: "Map", ..value("z", 1, 0) },
                value("id", 4, 0),
                Stored { flags: 2, length: 3, ..value("b", 14, 0) },
            ],
        );
        for (at, byte) in changes {
            let at = at % block.len();
            block[at] = byte;
        }
        if let Ok(event) = EmbeddedEvent::parse(&block) {
            let _ = decoded(&event.schema, &payload, Four);
            prop_assert!(event.map_names.iter().all(|(index, _)| *index < event.schema.fields.len()));
        }
        let _ = parse_map(&block);
    }
}
