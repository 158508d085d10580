//! The common form of all kinds of metadata.
//!
//! The numbers of the types are those of TDH (`TDH_INTYPE_*`, `TDH_OUTTYPE_*`), because
//! TraceLogging and embedded metadata use the same numbers. See the sections on TraceLogging and on
//! embedded metadata in `docs/format/`.

use std::sync::Arc;

use stackhound_types::{Guid, PointerSize};
use strum::{EnumIter, IntoEnumIterator};

/// The storage type of a field in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumIter)]
pub enum InType {
    /// No bytes.
    Null,
    /// UTF-16LE, terminated by a zero unit unless a length is given. The last text of a payload may
    /// lack its terminator.
    Utf16,
    /// 8-bit text, terminated by a zero byte unless a length is given. The last text of a payload
    /// may lack its terminator.
    Ansi,
    /// Signed 8 bits.
    I8,
    /// Unsigned 8 bits.
    U8,
    /// Signed 16 bits.
    I16,
    /// Unsigned 16 bits.
    U16,
    /// Signed 32 bits.
    I32,
    /// Unsigned 32 bits.
    U32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 64 bits.
    U64,
    /// 32-bit floating point.
    F32,
    /// 64-bit floating point.
    F64,
    /// A Boolean in four bytes.
    Bool32,
    /// A Boolean in one byte.
    Bool8,
    /// Raw bytes. Their length is given by the field; otherwise they extend to the end of the
    /// payload.
    Binary,
    /// A u16 byte length, then raw bytes.
    CountedBinary,
    /// A GUID, 16 bytes.
    Guid,
    /// Unsigned integer of the record's pointer size.
    Pointer,
    /// Units of 100 ns since 1601.
    FileTime,
    /// Eight u16: year, month, day of the week, day, hour, minute, second, millisecond.
    SystemTime,
    /// A security identifier: 8 bytes, and 4 per sub-authority.
    Sid,
    /// A `TOKEN_USER` structure followed by the SID, as kernel events write it. A first u32 of zero
    /// means that there is no SID.
    WbemSid,
    /// Unsigned 32 bits, shown in hexadecimal.
    HexInt32,
    /// Unsigned 64 bits, shown in hexadecimal.
    HexInt64,
    /// A u16 byte length, then UTF-16LE.
    CountedUtf16,
    /// A u16 byte length, then 8-bit text.
    CountedAnsi,
    /// One UTF-16 unit.
    Utf16Char,
    /// One byte of text.
    AnsiChar,
    /// A structure. The given number of fields that follow in [`Schema::fields`] are its members. A
    /// nested structure counts as one member, together with its own members.
    Struct {
        /// The number of direct members.
        members: u16,
    },
    /// A raw timestamp in ticks of the session's clock.
    RawTime,
}

impl InType {
    /// All types; a structure without members.
    pub fn all() -> impl Iterator<Item = InType> + Clone {
        InType::iter()
    }

    /// The size of a single value in bytes, if it depends only on the pointer size.
    pub const fn size(self, pointer: PointerSize) -> Option<usize> {
        Some(match self {
            InType::Null => 0,
            InType::I8 | InType::U8 | InType::Bool8 | InType::AnsiChar => 1,
            InType::I16 | InType::U16 | InType::Utf16Char => 2,
            InType::I32 | InType::U32 | InType::F32 | InType::Bool32 | InType::HexInt32 => 4,
            InType::I64
            | InType::U64
            | InType::F64
            | InType::HexInt64
            | InType::FileTime
            | InType::RawTime => 8,
            InType::Pointer => pointer.bytes(),
            InType::Guid | InType::SystemTime => 16,
            InType::Utf16
            | InType::Ansi
            | InType::Binary
            | InType::CountedBinary
            | InType::CountedUtf16
            | InType::CountedAnsi
            | InType::Sid
            | InType::WbemSid
            | InType::Struct { .. } => return None,
        })
    }

    /// Whether [`Field::length`] applies to values of this type.
    pub const fn takes_length(self) -> bool {
        matches!(self, InType::Utf16 | InType::Ansi | InType::Binary)
    }
}

/// The format in which a value is shown. Zero in TDH is [`OutType::Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OutType {
    /// The format that the storage type suggests.
    #[default]
    Default,
    /// Text.
    String,
    /// `true` or `false`.
    Boolean,
    /// Hexadecimal.
    Hex,
    /// A process id.
    Pid,
    /// A thread id.
    Tid,
    /// A port in network byte order.
    Port,
    /// An IPv4 address in network byte order.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A socket address.
    SocketAddress,
    /// XML text.
    Xml,
    /// JSON text.
    Json,
    /// A Win32 error code.
    Win32Error,
    /// An NTSTATUS.
    NtStatus,
    /// An HRESULT.
    HResult,
    /// A FILETIME or SYSTEMTIME.
    DateTime,
    /// Signed number.
    Signed,
    /// Unsigned number.
    Unsigned,
    /// UTF-8 text.
    Utf8,
    /// A code address.
    CodePointer,
    /// Any other number.
    Other(u8),
}

