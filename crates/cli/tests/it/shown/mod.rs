//! Checks that the evidence that a page names exists, for tests of pages.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code spans of a text.
pub fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a file has a test of this name: a function with a test attribute.
pub fn has_test(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = format!("fn {name}(");
    let Some(line) = lines.iter().position(|line| line.starts_with(&declared)) else { return false };
    let before =
        lines[..line].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    before.into_iter().any(|line| *line == "#[test]")
}
