//! Limits of what schemas may describe and of what is decoded with them.

/// The maximum number of structures that contain each other.
pub const MAX_NESTING: usize = 8;

/// The maximum number of array elements in one payload that occupy no bytes.
pub const MAX_EMPTY_ELEMENTS: usize = 1024;
