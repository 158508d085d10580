//! `top cpu`: processor time.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use stackhound::analysis::cpu::weights::Weighing;
use stackhound::analysis::cpu::{By, Cpu, CpuReport, Row};
use stackhound::profile::{Grouping, Sums};
use stackhound::trace::{Capture, OpenTrace, TraceTime};
use stackhound::{FileTime, RawTime};
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::top::{self as json, CaptureTopCpu, CpuRow, TopCpu, TopCpuOfCaptures};
use stackhound_export::json::value::Time;

use super::table::{Column, Table, percent, seconds};
use crate::filter::{self, EventFilter, Filters};
use crate::info::capture_info;
use crate::inputs::{self, Inputs};
use crate::naming::{self, Naming};
use crate::options::{Common, Output};
use crate::outcome::Outcome;
use crate::output::{Sink, counted, grouped};
use crate::progress::Progress;
use crate::reading::Reading;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Show one row for each process, thread, module, function or stack
    #[arg(long, value_enum, default_value = "process")]
    pub by: Dimension,
    /// Show at most N rows
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Show all rows
    #[arg(long, conflicts_with = "top")]
    pub all: bool,
    /// Show functions without a name by their offset in the module, not as one row of the module
    #[arg(long)]
    pub offsets: bool,
    /// Count each sample as one sampling interval, not as the time since the previous sample
    #[arg(long)]
    pub nominal: bool,
    /// Output format; by default derived from the file name of -o, else a table
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dimension {
    /// Processes
    Process,
    /// Threads
    Thread,
    /// Modules of the frames of samples
    Module,
    /// Functions of the frames of samples
    Function,
    /// Stacks of samples
    Stack,
}

impl Dimension {
    fn name(self) -> &'static str {
        match self {
            Dimension::Process => "process",
            Dimension::Thread => "thread",
            Dimension::Module => "module",
            Dimension::Function => "function",
            Dimension::Stack => "stack",
        }
    }

    /// Whether rows overlap, so that each has a total beside its own time.
    fn has_totals(self) -> bool {
        matches!(self, Dimension::Module | Dimension::Function)
    }
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

