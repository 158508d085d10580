//! `man`: manual pages, from the definition of the arguments.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};

use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, message};

#[derive(Args, Debug)]
pub struct Arguments {
    /// Write a page for each verb into this directory, such as stackhound-events.1; it is created if
    /// it is missing
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, command: Command, common: &Common) -> Result<Outcome> {
    let Some(directory) = &arguments.directory else {
        clap_mangen::Man::new(command).render(&mut io::stdout())?;
        return Ok(Outcome::default());
    };
    let context = || format!("cannot write in {}", directory.display());
    std::fs::create_dir_all(directory).with_context(context)?;
    let pages = count(&command);
    clap_mangen::generate_to(command, directory).with_context(context)?;
    if !common.quiet {
        message(format_args!("{} in {}", counted(pages, "page", "pages"), directory.display()));
    }
    Ok(Outcome::default())
}

/// The number of commands: the program, its verbs and theirs.
fn count(command: &Command) -> u64 {
    1 + command.get_subcommands().map(count).sum::<u64>()
}
