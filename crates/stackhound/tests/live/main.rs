//! Live sessions, with a double in place of Windows' own functions: `scripts/with-double cargo test`.
#![cfg(windows)]

mod endings;
mod load;
mod one_code;
mod providers;
mod recordings;
#[path = "../one_code/shown.rs"]
mod shown;
