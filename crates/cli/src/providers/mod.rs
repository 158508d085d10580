//! `stackhound providers`: the known providers and their events.

mod json;
mod names;
mod show;
mod sources;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use globset::GlobBuilder;
use stackhound::Guid;

use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;
use crate::output::{counted, message};
use sources::ListedProvider;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Show only this provider, by name or GUID (* and ? match any text); a single one is shown in
    /// full
    #[arg(value_name = "NAME")]
    pub provider: Option<String>,
    /// Show the providers in this manifest (.man, .xml), image (.dll, .exe, .sys) or trace (.etl)
    #[arg(long, value_name = "FILE")]
    pub manifest: Vec<PathBuf>,
    /// Show messages in this language, such as de-DE, if there are several
    #[arg(long, value_name = "CULTURE")]
    pub culture: Option<String>,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<ListFormat>,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, ListFormat::Table)?;
    let culture = arguments.culture.as_deref();
    let (mut known, damaged) = if arguments.manifest.is_empty() {
        (sources::built_in_and_of_the_system(), false)
    } else {
        sources::of_files(&arguments.manifest, culture, common)?
    };
    if let Some(wanted) = &arguments.provider {
        let is_wanted = matcher(wanted)?;
        known.retain(|known| is_wanted(known));
        if known.is_empty() {
            if arguments.manifest.is_empty() {
                bail!("provider {wanted} is unknown; use --manifest FILE to read further providers");
            }
            bail!("provider {wanted} is not in these files");
        }
    }
    let whole = arguments.provider.is_some() && is_one(&known);
    if whole {
        known.iter_mut().for_each(ListedProvider::complete);
    }
    let mut sink = arguments.output.rows(format)?;
    match (format, whole) {
        (ListFormat::Json, true) => sink.json(&known.iter().map(json::provider).collect::<Vec<_>>())?,
        (ListFormat::Json, false) => sink.json(&known.iter().map(json::summary).collect::<Vec<_>>())?,
        (ListFormat::Table, true) => known.iter().try_for_each(|known| show::provider(&mut sink, known))?,
        (ListFormat::Table, false) => show::list(&mut sink, &known)?,
    }
    sink.finish()?;
    if !common.quiet {
        let events: usize = known.iter().map(|known| known.description.events.len()).sum();
        let skipped: usize = known.iter().map(|known| known.description.skipped).sum();
        let skipped = match skipped {
            0 => String::new(),
            skipped => format!(", {} not decoded", counted(skipped as u64, "event", "events")),
        };
        let providers = counted(known.len() as u64, "provider", "providers");
        message(format_args!("{providers}, {}{skipped}", counted(events as u64, "event", "events")));
    }
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Builds a predicate for a name with wildcards, or for a GUID.
fn matcher(wanted: &str) -> Result<impl Fn(&ListedProvider) -> bool> {
    let guid: Option<Guid> = wanted.parse().ok();
    let name = GlobBuilder::new(wanted).case_insensitive(true).build();
    let name = name.map_err(|error| anyhow!("NAME: `{wanted}` is not a valid pattern: {}", error.kind()))?;
    let name = name.compile_matcher();
    Ok(move |known: &ListedProvider| match guid {
        Some(guid) => known.description.guid == guid,
        None => name.is_match(&*known.description.name),
    })
}

/// Whether all descriptions are of one provider, which several files can describe.
fn is_one(known: &[ListedProvider]) -> bool {
    known.windows(2).all(|pair| pair[0].description.guid == pair[1].description.guid)
}
