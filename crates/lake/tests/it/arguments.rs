//! Arguments, questions from files, and errors.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::program::{demo, error, lake, text};

#[test]
fn questions_come_from_files_and_standard_input() {
    let tables = demo().tables();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("question.sql");
    fs::write(&file, "-- A comment\nSELECT 1 + 1 AS two;\n").unwrap();
    assert_eq!(text(lake(&["query", "-f", file.to_str().unwrap(), &tables])), "two\n  2\n");
    let mut running = Command::new(env!("CARGO_BIN_EXE_stackhound-lake"))
        .args(["query", "-f", "-", &tables])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    running.stdin.take().unwrap().write_all(b"SELECT 1 + 2 AS three").unwrap();
    assert_eq!(text(running.wait_with_output().unwrap()), "three\n    3\n");
}

#[test]
fn errors_are_one_sentence() {
    let demo = demo();
    let tables = demo.tables();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let into = format!("{empty}/no/x.csv");
    for (arguments, expected) in [
        (&["query", "SELECT 1", empty][..], ".etl"),
        (&["query", "SELECT 1", "no/such"], "no/such: No such file"),
        (&["query", "SELECT 1"], "expected a trace or a directory of tables after the question"),
        (&["query", "-f", "no/such.sql", &tables], "no/such.sql: No such file"),
        (&["query"], "required arguments were not provided"),
        (&["query", "SELECT 1", &tables, "--formt", "csv"], "unexpected argument '--formt'"),
        (&["query", "SELECT 1", &tables, "--format", "parquet"], "use -o FILE"),
        (&["query", "SELECT 1", &tables, "-o", "x.json"], "cannot tell the format from the extension `json`"),
        (&["query", "SELECT 1", &tables, "-o", &into], "expected a file in an existing directory"),
        (&["query", "SELECT 1", &tables, "-o", empty], "expected a file, found the directory"),
        (&["query", "SELECT 1", &tables, "--memory-limit", "much"], "expected a size such as 500M or 2G"),
        (
            &["query", "SELECT 1", &tables, "--spill-dir", "no/such"],
            "--spill-dir: expected an existing directory",
        ),
        (&["query", "SELECT 1", &tables, "--threads", "0"], "--threads"),
        (&["query", "SELEC", &tables], "Expected: an SQL statement, found: SELEC"),
    ] {
        let found = error(&lake(arguments));
        assert!(found.starts_with("error: ") && found.contains(expected), "{arguments:?}: {found}");
    }
}

#[cfg(feature = "cluster")]
#[test]
fn a_missing_scheduler_is_an_error() {
    let tables = demo().tables();
    for (scheduler, expected) in [
        ("127.0.0.1:1", "expected an address such as df://127.0.0.1:50050"),
        ("http://127.0.0.1:1", "expected an address such as df://127.0.0.1:50050"),
        // No program listens at this port.
        ("df://127.0.0.1:1", "the cluster of df://127.0.0.1:1: "),
    ] {
        let found =
            error(&lake(&["query", "SELECT count(*) FROM events", &tables, "--scheduler", scheduler]));
        assert!(found.contains(expected), "{found}");
    }
    let found = error(&lake(&["executor", "--scheduler", "df://127.0.0.1:1", "--data", "no/such"]));
    assert!(found.contains("no/such: No such file"), "{found}");
}
