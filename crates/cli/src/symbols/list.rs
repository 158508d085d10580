//! `stackhound symbols list`: the modules of traces.

use std::io::Write;

use anyhow::Result;
use stackhound::symbols::Failure;
use stackhound::symbols::store::{Found, Store};
use stackhound_export::escape::line;
use stackhound_export::json::symbols::{Module as Row, ModuleFile};

use super::modules::{self, Arguments, Module};
use crate::config::Config;
use crate::naming;
use crate::options::{Common, ListFormat};
use crate::outcome::Outcome;

fn file(name: Option<&str>, key: Option<String>, file: &Result<Found, Failure>) -> ModuleFile {
    ModuleFile {
        name: name.map(str::to_owned),
        key,
        path: file.as_ref().ok().map(|file| file.path.display().to_string()),
        cause: file.as_ref().err().map(|failure| failure.cause.name()),
    }
}

fn row(module: &Module) -> Row {
    let identity = &module.identity;
    let image_key = identity.image.map(|image| image.store_key());
    let pdb = identity.pdb.as_ref();
    Row {
        module: identity.name.clone(),
        mapped: module.mapped,
        image: file(Some(&identity.name), image_key, &module.files.image),
        pdb: file(pdb.map(|pdb| &*pdb.name), pdb.map(|pdb| pdb.store_key()), &module.files.pdb),
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let config = Config::read(common, &arguments.symbols)?;
    let options = naming::store_options(&config, common)?;
    let online = options.online;
    let (modules, damaged) = modules::read(&arguments.inputs, common)?;
    let modules = modules::find(modules, &Store::new(options), online, common);
    let rows: Vec<Row> = modules.iter().map(row).collect();
    let mut sink = arguments.output.rows(format)?;
    match format {
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
        let key = |file: &ModuleFile| file.key.clone().unwrap_or_else(|| "-".to_owned());
        let state = |file: &ModuleFile| file.cause.unwrap_or("found");
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
