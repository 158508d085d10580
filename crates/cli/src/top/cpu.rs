//! `top cpu`: processor time.

use std::cell::Cell;
use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::rows::Row;
use stackhound::profile::Sums;
use stackhound_export::escape::line;
use stackhound_export::json::top::{self as json, CpuRow, Top, TopCpu};

use super::table::{SHOWN, Table, percent, seconds};
use super::{Dimension, Found, Request, Shared, optional, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Show one row for each process, thread, module, function, stack or Windows service
    #[arg(long, default_value = "process", value_parser = super::subjects(&[]))]
    by: String,
    /// Count each sample as one sampling interval, not as the time since the previous sample
    #[arg(long)]
    nominal: bool,
}

/// The analyzed capture.
type Analyzed = Found<CpuReport>;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let shared = &arguments.shared;
    let request = Request::new(shared, &arguments.by, &[]);
    let by = request.dimension.unwrap_or(Dimension::Process).rows(shared);
    let weighing = if arguments.nominal { Weighing::Nominal } else { Weighing::Elapsed };
    let (has_switches, has_compact) = (Cell::new(false), Cell::new(false));
    let read = super::read(
        shared,
        |_| false,
        common,
        |trace, window| Cpu::new(String::new(), trace, window, weighing),
        |cpu, view, filter| cpu.observe(view, || filter.wants(view)),
        |cpu, known, naming, patterns| {
            let mut report = cpu.finish(known, naming);
            has_switches.set(has_switches.get() || report.exact.is_some());
            has_compact.set(has_compact.get() || report.compact > 0);
            if shared.selects() {
                // Which switches match a filter of events is not defined.
                (report.exact, report.compact) = (None, 0);
            }
            let applied = patterns.map(|patterns| report.regroup(patterns, shared.unnamed()));
            let rows = shared.first(report.rows(by));
            Analyzed { report, rows, applied }
        },
    )?;
    let is_empty = |found: &Analyzed| found.report.exact.is_none() && found.report.interval.is_none();
    if read.found.iter().all(is_empty) {
        if has_switches.get() {
            bail!(
                "the trace has no profile samples; context switches give exact times only without filters of events"
            );
        }
        if has_compact.get() {
            bail!("the trace has only compact context switches (Thread/CompactCSwitch), which are not read");
        }
        bail!(
            "the trace has neither profile samples nor context switches; they are recorded with the kernel flags \
             PROFILE and CSWITCH, for example by `xperf -on PROC_THREAD+LOADER+PROFILE+CSWITCH \
             -stackwalk Profile+CSwitch`"
        );
    }
    super::check_services(request, read.found.iter().map(|found| &found.report.profile))?;
    read.write(
        shared,
        |out, found| table(out, request, found),
        |out, found| csv(out, request, found),
        |found, cut| document(request, found, cut),
    )
}

/// Available time that no sample stands for.
fn not_sampled(shared: &Shared, report: &CpuReport) -> Option<u64> {
    let sampled = report.classes.busy().amount.saturating_add(report.classes.idle.amount);
    (!shared.selects() && report.interval.is_some()).then(|| report.available().saturating_sub(sampled))
}

/// The values of a row as JSON.
pub fn values(report: &CpuReport, row: &Row) -> CpuRow {
    let nanos = |ticks| report.nanos(ticks);
    CpuRow {
        own: nanos(row.own.amount),
        total: nanos(row.total.amount),
        samples: row.own.count,
        total_samples: row.total.count,
        exact: row.exact.map(|exact| nanos(exact.amount)),
        runs: row.exact.map(|exact| exact.count),
    }
}

