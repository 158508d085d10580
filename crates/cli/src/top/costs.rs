//! `top interrupt`, `top syscall` and other measurements of what a trace spent on a resource.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Args, Command, ValueEnum};
use stackhound::analysis::costs::{self, CostBy, CostReport, Costs, Figures, Metric, Unit};
use stackhound::analysis::rows::{Amount, Row};
use stackhound::schema::kernel::hook_id;
use stackhound_export::escape::line;
use stackhound_export::json::top::{self as json, CostColumn, CostRemainder, CostRow, Cut, Top, TopCosts};

use super::table::{self, SHOWN, Table, percent, seconds};
use super::{Found, Request, Shared, dimension, spaced, title, wait, window};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::grouped;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    shared: Shared,
    /// Show one row for each of these
    #[arg(long, value_name = "DIMENSION")]
    by: String,
}

/// A measurement as a command of `top`, with the name of its metric.
#[derive(Debug)]
pub struct Measurement {
    pub metric: &'static Metric,
    /// The help of the command.
    about: &'static str,
    /// What is measured, for `callers` and `callees`.
    pub amount: &'static str,
    /// Title of the table.
    title: &'static str,
    /// The dimensions that rows can be about, the usual one first.
    by: &'static [&'static str],
    /// What a trace without the events lacks.
    missing: &'static str,
    /// The kernel events that it needs all, if what is cut from a trace does not contain them.
    pub needs: fn(u16) -> bool,
}

/// All measurements, in the order of the help.
pub const MEASUREMENTS: [Measurement; 9] = [
    Measurement {
        metric: &costs::INTERRUPT,
        about: "Show the time in interrupt service routines and deferred procedure calls, by driver",
        amount: "time in interrupts",
        title: "Interrupts",
        by: &["module", "function", "line", "kind", "processor"],
        missing: "interrupts or deferred procedure calls; they are recorded with the kernel flags INTERRUPT and DPC, for \
                  example by `xperf -on PROC_THREAD+LOADER+INTERRUPT+DPC`",
        needs: is_interrupt,
    },
    Measurement {
        metric: &costs::SYSTEM_CALL,
        about: "Show system calls and their durations, by service",
        amount: "time of system calls",
        title: "System calls",
        by: &["service", "process", "thread", "module", "function", "line", "stack"],
        missing: "system calls; they are recorded with the kernel flag SYSCALL, and need CSWITCH for their threads, for \
                  example by `xperf -on PROC_THREAD+LOADER+CSWITCH+SYSCALL -stackwalk SyscallEnter`",
        needs: is_system_call,
    },
    Measurement {
        metric: &costs::DISK,
        about: "Show the transfers of disks and their times, by file",
        amount: "time of disk transfers",
        title: "Transfers of disks",
        by: &["file", "disk", "process", "thread", "module", "function", "line", "stack", "service"],
        missing: "disk transfers; they are recorded with the kernel flags DISK_IO and DISK_IO_INIT, for example by \
                  `xperf -on PROC_THREAD+LOADER+DISK_IO+DISK_IO_INIT+FILENAME -stackwalk DiskReadInit+DiskWriteInit`",
        needs: is_disk,
    },
    Measurement {
        metric: &costs::FILE,
        about: "Show the operations of file systems and their durations, by file",
        amount: "time of file operations",
        title: "File operations",
        by: &["file", "operation", "process", "thread", "module", "function", "line", "stack", "service"],
        missing: "file operations; they are recorded with the kernel flags FILE_IO and FILE_IO_INIT, for example by \
                  `xperf -on PROC_THREAD+LOADER+FILENAME+FILE_IO+FILE_IO_INIT -stackwalk FileCreate+FileRead+FileWrite`",
        needs: |_| false,
    },
    Measurement {
        metric: &costs::FAULT,
        about: "Show page faults, and the times and bytes of hard ones, by file",
        amount: "page faults",
        title: "Page faults",
        by: &["file", "kind", "process", "thread", "module", "function", "line", "stack", "service"],
        missing: "page faults; they are recorded with the kernel flags HARD_FAULTS and ALL_FAULTS, for example by \
                  `xperf -on PROC_THREAD+LOADER+HARD_FAULTS+FILENAME -stackwalk HardFault`",
        needs: |_| false,
    },
    Measurement {
        metric: &costs::NETWORK,
        about: "Show the bytes that were sent and received, by process or endpoint",
        amount: "network transfers",
        title: "Network transfers",
        by: &["process", "endpoint", "connection", "module", "function", "line", "stack", "service"],
        missing: "network transfers; they are recorded with the kernel flag NETWORKTRACE, for example by \
                  `xperf -on PROC_THREAD+LOADER+NETWORKTRACE`",
        needs: |_| false,
    },
    Measurement {
        metric: &costs::MEMORY,
        about: "Show memory that was committed and not freed, by process or stack",
        amount: "committed memory",
        title: "Committed memory",
        by: &["process", "thread", "module", "function", "line", "stack", "service"],
        missing: "allocations of memory; they are recorded with the kernel flag VIRT_ALLOC, for example by \
                  `xperf -on PROC_THREAD+LOADER+VIRT_ALLOC -stackwalk VirtualAlloc`",
        needs: |_| false,
    },
    Measurement {
        metric: &costs::GC,
        about: "Show the garbage collections and pauses of .NET programs, by process or generation",
        amount: "garbage collections",
        title: "Garbage collections",
        by: &["process", "generation", "thread", "module", "function", "line", "stack"],
        missing: "garbage collections of .NET; they are recorded with the provider Microsoft-Windows-DotNETRuntime and its \
                  keyword 0x1, for example by `logman start clr -p Microsoft-Windows-DotNETRuntime 0x1 4 -o clr.etl -ets`",
        needs: |_| false,
    },
    Measurement {
        metric: &costs::JIT,
        about: "Show the methods that .NET programs compiled, by process, method or tier",
        amount: "compiled methods",
        title: "Compiled methods",
        by: &["process", "method", "tier", "thread", "module", "function", "line", "stack"],
        missing: "compiled methods of .NET; they are recorded with the provider Microsoft-Windows-DotNETRuntime and its \
                  keyword 0x10, for example by `logman start clr -p Microsoft-Windows-DotNETRuntime 0x10 5 -o clr.etl -ets`",
        needs: |_| false,
    },
];

