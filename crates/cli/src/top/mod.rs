//! `top`: what costs time in a trace, by process, thread, module, function or stack.

pub mod butterfly;
mod chain;
pub mod costs;
pub mod cpu;
mod cut;
pub mod table;
mod wait;

use std::io::Write;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use serde::Serialize;
use stackhound::analysis::rows::{Applied, By, Row};
use stackhound::analysis::{self, Window};
use stackhound::profile::{self, Full, Grouping, Profile, Sums};
use stackhound::trace::{Capture, OpenTrace, TraceTime};
use stackhound::{Clock, EventView, Naming, RawTime, TraceState};
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::info::{OfCapture, OfCaptures};
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
}

/// The options of a measurement, and what its rows are about.
#[derive(Clone, Copy)]
struct Request<'a> {
    shared: &'a Shared,
    /// The value of `--by`.
    by: &'a str,
    /// `None` for a dimension of the measurement's own.
    dimension: Option<Dimension>,
}

impl<'a> Request<'a> {
    /// Rows by this dimension, for a measurement with dimensions of its own.
    fn new(shared: &'a Shared, by: &'a str, own: &[&str]) -> Request<'a> {
        Request { shared, by, dimension: dimension(by, own) }
    }

    /// The title of the column.
    fn title(self) -> String {
        title(self.by)
    }

    /// Whether rows overlap, so that each has a total in addition to its own time.
    fn has_totals(self) -> bool {
        matches!(self.dimension, Some(Dimension::Module | Dimension::Function | Dimension::Line))
    }

    /// A row as JSON.
    fn row<T, V>(self, row: &Row<T>, values: V) -> json::Row<'_, V> {
        row_document(row, self.dimension == Some(Dimension::Stack), values)
    }
}

/// The dimension with this name, if all measurements have it, and this one has none of its own.
fn dimension(name: &str, own: &[&str]) -> Option<Dimension> {
    Dimension::from_str(name, false).ok().filter(|_| !own.contains(&name))
}

/// The values of `--by`: the dimensions of all measurements, and those of one with their help.
fn subjects(own: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    let shared = Dimension::value_variants().iter().filter_map(Dimension::to_possible_value);
    let own = own.iter().map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(shared.chain(own))
}

fn spaced(name: &str) -> String {
    name.replace(['_', '-'], " ")
}

fn title(name: &str) -> String {
    spaced(name).to_uppercase()
}

impl Shared {
    fn format(&self) -> Result<Format> {
        self.output.format(self.format, Format::Table)
    }

    /// Whether events are selected by more than their time.
    fn is_filtered(&self) -> bool {
        !filter::texts(&self.filters).is_empty()
    }

    /// Whether rows are about a part of what was observed.
    fn selects(&self) -> bool {
        self.is_filtered() || self.patterns.selects()
    }

    /// How frames without the name of a function are named.
    fn unnamed(&self) -> Grouping {
        if self.offsets { Grouping::Offset } else { Grouping::Function }
    }

    /// The rows that are shown.
    fn first<R>(&self, mut rows: Vec<R>) -> Vec<R> {
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

/// What was found in a capture.
struct Found<R, T = Sums> {
    report: R,
    rows: Vec<Row<T>>,
    applied: Option<Applied<T>>,
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

/// Reads all captures, each with an analysis of its own. `needs` is for [`Cut::of`]; `finish` gets the
/// patterns of frames.
fn read<A, R>(
    shared: &Shared,
    needs: fn(u16) -> bool,
    common: &Common,
    start: impl Fn(&OpenTrace, Window) -> A,
    observe: impl Fn(&mut A, &EventView<'_>, &EventFilter) -> Result<(), Full>,
    finish: impl Fn(A, &TraceState, Option<&mut Naming>, Option<&profile::Patterns>) -> R,
) -> Result<Read<R>> {
    let patterns = shared.patterns.compile()?;
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
        found.push(finish(analysis, known, naming, patterns.as_ref()));
        naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
        damaged |= !outcome.trace.damage.is_empty();
    }
    Ok(Read { captures, found, cuts, damaged })
}

impl<R> Read<R> {
    /// Writes the results in the selected format.
    fn write<'a, D: Serialize>(
        &'a self,
        shared: &Shared,
        table: impl Fn(&mut Sink, &R) -> Result<()>,
        csv: impl FnOnce(&mut Sink, &[R]) -> Result<()>,
        document: impl Fn(&'a R, Vec<json::Cut>) -> D,
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
                let captures = self.captures.iter().zip(several.iter().zip(&self.cuts));
                let captures = captures.map(|(capture, (found, cut))| OfCapture {
                    capture: capture_info(capture),
                    document: document(found, cut.document()),
                });
                sink.json(&OfCaptures { captures: captures.collect() })?;
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
fn check_services<'p>(request: Request<'_>, mut profiles: impl Iterator<Item = &'p Profile>) -> Result<()> {
    if request.dimension != Some(Dimension::Service) || profiles.any(Profile::lists_services) {
        return Ok(());
    }
    bail!(
        "the trace does not list Windows services: it has no event SystemConfig/Services, which Windows writes into \
         kernel sessions when they stop"
    )
}

/// Writes the rows of all captures: what they are about, their ids, and `cells` in `columns`. Several
/// captures are numbered.
fn csv<R, T, C: IntoIterator<Item = String>>(
    out: &mut impl Write,
    request: Request<'_>,
    columns: &[impl AsRef<str>],
    captures: &[Found<R, T>],
    cells: impl Fn(&R, &Row<T>) -> C,
) -> Result<()> {
    let number = (captures.len() > 1).then_some("capture");
    let columns = columns.iter().map(AsRef::as_ref);
    row(out, number.into_iter().chain([request.by, "pid", "tid"]).chain(columns))?;
    for (index, found) in captures.iter().enumerate() {
        for of in &found.rows {
            let number = number.map(|_| (index + 1).to_string());
            let ids = [of.pid, of.tid].map(|id| optional(id.map(u64::from)));
            let cells = ids.into_iter().chain(cells(&found.report, of));
            row(out, number.into_iter().chain([cell(&of.names.join("<"))]).chain(cells))?;
        }
    }
    Ok(())
}

/// A row as JSON.
pub fn row_document<T, V>(of: &Row<T>, is_stack: bool, values: V) -> json::Row<'_, V> {
    json::Row {
        name: (!is_stack).then(|| &*of.names[0]),
        stack: is_stack.then_some(&*of.names),
        pid: of.pid,
        tid: of.tid,
        values,
    }
}

/// A part of a trace as JSON.
pub fn window(clock: &Clock, (from, to): (TraceTime, TraceTime)) -> json::Window {
    let utc = |time: TraceTime| Time(clock.to_file_time(RawTime(time.0)));
    json::Window { from: utc(from), to: utc(to), duration: analysis::nanos(clock, to.ticks_since(from)) }
}

fn optional(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
