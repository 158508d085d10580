use super::*;
use crate::testing::blocks::{
    Head, MANIFEST, Stored, event_info, event_metadata, field, map_info, structure, value,
};
use crate::testing::compiled::{image, texts};
use crate::testing::{hex, utf16z};

/// Runs a target with a valid input, all of its prefixes, and all forms of it with one changed
/// byte.
fn run(target: fn(&[u8]), seed: &[u8]) {
    for length in 0..=seed.len() {
        target(&seed[..length]);
    }
    let mut damaged = seed.to_vec();
    for at in 0..damaged.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff, seed[at] ^ 1, seed[at].wrapping_add(1)] {
            damaged[at] = byte;
            target(&damaged);
        }
        damaged[at] = seed[at];
    }
}

fn tracelogging_seed() -> Vec<u8> {
    let fields = [
        field("text", "01"),
        field("list", "c8 84 05"),
        field("s", "d8 03"),
        field("t", "98 01"),
        field("a", "24 0200"),
        field("sid", "13"),
        field("custom", "60 0200 aabb"),
        field("address", "8e 09"),
    ];
    let payload = [utf16z("hi"), hex("0100 01000000 0100 0102 0101000000000005 12000000 0100 cc 0200 dddd")];
    [event_metadata("Event", &fields.concat()), payload.concat()].concat()
}

fn embedded_seed() -> Vec<u8> {
    let properties = [
        value("n", 6, 0),
        Stored { flags: 0xf5, count: 0, ..structure("s", 3, 2) },
        Stored { map: "Map", ..value("z", 1, 0) },
        value("id", 4, 0),
        Stored { flags: 2, length: 3, ..value("b", 14, 0) },
    ];
    event_info(&Head { top_level: 3, message: "%1", ..MANIFEST }, &properties)
}

fn manifest_seed() -> Vec<u8> {
    br#"<m><provider name="P" guid="{9e814aad-3204-11d2-9a82-006008a86939}"><opcodes><opcode name="o" value="9"/>
    </opcodes><maps><bitMap name="M"><map value="0x1" message="$(string.x)"/></bitMap></maps><events>
    <event value="1" version="0" template="T" task="a" opcode="o"/></events><templates><template tid="T">
    <data name="n" inType="win:UInt8" map="M"/><struct name="s" count="n"><data name="b" inType="win:Binary"
    length="n"/></struct></template></templates></provider><stringTable><string id="x" value="y"/></stringTable></m>"#
        .to_vec()
}

#[test]
fn damaged_inputs_do_not_panic() {
    run(tracelogging, &tracelogging_seed());
    run(tracelogging, &hex("1f00 50726f766964657200 1300 01 ad4a819e0432d2119a82006008a86939 00"));
    run(embedded, &embedded_seed());
    run(embedded, &map_info(1, 2, &[(1, "One"), (2, "Two")]));
    run(manifest, &manifest_seed());
    run(compiled, &image(Some(&crate::testing::compiled::manifest()), Some(&texts())));
    run(manifest_chunks, &hex("09 01 0101005b 0200 0000 61 09 01 0101005b 0200 0100 62"));
}

#[test]
fn damaged_payloads_do_not_panic() {
    // A garbage collection, a batch of types, the address of a name server.
    let payload = hex("0100000002000000 03000000 0400 0500 0600070008000900");
    for event in ["00 0100 02", "00 0f00 00", "06 e903 00", "02 0400 02", "03 0100 03"] {
        run(built_in, &[hex(event), payload.repeat(6)].concat());
    }
}

#[test]
fn damaged_descriptions_do_not_panic_in_the_store() {
    let mut seed = Vec::new();
    let mut event = |kind: u8, id: u8, mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        seed.extend([kind, id, u8::try_from(bytes.len() / 4).unwrap()]);
        seed.extend(bytes);
    };
    event(1, 0, embedded_seed());
    event(1, 1, map_info(1, 1, &[(1, "One")]));
    event(2, 5, [hex("0101005b 0100 0000"), manifest_seed()].concat());
    event(3, 1, vec![1; 8]);
    event(4, 2, tracelogging_seed());
    event(5, 3, utf16z("text"));
    event(0, 0, vec![0; 16]);
    run(store, &seed);
}
