//! `stackhound symbols add`: adds names to the tables of converted traces.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::config::{Config, SymbolArguments};
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{at_end, counted, grouped};

#[derive(Args, Debug)]
pub struct Add {
    /// Directory with the tables that `convert` wrote
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub symbols: SymbolArguments,
}

pub fn run(arguments: &Add, common: &Common) -> Result<Outcome> {
    let directory = &arguments.directory;
    if !directory.join("traces").is_dir() {
        bail!("{}: expected a directory of tables, as `convert -o DIR` writes it", directory.display());
    }
    let config = Config::read(common, &arguments.symbols)?;
    let mut symbolizer = naming::symbolizer(&config, common, false)?;
    let added = stackhound_columns::add_names(directory, &mut symbolizer).context("cannot add names")?;
    if !common.quiet {
        at_end(format_args!(
            "{}: {} of {} have names",
            counted(added.traces, "trace", "traces"),
            grouped(added.named),
            counted(added.addresses, "address", "addresses")
        ));
    }
    Ok(Outcome::default())
}
