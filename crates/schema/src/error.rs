//! Errors in metadata and payloads, with their offsets.

use std::fmt;

use crate::model::{Count, Field, InType, OutType};

/// An error in metadata, in a payload, or in a requested or supplied property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No schema is known for the event.
    #[error("no schema is known for the event")]
    NoSchema,
    /// The payload does not contain the next field of its schema. The fields before it are valid.
    #[error("field {field} at payload offset {offset:#x}: expected {expected}")]
    Payload {
        /// Index into [`Schema::fields`](crate::Schema::fields).
        field: usize,
        /// Offset in the payload, in bytes, at which reading stopped.
        offset: usize,
        /// The data that was expected there.
        expected: Expected,
    },
    /// The payload does not contain the fixed part that every event of its class has.
    #[error("{class} payload at offset {offset:#x}: expected {expected}")]
    Class {
        /// The class or a part of it, by the name of its view.
        class: &'static str,
        /// Offset in the payload, in bytes, at which reading stopped.
        offset: usize,
        /// The data that was expected there.
        expected: Expected,
    },
    /// The description of an event cannot be read.
    #[error("metadata offset {offset:#x}: expected {expected}")]
    Metadata {
        /// Offset in the description, in bytes, at which reading stopped.
        offset: usize,
        /// The data that was expected there.
        expected: &'static str,
    },
    /// The event has no property of this name.
    #[error("there is no property {0}")]
    NoProperty(Box<str>),
    /// The type of the property differs from the requested type, or from the type of the supplied
    /// value.
    #[error("property {property} is {actual}, not {requested}")]
    WrongType {
        /// The property's name.
        property: Box<str>,
        /// The type of the property.
        actual: FieldType,
        /// The requested type, or the type of the supplied value.
        requested: &'static str,
    },
    /// The property has the right type, but its value is not valid for the requested or supplied
    /// type.
    #[error("property {property}: expected {expected}")]
    Content {
        /// The property's name.
        property: Box<str>,
        /// A description of the valid values.
        expected: &'static str,
    },
    /// A payload is packed, and no value was given for this property.
    #[error("no value was given for property {0}")]
    NotGiven(Box<str>),
}

/// The type of a field. Prints as a phrase for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// The storage type of a value.
    pub in_type: InType,
    /// The format in which a value is shown.
    pub out_type: OutType,
    /// Whether the field is an array.
    pub is_array: bool,
}

impl FieldType {
    /// The type of the given field.
    pub fn of(field: &Field) -> FieldType {
        let is_array = field.count != Count::One;
        FieldType { in_type: field.in_type, out_type: field.out_type, is_array }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_array {
            f.write_str("an array of ")?;
        }
        match self.in_type {
            InType::Struct { .. } => f.write_str("a structure"),
            in_type => write!(f, "{in_type:?}"),
        }?;
        match self.out_type {
            OutType::Default => Ok(()),
            out_type => write!(f, " shown as {out_type:?}"),
        }
    }
}

/// The data that a decoder needed and did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Expected {
    /// This many more bytes in the payload.
    #[error("{}", byte_count(*.0))]
    Bytes(usize),
    /// A security identifier. It has at most 15 sub-authorities.
    #[error("a security identifier")]
    Sid,
    /// A count or length in the field with this index, which must precede the field that refers to
    /// it.
    #[error("a count or length in field {0}")]
    Reference(usize),
    /// Structures that are nested at most [`MAX_NESTING`](crate::MAX_NESTING) deep.
    #[error("at most {} levels of nested structures", crate::limits::MAX_NESTING)]
    Nesting,
    /// At most [`MAX_EMPTY_ELEMENTS`](crate::MAX_EMPTY_ELEMENTS) array elements that occupy no
    /// bytes.
    #[error("at most {} elements without bytes", crate::limits::MAX_EMPTY_ELEMENTS)]
    Elements,
    /// The index of a field that is not a member of a structure.
    #[error("the index of a top-level field")]
    TopLevelField,
    /// A field that is not an array or a structure.
    #[error("a single value")]
    SingleValue,
}

fn byte_count(bytes: usize) -> String {
    if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") }
}
