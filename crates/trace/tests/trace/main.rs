//! Tests of the public interface: the events of a trace, their order, and the files they come from.

mod captures;
mod losses;
mod merge;
mod sources;
mod times;
mod trace_files;
