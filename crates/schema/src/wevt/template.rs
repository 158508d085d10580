//! Reads the fields of compiled events, and the maps with names for their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Resource;
use super::names::ENTRIES;
use crate::error::Error;
use crate::limits::MAX_NESTING;
use crate::model::{Count, Field, InType, Length, Map, MapKind, OutType};

/// The maximum number of fields in an event.
const MAX_FIELDS: usize = 4096;

const DESCRIPTOR: usize = 20;

/// Maps and templates by their offset in the resource, which is used to refer to them.
#[derive(Debug, Default)]
pub(super) struct Templates {
    maps: BTreeMap<usize, Arc<Map>>,
    /// `None` for templates that are not valid.
    templates: BTreeMap<usize, Option<Vec<Field>>>,
}

/// A field descriptor of a template.
#[derive(Clone, Copy)]
struct Property {
    flags: u32,
    /// The in-type and the out type; for a structure, the first member and the number of members.
    types: [u8; 4],
    map: usize,
    count: u16,
    length: u16,
}

const STRUCTURE: u32 = 0x01;
const FIXED_LENGTH: u32 = 0x02;
const LENGTH_IS_A_FIELD: u32 = 0x04;
const FIXED_COUNT: u32 = 0x08;
const COUNT_IS_A_FIELD: u32 = 0x10;

impl Templates {
    /// The maps in the order of the resource.
    pub fn maps(&self) -> Vec<Arc<Map>> {
        self.maps.values().cloned().collect()
    }

    /// Reads the section of maps: offsets, then the maps in any order. Maps of queries have another
    /// format and are skipped.
    pub fn read_maps(&mut self, resource: Resource<'_>, at: usize) -> Result<(), Error> {
        let count = resource.bytes.count(at + 8, at + ENTRIES, 4)?;
        for entry in (0..count).map(|index| at + ENTRIES + 4 * index) {
            let at = resource.bytes.u32(entry)? as usize;
            if !self.maps.contains_key(&at)
                && let Some(map) = map(resource, at)?
            {
                self.maps.insert(at, Arc::new(map));
            }
        }
        Ok(())
    }

    /// The fields of the template at an offset.
    pub fn fields(&mut self, resource: Resource<'_>, at: usize) -> Result<Vec<Field>, Error> {
        let maps = &self.maps;
        let fields = self.templates.entry(at).or_insert_with(|| template(resource, at, maps).ok());
        fields.clone().ok_or(Error::Metadata { offset: at, expected: "a valid template" })
    }
}

fn map(resource: Resource<'_>, at: usize) -> Result<Option<Map>, Error> {
    const FIRST: usize = 20;
    let bytes = resource.bytes;
    let kind = match &bytes.array::<4>(at, "a map")? {
        b"VMAP" => MapKind::Values,
        b"BMAP" => MapKind::Bits,
        _ => return Ok(None),
    };
    let count = bytes.count(at + 16, at + FIRST, 8)?;
    let mut entries = Vec::new();
    for entry in (0..count).map(|index| at + FIRST + 8 * index) {
        resource.budget.spend(size_of::<(u32, Box<str>)>())?;
        let value = bytes.u32(entry)?;
        // A value without an available text has no name.
        entries.extend(resource.message(entry + 4)?.map(|text| (value, text)));
    }
    Ok(Some(Map { name: resource.name(at + 8)?, kind, entries }))
}

/// Reads a template: the descriptors of all fields. Members of structures follow the top-level
/// fields.
fn template(
    resource: Resource<'_>,
    at: usize,
    maps: &BTreeMap<usize, Arc<Map>>,
) -> Result<Vec<Field>, Error> {
    let bytes = resource.bytes;
    bytes.expect_tag(at, b"TEMP", "the signature TEMP")?;
    let descriptors = bytes.u32(at + 16)? as usize;
    let top_level = bytes.u32(at + 8)? as usize;
    let all = bytes.count(at + 12, descriptors, DESCRIPTOR)?;
    if top_level > all || all > MAX_FIELDS {
        return Err(Error::Metadata { offset: at + 8, expected: "a valid number of fields, at most 4096" });
    }
    let mut fields =
        Fields { resource, maps, descriptors, all, field_indices: vec![None; all], fields: Vec::new() };
    (0..top_level).try_for_each(|index| fields.add(index, 0))?;
    Ok(fields.fields)
}

