//! `top wait` and `top ready`: where threads waited, and how long they were ready to run.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::analysis::rows::Row;
use stackhound::analysis::wait::{Measure, WaitBy, WaitReport, Waits};
use stackhound::schema::kernel::hook_id;
use stackhound_export::escape::line;
use stackhound_export::json::top::{self as json, Top, TopWait, WaitRow};

use super::table::{self, SHOWN, Table, percent, seconds};
use super::{Found, Request, Shared, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub shared: Shared,
    /// Show one row for each process, thread, module, function, stack or service that did not run, for
    /// each reason, or for each thread that ended a wait
    #[arg(long, default_value = "process", value_parser = super::subjects(&OWN))]
    by: String,
}

/// The dimensions of waits, with their help.
const OWN: [(&str, &str); 2] = [
    ("reason", "Reasons that the kernel states"),
    ("readying-thread", "Threads that made the waiting threads ready"),
];

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
type Analyzed = Found<WaitReport>;

pub fn run(arguments: &Arguments, common: &Common, metric: Metric) -> Result<Outcome> {
    let (shared, measure) = (&arguments.shared, metric.measure);
    let request = Request::new(shared, &arguments.by, &[]);
    let by = match request.dimension {
        Some(dimension) => WaitBy::Waiting(dimension.rows(shared)),
        None if request.by == "reason" => WaitBy::Reason,
        None => WaitBy::ReadyingThread,
    };
    let has_stacks = request.dimension.is_some();
    if !has_stacks && shared.patterns.compile()?.is_some_and(|patterns| patterns.selects()) {
        bail!("--exclude and --include select stacks, and the rows of --by {} have none", request.by);
    }
    let read = super::read(
        shared,
        is_scheduling,
        common,
        |trace, window| Waits::new(String::new(), trace, window),
        |waits, view, filter| waits.observe(view, || filter.holds_at_any_time(view)),
        |waits, known, naming, patterns| {
            let mut report = waits.finish(known, naming);
            let applied = patterns.map(|patterns| report.regroup(measure, patterns, shared.unnamed()));
            let rows = shared.first(report.rows(measure, by));
            Analyzed { report, rows, applied }
        },
    )?;
    require_switches(read.found.iter().map(|found| (found.report.stats.switches, found.report.compact)))?;
    super::check_services(request, read.found.iter().map(|found| &found.report.profile))?;
    read.write(
        shared,
        |out, found| table(out, request, metric, found),
        |out, found| csv(out, request, found),
        |found, cut| document(request, metric, found, cut),
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
    request: Request<'a>,
    metric: Metric,
    found: &'a Analyzed,
    cut: Vec<json::Cut>,
) -> TopWait<'a> {
    let report = &found.report;
    let nanos = |ticks| report.nanos(ticks);
    let (total, open) = (report.total(metric.measure), report.open(metric.measure));
    let rows = found.rows.iter().map(|row| {
        let values = WaitRow {
            own: nanos(row.own.amount),
            total: nanos(row.total.amount),
            count: row.own.count,
            total_count: row.total.count,
            max: nanos(row.total.max),
        };
        request.row(row, values)
    });
    Top {
        metric: metric.name,
        cut,
        by: request.by,
        window: window(&report.clock, report.window),
        measured: json::Wait {
            count: total.count,
            total: nanos(total.amount),
            unknown: nanos(report.unknown().amount),
            still_open: nanos(open.amount),
            still_open_count: open.count,
            without_stack: report.without_stack(metric.measure),
            not_readied: report.not_readied(),
            switches: report.stats.switches,
            contradictions: report.stats.contradictions,
            compact_records: report.compact,
        },
        grouping: request.shared.patterns.document(found.applied.as_ref(), |excluded| nanos(excluded.amount)),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, request: Request<'_>, captures: &[Analyzed]) -> Result<()> {
    let columns = ["self", "total", "count", "total_count", "max"];
    super::csv(out, request, &columns, captures, |report, row| {
        let Row { own, total, .. } = row;
        let [own_time, total_time, max] =
            [own.amount, total.amount, total.max].map(|ticks| report.nanos(ticks));
        [own_time, total_time, own.count, total.count, max].map(|value| value.to_string())
    })
}

fn table(out: &mut impl Write, request: Request<'_>, metric: Metric, found: &Analyzed) -> Result<()> {
    let report = &found.report;
    let clock = |ticks| seconds(report.nanos(ticks));
    let (total, unknown) = (report.total(metric.measure), report.unknown());
    line(
        out,
        format_args!(
            "{} by {}, in {} s of trace; times of threads add up",
            metric.title,
            request.by,
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
    request.shared.patterns.write(out, found.applied.as_ref(), |excluded| {
        let times = counted(excluded.count, metric.counted.0, metric.counted.1);
        format!("{} s ({times})", clock(excluded.amount))
    })?;
    writeln!(out)?;
    let mut table = Table::<Row>::new();
    if request.has_totals() {
        table.right("SELF s", |row| clock(row.own.amount));
        table.right("TOTAL s", |row| clock(row.total.amount));
    } else {
        table.right(metric.column, |row| clock(row.own.amount));
    }
    if request.shared.selects() {
        table.right(SHOWN, |row| percent(row.total.amount, total.amount));
    }
    table.right("COUNT", |row| grouped(row.total.count));
    table.right("MAX s", |row| clock(row.total.max));
    table.left(request.title(), |row| row.names.join(" < "));
    table.write(out, &found.rows)?;
    Ok(())
}
