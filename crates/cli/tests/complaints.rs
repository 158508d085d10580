//! `docs/complaints.md` names what shows each answer: all of it exists.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands in backticks.
fn spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a file has a test of this name: a function behind an attribute that makes it one, or in a block of properties.
fn has_test(file: &Path, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = format!("fn {name}(");
    let Some(line) = lines.iter().position(|line| line.starts_with(&declared)) else { return false };
    let before =
        lines[..line].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    before.into_iter().any(|line| *line == "#[test]")
}

#[test]
fn every_complaint_has_an_answer_that_is_shown() {
    let page = fs::read_to_string(root().join("docs/complaints.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let numbers: Vec<_> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(numbers, (1..=15).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    let mut missing = Vec::new();
    for row in &rows {
        let [number, complaint, answer, shown] = row[..] else { panic!("{row:?}") };
        assert!(!complaint.is_empty() && !answer.is_empty(), "{number}");
        let shown = spans(shown);
        assert!(shown.iter().any(|shown| shown.contains("::")), "{number}: no test is named");
        for shown in shown {
            let exists = match shown.split_once("::") {
                Some((file, name)) => has_test(&root().join("crates").join(file), name),
                None => root().join(shown).is_file(),
            };
            if !exists {
                missing.push(format!("{number}: {shown}"));
            }
        }
    }
    assert!(missing.is_empty(), "not there: {missing:#?}");
}

#[test]
fn what_is_no_test_is_told_from_tests() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/complaints.rs");
    assert!(has_test(&here, "what_is_no_test_is_told_from_tests"));
    assert!(!has_test(&here, "spans"));
    assert!(!has_test(&here, "what_is_no_test"));
    assert!(!has_test(Path::new("no/such/file.rs"), "spans"));
}
