//! `diff`: what is new, gone or changed beyond noise between two traces.

mod findings;
mod picture;
mod read;
mod write;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use stackhound::analysis::diff::sides::{self, Names, Samples};
use stackhound::analysis::diff::{Comparison, Normalization, Side, compare};
use stackhound::profile::Grouping;
use strum::IntoStaticStr;

use self::findings::Compared as ComparedFindings;
use self::read::Capture;
use crate::filter::Filters;
use crate::hunt::policy::HuntSetup;
use crate::inputs;
use crate::naming::Naming;
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::message;
use crate::reading::Reading;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Compare with this trace (.etl), or folder with one capture: A
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Show how this trace differs from the first one: B
    #[arg(value_name = "B")]
    pub b: PathBuf,
    #[command(flatten)]
    pub grouping: inputs::Grouping,
    /// Compare these; by default findings, functions, stacks and processes
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<Subject>,
    /// Make amounts comparable
    #[arg(long, value_enum, default_value = "second")]
    normalize: Normalize,
    /// Show at most N rows of each comparison
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show all compared rows, also those that are not changed
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Exit with code 1 if anything is called changed
    #[arg(long)]
    exit_code: bool,
    /// Show functions without a name by their offset in the module, not as one of the module
    #[arg(long)]
    offsets: bool,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Draw the flame graph with the outermost frames at the top
    #[arg(long)]
    icicle: bool,
    /// Draw the flame graph with the widths of A, so that it has the frames that are gone
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    output: Output,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Subject {
    /// Findings of at least medium severity, by detection and program
    Finding,
    /// Functions, by the samples in them
    Function,
    /// Functions, by the samples in them and in what they call
    Total,
    /// Modules, by the samples in them
    Module,
    /// Stacks with their process
    Stack,
    /// Processes by name
    Process,
}

impl Subject {
    const DEFAULT: [Subject; 4] = [Subject::Finding, Subject::Function, Subject::Stack, Subject::Process];

