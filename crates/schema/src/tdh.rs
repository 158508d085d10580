//! Numbers and names of storage types and out types in metadata.

use crate::model::{InType, OutType};

impl InType {
    /// The type with this `TDH_INTYPE_*` number. Integers of 8 and 16 bits that are shown as text
    /// are characters.
    ///
    /// `None` for structures, which metadata marks in other ways, and for counted texts in reversed
    /// byte order.
    pub(crate) fn from_tdh(number: u16, out_type: OutType) -> Option<InType> {
        Some(match (number, out_type) {
            (3 | 4, OutType::String) => InType::AnsiChar,
            (5 | 6, OutType::String) => InType::Utf16Char,
            (0, _) => InType::Null,
            (1 | 304, _) => InType::Utf16,
            (2 | 305, _) => InType::Ansi,
            (3, _) => InType::I8,
            (4, OutType::Boolean) => InType::Bool8,
            (4, _) => InType::U8,
            (5, _) => InType::I16,
            (6, _) => InType::U16,
            (7, _) => InType::I32,
            (8, _) => InType::U32,
            (9, _) => InType::I64,
            (10, _) => InType::U64,
            (11, _) => InType::F32,
            (12, _) => InType::F64,
            (13, _) => InType::Bool32,
            (14, _) => InType::Binary,
            (15, _) => InType::Guid,
            (16 | 308, _) => InType::Pointer,
            (17, _) => InType::FileTime,
            (18, _) => InType::SystemTime,
            (19, _) => InType::Sid,
            (20, _) => InType::HexInt32,
            (21, _) => InType::HexInt64,
            (22 | 300, _) => InType::CountedUtf16,
            (23 | 301, _) => InType::CountedAnsi,
            (25 | 309, _) => InType::CountedBinary,
            (306, _) => InType::Utf16Char,
            (307, _) => InType::AnsiChar,
            (310, _) => InType::WbemSid,
            _ => return None,
        })
    }
}

impl InType {
    /// The name of the type in manifests, or a description for types without a name there.
    pub const fn manifest_name(self) -> &'static str {
        match self {
            InType::Null => "null",
            InType::Utf16 => "win:UnicodeString",
            InType::Ansi => "win:AnsiString",
            InType::I8 => "win:Int8",
            InType::U8 | InType::Bool8 => "win:UInt8",
            InType::I16 => "win:Int16",
            InType::U16 => "win:UInt16",
            InType::I32 => "win:Int32",
            InType::U32 => "win:UInt32",
            InType::I64 => "win:Int64",
            InType::U64 => "win:UInt64",
            InType::F32 => "win:Float",
            InType::F64 => "win:Double",
            InType::Bool32 => "win:Boolean",
            InType::Binary => "win:Binary",
            InType::CountedBinary => "win:CountedBinary",
            InType::Guid => "win:GUID",
            InType::Pointer => "win:Pointer",
            InType::FileTime => "win:FILETIME",
            InType::SystemTime => "win:SYSTEMTIME",
            InType::Sid => "win:SID",
            InType::WbemSid => "trace:WBEMSid",
            InType::HexInt32 => "win:HexInt32",
            InType::HexInt64 => "win:HexInt64",
            InType::CountedUtf16 => "win:CountedUnicodeString",
            InType::CountedAnsi => "win:CountedAnsiString",
            InType::Utf16Char => "trace:UnicodeChar",
            InType::AnsiChar => "trace:AnsiChar",
            InType::Struct { .. } => "struct",
            InType::RawTime => "raw time",
        }
    }
}

