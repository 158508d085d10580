//! `top wait` and `top ready`: where threads waited, and how long they were ready to run.

use std::io::Write;

use anyhow::{Result, bail};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use stackhound::analysis::rows::{Applied, Row};
use stackhound::analysis::wait::{Measure, WaitBy, WaitReport, Waits};
use stackhound::profile;
use stackhound::schema::kernel::hook_id;
use stackhound_export::escape::line;
use stackhound_export::json::top::{self as json, CaptureTopWait, TopWait, TopWaitOfCaptures, WaitRow};

use super::table::{self, Column, SHOWN, Table, percent, seconds};
use super::{Dimension, Shared, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub shared: Shared,
    /// Show one row for each process, thread, module, function, stack or service that did not run, for
    /// each reason, or for each thread that ended a wait
    #[arg(long, value_enum, default_value = "process")]
    by: WaitDimension,
}

/// What rows are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitDimension {
    Waiting(Dimension),
    Reason,
    ReadyingThread,
}

impl ValueEnum for WaitDimension {
    fn value_variants<'a>() -> &'a [WaitDimension] {
        const ALL: &[WaitDimension] = &[
            WaitDimension::Waiting(Dimension::Process),
            WaitDimension::Waiting(Dimension::Thread),
            WaitDimension::Waiting(Dimension::Module),
            WaitDimension::Waiting(Dimension::Function),
            WaitDimension::Waiting(Dimension::Line),
            WaitDimension::Waiting(Dimension::Stack),
            WaitDimension::Waiting(Dimension::Service),
            WaitDimension::Reason,
            WaitDimension::ReadyingThread,
        ];
        ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            WaitDimension::Waiting(dimension) => dimension.to_possible_value(),
            _ => Some(PossibleValue::new(self.name()).help(match self {
                WaitDimension::Reason => "Reasons that the kernel states",
                _ => "Threads that made the waiting threads ready",
            })),
        }
    }
}

impl WaitDimension {
    fn name(self) -> &'static str {
        match self {
            WaitDimension::Waiting(dimension) => dimension.name(),
            WaitDimension::Reason => "reason",
            WaitDimension::ReadyingThread => "readying-thread",
        }
    }

    /// The title of the column.
    fn title(self) -> &'static str {
        match self {
            WaitDimension::Waiting(dimension) => dimension.title(),
            WaitDimension::Reason => "REASON",
            WaitDimension::ReadyingThread => "READYING THREAD",
        }
    }

    fn rows(self, shared: &Shared) -> WaitBy {
        match self {
            WaitDimension::Waiting(dimension) => WaitBy::Waiting(dimension.rows(shared)),
            WaitDimension::Reason => WaitBy::Reason,
            WaitDimension::ReadyingThread => WaitBy::ReadyingThread,
        }
    }

    fn is_stack(self) -> bool {
        self == WaitDimension::Waiting(Dimension::Stack)
    }

    fn has_totals(self) -> bool {
        matches!(self, WaitDimension::Waiting(dimension) if dimension.has_totals())
    }
}

/// One of the two measurements.
#[derive(Clone, Copy)]
pub struct Metric {
    measure: Measure,
    name: &'static str,
    title: &'static str,
    column: &'static str,
    /// One and several of what is counted.
    counted: (&'static str, &'static str),
}

pub const WAITS: Metric = Metric {
    measure: Measure::Waits,
    name: "wait",
    title: "Waits",
    column: "WAIT s",
    counted: ("wait", "waits"),
};
pub const READY: Metric = Metric {
    measure: Measure::Ready,
    name: "ready",
    title: "Time ready to run",
    column: "READY s",
    counted: ("time a thread was ready", "times a thread was ready"),
};

/// The analyzed capture.
struct Analyzed {
    report: WaitReport,
    rows: Vec<Row>,
    applied: Option<Applied>,
}

pub fn run(arguments: &Arguments, common: &Common, metric: Metric) -> Result<Outcome> {
    let (shared, by) = (&arguments.shared, arguments.by);
    let patterns = shared.patterns.compile()?;
    let has_stacks = matches!(by, WaitDimension::Waiting(_));
    if !has_stacks && patterns.as_ref().is_some_and(profile::Patterns::selects) {
        bail!("--exclude and --include select stacks, and the rows of --by {} have none", by.name());
    }
    let read = super::read(
        shared,
        is_scheduling,
        common,
        |trace, window| Waits::new(String::new(), trace, window),
        |waits, view, filter| waits.observe(view, || filter.holds_at_any_time(view)),
        |waits, known, naming| {
            let mut report = waits.finish(known, naming);
            let applied =
                patterns.as_ref().map(|patterns| report.regroup(metric.measure, patterns, shared.unnamed()));
            let rows = shared.first(report.rows(metric.measure, by.rows(shared)));
            Analyzed { report, rows, applied }
        },
    )?;
    require_switches(read.found.iter().map(|found| (found.report.stats.switches, found.report.compact)))?;
    if by == WaitDimension::Waiting(Dimension::Service) {
        super::check_services(read.found.iter().map(|found| &found.report.profile))?;
    }
    read.write(
        shared,
        |out, found| table(out, by, metric, shared, found),
        |out, found| csv(out, by, found),
        |found, cut| document(by, metric, shared, found, cut),
        |each| TopWaitOfCaptures {
            captures: each.into_iter().map(|(capture, top)| CaptureTopWait { capture, top }).collect(),
        },
    )
}

/// Whether times of threads need all kernel events with a hook id.
pub fn is_scheduling(id: u16) -> bool {
    matches!(id, hook_id::THREAD_C_SWITCH | hook_id::THREAD_READY_THREAD)
}

