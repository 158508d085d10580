//! Typed access to the properties of an event.
//!
//! A [`Parser`] is a payload with the [`Plan`] to decode it. The requested type determines the
//! conversion ([`FromEtw`]), and the type of the property is checked in every build. Integers can
//! be read as wider integers. Values are never truncated, and text is never converted from 8-bit to
//! UTF-16 or back.
//!
//! ```
//! use stackhound_schema::{Error, Parser, Plan, providers_of_manifest};
//! use stackhound_types::PointerSize;
//!
//! // Such a struct usually has a function that reads it from a parser.
//! struct Request<'e> {
//!     status: u32,
//!     verb: std::borrow::Cow<'e, str>,
//!     // Older events do not have it.
//!     site: Option<u32>,
//! }
//!
//! impl<'e> Request<'e> {
//!     fn parse(parser: &Parser<'e>) -> Result<Request<'e>, Error> {
//!         Ok(Request {
//!             status: parser.parse("Status")?,
//!             verb: parser.parse("Verb")?,
//!             site: parser.parse("SiteId")?,
//!         })
//!     }
//! }
//!
//! # let xml = br#"<provider name="P" guid="{9e814aad-3204-11d2-9a82-006008a86939}"><events>
//! #   <event value="1" template="T"/></events><templates><template tid="T">
//! #   <data name="Status" inType="win:UInt16"/><data name="Verb" inType="win:AnsiString"/>
//! #   </template></templates></provider>"#;
//! # let schema = providers_of_manifest(xml, None)?.remove(0).events.remove(0).schema;
//! let plan = Plan::new(schema.into());
//! let parser = plan.parser(b"\xc8\0GET\0", PointerSize::Eight);
//! let request = Request::parse(&parser)?;
//! assert_eq!((request.status, &*request.verb, request.site), (200, "GET", None));
//!
//! // To read one property of many events, look up its name once.
//! let status = plan.schema().property("Status").expect("described above");
//! assert_eq!(parser.parse_at::<u32>(status)?, 200);
//! # Ok::<(), Error>(())
//! ```
//!
//! This module does not know the source of an event, nor which events have which properties.

mod from_etw;
mod named;
mod net;
mod structure;
#[cfg(test)]
mod tests;
mod text;

use stackhound_types::PointerSize;

use crate::decode::{Decoder, Item};
use crate::error::Error;
use crate::model::{Count, Field, InType, Schema};
use crate::plan::Plan;

pub use from_etw::{ConversionError, FromEtw, SystemTime};
pub use named::{EnumText, Flags};
pub use structure::Structure;

/// Identifies a property of a schema. It is valid for the schema that returned it, and for other
/// schemas with the same fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PropertyId(u16);

impl Schema {
    /// The first property with this name that is not a member of a structure. To read many events,
    /// call this once.
    pub fn property(&self, name: &str) -> Option<PropertyId> {
        self.field_index(name).and_then(|index| index.try_into().ok()).map(PropertyId)
    }

    /// All properties that are not members of structures, in order, without padding.
    pub fn properties(&self) -> impl Iterator<Item = (PropertyId, &Field)> {
        let named = self.top_level().filter(|&index| !self.fields[index].is_padding());
        named.map_while(|index| Some((PropertyId(index.try_into().ok()?), &self.fields[index])))
    }
}

impl Plan {
    /// Creates a parser for the properties of a payload. `pointer` is the pointer size of the
    /// record.
    #[inline]
    pub fn parser<'e>(&'e self, payload: &'e [u8], pointer: PointerSize) -> Parser<'e> {
        Parser { plan: self, payload, pointer }
    }
}

/// The properties of one event. Creating a parser reads nothing; each property is read on request.
#[derive(Clone, Copy, Debug)]
pub struct Parser<'e> {
    plan: &'e Plan,
    payload: &'e [u8],
    pointer: PointerSize,
}

/// The reason that a property cannot be read, before it is completed to an [`Error`].
enum Failure {
    ConversionError(ConversionError),
    Payload(Error),
}

