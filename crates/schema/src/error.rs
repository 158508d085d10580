//! What can be wrong with metadata and payloads, and where.

use std::fmt;

use crate::model::{Count, Field, InType, OutType};

/// Bytes do not have the shape that was expected of them, or properties not the type or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nobody knows what the payload of an event means.
    #[error("nobody describes the event")]
    NoSchema,
    /// A payload does not hold the field that its schema names next. The fields before it are good.
    #[error("field {field} at payload offset {offset:#x}: expected {expected}")]
    Payload {
        /// Index into [`Schema::fields`](crate::Schema::fields).
        field: usize,
        /// Bytes from the start of the payload to where reading stopped.
        offset: usize,
        /// What should have been there.
        expected: Expected,
    },
    /// A payload does not hold the fixed part that every event of its class has.
    #[error("{class} payload at offset {offset:#x}: expected {expected}")]
    Class {
        /// The class or its part, by the name of its view.
        class: &'static str,
        /// Bytes from the start of the payload to where reading stopped.
        offset: usize,
        /// What should have been there.
        expected: Expected,
    },
    /// A description of events cannot be read.
    #[error("metadata offset {offset:#x}: expected {expected}")]
    Metadata {
        /// Bytes from the start of the description to where reading stopped.
        offset: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// The event has no property of this name.
    #[error("there is no property {0}")]
    NoProperty(Box<str>),
    /// A property is read or given as a type that it is not of.
    #[error("property {property} is {is}, not {asked}")]
    WrongType {
        /// The property's name.
        property: Box<str>,
        /// What it is.
        is: FieldType,
        /// What it was asked for as, or what was given for it.
        asked: &'static str,
    },
    /// A property is of the right type, but its content is not.
    #[error("property {property}: expected {expected}")]
    Content {
        /// The property's name.
        property: Box<str>,
        /// What it should have been.
        expected: &'static str,
    },
    /// A payload is to be made, and nothing was given for this property.
    #[error("nothing was given for property {0}")]
    NotGiven(Box<str>),
}

/// What a field is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// How a value is stored.
    pub in_type: InType,
    /// How it wants to be shown.
    pub out_type: OutType,
    /// Whether there are several.
    pub is_array: bool,
}

impl FieldType {
    /// Of a field.
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

/// What a decoder needed and did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Expected {
    /// The payload ends before this many bytes.
    #[error("{0} bytes")]
    Bytes(usize),
    /// A security identifier has at most 15 sub-authorities.
    #[error("a security identifier")]
    Sid,
    /// A count or length refers to a field that has no such value before this one.
    #[error("a count or length in field {0}")]
    Reference(usize),
    /// Structures are nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    #[error("less deeply nested structures")]
    Nesting,
    /// Too many elements without any bytes.
    #[error("fewer elements without bytes")]
    Elements,
    /// The index names no field outside of structures.
    #[error("the index of a top-level field")]
    TopLevelField,
    /// The field is an array or a structure.
    #[error("a single value")]
    SingleValue,
}
