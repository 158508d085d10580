//! Descriptions that are embedded in traces when Windows merges them: `TRACE_EVENT_INFO` and
//! `EVENT_MAP_INFO` blocks.
//!
//! They describe manifest and classic events as they were registered on the traced machine. They
//! are near the end of a merged trace, each in an event of its own. Offsets in a block are relative
//! to its start and are not trusted: they may point anywhere, and structures may contain each
//! other.
//!
//! Fields refer to value maps by name, and each map is in a separate block, so this module does not
//! resolve the names.

use stackhound_etl::record::Descriptor;
use stackhound_types::Guid;

use crate::error::Error;
use crate::limits::MAX_NESTING;
use crate::model::{Count, Field, InType, Length, Map, MapKind, OutType, Schema, SchemaSource};
use crate::naming::event_name;
use crate::value::utf16_text;

/// The maximum number of fields in an event. Each use of a structure counts.
const MAX_FIELDS: usize = 4096;

/// The maximum number of fields in an event that have maps.
const MAX_MAPPED_FIELDS: usize = 256;

/// The offset of the array of properties.
const PROPERTIES: usize = 0x70;
const PROPERTY_SIZE: usize = 24;

/// The value of `DecodingSource` for a classic event, whose descriptor has no id.
const DECODING_SOURCE_WBEM: u32 = 1;

/// The description of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedEvent {
    /// The events that it describes.
    pub identity: EmbeddedIdentity,
    /// The name of their provider. Empty if it is missing.
    pub provider_name: Box<str>,
    /// Names and types, without value maps.
    pub schema: Schema,
    /// The fields that have a map, by index, with the name of the map.
    pub map_names: Vec<(usize, Box<str>)>,
    /// The descriptor in the headers of these events.
    pub descriptor: Descriptor,
    /// The names of the numbers in the descriptor.
    pub names: EmbeddedNames,
}

/// Names of the numbers in an event descriptor. Missing names are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedNames {
    /// Name of the level.
    pub level: Box<str>,
    /// Name of the channel.
    pub channel: Box<str>,
    /// Name of the task.
    pub task: Box<str>,
    /// Name of the opcode.
    pub opcode: Box<str>,
}

/// The events that a description applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EmbeddedIdentity {
    /// Events of a provider with this id and version.
    Manifest {
        /// The provider.
        provider: Guid,
        /// The id in the event descriptor.
        id: u16,
        /// The version in the event descriptor.
        version: u8,
    },
    /// Events of a class with this opcode and version.
    Classic {
        /// The class, which classic headers contain instead of the provider.
        class: Guid,
        /// The opcode, which is the event's type.
        opcode: u8,
        /// The version of the class.
        version: u8,
    },
}

impl EmbeddedEvent {
    /// Reads the payload of an event-info event (opcode 32).
    ///
    /// # Errors
    /// [`Error::Metadata`] if the block is too short, a name is outside the block, a type is
    /// unknown, there are more than 4096 fields or 256 fields with maps, or structures are nested
    /// more than [`MAX_NESTING`](crate::MAX_NESTING) deep.
    pub fn parse(payload: &[u8]) -> Result<EmbeddedEvent, Error> {
        let block = Block(payload);
        let provider = block.guid(0)?;
        let descriptor = block.descriptor(0x20)?;
        let Descriptor { id, version, opcode, .. } = descriptor;
        let source = block.u32(0x30)?;
        let properties = Properties::of(block)?;
        let names = EmbeddedNames {
            level: block.name_at(0x38)?.into(),
            channel: block.name_at(0x3c)?.into(),
            task: block.name_at(0x44)?.into(),
            opcode: block.name_at(0x48)?.into(),
        };
        let name = event_name(&names.task, &names.opcode);
        let identity = if source == DECODING_SOURCE_WBEM {
            EmbeddedIdentity::Classic { class: block.guid(0x10)?, opcode, version }
        } else {
            EmbeddedIdentity::Manifest { provider, id, version }
        };
        let name = match identity {
            _ if !name.is_empty() => name,
            EmbeddedIdentity::Manifest { id, .. } => format!("EventID({id})"),
            EmbeddedIdentity::Classic { opcode, .. } => format!("Opcode({opcode})"),
        };
        let field_indices = vec![None; properties.count];
        let mut fields = Fields { properties, fields: Vec::new(), map_names: Vec::new(), field_indices };
        fields.add_top_level(block.u32(0x68)?)?;
        let message = block.name_at(0x4c)?;
        Ok(EmbeddedEvent {
            identity,
            provider_name: block.name_at(0x34)?.into(),
            schema: Schema {
                source: SchemaSource::Embedded,
                provider,
                event_name: name.into(),
                message: if message.is_empty() { None } else { Some(message.into()) },
                fields: fields.fields,
            },
            map_names: fields.map_names,
            descriptor,
            names,
        })
    }
}

