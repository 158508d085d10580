//! Which types a property can be read as: numbers, truth values, ids, times and bytes.

use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

use crate::decode::Item;
use crate::error::{Error, FieldType};
use crate::model::{Field, InType, OutType, Value};
use crate::value::Sid;

/// A type that a property can be read as.
///
/// | asked for | given by |
/// |---|---|
/// | `u8` … `u64`, `i8` … `i64` | integers of the same or a smaller width, signed only as signed; pointers as `u64`; ports in the order of numbers; status codes and error codes as either sign |
/// | `f32`, `f64` | floating point of the same or a smaller width |
/// | `bool` | truth values of one and of four bytes, integers that are shown as such |
/// | [`Guid`], [`FileTime`], [`SystemTime`], [`RawTime`], [`Sid`] | the types of these names; integers that are shown as a date, as `FileTime` |
/// | [`Address`] | pointers, and unsigned integers of 32 and 64 bits |
/// | [`Pid`], [`Tid`] | unsigned integers of up to 32 bits |
/// | `IpAddr`, `SocketAddr` | numbers and bytes that are shown as such |
/// | `&[u8]` | bytes, and arrays of them |
/// | `Cow<str>`, `String` | text in either width, characters and arrays of them, the text of a mapped number |
/// | [`Utf16`](super::Utf16), [`Ansi`](super::Ansi) | text in this width only |
/// | [`EnumText`](super::EnumText), [`Flags`](super::Flags) | numbers with a value map or a bit map |
/// | [`Structure`](super::Structure) | structures |
/// | `Vec<T>` | arrays of `T`; `Vec<u8>` also bytes |
/// | `Option<T>` | `T`; `None` for a property that the event does not have, or that says it has no value |
pub trait FromEtw<'e>: Sized {
    /// What is asked for, in the words of errors.
    const ASKED: &'static str;

    /// Out of a single value of a field.
    ///
    /// # Errors
    /// If the field is of another type, or the value has not the content that the type needs.
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Self, Unfit>;

    /// Out of whatever a field holds, arrays and structures too.
    ///
    /// # Errors
    /// As [`from_value`](FromEtw::from_value).
    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Self, Unfit> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(_) | Item::Struct(_) => Err(Unfit::Type),
        }
    }

    /// Whether [`from_start`](FromEtw::from_start) may give something.
    const IS_NUMBER: bool = false;

    /// Out of the bytes from where a field starts: the short way for numbers that are stored as they are asked for. `None`
    /// where the long way has to be gone.
    #[inline]
    fn from_start(_field: &Field, _bytes: &[u8], _pointer: PointerSize) -> Option<Self> {
        None
    }

    /// What a property is that the event does not have; most types have nothing for that.
    fn absent() -> Option<Self> {
        None
    }

    /// A single value that is a list already, as bytes are.
    ///
    /// # Errors
    /// As [`from_value`](FromEtw::from_value).
    fn list(_field: &'e Field, _value: Value<'e>) -> Result<Vec<Self>, Unfit> {
        Err(Unfit::Type)
    }
}

/// Why a property can not be read as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is of another type.
    Type,
    /// It is of the type, but not this one: it should have been what is said.
    Content(&'static str),
}

impl Unfit {
    #[cold]
    pub(super) fn explain(self, field: &Field, asked: &'static str) -> Error {
        let property = field.name.clone();
        match self {
            Unfit::Type => Error::WrongType { property, is: FieldType::of(field), asked },
            Unfit::Content(expected) => Error::Content { property, expected },
        }
    }
}

/// How an integer is stored.
struct Integer {
    bits: u32,
    signed: bool,
    /// Stands for a code, of which nobody knows whether it has a sign.
    is_code: bool,
}

impl Integer {
    #[inline]
    fn of(field: &Field) -> Option<Integer> {
        let (bits, signed) = match field.in_type {
            InType::U8 => (8, false),
            InType::U16 => (16, false),
            InType::U32 | InType::HexInt32 => (32, false),
            // Whatever the pointer size of a record is: what is asked for must not depend on it.
            InType::U64 | InType::HexInt64 | InType::Pointer => (64, false),
            InType::I8 => (8, true),
            InType::I16 => (16, true),
            InType::I32 => (32, true),
            InType::I64 => (64, true),
            _ => return None,
        };
        // Codes are compared with constants of either sign.
        let is_code = matches!(field.out_type, OutType::NtStatus | OutType::HResult | OutType::Win32Error);
        Some(Integer { bits, signed, is_code })
    }

