//! Values of facts.

use std::borrow::Cow;
use std::fmt;

use stackhound_types::{FileTime, Guid, Pid, Rfc3339, Sid};

/// The value of a fact. Its text is that of all outputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FactValue<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A security identifier.
    Sid(Sid<'a>),
    /// A GUID.
    Guid(Guid),
    /// The id and the start time of a process; `None` if it was started before the trace.
    Entity(Pid, Option<FileTime>),
    /// A number of up to 32 bits.
    Number(u32),
    /// An address, or an offset.
    Hex(u64),
    /// A UTC time.
    Time(FileTime),
}

impl FactValue<'_> {
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> FactValue<'static> {
        match self {
            FactValue::Text(text) => FactValue::Text(Cow::Owned(text.into_owned())),
            FactValue::Sid(sid) => FactValue::Text(Cow::Owned(sid.to_string())),
            FactValue::Guid(guid) => FactValue::Guid(guid),
            FactValue::Entity(pid, start) => FactValue::Entity(pid, start),
            FactValue::Number(number) => FactValue::Number(number),
            FactValue::Hex(number) => FactValue::Hex(number),
            FactValue::Time(time) => FactValue::Time(time),
        }
    }
}

impl<'a> From<&'a str> for FactValue<'a> {
    fn from(text: &'a str) -> FactValue<'a> {
        FactValue::Text(Cow::Borrowed(text))
    }
}

impl From<String> for FactValue<'_> {
    fn from(text: String) -> Self {
        FactValue::Text(Cow::Owned(text))
    }
}

impl fmt::Display for FactValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactValue::Text(text) => f.write_str(text),
            FactValue::Sid(sid) => sid.fmt(f),
            FactValue::Guid(guid) => guid.fmt(f),
            FactValue::Entity(pid, None) => write!(f, "{}@0", pid.0),
            FactValue::Entity(pid, Some(start)) => write!(f, "{}@{}", pid.0, Rfc3339(*start)),
            FactValue::Number(number) => number.fmt(f),
            FactValue::Hex(number) => write!(f, "{number:#x}"),
            FactValue::Time(time) => Rfc3339(*time).fmt(f),
        }
    }
}
