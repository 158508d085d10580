//! Structures in a payload, with access to their members by name.

use super::{ConversionError, FromEtw};
use crate::decode::{Decoded, Decoder, Item};
use crate::error::Error;
use crate::model::{Field, Value};

/// A structure in a payload. Members are read like properties, beginning with the first member.
#[derive(Clone, Debug)]
pub struct Structure<'e>(Decoder<'e>);

impl<'e> Structure<'e> {
    /// Reads the first member with this name.
    ///
    /// # Errors
    /// As [`Parser::parse`](super::Parser::parse).
    pub fn parse<T: FromEtw<'e>>(&self, name: &str) -> Result<T, Error> {
        match self.member(name)? {
            Some(member) => {
                let field = member.field;
                T::from_item(field, member.item).map_err(|error| error.explain(field, T::TYPE_NAME))
            }
            None => T::absent().ok_or_else(|| Error::NoProperty(name.into())),
        }
    }

    /// As [`parse`](Structure::parse), but returns `None` instead of an error.
    pub fn try_parse<T: FromEtw<'e>>(&self, name: &str) -> Option<T> {
        match self.member(name).ok()? {
            Some(member) => T::from_item(member.field, member.item).ok(),
            None => T::absent(),
        }
    }

    /// Reads a member of any kind: a value, an array or a structure.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn value(&self, name: &str) -> Result<Item<'e>, Error> {
        let member = self.member(name)?.ok_or_else(|| Error::NoProperty(name.into()))?;
        Ok(member.item)
    }

    /// Iterates over all members in order.
    pub fn iter(&self) -> Decoder<'e> {
        self.0.clone()
    }

    fn member(&self, name: &str) -> Result<Option<Decoded<'e>>, Error> {
        let is_it = |member: &Result<Decoded<'e>, Error>| match member {
            Ok(member) => *member.field.name == *name,
            Err(_) => true,
        };
        self.iter().find(is_it).transpose()
    }
}

impl<'e> IntoIterator for Structure<'e> {
    type Item = <Decoder<'e> as Iterator>::Item;
    type IntoIter = Decoder<'e>;

    fn into_iter(self) -> Decoder<'e> {
        self.0
    }
}

impl<'e> FromEtw<'e> for Structure<'e> {
    const TYPE_NAME: &'static str = "a structure";

    fn from_value(_: &'e Field, _: Value<'e>) -> Result<Structure<'e>, ConversionError> {
        Err(ConversionError::Type)
    }

    fn from_item(_: &'e Field, item: Item<'e>) -> Result<Structure<'e>, ConversionError> {
        match item {
            Item::Struct(members) => Ok(Structure(members)),
            Item::Value(_) | Item::Array(_) => Err(ConversionError::Type),
        }
    }
}
