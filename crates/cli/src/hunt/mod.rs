//! `hunt`: evaluates the call stacks of recordings, of Sysmon's data and of what happens now.

mod evidence;
mod live;
mod recorded;
mod report;
mod rows;
pub mod sysmon;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use stackhound::detect::{DetectionId, Severity};
use stackhound::trace::{self, Capture};
use stackhound_sysmon::Sysmon;

use crate::config::SymbolArguments;
use crate::filter::Filters;
use crate::live::Sources;
use crate::options::{ColorChoice, Common, Output};
use crate::outcome::Outcome;
use crate::output::{grouped, report_error};
use crate::progress::Progress;
use crate::reading::Reading;
use crate::{inputs, recognition, render};
use report::Report;
use rows::RowFilter;

/// Arguments of `hunt`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub sources: Sources,
    /// Only findings that matter as much or more
    #[arg(long, value_name = "SEVERITY", default_value = "low", value_parser = severity, help_heading = "Findings")]
    pub min_severity: Severity,
    /// Only these detections, such as CS01,CS05
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = detection, help_heading = "Findings")]
    pub only: Vec<DetectionId>,
    /// Also what cannot be determined, with what is missing for it
    #[arg(long, help_heading = "Findings")]
    pub all: bool,
    /// Exit with 0 whatever is found
    #[arg(long, help_heading = "Findings")]
    pub exit_zero: bool,
    /// Image and symbol files of the recorded machine: any files, or a symbol store; only those that are the very ones that
    /// were recorded are used
    #[arg(long, value_name = "DIR", help_heading = "Evidence")]
    pub images: Vec<PathBuf>,
    /// Who is who: a file that states lists in place of built-in ones, in TOML
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub lists: Option<PathBuf>,
    /// Images that are known to be part of Windows: a path, file name or SHA-256 sum a line
    #[arg(long, value_name = "FILE", help_heading = "Evidence")]
    pub known_images: Option<PathBuf>,
    /// Look into the memory of the processes, too, as it is when their events arrive: of code in no module and of what is
    /// innermost, with `=images` of all images in stacks. Not for sessions that replay what happened elsewhere
    #[arg(
        long,
        value_name = "REACH",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "code",
        requires = "live",
        // What a conflict excludes is not required, so each says both.
        conflicts_with = "files",
        help_heading = "Evidence"
    )]
    pub live_memory: Option<MemoryReach>,
    /// Form of the output
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub symbols: SymbolArguments,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

/// Whose memory `hunt` looks into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryReach {
    /// Code in no module, and the innermost user frame
    Code,
    /// All user frames
    Images,
}

/// Forms of `hunt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Each finding with its stack, then alerts and counts
    Table,
    /// Alerts, counts and the most severe findings
    Summary,
    /// One object for each finding and, at the end, for each alert, one a line
    Ndjson,
    /// Documents of the Elastic Common Schema, one a line
    Ecs,
    /// Detection findings of the Open Cybersecurity Schema Framework, one a line
    Ocsf,
    /// A layer for the ATT&CK Navigator
    Navigator,
    /// Comma-separated, one line a finding
    Csv,
}

fn severity(text: &str) -> Result<Severity, String> {
    let names = Severity::ALL.map(Severity::name).join(", ");
    Severity::of(text).ok_or_else(|| format!("`{text}` is no severity; write one of {names}"))
}

fn detection(text: &str) -> Result<DetectionId, String> {
    let mut ids = DetectionId::all().map(DetectionId::name);
    let (first, last) = (ids.next().unwrap_or_default(), ids.last().unwrap_or_default());
    DetectionId::parse(text.trim())
        .ok_or_else(|| format!("there is no detection `{text}`; they are {first} to {last}"))
}

/// What is read at once.
enum Input {
    /// All recordings, which are grouped into captures.
    TraceFiles(Vec<PathBuf>),
    /// A file of Sysmon's, or a pipe.
    Sysmon(PathBuf),
}

