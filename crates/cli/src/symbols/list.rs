//! `stackhound symbols list`: the modules of recordings.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use stackhound::symbols::Failure;
use stackhound::symbols::store::{Found, Store};
use stackhound_export::escape::line;

use super::modules::{self, Arguments, Module};
use crate::config::Config;
use crate::naming;
use crate::options::{Common, ListFormat};
use crate::outcome::Outcome;
use crate::output::Sink;

#[derive(Debug, Serialize)]
struct Row {
    module: String,
    mapped: u64,
    image: File,
    pdb: File,
}

/// What is known of a file. Nulls where the recording does not say.
#[derive(Debug, Serialize)]
struct File {
    name: Option<String>,
    /// Its folder in a symbol store.
    key: Option<String>,
    path: Option<String>,
    /// Why there is no path.
    cause: Option<&'static str>,
}

impl File {
    fn new(name: Option<&str>, key: Option<String>, file: &Result<Found, Failure>) -> File {
        File {
            name: name.map(str::to_owned),
            key,
            path: file.as_ref().ok().map(|file| file.path.display().to_string()),
            cause: file.as_ref().err().map(|failure| failure.cause.name()),
        }
    }
}

impl Row {
    fn new(module: &Module) -> Row {
        let identity = &module.identity;
        let image_key = identity.image.map(|image| image.store_key());
        let pdb = identity.pdb.as_ref();
        Row {
            module: identity.name.clone(),
            mapped: module.mapped,
            image: File::new(Some(&identity.name), image_key, &module.files.image),
            pdb: File::new(pdb.map(|pdb| &*pdb.name), pdb.map(|pdb| pdb.store_key()), &module.files.pdb),
        }
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let config = Config::read(common, &arguments.places)?;
    let options = naming::store_options(&config, common)?;
    let online = options.online;
    let (modules, damaged) = modules::read(&arguments.inputs, common)?;
    let modules = modules::look(modules, &Store::new(options), online, common);
    let rows: Vec<Row> = modules.iter().map(Row::new).collect();
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match arguments.format {
        ListFormat::Json => sink.json(&rows)?,
        ListFormat::Table => table(&mut sink, &rows)?,
    }
    sink.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

fn table(out: &mut impl Write, rows: &[Row]) -> Result<()> {
    let width = rows.iter().map(|row| row.module.chars().count()).max().unwrap_or(0).clamp(6, 40);
    line(
        out,
        format_args!("{:<width$}  {:<17}  {:<14}  {:<41}  PDB FILE", "MODULE", "IMAGE", "IMAGE FILE", "PDB"),
    )?;
    for row in rows {
        let key = |file: &File| file.key.clone().unwrap_or_else(|| "-".to_owned());
        let state = |file: &File| file.cause.unwrap_or("found");
        line(
            out,
            format_args!(
                "{:<width$}  {:<17}  {:<14}  {:<41}  {}",
                if row.module.is_empty() { "-" } else { &row.module },
                key(&row.image),
                state(&row.image),
                key(&row.pdb),
                state(&row.pdb)
            ),
        )?;
    }
    Ok(())
}
