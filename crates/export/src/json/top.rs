//! What costs time, as `top` writes it.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::value::Time;

// `M` has the values of all rows together, and `V` those of one row.
/// `top --format json`: what one capture spent, by one measurement. Durations are nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "Top{M}"))]
pub struct Top<'a, M, V> {
    /// What is measured: the name of the command, such as `cpu`, `wait` or `disk`.
    pub metric: &'static str,
    /// How the trace was cut from a larger one, if it was; the first cut first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<Cut>,
    /// What the rows are about: the value of `--by`, such as `process` or `function`.
    pub by: &'a str,
    /// The analyzed part of the trace.
    pub window: Window,
    /// What is known about all rows.
    #[serde(flatten)]
    pub measured: M,
    /// How frames were grouped, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Grouping<'a>>,
    /// The rows, those with the most time first, or with the most in the first column.
    pub rows: Vec<Row<'a, V>>,
}

/// A row: what it is about, and its values.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "{V}"))]
pub struct Row<'a, V> {
    /// The process, module, function, file, reason or other thing. Null for stacks.
    pub name: Option<&'a str>,
    /// The names of the frames of a stack, innermost first, and then its process. Null for others.
    pub stack: Option<&'a [String]>,
    /// Process id, of a process, thread or stack.
    pub pid: Option<u32>,
    /// Thread id, of a thread.
    pub tid: Option<u32>,
    /// What was measured.
    #[serde(flatten)]
    pub values: V,
}

/// `top cpu`: the processor time.
pub type TopCpu<'a> = Top<'a, Cpu, CpuRow>;

/// `top wait` and `top ready`: where threads did not run.
pub type TopWait<'a> = Top<'a, Wait, WaitRow>;

/// `top disk`, `top memory` and other measurements of resources.
pub type TopCosts<'a> = Top<'a, Costs, CostRow>;

/// The processor time of all rows.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Cpu {
    /// Number of processors.
    pub processor_count: u32,
    /// The processor time that was available: the time in which sessions with samples or context
    /// switches ran, within the window, times the number of processors.
    pub available: u64,
    /// Number of samples of threads, deferred procedure calls and interrupt service routines.
    pub samples: u64,
    /// Number of these samples that have no stack: they have only the sampled instruction.
    pub without_stack: u64,
    /// Time of threads, deferred procedure calls and interrupt service routines, by samples.
    pub busy: u64,
    /// Time of idle threads, by samples.
    pub idle: u64,
    /// The part of `busy` in deferred procedure calls.
    pub dpc: u64,
    /// The part of `busy` in interrupt service routines.
    pub isr: u64,
    /// Available time that no sample stands for. Null if samples were filtered.
    pub not_sampled: Option<u64>,
    /// The sampling interval at the end of the window. Null without samples.
    pub interval: Option<Interval>,
    /// Times by context switches. Null without context switches, and if events were filtered.
    pub exact: Option<ExactCpu>,
    /// Number of records of compact context switches, which are not read: exact times are too small.
    pub compact_records: u64,
}

/// How a trace was cut from a larger one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Cut {
    /// The conditions of the events that were selected.
    pub selection: String,
    /// Number of events of the larger trace.
    pub events: u64,
    /// Number of selected events.
    pub selected: u64,
    /// The kinds of events of which the measurement needs all, and some were cut away. If there are
    /// any, the results are not those of the larger trace.
    pub needed: Vec<CutKind>,
}

/// The events of one kind in a trace that was cut from a larger one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CutKind {
    /// The name of the events.
    pub name: String,
    /// Their number in the larger trace.
    pub events: u64,
    /// How many of them are left.
    pub kept: u64,
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Window {
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
    /// Length in nanoseconds.
    pub duration: u64,
}

