//! `stackhound symbols`: the files of modules, and names and stubs in them.

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

/// What to do with images and symbol files.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What stands at addresses of an image: names of its PDB and of its exports, source lines
    Lookup(lookup::Lookup),
    /// The modules of recordings, their identities, and which of their files are found
    List(modules::Arguments),
    /// Which files of modules are missing, by cause, with what helps
    Check(modules::Arguments),
    /// Download the files of modules; needs --online
    Fetch(check::Fetch),
    /// The system-call stubs of ntdll.dll or win32u.dll: numbers, return addresses, hooks
    Stubs(stubs::Stubs),
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Lookup(arguments) => lookup::run(arguments, common),
        Verb::List(arguments) => list::run(arguments, common),
        Verb::Check(arguments) => check::check(arguments, common),
        Verb::Fetch(arguments) => check::fetch(arguments, common),
        Verb::Stubs(arguments) => stubs::run(arguments, common),
    }
}

/// Images have 32-bit addresses; PDBs are larger only in theory.
const FILE_SIZE_MAX: u64 = 4 << 30;

/// All bytes of an image or symbol file.
fn read_file(path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_SIZE_MAX + 1).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > FILE_SIZE_MAX {
        bail!("{}: larger than 4 GiB", path.display());
    }
    Ok(bytes)
}
