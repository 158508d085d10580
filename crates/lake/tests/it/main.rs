//! Tests of the program over tables that `stackhound convert` writes from the trace of `stackhound
//! demo`.
//!
//! The variable `STACKHOUND_PROGRAM` states the path of `stackhound`; by default, it is that of
//! `cargo build -p stackhound-cli`.

mod arguments;
mod documentation;
mod output;
mod program;
mod slt;
mod stacks;
mod traces;
