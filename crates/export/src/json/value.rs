//! Values without a JSON type, as texts.

#[cfg(test)]
use std::borrow::Cow;
use std::fmt;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, Serializer};
use stackhound_types::{FileTime, HexBytes, Rfc3339};

/// A number as `0x…`: addresses, offsets in modules, masks and keys, which may exceed the integers
/// that JSON readers preserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
impl JsonSchema for Hex {
    fn schema_name() -> Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A number of up to 64 bits in hexadecimal digits.",
            "pattern": "^0x[0-9a-f]{1,16}$",
        })
    }
}

/// A UTC time in RFC 3339 format with seven fractional digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub FileTime);

impl Time {
    /// Converts a time in units of 100 ns since 1601. `None` after the year 9999, which RFC 3339
    /// cannot express.
    pub fn from_ticks(ticks: u64) -> Option<Time> {
        /// Start of the year 10000.
        const END: u64 = 2_650_467_744_000_000_000;
        (ticks < END).then_some(Time(FileTime(ticks as i64)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Rfc3339(self.0).fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "RFC 3339 in UTC, to 100 ns. Damaged traces can state years outside of 0000 to 9999.",
            "pattern": "^-?[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{7}Z$",
        })
    }
}

/// Bytes as hexadecimal text, two digits each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&HexBytes(self.0))
    }
}

#[cfg(test)]
impl JsonSchema for Bytes<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Bytes in their order, two hexadecimal digits each.",
            "pattern": "^([0-9a-f]{2})*$",
        })
    }
}

/// Any value, as the text of its `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
impl<T> JsonSchema for Text<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
