//! Whole recordings, read as the library does.

mod corpus;
mod creates;
mod defects;
mod meaning;
mod policy;
mod read;
mod script;
