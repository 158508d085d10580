//! TraceLogging: events that contain their own description, and the traits of their providers.
//!
//! The description of an event is a block of bytes in an extended data item: tags, name, then one
//! descriptor per field. The name can be read without the fields; a [`Schema`] is created only for
//! decoding. The traits of a provider, in another item, are the only place where its name is
//! stored.

use std::borrow::Cow;

use stackhound_etl::record::{ExtendedType, Record};
use stackhound_types::Guid;

use crate::error::Error;
use crate::model::{Count, Field, InType, OutType, Schema, SchemaSource};
use crate::naming::{event_name, standard_opcode};

/// The low five bits of an in-type byte.
const TYPE_MASK: u8 = 0x1f;
/// The kind of array.
const COUNT_MASK: u8 = 0x60;
const CONSTANT_COUNT: u8 = 0x20;
const VARIABLE_COUNT: u8 = 0x40;
const CUSTOM: u8 = 0x60;
/// Marks that another byte follows: an out type after an in-type, tags after an out type, more tags
/// after tags.
const CHAIN: u8 = 0x80;
const STRUCT: u8 = 24;

/// The description of one kind of event. Its name is already located.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMetadata<'a> {
    /// Up to 28 bits without a defined meaning.
    pub tags: u32,
    name: &'a [u8],
    /// The position of the field descriptors.
    fields: Reader<'a>,
}

impl<'a> EventMetadata<'a> {
    /// Reads the tags and the name of an `EVENT_SCHEMA_TL` item. Does not read the fields and does
    /// not allocate.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the block ends before its own size or before the end of the name.
    pub fn parse(item: &'a [u8]) -> Result<EventMetadata<'a>, Error> {
        let mut reader = Reader::sized(item)?;
        let tags = reader.tags()?;
        let name = reader.text()?;
        Ok(EventMetadata { tags, name, fields: reader })
    }

    /// The event's name. Borrows unless it is not UTF-8.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name)
    }

    /// Reads the field descriptors. The name of `opcode` is added to the event's name.
    ///
    /// # Errors
    /// [`Error::Metadata`] at the first descriptor that is truncated or has an unknown type.
    pub fn schema(&self, provider: Guid, opcode: u8) -> Result<Schema, Error> {
        let mut fields = Vec::new();
        let mut reader = self.fields;
        while !reader.rest().is_empty() {
            fields.push(reader.field()?);
        }
        Ok(Schema {
            source: SchemaSource::TraceLogging,
            provider,
            event_name: event_name(&self.name(), standard_opcode(opcode).unwrap_or_default()).into(),
            message: None,
            fields,
        })
    }
}

/// The properties of a provider that its events contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderTraits<'a> {
    name: &'a [u8],
    /// The GUID of the provider's group, if it belongs to one.
    pub group: Option<Guid>,
}

impl<'a> ProviderTraits<'a> {
    /// Reads a `PROV_TRAITS` item. Unknown traits are skipped; a damaged trait ends the list.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the block ends before its own size or before the end of the name.
    pub fn parse(item: &'a [u8]) -> Result<ProviderTraits<'a>, Error> {
        const GROUP: u8 = 1;
        let mut reader = Reader::sized(item)?;
        let name = reader.text()?;
        let mut group = None;
        while let Ok((kind, data)) = reader.provider_trait() {
            if let (GROUP, Ok(guid)) = (kind, data.try_into()) {
                group = Some(Guid(guid));
            }
        }
        Ok(ProviderTraits { name, group })
    }

    /// The provider of an event and its name, if the event contains traits with a name. Events of
    /// all kinds of providers can contain traits.
    #[inline]
    pub fn name_in(record: &Record<'a>) -> Option<(Guid, Cow<'a, str>)> {
        let item = record.extended_items().find(ExtendedType::PROVIDER_TRAITS)?;
        let name = ProviderTraits::parse(item).ok()?.name();
        Some((record.guid()?, name)).filter(|(_, name)| !name.is_empty())
    }

    /// The provider's name. Borrows unless it is not UTF-8.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.name)
    }
}

