//! Values that are independent of a payload.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use stackhound_types::{Address, FileTime, Guid, Pid, RawTime, Sid, Tid};

use crate::decode::{Decoded, Item};
use crate::model::{Field, InType, OutType, Value};
use crate::parser::SystemTime;

/// A value for a property: a single value, a list or a structure.
///
/// Created by `into()` from the types that [`FromEtw`](crate::FromEtw) returns, and from literals
/// such as `i32` and `&str`.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// No value, for properties that can have none.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A signed number.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// Text, in the encoding of the property.
    Text(String),
    /// Bytes: binary data, or the stored form of a text without its terminator.
    Bytes(Vec<u8>),
    /// A GUID.
    Guid(Guid),
    /// A security identifier in its binary form.
    Sid(Vec<u8>),
    /// A time.
    FileTime(FileTime),
    /// A date.
    SystemTime(SystemTime),
    /// A raw timestamp.
    RawTime(RawTime),
    /// An IP address.
    Ip(IpAddr),
    /// A socket address.
    Socket(SocketAddr),
    /// The elements of an array.
    List(Vec<OwnedValue>),
    /// The members of a structure, by name.
    Struct(Vec<(String, OwnedValue)>),
}

impl OwnedValue {
    /// Creates an array.
    pub fn list<T: Into<OwnedValue>>(elements: impl IntoIterator<Item = T>) -> OwnedValue {
        OwnedValue::List(elements.into_iter().map(Into::into).collect())
    }

    /// Creates a structure.
    pub fn structure<S: Into<String>, T: Into<OwnedValue>>(
        members: impl IntoIterator<Item = (S, T)>,
    ) -> OwnedValue {
        let own = |(name, value): (S, T)| (name.into(), value.into());
        OwnedValue::Struct(members.into_iter().map(own).collect())
    }

    /// The content of a field of a payload, so that packing it gives the field again. Text that
    /// cannot be restored from its characters is kept as bytes. A truncated structure has only its
    /// complete members.
    pub fn of(field: &Field, item: &Item<'_>) -> OwnedValue {
        match item {
            Item::Value(value) => OwnedValue::of_value(field, *value),
            Item::Array(array) => {
                OwnedValue::List(array.iter().map(|element| OwnedValue::of(field, &element)).collect())
            }
            Item::Struct(members) => {
                let member = |member: Decoded<'_>| {
                    (member.field.name.to_string(), OwnedValue::of(member.field, &member.item))
                };
                OwnedValue::Struct(members.clone().map_while(Result::ok).map(member).collect())
            }
        }
    }

    fn of_value(field: &Field, value: Value<'_>) -> OwnedValue {
        match value {
            Value::Null => OwnedValue::Null,
            Value::Bool(truth) => OwnedValue::Bool(truth),
            Value::Signed(number) => OwnedValue::Signed(number),
            Value::Unsigned(number) => OwnedValue::Unsigned(number_order(field, number)),
            Value::Hex(number) | Value::Pointer(number) => OwnedValue::Unsigned(number),
            Value::Float(number) => OwnedValue::Float(number),
            Value::Utf16(bytes) => {
                let (units, odd) = bytes.as_chunks::<2>();
                let units: Vec<u16> = units.iter().map(|&unit| u16::from_le_bytes(unit)).collect();
                match String::from_utf16(&units) {
                    Ok(text) if odd.is_empty() => OwnedValue::Text(text),
                    _ => OwnedValue::Bytes(bytes.to_vec()),
                }
            }
            Value::Ansi(bytes) => match str::from_utf8(bytes) {
                Ok(text) => OwnedValue::Text(text.to_owned()),
                Err(_) => OwnedValue::Bytes(bytes.to_vec()),
            },
            Value::Binary(bytes) => OwnedValue::Bytes(bytes.to_vec()),
            Value::Guid(guid) => OwnedValue::Guid(guid),
            Value::Sid(bytes) => OwnedValue::Sid(bytes.to_vec()),
            Value::FileTime(time) => OwnedValue::FileTime(time),
            Value::SystemTime(parts) => OwnedValue::SystemTime(parts.into()),
            Value::RawTime(time) => OwnedValue::RawTime(time),
        }
    }

    /// The kind of the value in error messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            OwnedValue::Null => "no value",
            OwnedValue::Bool(_) => "a Boolean",
            OwnedValue::Signed(_) | OwnedValue::Unsigned(_) => "a number",
            OwnedValue::Float(_) => "a floating-point number",
            OwnedValue::Text(_) => "text",
            OwnedValue::Bytes(_) => "bytes",
            OwnedValue::Guid(_) => "a GUID",
            OwnedValue::Sid(_) => "a security identifier",
            OwnedValue::FileTime(_) => "a time",
            OwnedValue::SystemTime(_) => "a date",
            OwnedValue::RawTime(_) => "a raw timestamp",
            OwnedValue::Ip(_) => "an IP address",
            OwnedValue::Socket(_) => "a socket address",
            OwnedValue::List(_) => "a list",
            OwnedValue::Struct(_) => "a structure",
        }
    }

    /// The elements of an array of this type. Arrays of characters accept text, arrays of bytes
    /// accept bytes.
    pub(super) fn elements(&self, in_type: InType) -> Option<Cow<'_, [OwnedValue]>> {
        let numbers = |numbers: &mut dyn Iterator<Item = u64>| {
            Some(Cow::Owned(numbers.map(OwnedValue::Unsigned).collect()))
        };
        match (self, in_type) {
            (OwnedValue::List(elements), _) => Some(Cow::Borrowed(elements)),
            (OwnedValue::Text(text), InType::Utf16Char) => numbers(&mut text.encode_utf16().map(u64::from)),
            (OwnedValue::Text(text), InType::AnsiChar) => numbers(&mut text.bytes().map(u64::from)),
            (OwnedValue::Bytes(bytes), InType::U8 | InType::AnsiChar) => {
                numbers(&mut bytes.iter().map(|&byte| byte.into()))
            }
            _ => None,
        }
    }

    /// The number of elements of an array of this type.
    pub(super) fn count(&self, in_type: InType) -> Option<u64> {
        self.elements(in_type).map(|elements| elements.len() as u64)
    }

    pub(super) fn first(&self) -> Option<&OwnedValue> {
        if let OwnedValue::List(elements) = self { elements.first() } else { None }
    }

    /// The length of a text or binary field of this type, in its units.
    pub(super) fn length(&self, in_type: InType) -> Option<u64> {
        let bytes = self.text_bytes(in_type)?.len() as u64;
        Some(if in_type == InType::Utf16 { bytes / 2 } else { bytes })
    }

    /// The bytes of a text or binary field of this type, without a terminator.
    pub(super) fn text_bytes(&self, in_type: InType) -> Option<Cow<'_, [u8]>> {
        let is_utf16 = matches!(in_type, InType::Utf16 | InType::CountedUtf16);
        let is_binary = matches!(in_type, InType::Binary | InType::CountedBinary);
        match self {
            OwnedValue::Bytes(bytes) => (!is_utf16 || bytes.len() % 2 == 0).then_some(Cow::Borrowed(bytes)),
            OwnedValue::Text(text) if is_utf16 => {
                Some(Cow::Owned(text.encode_utf16().flat_map(u16::to_le_bytes).collect()))
            }
            OwnedValue::Text(text) if !is_binary => Some(Cow::Borrowed(text.as_bytes())),
            OwnedValue::Ip(IpAddr::V4(address)) if is_binary => Some(address.octets().to_vec().into()),
            OwnedValue::Ip(IpAddr::V6(address)) if is_binary => Some(address.octets().to_vec().into()),
            OwnedValue::Socket(address) if is_binary => Some(crate::value::socket_bytes(*address).into()),
            _ => None,
        }
    }
}

