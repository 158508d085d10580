//! The types that a property can be read as: numbers, Booleans, ids, times and bytes.

use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Sid, Tid};

use crate::decode::Item;
use crate::error::{Error, FieldType};
use crate::model::{Field, InType, OutType, Value};

/// A type that a property can be read as.
///
/// | type | accepted properties |
/// |---|---|
/// | `u8` … `u64`, `i8` … `i64` | integers of at most the same width, signed ones only as signed types; pointers as `u64`; ports as numbers in host byte order; status and error codes as signed or unsigned types |
/// | `f32`, `f64` | floating-point numbers of at most the same width |
/// | `bool` | Booleans of one and of four bytes, integers that are shown as Booleans |
/// | [`Guid`], [`FileTime`], [`SystemTime`], [`RawTime`], [`Sid`] | the types of these names; integers that are shown as a date, as `FileTime` |
/// | [`Address`] | pointers, and unsigned integers of 32 and 64 bits |
/// | [`Pid`], [`Tid`] | unsigned integers of up to 32 bits |
/// | `IpAddr`, `SocketAddr` | numbers and bytes that are shown as addresses |
/// | `&[u8]` | bytes, and arrays of them |
/// | `Cow<str>`, `String` | UTF-16 and 8-bit text, characters and arrays of them, the name of a number in a map |
/// | [`Utf16`](crate::Utf16), [`Ansi`](crate::Ansi) | only text with this encoding |
/// | [`EnumText`](super::EnumText), [`Flags`](super::Flags) | numbers with a value map or a bit map |
/// | [`Structure`](super::Structure) | structures |
/// | `Vec<T>` | arrays of `T`; `Vec<u8>` also bytes |
/// | `Option<T>` | `T`; `None` for a property that the event does not have or that contains no value |
pub trait FromEtw<'e>: Sized {
    /// The name of the type in error messages.
    const TYPE_NAME: &'static str;

    /// Converts a single value of a field.
    ///
    /// # Errors
    /// If the field is of another type, or the value is not valid for this type.
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Self, ConversionError>;

    /// Converts the content of a field of any kind, including arrays and structures.
    ///
    /// # Errors
    /// As [`from_value`](FromEtw::from_value).
    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Self, ConversionError> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(_) | Item::Struct(_) => Err(ConversionError::Type),
        }
    }

    /// Whether [`from_start`](FromEtw::from_start) can return a value.
    const IS_NUMBER: bool = false;

    /// Reads a number from the bytes at the start of a field: the fast path for numbers that are
    /// stored as this type. `None` if [`from_value`](FromEtw::from_value) must be used.
    #[inline]
    fn from_start(_field: &Field, _bytes: &[u8], _pointer: PointerSize) -> Option<Self> {
        None
    }

    /// The value for a property that the event does not have. Most types have no such value.
    fn absent() -> Option<Self> {
        None
    }

    /// Converts a single value that is itself a list, such as bytes.
    ///
    /// # Errors
    /// As [`from_value`](FromEtw::from_value).
    fn list(_field: &'e Field, _value: Value<'e>) -> Result<Vec<Self>, ConversionError> {
        Err(ConversionError::Type)
    }
}

/// The reason that a property cannot be read as a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionError {
    /// The property is of another type.
    Type,
    /// The property is of the type, but its value is not valid. The text describes the valid
    /// values.
    Content(&'static str),
}

impl ConversionError {
    #[cold]
    pub(super) fn explain(self, field: &Field, requested: &'static str) -> Error {
        let property = field.name.clone();
        match self {
            ConversionError::Type => Error::WrongType { property, actual: FieldType::of(field), requested },
            ConversionError::Content(expected) => Error::Content { property, expected },
        }
    }
}

struct Integer {
    bits: u32,
    signed: bool,
    /// Whether the number is a status or error code, which can be read as signed or unsigned.
    is_code: bool,
}

impl Integer {
    #[inline]
    fn of(field: &Field) -> Option<Integer> {
        let (bits, signed) = match field.in_type {
            InType::U8 => (8, false),
            InType::U16 => (16, false),
            InType::U32 | InType::HexInt32 => (32, false),
            // The requested type must not depend on the pointer size of a record, so a pointer has
            // 64 bits.
            InType::U64 | InType::HexInt64 | InType::Pointer => (64, false),
            InType::I8 => (8, true),
            InType::I16 => (16, true),
            InType::I32 => (32, true),
            InType::I64 => (64, true),
            _ => return None,
        };
        // Codes are compared with signed and with unsigned constants.
        let is_code = matches!(field.out_type, OutType::NtStatus | OutType::HResult | OutType::Win32Error);
        Some(Integer { bits, signed, is_code })
    }

    /// Whether the type of `bits` bits can represent every such integer.
    #[inline]
    fn fits(&self, bits: u32, signed: bool) -> bool {
        if self.signed == signed || self.is_code && self.bits == bits {
            self.bits <= bits
        } else {
            signed && self.bits < bits
        }
    }
}

/// The bits of an integer, sign-extended, if a type of `bits` bits can represent every value of the
/// field's type.
#[inline]
fn integer(field: &Field, value: Value<'_>, bits: u32, signed: bool) -> Result<u64, ConversionError> {
    let stored =
        Integer::of(field).filter(|stored| stored.fits(bits, signed)).ok_or(ConversionError::Type)?;
    match value {
        Value::Unsigned(number) if field.out_type == OutType::Port && stored.bits == 16 => {
            Ok((number as u16).swap_bytes().into())
        }
        Value::Unsigned(number) | Value::Hex(number) | Value::Pointer(number) => Ok(number),
        Value::Signed(number) => Ok(number.cast_unsigned()),
        _ => Err(ConversionError::Type),
    }
}

