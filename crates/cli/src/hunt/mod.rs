//! `hunt`: evaluates the call stacks of traces, Sysmon events and live sessions.

mod baseline;
mod live;
pub mod policy;
mod recorded;
mod report;
mod rows;
pub mod sysmon;

use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Result, anyhow, bail};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use stackhound::detect::{DetectionId, Severity};
use stackhound::hunt::{Analytics, FindingSelection, Hunt};
use stackhound::trace::{self, Capture};
use stackhound_export::findings::FindingsFormat;
use stackhound_sysmon::Sysmon;
use stackhound_sysmon::rules::LogRules;

use crate::config::SymbolArguments;
use crate::filter::Filters;
use crate::hunt_files::PolicyArguments;
use crate::live::Sources;
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{counted, message, report_error};
use crate::progress::{self, Closing, Progress};
use crate::reading::Reading;
use crate::{explain, inputs, palette, recognition, render};
use policy::HuntSetup;
use report::Report;
pub use report::announce;
use rows::RowFilter;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub sources: Sources,
    /// Show only findings of this severity or higher; others are counted. The default is medium for
    /// tables, and low for formats that programs read
    #[arg(long, value_name = "SEVERITY", value_parser = severity, help_heading = "Findings")]
    pub min_severity: Option<Severity>,
    /// Show only findings of these detections, such as CS01,CS05
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = detection, help_heading = "Findings")]
    pub only: Vec<DetectionId>,
    /// Also show undetermined answers, with the missing evidence
    #[arg(long, help_heading = "Findings")]
    pub all: bool,
    /// Also show findings that exceptions or the baseline suppress, with the reason
    #[arg(long, help_heading = "Findings")]
    pub show_suppressed: bool,
    /// Exit with code 0 even if findings were written
    #[arg(long, help_heading = "Findings")]
    pub exit_zero: bool,
    #[command(flatten)]
    pub policy: PolicyArguments,
    /// Write the low findings to this file, as the baseline of later hunts, including the entries
    /// of --baseline
    #[arg(long, value_name = "FILE", value_parser = crate::output::output_file(), help_heading = "Evidence")]
    pub write_baseline: Option<PathBuf>,
    /// Also inspect the memory of processes when their events arrive: code in no module and the
    /// innermost user frame, with `=images` all user frames. Not for sessions that replay events of
    /// another machine
    #[arg(
        long,
        value_name = "REACH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "code",
        requires = "live",
        // clap does not require an argument that a conflict excludes, so both are stated.
        conflicts_with = "files",
        help_heading = "Evidence"
    )]
    pub live_memory: Option<MemoryReach>,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// The memory that `hunt` inspects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryReach {
    /// Code in no module, and the innermost user frame
    Code,
    /// All user frames
    Images,
}

/// A format of findings, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format(pub FindingsFormat);

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Format] {
        static ALL: LazyLock<[Format; FindingsFormat::ALL.len()]> =
            LazyLock::new(|| FindingsFormat::ALL.map(Format));
        &*ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.name()).help(self.0.about());
        // An extension of files.
        Some(if self.0 == FindingsFormat::Ndjson { value.alias("jsonl") } else { value })
    }
}

impl Arguments {
    fn format(&self) -> Result<FindingsFormat> {
        Ok(self.output.format(self.format, Format(FindingsFormat::Table))?.0)
    }

    /// The lowest severity that is written. People see what is rarely benign; programs filter
    /// findings themselves.
    fn min_severity(&self, format: FindingsFormat) -> Severity {
        let default = if format.is_for_people() { Severity::Medium } else { Severity::Low };
        self.min_severity.unwrap_or(default)
    }

    /// The hunt by a policy.
    fn hunt(&self, setup: &HuntSetup) -> Result<Hunt> {
        let selection = FindingSelection {
            min_severity: self.min_severity(self.format()?),
            analytics: match &self.only[..] {
                [] => Analytics::All,
                ids => Analytics::Detections(ids.to_vec()),
            },
            undetermined: self.all,
            suppressed: self.show_suppressed,
        };
        let hunt = setup.hunt(selection);
        Ok(if self.write_baseline.is_some() { hunt.learning() } else { hunt })
    }
}

