//! `top cpu`: processor time.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{Cpu, CpuReport};
use stackhound::analysis::rows::{Applied, Row};
use stackhound::profile::{self, Sums};
use stackhound_export::escape::line;
use stackhound_export::json::top::{self as json, CaptureTopCpu, CpuRow, TopCpu, TopCpuOfCaptures};

use super::table::{Column, SHOWN, Table, percent, seconds};
use super::{Dimension, Shared, optional, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped};

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Show one row for each process, thread, module, function, stack or Windows service
    #[arg(long, value_enum, default_value = "process")]
    by: Dimension,
    /// Count each sample as one sampling interval, not as the time since the previous sample
    #[arg(long)]
    nominal: bool,
}

/// The analyzed capture.
struct Analyzed {
    report: CpuReport,
    rows: Vec<Row>,
    /// Whether only some samples were selected.
    is_filtered: bool,
    has_switches: bool,
    has_compact: bool,
    applied: Option<Applied>,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let (shared, by) = (&arguments.shared, arguments.by);
    let weighing = if arguments.nominal { Weighing::Nominal } else { Weighing::Elapsed };
    let patterns = shared.patterns.compile()?;
    let is_filtered = shared.is_filtered() || patterns.as_ref().is_some_and(profile::Patterns::selects);
    let read = super::read(
        shared,
        |_| false,
        common,
        |trace, window| Cpu::new(String::new(), trace, window, weighing),
        |cpu, view, filter| cpu.observe(view, || filter.wants(view)),
        |cpu, known, naming| {
            let mut report = cpu.finish(known, naming);
            let has_switches = report.exact.is_some();
            let has_compact = report.compact > 0;
            if is_filtered {
                // Which switches match a filter of events is not defined.
                (report.exact, report.compact) = (None, 0);
            }
            let applied = patterns.as_ref().map(|patterns| report.regroup(patterns, shared.unnamed()));
            let rows = shared.first(report.rows(by.rows(shared)));
            Analyzed { report, rows, is_filtered, has_switches, has_compact, applied }
        },
    )?;
    let is_empty = |found: &Analyzed| found.report.exact.is_none() && found.report.interval.is_none();
    if read.found.iter().all(is_empty) {
        if read.found.iter().any(|found| found.has_switches) {
            bail!(
                "the trace has no profile samples; context switches give exact times only without filters of events"
            );
        }
        if read.found.iter().any(|found| found.has_compact) {
            bail!("the trace has only compact context switches (Thread/CompactCSwitch), which are not read");
        }
        bail!(
            "the trace has neither profile samples nor context switches; they are recorded with the kernel flags \
             PROFILE and CSWITCH, for example by `xperf -on PROC_THREAD+LOADER+PROFILE+CSWITCH \
             -stackwalk Profile+CSwitch`"
        );
    }
    if by == Dimension::Service {
        super::check_services(read.found.iter().map(|found| &found.report.profile))?;
    }
    read.write(
        shared,
        |out, found| table(out, by, shared, found),
        |out, found| csv(out, by, found),
        |found, cut| document(by, shared, found, cut),
        |each| TopCpuOfCaptures {
            captures: each.into_iter().map(|(capture, top)| CaptureTopCpu { capture, top }).collect(),
        },
    )
}

/// Available time that no sample stands for.
fn not_sampled(found: &Analyzed) -> Option<u64> {
    let report = &found.report;
    let sampled = report.classes.busy().amount.saturating_add(report.classes.idle.amount);
    (!found.is_filtered && report.interval.is_some()).then(|| report.available().saturating_sub(sampled))
}

/// A row as JSON.
pub fn row_document<'a>(report: &CpuReport, row: &'a Row, is_stack: bool) -> CpuRow<'a> {
    let nanos = |ticks| report.nanos(ticks);
    CpuRow {
        name: (!is_stack).then(|| &*row.names[0]),
        stack: is_stack.then_some(&*row.names),
        pid: row.pid,
        tid: row.tid,
        own: nanos(row.own.amount),
        total: nanos(row.total.amount),
        samples: row.own.count,
        total_samples: row.total.count,
        exact: row.exact.map(|exact| nanos(exact.amount)),
        runs: row.exact.map(|exact| exact.count),
    }
}

