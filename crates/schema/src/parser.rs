//! Properties of an event as typed values.
//!
//! A [`Parser`] is a payload with the [`Plan`] to read it by. What it gives is decided by the type that is asked for
//! ([`FromEtw`]), and whether the property is of that type is checked in every build: a wider integer takes a narrower
//! one, nothing is ever cut off, and text is never read in the other width.
//!
//! ```
//! use stackhound_schema::{Error, Parser, Plan, providers_of_manifest};
//! use stackhound_types::PointerSize;
//!
//! /// A struct reads itself out of a parser in a function of its own.
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
//! // Whoever reads one property of many events looks its name up once.
//! let status = plan.schema().property("Status").expect("described above");
//! assert_eq!(parser.parse_at::<u32>(status)?, 200);
//! # Ok::<(), Error>(())
//! ```
//!
//! Does not know where events come from, nor which of them have which properties.

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

pub use from_etw::{FromEtw, SystemTime, Unfit};
pub use named::{EnumText, Flags};
pub use structure::Structure;
pub use text::{Ansi, Utf16};

/// Which property of its schema. Only good for the schema that gave it, and for other schemas with the same fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PropertyId(u16);

impl Schema {
    /// The first property of this name outside of structures. To be asked once for many events.
    pub fn property(&self, name: &str) -> Option<PropertyId> {
        self.field_index(name).and_then(|index| index.try_into().ok()).map(PropertyId)
    }

    /// All properties outside of structures, without the gaps between them, in order.
    pub fn properties(&self) -> impl Iterator<Item = (PropertyId, &Field)> {
        let named = self.top_level().filter(|&index| !self.fields[index].is_padding());
        named.map_while(|index| Some((PropertyId(index.try_into().ok()?), &self.fields[index])))
    }
}

impl Plan {
    /// Reads a payload's properties. `pointer` is the pointer size of the record.
    #[inline]
    pub fn parser<'e>(&'e self, payload: &'e [u8], pointer: PointerSize) -> Parser<'e> {
        Parser { plan: self, payload, pointer }
    }
}

/// The properties of one event. Made in no time: nothing is read before it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Parser<'e> {
    plan: &'e Plan,
    payload: &'e [u8],
    pointer: PointerSize,
}

/// Why a property is not given, without what an error says about it.
enum Failure {
    Unfit(Unfit),
    Payload(Error),
}

impl<'e> Parser<'e> {
    /// What describes the properties.
    #[inline]
    pub fn schema(&self) -> &'e Schema {
        self.plan.schema()
    }

    /// The payload's bytes.
    pub fn payload(&self) -> &'e [u8] {
        self.payload
    }

    /// Reads the first property of this name.
    ///
    /// Compares names until one fits; whoever reads many events of a kind uses [`parse_at`](Parser::parse_at).
    ///
    /// # Errors
    /// [`Error::NoProperty`] if there is none, unless an `Option` is asked for; otherwise as `parse_at`.
    pub fn parse<T: FromEtw<'e>>(&self, name: &str) -> Result<T, Error> {
        match self.schema().property(name) {
            Some(property) => self.parse_at(property),
            None => T::absent().ok_or_else(|| Error::NoProperty(name.into())),
        }
    }

    /// Reads a property. Costs a few nanoseconds where it always stands in the same place; otherwise what stands
    /// between is passed over. Numbers, and all that borrows from the payload, cost no allocation.
    ///
    /// # Errors
    /// [`Error::WrongType`] if the property is not of this type, [`Error::Content`] if it is but its content is not,
    /// [`Error::Payload`] if the payload ends too early.
    #[inline]
    pub fn parse_at<T: FromEtw<'e>>(&self, property: PropertyId) -> Result<T, Error> {
        if let Some(number) = self.number(property) {
            return Ok(number);
        }
        self.read(property).map_err(|failure| self.explain(property, failure, T::ASKED))
    }

    /// As [`parse`](Parser::parse), without a reason where there is nothing; allocates nothing to say so.
    pub fn try_parse<T: FromEtw<'e>>(&self, name: &str) -> Option<T> {
        match self.schema().property(name) {
            Some(property) => self.number(property).or_else(|| self.read(property).ok()),
            None => T::absent(),
        }
    }

    /// Whatever the property holds: a value, an array or a structure.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn value(&self, name: &str) -> Result<Item<'e>, Error> {
        let property = self.property(name)?;
        self.plan.item(self.payload, self.pointer, property.0.into())
    }

    /// The property's bytes as they are stored, of whatever type: with the end of a text, with the length before a
    /// counted one.
    ///
    /// # Errors
    /// [`Error::NoProperty`], [`Error::Payload`].
    pub fn bytes(&self, name: &str) -> Result<&'e [u8], Error> {
        let property = self.property(name)?;
        self.plan.bytes(self.payload, self.pointer, property.0.into())
    }

    /// All properties in order, each with its description.
    pub fn iter(&self) -> Decoder<'e> {
        self.plan.decode(self.payload, self.pointer)
    }

    fn property(&self, name: &str) -> Result<PropertyId, Error> {
        self.schema().property(name).ok_or_else(|| Error::NoProperty(name.into()))
    }

    /// The short way, small enough to become part of its caller.
    #[inline]
    fn number<T: FromEtw<'e>>(&self, property: PropertyId) -> Option<T> {
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
        read.map_err(Failure::Unfit)
    }

    #[cold]
    fn explain(&self, property: PropertyId, failure: Failure, asked: &'static str) -> Error {
        match failure {
            Failure::Unfit(unfit) => unfit.explain(&self.schema().fields[usize::from(property.0)], asked),
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
