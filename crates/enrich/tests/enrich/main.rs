//! Whole recordings, read as the library does.

mod corpus;
mod policy;
mod read;