/// Reads the payload of a map-info event (opcode 33). Returns the provider and its map. Maps with
/// patterns are returned without entries.
///
/// # Errors
/// [`Error::Metadata`] if the block is too short for its entries, or a name is outside the block.
pub fn parse_map(payload: &[u8]) -> Result<(Guid, Map), Error> {
    const PATTERN: u32 = 4;
    const BITMAPS: u32 = 0x2 | 0x10;
    const ENTRIES: usize = 0x10;
    let provider = Block(payload).guid(0)?;
    // All offsets are relative to the end of the GUID.
    let block = Block(payload.get(16..).unwrap_or_default());
    let flags = block.u32(4)?;
    let count = if flags & PATTERN == 0 { block.u32(8)? } else { 0 };
    if count as usize > block.0.len().saturating_sub(ENTRIES) / 8 {
        return Err(Error::Metadata { offset: 0x18, expected: "the stated number of map entries" });
    }
    let entries = (0..count as usize).map(|index| {
        let at = ENTRIES + 8 * index;
        Ok((block.u32(at + 4)?, block.name_at(at)?.into()))
    });
    Ok((
        provider,
        Map {
            name: block.name_at(0)?.into(),
            kind: if flags & BITMAPS != 0 { MapKind::Bits } else { MapKind::Values },
            entries: entries.collect::<Result<_, Error>>()?,
        },
    ))
}

/// A block with little-endian numbers, and with names at given offsets.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a>(pub &'a [u8]);

impl<'a> Block<'a> {
    fn bytes<const N: usize>(self, offset: usize, expected: &'static str) -> Result<[u8; N], Error> {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or(Error::Metadata { offset, expected })
    }

    fn u8(self, offset: usize) -> Result<u8, Error> {
        self.bytes::<1>(offset, "a byte").map(|[byte]| byte)
    }

    fn u16(self, offset: usize) -> Result<u16, Error> {
        self.bytes(offset, "a u16").map(u16::from_le_bytes)
    }

    pub fn u32(self, offset: usize) -> Result<u32, Error> {
        self.bytes(offset, "a u32").map(u32::from_le_bytes)
    }

    pub fn u64(self, offset: usize) -> Result<u64, Error> {
        self.bytes(offset, "a u64").map(u64::from_le_bytes)
    }

    pub fn descriptor(self, offset: usize) -> Result<Descriptor, Error> {
        Ok(Descriptor {
            id: self.u16(offset)?,
            version: self.u8(offset + 2)?,
            channel: self.u8(offset + 3)?,
            level: self.u8(offset + 4)?,
            opcode: self.u8(offset + 5)?,
            task: self.u16(offset + 6)?,
            keyword: self.u64(offset + 8)?,
        })
    }

    pub fn guid(self, offset: usize) -> Result<Guid, Error> {
        self.bytes(offset, "a GUID").map(Guid)
    }

    /// The text whose offset is stored at `offset`; empty if there is none. Trailing blanks and
    /// line ends, as in message texts, are removed.
    pub fn name_at(self, offset: usize) -> Result<String, Error> {
        let start = self.u32(offset)? as usize;
        if start == 0 {
            return Ok(String::new());
        }
        let bytes =
            self.0.get(start..).ok_or(Error::Metadata { offset, expected: "a name inside the block" })?;
        let (units, _) = bytes.as_chunks::<2>();
        let length = units.iter().position(|unit| *unit == [0, 0]).unwrap_or(units.len());
        let mut name = utf16_text(&bytes[..2 * length]);
        name.truncate(name.trim_end().len());
        Ok(name)
    }
}

/// The properties of an event. Members of structures follow all other properties.
#[derive(Clone, Copy)]
struct Properties<'a> {
    block: Block<'a>,
    count: usize,
}

/// One `EVENT_PROPERTY_INFO`. Its flags for fixed counts and lengths are not used, because embedded
/// blocks have them set at random.
struct Property {
    flags: u32,
    name_at: usize,
    /// The in-type, or the index of a structure's first member.
    type_or_start: u16,
    /// The out type, or the number of a structure's members.
    out_or_members: u16,
    map_at: usize,
    count: u16,
    length: u16,
}

