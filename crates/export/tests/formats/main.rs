//! Each format, read by an independent reader: a schema, a parser, or a computation in the test.
//!
//! The profiles are arbitrary: names that Windows does not allow, stacks of any shape, threads
//! without ids.

mod firefox;
mod flamegraph;
mod folded;
mod inlines;
mod perfetto;
mod profiles;
mod speedscope;
