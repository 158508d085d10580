//! `convert`: writes traces in another form, which the name of the output selects.
//!
//! Has the arguments that all forms share. Each form is a module of its own.

mod cut;
mod packets;
mod tables;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::Pipeline;
use stackhound::trace::OpenTrace;

use crate::filter::{EventFilter, Filters};
use crate::inputs::{self, Inputs};
use crate::naming::{self, Naming, Use};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::grouped;
use crate::reading::Reading;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Write to this file, which is created when its content is complete: .etl for a smaller trace,
    /// .pcapng for its network packets; or into this directory, as tables in Parquet files
    #[arg(short, long, required = true, value_name = "OUTPUT")]
    pub output: PathBuf,
    /// Replace names of users and computers in the smaller trace by pseudonyms of the same length
    #[arg(long)]
    pub pseudonymize: bool,
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
    let extension =
        path.extension().filter(|_| !path.is_dir()).map(|extension| extension.to_ascii_lowercase());
    let extension = extension.as_ref().map(|extension| extension.to_str().unwrap_or_default());
    if arguments.pseudonymize && extension != Some("etl") {
        bail!("--pseudonymize changes smaller traces; use -o FILE.etl");
    }
    if extension.is_some() && arguments.tables.are_stated() {
        bail!("--host, --shard and --again apply to tables; use -o DIR");
    }
    match extension {
        None => tables::run(arguments, common),
        Some("etl") => cut::run(arguments, common),
        Some("pcapng") => packets::run(arguments, common),
        Some(_) => bail!(
            "{}: cannot derive the form from the file name; use one of the extensions .etl, .pcapng, or none for tables",
            path.display()
        ),
    }
}

/// Opens the files of one capture, and refuses to replace one of them by the output. Also reports an
/// error in the filter, before any event is read.
fn one_capture(arguments: &Arguments, common: &Common) -> Result<OpenTrace> {
    EventFilter::parse(&arguments.filters)?;
    let Inputs { files, grouping } = &arguments.inputs;
    let output = arguments.output.canonicalize().ok();
    if files.iter().any(|file| output.is_some() && file.canonicalize().ok() == output) {
        bail!("{}: expected another file than the input", arguments.output.display());
    }
    let mut captures = inputs::captures(files, *grouping, common)?;
    match captures.len() {
        1 => Ok(captures.remove(0).trace),
        _ => Err(inputs::refusal(&stackhound::trace::several_captures(&captures))),
    }
}

/// A further part of a closing line: the counts that are not zero.
fn others(label: &str, counts: &[(u64, &str)]) -> String {
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    let counted: Vec<String> = counted.map(|(count, kind)| format!("{} {kind}", grouped(*count))).collect();
    if counted.is_empty() { String::new() } else { format!("; {label}: {}", counted.join(", ")) }
}

/// A pipeline that reads the trace, with names of functions if the filter uses them.
fn pipeline<'t>(
    arguments: &Arguments,
    common: &Common,
    trace: &'t OpenTrace,
    filter: &EventFilter,
) -> Result<Pipeline<'t>> {
    let pipeline = arguments.reading.pipeline(trace)?;
    if !filter.names_functions() {
        return Ok(pipeline);
    }
    Ok(pipeline.with(naming::enrichment(&arguments.naming, common, Use::Events, Some(filter))?))
}