    /// Whether every such integer is one with so many bits.
    #[inline]
    fn fits(&self, bits: u32, signed: bool) -> bool {
        if self.signed == signed || self.is_code && self.bits == bits {
            self.bits <= bits
        } else {
            signed && self.bits < bits
        }
    }
}

/// The bits of an integer, its sign extended, if every integer of the field's type has so many bits at most.
#[inline]
fn integer(field: &Field, value: Value<'_>, bits: u32, signed: bool) -> Result<u64, Unfit> {
    let stored = Integer::of(field).filter(|stored| stored.fits(bits, signed)).ok_or(Unfit::Type)?;
    match value {
        Value::Unsigned(number) if field.out_type == OutType::Port && stored.bits == 16 => {
            Ok((number as u16).swap_bytes().into())
        }
        Value::Unsigned(number) | Value::Hex(number) | Value::Pointer(number) => Ok(number),
        Value::Signed(number) => Ok(number.cast_unsigned()),
        _ => Err(Unfit::Type),
    }
}

/// The eight integer types differ in nothing but their names, and in the types that are stored in the same way.
macro_rules! integers {
    ($($integer:ident: $($stored:ident)|*;)*) => {$(
        impl<'e> FromEtw<'e> for $integer {
            const ASKED: &'static str = stringify!($integer);
            const IS_NUMBER: bool = true;

            #[inline]
            fn from_start(field: &Field, bytes: &[u8], _: PointerSize) -> Option<Self> {
                match (field.in_type, field.out_type) {
                    (_, OutType::Port) => None,
                    ($(InType::$stored)|*, _) => bytes.first_chunk().map(|bytes| $integer::from_le_bytes(*bytes)),
                    _ => None,
                }
            }

            #[inline]
            fn from_value(field: &'e Field, value: Value<'e>) -> Result<Self, Unfit> {
                // Nothing is cut off but copies of the sign: the widths were compared.
                integer(field, value, $integer::BITS, $integer::MIN != 0).map(|bits| bits as $integer)
            }

            fn list(field: &'e Field, value: Value<'e>) -> Result<Vec<Self>, Unfit> {
                // A binary is a list of bytes, and of nothing else.
                let bytes = <&[u8]>::from_value(field, value)?;
                if $integer::BITS == 8 && $integer::MIN == 0 {
                    Ok(bytes.iter().map(|&byte| byte as $integer).collect())
                } else {
                    Err(Unfit::Type)
                }
            }
        }
    )*};
}

integers! {
    u8: U8;
    u16: U16;
    u32: U32 | HexInt32;
    u64: U64 | HexInt64;
    i8: I8;
    i16: I16;
    i32: I32;
    i64: I64;
}

impl<'e> FromEtw<'e> for f64 {
    const ASKED: &'static str = "f64";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<f64, Unfit> {
        if let Value::Float(number) = value { Ok(number) } else { Err(Unfit::Type) }
    }
}

impl<'e> FromEtw<'e> for f32 {
    const ASKED: &'static str = "f32";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<f32, Unfit> {
        match value {
            Value::Float(number) if field.in_type == InType::F32 => Ok(number as f32),
            _ => Err(Unfit::Type),
        }
    }
}

impl<'e> FromEtw<'e> for bool {
    const ASKED: &'static str = "bool";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<bool, Unfit> {
        match value {
            Value::Bool(truth) => Ok(truth),
            Value::Unsigned(number) if field.out_type == OutType::Boolean => Ok(number != 0),
            Value::Signed(number) if field.out_type == OutType::Boolean => Ok(number != 0),
            _ => Err(Unfit::Type),
        }
    }
}

impl<'e> FromEtw<'e> for Guid {
    const ASKED: &'static str = "Guid";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Guid, Unfit> {
        if let Value::Guid(guid) = value { Ok(guid) } else { Err(Unfit::Type) }
    }
}

impl<'e> FromEtw<'e> for Address {
    const ASKED: &'static str = "Address";
    const IS_NUMBER: bool = true;

    #[inline]
    fn from_start(field: &Field, bytes: &[u8], pointer: PointerSize) -> Option<Address> {
        match (field.in_type, pointer) {
            (InType::Pointer, PointerSize::Eight) => {
                bytes.first_chunk().map(|bytes| Address(u64::from_le_bytes(*bytes)))
            }
            _ => None,
        }
    }

    #[inline]
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Address, Unfit> {
        match field.in_type {
            InType::U8 | InType::U16 => Err(Unfit::Type),
            _ => integer(field, value, u64::BITS, false).map(Address),
        }
    }
}

