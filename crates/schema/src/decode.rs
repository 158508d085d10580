//! The decoder: reads a payload along a [`Schema`] and yields one field at a time.
//!
//! It reads the fields that fit and ignores the rest, because newer systems append fields without a
//! new version and older systems write fewer fields. Every read is checked against the end of the
//! payload. Nothing is allocated.
//!
//! Malicious schemas cost little more than valid ones: structures nest at most [`MAX_NESTING`](crate::MAX_NESTING)
//! deep, and an element that consumes no bytes of the payload is taken from a budget of
//! [`MAX_EMPTY_ELEMENTS`](crate::MAX_EMPTY_ELEMENTS).

mod read;
mod references;
mod walk;

use std::borrow::Cow;

use stackhound_types::PointerSize;

use crate::error::Error;
use crate::model::{Field, InType, Schema, Value};
use read::ansi_to_zero;
pub(crate) use read::{Cursor, Extent, utf16_to_zero};
pub(crate) use references::References;
pub(crate) use walk::Walk;

/// A field with its content in a payload.
#[derive(Clone, Debug)]
pub struct Decoded<'a> {
    /// Index into [`Schema::fields`].
    pub index: usize,
    /// The field's description.
    pub field: &'a Field,
    /// The content.
    pub item: Item<'a>,
}

/// The content of a field.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// A single value.
    Value(Value<'a>),
    /// An array of values or of structures.
    Array(Array<'a>),
    /// A structure. Iterate over the decoder to read its members.
    Struct(Decoder<'a>),
}

impl<'a> Item<'a> {
    /// The value, if the content is a single value.
    pub fn value(&self) -> Option<Value<'a>> {
        match self {
            Item::Value(value) => Some(*value),
            Item::Array(_) | Item::Struct(_) => None,
        }
    }
}

impl Schema {
    /// Creates a decoder for a payload. Fields are decoded when they are requested; the call itself
    /// looks once at each field of the schema, for references between fields.
    ///
    /// `pointer` is the pointer size of the record. It determines the size of pointers in the
    /// payload.
    pub fn decode<'a>(&'a self, payload: &'a [u8], pointer: PointerSize) -> Decoder<'a> {
        Decoder::new(Walk::new(self, payload, pointer, References::of(self)))
    }

    /// The index of the first top-level field with this name in [`Schema::fields`].
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.top_level().find(|&index| *self.fields[index].name == *name)
    }

    /// The indices of all fields that are not members of a structure, in order.
    pub fn top_level(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(0), |&index| Some(self.after(index)))
            .take_while(|&index| index < self.fields.len())
    }

    /// The index after a field and, for a structure, after all of its members.
    pub(crate) fn after(&self, index: usize) -> usize {
        let mut next = index;
        let mut open = 1_usize;
        while open > 0 && next < self.fields.len() {
            if let InType::Struct { members } = self.fields[next].in_type {
                open += usize::from(members);
            }
            open -= 1;
            next += 1;
        }
        next
    }
}

