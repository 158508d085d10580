//! `kstack`: the kernel stacks of threads, from a trace or live session, or of a running process.

mod table;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use stackhound::live::Preset;
use stackhound::threads::{KernelStackSource, Selection, SwitchStacks, ThreadStack};
use stackhound::trace::TraceTime;
use stackhound::{Depth, FileTime, Pid, Pipeline, Tid};
use stackhound_export::escape;
use stackhound_export::json::thread_stack::{KernelStack, KernelStacks};

use crate::calltree::position::ProcessName;
use crate::inputs::{self, Grouping};
use crate::live::{self, Live, LiveSettings, Sources};
use crate::naming::{self, Naming, Symbols};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::message;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::render::{self, utc};
use crate::time::Point;

#[derive(Args, Debug)]
pub struct Arguments {
    /// Show the threads of this process; without --trace and --live, their current stacks, on
    /// Windows from the driver, on Linux from /proc
    #[arg(long, value_name = "ID", required_unless_present_any = ["trace", "live"])]
    pub pid: Option<u32>,
    /// Show only threads of processes with these image names (* and ? match any text)
    #[arg(long, value_name = "NAME", value_parser = ProcessName::from_str)]
    pub process: Vec<ProcessName>,
    /// Show only this thread
    #[arg(long, value_name = "ID")]
    pub tid: Option<u32>,
    /// Also show the user stacks
    #[arg(long)]
    pub user: bool,
    /// Read user stacks with the driver even in critical regions, which can deadlock the thread and
    /// the file system
    #[arg(long, requires = "user", conflicts_with_all = ["trace", "live"])]
    pub user_always: bool,
    /// Show the stack of each thread at its last context switch in these traces, archives or
    /// directories
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "live", help_heading = "Traces")]
    pub trace: Vec<PathBuf>,
    /// Merge all files into one capture, even if they are of several machines, boots or times
    #[arg(long, requires = "trace", help_heading = "Traces")]
    pub merge: bool,
    /// Show the stacks at this time: RFC 3339, or +5s since the start; by default at the end
    #[arg(long, value_name = "TIME", requires = "trace", help_heading = "Traces")]
    pub at: Option<Point>,
    /// Record context switches with their stacks in a live session, on Windows
    #[arg(long, help_heading = "Live")]
    pub live: bool,
    /// Record for this time, such as 30s
    #[arg(
        long = "for",
        value_name = "TIME",
        requires = "live",
        // clap does not require an argument that a conflict excludes, so both are stated.
        conflicts_with = "trace",
        default_value = "5s",
        value_parser = crate::time::parse_duration,
        help_heading = "Live"
    )]
    pub duration: Duration,
    /// Read the events of this existing session, without changing it
    #[arg(
        long,
        value_name = "SESSION",
        requires = "live",
        conflicts_with_all = ["session", "trace"],
        help_heading = "Live"
    )]
    pub attach: Option<String>,
    /// Set the name of the session; by default a unique name
    #[arg(long, value_name = "NAME", requires = "live", conflicts_with = "trace", help_heading = "Live")]
    pub session: Option<String>,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    Table,
    /// One JSON object
    Json,
    /// One JSON object per thread, one per line
    Ndjson,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    arguments.output.format(arguments.format, Format::Table)?;
    if arguments.live {
        sampled(arguments, common)
    } else if arguments.trace.is_empty() {
        now(arguments, common)
    } else {
        recorded(arguments, common)
    }
}

impl Arguments {
    fn selection(&self) -> Selection {
        Selection { pid: self.pid.map(Pid), tid: self.tid.map(Tid), user: self.user }
    }

    fn depth(&self) -> Depth {
        match self.naming.symbols {
            None | Some(Symbols::Full) => Depth::Function,
            Some(Symbols::Modules) => Depth::Module,
            Some(Symbols::Off) => Depth::Address,
        }
    }
}

fn recorded(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let trace = inputs::one(&arguments.trace, arguments.merge, common)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, None)?;
    let pipeline = arguments.reading.pipeline(&trace)?.with(enrichment);
    let start = trace.sources()[0].etl_file.session().start_time;
    let clock = trace.clock();
    let at = arguments.at.map(|at| at.to_raw(&clock, start));
    // Stacks before the start of the trace are unknown, and a later stack is no substitute.
    let beginnings = trace.sources().iter().map(|source| source.etl_file.session().start_time);
    if let (Some(at), Some(beginning)) = (at, beginnings.min())
        && at < clock.to_raw(beginning)
    {
        bail!("{} is before the trace, which begins at {}", utc(clock.to_file_time(at)), utc(beginning));
    }
    let at = at.map(|at| TraceTime(at.0));
    let passes = arguments.reading.passes();
    let mut source = SwitchStacks::recorded(pipeline, &trace, passes, at).depth(arguments.depth());
    let mut progress = Progress::of(common, &trace);
    let outcome = source.read(|| progress.tick(), |_| ControlFlow::Continue(())).clone();
    let stacks = source.stacks(&arguments.selection())?;
    write(arguments, source.time(), stacks)?;
    naming::finish(progress, &outcome, source.pipeline(), None, common);
    Ok(Outcome { damaged: !outcome.trace.damage.is_empty(), ..Outcome::default() })
}

