//! A schema with precomputed offsets of its first fields, for reading single fields of many
//! payloads.
//!
//! Most events begin with fields of fixed size. These are read in constant time. To read a later
//! field, the fields from the first one of variable size on are skipped one by one.

use std::sync::Arc;

use stackhound_types::PointerSize;

use crate::decode::{Cursor, Decoder, Extent, Item, References, Walk};
use crate::error::{Error, Expected};
use crate::model::{Count, Field, InType, Length, Schema, Value};

/// A schema that is compiled for random access to its top-level fields. It is created once per
/// schema and used for all of its events.
#[derive(Clone, Debug)]
pub struct Plan {
    schema: Arc<Schema>,
    references: References,
    four: Layout,
    eight: Layout,
}

/// The offsets of fields that are the same in every payload.
#[derive(Clone, Debug)]
struct Layout {
    /// The byte offset of each field by index; `None` for structure members and for fields after
    /// the first one of variable size.
    offsets: Box<[Option<u32>]>,
    /// The same offsets, but only of simple fields.
    direct: Box<[Option<u32>]>,
    /// The last field with a known offset, where a walk starts, and that offset.
    walk_from: (usize, usize),
    /// The index after the simple fields that follow from there.
    simple_until: usize,
}

impl Plan {
    /// Computes the fixed offsets. Looks once at each field.
    pub fn new(schema: Arc<Schema>) -> Plan {
        Plan {
            references: References::of(&schema),
            four: Layout::of(&schema, PointerSize::Four),
            eight: Layout::of(&schema, PointerSize::Eight),
            schema,
        }
    }

    /// The schema of this plan.
    #[inline]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// As [`Schema::decode`], but does not search the schema for references again.
    pub fn decode<'a>(&'a self, payload: &'a [u8], pointer: PointerSize) -> Decoder<'a> {
        Decoder::new(self.walk(payload, pointer))
    }

    /// Reads the single value of the top-level field with this index in [`Schema::fields`].
    ///
    /// # Errors
    /// [`Error::Payload`] if the payload ends before the end of the field, if the index is not that
    /// of a top-level field, or if the field is an array or a structure.
    #[inline]
    pub fn value<'a>(
        &'a self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Result<Value<'a>, Error> {
        if let Some(mut cursor) = self.cursor_at(payload, pointer, index)
            && let Ok(value) = cursor.value(self.schema.fields[index].in_type, Extent::Natural)
        {
            return Ok(value);
        }
        self.walk_to_value(payload, pointer, index)
    }

