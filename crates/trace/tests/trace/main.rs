//! The public face of the crate: which events a trace hands out, in which order, and from which files.

mod captures;
mod merge;
mod sources;
mod trace_files;