/// Whether a measurement needs all kernel events with a hook id.
pub fn is_needed(id: u16) -> bool {
    MEASUREMENTS.iter().any(|measurement| (measurement.needs)(id)) || wait::is_scheduling(id)
}

fn is_interrupt(id: u16) -> bool {
    const INTERRUPTS: [u16; 6] = [
        hook_id::PERF_INFO_ISR,
        hook_id::PERF_INFO_ISR_MSI,
        hook_id::PERF_INFO_ISR_PASS,
        hook_id::PERF_INFO_DPC,
        hook_id::PERF_INFO_TIMER_DPC,
        hook_id::PERF_INFO_THREADED_DPC,
    ];
    INTERRUPTS.contains(&id)
}

/// Context switches state the threads of system calls.
fn is_system_call(id: u16) -> bool {
    const CALLS: [u16; 3] =
        [hook_id::PERF_INFO_SYS_CALL_ENTER, hook_id::PERF_INFO_SYS_CALL_EXIT, hook_id::THREAD_C_SWITCH];
    CALLS.contains(&id)
}

/// The group of events of disks.
fn is_disk(id: u16) -> bool {
    id >> 8 == hook_id::DISK_IO_READ >> 8
}

/// Help for a dimension of some measurements.
fn help(dimension: &str) -> &'static str {
    match dimension {
        "service" => "Services of the kernel",
        "kind" => "Kinds of events",
        "file" => "Files, by path",
        "disk" => "Disks, by number",
        "operation" => "Kinds of operations",
        "endpoint" => "Remote addresses and ports",
        "generation" => "Generations of collected objects",
        "method" => "Methods, by name",
        "tier" => "Tiers of compilation",
        "connection" => "Local and remote addresses and ports",
        "processor" => "Processors",
        _ => "",
    }
}

impl Measurement {
    /// The measurement whose command has this name.
    pub fn named(name: &str) -> Option<&'static Measurement> {
        MEASUREMENTS.iter().find(|measurement| measurement.metric.name == name)
    }

    /// The command.
    pub fn command(&'static self) -> Command {
        let command = Arguments::augment_args(Command::new(self.metric.name).about(self.about));
        command.mut_arg("by", |by| self.argument(by))
    }

    /// The option that selects a dimension, with those of this measurement.
    fn argument(&self, by: Arg) -> Arg {
        let values = self.by.iter().map(|name| {
            let shared = dimension(name, self.metric.dimensions);
            let value = shared.and_then(|dimension| dimension.to_possible_value());
            value.unwrap_or_else(|| PossibleValue::new(*name).help(help(name)))
        });
        by.value_parser(PossibleValuesParser::new(values)).required(false).default_value(self.by[0])
    }
}

/// The analyzed capture.
type Analyzed = Found<CostReport, Figures>;

pub fn run(arguments: &Arguments, common: &Common, measurement: &Measurement) -> Result<Outcome> {
    let (shared, own) = (&arguments.shared, measurement.metric.dimensions);
    let request = Request::new(shared, &arguments.by, own);
    let by = match request.dimension {
        Some(dimension) => CostBy::Actor(dimension.rows(shared)),
        None => CostBy::Own(own.iter().position(|own| *own == request.by).unwrap_or(0)),
    };
    let read = super::read(
        shared,
        measurement.needs,
        common,
        |trace, window| Costs::new(measurement.metric, String::new(), trace, window),
        |costs, view, filter| costs.observe(view, || filter.holds_at_any_time(view)),
        |costs, known, naming, patterns| {
            let mut report = costs.finish(known, naming);
            let applied = patterns.map(|patterns| report.regroup(patterns, shared.unnamed()));
            let rows = shared.first(report.rows(by));
            Analyzed { report, rows, applied }
        },
    )?;
    if read.found.iter().all(|found| found.report.events == 0) {
        bail!("the trace has no {}", measurement.missing);
    }
    super::check_services(request, read.found.iter().map(|found| &found.report.profile))?;
    read.write(
        shared,
        |out, found| table(out, request, measurement, found),
        |out, found| csv(out, request, measurement.metric.columns, found),
        |found, cut| document(request, found, cut),
    )
}

