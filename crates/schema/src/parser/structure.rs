//! Structures in a payload, with members that have names.

use super::{FromEtw, Unfit};
use crate::decode::{Decoded, Decoder, Item};
use crate::error::Error;
use crate::model::{Field, Value};

/// A structure in a payload. Members are read as properties are, from the first one on.
#[derive(Clone, Debug)]
pub struct Structure<'e>(Decoder<'e>);

impl<'e> Structure<'e> {
    /// Reads the first member of this name.
    ///
    /// # Errors
    /// As [`Parser::parse`](super::Parser::parse).
    pub fn parse<T: FromEtw<'e>>(&self, name: &str) -> Result<T, Error> {
        match self.member(name)? {
            Some(member) => {
                let field = member.field;
                T::from_item(field, member.item).map_err(|unfit| unfit.explain(field, T::ASKED))
            }
            None => T::absent().ok_or_else(|| Error::NoProperty(name.into())),
        }
    }

    /// As [`parse`](Structure::parse), without a reason where there is nothing.
    pub fn try_parse<T: FromEtw<'e>>(&self, name: &str) -> Option<T> {
        match self.member(name).ok()? {
            Some(member) => T::from_item(member.field, member.item).ok(),
            None => T::absent(),
        }
    }

    /// Whatever a member holds.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn value(&self, name: &str) -> Result<Item<'e>, Error> {
        let member = self.member(name)?.ok_or_else(|| Error::NoProperty(name.into()))?;
        Ok(member.item)
    }

    /// All members in order.
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
    const ASKED: &'static str = "a structure";

    fn from_value(_: &'e Field, _: Value<'e>) -> Result<Structure<'e>, Unfit> {
        Err(Unfit::Type)
    }

    fn from_item(_: &'e Field, item: Item<'e>) -> Result<Structure<'e>, Unfit> {
        match item {
            Item::Struct(members) => Ok(Structure(members)),
            Item::Value(_) | Item::Array(_) => Err(Unfit::Type),
        }
    }
}
