//! `test_record_property_thunk`: 18 cases. The encoding of values as bytes.

use stackhound::schema::{OwnedValue, Sid};
use stackhound::{Address, FileTime, Guid};

use crate::rows::{Rows, builder, check};
use crate::schemas::{EVERY_BINARY, EVERY_NUMBER, EVERY_TEXT, Kind, store};

/// The bytes of one property of an event whose other properties have no values.
fn bytes(kind: Kind, name: &str, value: impl Into<OwnedValue>) -> Result<Vec<u8>, String> {
    let mut store = store();
    let event = builder(kind).with(name, value).pack_incomplete(&mut store);
    let event = event.map_err(|error| error.to_string())?;
    let plan = event.plan(&mut store).expect("a description");
    Ok(event.parser(&plan).bytes(name).expect("a property").to_vec())
}

pub fn rows() -> Rows {
    let number = |name: &str, value: OwnedValue| bytes(EVERY_NUMBER, name, value);
    let named = builder(EVERY_TEXT).with("some name", "value");
    let kept_name = named.values()[0].0.clone().into_bytes();
    let sixteen: Vec<u8> = (0x40..0x50).collect();
    let sid = [1, 1, 3, 4, 5, 6, 7, 8, 0xdd, 0xcc, 0xbb, 0xaa];
    // One more sub-authority is stated than there is.
    let short_sid = [1, 2, 3, 4, 5, 6, 7, 8, 0xdd, 0xcc, 0xbb, 0xaa];
    let guid = Guid::new(0x0011_2233, 0x4455, 0x6677, *b"\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
    let refused = |error: &str| Err(error.to_owned());
    check([
        ("the name is kept", Ok(kept_name), Ok(b"some name".to_vec())),
        ("UTF-16 text is terminated", bytes(EVERY_TEXT, "Wide", "ab"), Ok(b"a\0b\0\0\0".to_vec())),
        ("8-bit text is terminated", bytes(EVERY_TEXT, "Narrow", "cd"), Ok(b"cd\0".to_vec())),
        (
            "counted UTF-16 text has its length",
            bytes(EVERY_TEXT, "CountedWide", "ab"),
            Ok(b"\x04\0a\0b\0".to_vec()),
        ),
        (
            "counted 8-bit text has its length",
            bytes(EVERY_TEXT, "CountedNarrow", "ab"),
            Ok(b"\x02\0ab".to_vec()),
        ),
        ("a signed byte", number("Int8", (b'e' as i8).into()), Ok(vec![b'e'])),
        ("an unsigned byte", number("UInt8", b'f'.into()), Ok(vec![b'f'])),
        ("i16", number("Int16", 0x1234_i16.into()), Ok(vec![0x34, 0x12])),
        ("u16", number("UInt16", 0x2345_u16.into()), Ok(vec![0x45, 0x23])),
        ("i32", number("Int32", 0x1234_5678_i32.into()), Ok(vec![0x78, 0x56, 0x34, 0x12])),
        ("u32", number("UInt32", 0x1234_5678_u32.into()), Ok(vec![0x78, 0x56, 0x34, 0x12])),
        (
            "i64",
            number("Int64", 0x1234_5678_2345_6789_i64.into()),
            Ok(vec![0x89, 0x67, 0x45, 0x23, 0x78, 0x56, 0x34, 0x12]),
        ),
        (
            "u64",
            number("UInt64", 0x1234_5678_2345_6789_u64.into()),
            Ok(vec![0x89, 0x67, 0x45, 0x23, 0x78, 0x56, 0x34, 0x12]),
        ),
        // krabs checks only the sizes.
        ("f32", number("Float", 1.2_f32.into()), Ok(vec![0x9a, 0x99, 0x99, 0x3f])),
        ("f64", number("Double", 1.2.into()), Ok(vec![0x33, 0x33, 0x33, 0x33, 0x33, 0x33, 0xf3, 0x3f])),
        ("a Boolean has four bytes", number("Boolean", true.into()), Ok(vec![1, 0, 0, 0])),
        ("a Boolean of one byte has one byte", number("Byte", true.into()), Ok(vec![1])),
        ("bytes are unchanged", bytes(EVERY_BINARY, "Address6", &sixteen[..]), Ok(sixteen.clone())),
        ("a security identifier", number("Sid", Sid(&sid).into()), Ok(sid.to_vec())),
        // Intentional: krabs copies the contents of the structure without checking them.
        (
            "a truncated security identifier is rejected",
            number("Sid", Sid(&short_sid).into()),
            refused("property Sid: expected a security identifier"),
        ),
        ("HexInt32", number("HexInt32", 0x0102_abcd_u32.into()), Ok(vec![0xcd, 0xab, 0x02, 0x01])),
        (
            "HexInt64",
            number("HexInt64", 0x0102_abcd_ef03_0435_u64.into()),
            Ok(vec![0x35, 0x04, 0x03, 0xef, 0xcd, 0xab, 0x02, 0x01]),
        ),
        ("a pointer", number("Pointer", Address(0x1234).into()), Ok(vec![0x34, 0x12, 0, 0, 0, 0, 0, 0])),
        ("a FILETIME", number("FileTime", FileTime(0x1234).into()), Ok(vec![0x34, 0x12, 0, 0, 0, 0, 0, 0])),
        ("a GUID", number("Guid", guid.into()), Ok(guid.0.to_vec())),
        // Intentional: only the value of a number matters, not its type in the program.
        ("a number that fits is accepted", number("UInt16", 7_i64.into()), Ok(vec![7, 0])),
        (
            "a number that does not fit is rejected",
            number("UInt16", 0x1_0000.into()),
            refused("property UInt16: expected a number that fits its type"),
        ),
    ])
}