fn document<'a>(request: Request<'a>, found: &'a Analyzed, cut: Vec<json::Cut>) -> TopCpu<'a> {
    let report = &found.report;
    let nanos = |ticks| report.nanos(ticks);
    let classes = &report.classes;
    let rows = found.rows.iter().map(|row| request.row(row, values(report, row)));
    Top {
        metric: "cpu",
        cut,
        by: request.by,
        window: window(&report.clock, report.window),
        measured: json::Cpu {
            processor_count: report.processors,
            available: nanos(report.available()),
            samples: classes.busy().count,
            without_stack: report.without_stack,
            busy: nanos(classes.busy().amount),
            idle: nanos(classes.idle.amount),
            dpc: nanos(classes.dpc.amount),
            isr: nanos(classes.isr.amount),
            not_sampled: not_sampled(request.shared, report).map(nanos),
            interval: report.interval.map(|interval| json::Interval {
                duration: nanos(interval.ticks),
                is_assumed: interval.is_assumed,
            }),
            exact: report.exact.as_ref().map(|exact| json::ExactCpu {
                busy: nanos(exact.busy()),
                idle: nanos(exact.idle),
                unknown: nanos(report.unknown(exact)),
                switches: exact.stats.switches,
                contradictions: exact.stats.contradictions,
            }),
            compact_records: report.compact,
        },
        grouping: request.shared.patterns.document(found.applied.as_ref(), |excluded| nanos(excluded.amount)),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, request: Request<'_>, captures: &[Analyzed]) -> Result<()> {
    let columns = ["self", "total", "samples", "total_samples", "exact", "runs"];
    super::csv(out, request, &columns, captures, |report, row| {
        let nanos = |ticks| report.nanos(ticks).to_string();
        [
            nanos(row.own.amount),
            nanos(row.total.amount),
            row.own.count.to_string(),
            row.total.count.to_string(),
            row.exact.map(|exact| nanos(exact.amount)).unwrap_or_default(),
            optional(row.exact.map(|exact| exact.count)),
        ]
    })
}

fn table(out: &mut impl Write, request: Request<'_>, found: &Analyzed) -> Result<()> {
    let report = &found.report;
    let (available, clock) = (report.available(), |ticks| seconds(report.nanos(ticks)));
    let length = available / u64::from(report.processors);
    line(
        out,
        format_args!(
            "Processor time by {}; percentages are of {} × {} s",
            request.by,
            counted(report.processors.into(), "processor", "processors"),
            clock(length)
        ),
    )?;
    let listed = |parts: &[(&str, Option<u64>)]| {
        let known = parts.iter().filter_map(|(name, ticks)| Some((name, (*ticks)?)));
        let known =
            known.map(|(name, ticks)| format!("{name} {} s ({})", clock(ticks), percent(ticks, available)));
        known.collect::<Vec<_>>().join(", ")
    };
    if report.interval.is_some() {
        let classes = &report.classes;
        let parts = [
            ("busy", Some(classes.busy().amount)),
            ("idle", Some(classes.idle.amount)),
            ("DPC", Some(classes.dpc.amount)),
            ("ISR", Some(classes.isr.amount)),
            ("not sampled", not_sampled(request.shared, report)),
        ];
        let samples = counted(classes.busy().count, "sample", "samples");
        line(out, format_args!("  {samples}: {}", listed(&parts)))?;
    }
    match report.interval {
        Some(interval) if interval.is_assumed => {
            let length = report.nanos(interval.ticks) / 1000;
            line(
                out,
                format_args!("  no event before the samples states their interval; {length} µs is assumed"),
            )?;
        }
        Some(_) => {}
        None => line(out, format_args!("  no profile samples"))?,
    }
    if let Some(exact) = &report.exact {
        let parts = [("busy", exact.busy()), ("idle", exact.idle), ("unknown", report.unknown(exact))];
        let parts = parts.map(|(name, ticks)| (name, Some(ticks)));
        let switches = counted(exact.stats.switches, "context switch", "context switches");
        line(out, format_args!("  {switches}: {}", listed(&parts)))?;
    }
    if report.compact > 0 {
        let records = counted(report.compact, "record", "records");
        line(
            out,
            format_args!("  {records} of compact context switches were not read: exact times are too small"),
        )?;
    }
    request.shared.patterns.write(out, found.applied.as_ref(), |excluded| {
        let samples = counted(excluded.count, "sample", "samples");
        format!("{} s ({samples})", clock(excluded.amount))
    })?;
    writeln!(out)?;
    let share = |sums: Sums| percent(sums.amount, available);
    let time = |sums: Sums| clock(sums.amount);
    let has_totals = request.has_totals();
    let most = |row: &Row| if has_totals { row.total } else { row.own };
    let mut table = Table::<Row>::new();
    if report.interval.is_some() {
        let name = if has_totals { "SELF" } else { "CPU" };
        table.right(format!("{name} %"), |row| share(row.own));
        table.right(format!("{name} s"), |row| time(row.own));
        if has_totals {
            table.right("TOTAL %", |row| share(row.total));
            table.right("TOTAL s", |row| time(row.total));
        }
        if request.shared.selects() {
            let shown = report.samples.values().fold(0, |sum: u64, sums| sum.saturating_add(sums.amount));
            table.right(SHOWN, move |row| percent(most(row).amount, shown));
        }
        table.right("SAMPLES", |row| grouped(most(row).count));
        table.right("±", |row| noise(most(row).count));
    }
    let has_exact =
        matches!(request.dimension, Some(Dimension::Process | Dimension::Thread | Dimension::Service));
    if report.exact.is_some() && has_exact {
        let exact = |row: &Row| row.exact.unwrap_or_default();
        table.right("EXACT %", move |row| share(exact(row)));
        table.right("EXACT s", move |row| time(exact(row)));
        table.right("RUNS", move |row| grouped(exact(row).count));
    }
    table.left(request.title(), |row| row.names.join(" < "));
    table.write(out, &found.rows)?;
    Ok(())
}

/// The relative standard error of a number of samples, if it is large: 1/√n.
fn noise(samples: u64) -> String {
    match samples {
        0 | 100.. => String::new(),
        few => format!("±{:.0} %", 100.0 / (few as f64).sqrt()),
    }
}
