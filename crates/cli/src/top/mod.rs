//! `top`: what costs time in a trace, by process, thread, module, function or stack.

pub mod butterfly;
mod chain;
pub mod costs;
pub mod cpu;
mod cut;
pub mod table;
mod wait;

use std::io::{self, Write};

use anyhow::{Result, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use serde::Serialize;
use stackhound::analysis::rows::{By, Row};
use stackhound::analysis::{self, Window};
use stackhound::profile::{Full, Grouping, Profile};
use stackhound::trace::{Capture, OpenTrace, TraceTime};
use stackhound::{Clock, EventView, Naming, RawTime, TraceState};
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::info::Capture as CaptureInfo;
use stackhound_export::json::top as json;
use stackhound_export::json::value::Time;

use self::costs::Measurement;
use self::cut::Cut;
use crate::filter::{self, EventFilter, Filters};
use crate::info::capture_info;
use crate::inputs::{self, Inputs};
use crate::naming;
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::Sink;
use crate::patterns::Patterns;
use crate::progress::Progress;
use crate::reading::{Reading, or_stop};

#[derive(Debug, Subcommand)]
pub enum Times {
    /// Show where processor time was spent, by profile samples and by context switches
    Cpu(cpu::Arguments),
    /// Show where threads waited, why, and who ended the waits
    Wait(chain::ChainArguments),
    /// Show how long threads were ready to run and did not run
    Ready(wait::Arguments),
}

/// What to measure: time of processors and threads, or what another measurement counts.
#[derive(Debug)]
pub enum Verb {
    Times(Times),
    Costs(&'static Measurement, costs::Arguments),
}

impl FromArgMatches for Verb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Verb, clap::Error> {
        let measured =
            matches.subcommand().and_then(|(name, given)| Some((Measurement::named(name)?, given)));
        match measured {
            Some((measurement, given)) => {
                Ok(Verb::Costs(measurement, costs::Arguments::from_arg_matches(given)?))
            }
            None => Ok(Verb::Times(Times::from_arg_matches(matches)?)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Verb::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Verb {
    fn augment_subcommands(command: Command) -> Command {
        Times::augment_subcommands(command).subcommands(costs::MEASUREMENTS.iter().map(Measurement::command))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Verb::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Times::has_subcommand(name) || Measurement::named(name).is_some()
    }
}

/// The options of all measurements.
#[derive(Args, Debug)]
pub struct Shared {
    #[command(flatten)]
    inputs: Inputs,
    /// Show at most N rows
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show all rows
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Show functions without a name by their offset in the module, not as one row of the module
    #[arg(long)]
    offsets: bool,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    patterns: Patterns,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    naming: naming::Naming,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// CSV with a header line; times in nanoseconds
    Csv,
    /// One JSON object; times in nanoseconds
    Json,
}

/// What rows are about: those of all measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dimension {
    /// Processes
    Process,
    /// Threads
    Thread,
    /// Modules of the frames of stacks
    Module,
    /// Functions of the frames of stacks
    Function,
    /// Functions with their source lines, where PDBs have them
    Line,
    /// Stacks
    Stack,
    /// Windows services, such as those of svchost.exe
    Service,
}

impl Dimension {
    fn name(self) -> &'static str {
        match self {
            Dimension::Process => "process",
            Dimension::Thread => "thread",
            Dimension::Module => "module",
            Dimension::Function => "function",
            Dimension::Line => "line",
            Dimension::Stack => "stack",
            Dimension::Service => "service",
        }
    }

    /// The rows of an analysis.
    fn rows(self, shared: &Shared) -> By {
        match self {
            Dimension::Process => By::Process,
            Dimension::Thread => By::Thread,
            Dimension::Module => By::Frames(Grouping::Module),
            Dimension::Function => By::Frames(shared.unnamed()),
            Dimension::Line => By::Frames(Grouping::Line),
            Dimension::Stack => By::Stack,
            Dimension::Service => By::Service,
        }
    }

    /// The title of the column.
    fn title(self) -> &'static str {
        match self {
            Dimension::Process => "PROCESS",
            Dimension::Thread => "THREAD",
            Dimension::Module => "MODULE",
            Dimension::Function => "FUNCTION",
            Dimension::Line => "LINE",
            Dimension::Stack => "STACK",
            Dimension::Service => "SERVICE",
        }
    }

    /// Whether rows overlap, so that each has a total in addition to its own time.
    fn has_totals(self) -> bool {
        matches!(self, Dimension::Module | Dimension::Function | Dimension::Line)
    }
}

impl Shared {
    fn format(&self) -> Result<Format> {
        self.output.format(self.format, Format::Table)
    }

    /// Whether events are selected by more than their time.
    fn is_filtered(&self) -> bool {
        !filter::texts(&self.filters).is_empty()
    }

    /// How frames without the name of a function are named.
    fn unnamed(&self) -> Grouping {
        if self.offsets { Grouping::Offset } else { Grouping::Function }
    }

    /// The rows that are shown.
    fn first<T>(&self, mut rows: Vec<Row<T>>) -> Vec<Row<T>> {
        if !self.all {
            rows.truncate(self.top);
        }
        rows
    }
}

pub fn run(verb: &Verb, common: &Common) -> Result<Outcome> {
    match verb {
        Verb::Times(Times::Cpu(arguments)) => cpu::run(arguments, common),
        Verb::Times(Times::Wait(arguments)) => chain::run(arguments, common),
        Verb::Times(Times::Ready(arguments)) => wait::run(arguments, common, wait::READY),
        Verb::Costs(measurement, arguments) => costs::run(arguments, common, measurement),
    }
}

/// The captures of the input, and what was found in each.
struct Read<R> {
    captures: Vec<Capture>,
    found: Vec<R>,
    /// What was cut away from each.
    cuts: Vec<Cut>,
    /// Whether a byte of them is damaged.
    damaged: bool,
}

/// Reads all captures, each with an analysis of its own. `needs` is for [`Cut::of`].
fn read<A, R>(
    shared: &Shared,
    needs: fn(u16) -> bool,
    common: &Common,
    start: impl Fn(&OpenTrace, Window) -> A,
    observe: impl Fn(&mut A, &EventView<'_>, &EventFilter) -> Result<(), Full>,
    finish: impl Fn(A, &TraceState, Option<&mut Naming>) -> R,
) -> Result<Read<R>> {
    shared.format()?;
    let captures = inputs::captures(&shared.inputs.files, shared.inputs.grouping, common)?;
    EventFilter::parse(&shared.filters)?;
    let (mut damaged, mut found, mut cuts) = (false, Vec::new(), Vec::new());
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        let trace = &capture.trace;
        cuts.push(Cut::of(trace, needs));
        let filter = EventFilter::new(&shared.filters, trace)?;
        let enrichment = naming::enrichment(&shared.naming, common, naming::Use::Summary, Some(&filter))?;
        let mut pipeline = shared.reading.pipeline(trace)?.with(enrichment);
        let mut progress = Progress::of(common, trace);
        let mut analysis = start(trace, filter.window());
        let mut failure = None;
        let outcome = pipeline.run(|view| {
            progress.tick_at(view);
            // What ends after the selected time can have begun in it.
            or_stop(observe(&mut analysis, view, &filter), &mut failure)
        });
        if let Some(full) = failure {
            return Err(full.into());
        }
        let (known, _, naming) = pipeline.parts();
        found.push(finish(analysis, known, naming));
        naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
        damaged |= !outcome.trace.damage.is_empty();
    }
    Ok(Read { captures, found, cuts, damaged })
}

impl<R> Read<R> {
    /// Writes the results in the selected format. In JSON, one capture is a document, and several are
    /// in the document that `together` makes of them.
    fn write<'a, D: Serialize, A: Serialize>(
        &'a self,
        shared: &Shared,
        table: impl Fn(&mut Sink, &R) -> Result<()>,
        csv: impl FnOnce(&mut Sink, &[R]) -> Result<()>,
        document: impl Fn(&'a R, Vec<json::Cut>) -> D,
        together: impl FnOnce(Vec<(CaptureInfo<'a>, D)>) -> A,
    ) -> Result<Outcome> {
        let format = shared.format()?;
        let mut sink = shared.output.tables(format)?;
        match (format, &*self.found) {
            (Format::Table, _) => self.tables(&mut sink, table)?,
            (Format::Csv, found) => {
                self.cuts.iter().for_each(Cut::report);
                csv(&mut sink, found)?;
            }
            (Format::Json, [one]) => sink.json(&document(one, self.cuts[0].document()))?,
            (Format::Json, several) => {
                let documents =
                    several.iter().zip(&self.cuts).map(|(found, cut)| document(found, cut.document()));
                let each = self.captures.iter().map(capture_info).zip(documents);
                sink.json(&together(each.collect()))?;
            }
        }
        sink.finish()?;
        Ok(Outcome { damaged: self.damaged, ..Outcome::default() })
    }

    /// Writes the table of each capture.
    fn tables(&self, out: &mut Sink, table: impl Fn(&mut Sink, &R) -> Result<()>) -> Result<()> {
        for (index, (capture, (found, cut))) in
            self.captures.iter().zip(self.found.iter().zip(&self.cuts)).enumerate()
        {
            if self.captures.len() > 1 {
                if index > 0 {
                    writeln!(out)?;
                }
                line(out, format_args!("capture {}: {capture}", index + 1))?;
            }
            cut.write(out)?;
            table(out, found)?;
        }
        Ok(())
    }
}

/// Checks that a trace states what rows by service are about.
fn check_services<'p>(mut profiles: impl Iterator<Item = &'p Profile>) -> Result<()> {
    if profiles.any(Profile::lists_services) {
        return Ok(());
    }
    bail!(
        "the trace does not list Windows services: it has no event SystemConfig/Services, which Windows writes into \
         kernel sessions when they stop"
    )
}

/// Writes the names of the columns: what rows are about, their ids, and `columns`. Several captures
/// are numbered.
fn csv_header<'a>(
    out: &mut impl Write,
    by: &'a str,
    columns: impl IntoIterator<Item = &'a str>,
    captures: usize,
) -> io::Result<()> {
    let number = (captures > 1).then_some("capture");
    row(out, number.into_iter().chain([by, "pid", "tid"]).chain(columns))
}

/// Writes a row; `cells` are those after its ids.
fn csv_row<T>(
    out: &mut impl Write,
    of: &Row<T>,
    cells: impl IntoIterator<Item = String>,
    (index, captures): (usize, usize),
) -> io::Result<()> {
    let number = (captures > 1).then(|| (index + 1).to_string());
    let ids = [of.pid, of.tid].map(|id| optional(id.map(u64::from)));
    row(out, number.into_iter().chain([cell(&of.names.join("<"))]).chain(ids).chain(cells))
}

/// A part of a trace as JSON.
pub fn window(clock: &Clock, (from, to): (TraceTime, TraceTime)) -> json::Window {
    let utc = |time: TraceTime| Time(clock.to_file_time(RawTime(time.0)));
    json::Window { from: utc(from), to: utc(to), duration: analysis::nanos(clock, to.ticks_since(from)) }
}

fn optional(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
