//! Texts from values: UTF-16 and 8-bit text, and text in any encoding.

use std::borrow::Cow;

use super::{ConversionError, FromEtw};
use crate::decode::Item;
use crate::model::{Field, InType, OutType, Value};
use crate::text::{Ansi, Utf16};

impl<'e> FromEtw<'e> for Utf16<'e> {
    const TYPE_NAME: &'static str = "UTF-16 text";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Utf16<'e>, ConversionError> {
        if let Value::Utf16(bytes) = value { Ok(Utf16(bytes)) } else { Err(ConversionError::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Utf16<'e>, ConversionError> {
        match item {
            Item::Value(value) => Utf16::from_value(field, value),
            Item::Array(array) if field.in_type == InType::Utf16Char => array
                .text_value()
                .ok_or(ConversionError::Type)
                .and_then(|text| Utf16::from_value(field, text)),
            Item::Array(_) | Item::Struct(_) => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for Ansi<'e> {
    const TYPE_NAME: &'static str = "8-bit text";

    fn from_value(_: &'e Field, value: Value<'e>) -> Result<Ansi<'e>, ConversionError> {
        if let Value::Ansi(bytes) = value { Ok(Ansi(bytes)) } else { Err(ConversionError::Type) }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Ansi<'e>, ConversionError> {
        match item {
            Item::Value(value) => Ansi::from_value(field, value),
            Item::Array(array) if field.in_type == InType::AnsiChar => {
                array.text_value().ok_or(ConversionError::Type).and_then(|text| Ansi::from_value(field, text))
            }
            Item::Array(_) | Item::Struct(_) => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for Cow<'e, str> {
    const TYPE_NAME: &'static str = "text";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Cow<'e, str>, ConversionError> {
        if let Some(text) = value.text() {
            return Ok(text);
        }
        match value {
            Value::Binary(bytes) if is_text(field.out_type) => {
                Value::Ansi(bytes).text().ok_or(ConversionError::Type)
            }
            _ => {
                let (Some(map), Some(number)) = (&field.map, value.as_u64()) else {
                    return Err(ConversionError::Type);
                };
                Ok(match map.value_name(number) {
                    Some(name) if map.kind == crate::MapKind::Values => Cow::Borrowed(name),
                    _ => Cow::Owned(field.render(value).to_string()),
                })
            }
        }
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<Cow<'e, str>, ConversionError> {
        match item {
            Item::Value(value) => Self::from_value(field, value),
            Item::Array(array) => array.text().ok_or(ConversionError::Type),
            Item::Struct(_) => Err(ConversionError::Type),
        }
    }
}

/// Whether binary data with this out type is text.
fn is_text(out_type: OutType) -> bool {
    matches!(out_type, OutType::String | OutType::Utf8 | OutType::Xml | OutType::Json)
}

impl<'e> FromEtw<'e> for String {
    const TYPE_NAME: &'static str = "text";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<String, ConversionError> {
        Cow::from_value(field, value).map(Cow::into_owned)
    }

    fn from_item(field: &'e Field, item: Item<'e>) -> Result<String, ConversionError> {
        Cow::from_item(field, item).map(Cow::into_owned)
    }
}
