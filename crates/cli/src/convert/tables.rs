//! `convert -o DIR`: traces as tables in Parquet files.

use std::fs;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::Args;
use stackhound::hunt::{FindingSelection, Hunt};
use stackhound::trace::Capture;
use stackhound_columns::{Converted, Dataset, Options, TraceId};

use super::Arguments;
use crate::filter::{self, EventFilter};
use crate::hunt::announce;
use crate::hunt::policy::HuntSetup;
use crate::inputs;
use crate::naming::{self, Use};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{at_end, counted, grouped, report_error};
use crate::progress::{Closing, Progress};

#[derive(Args, Clone, Debug)]
pub struct TableArguments {
    /// Name of the computer, for traces that do not state it
    #[arg(long, value_name = "NAME", help_heading = "Tables")]
    pub host: Option<String>,
    /// Convert only the I-th of N shares of the traces, such as 2/8
    #[arg(long, value_name = "I/N", help_heading = "Tables")]
    pub shard: Option<Shard>,
    /// Convert traces again whose tables are complete
    #[arg(long, help_heading = "Tables")]
    pub again: bool,
}

impl TableArguments {
    /// Whether one of them is stated.
    pub fn are_stated(&self) -> bool {
        self.host.is_some() || self.shard.is_some() || self.again
    }
}

/// One of several shares of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |text: &str| text.parse::<usize>().ok();
        let numbers = text.split_once('/').and_then(|(index, count)| number(index).zip(number(count)));
        match numbers {
            Some((number, count)) if 1 <= number && number <= count => Ok(Shard { index: number - 1, count }),
            _ => Err("expected a share and the number of shares, such as 2/8".to_owned()),
        }
    }
}

impl Shard {
    /// Shares depend on the position only, so that all machines agree on them.
    fn has(self, index: usize) -> bool {
        index % self.count == self.index
    }
}

/// Converts all captures: several of them at the same time, or one with all threads.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    EventFilter::parse(&arguments.filters)?;
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    let root = &arguments.output;
    fs::create_dir_all(root).with_context(|| root.display().to_string())?;
    let shard = arguments.tables.shard.unwrap_or(Shard { index: 0, count: 1 });
    let chosen: Vec<usize> = (0..captures.len()).filter(|&index| shard.has(index)).collect();
    let setup = HuntSetup::read(&arguments.naming.locations, common)?;
    let all = All { arguments, common, setup, captures: &captures, report: Mutex::new(Report::default()) };
    let workers = common.threads().min(chosen.len()).max(1);
    let threads = (common.threads() / workers).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut hunt = None;
        while let Some(&index) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            hunt = all.one(index, hunt.take(), threads);
        }
    };
    thread::scope(|scope| {
        // The others start at once; this thread works too.
        (1..workers).for_each(|_| _ = scope.spawn(work));
        work();
    });
    let report = all.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    if report.complete > 0 && !common.quiet {
        at_end(format_args!(
            "{} {} already complete; use --again to convert them again",
            counted(report.complete, "trace", "traces"),
            if report.complete == 1 { "was" } else { "were" }
        ));
    }
    match (report.failures, report.error) {
        (0, _) | (_, None) => Ok(Outcome { damaged: report.damaged, ..Outcome::default() }),
        (_, Some(error)) if captures.len() == 1 => Err(error),
        (failures, Some(_)) => bail!("{failures} of {} traces could not be converted", chosen.len()),
    }
}

/// What happened to all captures.
#[derive(Default)]
struct Report {
    complete: u64,
    damaged: bool,
    failures: u64,
    error: Option<anyhow::Error>,
}

struct All<'a> {
    arguments: &'a Arguments,
    common: &'a Common,
    setup: HuntSetup,
    captures: &'a [Capture],
    report: Mutex<Report>,
}

impl All<'_> {
    /// Converts one capture. Returns the hunt, which has read files.
    fn one(&self, index: usize, hunt: Option<Hunt>, threads: usize) -> Option<Hunt> {
        let hunt = hunt.unwrap_or_else(|| self.setup.hunt(FindingSelection::default()));
        let converted = self.convert(index, hunt, threads);
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        match converted {
            Ok((hunt, None)) => {
                report.complete += 1;
                Some(hunt)
            }
            Ok((hunt, Some(damaged))) => {
                report.damaged |= damaged;
                Some(hunt)
            }
            Err(error) => {
                report.failures += 1;
                if self.captures.len() > 1 {
                    inputs::announce(self.captures, index, self.common);
                    report_error(&error);
                }
                report.error = Some(error);
                None
            }
        }
    }

    /// Converts one capture, unless it is complete. Also returns whether a byte of it is damaged.
    fn convert(&self, index: usize, hunt: Hunt, threads: usize) -> Result<(Hunt, Option<bool>)> {
        let All { arguments, common, captures, .. } = self;
        let capture = &captures[index];
        let selection = selection(arguments);
        let trace = TraceId::of(&capture.trace, &selection);
        let host = arguments.tables.host.as_deref();
        let dataset = Dataset::new(&arguments.output, capture, trace, host);
        if dataset.is_complete() && !arguments.tables.again {
            return Ok((hunt, None));
        }
        let filter = EventFilter::new(&arguments.filters, &capture.trace)?;
        let enrichment = naming::enrichment(&arguments.naming, common, Use::Summary, Some(&filter))?;
        let pipeline = arguments.reading.pipeline(&capture.trace)?.with(enrichment);
        // Several lines of progress would overwrite each other.
        let quiet = Common { no_progress: captures.len() > 1 || common.no_progress, ..(*common).clone() };
        let mut progress = Progress::of(&quiet, &capture.trace);
        let choose = |view: &stackhound::EventView<'_>| {
            progress.tick_at(view);
            filter.choose(view)
        };
        let options = Options { threads, selection };
        let converted = stackhound_columns::convert(capture, pipeline, hunt, choose, &dataset, &options)?;
        let damaged = !converted.outcome.trace.damage.is_empty();
        // Closing lines of other captures must not come between these.
        let _one_at_a_time = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        inputs::announce(captures, index, common);
        progress.finish_with(Closing {
            selected: filter.selected(),
            losses: &(written(&converted) + &crate::render::losses(&converted.outcome)),
            undecided: &filter.undecided(),
            results: "",
        });
        announce(converted.tuning.as_ref(), common);
        Ok((converted.hunt, Some(damaged)))
    }
}

/// The part of the closing line about tables.
fn written(converted: &Converted) -> String {
    let bytes: u64 = converted.tables.iter().map(|(_, _, bytes)| bytes).sum();
    let events = converted.rows("events").max(1);
    format!(
        ", {} in {:.1} bytes each, {} stacks, {} findings",
        counted(converted.rows("events"), "row", "rows"),
        bytes as f64 / events as f64,
        grouped(converted.rows("stacks")),
        grouped(converted.rows("findings"))
    )
}

/// Everything that determines which events are selected, as text.
fn selection(arguments: &Arguments) -> String {
    let mut parts = filter::texts(&arguments.filters);
    let filters = &arguments.filters;
    parts.extend(filters.from.iter().map(|from| format!("from {from:?}")));
    parts.extend(filters.to.iter().map(|to| format!("to {to:?}")));
    parts.join("; ")
}