impl<'e> Parser<'e> {
    /// The schema that describes the properties.
    #[inline]
    pub fn schema(&self) -> &'e Schema {
        self.plan.schema()
    }

    /// The bytes of the payload.
    pub fn payload(&self) -> &'e [u8] {
        self.payload
    }

    /// Reads the first property with this name.
    ///
    /// This compares names until one matches. To read many events of one kind, use
    /// [`parse_at`](Parser::parse_at).
    ///
    /// # Errors
    /// [`Error::NoProperty`] if the event has no such property, unless `T` is an `Option`;
    /// otherwise as `parse_at`.
    pub fn parse<T: FromEtw<'e>>(&self, name: &str) -> Result<T, Error> {
        match self.schema().property(name) {
            Some(property) => self.parse_at(property),
            None => T::absent().ok_or_else(|| Error::NoProperty(name.into())),
        }
    }

    /// Reads a property. This takes a few nanoseconds if the property has the same offset in every
    /// payload; otherwise, the fields before it are skipped one by one. Numbers, and types that
    /// borrow from the payload, are read without an allocation.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the property is of another type, [`Error::Content`] if its value is
    /// not valid for `T`, [`Error::Payload`] if the payload ends too early.
    #[inline]
    pub fn parse_at<T: FromEtw<'e>>(&self, property: PropertyId) -> Result<T, Error> {
        if let Some(number) = self.read_number(property) {
            return Ok(number);
        }
        self.read(property).map_err(|failure| self.explain(property, failure, T::TYPE_NAME))
    }

    /// As [`parse`](Parser::parse), but returns `None` instead of an error, without an allocation.
    pub fn try_parse<T: FromEtw<'e>>(&self, name: &str) -> Option<T> {
        match self.schema().property(name) {
            Some(property) => self.read_number(property).or_else(|| self.read(property).ok()),
            None => T::absent(),
        }
    }

    /// Reads a property of any kind: a value, an array or a structure.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn value(&self, name: &str) -> Result<Item<'e>, Error> {
        let property = self.property(name)?;
        self.plan.item(self.payload, self.pointer, property.0.into())
    }

    /// The stored bytes of a property of any kind, including the terminator or the length prefix of
    /// a text.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn bytes(&self, name: &str) -> Result<&'e [u8], Error> {
        let property = self.property(name)?;
        self.plan.bytes(self.payload, self.pointer, property.0.into())
    }

    /// Iterates over all properties in order, each with its field description.
    pub fn iter(&self) -> Decoder<'e> {
        self.plan.decode(self.payload, self.pointer)
    }

    fn property(&self, name: &str) -> Result<PropertyId, Error> {
        self.schema().property(name).ok_or_else(|| Error::NoProperty(name.into()))
    }

    /// The fast path for numbers, small enough to be inlined.
    #[inline]
    fn read_number<T: FromEtw<'e>>(&self, property: PropertyId) -> Option<T> {
        if !T::IS_NUMBER {
            return None;
        }
        let index = usize::from(property.0);
        let field = self.schema().fields.get(index)?;
        let cursor = self.plan.cursor_at(self.payload, self.pointer, index)?;
        T::from_start(field, cursor.rest(), self.pointer)
    }

    #[inline(never)]
    fn read<T: FromEtw<'e>>(&self, property: PropertyId) -> Result<T, Failure> {
        let index = usize::from(property.0);
        let Some(field) = self.schema().fields.get(index) else {
            return Err(Failure::Payload(self.plan.no_such_field(index)));
        };
        let read = if is_single(field) {
            let value = self.plan.value(self.payload, self.pointer, index).map_err(Failure::Payload)?;
            T::from_value(field, value)
        } else {
            let item = self.plan.item(self.payload, self.pointer, index).map_err(Failure::Payload)?;
            T::from_item(field, item)
        };
        read.map_err(Failure::ConversionError)
    }

    #[cold]
    fn explain(&self, property: PropertyId, failure: Failure, requested: &'static str) -> Error {
        match failure {
            Failure::ConversionError(error) => {
                error.explain(&self.schema().fields[usize::from(property.0)], requested)
            }
            Failure::Payload(error) => error,
        }
    }
}

impl<'e> IntoIterator for Parser<'e> {
    type Item = <Decoder<'e> as Iterator>::Item;
    type IntoIter = Decoder<'e>;

    fn into_iter(self) -> Decoder<'e> {
        self.iter()
    }
}

#[inline]
fn is_single(field: &Field) -> bool {
    field.count == Count::One && !matches!(field.in_type, InType::Struct { .. })
}
