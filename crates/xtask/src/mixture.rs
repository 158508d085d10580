//! `cargo xtask mixture [--short]`: hunts in all traces of the corpus at once, and in each of their captures alone. The
//! answers must be the same, capture by capture. Prints each capture with its number of answers.
//!
//! Without the corpus nothing is compared, which is an error where `CI` is `true`: see `stackhound_corpus`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Error, array, metadata, run};

/// The largest trace of the short form, in bytes.
const SHORT_MAX: u64 = 600_000;

/// How traces are read. The short form reads once only: tests of the program read the same traces twice.
const PASSES: [(&str, &[&str]); 2] = [("read once", &["--one-pass"]), ("read twice", &[])];

pub fn mixture(short: bool) -> Result<(), Error> {
    let mut traces: Vec<PathBuf> =
        stackhound_corpus::trace_files().into_iter().map(|(_, path)| path).collect();
    if short {
        traces.retain(|path| path.metadata().is_ok_and(|facts| facts.len() <= SHORT_MAX));
    }
    if traces.is_empty() {
        return Ok(());
    }
    let program = built(short)?;
    let described = command(&program, &["info", "--format", "json"], &traces)?;
    let described: Value = serde_json::from_slice(&described)?;
    let captures: Vec<Vec<PathBuf>> = array(&described["captures"])
        .map(|capture| array(&capture["files"]).filter_map(Value::as_str).map(PathBuf::from).collect())
        .collect();

    for (name, pass) in &PASSES[..if short { 1 } else { 2 }] {
        let together = hunt(&program, pass, &traces)?;
        let mut alone = Vec::new();
        for files in &captures {
            let answers = hunt(&program, pass, files)?;
            let file = files.first().and_then(|file| file.file_name()).unwrap_or_default();
            let lines = answers.iter().filter(|byte| **byte == b'\n').count();
            println!("{lines:8} answers: {} ({} files)", file.to_string_lossy(), files.len());
            alone.extend(answers);
        }
        if together != alone {
            return Err(Error::Mixture(name));
        }
        println!("{} captures of {} traces, {name}: equal answers", captures.len(), traces.len());
    }
    Ok(())
}

/// Builds the program: as the tests of the workspace do, or for a release.
fn built(short: bool) -> Result<PathBuf, Error> {
    // Without examples, libraries would be built again with other features.
    let (profile, flags): (_, &[&str]) = if short {
        ("debug", &["--bins", "--examples"])
    } else {
        ("release", &["--release", "--bin", "stackhound"])
    };
    run("cargo", ["build", "--locked", "--quiet", "--workspace"].into_iter().chain(flags.iter().copied()))?;
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str().unwrap_or("target");
    Ok(Path::new(target).join(profile).join("stackhound"))
}

/// All answers as lines.
fn hunt(program: &Path, pass: &[&str], files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    let options = ["hunt", "-q", "--symbol-path", "", "--all", "--format", "ndjson"];
    command(program, &[&options, pass].concat(), files)
}

/// What the program prints. Exit code 1 reports that something was found.
fn command(program: &Path, arguments: &[&str], files: &[PathBuf]) -> Result<Vec<u8>, Error> {
    let line = || format!("stackhound {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).args(files).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Error::Start(line(), error))?;
    match output.status.code() {
        Some(0 | 1) => Ok(output.stdout),
        _ => Err(Error::Failed(line(), output.status)),
    }
}
