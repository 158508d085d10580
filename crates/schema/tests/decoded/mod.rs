//! A common form for the results of views and decoders.

use std::collections::BTreeMap;

use stackhound_schema::{Ansi, Item, Schema, Sid, Utf16, Value};
use stackhound_types::{Address, FileTime, Guid, Pid, PointerSize, RawTime, Tid};

/// A value, regardless of the format in which it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedValue {
    Number(i128),
    Text(String),
    Bytes(Vec<u8>),
    /// The elements of an array, or the values of one member in an array of structures.
    List(Vec<DecodedValue>),
    Absent,
}

/// A field name of the tables, with a value.
pub type Row = (&'static str, DecodedValue);

macro_rules! numbers {
    ($($of:ty),*) => { $(impl From<$of> for DecodedValue { fn from(value: $of) -> DecodedValue { DecodedValue::Number(value.into()) } })* };
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64);

impl From<Address> for DecodedValue {
    fn from(address: Address) -> DecodedValue {
        address.0.into()
    }
}

impl From<Pid> for DecodedValue {
    fn from(pid: Pid) -> DecodedValue {
        pid.0.into()
    }
}

impl From<Tid> for DecodedValue {
    fn from(tid: Tid) -> DecodedValue {
        tid.0.into()
    }
}

impl From<RawTime> for DecodedValue {
    fn from(time: RawTime) -> DecodedValue {
        time.0.into()
    }
}

impl From<FileTime> for DecodedValue {
    fn from(time: FileTime) -> DecodedValue {
        time.0.into()
    }
}

impl From<Utf16<'_>> for DecodedValue {
    fn from(text: Utf16<'_>) -> DecodedValue {
        DecodedValue::Text(text.to_string_lossy())
    }
}

impl From<Ansi<'_>> for DecodedValue {
    fn from(text: Ansi<'_>) -> DecodedValue {
        DecodedValue::Text(text.to_string())
    }
}

impl From<Sid<'_>> for DecodedValue {
    fn from(sid: Sid<'_>) -> DecodedValue {
        DecodedValue::Bytes(sid.0.to_vec())
    }
}

impl From<Guid> for DecodedValue {
    fn from(guid: Guid) -> DecodedValue {
        DecodedValue::Bytes(guid.0.to_vec())
    }
}

impl<T: Into<DecodedValue>> From<Option<T>> for DecodedValue {
    fn from(value: Option<T>) -> DecodedValue {
        value.map_or(DecodedValue::Absent, Into::into)
    }
}

impl<T: Into<DecodedValue>> FromIterator<T> for DecodedValue {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> DecodedValue {
        DecodedValue::List(values.into_iter().map(Into::into).collect())
    }
}

/// The fields of a payload by name. Members of structures are named `Structure.Member`.
#[derive(Debug, Default)]
pub struct Fields {
    fields: BTreeMap<String, DecodedValue>,
    /// Whether the payload ended before the schema did.
    pub cut_off: bool,
}

impl Fields {
    pub fn get(&self, name: &str) -> Option<&DecodedValue> {
        self.fields.get(name)
    }
}

impl FromIterator<Row> for Fields {
    fn from_iter<I: IntoIterator<Item = Row>>(rows: I) -> Fields {
        let fields = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Fields { fields, cut_off: false }
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = (&'a String, &'a DecodedValue);
    type IntoIter = std::collections::btree_map::Iter<'a, String, DecodedValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.iter()
    }
}

/// Decodes a payload.
pub fn dynamic(schema: &Schema, payload: &[u8], pointer: PointerSize) -> Fields {
    let mut fields = Fields::default();
    let mut flat = Vec::new();
    for decoded in schema.decode(payload, pointer) {
        match decoded {
            Ok(decoded) => flatten(decoded.field.name.to_string(), decoded.item, &mut flat),
            Err(_) => fields.cut_off = true,
        }
    }
    for (name, value) in flat {
        fields.fields.insert(name, value);
    }
    fields
}

/// Collects an item. For a structure, collects its members; for an array of structures, a list for
/// each member.
pub fn flatten(name: String, item: Item<'_>, into: &mut Vec<(String, DecodedValue)>) {
    match item {
        Item::Value(value) => into.push((name, decoded(value))),
        Item::Struct(members) => {
            for member in members.flatten() {
                flatten(format!("{name}.{}", member.field.name), member.item, into);
            }
        }
        Item::Array(array) => {
            let mut lists: BTreeMap<String, Vec<DecodedValue>> = BTreeMap::new();
            for element in array {
                let mut flat = Vec::new();
                flatten(name.clone(), element, &mut flat);
                for (name, value) in flat {
                    lists.entry(name).or_default().push(value);
                }
            }
            if lists.is_empty() {
                lists.insert(name, Vec::new());
            }
            into.extend(lists.into_iter().map(|(name, list)| (name, DecodedValue::List(list))));
        }
    }
}

fn decoded(value: Value<'_>) -> DecodedValue {
    match value {
        Value::Null => DecodedValue::Absent,
        Value::Bool(value) => DecodedValue::Number(value.into()),
        Value::Signed(value) => DecodedValue::Number(value.into()),
        Value::Unsigned(value) | Value::Hex(value) | Value::Pointer(value) => {
            DecodedValue::Number(value.into())
        }
        Value::Float(value) => panic!("unexpected floating-point number: {value}"),
        Value::Utf16(_) | Value::Ansi(_) => DecodedValue::Text(value.text().unwrap_or_default().into_owned()),
        Value::Binary(bytes) | Value::Sid(bytes) => DecodedValue::Bytes(bytes.to_vec()),
        Value::Guid(guid) => guid.into(),
        Value::FileTime(time) => time.into(),
        Value::RawTime(time) => time.into(),
        Value::SystemTime(parts) => DecodedValue::List(parts.into_iter().map(Into::into).collect()),
    }
}
