//! Live sessions, with a fake in place of Windows' own functions: `scripts/with-fake cargo test`.
#![cfg(windows)]

mod endings;
mod load;
mod one_code;
mod providers;
#[path = "../it/one_code/shown.rs"]
mod shown;
mod trace_files;
