//! `convert`: writes traces in another form, which the name of the output selects.
//!
//! Has the arguments that all forms share. Each form is a module of its own.

mod tables;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::filter::Filters;
use crate::inputs::Inputs;
use crate::naming::Naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::reading::Reading;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Write into this directory, as tables in Parquet files
    #[arg(short, long, required = true, value_name = "DIR")]
    pub output: PathBuf,
    #[command(flatten)]
    pub tables: tables::TableArguments,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let path = &arguments.output;
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.filter(|_| !path.is_dir()) {
        None => tables::run(arguments, common),
        Some(extension) => {
            bail!("{}: expected a directory for tables, found the extension .{extension}", path.display())
        }
    }
}
