//! `stackhound providers`: which providers are known, and what they can write.

mod json;
mod names;
mod show;
mod sources;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use globset::GlobBuilder;
use stackhound::Guid;

use crate::options::{Common, ListFormat, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, grouped, message};
use sources::ListedProvider;

/// Arguments of `providers`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Only this provider, by name or GUID (* and ? stand for any text); of a single one, everything is shown
    #[arg(value_name = "NAME")]
    pub provider: Option<String>,
    /// Those of this file: a manifest (.man, .xml), an image (.dll, .exe, .sys) or a recording
    #[arg(long, value_name = "FILE")]
    pub manifest: Vec<PathBuf>,
    /// Texts in this language, such as de-DE, where there are several
    #[arg(long, value_name = "CULTURE")]
    pub culture: Option<String>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: ListFormat,
    #[command(flatten)]
    pub output: Output,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
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
            bail!(
                "no provider {wanted} is known{}",
                if arguments.manifest.is_empty() {
                    "; --manifest FILE tells more"
                } else {
                    " to these files"
                }
            );
        }
    }
    let whole = arguments.provider.is_some() && is_one(&known);
    if whole {
        known.iter_mut().for_each(ListedProvider::complete);
    }
    let mut sink = Sink::open(arguments.output.output.as_deref())?;
    match (arguments.format, whole) {
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
            skipped => format!(", {} events not understood", grouped(skipped as u64)),
        };
        let number = |number: usize, what: &str| {
            format!("{} {what}{}", grouped(number as u64), if number == 1 { "" } else { "s" })
        };
        message(format_args!("{}, {}{skipped}", number(known.len(), "provider"), number(events, "event")));
    }
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Whether a provider is the one that is asked for.
fn matcher(wanted: &str) -> Result<impl Fn(&ListedProvider) -> bool> {
    let guid: Option<Guid> = wanted.parse().ok();
    let name = GlobBuilder::new(wanted).case_insensitive(true).build()?.compile_matcher();
    Ok(move |known: &ListedProvider| match guid {
        Some(guid) => known.description.guid == guid,
        None => name.is_match(&*known.description.name),
    })
}

/// Whether all are one provider, which several files may describe.
fn is_one(known: &[ListedProvider]) -> bool {
    known.windows(2).all(|pair| pair[0].description.guid == pair[1].description.guid)
}
