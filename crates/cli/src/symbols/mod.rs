//! `stackhound symbols`: the files of modules, and the names and stubs in them; names for tables.

mod add;
mod check;
mod list;
mod lookup;
mod modules;
mod stubs;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::options::Common;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the PDB names, export names and source lines at addresses of an image
    Lookup(lookup::Lookup),
    /// List the modules of traces, with their identities and the files that were found
    List(modules::Arguments),
    /// Show the missing files of modules by cause, with hints
    Check(modules::Arguments),
    /// Download the missing files of modules; needs --online
    Fetch(check::Fetch),
    /// Add names to the tables of converted traces
    Add(add::Add),
    /// Show the system-call stubs of ntdll.dll or win32u.dll: numbers, return addresses and hooks
    Stubs(stubs::Stubs),
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Lookup(arguments) => lookup::run(arguments, common),
        Verb::List(arguments) => list::run(arguments, common),
        Verb::Check(arguments) => check::check(arguments, common),
        Verb::Fetch(arguments) => check::fetch(arguments, common),
        Verb::Add(arguments) => add::run(arguments, common),
        Verb::Stubs(arguments) => stubs::run(arguments, common),
    }
}

/// The limit of file sizes: images have 32-bit addresses, and PDBs are rarely larger.
const FILE_SIZE_MAX: u64 = 4 << 30;

/// Reads an image or symbol file.
fn read_file(path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        bail!("{}: expected an image or PDB of at most 4 GiB, found a larger file", path.display());
    }
    Ok(bytes)
}