/// The note about records of compact context switches.
pub fn compact(count: u64) -> table::Note {
    (
        count,
        "record of compact context switches was not read",
        "records of compact context switches were not read",
    )
}

/// Refuses captures without context switches. Of each capture, their number and that of compact ones.
pub fn require_switches(captures: impl IntoIterator<Item = (u64, u64)>) -> Result<()> {
    let counts = captures.into_iter().fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    match counts {
        (1.., _) => Ok(()),
        (0, 1..) => {
            bail!("the trace has only compact context switches (Thread/CompactCSwitch), which are not read")
        }
        (0, 0) => bail!(
            "the trace has no context switches; they are recorded with the kernel flags CSWITCH and DISPATCHER, for \
             example by `stackhound record --preset switches` or `xperf -on CSWITCH+DISPATCHER -stackwalk CSwitch+ReadyThread`"
        ),
    }
}

fn document<'a>(
    by: WaitDimension,
    metric: Metric,
    shared: &'a Shared,
    found: &'a Analyzed,
    cut: Vec<json::Cut>,
) -> TopWait<'a> {
    let report = &found.report;
    let nanos = |ticks| report.nanos(ticks);
    let (total, unknown) = (report.total(metric.measure), report.unknown());
    let is_stack = by.is_stack();
    let rows = found.rows.iter().map(|row| WaitRow {
        name: (!is_stack).then(|| &*row.names[0]),
        stack: is_stack.then_some(&*row.names),
        pid: row.pid,
        tid: row.tid,
        own: nanos(row.own.amount),
        total: nanos(row.total.amount),
        count: row.own.count,
        total_count: row.total.count,
        max: nanos(row.total.max),
    });
    TopWait {
        metric: metric.name,
        cut,
        by: by.name(),
        window: window(&report.clock, report.window),
        count: total.count,
        total: nanos(total.amount),
        unknown: nanos(unknown.amount),
        still_open: nanos(report.open(metric.measure).amount),
        still_open_count: report.open(metric.measure).count,
        without_stack: report.without_stack(metric.measure),
        not_readied: report.not_readied(),
        switches: report.stats.switches,
        contradictions: report.stats.contradictions,
        compact_records: report.compact,
        grouping: found.applied.as_ref().map(|applied| {
            shared.patterns.document(&applied.own_directories, nanos(applied.excluded.amount))
        }),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, by: WaitDimension, analyzed: &[Analyzed]) -> Result<()> {
    let columns = ["self", "total", "count", "total_count", "max"];
    super::csv_header(out, by.name(), columns, analyzed.len())?;
    for (index, found) in analyzed.iter().enumerate() {
        let nanos = |ticks| found.report.nanos(ticks).to_string();
        for row in &found.rows {
            let cells = [
                nanos(row.own.amount),
                nanos(row.total.amount),
                row.own.count.to_string(),
                row.total.count.to_string(),
                nanos(row.total.max),
            ];
            super::csv_row(out, row, cells, (index, analyzed.len()))?;
        }
    }
    Ok(())
}

fn table(
    out: &mut impl Write,
    by: WaitDimension,
    metric: Metric,
    shared: &Shared,
    found: &Analyzed,
) -> Result<()> {
    let report = &found.report;
    let clock = |ticks| seconds(report.nanos(ticks));
    let (total, unknown) = (report.total(metric.measure), report.unknown());
    line(
        out,
        format_args!(
            "{} by {}, in {} s of trace; times of threads add up",
            metric.title,
            by.name(),
            clock(report.window.1.ticks_since(report.window.0))
        ),
    )?;
    let open = report.open(metric.measure);
    line(
        out,
        format_args!(
            "  {}: {} s; {} s not over at the end, of {}; unknown {} s",
            counted(total.count, metric.counted.0, metric.counted.1),
            clock(total.amount),
            clock(open.amount),
            counted(open.count, "thread", "threads"),
            clock(unknown.amount)
        ),
    )?;
    let not_readied = if metric.measure == Measure::Waits { report.not_readied() } else { 0 };
    table::notes(
        out,
        [
            (
                not_readied,
                "wait has no event that ended it, and contains time ready to run",
                "waits have no event that ended them, and contain time ready to run",
            ),
            (report.without_stack(metric.measure), "switch has no stack", "switches have no stack"),
            compact(report.compact),
        ],
    )?;
    if let Some(Applied { excluded, own_directories }) = &found.applied {
        let times = counted(excluded.count, metric.counted.0, metric.counted.1);
        let excluded = format!("{} s ({times})", clock(excluded.amount));
        shared.patterns.write(out, own_directories, &excluded)?;
    }
    writeln!(out)?;
    let mut columns = Vec::new();
    if by.has_totals() {
        columns.extend(["SELF s", "TOTAL s"].map(Column::right));
    } else {
        columns.push(Column::right(metric.column));
    }
    let is_filtered = shared.is_filtered() || shared.patterns.selects();
    columns.extend(is_filtered.then(|| Column::right(SHOWN)));
    columns.extend(["COUNT", "MAX s"].map(Column::right));
    columns.push(Column::left(by.title()));
    let mut table = Table::new(columns);
    for row in &found.rows {
        let mut cells = vec![clock(row.own.amount)];
        if by.has_totals() {
            cells.push(clock(row.total.amount));
        }
        cells.extend(is_filtered.then(|| percent(row.total.amount, total.amount)));
        cells.extend([grouped(row.total.count), clock(row.total.max), row.names.join(" < ")]);
        table.row(cells);
    }
    table.write(out)?;
    Ok(())
}