    fn name(self) -> &'static str {
        self.into()
    }

    /// The start of the line above its rows.
    fn heading(self) -> &'static str {
        match self {
            Subject::Finding => "Findings",
            Subject::Function => "Functions",
            Subject::Total => "Functions with what they call",
            Subject::Module => "Modules",
            Subject::Stack => "Stacks",
            Subject::Process => "Processes",
        }
    }

    /// The title of the column of names.
    fn title(self) -> String {
        let named = if self == Subject::Total { Subject::Function } else { self };
        named.name().to_uppercase()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Normalize {
    /// Compare amounts as they are: both traces did the same work
    None,
    /// Compare amounts for each second of the trace
    Second,
    /// Compare shares of the processor time that was used
    Total,
}

impl From<Normalize> for Normalization {
    fn from(normalize: Normalize) -> Normalization {
        match normalize {
            Normalize::None => Normalization::None,
            Normalize::Second => Normalization::Second,
            Normalize::Total => Normalization::Total,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Human-readable table
    Table,
    /// CSV with a header line; times in nanoseconds
    Csv,
    /// One JSON object; times in nanoseconds
    Json,
    /// Differential flame graph (.svg)
    #[value(alias = "svg")]
    Flamegraph,
}

/// What amounts are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Measure {
    Samples,
    /// Exact times by context switches.
    Switches,
}

/// The comparison of one kind of name.
struct Section {
    subject: Subject,
    comparison: Comparison<Names>,
}

/// Everything that was compared.
struct Compared {
    captures: [Capture; 2],
    measure: Option<Measure>,
    /// The processor time that shares are of, in nanoseconds.
    totals: [u64; 2],
    sections: Vec<Section>,
    findings: Option<ComparedFindings>,
}

impl Compared {
    fn changes(&self) -> usize {
        let of_sections = self.sections.iter().map(|section| changes(&section.comparison));
        of_sections.sum::<usize>() + self.findings.as_ref().map_or(0, ComparedFindings::changes)
    }
}

/// The number of changes.
fn changes<K>(comparison: &Comparison<K>) -> usize {
    comparison.rows.iter().filter(|(_, difference)| difference.verdict.is_change()).count()
}

impl Arguments {
    fn format(&self) -> Result<Format> {
        self.output.format(self.format, Format::Table)
    }

    fn subjects(&self) -> Vec<Subject> {
        if self.by.is_empty() { Subject::DEFAULT.to_vec() } else { self.by.clone() }
    }

    fn grouping_of_functions(&self) -> Grouping {
        if self.offsets { Grouping::Offset } else { Grouping::Function }
    }

    fn rows_max(&self) -> usize {
        if self.all { usize::MAX } else { self.top }
    }

    fn is_filtered(&self) -> bool {
        !crate::filter::texts(&self.filters).is_empty()
    }
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let format = arguments.format()?;
    if (arguments.icicle || arguments.reverse) && format != Format::Flamegraph {
        bail!("--icicle and --reverse change flame graphs; use -o FILE.svg or --format flamegraph");
    }
    let subjects = match format {
        Format::Flamegraph => Vec::new(),
        _ => arguments.subjects(),
    };
    let hunts = subjects.contains(&Subject::Finding);
    let setup = hunts.then(|| HuntSetup::read(&arguments.naming.locations, common)).transpose()?;
    let read = |path: &Path| read::read(path, arguments, common, setup.as_ref());
    let captures = [read(&arguments.a)?, read(&arguments.b)?];
    let damaged = captures.iter().any(|capture| !capture.outcome.trace.damage.is_empty());
    if format == Format::Flamegraph {
        let mut sink = arguments.output.tables(format)?;
        let changes = picture::draw(arguments, &captures, &mut sink)?;
        sink.finish()?;
        return Ok(Outcome { damaged, found: arguments.exit_code && changes > 0 });
    }
    let compared = compare_all(arguments, captures, &subjects)?;
    if compared.measure.is_none() && !common.quiet {
        message(format_args!(
            "The traces have neither profile samples nor context switches; only findings are compared."
        ));
    }
    let mut sink = arguments.output.tables(format)?;
    match format {
        Format::Csv => write::csv(&mut sink, arguments, &compared)?,
        Format::Json => sink.json(&write::document(arguments, &compared))?,
        Format::Table | Format::Flamegraph => write::table(&mut sink, arguments, &compared)?,
    }
    sink.finish()?;
    Ok(Outcome { damaged, found: arguments.exit_code && compared.changes() > 0 })
}

/// Both sides of the comparison of samples.
fn samples<'c>(arguments: &Arguments, captures: &'c [Capture; 2]) -> Option<[Samples<'c>; 2]> {
    let is_filtered = arguments.is_filtered();
    let [a, b] = captures.each_ref().map(|capture| Samples::of(&capture.report, is_filtered));
    Some([a?, b?])
}

fn compare_all(arguments: &Arguments, captures: [Capture; 2], subjects: &[Subject]) -> Result<Compared> {
    let normalization = arguments.normalize.into();
    let mut sections = Vec::new();
    let (mut measure, mut totals) = (None, [0, 0]);
    let times = subjects.iter().copied().filter(|subject| *subject != Subject::Finding);
    if let Some([a, b]) = samples(arguments, &captures) {
        measure = Some(Measure::Samples);
        for subject in times {
            let (a, b) = (side(arguments, &a, subject), side(arguments, &b, subject));
            totals = [a.total, b.total];
            sections.push(Section { subject, comparison: compare(&a, &b, normalization) });
        }
    } else {
        let [a, b] = captures.each_ref().map(|capture| sides::exact(&capture.report, capture.is_lossy));
        if let (Some(a), Some(b)) = (a, b) {
            measure = Some(Measure::Switches);
            totals = [a.total, b.total];
            if subjects.contains(&Subject::Process) {
                let comparison = compare(&a, &b, normalization);
                sections.push(Section { subject: Subject::Process, comparison });
            }
            if let Some(subject) =
                arguments.by.iter().find(|subject| !matches!(subject, Subject::Process | Subject::Finding))
            {
                bail!(
                    "the comparison by {} needs profile samples in both traces; without them, only processes are compared, by context switches",
                    subject.name()
                );
            }
        } else if !subjects.contains(&Subject::Finding) {
            bail!("{}", NOTHING);
        }
    }
    let findings = captures.each_ref().map(|capture| capture.findings.as_ref());
    let findings = match findings {
        [Some(a), Some(b)] => Some(findings::compare(a, b, &captures, normalization)),
        _ => None,
    };
    Ok(Compared { captures, measure, totals, sections, findings })
}

/// The message that times cannot be compared.
const NOTHING: &str = "expected profile samples in both traces, or context switches in both; without filters of events, `stackhound top cpu` shows what each has";

fn side(arguments: &Arguments, samples: &Samples<'_>, subject: Subject) -> Side<Names> {
    let functions = arguments.grouping_of_functions();
    let first = |[own, _]: [Side<Names>; 2]| own;
    match subject {
        Subject::Function => first(samples.frames(functions)),
        Subject::Total => {
            let [_, total] = samples.frames(functions);
            total
        }
        Subject::Module => first(samples.frames(Grouping::Module)),
        Subject::Stack => samples.stacks(functions),
        Subject::Process | Subject::Finding => samples.processes(),
    }
}