impl OutType {
    /// The name of the type in manifests; `None` for types that add nothing to the storage type.
    pub const fn manifest_name(self) -> Option<&'static str> {
        Some(match self {
            OutType::Default | OutType::Signed | OutType::Unsigned | OutType::Other(_) => return None,
            OutType::String => "xs:string",
            OutType::Boolean => "xs:boolean",
            OutType::Hex => "hexadecimal",
            OutType::Pid => "win:PID",
            OutType::Tid => "win:TID",
            OutType::Port => "win:Port",
            OutType::Ipv4 => "win:IPv4",
            OutType::Ipv6 => "win:IPv6",
            OutType::SocketAddress => "win:SocketAddress",
            OutType::Xml => "win:Xml",
            OutType::Json => "win:Json",
            OutType::Win32Error => "win:Win32Error",
            OutType::NtStatus => "win:NTSTATUS",
            OutType::HResult => "win:HResult",
            OutType::DateTime => "xs:dateTime",
            OutType::Utf8 => "win:Utf8",
            OutType::CodePointer => "win:CodePointer",
        })
    }

    /// The type with this `TDH_OUTTYPE_*` number. Types that only repeat the storage type are the
    /// default.
    pub(crate) fn from_tdh(number: u16) -> OutType {
        match number {
            0 | 3..=12 | 14 => OutType::Default,
            1 => OutType::String,
            2 | 33 | 38 => OutType::DateTime,
            13 => OutType::Boolean,
            15..=19 => OutType::Hex,
            20 => OutType::Pid,
            21 => OutType::Tid,
            22 => OutType::Port,
            23 => OutType::Ipv4,
            24 => OutType::Ipv6,
            25 => OutType::SocketAddress,
            28 => OutType::Xml,
            29 | 30 => OutType::Win32Error,
            31 => OutType::NtStatus,
            32 => OutType::HResult,
            34 => OutType::Json,
            35 => OutType::Utf8,
            37 => OutType::CodePointer,
            300 => OutType::String,
            other => OutType::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }

    /// The type with this number in TraceLogging metadata. Numbers up to 18 have an order of their
    /// own there.
    pub(crate) fn from_tracelogging(number: u8) -> OutType {
        match number {
            0 => OutType::Default,
            2 => OutType::String,
            3 => OutType::Boolean,
            4 => OutType::Hex,
            5 => OutType::Pid,
            6 => OutType::Tid,
            7 => OutType::Port,
            8 => OutType::Ipv4,
            9 => OutType::Ipv6,
            10 => OutType::SocketAddress,
            11 => OutType::Xml,
            12 => OutType::Json,
            13 => OutType::Win32Error,
            14 => OutType::NtStatus,
            15 => OutType::HResult,
            16 | 33 | 38 => OutType::DateTime,
            17 => OutType::Signed,
            18 => OutType::Unsigned,
            35 => OutType::Utf8,
            37 => OutType::CodePointer,
            other => OutType::Other(other),
        }
    }
}

/// The number of the in-type with this name in manifests.
pub(crate) fn in_type_number(name: &str) -> Option<u16> {
    Some(match name {
        "win:UnicodeString" => 1,
        "win:AnsiString" => 2,
        "win:Int8" => 3,
        "win:UInt8" => 4,
        "win:Int16" => 5,
        "win:UInt16" => 6,
        "win:Int32" => 7,
        "win:UInt32" => 8,
        "win:Int64" => 9,
        "win:UInt64" => 10,
        "win:Float" => 11,
        "win:Double" => 12,
        "win:Boolean" => 13,
        "win:Binary" => 14,
        "win:GUID" => 15,
        "win:Pointer" => 16,
        "win:FILETIME" => 17,
        "win:SYSTEMTIME" => 18,
        "win:SID" => 19,
        "win:HexInt32" => 20,
        "win:HexInt64" => 21,
        "win:CountedUnicodeString" => 22,
        "win:CountedAnsiString" => 23,
        "win:CountedBinary" => 25,
        "trace:UnicodeChar" => 306,
        "trace:AnsiChar" => 307,
        "trace:SizeT" => 308,
        "trace:WBEMSid" => 310,
        _ => return None,
    })
}

/// The number of the out type with this name in manifests.
pub(crate) fn out_type_number(name: &str) -> Option<u16> {
    Some(match name {
        "xs:string" => 1,
        "xs:dateTime" => 2,
        "xs:byte" => 3,
        "xs:unsignedByte" => 4,
        "xs:short" => 5,
        "xs:unsignedShort" => 6,
        "xs:int" => 7,
        "xs:unsignedInt" => 8,
        "xs:long" => 9,
        "xs:unsignedLong" => 10,
        "xs:float" => 11,
        "xs:double" => 12,
        "xs:boolean" => 13,
        "xs:GUID" => 14,
        "xs:hexBinary" => 15,
        "win:HexInt8" => 16,
        "win:HexInt16" => 17,
        "win:HexInt32" => 18,
        "win:HexInt64" => 19,
        "win:PID" => 20,
        "win:TID" => 21,
        "win:Port" => 22,
        "win:IPv4" => 23,
        "win:IPv6" => 24,
        "win:SocketAddress" => 25,
        "win:CIMDateTime" => 26,
        "win:ETWTIME" => 27,
        "win:Xml" => 28,
        "win:ErrorCode" => 29,
        "win:Win32Error" => 30,
        "win:NTSTATUS" => 31,
        "win:HResult" => 32,
        "win:DateTimeCultureInsensitive" => 33,
        "win:Json" => 34,
        "win:Utf8" => 35,
        "win:Pkcs7WithTypeInfo" => 36,
        "win:CodePointer" => 37,
        "win:DateTimeUtc" => 38,
        _ => return None,
    })
}
