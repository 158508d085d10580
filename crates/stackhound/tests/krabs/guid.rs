//! `test_guid_parser`: 15 cases; `test_guid`: 4 cases. GUIDs as text, equality and hashes.

use std::collections::HashSet;

use stackhound::Guid;

use crate::rows::{Rows, check};

const SOME: Guid = Guid::new(0x73d2_8a4b, 0x3fdd, 0x49a5, [0x9a, 0xc2, 0x6e, 0x3b, 0x15, 0xa4, 0x19, 0x6a]);

fn parsed(text: &str) -> Option<Guid> {
    text.parse().ok()
}

/// The first group of a GUID whose other groups are zero.
fn first_group(digits: &str) -> Option<u32> {
    let guid = parsed(&format!("{digits}-0000-0000-0000-000000000000"))?;
    Some(u32::from_le_bytes(guid.0[..4].try_into().expect("four bytes")))
}

fn last_bytes(digits: &str) -> Option<[u8; 6]> {
    let guid = parsed(&format!("00000000-0000-0000-0000-{digits}"))?;
    Some(guid.0[10..].try_into().expect("six bytes"))
}

pub fn rows() -> Rows {
    let text = "73d28a4b-3fdd-49a5-9ac2-6e3b15a4196a";
    let longer = format!("{text} and more");
    let mut names = check([
        ("a GUID", parsed(text), Some(SOME)),
        ("in braces", parsed(&format!("{{{text}}}")), Some(SOME)),
        ("in capitals", parsed(&text.to_uppercase()), Some(SOME)),
        ("in both cases", parsed("73D28a4B-3fdD-49A5-9ac2-6E3b15a4196A"), Some(SOME)),
        ("out of the middle of a text", parsed(&longer[..36]), Some(SOME)),
        ("one character too many", parsed(&format!("{text}0")), None),
        ("one too few", parsed(&text[..35]), None),
        ("nothing", parsed(""), None),
        ("one brace only", parsed(&format!("{{{text}")), None),
        ("another delimiter", parsed("73d28a4b 3fdd-49a5-9ac2-6e3b15a4196a"), None),
        ("a group that is too short", parsed("73d28a4-3fdd-49a5-9ac2-6e3b15a4196a"), None),
        ("a group that is too short, and one too long", parsed("73d28a4-b3fdd-49a5-9ac2-6e3b15a4196a"), None),
        ("text of as many bytes but fewer characters", parsed("73d28a4b-3fdd-49a5-9ac2-6e3b15a419é"), None),
    ]);
    names.extend(check([
        ("digits of a number", first_group("0000009d"), Some(0x9d)),
        ("a character that is not a digit", first_group("0000005g"), None),
        ("a hyphen for a digit", first_group("1234567-"), None),
        ("a sign for a digit", first_group("+1234567"), None),
        ("small letters", first_group("000000ab"), Some(0xab)),
        ("capital letters", first_group("000000AB"), Some(0xab)),
        ("the first group is a number", first_group("12345678"), Some(0x1234_5678)),
    ]));
    names.extend(check([
        ("the last group is bytes", last_bytes("1234abcd5678"), Some([0x12, 0x34, 0xab, 0xcd, 0x56, 0x78])),
        ("a null character does not end the text", last_bytes("abcdef123\0ab"), None),
        ("a letter beyond f", last_bytes("abcdefghij12"), None),
    ]));
    let other = Guid([7; 16]);
    let set: HashSet<Guid> = [SOME, SOME, other].into_iter().collect();
    names.extend(check([
        ("equal GUIDs are equal", SOME == SOME.to_string().parse().expect("its own text"), true),
        ("different GUIDs are not equal", SOME == other, false),
        ("equal GUIDs hash alike", set.len() == 2 && set.contains(&SOME), true),
        ("different GUIDs are distinguished in a set", set.contains(&Guid([8; 16])), false),
    ]));
    names
}
