//! All tests and files that `docs/complaints.md` names as evidence exist.

use std::fs;
use std::path::Path;

use crate::shown::{has_test, root, spans};

#[test]
fn every_complaint_has_an_answer_with_evidence() {
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
        let shown: Vec<&str> = spans(shown).collect();
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
    assert!(missing.is_empty(), "missing: {missing:#?}");
}

#[test]
fn only_tests_are_recognized_as_tests() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/complaints.rs");
    assert!(has_test(&here, "only_tests_are_recognized_as_tests"));
    assert!(!has_test(&here, "spans"));
    assert!(!has_test(&here, "only_tests_are"));
    assert!(!has_test(Path::new("no/such/file.rs"), "spans"));
}