fn document<'a>(request: Request<'a>, found: &'a Analyzed, cut: Vec<Cut>) -> TopCosts<'a> {
    let report = &found.report;
    let columns = report.metric.columns;
    let values = |figures: &Figures| -> BTreeMap<&'static str, u64> {
        columns.iter().map(|column| (column.name, report.value(figures, column))).collect()
    };
    let columns = columns.iter().map(|column| CostColumn { name: column.name, unit: column.unit.name() });
    let remainders = report.remainders.iter().map(|remainder| CostRemainder {
        reason: remainder.reason,
        count: remainder.sums.count,
        amount: report.amount(remainder.sums.amount),
    });
    let rows = found.rows.iter().map(|row| {
        let values = CostRow { own: values(&row.own), total: values(&row.total) };
        request.row(row, values)
    });
    Top {
        metric: report.metric.name,
        cut,
        by: request.by,
        window: window(&report.clock, report.window),
        measured: json::Costs {
            columns: columns.collect(),
            without_stack: report.without_stack,
            total: values(&report.total()),
            remainders: remainders.collect(),
        },
        grouping: request
            .shared
            .patterns
            .document(found.applied.as_ref(), |excluded| report.amount(excluded.amount())),
        rows: rows.collect(),
    }
}

fn csv(
    out: &mut impl Write,
    request: Request<'_>,
    columns: &'static [costs::Column],
    captures: &[Analyzed],
) -> Result<()> {
    let named = |prefix: &'static str| columns.iter().map(move |column| format!("{prefix}{}", column.name));
    let titles: Vec<String> = match request.has_totals() {
        true => named("self_").chain(named("total_")).collect(),
        false => named("").collect(),
    };
    super::csv(out, request, &titles, captures, |report, row| {
        let totals = request.has_totals().then_some(row.total);
        let values = |figures| columns.iter().map(move |column| report.value(&figures, column).to_string());
        [row.own].into_iter().chain(totals).flat_map(values).collect::<Vec<_>>()
    })
}

/// A value of a table. Durations are milliseconds with microseconds.
pub fn shown(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Ticks => format!("{}.{:03}", grouped(value / 1_000_000), value / 1_000 % 1000),
        Unit::Bytes | Unit::Count => grouped(value),
    }
}

pub fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Ticks => " ms",
        Unit::Bytes => " B",
        Unit::Count => "",
    }
}

fn table(
    out: &mut impl Write,
    request: Request<'_>,
    measurement: &Measurement,
    found: &Analyzed,
) -> Result<()> {
    let report = &found.report;
    let (columns, total) = (report.metric.columns, report.total());
    let Some(main) = columns.first() else { return Ok(()) };
    let whole = report.value(&total, main);
    let (from, to) = report.window;
    let text = |value, unit| format!("{}{}", shown(value, unit), suffix(unit));
    line(
        out,
        format_args!(
            "{} by {}, in {} s of trace; percentages are of {}, the sum of the column {}",
            measurement.title,
            request.by,
            seconds(stackhound::analysis::nanos(&report.clock, to.ticks_since(from))),
            text(whole, main.unit),
            title(main.name),
        ),
    )?;
    let sums = columns.iter().filter(|column| !column.is_max());
    let sums = sums
        .map(|column| format!("{} {}", spaced(column.name), text(report.value(&total, column), column.unit)));
    line(out, format_args!("  {}", sums.collect::<Vec<_>>().join(", ")))?;
    for remainder in &report.remainders {
        let amount = match remainder.sums.amount {
            0 => String::new(),
            amount => format!(" ({})", text(report.amount(amount), main.unit)),
        };
        line(
            out,
            format_args!("  remainder: {} {}{amount}", grouped(remainder.sums.count), remainder.reason),
        )?;
    }
    table::notes(out, [(report.without_stack, "event has no stack", "events have no stack")])?;
    let amount = |excluded: Figures| text(report.amount(excluded.amount()), main.unit);
    request.shared.patterns.write(out, found.applied.as_ref(), amount)?;
    writeln!(out)?;
    let mut table = Table::<Row<Figures>>::new();
    table.right(if request.shared.selects() { SHOWN } else { "%" }, |row| {
        percent(report.value(&row.total, main), whole)
    });
    let value = |figures: &Figures, column| shown(report.value(figures, column), column.unit);
    let header = |column: &costs::Column| format!("{}{}", title(column.name), suffix(column.unit));
    if request.has_totals() {
        table.right(format!("SELF {}", header(main)), move |row| value(&row.own, main));
    }
    for column in columns {
        table.right(header(column), move |row| value(&row.total, column));
    }
    table.left(request.title(), |row| row.names.join(" < "));
    table.write(out, &found.rows)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_measurement_is_a_command() {
        let names = costs::METRICS.map(|metric| metric.name);
        assert_eq!(MEASUREMENTS.map(|measurement| measurement.metric.name).to_vec(), names.to_vec());
    }
}