/// Runs a session with context switches and their stacks, which are shown at its end. Otherwise
/// like a trace that is read in one pass.
fn sampled(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, None)?;
    let schemas = arguments.reading.schemas()?;
    let settings = LiveSettings {
        preset: Some(Preset::Switches),
        buffers: None,
        session: arguments.session.clone(),
        replace: false,
        duration: Some(arguments.duration),
    };
    let grouping = Grouping { merge: false, separate: false };
    let sources =
        Sources { files: Vec::new(), grouping, live: true, attach: arguments.attach.clone(), settings };
    let Live { session_monitor, merger, .. } = Live::open(&sources, &[], true, common, false)?;
    let pipeline = Pipeline::live(merger, schemas).with(enrichment);
    let mut source = SwitchStacks::live(pipeline).depth(arguments.depth());
    let watch = |counted: &stackhound::Counted<'_>| {
        let trace = counted.trace();
        session_monitor.update(trace.events, trace.events_dropped);
        ControlFlow::Continue(())
    };
    let outcome = source.read(|| (), watch).clone();
    let ended = session_monitor.finish()?;
    let stacks = source.stacks(&arguments.selection())?;
    write(arguments, source.time(), stacks)?;
    if !common.quiet {
        let closing = live::closing(&outcome, &ended);
        let symbols = source.pipeline().symbol_stats();
        let stacks = render::stacks(&outcome.stacks);
        message(format_args!("{closing}{stacks}{}", render::symbols(symbols.as_ref())));
        naming::report_missing(symbols.as_ref());
    }
    Ok(Outcome::default())
}

/// On Windows, the driver reads the stack of each thread.
#[cfg(windows)]
fn now(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    use stackhound::threads::{DriverOptions, DriverSource};

    let symbols = naming::symbolizer_options(&arguments.naming.locations, common)?;
    let options = DriverOptions {
        depth: arguments.depth(),
        symbols,
        user_in_critical_regions: arguments.user_always,
        ..DriverOptions::default()
    };
    let mut source = DriverSource::open(options)?;
    let stacks = source.stacks(&arguments.selection())?;
    write(arguments, None, stacks)?;
    if !common.quiet {
        naming::report_missing(source.symbol_stats());
    }
    Ok(Outcome::default())
}

/// On Linux, `/proc` contains the stacks.
#[cfg(target_os = "linux")]
fn now(arguments: &Arguments, _: &Common) -> Result<Outcome> {
    use anyhow::anyhow;
    use stackhound::threads::{KernelStackError, ProcStacks};

    let stacks = ProcStacks::default().stacks(&arguments.selection()).map_err(|error| match error {
        KernelStackError::NoProcess(_) => anyhow!("{error}; it has ended, or never existed"),
        error => error.into(),
    })?;
    write(arguments, None, stacks)?;
    Ok(Outcome::default())
}

#[cfg(not(any(windows, target_os = "linux")))]
fn now(_: &Arguments, _: &Common) -> Result<Outcome> {
    anyhow::bail!(
        "kernel stacks of running processes need Windows or Linux; here, use `stackhound kstack --trace FILE.etl` for the stacks of a trace"
    )
}

/// Writes the stacks of the chosen processes, with their time if they share one.
fn write(arguments: &Arguments, time: Option<FileTime>, mut stacks: Vec<ThreadStack>) -> Result<()> {
    stacks.retain(|stack| ProcessName::choose(&arguments.process, stack.process.as_deref()));
    let format = arguments.output.format(arguments.format, Format::Table)?;
    let mut sink = arguments.output.rows(format)?;
    match format {
        Format::Table => table::write(&mut sink, time, &stacks)?,
        Format::Json => sink.json(&KernelStacks::new(time, &stacks))?,
        Format::Ndjson => {
            for stack in &stacks {
                escape::json(&mut sink, &KernelStack::new(stack))?;
                writeln!(sink)?;
            }
        }
    }
    sink.finish()
}
