//! Running both programs, and the tables of the demo trace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub fn lake(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound-lake"));
    command.args(arguments).env_remove("COLUMNS").output().expect("stackhound-lake")
}

/// Standard output of a run without an error.
pub fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The error of a run, whose exit code must be 2.
pub fn error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "one sentence: {text}");
    text
}

/// The rows that answer a question.
pub fn rows(sql: &str, folders: &[&str]) -> Vec<Value> {
    let answer = text(lake(&[&["query", sql, "--format", "ndjson"], folders].concat()));
    answer.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// `stackhound` with these arguments.
pub fn stackhound<A: AsRef<OsStr>>(arguments: &[A]) -> Output {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/stackhound");
    let program = std::env::var_os("STACKHOUND_PROGRAM").map_or(built, PathBuf::from);
    let mut command = Command::new(&program);
    command.args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo build -p stackhound-cli` builds it, or set STACKHOUND_PROGRAM",
            program.display()
        )
    })
}

/// The demo trace, its symbols and its tables.
pub struct Demo {
    folder: TempDir,
}

impl Demo {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn trace(&self) -> String {
        self.path("stackhound-demo.etl")
    }

    pub fn symbols(&self) -> String {
        self.path("symbols")
    }

    pub fn tables(&self) -> String {
        self.path("lake")
    }
}

pub fn demo() -> &'static Demo {
    static DEMO: OnceLock<Demo> = OnceLock::new();
    DEMO.get_or_init(|| {
        let demo = Demo { folder: tempfile::tempdir().expect("a folder") };
        text(stackhound(&["demo", "-q", "--out", demo.folder.path().to_str().expect("UTF-8")]));
        convert(&demo.tables());
        demo
    })
}

/// Converts the demo trace with its symbols.
pub fn convert(output: &str) {
    // The demo may still be under construction: its paths exist first.
    let folder = Path::new(output).parent().expect("a folder");
    let of = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let (trace, symbols) = (of("stackhound-demo.etl"), of("symbols"));
    text(stackhound(&["convert", "-q", &trace, "-o", output, "--symbol-path", &symbols]));
}
