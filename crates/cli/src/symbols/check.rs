//! `stackhound symbols check` and `fetch`: the missing files of the modules of traces, by cause,
//! with hints.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::symbols::store::{Store, StoreOptions};
use stackhound::symbols::{Cause, Failure, FileKind};
use stackhound_export::escape::line;
use stackhound_export::json::symbols::{
    MissingFile as Missing, MissingGroup as Group, SymbolReport as Report,
};

use super::modules::{self, Arguments, Module};
use crate::config::Config;
use crate::naming;
use crate::options::{Common, ListFormat};
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct Fetch {
    #[command(flatten)]
    pub check: Arguments,
    /// Query servers again for files that they did not have before
    #[arg(long)]
    pub retry: bool,
}

fn report(modules: &[Module], store: &Store) -> Report {
    let mut groups: BTreeMap<(FileKind, Cause), Vec<Missing>> = BTreeMap::new();
    for module in modules {
        let failures =
            [&module.files.pdb, &module.files.image].into_iter().filter_map(|file| file.as_ref().err());
        for Failure { file, cause, detail } in failures.cloned() {
            let missing = Missing { module: module.identity.name.clone(), detail };
            groups.entry((file, cause)).or_default().push(missing);
        }
    }
    let mut missing: Vec<Group> = groups
        .into_iter()
        .map(|((file, cause), modules)| Group {
            file: file.name(),
            cause: cause.name(),
            description: cause.describe(),
            hint: cause.hint(),
            modules,
        })
        .collect();
    missing.sort_by_key(|group| std::cmp::Reverse(group.modules.len()));
    let (downloaded_files, downloaded_bytes) = store.downloads();
    Report {
        modules: modules.len(),
        with_pdb: modules.iter().filter(|module| module.files.pdb.is_ok()).count(),
        with_image: modules.iter().filter(|module| module.files.image.is_ok()).count(),
        downloaded_files,
        downloaded_bytes,
        missing,
    }
}

fn table(report: &Report, out: &mut impl Write, verbose: bool) -> Result<()> {
    let count = |count: usize| grouped(count as u64);
    let modules = counted(report.modules as u64, "module", "modules");
    let (pdb, image) = (count(report.with_pdb), count(report.with_image));
    line(out, format_args!("{modules}: {pdb} with their PDB, {image} with their image"))?;
    if report.downloaded_files > 0 {
        let files = counted(report.downloaded_files, "file", "files");
        let bytes = counted(report.downloaded_bytes, "byte", "bytes");
        line(out, format_args!("downloaded: {files}, {bytes}"))?;
    }
    for group in &report.missing {
        writeln!(out)?;
        line(
            out,
            format_args!("{:>6} {:<5}  {}", count(group.modules.len()), group.file, group.description),
        )?;
        line(out, format_args!("              {}", group.hint))?;
        if verbose {
            for missing in &group.modules {
                line(out, format_args!("              {}  {}", missing.module, missing.detail))?;
            }
            continue;
        }
        let mut names: Vec<&str> = group.modules.iter().map(|missing| &*missing.module).take(NAMES).collect();
        let rest = group.modules.len() - names.len();
        let rest = if rest > 0 { format!("and {} more", count(rest)) } else { String::new() };
        names.extend((!rest.is_empty()).then_some(&*rest));
        line(out, format_args!("              {}", names.join(", ")))?;
    }
    Ok(())
}

/// The limit of listed modules per group without `--verbose`.
const NAMES: usize = 5;

pub fn check(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let config = Config::read(common, &arguments.symbols)?;
    Ok(run(arguments, naming::store_options(&config, common)?, common)?.1)
}

pub fn fetch(arguments: &Fetch, common: &Common) -> Result<Outcome> {
    let config = Config::read(common, &arguments.check.symbols)?;
    if !config.online.value {
        bail!("fetching symbols needs --online");
    }
    let options = StoreOptions { retry: arguments.retry, ..naming::store_options(&config, common)? };
    let (report, outcome) = run(&arguments.check, options, common)?;
    if report.modules > 0 && report.with_pdb + report.with_image == 0 {
        bail!(
            "expected files of {}, found none in the store and on the servers",
            counted(report.modules as u64, "module", "modules")
        );
    }
    Ok(outcome)
}

fn run(arguments: &Arguments, options: StoreOptions, common: &Common) -> Result<(Report, Outcome)> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let online = options.online;
    let (modules, damaged) = modules::read(&arguments.inputs, common)?;
    let store = Store::new(options);
    let report = report(&modules::find(modules, &store, online, common), &store);
    let mut sink = arguments.output.sentences(format)?;
    match format {
        ListFormat::Json => sink.json(&report)?,
        ListFormat::Table => table(&report, &mut sink, common.verbose)?,
    }
    sink.finish()?;
    Ok((report, Outcome { damaged, ..Outcome::default() }))
}
