//! Each format, read again by something that is not the writer: a schema, a parser, or a count of our own.
//!
//! The profiles are arbitrary: names as Windows would not allow them, stacks of any shape, threads without an id.

mod firefox;
#[cfg(feature = "flamegraph")]
mod flamegraph;
mod folded;
mod perfetto;
mod profiles;
mod speedscope;
