//! Tasks of the repository itself, run with `cargo xtask TASK`. No part of the product; the tests of this crate check
//! the repository, see `tests/tidy.rs`.
#![forbid(unsafe_code)]

mod check;
mod mixture;

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use serde_json::Value;

const USAGE: &str = "\
usage: cargo xtask TASK

tasks:
  check               format, lints and the tests of what changed since the branch left main
  mixture [--short]   compares the answers for a folder of traces with those for each capture alone";

/// Why a task failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot run `{0}`: {1}")]
    Start(String, io::Error),
    #[error("`{0}` failed ({1})")]
    Failed(String, ExitStatus),
    #[error("the output of a command is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}: the answers for the folder differ from those for its captures")]
    Mixture(&'static str),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check::check(),
        ["mixture"] => mixture::mixture(false),
        ["mixture", "--short"] => mixture::mixture(true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the repository.
fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).unwrap_or(folder)
}

/// Runs a command in the repository, and prints it with its time.
fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
    let arguments: Vec<&str> = arguments.into_iter().collect();
    let line = format!("{program} {}", arguments.join(" "));
    println!("== {line}");
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .status()
        .map_err(|error| Error::Start(line.clone(), error))?;
    println!("== {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(Error::Failed(line, status)) }
}

/// The standard output of a command, without space at its end.
fn output<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String, Error> {
    let line = || format!("{program} {}", arguments.join(" "));
    let command = Command::new(program).args(arguments).current_dir(root()).output();
    let output = command.map_err(|error| Error::Start(line(), error))?;
    if !output.status.success() {
        return Err(Error::Failed(line(), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The description of the workspace that Cargo gives.
fn metadata() -> Result<Value, Error> {
    let text = output("cargo", ["metadata", "--no-deps", "--format-version", "1", "--locked"])?;
    Ok(serde_json::from_str(&text)?)
}

/// The elements of an array in JSON; none of any other value.
fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