impl<'e> FromEtw<'e> for Pid {
    const ASKED: &'static str = "Pid";
    const IS_NUMBER: bool = true;

    #[inline]
    fn from_start(field: &Field, bytes: &[u8], pointer: PointerSize) -> Option<Pid> {
        u32::from_start(field, bytes, pointer).map(Pid)
    }

    #[inline]
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Pid, Unfit> {
        u32::from_value(field, value).map(Pid)
    }
}

impl<'e> FromEtw<'e> for Tid {
    const ASKED: &'static str = "Tid";
    const IS_NUMBER: bool = true;

    #[inline]
    fn from_start(field: &Field, bytes: &[u8], pointer: PointerSize) -> Option<Tid> {
        u32::from_start(field, bytes, pointer).map(Tid)
    }

    #[inline]
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Tid, Unfit> {
        u32::from_value(field, value).map(Tid)
    }
}

impl<'e> FromEtw<'e> for Sid<'e> {
    const ASKED: &'static str = "Sid";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Sid<'e>, Unfit> {
        if let Value::Sid(bytes) = value { Ok(Sid(bytes)) } else { Err(Unfit::Type) }
    }
}

impl<'e> FromEtw<'e> for FileTime {
    const ASKED: &'static str = "FileTime";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<FileTime, Unfit> {
        match value {
            Value::FileTime(time) => Ok(time),
            Value::Unsigned(_) | Value::Signed(_) if field.out_type == OutType::DateTime => {
                value.as_i64().map(FileTime).ok_or(Unfit::Content("a time"))
            }
            _ => Err(Unfit::Type),
        }
    }
}

impl<'e> FromEtw<'e> for RawTime {
    const ASKED: &'static str = "RawTime";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<RawTime, Unfit> {
        if let Value::RawTime(time) = value { Ok(time) } else { Err(Unfit::Type) }
    }
}

/// A date as its parts (`SYSTEMTIME`). Nothing says that there is such a date, nor in which time zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SystemTime {
    /// 1601 and later.
    pub year: u16,
    /// 1 to 12.
    pub month: u16,
    /// 0 for Sunday.
    pub day_of_week: u16,
    /// 1 to 31.
    pub day: u16,
    /// 0 to 23.
    pub hour: u16,
    /// 0 to 59.
    pub minute: u16,
    /// 0 to 59.
    pub second: u16,
    /// 0 to 999.
    pub millisecond: u16,
}

impl From<[u16; 8]> for SystemTime {
    fn from([year, month, day_of_week, day, hour, minute, second, millisecond]: [u16; 8]) -> SystemTime {
        SystemTime { year, month, day_of_week, day, hour, minute, second, millisecond }
    }
}

impl From<SystemTime> for [u16; 8] {
    fn from(time: SystemTime) -> [u16; 8] {
        let SystemTime { year, month, day_of_week, day, hour, minute, second, millisecond } = time;
        [year, month, day_of_week, day, hour, minute, second, millisecond]
    }
}

impl<'e> FromEtw<'e> for SystemTime {
    const ASKED: &'static str = "SystemTime";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<SystemTime, Unfit> {
        if let Value::SystemTime(parts) = value { Ok(parts.into()) } else { Err(Unfit::Type) }
    }
}

impl<'e> FromEtw<'e> for &'e [u8] {
    const ASKED: &'static str = "bytes";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<&'e [u8], Unfit> {
        if let Value::Binary(bytes) = value { Ok(bytes) } else { Err(Unfit::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<&'e [u8], Unfit> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(array) if matches!(field.in_type, InType::U8 | InType::I8) => Ok(array.bytes()),
            Item::Array(_) | Item::Struct(_) => Err(Unfit::Type),
        }
    }
}

impl<'e, T: FromEtw<'e>> FromEtw<'e> for Option<T> {
    const ASKED: &'static str = T::ASKED;

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Option<T>, Unfit> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(field, value).map(Some),
        }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Option<T>, Unfit> {
        match item {
            Item::Value(Value::Null) => Ok(None),
            item => T::from_item(field, item).map(Some),
        }
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }
}

impl<'e, T: FromEtw<'e>> FromEtw<'e> for Vec<T> {
    const ASKED: &'static str = "a list";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Vec<T>, Unfit> {
        T::list(field, value)
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Vec<T>, Unfit> {
        match item {
            Item::Value(value) => T::list(field, value),
            Item::Array(array) => array.iter().map(|element| T::from_item(field, element)).collect(),
            Item::Struct(_) => Err(Unfit::Type),
        }
    }
}
