//! `summary`: the first answers about a trace on one screen, and one line for each of several files.

mod calls;
mod table;
mod trace;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::trace::Summarized;
use crate::config::SymbolArguments;
use crate::hunt::policy::HuntSetup;
use crate::inputs::{self, Grouping};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::terminal_width;
use crate::recognition;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Read these traces (.etl), archives or directories, or one exact trace (.calls)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable text
    Table,
    /// One JSON array with an object for each capture
    Json,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.output.format(arguments.format, Format::Table)?;
    if let [file] = &arguments.files[..]
        && recognition::holds_call_trees(file)
    {
        return calls::run(file, (arguments, format), common);
    }
    // Several files are shown one by one, unless it is requested that they are merged.
    let is_single = matches!(&arguments.files[..], [file] if !file.is_dir());
    let grouping = Grouping { separate: !is_single && !arguments.grouping.merge, ..arguments.grouping };
    let captures = inputs::captures(&arguments.files, grouping, common)?;
    let setup = HuntSetup::read(&arguments.symbols, common)?;
    let mut damaged = false;
    let mut summarized: Vec<Summarized> = Vec::new();
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        let summary = trace::summarize(capture, arguments, &setup, common)?;
        damaged |= summary.is_damaged();
        summarized.push(summary);
    }
    let mut sink = match captures[..] {
        [_] => arguments.output.sentences(format)?,
        _ => arguments.output.rows(format)?,
    };
    match (format, &captures[..]) {
        (Format::Json, _) => {
            let all = captures.iter().zip(&summarized);
            let all: Vec<_> = all.map(|(capture, summary)| summary.document(capture)).collect();
            sink.json(&all)?;
        }
        (Format::Table, [one]) => {
            let width = arguments.output.output.is_none().then(terminal_width).flatten();
            table::screen(&mut sink, one, &summarized[0], width)?;
        }
        (Format::Table, many) => table::lines(&mut sink, many, &summarized)?,
    }
    sink.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}