/// An iterator over the fields of a payload, or over the members of a structure, in the order of
/// the schema.
///
/// If the payload ends early, the fields that fit are followed by one [`Error::Payload`], which is
/// the last item. A truncated array or structure is yielded before that error, with its complete
/// elements and members. Padding is skipped.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    walk: Walk<'a>,
    next: usize,
    /// The number of remaining fields on this level; `usize::MAX` on the top level, which ends with
    /// the schema.
    remaining: usize,
    depth: usize,
    /// The error to yield after the item that was just yielded.
    error: Option<Error>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(walk: Walk<'a>) -> Decoder<'a> {
        Decoder { walk, next: 0, remaining: usize::MAX, depth: 0, error: None }
    }

    fn members(walk: Walk<'a>, index: usize, depth: usize) -> Decoder<'a> {
        let remaining = match walk.schema.fields[index].in_type {
            InType::Struct { members } => members.into(),
            _ => 0,
        };
        Decoder { walk, next: index + 1, remaining, depth, error: None }
    }

    /// The bytes that no yielded field has consumed. After the last top-level field these are
    /// trailing bytes, or the start of a field that did not fit.
    pub fn rest(&self) -> &'a [u8] {
        self.walk.cursor.rest()
    }

    /// The offset of the next field in the payload, in bytes.
    pub fn offset(&self) -> usize {
        self.walk.cursor.offset
    }

    /// The next field and its value, if it is a single value whose size does not depend on other
    /// fields. `None` for all other fields, at the end, and on an error: those are read by
    /// [`next`](Iterator::next). The result is the same as that of `next`, but the state of the
    /// decoder is not copied, which costs more than most values.
    #[inline]
    pub fn next_value(&mut self) -> Option<(usize, &'a Field, Value<'a>)> {
        let index = self.next;
        let field =
            self.walk.schema.fields.get(index).filter(|_| self.remaining > 0 && self.error.is_none())?;
        let value = self.walk.simple(index, field)?;
        self.next = index + 1;
        self.remaining -= 1;
        Some((index, field, value))
    }

    /// Skips padding, which is never yielded.
    fn skip_padding(&mut self) -> Result<(), Error> {
        while self.remaining > 0 && self.walk.schema.fields.get(self.next).is_some_and(Field::is_padding) {
            self.next = self.walk.skip(self.next, self.depth)?;
            self.remaining -= 1;
        }
        Ok(())
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Result<Decoded<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.error.take() {
            self.remaining = 0;
            return Some(Err(error));
        }
        let schema = self.walk.schema;
        if let Err(error) = self.skip_padding() {
            self.remaining = 0;
            return Some(Err(error));
        }
        let index = self.next;
        let field = schema.fields.get(index).filter(|_| self.remaining > 0)?;
        match self.walk.item(index, self.depth) {
            Ok((item, error)) => {
                self.error = error;
                self.next = schema.after(index);
                self.remaining -= 1;
                Some(Ok(Decoded { index, field, item }))
            }
            Err(error) => {
                self.remaining = 0;
                Some(Err(error))
            }
        }
    }
}

impl std::iter::FusedIterator for Decoder<'_> {}

/// An array of values or structures in a payload.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    /// The position of the first element.
    start: Walk<'a>,
    /// The offset of the end of the last element in the payload.
    end: usize,
    index: usize,
    depth: usize,
    count: usize,
}

impl<'a> Array<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The field that describes each element.
    pub fn field(&self) -> &'a Field {
        &self.start.schema.fields[self.index]
    }

    /// The stored bytes of all elements, without the count that may precede them.
    pub fn bytes(&self) -> &'a [u8] {
        self.start.cursor.payload.get(self.start.cursor.offset..self.end).unwrap_or_default()
    }

    /// The text that an array of characters contains, up to the first zero.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.text_value()?.text()
    }

    /// As [`text`](Array::text), but as a value that borrows from the payload.
    pub fn text_value(&self) -> Option<Value<'a>> {
        match self.field().in_type {
            InType::Utf16Char => Some(Value::Utf16(utf16_to_zero(self.bytes()))),
            InType::AnsiChar => Some(Value::Ansi(ansi_to_zero(self.bytes()))),
            _ => None,
        }
    }

    /// The elements as values, if their size does not depend on the payload. Same as
    /// [`iter`](Array::iter), but the state of the decoder is not copied for each element.
    pub fn values(&self) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        let in_type = self.field().in_type;
        in_type.size(self.start.cursor.pointer).filter(|&size| size > 0)?;
        let mut cursor = self.start.cursor;
        Some((0..self.count).map_while(move |_| cursor.value(in_type, Extent::Natural).ok()))
    }

    /// Iterates over the elements in order, as [`Item::Value`] or [`Item::Struct`].
    pub fn iter(&self) -> ArrayElements<'a> {
        ArrayElements { walk: self.start, index: self.index, depth: self.depth, remaining: self.count }
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Item<'a>;
    type IntoIter = ArrayElements<'a>;

    fn into_iter(self) -> ArrayElements<'a> {
        self.iter()
    }
}

/// An iterator over the elements of an [`Array`].
#[derive(Clone, Debug)]
pub struct ArrayElements<'a> {
    walk: Walk<'a>,
    index: usize,
    depth: usize,
    remaining: usize,
}

impl<'a> Iterator for ArrayElements<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        // The array was skipped once to find its end, so every counted element can be read.
        let element = self.walk.element(self.index, self.depth);
        debug_assert!(element.is_ok(), "{element:?}");
        element.ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for ArrayElements<'_> {}

#[cfg(test)]
mod tests;
