//! Formats values for display: addresses, times, error codes, and names instead of numbers.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use stackhound_types::{FileTime, HexBytes, Rfc3339, Sid};

use crate::decode::Item;
use crate::model::{Field, Map, MapKind, OutType, Value};
use crate::value::{socket_address, utf16_chars};

/// Formats a value as its out type and map specify. Allocates nothing.
///
/// A name in the map takes precedence over the out type. Numbers without a name, and values that do
/// not fit the out type, are formatted by their storage type.
pub fn render<'a>(value: Value<'a>, out_type: OutType, map: Option<&'a Map>) -> impl fmt::Display + 'a {
    Rendered { value, out_type, map }
}

impl Field {
    /// Formats a value of this field; see [`render`].
    pub fn render<'a>(&'a self, value: Value<'a>) -> impl fmt::Display + 'a {
        render(value, self.out_type, self.map.as_deref())
    }
}

/// Formats the content of a field on one line, with arrays in brackets and structures in braces.
/// Members that cannot be decoded are omitted.
#[derive(Debug)]
pub struct ItemText<'f, 'p>(pub &'f Field, pub &'f Item<'p>);

impl fmt::Display for ItemText<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Item::Value(value) => write!(f, "{}", self.0.render(*value)),
            Item::Array(array) => {
                write!(f, "[")?;
                for (index, item) in array.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}", ItemText(array.field(), &item))?;
                }
                write!(f, "]")
            }
            Item::Struct(members) => {
                write!(f, "{{")?;
                for (index, member) in members.clone().filter_map(Result::ok).enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}={}", member.field.name, ItemText(member.field, &member.item))?;
                }
                write!(f, "}}")
            }
        }
    }
}

struct Rendered<'a> {
    value: Value<'a>,
    out_type: OutType,
    map: Option<&'a Map>,
}

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(map), Some(number)) = (self.map, self.value.as_u64()) {
            match map.kind {
                MapKind::Values => {
                    if let Some(name) = map.value_name(number) {
                        return f.write_str(name);
                    }
                }
                MapKind::Bits => return bits(f, map, number),
            }
        }
        match self.value {
            Value::Null => Ok(()),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Signed(value) => signed(f, value, self.out_type),
            Value::Unsigned(value) => unsigned(f, value, self.out_type),
            Value::Hex(value) | Value::Pointer(value) => write!(f, "{value:#x}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Utf16(bytes) => utf16_chars(bytes).try_for_each(|char| f.write_char(char)),
            Value::Ansi(bytes) => ansi(f, bytes),
            Value::Binary(bytes) => binary(f, bytes, self.out_type),
            Value::Guid(guid) => write!(f, "{guid}"),
            Value::Sid(bytes) => write!(f, "{}", Sid(bytes)),
            Value::FileTime(time) => write!(f, "{}", Rfc3339(time)),
            Value::SystemTime(parts) => system_time(f, parts),
            Value::RawTime(ticks) => write!(f, "{}", ticks.0),
        }
    }
}

impl Map {
    /// The name of a value.
    pub fn value_name(&self, value: u64) -> Option<&str> {
        let entry = self.entries.iter().find(|(number, _)| u64::from(*number) == value);
        entry.map(|(_, name)| &**name)
    }
}

/// Writes the names of all set bits in the map's order, then the bits without a name.
fn bits(f: &mut fmt::Formatter<'_>, map: &Map, value: u64) -> fmt::Result {
    if value == 0 {
        return f.write_str(map.value_name(0).unwrap_or("0"));
    }
    let mut unnamed = value;
    let mut separator = "";
    for (mask, name) in &map.entries {
        let mask = u64::from(*mask);
        if mask != 0 && value & mask == mask {
            write!(f, "{separator}{name}")?;
            separator = "|";
            unnamed &= !mask;
        }
    }
    if unnamed != 0 {
        write!(f, "{separator}{unnamed:#x}")?;
    }
    Ok(())
}

fn signed(f: &mut fmt::Formatter<'_>, value: i64, out_type: OutType) -> fmt::Result {
    match (u64::try_from(value), out_type) {
        (Err(_), OutType::Hex | OutType::NtStatus | OutType::HResult) => {
            // The storage width is unknown here. Codes have 32 bits, and so do nearly all negative
            // numbers.
            match i32::try_from(value) {
                Ok(value) => write!(f, "{value:#x}"),
                Err(_) => write!(f, "{value:#x}"),
            }
        }
        (Ok(number), out_type) if out_type != OutType::Signed => unsigned(f, number, out_type),
        _ => write!(f, "{value}"),
    }
}