/// Hunts in all inputs: in the captures of all recordings, in the order of their beginning, where the first recording is
/// given; in Sysmon's data in the order given.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    if arguments.sources.live {
        return live::run(arguments, common);
    }
    let (inputs, other_files) = inputs_of(&arguments.sources.files, common)?;
    let is_sysmon = inputs.iter().any(|input| matches!(input, Input::Sysmon(_)));
    let chosen = if is_sysmon { RowFilter::new(&arguments.filters)? } else { RowFilter::default() };
    let mut detector = evidence::evaluate(arguments, common)?;
    let mut events = Sysmon::new(detector.lists());
    let mut report = Report::open(arguments, detector.lists(), is_colored(arguments, common))?;
    let bytes = arguments.sources.files.iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
    let mut progress = Progress::new(common, bytes);
    let (mut losses, mut unreadable, mut damaged) = (render::Losses::default(), 0, false);
    let (mut rows, mut recognised, mut undecided) = (0, false, String::new());
    // One input that cannot be read is told and is no reason to leave out the others.
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
        match input {
            Input::TraceFiles(files) => {
                let captures = match open(files, arguments, common) {
                    Ok(captures) => captures,
                    Err(error) => {
                        failed(error)?;
                        continue;
                    }
                };
                recognised = true;
                for (index, capture) in captures.iter().enumerate() {
                    inputs::announce(&captures, index, common);
                    report.next_capture(detector.lists());
                    let told = (&mut report, &mut progress);
                    let (same, hunted) = recorded::hunt(&capture.trace, detector, arguments, common, told)?;
                    detector = same;
                    report.count(hunted.with_stack, &hunted.totals);
                    losses.add(&hunted.outcome);
                    undecided += &hunted.undecided;
                    damaged |= !hunted.outcome.trace.damage.is_empty();
                }
            }
            Input::Sysmon(path) => {
                let told = (&mut report, &mut progress);
                let read = sysmon::hunt((&mut events, &chosen), path, &mut detector, told, common);
                report.failed()?;
                match read {
                    Ok(totals) => {
                        unreadable += totals.unreadable;
                        rows += totals.other;
                        // Where nothing could be read, or nothing came, that is another matter.
                        let is_none = totals.records == totals.unreadable;
                        recognised |= is_none || totals.evaluated + totals.context > 0;
                        damaged |= totals.damaged_parts > 0;
                    }
                    Err(error) => failed(error)?,
                }
            }
        }
    }
    let told = report.closing();
    let found = report.finish()?;
    let mut losses = losses.to_string();
    if unreadable > 0 {
        losses += &format!(", {} records unreadable", grouped(unreadable));
    }
    if rows > 0 {
        losses += &format!(", {} rows of other events", grouped(rows));
    }
    if other_files > 0 {
        losses += &format!(", {} other files", grouped(other_files));
    }
    undecided += &chosen.undecided();
    progress.finish(&(losses + &undecided + &told));
    damaged |= unreadable > 0;
    if failures > 0 {
        bail!("{failures} of {} inputs could not be read, or not to their end", inputs.len());
    }
    if !recognised {
        bail!(
            "nothing was recognised in {} rows: looked for Sysmon's events 8 (CreateRemoteThread) and 10 (ProcessAccess)",
            grouped(rows)
        );
    }
    Ok(Outcome { damaged, found: found && !arguments.exit_zero })
}

/// The inputs behind some paths, and how many files of directories are none.
fn inputs_of(paths: &[PathBuf], common: &Common) -> Result<(Vec<Input>, u64)> {
    let (mut inputs, mut other) = (Vec::new(), 0);
    let (mut trace_files, mut location) = (Vec::new(), None);
    for path in &inputs::expanded(paths)? {
        let mut found = sysmon::Found::default();
        if path.is_dir() {
            found.look(path, common)?;
        } else if recognition::is_pipe(path) || path.is_file() && recognition::is_sysmon(path) {
            found.sysmon.push(path.clone());
        } else {
            found.trace_files.push(path.clone());
        }
        if found.sysmon.is_empty() && found.trace_files.is_empty() {
            bail!(
                "{}: none of its {} files is a recording (.etl, .etl.zst, .etl.zip) or begins as Sysmon's events do (.evtx, or JSON with one object on each line, also as .gz)",
                path.display(),
                grouped(found.other)
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

/// Opens recordings; of what is none, says what else could have been meant.
fn open(files: &[PathBuf], arguments: &Arguments, common: &Common) -> Result<Vec<Capture>> {
    inputs::captures(files, arguments.sources.grouping, common).map_err(|error| {
        let is_none = matches!(error.downcast_ref(), Some(trace::Error::NotATrace(..)));
        let told =
            files.iter().filter(|_| is_none).find_map(|path| Some((path, recognition::what_else(path)?)));
        match told {
            Some((path, sentence)) => anyhow!("{}: {sentence}", path.display()),
            None if is_none => {
                anyhow!(
                    "{error:#}; nor are these Sysmon's events (.evtx, or JSON with one object on each line)"
                )
            }
            None => error,
        }
    })
}

/// Only tables that go to a terminal have colours, unless they are asked for.
fn is_colored(arguments: &Arguments, common: &Common) -> bool {
    let is_table = matches!(arguments.format, Format::Table | Format::Summary);
    let by_itself = || {
        arguments.output.output.is_none()
            && io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    };
    is_table
        && match common.color {
            ColorChoice::Auto => by_itself(),
            ColorChoice::Always => true,
            ColorChoice::Never => false,
        }
}
