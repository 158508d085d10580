//! The common form into which every kind of metadata is brought.
//!
//! Types are numbered as in TDH (`TDH_INTYPE_*`, `TDH_OUTTYPE_*`), since TraceLogging and embedded metadata use the
//! same numbers; see the sections on TraceLogging and on embedded metadata in `docs/format/`.

use std::sync::Arc;

use stackhound_types::{Guid, PointerSize};

/// How a field is stored in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InType {
    /// No bytes.
    Null,
    /// UTF-16LE, terminated by a zero unit unless a length is given; the last one of a payload may lack the end.
    Utf16,
    /// 8-bit text, terminated by a zero byte unless a length is given.
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
    /// A truth value in four bytes.
    Bool32,
    /// A truth value in one byte.
    Bool8,
    /// Raw bytes; the length comes from the field, or is all that remains.
    Binary,
    /// A u16 byte length, then raw bytes.
    CountedBinary,
    /// 16 bytes.
    Guid,
    /// Pointer-sized unsigned.
    Pointer,
    /// Units of 100 ns since 1601.
    FileTime,
    /// Eight u16: year, month, weekday, day, hour, minute, second, millisecond.
    SystemTime,
    /// A security identifier: 8 bytes and 4 per sub-authority.
    Sid,
    /// A `TOKEN_USER` image before the SID, as kernel events write it; a first u32 of zero means "no SID".
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
    /// A structure: the given number of fields that follow in [`Schema::fields`] are its members, each nested
    /// structure counting once together with its own.
    Struct {
        /// How many direct members.
        members: u16,
    },
    /// A raw timestamp of the session's clock.
    RawTime,
}

impl InType {
    /// How many bytes a single value takes, where that depends on nothing but the pointer size.
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

    /// Whether [`Field::length`] has a meaning for values of this type.
    pub const fn takes_length(self) -> bool {
        matches!(self, InType::Utf16 | InType::Ansi | InType::Binary)
    }
}

/// How a value wants to be shown; zero in TDH terms is [`OutType::Default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OutType {
    /// As the storage type suggests.
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

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Count {
    /// A single value.
    #[default]
    One,
    /// An array of a fixed number of elements.
    Fixed(u16),
    /// An array whose number of elements is the value of an earlier field (index into [`Schema::fields`]).
    Field(u16),
    /// A u16 number of elements precedes them (TraceLogging).
    Prefixed,
    /// An array to the end of the payload.
    Rest,
}

/// How long a text or binary field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Length {
    /// As the storage type says (terminated, counted or of fixed size).
    #[default]
    Natural,
    /// Fixed: UTF-16 units for [`InType::Utf16`], bytes otherwise.
    Fixed(u16),
    /// The value of an earlier field, in the same units.
    Field(u16),
    /// All that remains of the payload.
    Rest,
}

/// One field of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as the metadata spells it.
    pub name: Box<str>,
    /// How it is stored.
    pub in_type: InType,
    /// How it wants to be shown.
    pub out_type: OutType,
    /// Array or not.
    pub count: Count,
    /// Length of text and binary.
    pub length: Length,
    /// Names of values, if there are any.
    pub map: Option<Arc<Map>>,
}

impl Field {
    /// A single value of natural length, shown as its storage type suggests.
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

    /// A gap of some bytes, which aligns the field behind it. Decoders pass over it.
    pub fn padding(size: u16) -> Field {
        Field { length: Length::Fixed(size), ..Field::new("", InType::Binary) }
    }

    /// Whether the field is only a gap: bytes of fixed length without a name.
    pub fn is_padding(&self) -> bool {
        self.name.is_empty() && self.in_type == InType::Binary && matches!(self.length, Length::Fixed(_))
    }
}

/// Names for the values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The name of the map.
    pub name: Box<str>,
    /// One name per value, or one per bit.
    pub kind: MapKind,
    /// Value or bit mask, with its text, in the metadata's order.
    pub entries: Vec<(u32, Box<str>)>,
}

/// Whether a map names whole values or bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// One text for each value.
    Values,
    /// One text for each set bit.
    Bits,
}

/// Where a schema comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaSource {
    /// The built-in table of kernel classes.
    Kernel,
    /// The built-in table of providers.
    BuiltIn,
    /// TraceLogging metadata inside the event.
    TraceLogging,
    /// A `TRACE_EVENT_INFO` block inside the recording.
    Embedded,
    /// An instrumentation manifest: of an event source inside the recording, of a file, or compiled into an image.
    Manifest,
}

/// Names and types of one kind of event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Where it comes from.
    pub source: SchemaSource,
    /// The provider or class GUID.
    pub provider: Guid,
    /// The provider's name, `Kernel` for kernel classes.
    pub provider_name: Box<str>,
    /// The event's name: `Class/Type` for kernel classes, otherwise `Task/Opcode` or the event's own name.
    pub event_name: Box<str>,
    /// The message with `%1` place holders, if there is one.
    pub message: Option<Box<str>>,
    /// All fields, structure members behind their structure.
    pub fields: Vec<Field>,
}

impl Schema {
    /// How much memory the schema takes, give or take shared maps; for limits on what recordings may describe.
    pub(crate) fn approximate_bytes(&self) -> usize {
        let names: usize = self.fields.iter().map(|field| field.name.len()).sum();
        let texts =
            self.provider_name.len() + self.event_name.len() + self.message.as_deref().map_or(0, str::len);
        size_of::<Schema>() + size_of::<Field>() * self.fields.len() + names + texts
    }
}

/// One decoded value, borrowing from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// Truth value.
    Bool(bool),
    /// Any signed integer.
    Signed(i64),
    /// Any unsigned integer.
    Unsigned(u64),
    /// An unsigned integer that is shown in hexadecimal.
    Hex(u64),
    /// A pointer-sized unsigned integer.
    Pointer(u64),
    /// Floating point.
    Float(f64),
    /// Text as UTF-16LE bytes, without its end.
    Utf16(&'a [u8]),
    /// 8-bit text, without its end; read as UTF-8, and as Latin-1 where it is not.
    Ansi(&'a [u8]),
    /// Raw bytes.
    Binary(&'a [u8]),
    /// A GUID.
    Guid(Guid),
    /// A security identifier (revision, count, authority, sub-authorities).
    Sid(&'a [u8]),
    /// A time in 100 ns since 1601.
    FileTime(stackhound_types::FileTime),
    /// Year, month, weekday, day, hour, minute, second, millisecond.
    SystemTime([u16; 8]),
    /// A raw timestamp.
    RawTime(stackhound_types::RawTime),
}