    /// A cursor at the first byte of a simple field, if only simple fields must be skipped to reach
    /// it. `None` otherwise, and if the payload ends before the field.
    #[inline]
    pub(crate) fn cursor_at<'a>(
        &self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Option<Cursor<'a>> {
        let layout = self.layout(pointer);
        match layout.direct.get(index) {
            Some(&Some(offset)) if offset as usize <= payload.len() => {
                Some(Cursor { payload, offset: offset as usize, pointer })
            }
            _ => self.cursor_after_variable(layout, payload, pointer, index),
        }
    }

    #[inline(never)]
    fn cursor_after_variable<'a>(
        &self,
        layout: &Layout,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Option<Cursor<'a>> {
        let (first, offset) = layout.walk_from;
        if !(first..layout.simple_until).contains(&index) || offset > payload.len() {
            return None;
        }
        let mut cursor = Cursor { payload, offset, pointer };
        for field in &self.schema.fields[first..index] {
            cursor.value(field.in_type, Extent::Natural).ok()?;
        }
        Some(cursor)
    }

    fn walk_to_value<'a>(
        &'a self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Result<Value<'a>, Error> {
        let mut walk = self.walk_to(payload, pointer, index)?;
        match self.schema.fields[index] {
            ref field if field.count == Count::One && !matches!(field.in_type, InType::Struct { .. }) => {
                walk.single(index)
            }
            _ => Err(walk.error(index, Expected::SingleValue)),
        }
    }

    /// Reads a top-level field, which may be an array or a structure.
    ///
    /// # Errors
    /// As [`Plan::value`], except for the kind of field. For a truncated array or structure, only
    /// the error is returned.
    pub fn item<'a>(
        &'a self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Result<Item<'a>, Error> {
        let (item, error) = self.walk_to(payload, pointer, index)?.item(index, 0)?;
        error.map_or(Ok(item), Err)
    }

    /// The stored bytes of a top-level field of any kind, including terminators and length
    /// prefixes.
    ///
    /// # Errors
    /// As [`Plan::item`].
    pub fn bytes<'a>(
        &'a self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Result<&'a [u8], Error> {
        let mut walk = self.walk_to(payload, pointer, index)?;
        let start = walk.cursor.offset;
        walk.skip(index, 0)?;
        Ok(payload.get(start..walk.cursor.offset).unwrap_or_default())
    }

    /// The error for an index that is not that of a top-level field.
    #[cold]
    pub(crate) fn no_such_field(&self, field: usize) -> Error {
        Error::Payload { field, offset: 0, expected: Expected::TopLevelField }
    }

    #[inline]
    fn layout(&self, pointer: PointerSize) -> &Layout {
        match pointer {
            PointerSize::Four => &self.four,
            PointerSize::Eight => &self.eight,
        }
    }

    fn walk<'a>(&'a self, payload: &'a [u8], pointer: PointerSize) -> Walk<'a> {
        Walk::new(&self.schema, payload, pointer, self.references)
    }

    /// Moves to the first byte of a field. All values that the field may refer to are then known.
    fn walk_to<'a>(
        &'a self,
        payload: &'a [u8],
        pointer: PointerSize,
        index: usize,
    ) -> Result<Walk<'a>, Error> {
        let mut walk = self.walk(payload, pointer);
        if index >= self.schema.fields.len() {
            return Err(self.no_such_field(index));
        }
        let layout = self.layout(pointer);
        let known = layout.offsets.get(index).copied().flatten();
        let (mut next, start) = known.map_or(layout.walk_from, |offset| (index, offset as usize));
        // The skipped fields include those that contain counts and lengths.
        for referenced in self.references.indices().filter(|&referenced| referenced < next) {
            if let Some(offset) = layout.offsets[referenced] {
                walk.seek(offset as usize).map_err(|expected| walk.error(referenced, expected))?;
                walk.skip(referenced, 0)?;
            }
        }
        walk.seek(start).map_err(|expected| walk.error(next, expected))?;
        while next < index {
            next = walk.skip(next, 0)?;
        }
        if next == index { Ok(walk) } else { Err(walk.error(index, Expected::TopLevelField)) }
    }
}

impl Layout {
    fn of(schema: &Schema, pointer: PointerSize) -> Layout {
        let mut offsets = vec![None; schema.fields.len()].into_boxed_slice();
        let mut direct = offsets.clone();
        let mut walk_from = (0, 0);
        let mut offset = 0_u32;
        for index in schema.top_level() {
            offsets[index] = Some(offset);
            if is_simple(&schema.fields[index]) {
                direct[index] = Some(offset);
            }
            walk_from = (index, offset as usize);
            let after = fixed_size(schema, index, pointer).and_then(|size| offset.checked_add(size));
            match after {
                Some(after) => offset = after,
                None => break,
            }
        }
        let remaining = schema.fields.iter().skip(walk_from.0);
        let simple_until = walk_from.0 + remaining.take_while(|field| is_simple(field)).count();
        Layout { offsets, direct, walk_from, simple_until }
    }
}

/// Whether the field is a single value whose size does not depend on another field.
fn is_simple(field: &Field) -> bool {
    let is_natural = !field.in_type.takes_length() || field.length == Length::Natural;
    is_natural && field.count == Count::One && !matches!(field.in_type, InType::Struct { .. })
}

/// The size of a field that has the same size in every payload. Structures count as variable.
fn fixed_size(schema: &Schema, index: usize, pointer: PointerSize) -> Option<u32> {
    let field = &schema.fields[index];
    let count: u32 = match field.count {
        Count::One => 1,
        Count::Fixed(count) => count.into(),
        Count::Field(_) | Count::Prefixed | Count::Rest => return None,
    };
    let size = match (field.in_type, field.length) {
        (InType::Utf16, Length::Fixed(units)) => 2 * u32::from(units),
        (InType::Ansi | InType::Binary, Length::Fixed(length)) => length.into(),
        (in_type, _) => u32::try_from(in_type.size(pointer)?).ok()?,
    };
    size.checked_mul(count)
}
