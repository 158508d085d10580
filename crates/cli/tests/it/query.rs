//! `query`: the program that it starts is a script, which writes its arguments.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `stackhound` with a PATH.
fn run(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
    command.args(arguments).env("PATH", path).output().unwrap()
}

/// A folder with a program.
fn folder_with(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("stackhound-lake");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn the_program_gets_all_arguments() {
    let folder = folder_with(r#"printf '<%s>' "$@""#);
    for (arguments, expected) in [
        (&["query", "SELECT 1", "lake"][..], "<query><SELECT 1><lake>"),
        (&["query", "-f", "-", "lake", "--format", "csv"], "<query><-f><-><lake><--format><csv>"),
        (
            &["query", "--memory-limit=1G", "SELECT ''", "a b", "c"],
            "<query><--memory-limit=1G><SELECT ''><a b><c>",
        ),
        // Options that `stackhound` also has belong to the program after the question.
        (&["query", "SELECT 1", "lake", "--help"], "<query><SELECT 1><lake><--help>"),
        (
            &["query", "SELECT 1", "lake", "--threads", "2", "-o", "x.csv"],
            "<query><SELECT 1><lake><--threads><2><-o><x.csv>",
        ),
        (&["-q", "query", "SELECT 1", "lake"], "<query><SELECT 1><lake>"),
    ] {
        let output = run(folder.path(), arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
        assert!(output.status.success() && error.is_empty(), "{error}");
    }
}

#[test]
fn its_exit_code_and_messages_are_those_of_the_program() {
    for code in [0, 2, 130] {
        let folder = folder_with(&format!("echo answer; echo message >&2; exit {code}"));
        let output = run(folder.path(), &["query", "SELECT 1", "lake"]);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"answer\n"[..], &b"message\n"[..]));
    }
}

#[test]
fn a_missing_program_is_one_sentence_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["query", "SELECT 1", "lake"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        error,
        "error: `query` needs the program stackhound-lake, which is not in the PATH; in the folder of the source code, `cargo install --path crates/lake` installs it\n"
    );
    assert!(output.stdout.is_empty());

    std::fs::write(folder.path().join("stackhound-lake"), "not a program").unwrap();
    let output = run(folder.path(), &["query", "SELECT 1", "lake"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("error: cannot start stackhound-lake: ") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn a_question_is_required() {
    let folder = folder_with("echo started");
    let output = run(folder.path(), &["query"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}
