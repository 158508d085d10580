//! Tests of the public interface: the events of a trace, their order, and the files they come from.

mod captures;
mod merge;
mod sources;
mod trace_files;
