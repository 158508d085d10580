//! Tests with whole traces, read as the library reads them.

mod calls;
mod corpus;
mod creates;
mod defects;
mod meaning;
mod policy;
mod read;
mod script;