fn severity(text: &str) -> Result<Severity, String> {
    let names = Severity::ALL.map(Severity::name).join(", ");
    Severity::of(text).ok_or_else(|| format!("`{text}` is not a severity; write one of {names}"))
}

fn detection(text: &str) -> Result<DetectionId, String> {
    let mut ids = DetectionId::all().map(DetectionId::name);
    let (first, last) = (ids.next().unwrap_or_default(), ids.last().unwrap_or_default());
    explain::detection(text.trim())
        .ok_or_else(|| format!("there is no detection `{text}`; write an id from {first} to {last}"))
}

/// The message about traces without stacks.
const NO_STACKS: &str = "the trace has no call stacks, which most detections need; record them with `stackhound record --preset syscalls -o calls.etl`";

/// A group of inputs that is read at once.
enum Input {
    /// All traces, which are grouped into captures.
    TraceFiles(Vec<PathBuf>),
    /// A file with Sysmon events, or a pipe.
    Sysmon(PathBuf),
}

/// Hunts in all inputs in the order of the arguments. The captures of all traces are evaluated
/// together at the position of the first trace, ordered by start time.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    arguments.format()?;
    if arguments.sources.live {
        return live::run(arguments, common);
    }
    let (inputs, other_files) = inputs_of(&arguments.sources.files, common)?;
    let is_sysmon = inputs.iter().any(|input| matches!(input, Input::Sysmon(_)));
    let chosen = if is_sysmon { RowFilter::new(&arguments.filters)? } else { RowFilter::default() };
    let setup = HuntSetup::with_arguments(&arguments.policy, &arguments.symbols, common)?;
    let mut hunt = arguments.hunt(&setup)?;
    let mut log_rules = LogRules::new(hunt.rules().library(), hunt.rules().mode());
    let mut events = Sysmon::new(hunt.lists()).with_threads(common.threads());
    let mut report = Report::open(arguments, is_colored(arguments))?;
    let of_logs = inputs.iter().filter_map(|input| match input {
        Input::Sysmon(path) => Some(path.metadata().ok()?.len()),
        Input::TraceFiles(_) => None,
    });
    let mut progress = Progress::new(common, of_logs.sum());
    let (mut traces, mut has_stacks) = (false, false);
    let (mut losses, mut unreadable, mut damaged) = (render::Losses::default(), 0, false);
    let (mut rows, mut recognized, mut undecided) = (0, false, String::new());
    // Rows of Sysmon are counted only if they are evaluated.
    let mut selected = if is_sysmon { None } else { Some(0) };
    // An input that cannot be read is reported, and the others are still evaluated.
    let mut failures = 0;
    let mut failed = |error: anyhow::Error| match inputs.len() {
        1 => Err(error),
        _ => {
            failures += 1;
            report_error(&error);
            Ok(())
        }
    };
    for input in &inputs {
        if let Input::Sysmon(path) = input {
            sysmon::learn(&mut events, path);
        }
    }
    for input in &inputs {
        match input {
            Input::TraceFiles(files) => {
                let captures = match open(files, arguments, common) {
                    Ok(captures) => captures,
                    Err(error) => {
                        failed(error)?;
                        continue;
                    }
                };
                recognized = true;
                progress.add_bytes(captures.iter().map(|capture| progress::size(&capture.trace)).sum());
                for (index, capture) in captures.iter().enumerate() {
                    inputs::announce(&captures, index, common);
                    let reporting = (&mut report, &mut progress);
                    let (same, hunted) =
                        recorded::hunt(&capture.trace, hunt, (arguments, &setup), common, reporting)?;
                    hunt = same;
                    losses.add(&hunted.outcome);
                    traces = true;
                    let stacks = &hunted.outcome.stacks;
                    let parts = [stacks.full, stacks.keyed, stacks.extended, stacks.extended_keys];
                    has_stacks |= parts.into_iter().any(|parts| parts > 0);
                    undecided += &hunted.undecided;
                    selected = selected.zip(hunted.selected).map(|(sum, of_capture)| sum + of_capture);
                    damaged |= !hunted.outcome.trace.damage.is_empty();
                }
            }
            Input::Sysmon(path) => {
                let reporting = (&mut report, &mut progress);
                let read = sysmon::hunt((&mut events, &chosen), path, &mut hunt, reporting, common);
                report.failed()?;
                let of_rules = match hunt.rules().is_empty() {
                    true => Ok(0),
                    false => sysmon::hunt_rules((&mut log_rules, &mut hunt), &chosen, path, &mut report),
                };
                match of_rules {
                    Ok(count) => recognized |= count > 0,
                    Err(error) => failed(error)?,
                }
                match read {
                    Ok(totals) => {
                        unreadable += totals.unreadable;
                        rows += totals.other;
                        // An empty or unreadable input is not an unrecognized one.
                        let is_none = totals.records == totals.unreadable;
                        recognized |= is_none || totals.evaluated + totals.context > 0;
                        damaged |= totals.damaged_parts > 0;
                    }
                    Err(error) => failed(error)?,
                }
            }
        }
    }
    if traces && !has_stacks && !common.quiet {
        message(format_args!("{NO_STACKS}"));
    }
    let (found, results) = report.finish(&mut hunt, common)?;
    let mut losses = losses.to_string();
    if unreadable > 0 {
        losses += &format!(", {} unreadable", counted(unreadable, "record", "records"));
    }
    if rows > 0 {
        losses += &format!(", {} of other events", counted(rows, "row", "rows"));
    }
    if other_files > 0 {
        losses += &format!(", {}", counted(other_files, "other file", "other files"));
    }
    undecided += &chosen.undecided();
    progress.finish_with(Closing {
        selected: selected.filter(|_| traces),
        losses: &losses,
        undecided: &undecided,
        results: &results,
    });
    damaged |= unreadable > 0;
    if failures > 0 {
        bail!("{failures} of {} inputs could not be read completely", inputs.len());
    }
    if !recognized {
        bail!(
            "expected Sysmon's events 8 (CreateRemoteThread), 10 (ProcessAccess) or 25 (ProcessTampering), found none in {}",
            counted(rows, "row", "rows")
        );
    }
    Ok(Outcome { damaged, found: found && !arguments.exit_zero })
}