fn unsigned(f: &mut fmt::Formatter<'_>, value: u64, out_type: OutType) -> fmt::Result {
    match out_type {
        OutType::Boolean => write!(f, "{}", value != 0),
        OutType::Hex | OutType::CodePointer => write!(f, "{value:#x}"),
        OutType::NtStatus | OutType::HResult => write!(f, "{value:#010x}"),
        OutType::Port => match u16::try_from(value) {
            Ok(port) => write!(f, "{}", port.swap_bytes()),
            Err(_) => write!(f, "{value}"),
        },
        OutType::Ipv4 => match u32::try_from(value) {
            Ok(address) => write!(f, "{}", Ipv4Addr::from(address.to_le_bytes())),
            Err(_) => write!(f, "{value}"),
        },
        OutType::String => match u16::try_from(value) {
            Ok(unit) => utf16_chars(&unit.to_le_bytes()).try_for_each(|char| write!(f, "{char}")),
            Err(_) => write!(f, "{value}"),
        },
        OutType::DateTime => match i64::try_from(value) {
            Ok(time) => write!(f, "{}", Rfc3339(FileTime(time))),
            Err(_) => write!(f, "{value}"),
        },
        OutType::Signed => write!(f, "{}", value.cast_signed()),
        OutType::Default
        | OutType::Pid
        | OutType::Tid
        | OutType::Ipv6
        | OutType::SocketAddress
        | OutType::Xml
        | OutType::Json
        | OutType::Win32Error
        | OutType::Unsigned
        | OutType::Utf8
        | OutType::Other(_) => write!(f, "{value}"),
    }
}

fn ansi(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match std::str::from_utf8(bytes) {
        Ok(text) => f.write_str(text),
        Err(_) => bytes.iter().try_for_each(|&byte| write!(f, "{}", char::from(byte))),
    }
}

fn binary(f: &mut fmt::Formatter<'_>, bytes: &[u8], out_type: OutType) -> fmt::Result {
    match out_type {
        OutType::Ipv6 if let Ok(octets) = <[u8; 16]>::try_from(bytes) => {
            write!(f, "{}", Ipv6Addr::from(octets))
        }
        OutType::Ipv4 if let Ok(octets) = <[u8; 4]>::try_from(bytes) => {
            write!(f, "{}", Ipv4Addr::from(octets))
        }
        OutType::SocketAddress => show_socket_address(f, bytes),
        OutType::String | OutType::Utf8 | OutType::Xml | OutType::Json => ansi(f, bytes),
        _ => write!(f, "0x{}", HexBytes(bytes)),
    }
}

/// Writes an IPv6 address without its scope, which is meaningless on another machine.
fn show_socket_address(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    match socket_address(bytes) {
        Some(SocketAddr::V4(address)) => write!(f, "{address}"),
        Some(SocketAddr::V6(address)) => write!(f, "[{}]:{}", address.ip(), address.port()),
        None => write!(f, "0x{}", HexBytes(bytes)),
    }
}

