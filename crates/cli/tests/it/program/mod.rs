//! Running the program, for tests.

use std::path::Path;
use std::process::{Command, Output};

pub fn stackhound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

/// Checks invalid input: one sentence on standard error, nothing on standard output, exit code 2.
#[track_caller]
#[allow(dead_code, reason = "not every test checks invalid input")]
pub fn refused(arguments: &[&str], sentence: &str) {
    let output = stackhound(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
    assert_eq!(errors.trim_end(), format!("error: {sentence}"), "{arguments:?}");
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
