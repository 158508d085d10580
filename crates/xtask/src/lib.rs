//! Checks on the repository itself, run as tests: see `tests/tidy.rs`.
#![forbid(unsafe_code)]