/// Converts descriptors to the fields of a schema, in which members follow their structure.
struct Fields<'a> {
    resource: Resource<'a>,
    maps: &'a BTreeMap<usize, Arc<Map>>,
    descriptors: usize,
    all: usize,
    /// The field that each descriptor has become. Counts and lengths refer to descriptors.
    field_indices: Vec<Option<u16>>,
    fields: Vec<Field>,
}

impl Fields<'_> {
    fn add(&mut self, index: usize, depth: usize) -> Result<(), Error> {
        let invalid = |expected| Error::Metadata { offset: self.descriptors + DESCRIPTOR * index, expected };
        if index >= self.all {
            return Err(invalid("an index below the number of fields"));
        }
        if self.fields.len() >= MAX_FIELDS || depth > MAX_NESTING {
            return Err(invalid("at most 4096 fields and 8 levels of nested structures"));
        }
        self.resource.budget.spend(size_of::<Field>())?;
        let property = self.property(index)?;
        let name = self.resource.name(self.descriptors + DESCRIPTOR * index + 16)?;
        let count = match property.count {
            referenced if property.flags & COUNT_IS_A_FIELD != 0 => {
                Count::Field(self.field_index(referenced)?)
            }
            count if property.flags & FIXED_COUNT != 0 => Count::Fixed(count),
            _ => Count::One,
        };
        if property.flags & STRUCTURE != 0 {
            let [first, members] =
                [[0, 1], [2, 3]].map(|half| u16::from_le_bytes(half.map(|at| property.types[at])));
            self.field_indices[index] = u16::try_from(self.fields.len()).ok();
            self.fields.push(Field { count, ..Field::new(name, InType::Struct { members }) });
            let members = usize::from(first)..usize::from(first) + usize::from(members);
            return members.into_iter().try_for_each(|member| self.add(member, depth + 1));
        }
        let [in_type, out_type, ..] = property.types.map(u16::from);
        let out_type = OutType::from_tdh(out_type);
        let in_type = InType::from_tdh(in_type, out_type).ok_or(invalid("a known type"))?;
        let length = match property.length {
            _ if !in_type.takes_length() => Length::Natural,
            referenced if property.flags & LENGTH_IS_A_FIELD != 0 => {
                Length::Field(self.field_index(referenced)?)
            }
            length if property.flags & FIXED_LENGTH != 0 => Length::Fixed(length),
            // Manifests may omit the length of an IPv6 address, because only one is possible.
            _ if out_type == OutType::Ipv6 => Length::Fixed(16),
            _ => Length::Natural,
        };
        let map = self.maps.get(&property.map).cloned();
        self.field_indices[index] = u16::try_from(self.fields.len()).ok();
        self.fields.push(Field { out_type, count, length, map, ..Field::new(name, in_type) });
        Ok(())
    }

    fn property(&self, index: usize) -> Result<Property, Error> {
        let (bytes, at) = (self.resource.bytes, self.descriptors + DESCRIPTOR * index);
        Ok(Property {
            flags: bytes.u32(at)?,
            types: bytes.array(at + 4, "types")?,
            map: bytes.u32(at + 8)? as usize,
            count: bytes.u16(at + 12)?,
            length: bytes.u16(at + 14)?,
        })
    }

    /// The index of the field that a descriptor has become.
    fn field_index(&self, index: u16) -> Result<u16, Error> {
        let field = self.field_indices.get(usize::from(index)).copied().flatten();
        field.ok_or(Error::Metadata {
            offset: self.descriptors,
            expected: "a count or length in an earlier field",
        })
    }
}