/// The number of values in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Count {
    /// A single value.
    #[default]
    One,
    /// An array of a fixed number of elements.
    Fixed(u16),
    /// An array whose number of elements is the value of an earlier field (index into
    /// [`Schema::fields`]).
    Field(u16),
    /// An array that is preceded by its number of elements as u16 (TraceLogging).
    Prefixed,
    /// An array that extends to the end of the payload.
    Rest,
}

/// The length of a text or binary field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Length {
    /// The length that the storage type implies: terminated, counted or of fixed size.
    #[default]
    Natural,
    /// A fixed length, in UTF-16 units for [`InType::Utf16`] and in bytes otherwise.
    Fixed(u16),
    /// The value of an earlier field (index into [`Schema::fields`]), in the same units.
    Field(u16),
    /// All remaining bytes of the payload.
    Rest,
}

/// One field of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the spelling of the metadata.
    pub name: Box<str>,
    /// The storage type.
    pub in_type: InType,
    /// The format in which it is shown.
    pub out_type: OutType,
    /// Single value or array.
    pub count: Count,
    /// The length of text and binary values.
    pub length: Length,
    /// The names of values or bits, if there are any.
    pub map: Option<Arc<Map>>,
}

impl Field {
    /// A field with a single value of natural length and the default format.
    pub fn new(name: impl Into<Box<str>>, in_type: InType) -> Field {
        Field {
            name: name.into(),
            in_type,
            out_type: OutType::Default,
            count: Count::One,
            length: Length::Natural,
            map: None,
        }
    }

    /// Padding of the given number of bytes, which aligns the next field. Decoders skip it.
    pub fn padding(size: u16) -> Field {
        Field { length: Length::Fixed(size), ..Field::new("", InType::Binary) }
    }

    /// Whether the field is padding: binary data of fixed length without a name.
    pub fn is_padding(&self) -> bool {
        self.name.is_empty() && self.in_type == InType::Binary && matches!(self.length, Length::Fixed(_))
    }
}

/// Names for the values or bits of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The name of the map.
    pub name: Box<str>,
    /// Whether the names are for values or for bits.
    pub kind: MapKind,
    /// Values or bit masks with their names, in the order of the metadata.
    pub entries: Vec<(u32, Box<str>)>,
}

/// Whether a map names values or bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// One name for each value.
    Values,
    /// One name for each bit.
    Bits,
}

/// The origin of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaSource {
    /// The built-in table of kernel classes.
    Kernel,
    /// The built-in table of providers.
    BuiltIn,
    /// TraceLogging metadata of the event.
    TraceLogging,
    /// A `TRACE_EVENT_INFO` block, from the trace or from Windows.
    Embedded,
    /// An instrumentation manifest: of an event source in the trace, of a file, or compiled into an
    /// image.
    Manifest,
}

/// The names and types of the fields of one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Where the schema comes from.
    pub source: SchemaSource,
    /// The provider or class GUID.
    pub provider: Guid,
    /// The event's name: `Class/Type` for kernel classes, otherwise `Task/Opcode` or the event's
    /// own name.
    pub event_name: Box<str>,
    /// The message with placeholders such as `%1`, if there is one.
    pub message: Option<Box<str>>,
    /// All fields in order. Members of structures follow their structure.
    pub fields: Vec<Field>,
}

impl Schema {
    /// The approximate memory use in bytes, without value maps. It is used to limit the
    /// descriptions that a trace can add.
    pub(crate) fn approximate_bytes(&self) -> usize {
        let names: usize = self.fields.iter().map(|field| field.name.len()).sum();
        let texts = self.event_name.len() + self.message.as_deref().map_or(0, str::len);
        size_of::<Schema>() + size_of::<Field>() * self.fields.len() + names + texts
    }
}

/// One decoded value, which borrows from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A signed integer of any width.
    Signed(i64),
    /// An unsigned integer of any width.
    Unsigned(u64),
    /// An unsigned integer that is shown in hexadecimal.
    Hex(u64),
    /// An unsigned integer of pointer size.
    Pointer(u64),
    /// A floating-point number.
    Float(f64),
    /// Text as UTF-16LE bytes, without its terminator.
    Utf16(&'a [u8]),
    /// 8-bit text without its terminator. It is read as UTF-8, or as Latin-1 if it is not valid
    /// UTF-8.
    Ansi(&'a [u8]),
    /// Raw bytes.
    Binary(&'a [u8]),
    /// A GUID.
    Guid(Guid),
    /// A security identifier: revision, count, authority, sub-authorities.
    Sid(&'a [u8]),
    /// A time in units of 100 ns since 1601.
    FileTime(stackhound_types::FileTime),
    /// Year, month, day of the week, day, hour, minute, second, millisecond.
    SystemTime([u16; 8]),
    /// A raw timestamp.
    RawTime(stackhound_types::RawTime),
}