/// How the frames of stacks were grouped, folded and selected.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Grouping<'a> {
    /// The preset.
    pub preset: Option<&'a str>,
    /// The directories of the programs whose code was kept by `just-my-code`.
    pub own_directories: &'a [String],
    /// The other directories that were listed.
    pub listed_directories: &'a [String],
    /// The options `--group`, in order.
    pub group: &'a [String],
    /// The options `--fold`, in order.
    pub fold: &'a [String],
    /// The options `--exclude`, in order.
    pub exclude: &'a [String],
    /// The options `--include`, in order.
    pub include: &'a [String],
    /// The sum of what was excluded or not included, in the unit of the first value of rows. It is in
    /// no row.
    pub excluded: u64,
}

/// A sampling interval.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Interval {
    /// Length in nanoseconds.
    pub duration: u64,
    /// Whether the trace does not state it, and the usual one is assumed.
    pub is_assumed: bool,
}

/// Processor time by context switches, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ExactCpu {
    /// Time of all threads but the idle ones.
    pub busy: u64,
    /// Time of idle threads.
    pub idle: u64,
    /// Time in which the thread is not known, because records are missing or contradict each other.
    pub unknown: u64,
    /// Number of context switches.
    pub switches: u64,
    /// Number of context switches from a thread that was not known to run.
    pub contradictions: u64,
}

/// The processor time of a row in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CpuRow {
    /// Time of samples with the innermost frame in the row.
    #[serde(rename = "self")]
    pub own: u64,
    /// Time of samples with any frame in the row.
    pub total: u64,
    /// Number of samples with the innermost frame in the row.
    pub samples: u64,
    /// Number of samples with any frame in the row.
    pub total_samples: u64,
    /// Time by context switches, of processes and threads.
    pub exact: Option<u64>,
    /// How often it ran, by context switches.
    pub runs: Option<u64>,
}

/// Where threads did not run.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Wait {
    /// Number of waits, or of times in which a thread was ready to run.
    pub count: u64,
    /// Their length. Times of threads add up, so it can exceed the duration of the window.
    pub total: u64,
    /// Time in which it is not known what threads did, because records are missing.
    pub unknown: u64,
    /// Time that was not over at the end of the trace, because the threads did not run again. It is in
    /// no row.
    pub still_open: u64,
    /// Number of these threads.
    pub still_open_count: u64,
    /// Number of times whose context switch has no stack.
    pub without_stack: u64,
    /// Number of waits without an event that ended them. They contain the time in which the thread
    /// was ready.
    pub not_readied: u64,
    /// Number of context switches.
    pub switches: u64,
    /// Number of context switches from a thread that was not known to run.
    pub contradictions: u64,
    /// Number of records of compact context switches, which are not read.
    pub compact_records: u64,
}

/// How long the threads of a row did not run, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct WaitRow {
    /// Time with the innermost frame in the row.
    #[serde(rename = "self")]
    pub own: u64,
    /// Time with any frame in the row.
    pub total: u64,
    /// Number of times with the innermost frame in the row.
    pub count: u64,
    /// Number of times with any frame in the row.
    pub total_count: u64,
    /// The longest time.
    pub max: u64,
}

/// What one capture spent.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Costs {
    /// The values of rows and of their total, in their usual order. Rows are sorted by the first one.
    pub columns: Vec<CostColumn>,
    /// Number of observed events without a stack.
    pub without_stack: u64,
    /// The sum of all rows, by column; in the column `max`, the largest value.
    pub total: BTreeMap<&'static str, u64>,
    /// What is in no row, or is incomplete in the rows.
    pub remainders: Vec<CostRemainder>,
}

/// A column of a measurement.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CostColumn {
    /// The key of its values.
    pub name: &'static str,
    /// `nanoseconds`, `bytes` or `count`.
    pub unit: &'static str,
}

/// Something that is in no row, or of which the rows lack a part.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CostRemainder {
    /// The reason, as a phrase.
    pub reason: &'static str,
    /// How often it occurred.
    pub count: u64,
    /// The part that is known, in the unit of the first column.
    pub amount: u64,
}

/// What a row spent.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct CostRow {
    /// The values with the innermost frame in the row, by column.
    #[serde(rename = "self")]
    pub own: BTreeMap<&'static str, u64>,
    /// The values with any frame in the row, by column. Only of modules and functions, they differ
    /// from `self`.
    pub total: BTreeMap<&'static str, u64>,
}
