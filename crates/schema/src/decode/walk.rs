//! Moves through payload and schema together, over single values, arrays and structures.
//!
//! Knows how much of the payload each field takes; the lazy views of what it passed are in [`super`].

use stackhound_types::PointerSize;

use super::read::{Cursor, Extent};
use super::references::References;
use super::{Array, Decoder, Item, MAX_EMPTY_ELEMENTS, MAX_NESTING};
use crate::error::{Error, Expected};
use crate::model::{Count, InType, Length, Schema, Value};

/// A position in a payload, with all that is needed to go on from there. Copied wherever a lazy part starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    pub schema: &'a Schema,
    pub cursor: Cursor<'a>,
    references: References,
    /// How many more elements may take no bytes.
    empty_elements: usize,
}

/// How many elements an array has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elements {
    Exactly(usize),
    /// As many whole ones as the payload has room for.
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

    /// Reads a field. What the payload cuts off of an array or structure comes with the error that ended it.
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

    /// Reads one value or structure, without regard to the field's count.
    pub fn element(&mut self, index: usize, depth: usize) -> Result<Item<'a>, Error> {
        if matches!(self.schema.fields[index].in_type, InType::Struct { .. }) {
            let start = *self;
            self.skip_element(index, depth)?;
            Ok(Item::Struct(Decoder::members(start, index, depth + 1)))
        } else {
            self.single(index).map(Item::Value)
        }
    }

    /// Reads one value that is not a structure, and remembers it if others refer to it.
    /// On an error the position stays where it was.
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

    /// Moves over a whole field; returns the index of the next one on the same level.
    pub fn skip(&mut self, index: usize, depth: usize) -> Result<usize, Error> {
        match self.count(index)? {
            None => self.skip_element(index, depth),
            Some(elements) => match self.skip_elements(index, elements, depth) {
                (_, None) => Ok(self.schema.after(index)),
                (_, Some(error)) => Err(error),
            },
        }
    }

    /// Moves over one value or structure; returns the index behind it.
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

    /// Moves over elements. Returns how many there are, and why there are not more if there should be.
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
                // Without an end in the count or in the payload, elements must take bytes.
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

    /// How many elements the field has; `None` for a single value.
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
        // What the previous element of an array of structures left behind for a later member does not count.
        let value = if referenced < index { self.references.value(referenced) } else { None };
        value.ok_or_else(|| self.error(index, Expected::Reference(referenced)))
    }
}
