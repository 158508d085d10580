//! `docs/apc.md` has a row for each error in the HOWTO of 2009, and each test that it names exists.

use std::fs;
use std::path::Path;

use crate::shown::{has_test, root, spans};

fn page() -> String {
    fs::read_to_string(root().join("docs/apc.md")).expect("the page")
}

/// The tests that a text names: code spans with a file and a name.
fn tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    spans(text).filter_map(|span| span.split_once(".rs::"))
}

#[test]
fn each_error_has_evidence() {
    let page = page();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| {
            line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        })
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let numbers: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(numbers, (1..=16).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    for row in rows {
        let [number, wrong, consequence, here, shown] = row[..] else { panic!("{row:?}") };
        assert!([wrong, consequence, here].iter().all(|cell| cell.len() > 20), "{number}");
        assert!(tests(shown).count() > 0 || shown == "a sentence", "{number}: no evidence is named");
        // Errors in the life cycle of a capture are tested with models into which they are
        // inserted.
        let life = ["4", "5", "6", "7", "9", "13"].contains(&number);
        assert!(
            !life || tests(shown).any(|(file, _)| file.ends_with("mutants")),
            "{number}: no mutated model"
        );
    }
}

#[test]
fn each_named_test_exists() {
    let page = page();
    let named: Vec<(&str, &str)> = tests(&page).collect();
    assert!(named.len() > 20);
    let missing: Vec<_> = named
        .into_iter()
        .filter(|(file, name)| !has_test(&root().join("crates").join(file).with_extension("rs"), name))
        .collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
}

#[test]
fn only_tests_are_recognized_as_tests() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/apc.rs");
    assert!(has_test(&here, "only_tests_are_recognized_as_tests"));
    assert!(!has_test(&here, "page"));
    assert!(!has_test(&here, "only_tests_are"));
    assert!(!has_test(Path::new("no/such/file.rs"), "page"));
}
