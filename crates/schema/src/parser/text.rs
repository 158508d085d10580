//! Text in both widths.

use std::borrow::Cow;
use std::fmt;

use super::{FromEtw, Unfit};
use crate::decode::Item;
use crate::model::{Field, InType, OutType, Value};
use crate::value::utf16_chars;

/// UTF-16LE text in a payload, without its end. Borrows; prints as text, with U+FFFD for what is not well-formed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Utf16<'e>(&'e [u8]);

impl<'e> Utf16<'e> {
    /// The bytes, two a unit.
    pub fn bytes(self) -> &'e [u8] {
        self.0
    }

    /// How many units.
    pub fn len(self) -> usize {
        self.0.len() / 2
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The units.
    pub fn units(self) -> impl Iterator<Item = u16> {
        self.0.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit))
    }

    /// The characters.
    pub fn chars(self) -> impl Iterator<Item = char> {
        utf16_chars(self.0)
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        self.chars().try_for_each(|char| f.write_char(char))
    }
}

/// Without an allocation.
impl PartialEq<str> for Utf16<'_> {
    fn eq(&self, text: &str) -> bool {
        self.units().eq(text.encode_utf16())
    }
}

impl PartialEq<&str> for Utf16<'_> {
    fn eq(&self, text: &&str) -> bool {
        *self == **text
    }
}

impl<'e> FromEtw<'e> for Utf16<'e> {
    const ASKED: &'static str = "UTF-16 text";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Utf16<'e>, Unfit> {
        if let Value::Utf16(bytes) = value { Ok(Utf16(bytes)) } else { Err(Unfit::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Utf16<'e>, Unfit> {
        match item {
            Item::Value(value) => Utf16::from_value(field, value),
            Item::Array(array) if field.in_type == InType::Utf16Char => {
                array.text_value().ok_or(Unfit::Type).and_then(|text| Utf16::from_value(field, text))
            }
            Item::Array(_) | Item::Struct(_) => Err(Unfit::Type),
        }
    }
}

/// 8-bit text in a payload, without its end. Recordings do not say in which code page; prints as UTF-8 if it is that, as
/// Latin-1 if not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ansi<'e>(&'e [u8]);

impl<'e> Ansi<'e> {
    /// The bytes.
    pub fn bytes(self) -> &'e [u8] {
        self.0
    }
}

impl fmt::Display for Ansi<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Value::Ansi(self.0).text().unwrap_or_default())
    }
}

impl<'e> FromEtw<'e> for Ansi<'e> {
    const ASKED: &'static str = "8-bit text";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Ansi<'e>, Unfit> {
        if let Value::Ansi(bytes) = value { Ok(Ansi(bytes)) } else { Err(Unfit::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Ansi<'e>, Unfit> {
        match item {
            Item::Value(value) => Ansi::from_value(field, value),
            Item::Array(array) if field.in_type == InType::AnsiChar => {
                array.text_value().ok_or(Unfit::Type).and_then(|text| Ansi::from_value(field, text))
            }
            Item::Array(_) | Item::Struct(_) => Err(Unfit::Type),
        }
    }
}

impl<'e> FromEtw<'e> for Cow<'e, str> {
    const ASKED: &'static str = "text";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Cow<'e, str>, Unfit> {
        if let Some(text) = value.text() {
            return Ok(text);
        }
        match value {
            Value::Binary(bytes) if is_text(field.out_type) => Value::Ansi(bytes).text().ok_or(Unfit::Type),
            _ => {
                let (Some(map), Some(number)) = (&field.map, value.as_u64()) else { return Err(Unfit::Type) };
                Ok(match map.value_name(number) {
                    Some(name) if map.kind == crate::MapKind::Values => Cow::Borrowed(name),
                    _ => Cow::Owned(field.render(value).to_string()),
                })
            }
        }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Cow<'e, str>, Unfit> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(array) => array.text().ok_or(Unfit::Type),
            Item::Struct(_) => Err(Unfit::Type),
        }
    }
}

/// Whether bytes are shown as text.
fn is_text(out_type: OutType) -> bool {
    matches!(out_type, OutType::String | OutType::Utf8 | OutType::Xml | OutType::Json)
}

impl<'e> FromEtw<'e> for String {
    const ASKED: &'static str = "text";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<String, Unfit> {
        Cow::from_value(field, value).map(Cow::into_owned)
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<String, Unfit> {
        Cow::from_item(field, item).map(Cow::into_owned)
    }
}
