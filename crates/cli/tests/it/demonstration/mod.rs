//! The demo trace and the program in its folder, for tests.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder with the demo trace and its symbol store.
pub fn demo() -> TempDir {
    demo_with(&[])
}

/// The same with other options of `demo`.
pub fn demo_with(options: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = run(folder.path(), &[&["demo", "-q", "--out", "."], options].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

/// Runs the program there. It uses only symbols that the arguments name.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("_NT_SYMBOL_PATH")
        .output()
        .expect("the program runs")
}
