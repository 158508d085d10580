//! Moves through payload and schema together, over single values, arrays and structures.
//!
//! This module computes the number of bytes that each field occupies; the lazy views of skipped
//! fields are in [`super`].

use stackhound_types::PointerSize;

use super::read::{Cursor, Extent};
use super::references::References;
use super::{Array, Decoder, Item};
use crate::error::{Error, Expected};
use crate::limits::{MAX_EMPTY_ELEMENTS, MAX_NESTING};
use crate::model::{Count, Field, InType, Length, Schema, Value};

/// A position in a payload, with the state that is needed to continue from there. Each lazy item
/// has a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    pub schema: &'a Schema,
    pub cursor: Cursor<'a>,
    references: References,
    /// The remaining number of elements that may occupy no bytes.
    empty_elements: usize,
}

/// The number of elements in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    Exactly(usize),
    /// As many complete elements as the payload contains.
    Rest,
}

impl<'a> Walk<'a> {
    pub fn new(
        schema: &'a Schema,
        payload: &'a [u8],
        pointer: PointerSize,
        references: References,
    ) -> Walk<'a> {
        let cursor = Cursor { payload, offset: 0, pointer };
        Walk { schema, cursor, references, empty_elements: MAX_EMPTY_ELEMENTS }
    }

    /// Moves to a field whose offset is known.
    pub fn seek(&mut self, offset: usize) -> Result<(), Expected> {
        match offset.checked_sub(self.cursor.payload.len()) {
            None | Some(0) => self.cursor.offset = offset,
            Some(missing) => return Err(Expected::Bytes(missing)),
        }
        Ok(())
    }

    pub fn error(&self, field: usize, expected: Expected) -> Error {
        Error::Payload { field, offset: self.cursor.offset, expected }
    }

    /// Reads a field. For a truncated array or structure, returns the complete part together with
    /// the error that ended it.
    pub fn item(&mut self, index: usize, depth: usize) -> Result<(Item<'a>, Option<Error>), Error> {
        let count = self.count(index)?;
        let start = *self;
        match (count, self.schema.fields[index].in_type) {
            (None, InType::Struct { .. }) => {
                let error = self.skip_element(index, depth).err();
                Ok((Item::Struct(Decoder::members(start, index, depth + 1)), error))
            }
            (None, _) => Ok((Item::Value(self.single(index)?), None)),
            (Some(elements), _) => {
                let (count, error) = self.skip_elements(index, elements, depth);
                Ok((Item::Array(Array { start, end: self.cursor.offset, index, depth, count }), error))
            }
        }
    }

    /// Reads one value or structure, regardless of the field's count.
    pub fn element(&mut self, index: usize, depth: usize) -> Result<Item<'a>, Error> {
        if matches!(self.schema.fields[index].in_type, InType::Struct { .. }) {
            let start = *self;
            self.skip_element(index, depth)?;
            Ok(Item::Struct(Decoder::members(start, index, depth + 1)))
        } else {
            self.single(index).map(Item::Value)
        }
    }

    /// Reads one value that is not a structure, and stores it if other fields refer to it. On an
    /// error, the position does not change.
    pub fn single(&mut self, index: usize) -> Result<Value<'a>, Error> {
        let extent = self.extent(index)?;
        let before = self.cursor.offset;
        match self.cursor.value(self.schema.fields[index].in_type, extent) {
            Ok(value) => {
                if self.cursor.offset == before {
                    self.spend_empty(index, 1)?;
                }
                self.references.note(index, &value);
                Ok(value)
            }
            Err(expected) => {
                let error = self.error(index, expected);
                self.cursor.offset = before;
                Err(error)
            }
        }
    }

    /// Reads a single value that always occupies bytes, and whose size does not depend on other
    /// fields. `None`, without a change, for all other fields and if the value cannot be read.
    #[inline]
    pub fn simple(&mut self, index: usize, field: &Field) -> Option<Value<'a>> {
        if field.count != Count::One
            || field.length != Length::Natural
            || matches!(field.in_type, InType::Struct { .. } | InType::Null | InType::Binary)
        {
            return None;
        }
        let mut cursor = self.cursor;
        let value = cursor.value(field.in_type, Extent::Natural).ok()?;
        self.cursor = cursor;
        if !self.references.is_empty() {
            self.references.note(index, &value);
        }
        Some(value)
    }

    /// Skips a whole field. Returns the index of the next field on the same level.
    pub fn skip(&mut self, index: usize, depth: usize) -> Result<usize, Error> {
        match self.count(index)? {
            None => self.skip_element(index, depth),
            Some(elements) => match self.skip_elements(index, elements, depth) {
                (_, None) => Ok(self.schema.after(index)),
                (_, Some(error)) => Err(error),
            },
        }
    }

    /// Skips one value or structure. Returns the index after it.
    fn skip_element(&mut self, index: usize, depth: usize) -> Result<usize, Error> {
        let InType::Struct { members } = self.schema.fields[index].in_type else {
            self.single(index)?;
            return Ok(index + 1);
        };
        if depth >= MAX_NESTING {
            return Err(self.error(index, Expected::Nesting));
        }
        let before = self.cursor.offset;
        let mut next = index + 1;
        for _ in 0..members {
            if next < self.schema.fields.len() {
                next = self.skip(next, depth + 1)?;
            }
        }
        if self.cursor.offset == before {
            self.spend_empty(index, 1)?;
        }
        Ok(next)
    }

    /// Skips elements. Returns their number, and the error if there are fewer than expected.
    fn skip_elements(&mut self, index: usize, elements: Elements, depth: usize) -> (usize, Option<Error>) {
        if let Some(size) = self.schema.fields[index].in_type.size(self.cursor.pointer) {
            return self.skip_sized_elements(index, elements, size);
        }
        if elements == Elements::Exactly(0) {
            return (0, self.spend_empty(index, 1).err());
        }
        let mut done = 0;
        loop {
            let before = self.cursor.offset;
            let all = match elements {
                Elements::Exactly(count) => done == count,
                Elements::Rest => self.cursor.rest().is_empty(),
            };
            if all {
                return (done, None);
            }
            match self.skip_element(index, depth) {
                // An array to the end of the payload must have elements that occupy bytes;
                // otherwise it would never end.
                Ok(_) if elements == Elements::Rest && self.cursor.offset == before => return (done, None),
                Ok(_) => done += 1,
                Err(error) => {
                    self.cursor.offset = before;
                    let ended = matches!(error, Error::Payload { expected: Expected::Bytes(_), .. });
                    return (done, if elements == Elements::Rest && ended { None } else { Some(error) });
                }
            }
        }
    }

    fn skip_sized_elements(
        &mut self,
        index: usize,
        elements: Elements,
        size: usize,
    ) -> (usize, Option<Error>) {
        let fitting = self.cursor.rest().len().checked_div(size);
        let (count, cut_off) = match (elements, fitting) {
            (Elements::Rest, fitting) => (fitting.unwrap_or(0), false),
            (Elements::Exactly(count), Some(fitting)) => (count.min(fitting), count > fitting),
            (Elements::Exactly(count), None) => (count, false),
        };
        let empty = if size == 0 { count } else { usize::from(count == 0) };
        if let Err(error) = self.spend_empty(index, empty) {
            return (0, Some(error));
        }
        self.cursor.offset += count * size;
        (count, cut_off.then(|| self.error(index, Expected::Bytes(size))))
    }

    fn spend_empty(&mut self, index: usize, elements: usize) -> Result<(), Error> {
        let left = self.empty_elements.checked_sub(elements);
        self.empty_elements = left.ok_or_else(|| self.error(index, Expected::Elements))?;
        Ok(())
    }

    /// The number of elements in a field; `None` for a single value.
    fn count(&mut self, index: usize) -> Result<Option<Elements>, Error> {
        Ok(Some(match self.schema.fields[index].count {
            Count::One => return Ok(None),
            Count::Fixed(count) => Elements::Exactly(count.into()),
            Count::Field(field) => Elements::Exactly(self.referenced(index, field.into())?),
            Count::Prefixed => match self.cursor.u16() {
                Ok(count) => Elements::Exactly(count.into()),
                Err(expected) => return Err(self.error(index, expected)),
            },
            Count::Rest => Elements::Rest,
        }))
    }

    fn extent(&self, index: usize) -> Result<Extent, Error> {
        let field = &self.schema.fields[index];
        if !field.in_type.takes_length() {
            return Ok(Extent::Natural);
        }
        Ok(match field.length {
            Length::Natural => Extent::Natural,
            Length::Fixed(length) => Extent::Padded(length.into()),
            Length::Field(field) => Extent::Counted(self.referenced(index, field.into())?),
            Length::Rest => Extent::Rest,
        })
    }

    /// The value of an earlier field.
    fn referenced(&self, index: usize, referenced: usize) -> Result<usize, Error> {
        // A value that the previous element of an array of structures stored for a later member
        // does not count.
        let value = if referenced < index { self.references.value(referenced) } else { None };
        value.ok_or_else(|| self.error(index, Expected::Reference(referenced)))
    }
}
