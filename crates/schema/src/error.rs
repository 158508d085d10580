//! What can be wrong with metadata and payloads, and where.

/// Bytes do not have the shape that was expected of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