/// The stored form of a number. Ports are stored in network byte order.
pub(super) fn number_order(field: &Field, number: u64) -> u64 {
    if field.out_type == OutType::Port && field.in_type == InType::U16 {
        (number as u16).swap_bytes().into()
    } else {
        number
    }
}

/// Implements the conversion from each type.
macro_rules! from {
    ($($from:ty => |$value:ident| $to:expr;)*) => {$(
        impl From<$from> for OwnedValue {
            fn from($value: $from) -> OwnedValue {
                $to
            }
        }
    )*};
}

from! {
    bool => |value| OwnedValue::Bool(value);
    u8 => |value| OwnedValue::Unsigned(value.into());
    u16 => |value| OwnedValue::Unsigned(value.into());
    u32 => |value| OwnedValue::Unsigned(value.into());
    u64 => |value| OwnedValue::Unsigned(value);
    i8 => |value| OwnedValue::Signed(value.into());
    i16 => |value| OwnedValue::Signed(value.into());
    i32 => |value| OwnedValue::Signed(value.into());
    i64 => |value| OwnedValue::Signed(value);
    f32 => |value| OwnedValue::Float(value.into());
    f64 => |value| OwnedValue::Float(value);
    &str => |value| OwnedValue::Text(value.to_owned());
    String => |value| OwnedValue::Text(value);
    &[u8] => |value| OwnedValue::Bytes(value.to_vec());
    Vec<u8> => |value| OwnedValue::Bytes(value);
    Guid => |value| OwnedValue::Guid(value);
    Address => |value| OwnedValue::Unsigned(value.0);
    Pid => |value| OwnedValue::Unsigned(value.0.into());
    Tid => |value| OwnedValue::Unsigned(value.0.into());
    Sid<'_> => |value| OwnedValue::Sid(value.0.to_vec());
    FileTime => |value| OwnedValue::FileTime(value);
    RawTime => |value| OwnedValue::RawTime(value);
    SystemTime => |value| OwnedValue::SystemTime(value);
    IpAddr => |value| OwnedValue::Ip(value);
    SocketAddr => |value| OwnedValue::Socket(value);
}