/// The analyzed capture.
struct Analyzed {
    report: CpuReport,
    rows: Vec<Row>,
    /// Whether only some samples were selected.
    is_filtered: bool,
}

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let path = arguments.output.output.as_deref();
    let of_path = || match path?.extension()?.to_str()? {
        "csv" => Some(Format::Csv),
        "json" => Some(Format::Json),
        _ => None,
    };
    let format = arguments.format.or_else(of_path).unwrap_or(Format::Table);
    let captures = inputs::captures(&arguments.inputs.files, arguments.inputs.grouping, common)?;
    EventFilter::parse(&arguments.filters)?;
    let mut sink = Sink::open(path)?;
    let (mut damaged, mut analyzed) = (false, Vec::new());
    for (index, capture) in captures.iter().enumerate() {
        inputs::announce(&captures, index, common);
        let (found, is_damaged) = analyze(arguments, common, &capture.trace)?;
        damaged |= is_damaged;
        analyzed.push(found);
    }
    if analyzed.iter().all(|found| found.report.exact.is_none() && found.report.interval.is_none()) {
        bail!(
            "the trace has neither profile samples nor context switches; they are recorded with the kernel flags \
             PROFILE and CSWITCH, for example by `stackhound record` or `xperf -on PROFILE+CSWITCH -stackwalk \
             Profile+CSwitch`"
        );
    }
    match format {
        Format::Table => {
            for (index, (capture, found)) in captures.iter().zip(&analyzed).enumerate() {
                if captures.len() > 1 {
                    let gap = if index > 0 { "\n" } else { "" };
                    write!(sink, "{gap}")?;
                    line(&mut sink, format_args!("capture {}: {capture}", index + 1))?;
                }
                table(&mut sink, arguments, found)?;
            }
        }
        Format::Csv => csv(&mut sink, arguments.by, &captures, &analyzed)?,
        Format::Json => {
            let mut documents = analyzed.iter().map(|found| document(arguments.by, found));
            if captures.len() == 1 {
                documents.next().map(|one| sink.json(&one)).transpose()?;
            } else {
                let each = captures.iter().zip(documents);
                let each = each.map(|(capture, top)| CaptureTopCpu { capture: capture_info(capture), top });
                sink.json(&TopCpuOfCaptures { captures: each.collect() })?;
            }
        }
    }
    sink.finish()?;
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Analyzes one capture. Returns also whether a byte of it is damaged.
fn analyze(arguments: &Arguments, common: &Common, trace: &OpenTrace) -> Result<(Analyzed, bool)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let enrichment = naming::enrichment(&arguments.naming, common, naming::Use::Summary, Some(&filter))?;
    let mut pipeline = arguments.reading.pipeline(trace)?.with(enrichment);
    let mut progress =
        Progress::new(common, trace.sources().iter().map(|source| source.etl_file.size()).sum());
    let weighing = if arguments.nominal { Weighing::Nominal } else { Weighing::Elapsed };
    let mut cpu = Cpu::new(String::new(), trace, filter.window(), weighing);
    let mut failure = None;
    let outcome = pipeline.run(|view| {
        progress.tick();
        if filter.is_past(view) {
            return ControlFlow::Break(());
        }
        match cpu.observe(view, || filter.wants(view)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(full) => {
                failure = Some(full);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(full) = failure {
        return Err(full.into());
    }
    let (known, _, naming) = pipeline.parts();
    let mut report = cpu.finish(known, naming);
    let is_filtered = !filter::texts(&arguments.filters).is_empty();
    if is_filtered {
        // Which switches match a filter of events is not defined.
        report.exact = None;
    }
    let rows = report.rows(match arguments.by {
        Dimension::Process => By::Process,
        Dimension::Thread => By::Thread,
        Dimension::Module => By::Frames(Grouping::Module),
        Dimension::Function if arguments.offsets => By::Frames(Grouping::Offset),
        Dimension::Function => By::Frames(Grouping::Function),
        Dimension::Stack => By::Stack,
    });
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    let mut analyzed = Analyzed { report, rows, is_filtered };
    if !arguments.all {
        analyzed.rows.truncate(arguments.top);
    }
    Ok((analyzed, !outcome.trace.damage.is_empty()))
}

fn utc(report: &CpuReport, time: TraceTime) -> FileTime {
    report.clock.to_file_time(RawTime(time.0))
}

/// Available time that no sample stands for.
fn not_sampled(found: &Analyzed) -> Option<u64> {
    let report = &found.report;
    let sampled = report.classes.busy().amount.saturating_add(report.classes.idle.amount);
    (!found.is_filtered && report.interval.is_some()).then(|| report.available().saturating_sub(sampled))
}

fn exact_busy(report: &CpuReport) -> Option<u64> {
    Some(report.exact.as_ref()?.threads.values().map(|sums| sums.amount).sum())
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

fn document(by: Dimension, found: &Analyzed) -> TopCpu<'_> {
    let report = &found.report;
    let nanos = |ticks| report.nanos(ticks);
    let window = report.window;
    let duration = u64::try_from(window.1.0.saturating_sub(window.0.0)).unwrap_or(0);
    let classes = &report.classes;
    let rows = found.rows.iter().map(|row| row_document(report, row, by == Dimension::Stack));
    TopCpu {
        metric: "cpu",
        by: by.name(),
        window: json::Window {
            from: Time(utc(report, window.0)),
            to: Time(utc(report, window.1)),
            duration: nanos(duration),
        },
        processor_count: report.processors,
        available: nanos(report.available()),
        samples: classes.busy().count,
        without_stack: report.without_stack,
        busy: nanos(classes.busy().amount),
        idle: nanos(classes.idle.amount),
        dpc: nanos(classes.dpc.amount),
        isr: nanos(classes.isr.amount),
        not_sampled: not_sampled(found).map(nanos),
        interval: report
            .interval
            .map(|(ticks, is_assumed)| json::Interval { duration: nanos(ticks), is_assumed }),
        exact: report.exact.as_ref().map(|exact| json::ExactCpu {
            busy: nanos(exact_busy(report).unwrap_or(0)),
            idle: nanos(exact.idle),
            unknown: nanos(exact.unknown),
            switches: exact.stats.switches,
            contradictions: exact.stats.contradictions,
        }),
        rows: rows.collect(),
    }
}

fn csv(out: &mut impl Write, by: Dimension, captures: &[Capture], analyzed: &[Analyzed]) -> Result<()> {
    let mut header =
        vec![by.name(), "pid", "tid", "self", "total", "samples", "total_samples", "exact", "runs"];
    if captures.len() > 1 {
        header.insert(0, "capture");
    }
    row(out, header)?;
    for (index, found) in analyzed.iter().enumerate() {
        let nanos = |ticks| found.report.nanos(ticks).to_string();
        let optional = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        for found in &found.rows {
            let mut cells = vec![
                cell(&found.names.join("<")),
                optional(found.pid.map(u64::from)),
                optional(found.tid.map(u64::from)),
                nanos(found.own.amount),
                nanos(found.total.amount),
                found.own.count.to_string(),
                found.total.count.to_string(),
                found.exact.map(|exact| nanos(exact.amount)).unwrap_or_default(),
                optional(found.exact.map(|exact| exact.count)),
            ];
            if captures.len() > 1 {
                cells.insert(0, (index + 1).to_string());
            }
            row(out, cells)?;
        }
    }
    Ok(())
}

fn table(out: &mut impl Write, arguments: &Arguments, found: &Analyzed) -> Result<()> {
    let (report, by) = (&found.report, arguments.by);
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
    if let Some((interval, true)) = report.interval {
        let interval = report.nanos(interval) / 1000;
        line(
            out,
            format_args!("  the trace does not state the sampling interval; {interval} µs is assumed"),
        )?;
    }
    if let Some(exact) = &report.exact {
        let busy = exact_busy(report).unwrap_or(0);
        let switches = counted(exact.stats.switches, "context switch", "context switches");
        line(
            out,
            format_args!(
                "  {switches}: busy {} s ({}), idle {} s ({}), unknown {} s ({})",
                clock(busy),
                percent(busy, available),
                clock(exact.idle),
                percent(exact.idle, available),
                clock(exact.unknown),
                percent(exact.unknown, available)
            ),
        )?;
        if exact.compact > 0 {
            let records = counted(exact.compact, "record", "records");
            line(
                out,
                format_args!(
                    "  {records} of compact context switches were not read: exact times are too small"
                ),
            )?;
        }
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
        columns.extend(["SAMPLES", "±"].map(Column::right));
    }
    let has_exact = report.exact.is_some() && matches!(by, Dimension::Process | Dimension::Thread);
    if has_exact {
        columns.extend(["EXACT %", "EXACT s", "RUNS"].map(Column::right));
    }
    let name = match by {
        Dimension::Process => "PROCESS",
        Dimension::Thread => "THREAD",
        Dimension::Module => "MODULE",
        Dimension::Function => "FUNCTION",
        Dimension::Stack => "STACK",
    };
    columns.push(Column::left(name));
    let mut table = Table::new(columns);
    for found in &found.rows {
        let mut cells = Vec::new();
        if report.interval.is_some() {
            cells.extend(time(found.own));
            if by.has_totals() {
                cells.extend(time(found.total));
            }
            let samples = if by.has_totals() { found.total.count } else { found.own.count };
            cells.extend([grouped(samples), noise(samples)]);
        }
        if has_exact {
            let exact = found.exact.unwrap_or_default();
            cells.extend(time(exact));
            cells.push(grouped(exact.count));
        }
        cells.push(found.names.join(" < "));
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
