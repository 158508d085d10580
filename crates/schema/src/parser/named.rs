//! Numbers with names for their values or bits.

use std::fmt;

use super::{ConversionError, FromEtw};
use crate::model::{Field, Map, MapKind, Value};

/// A number with the name of its value in a value map. Prints as the name, or as the number if it
/// has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EnumText<'e> {
    /// The number.
    pub value: u64,
    /// The name, if the map has one.
    pub text: Option<&'e str>,
}

impl fmt::Display for EnumText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text {
            Some(text) => f.write_str(text),
            None => write!(f, "{}", self.value),
        }
    }
}

impl<'e> FromEtw<'e> for EnumText<'e> {
    const TYPE_NAME: &'static str = "a number with a value map";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<EnumText<'e>, ConversionError> {
        let (map, value) = mapped(field, value, MapKind::Values)?;
        Ok(EnumText { value, text: map.value_name(value) })
    }
}

/// A number whose bits have names in a bit map. Prints as all names of set bits, separated by `|`,
/// followed by the bits without a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags<'e> {
    /// The number.
    pub value: u64,
    field: &'e Field,
    map: &'e Map,
}

impl<'e> Flags<'e> {
    /// The names of the set bits, in the order of the map.
    pub fn names(&self) -> impl Iterator<Item = &'e str> + use<'e> {
        let value = self.value;
        let set = self.map.entries.iter().filter(move |(mask, _)| is_set(value, *mask));
        set.map(|(_, name)| &**name)
    }

    /// The set bits that have no name.
    pub fn unnamed(&self) -> u64 {
        let named = self.map.entries.iter().filter(|(mask, _)| is_set(self.value, *mask));
        named.fold(self.value, |rest, (mask, _)| rest & !u64::from(*mask))
    }
}

fn is_set(value: u64, mask: u32) -> bool {
    mask != 0 && value & u64::from(mask) == u64::from(mask)
}

impl fmt::Display for Flags<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field.render(Value::Unsigned(self.value)).fmt(f)
    }
}

impl<'e> FromEtw<'e> for Flags<'e> {
    const TYPE_NAME: &'static str = "a number with a bit map";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<Flags<'e>, ConversionError> {
        let (map, value) = mapped(field, value, MapKind::Bits)?;
        Ok(Flags { value, field, map })
    }
}

fn mapped<'e>(field: &'e Field, value: Value<'e>, kind: MapKind) -> Result<(&'e Map, u64), ConversionError> {
    let map = field.map.as_deref().filter(|map| map.kind == kind).ok_or(ConversionError::Type)?;
    Ok((map, value.as_u64().ok_or(ConversionError::Type)?))
}