/// The eight integer types differ only in their names and in the types that are stored in the same
/// way.
macro_rules! integers {
    ($($integer:ident: $($stored:ident)|*;)*) => {$(
        impl<'e> FromEtw<'e> for $integer {
            const TYPE_NAME: &'static str = stringify!($integer);
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
            fn from_value(field: &'e Field, value: Value<'e>) -> Result<Self, ConversionError> {
                // The cast only removes copies of the sign bit, because the widths were compared.
                integer(field, value, $integer::BITS, $integer::MIN != 0).map(|bits| bits as $integer)
            }

            fn list(field: &'e Field, value: Value<'e>) -> Result<Vec<Self>, ConversionError> {
                // Binary data can be read as a list of bytes, but not as a list of other integers.
                let bytes = <&[u8]>::from_value(field, value)?;
                if $integer::BITS == 8 && $integer::MIN == 0 {
                    Ok(bytes.iter().map(|&byte| byte as $integer).collect())
                } else {
                    Err(ConversionError::Type)
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
    const TYPE_NAME: &'static str = "f64";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<f64, ConversionError> {
        if let Value::Float(number) = value { Ok(number) } else { Err(ConversionError::Type) }
    }
}

impl<'e> FromEtw<'e> for f32 {
    const TYPE_NAME: &'static str = "f32";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<f32, ConversionError> {
        match value {
            Value::Float(number) if field.in_type == InType::F32 => Ok(number as f32),
            _ => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for bool {
    const TYPE_NAME: &'static str = "bool";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<bool, ConversionError> {
        match value {
            Value::Bool(truth) => Ok(truth),
            Value::Unsigned(number) if field.out_type == OutType::Boolean => Ok(number != 0),
            Value::Signed(number) if field.out_type == OutType::Boolean => Ok(number != 0),
            _ => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for Guid {
    const TYPE_NAME: &'static str = "Guid";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Guid, ConversionError> {
        if let Value::Guid(guid) = value { Ok(guid) } else { Err(ConversionError::Type) }
    }
}

impl<'e> FromEtw<'e> for Address {
    const TYPE_NAME: &'static str = "Address";
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
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Address, ConversionError> {
        match field.in_type {
            InType::U8 | InType::U16 => Err(ConversionError::Type),
            _ => integer(field, value, u64::BITS, false).map(Address),
        }
    }
}

impl<'e> FromEtw<'e> for Pid {
    const TYPE_NAME: &'static str = "Pid";
    const IS_NUMBER: bool = true;

    #[inline]
    fn from_start(field: &Field, bytes: &[u8], pointer: PointerSize) -> Option<Pid> {
        u32::from_start(field, bytes, pointer).map(Pid)
    }

    #[inline]
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Pid, ConversionError> {
        u32::from_value(field, value).map(Pid)
    }
}

impl<'e> FromEtw<'e> for Tid {
    const TYPE_NAME: &'static str = "Tid";
    const IS_NUMBER: bool = true;

    #[inline]
    fn from_start(field: &Field, bytes: &[u8], pointer: PointerSize) -> Option<Tid> {
        u32::from_start(field, bytes, pointer).map(Tid)
    }

    #[inline]
    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Tid, ConversionError> {
        u32::from_value(field, value).map(Tid)
    }
}

impl<'e> FromEtw<'e> for Sid<'e> {
    const TYPE_NAME: &'static str = "Sid";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Sid<'e>, ConversionError> {
        if let Value::Sid(bytes) = value { Ok(Sid(bytes)) } else { Err(ConversionError::Type) }
    }
}

impl<'e> FromEtw<'e> for FileTime {
    const TYPE_NAME: &'static str = "FileTime";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<FileTime, ConversionError> {
        match value {
            Value::FileTime(time) => Ok(time),
            Value::Unsigned(_) | Value::Signed(_) if field.out_type == OutType::DateTime => {
                value.as_i64().map(FileTime).ok_or(ConversionError::Content("a time"))
            }
            _ => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for RawTime {
    const TYPE_NAME: &'static str = "RawTime";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<RawTime, ConversionError> {
        if let Value::RawTime(time) = value { Ok(time) } else { Err(ConversionError::Type) }
    }
}

/// A date as its parts (`SYSTEMTIME`). The date may be invalid, and its time zone is unknown.
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
    const TYPE_NAME: &'static str = "SystemTime";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<SystemTime, ConversionError> {
        if let Value::SystemTime(parts) = value { Ok(parts.into()) } else { Err(ConversionError::Type) }
    }
}

impl<'e> FromEtw<'e> for &'e [u8] {
    const TYPE_NAME: &'static str = "bytes";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<&'e [u8], ConversionError> {
        if let Value::Binary(bytes) = value { Ok(bytes) } else { Err(ConversionError::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<&'e [u8], ConversionError> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(array) if matches!(field.in_type, InType::U8 | InType::I8) => Ok(array.bytes()),
            Item::Array(_) | Item::Struct(_) => Err(ConversionError::Type),
        }
    }
}

impl<'e, T: FromEtw<'e>> FromEtw<'e> for Option<T> {
    const TYPE_NAME: &'static str = T::TYPE_NAME;

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Option<T>, ConversionError> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(field, value).map(Some),
        }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Option<T>, ConversionError> {
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
    const TYPE_NAME: &'static str = "a list";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Vec<T>, ConversionError> {
        T::list(field, value)
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Vec<T>, ConversionError> {
        match item {
            Item::Value(value) => T::list(field, value),
            Item::Array(array) => array.iter().map(|element| T::from_item(field, element)).collect(),
            Item::Struct(_) => Err(ConversionError::Type),
        }
    }
}