fn document<'a>(by: Dimension, shared: &'a Shared, found: &'a Analyzed, cut: Vec<json::Cut>) -> TopCpu<'a> {
    let report = &found.report;
    let nanos = |ticks| report.nanos(ticks);
    let classes = &report.classes;
    let rows = found.rows.iter().map(|row| row_document(report, row, by == Dimension::Stack));
    TopCpu {
        metric: "cpu",
        cut,
        by: by.name(),
        window: window(&report.clock, report.window),
        processor_count: report.processors,
        available: nanos(report.available()),
        samples: classes.busy().count,
        without_stack: report.without_stack,
        busy: nanos(classes.busy().amount),
        idle: nanos(classes.idle.amount),
        dpc: nanos(classes.dpc.amount),
        isr: nanos(classes.isr.amount),
        not_sampled: not_sampled(found).map(nanos),
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
        grouping: found.applied.as_ref().map(|applied| {
            shared.patterns.document(&applied.own_directories, nanos(applied.excluded.amount))
        }),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, by: Dimension, analyzed: &[Analyzed]) -> Result<()> {
    let columns = ["self", "total", "samples", "total_samples", "exact", "runs"];
    super::csv_header(out, by.name(), columns, analyzed.len())?;
    for (index, found) in analyzed.iter().enumerate() {
        let nanos = |ticks| found.report.nanos(ticks).to_string();
        for row in &found.rows {
            let cells = [
                nanos(row.own.amount),
                nanos(row.total.amount),
                row.own.count.to_string(),
                row.total.count.to_string(),
                row.exact.map(|exact| nanos(exact.amount)).unwrap_or_default(),
                optional(row.exact.map(|exact| exact.count)),
            ];
            super::csv_row(out, row, cells, (index, analyzed.len()))?;
        }
    }
    Ok(())
}

fn table(out: &mut impl Write, by: Dimension, shared: &Shared, found: &Analyzed) -> Result<()> {
    let report = &found.report;
    let (available, clock) = (report.available(), |ticks| seconds(report.nanos(ticks)));
    let length = available / u64::from(report.processors);
    line(
        out,
        format_args!(
            "Processor time by {}; percentages are of {} × {} s",
            by.name(),
            counted(report.processors.into(), "processor", "processors"),
            clock(length)
        ),
    )?;
    if report.interval.is_some() {
        let classes = &report.classes;
        let parts = [
            ("busy", Some(classes.busy().amount)),
            ("idle", Some(classes.idle.amount)),
            ("DPC", Some(classes.dpc.amount)),
            ("ISR", Some(classes.isr.amount)),
            ("not sampled", not_sampled(found)),
        ];
        let parts = parts.into_iter().filter_map(|(name, ticks)| Some((name, ticks?)));
        let parts =
            parts.map(|(name, ticks)| format!("{name} {} s ({})", clock(ticks), percent(ticks, available)));
        let samples = counted(classes.busy().count, "sample", "samples");
        line(out, format_args!("  {samples}: {}", parts.collect::<Vec<_>>().join(", ")))?;
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
        let parts =
            parts.map(|(name, ticks)| format!("{name} {} s ({})", clock(ticks), percent(ticks, available)));
        let switches = counted(exact.stats.switches, "context switch", "context switches");
        line(out, format_args!("  {switches}: {}", parts.join(", ")))?;
    }
    if report.compact > 0 {
        let records = counted(report.compact, "record", "records");
        line(
            out,
            format_args!("  {records} of compact context switches were not read: exact times are too small"),
        )?;
    }
    if let Some(Applied { excluded, own_directories }) = &found.applied {
        let samples = counted(excluded.count, "sample", "samples");
        let excluded = format!("{} s ({samples})", clock(excluded.amount));
        shared.patterns.write(out, own_directories, &excluded)?;
    }
    writeln!(out)?;
    let time = |sums: Sums| [percent(sums.amount, available), clock(sums.amount)];
    let mut columns = Vec::new();
    if report.interval.is_some() {
        columns.extend(
            if by.has_totals() { ["SELF %", "SELF s"] } else { ["CPU %", "CPU s"] }.map(Column::right),
        );
        if by.has_totals() {
            columns.extend(["TOTAL %", "TOTAL s"].map(Column::right));
        }
        columns.extend(found.is_filtered.then(|| Column::right(SHOWN)));
        columns.extend(["SAMPLES", "±"].map(Column::right));
    }
    let has_exact =
        report.exact.is_some() && matches!(by, Dimension::Process | Dimension::Thread | Dimension::Service);
    if has_exact {
        columns.extend(["EXACT %", "EXACT s", "RUNS"].map(Column::right));
    }
    columns.push(Column::left(by.title()));
    let mut table = Table::new(columns);
    let shown = report.samples.values().fold(0, |sum: u64, sums| sum.saturating_add(sums.amount));
    for row in &found.rows {
        let mut cells = Vec::new();
        if report.interval.is_some() {
            cells.extend(time(row.own));
            if by.has_totals() {
                cells.extend(time(row.total));
            }
            let sums = if by.has_totals() { row.total } else { row.own };
            cells.extend(found.is_filtered.then(|| percent(sums.amount, shown)));
            cells.extend([grouped(sums.count), noise(sums.count)]);
        }
        if has_exact {
            let exact = row.exact.unwrap_or_default();
            cells.extend(time(exact));
            cells.push(grouped(exact.count));
        }
        cells.push(row.names.join(" < "));
        table.row(cells);
    }
    table.write(out)?;
    Ok(())
}

/// The relative standard error of a number of samples, if it is large: 1/√n.
fn noise(samples: u64) -> String {
    match samples {
        0 | 100.. => String::new(),
        few => format!("±{:.0} %", 100.0 / (few as f64).sqrt()),
    }
}
