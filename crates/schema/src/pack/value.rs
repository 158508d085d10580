//! Values that belong to nobody's payload.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use stackhound_types::{Address, FileTime, Guid, Pid, RawTime, Tid};

use crate::decode::{Decoded, Item};
use crate::model::{Field, InType, OutType, Value};
use crate::parser::SystemTime;
use crate::value::Sid;

/// What is given for a property: a value, a list or a structure.
///
/// Made by `into()` from what [`FromEtw`](crate::FromEtw) gives, and from `i32` and `&str` as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// No value: for properties that can say so.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number that may be negative.
    Signed(i64),
    /// A number.
    Unsigned(u64),
    /// A floating point number.
    Float(f64),
    /// Text, in whichever width the property has.
    Text(String),
    /// Bytes as they are: binary, or the text of a property as it is to be stored, without an end.
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
    /// An address of a host.
    Ip(IpAddr),
    /// An address of a socket.
    Socket(SocketAddr),
    /// The elements of an array.
    List(Vec<OwnedValue>),
    /// The members of a structure, by name.
    Struct(Vec<(String, OwnedValue)>),
}

impl OwnedValue {
    /// An array.
    pub fn list<T: Into<OwnedValue>>(elements: impl IntoIterator<Item = T>) -> OwnedValue {
        OwnedValue::List(elements.into_iter().map(Into::into).collect())
    }

    /// A structure.
    pub fn structure<S: Into<String>, T: Into<OwnedValue>>(
        members: impl IntoIterator<Item = (S, T)>,
    ) -> OwnedValue {
        let own = |(name, value): (S, T)| (name.into(), value.into());
        OwnedValue::Struct(members.into_iter().map(own).collect())
    }

    /// What a field of a payload holds, so that packing it gives the field again. Text that can not be written back from
    /// its characters stays bytes. Cut-off structures have the members that are there.
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

    /// What it is, in the words of errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            OwnedValue::Null => "no value",
            OwnedValue::Bool(_) => "a truth value",
            OwnedValue::Signed(_) | OwnedValue::Unsigned(_) => "a number",
            OwnedValue::Float(_) => "a floating point number",
            OwnedValue::Text(_) => "text",
            OwnedValue::Bytes(_) => "bytes",
            OwnedValue::Guid(_) => "a GUID",
            OwnedValue::Sid(_) => "a security identifier",
            OwnedValue::FileTime(_) => "a time",
            OwnedValue::SystemTime(_) => "a date",
            OwnedValue::RawTime(_) => "a raw timestamp",
            OwnedValue::Ip(_) => "an address of a host",
            OwnedValue::Socket(_) => "an address of a socket",
            OwnedValue::List(_) => "a list",
            OwnedValue::Struct(_) => "a structure",
        }
    }

    /// The elements that an array of this type gets. Arrays of characters take text, arrays of bytes take bytes.
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

    /// How many elements an array of this type has then.
    pub(super) fn count(&self, in_type: InType) -> Option<u64> {
        self.elements(in_type).map(|elements| elements.len() as u64)
    }

    /// The first element of a list.
    pub(super) fn first(&self) -> Option<&OwnedValue> {
        if let OwnedValue::List(elements) = self { elements.first() } else { None }
    }

    /// How long a text or binary of this type is then, in its units.
    pub(super) fn length(&self, in_type: InType) -> Option<u64> {
        let bytes = self.text_bytes(in_type)?.len() as u64;
        Some(if in_type == InType::Utf16 { bytes / 2 } else { bytes })
    }

    /// The bytes that a text or binary of this type gets, without an end.
    pub(super) fn text_bytes(&self, in_type: InType) -> Option<Cow<'_, [u8]>> {
        let is_wide = matches!(in_type, InType::Utf16 | InType::CountedUtf16);
        let is_binary = matches!(in_type, InType::Binary | InType::CountedBinary);
        match self {
            OwnedValue::Bytes(bytes) => (!is_wide || bytes.len() % 2 == 0).then_some(Cow::Borrowed(bytes)),
            OwnedValue::Text(text) if is_wide => {
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

/// Ports stand in network order, and are given and taken as numbers.
pub(super) fn number_order(field: &Field, number: u64) -> u64 {
    if field.out_type == OutType::Port && field.in_type == InType::U16 {
        (number as u16).swap_bytes().into()
    } else {
        number
    }
}

/// One way of conversion for each type that only has to be put into its place.
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