/// The inputs at some paths, and the number of other files in directories.
fn inputs_of(paths: &[PathBuf], common: &Common) -> Result<(Vec<Input>, u64)> {
    let (mut inputs, mut other) = (Vec::new(), 0);
    let (mut trace_files, mut location) = (Vec::new(), None);
    for path in &inputs::expanded(paths)? {
        let mut found = sysmon::Found::default();
        if path.is_dir() {
            found.search(path, common)?;
        } else if recognition::is_pipe(path) || path.is_file() && recognition::is_sysmon(path) {
            found.sysmon.push(path.clone());
        } else {
            found.trace_files.push(path.clone());
        }
        if found.sysmon.is_empty() && found.trace_files.is_empty() {
            bail!(
                "{}: expected traces (.etl, .etl.zst, .etl.zip) or Sysmon events (.evtx, or JSON with one object per line, also as .gz), found only {}",
                path.display(),
                counted(found.other, "other file", "other files")
            );
        }
        other += found.other;
        if !found.trace_files.is_empty() {
            location.get_or_insert(inputs.len());
            trace_files.extend(found.trace_files);
        }
        inputs.extend(found.sysmon.into_iter().map(Input::Sysmon));
    }
    if let Some(location) = location {
        inputs.insert(location, Input::TraceFiles(trace_files));
    }
    Ok((inputs, other))
}

/// Opens traces. The error about a file that is not a trace also names the expected forms of Sysmon
/// events.
fn open(files: &[PathBuf], arguments: &Arguments, common: &Common) -> Result<Vec<Capture>> {
    inputs::captures(files, arguments.sources.grouping, common).map_err(|error| {
        let is_none = matches!(error.downcast_ref(), Some(trace::Error::NotATrace(..)));
        let reason = files
            .iter()
            .filter(|_| is_none)
            .find_map(|path| Some((path, recognition::unreadable_reason(path)?)));
        match reason {
            Some((path, sentence)) => anyhow!("{}: {sentence}", path.display()),
            None if is_none => {
                anyhow!(
                    "{error:#}; expected a trace, or Sysmon events (.evtx, or JSON with one object per line)"
                )
            }
            None => error,
        }
    })
}

/// Whether output is colored: only tables are.
fn is_colored(arguments: &Arguments) -> bool {
    arguments.format().is_ok_and(FindingsFormat::is_for_people)
        && palette::is_wanted(arguments.output.output.as_deref())
}