fn system_time(f: &mut fmt::Formatter<'_>, parts: [u16; 8]) -> fmt::Result {
    let [year, month, _, day, hour, minute, second, millisecond] = parts;
    write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}0000Z")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[track_caller]
    fn check(value: Value<'_>, out_type: OutType, expected: &str) {
        assert_eq!(render(value, out_type, None).to_string(), expected, "{value:?} as {out_type:?}");
    }

    #[test]
    fn numbers_are_formatted_by_their_out_type() {
        for (value, out_type, expected) in [
            (255, OutType::Default, "255"),
            (255, OutType::Hex, "0xff"),
            (0x7ff6_0000_1000, OutType::CodePointer, "0x7ff600001000"),
            (4, OutType::Pid, "4"),
            (2, OutType::Boolean, "true"),
            (0, OutType::Boolean, "false"),
            (0xbb01, OutType::Port, "443"),
            (0x1bb_0000, OutType::Port, "29032448"),
            (0x0100_007f, OutType::Ipv4, "127.0.0.1"),
            (0xc000_0005, OutType::NtStatus, "0xc0000005"),
            (0, OutType::NtStatus, "0x00000000"),
            (5, OutType::Win32Error, "5"),
            (0x263a, OutType::String, "☺"),
            (u64::MAX, OutType::Signed, "-1"),
            (0, OutType::DateTime, "1601-01-01T00:00:00.0000000Z"),
            (9, OutType::Other(36), "9"),
        ] {
            check(Value::Unsigned(value), out_type, expected);
        }
        check(Value::Signed(-5), OutType::Default, "-5");
        check(Value::Signed(5), OutType::Hex, "0x5");
        check(Value::Signed(i32::from_le_bytes([5, 0, 0, 0xc0]).into()), OutType::NtStatus, "0xc0000005");
        check(Value::Signed(i64::MIN), OutType::Hex, "0x8000000000000000");
        check(Value::Float(0.1), OutType::Default, "0.1");
    }

    #[test]
    fn bytes_are_formatted_by_their_out_type() {
        for (bytes, out_type, expected) in [
            ("0a0b", OutType::Default, "0x0a0b"),
            ("7f000001", OutType::Ipv4, "127.0.0.1"),
            ("20010db8000000000000000000000001", OutType::Ipv6, "2001:db8::1"),
            ("2001", OutType::Ipv6, "0x2001"),
            ("0200 0035 0a323232 0000000000000000", OutType::SocketAddress, "10.50.50.50:53"),
            (
                "1700 0035 00000000 20010db8000000000000000000000001 00000000",
                OutType::SocketAddress,
                "[2001:db8::1]:53",
            ),
            ("1700 0035 00000000 20", OutType::SocketAddress, "0x170000350000000020"),
            ("17", OutType::SocketAddress, "0x17"),
            ("7b7d", OutType::Json, "{}"),
        ] {
            check(Value::Binary(&hex(bytes)), out_type, expected);
        }
    }

    #[test]
    fn values_and_bits_are_named_by_maps() {
        let entries = |entries: &[(u32, &str)]| entries.iter().map(|&(n, name)| (n, name.into())).collect();
        let values = Map {
            name: "GCReason".into(),
            kind: MapKind::Values,
            entries: entries(&[(0, "AllocSmall"), (1, "Induced")]),
        };
        let named = |value, map: &Map| render(value, OutType::Default, Some(map)).to_string();
        assert_eq!(named(Value::Unsigned(1), &values), "Induced");
        assert_eq!(named(Value::Hex(2), &values), "0x2");
        assert_eq!(named(Value::Signed(-1), &values), "-1");
        assert_eq!(named(Value::Unsigned(1 << 32), &values), "4294967296");
        assert_eq!(named(Value::Ansi(b"x"), &values), "x");
        let bits = Map {
            name: "Access".into(),
            kind: MapKind::Bits,
            entries: entries(&[(1, "Read"), (2, "Write"), (0xc, "Both")]),
        };
        assert_eq!(named(Value::Unsigned(0), &bits), "0");
        assert_eq!(named(Value::Unsigned(3), &bits), "Read|Write");
        assert_eq!(named(Value::Unsigned(0x8e), &bits), "Write|Both|0x80");
        assert_eq!(named(Value::Unsigned(4), &bits), "0x4");
        let bits = Map { entries: entries(&[(0, "None"), (1, "Read")]), ..bits };
        assert_eq!(named(Value::Unsigned(0), &bits), "None");
        assert_eq!(named(Value::Unsigned(1), &bits), "Read");
    }

    #[test]
    fn times_are_formatted_as_dates() {
        // Seconds since 1970 and dates, as computed by GNU date.
        for (unix, expected) in [
            (-11_644_473_600, "1601-01-01T00:00:00.0000000Z"),
            (-2_203_891_200, "1900-03-01T00:00:00.0000000Z"),
            (0, "1970-01-01T00:00:00.0000000Z"),
            (951_782_399, "2000-02-28T23:59:59.0000000Z"),
            (951_782_400, "2000-02-29T00:00:00.0000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.0000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.0000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.0000000Z"),
        ] {
            let time = FileTime((unix + 11_644_473_600_i64) * 10_000_000);
            check(Value::FileTime(time), OutType::Default, expected);
        }
        check(Value::FileTime(FileTime(12_345_678)), OutType::Default, "1601-01-01T00:00:01.2345678Z");
        check(Value::FileTime(FileTime(-1)), OutType::Default, "1600-12-31T23:59:59.9999999Z");
    }

    proptest! {
        #[test]
        fn any_value_can_be_formatted(number: i64, bytes in prop::collection::vec(any::<u8>(), 0..40), other: u8) {
            for value in [
                Value::Signed(number),
                Value::Unsigned(number as u64),
                Value::FileTime(FileTime(number)),
                Value::Utf16(&bytes),
                Value::Ansi(&bytes),
                Value::Binary(&bytes),
                Value::Sid(&bytes),
            ] {
                for out_type in [
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
                    OutType::Other(other),
                ] {
                    let _ = render(value, out_type, None).to_string();
                }
            }
        }
    }
}