impl<'a> Properties<'a> {
    fn of(block: Block<'a>) -> Result<Properties<'a>, Error> {
        let count = block.u32(0x64)? as usize;
        if count > block.0.len().saturating_sub(PROPERTIES) / PROPERTY_SIZE {
            return Err(Error::Metadata { offset: 0x64, expected: "the stated number of properties" });
        }
        Ok(Properties { block, count })
    }

    fn get(self, index: usize) -> Result<Property, Error> {
        let at = PROPERTIES + PROPERTY_SIZE * index;
        if index >= self.count {
            return Err(Error::Metadata {
                offset: 0x64,
                expected: "an index below the number of properties",
            });
        }
        Ok(Property {
            flags: self.block.u32(at)?,
            name_at: at + 4,
            type_or_start: self.block.u16(at + 8)?,
            out_or_members: self.block.u16(at + 10)?,
            map_at: at + 12,
            count: self.block.u16(at + 16)?,
            length: self.block.u16(at + 18)?,
        })
    }
}

/// Collects fields. A property can be used more than once, a field only once.
struct Fields<'a> {
    properties: Properties<'a>,
    fields: Vec<Field>,
    map_names: Vec<(usize, Box<str>)>,
    /// The field that each property last became. Counts and lengths refer to properties.
    field_indices: Vec<Option<u16>>,
}

impl Fields<'_> {
    fn add_top_level(&mut self, count: u32) -> Result<(), Error> {
        (0..count as usize).try_for_each(|index| self.add(index, 0))
    }

    fn add(&mut self, index: usize, depth: usize) -> Result<(), Error> {
        const STRUCT: u32 = 1;
        const LENGTH_IS_A_PROPERTY: u32 = 2;
        const COUNT_IS_A_PROPERTY: u32 = 4;
        let property = self.properties.get(index)?;
        let block = self.properties.block;
        if self.fields.len() >= MAX_FIELDS {
            return Err(Error::Metadata { offset: property.name_at, expected: "at most 4096 fields" });
        }
        let name = block.name_at(property.name_at)?;
        let is_struct = property.flags & STRUCT != 0;
        let (in_type, out_type) = if is_struct {
            (InType::Struct { members: property.out_or_members }, OutType::Default)
        } else {
            let out_type = OutType::from_tdh(property.out_or_members);
            let in_type = InType::from_tdh(property.type_or_start, out_type);
            let at = property.name_at + 4;
            (in_type.ok_or(Error::Metadata { offset: at, expected: "a known type" })?, out_type)
        };
        let count = match property.count {
            referenced if property.flags & COUNT_IS_A_PROPERTY != 0 => {
                Count::Field(self.field_index(referenced)?)
            }
            0 | 1 => Count::One,
            count => Count::Fixed(count),
        };
        let length = match property.length {
            _ if !in_type.takes_length() => Length::Natural,
            referenced if property.flags & LENGTH_IS_A_PROPERTY != 0 => {
                Length::Field(self.field_index(referenced)?)
            }
            0 => natural_length(property.type_or_start, out_type),
            length => Length::Fixed(length),
        };
        if !is_struct && block.u32(property.map_at)? != 0 {
            if self.map_names.len() >= MAX_MAPPED_FIELDS {
                return Err(Error::Metadata {
                    offset: property.map_at,
                    expected: "at most 256 fields with maps",
                });
            }
            self.map_names.push((self.fields.len(), block.name_at(property.map_at)?.into()));
        }
        self.field_indices[index] = u16::try_from(self.fields.len()).ok();
        self.fields.push(Field { out_type, count, length, ..Field::new(name, in_type) });
        if is_struct {
            if depth >= MAX_NESTING {
                return Err(Error::Metadata {
                    offset: property.name_at,
                    expected: "at most 8 levels of nested structures",
                });
            }
            let start = usize::from(property.type_or_start);
            (start..start + usize::from(property.out_or_members))
                .try_for_each(|member| self.add(member, depth + 1))?;
        }
        Ok(())
    }

    /// The index of the field that a property has become.
    fn field_index(&self, property: u16) -> Result<u16, Error> {
        let field = self.field_indices.get(usize::from(property)).copied().flatten();
        field.ok_or(Error::Metadata {
            offset: PROPERTIES + PROPERTY_SIZE * usize::from(property),
            expected: "a count or length in an earlier property",
        })
    }
}

/// The length of a text or binary field without a stated length.
fn natural_length(in_type: u16, out_type: OutType) -> Length {
    const NOT_TERMINATED: std::ops::RangeInclusive<u16> = 304..=305;
    match out_type {
        _ if NOT_TERMINATED.contains(&in_type) => Length::Rest,
        // Manifests may omit the length of an IPv6 address, because only one is possible.
        OutType::Ipv6 if in_type == 14 => Length::Fixed(16),
        _ => Length::Natural,
    }
}

#[cfg(test)]
mod tests;
