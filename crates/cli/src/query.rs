//! `query`: hands its arguments to the program `stackhound-lake`, which has the engine for SQL.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::outcome::Outcome;

const PROGRAM: &str = "stackhound-lake";

#[derive(Args, Debug)]
pub struct Arguments {
    /// The question in SQL, directories of tables, and options: see `stackhound-lake query --help`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let mut command = Command::new(PROGRAM);
    command.arg("query").args(&arguments.arguments);
    match replaced_by(&mut command) {
        Ok(status) if status.success() => Ok(Outcome::default()),
        // It has stated the reason.
        Ok(status) => std::process::exit(status.code().unwrap_or(crate::outcome::USAGE_OR_IO.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "`query` needs the program {PROGRAM}, which is not in the PATH; in the folder of the source code, `cargo install --path crates/lake` installs it"
        ),
        Err(error) => Err(error).with_context(|| format!("cannot start {PROGRAM}")),
    }
}

/// Replaces this process by the program. Returns only if that fails.
#[cfg(unix)]
fn replaced_by(command: &mut Command) -> std::io::Result<ExitStatus> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

/// Runs the program.
#[cfg(not(unix))]
fn replaced_by(command: &mut Command) -> std::io::Result<ExitStatus> {
    command.status()
}