/// A position in a metadata block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader<'a> {
    block: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads the size at the start of a block, as u16. Bytes after the block are ignored.
    fn sized(item: &'a [u8]) -> Result<Reader<'a>, Error> {
        let mut reader = Reader { block: item, offset: 0 };
        let size = reader.u16()?;
        match item.get(..size.into()) {
            Some(block) if block.len() >= 2 => Ok(Reader { block, offset: 2 }),
            _ => Err(Error::Metadata { offset: 0, expected: "a block of the stated size" }),
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.block.get(self.offset..).unwrap_or_default()
    }

    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8], Error> {
        let bytes = self.rest().get(..length).ok_or(Error::Metadata { offset: self.offset, expected })?;
        self.offset += length;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        self.take(1, "a byte").map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Result<u16, Error> {
        self.take(2, "a u16").map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// Reads text up to a zero byte, and skips the zero byte.
    fn text(&mut self) -> Result<&'a [u8], Error> {
        let length = self.rest().iter().position(|&byte| byte == 0);
        let length = length.ok_or(Error::Metadata { offset: self.offset, expected: "the end of a name" })?;
        let text = self.take(length, "a name")?;
        self.offset += 1;
        Ok(text)
    }

    /// Reads seven bits per byte, most significant first.
    fn tags(&mut self) -> Result<u32, Error> {
        let mut tags = 0;
        for _ in 0..4 {
            let byte = self.u8()?;
            tags = tags << 7 | u32::from(byte & !CHAIN);
            if byte & CHAIN == 0 {
                return Ok(tags);
            }
        }
        Err(Error::Metadata { offset: self.offset, expected: "at most four bytes of tags" })
    }

    fn field(&mut self) -> Result<Field, Error> {
        let name = String::from_utf8_lossy(self.text()?);
        let at = self.offset;
        let in_byte = self.u8()?;
        let out_byte = if in_byte & CHAIN != 0 { self.u8()? } else { 0 };
        if out_byte & CHAIN != 0 {
            self.tags()?;
        }
        let out_number = out_byte & !CHAIN;
        let (count, in_type) = match in_byte & COUNT_MASK {
            CUSTOM => {
                let length = self.u16()?;
                self.take(length.into(), "the type information of a custom field")?;
                // Only the writer knows the format of the bytes. They are preceded by their length.
                (Count::One, Some(InType::CountedBinary))
            }
            CONSTANT_COUNT => (Count::Fixed(self.u16()?), in_type(in_byte & TYPE_MASK, out_number)),
            VARIABLE_COUNT => (Count::Prefixed, in_type(in_byte & TYPE_MASK, out_number)),
            _ => (Count::One, in_type(in_byte & TYPE_MASK, out_number)),
        };
        let in_type = in_type.ok_or(Error::Metadata { offset: at, expected: "a known type" })?;
        let out_type = match in_type {
            InType::Struct { .. } => OutType::Default,
            _ => OutType::from_tracelogging(out_number),
        };
        Ok(Field { out_type, count, ..Field::new(name, in_type) })
    }

    fn provider_trait(&mut self) -> Result<(u8, &'a [u8]), Error> {
        let size = self.u16()?;
        let kind = self.u8()?;
        let length = usize::from(size).checked_sub(3);
        let length =
            length.ok_or(Error::Metadata { offset: self.offset, expected: "a trait with a type" })?;
        Ok((kind, self.take(length, "a trait of the stated size")?))
    }
}

fn in_type(number: u8, out_number: u8) -> Option<InType> {
    match number {
        STRUCT => Some(InType::Struct { members: out_number.into() }),
        // Binary data is always preceded by its length here.
        14 => Some(InType::CountedBinary),
        _ => InType::from_tdh(number.into(), OutType::from_tracelogging(out_number)),
    }
}

#[cfg(test)]
mod tests;
