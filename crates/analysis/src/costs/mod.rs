//! What a trace spent on a resource: interrupts, system calls, disks, files, faults, the network,
//! memory, garbage collections and JIT compilation.
//!
//! A measurement ([`Metric`]) has named columns. Its observations are added up by thread, stack and
//! the measurement's own dimensions, such as files. This module keeps the sums; each measurement is
//! a module that converts events to observations.
//!
//! What is known to be incomplete, such as a transfer without its start, is a [`Remainder`] that is
//! shown in addition to the rows and never distributed over them.

mod collection;
mod disk;
mod fault;
mod file;
mod interrupt;
mod jit;
mod memory;
mod network;
mod system_call;

use std::fmt::Debug;
use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventView, Naming, TraceState};
use stackhound_profile::{Full, Grouping, Patterns, ProcessId, Profile, StackId, Sums, ThreadId};
use stackhound_schema::provider_guid;
use stackhound_trace::{OpenTrace, TimeBase, TraceTime};
use stackhound_types::RawTime;

use crate::fields;
use crate::gc::Collections;
use crate::labels::{Label, Labels};
use crate::parts::Parts;
use crate::repeats::Repeats;
use crate::rows::{Amount, Applied, By, ByStack, Row, named_rows, regroup, rows};
use crate::window::Window;

/// Maximum number of columns of a measurement.
pub const COLUMNS_MAX: usize = 10;
/// The column that contains the largest value, not a sum.
const MAX: usize = COLUMNS_MAX - 1;
/// Maximum number of operations that have begun and not ended. Beyond that, all are forgotten.
const OPEN_MAX: usize = 1 << 16;
/// Maximum number of a measurement's own dimensions.
const DIMENSIONS_MAX: usize = 2;
/// The longest time that something can have lasted before the first event of the trace, in seconds.
const EARLIER_MAX: u64 = 3600;

/// The values of a row, in raw ticks, bytes or numbers: see [`Metric::columns`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures([u64; COLUMNS_MAX]);

impl Figures {
    fn with(mut self, column: usize, value: u64) -> Figures {
        self.0[column] = value;
        self
    }

    /// A duration: the sum of durations is the first column.
    fn lasting(ticks: u64) -> Figures {
        Figures::default().with(0, ticks).with(MAX, ticks)
    }

    /// The value of a column.
    pub fn of(&self, column: &Column) -> u64 {
        self.0[column.index]
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Figures) {
        for (index, (sum, value)) in self.0.iter_mut().zip(other.0).enumerate() {
            *sum = if index == MAX { value.max(*sum) } else { sum.saturating_add(value) };
        }
    }
}

impl Amount for Figures {
    fn amount(self) -> u64 {
        self.0[0]
    }
}

/// The unit of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A duration in raw ticks.
    Ticks,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
}

impl Unit {
    /// The name in output, in which durations are nanoseconds.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ticks => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        }
    }
}

/// A column of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// The name in output, in snake case.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    index: usize,
}

const fn ticks(name: &'static str, index: usize) -> Column {
    Column { name, unit: Unit::Ticks, index }
}

const fn bytes(name: &'static str, index: usize) -> Column {
    Column { name, unit: Unit::Bytes, index }
}

const fn count(name: &'static str, index: usize) -> Column {
    Column { name, unit: Unit::Count, index }
}

impl Column {
    /// Whether the column contains the largest value, not a sum.
    pub fn is_max(&self) -> bool {
        self.index == MAX
    }
}

/// A measurement.
#[derive(Debug)]
pub struct Metric {
    /// The name in output.
    pub name: &'static str,
    /// The columns. Rows are sorted by the first one, then by the next ones.
    pub columns: &'static [Column],
    /// Its own dimensions, by name.
    pub dimensions: &'static [&'static str],
    start: fn() -> Box<dyn Measure>,
}

/// Declares the measurements: a constant for each, with its module, and the list of all.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $metric:ident = $module:ident,)+) => {
        $($(#[doc = $doc])+ pub const $metric: Metric = $module::METRIC;)+

        /// All measurements.
        pub const METRICS: [Metric; [$(stringify!($metric)),+].len()] = [$($metric),+];
    };
}

metrics! {
    /// Time in interrupt service routines and deferred procedure calls.
    INTERRUPT = interrupt,
    /// System calls.
    SYSTEM_CALL = system_call,
    /// Transfers of disks.
    DISK = disk,
    /// Operations of file systems.
    FILE = file,
    /// Page faults.
    FAULT = fault,
    /// Bytes that were sent and received.
    NETWORK = network,
    /// Committed memory.
    MEMORY = memory,
    /// Garbage collections of .NET.
    GC = collection,
    /// Compiled methods of .NET.
    JIT = jit,
}

/// Whether a kernel event begins an operation of a file system.
pub(crate) fn is_file_operation(hook_id: u16) -> bool {
    file::is_operation(hook_id)
}

/// Whether an event of the .NET runtime is about a garbage collection or a compiled method.
pub(crate) fn is_of_runtime(view: &EventView<'_>) -> bool {
    let id = view.id();
    view.kernel_id().is_none()
        && (Collections::reads(id) || jit::reads(id))
        && view.event().guid() == Some(provider_guid::DOT_NET_RUNTIME)
}

/// Converts the events of a capture to observations.
trait Measure: Debug {
    /// Observes the next event. What it describes counts if `wanted` returns true.
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full>;

    /// Ends the capture.
    fn end(&mut self, _out: &mut Observations) {}
}

/// What rows are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostBy {
    /// Processes, threads, modules, functions or stacks.
    Actor(By),
    /// The measurement's own dimension with this index.
    Own(usize),
}

/// Who an observation belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Key {
    thread: ThreadId,
    stack: StackId,
    labels: [Label; DIMENSIONS_MAX],
}

/// Something that is in no row, or of which the rows lack a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remainder {
    /// The reason, as a phrase in plural form.
    pub reason: &'static str,
    /// How often it occurred, and the amount that is known, in the unit of the first column.
    pub sums: Sums,
}

/// The sums of a capture.
#[derive(Debug)]
struct Observations {
    parts: Parts,
    window: Window,
    /// The clock of trace time.
    clock: Clock,
    repeats: Repeats,
    /// Whether records of the trace may be missing. Known at the end.
    is_lossy: bool,
    by: FxHashMap<Key, Figures>,
    labels: Labels,
    remainders: Vec<Remainder>,
    /// Number of events that the measurement is based on.
    events: u64,
    without_stack: u64,
}

impl Observations {
    /// Whether another session recorded the same event. Must be called once for each event that a
    /// measurement uses.
    fn is_repeated(&mut self, view: &EventView<'_>) -> bool {
        let is_repeated = self.repeats.has(view);
        if is_repeated && self.window.contains(view.time()) {
            self.remain("events that another session also recorded: counted once", 0);
        }
        is_repeated
    }

    /// The trace time of a raw time in the payload of an event.
    fn trace_time(&self, view: &EventView<'_>, raw: RawTime) -> TraceTime {
        TimeBase::between(view.event().block().session().clock(), self.clock).trace_time(raw)
    }

    /// Whether something that an event describes can have started then: not after the event, and not
    /// long before the first event of the trace.
    fn can_start(&self, from: TraceTime, now: TraceTime) -> bool {
        let earlier = self.clock.ticks_per_second().saturating_mul(EARLIER_MAX);
        from <= now && from.0 >= self.parts.times().0.0.saturating_sub_unsigned(earlier)
    }

    fn add(&mut self, key: Key, figures: Figures) {
        if figures != Figures::default() {
            *self.by.entry(key).or_default() += figures;
        }
    }

    fn remain(&mut self, reason: &'static str, amount: u64) {
        let sums = Sums::one(amount);
        match self.remainders.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.sums += sums,
            None => self.remainders.push(Remainder { reason, sums }),
        }
    }

    /// The label of a text. Costs a look-up by text: callers keep the labels of what they see often.
    fn label(&mut self, text: &str) -> Label {
        self.labels.label(text)
    }

    /// The thread of an event, and its stack.
    fn actor(&mut self, view: &EventView<'_>) -> Result<(ThreadId, StackId), Full> {
        let (process, thread) = self.parts.thread_of(view)?;
        Ok((thread, self.stack(view, process)?))
    }

    /// The stack of an event, or a remark that it has none.
    fn stack(&mut self, view: &EventView<'_>, process: ProcessId) -> Result<StackId, Full> {
        if let Some(stack) = self.parts.stack_of(view, process)? {
            return Ok(stack);
        }
        self.without_stack += u64::from(self.window.contains(view.time()));
        self.no_stack()
    }

    fn no_stack(&mut self) -> Result<StackId, Full> {
        let frame = self.parts.stacks.remark("no stack", &mut self.parts.builder)?;
        self.parts.builder.stack(None, frame)
    }
}

/// Measures one capture, from events in time order.
#[derive(Debug)]
pub struct Costs {
    metric: &'static Metric,
    measure: Box<dyn Measure>,
    out: Observations,
}

impl Costs {
    /// Starts with a capture. `product` names it.
    pub fn new(metric: &'static Metric, product: String, trace: &OpenTrace, window: Window) -> Costs {
        let out = Observations {
            parts: Parts::new(product, trace),
            window,
            clock: trace.clock(),
            repeats: Repeats::of(trace),
            is_lossy: false,
            by: FxHashMap::default(),
            labels: Labels::default(),
            remainders: Vec::new(),
            events: 0,
            without_stack: 0,
        };
        Costs { metric, measure: (metric.start)(), out }
    }

    /// Adds the next event. What it describes counts if `wanted` returns true for it. Every event of
    /// the trace must be passed.
    ///
    /// # Errors
    /// If there are too many different stacks, frames, processes or threads.
    pub fn observe(&mut self, view: &EventView<'_>, mut wanted: impl FnMut() -> bool) -> Result<(), Full> {
        self.out.parts.observe(view)?;
        self.measure.observe(view, &mut self.out, &mut wanted)
    }

    /// Ends the capture: names its frames, which waits for pending look-ups, and returns the report.
    pub fn finish(mut self, known: &TraceState, naming: Option<&mut Naming>) -> CostReport {
        self.out.is_lossy = !known.losses().is_lossless();
        self.measure.end(&mut self.out);
        let out = &mut self.out;
        out.parts.end_capture(known, naming);
        out.remainders.sort_by_key(|remainder| remainder.reason);
        let window = out.window.within(out.parts.times());
        CostReport {
            metric: self.metric,
            profile: self.out.parts.builder.finish(),
            by: self.out.by,
            labels: self.out.labels.into_texts(),
            remainders: self.out.remainders,
            events: self.out.events,
            without_stack: self.out.without_stack,
            window,
            clock: self.out.clock,
        }
    }
}

/// What a capture spent.
#[derive(Debug)]
pub struct CostReport {
    /// The measurement.
    pub metric: &'static Metric,
    /// The threads and stacks that the sums refer to.
    pub profile: Profile,
    by: FxHashMap<Key, Figures>,
    labels: Vec<String>,
    /// What the rows lack.
    pub remainders: Vec<Remainder>,
    /// The number of events that the measurement is based on, in the whole trace.
    pub events: u64,
    /// The number of events in the analyzed part that count and have no stack.
    pub without_stack: u64,
    /// The analyzed part of the trace.
    pub window: (TraceTime, TraceTime),
    /// Converts raw ticks.
    pub clock: Clock,
}

impl CostReport {
    /// The sums of all observations.
    pub fn total(&self) -> Figures {
        self.by.values().fold(Figures::default(), |mut sum, figures| {
            sum += *figures;
            sum
        })
    }

    /// The value of a column. Durations are nanoseconds.
    pub fn value(&self, figures: &Figures, column: &Column) -> u64 {
        self.converted(figures.of(column), column.unit)
    }

    /// The amount of a remainder, in the unit of the first column. Durations are nanoseconds.
    pub fn amount(&self, amount: u64) -> u64 {
        self.metric.columns.first().map_or(amount, |main| self.converted(amount, main.unit))
    }

    fn converted(&self, value: u64, unit: Unit) -> u64 {
        match unit {
            Unit::Ticks => crate::nanos(&self.clock, value),
            Unit::Bytes | Unit::Count => value,
        }
    }

    /// Sorts rows with the same value in the first column by the other ones.
    fn sorted(&self, mut rows: Vec<Row<Figures>>) -> Vec<Row<Figures>> {
        let columns = self.metric.columns.iter();
        let figures = |row: &Row<Figures>| {
            columns.clone().flat_map(|column| [row.own.of(column), row.total.of(column)]).collect::<Vec<_>>()
        };
        rows.sort_by_cached_key(|row| std::cmp::Reverse(figures(row)));
        rows
    }

    /// The rows, those with the most in the first column first; if that is equal, in the next ones.
    pub fn rows(&self, by: CostBy) -> Vec<Row<Figures>> {
        let by = match by {
            CostBy::Actor(by) => by,
            CostBy::Own(index) => {
                let mut sums: FxHashMap<Label, Figures> = FxHashMap::default();
                for (key, figures) in &self.by {
                    *sums.entry(key.labels[index]).or_default() += *figures;
                }
                let name = |label: Label| self.labels.get(label.0 as usize).cloned().unwrap_or_default();
                return self
                    .sorted(named_rows(sums.into_iter().map(|(label, figures)| (name(label), figures))));
            }
        };
        self.sorted(rows(&self.profile, &self.observed(), None, by))
    }

    /// What was observed, by thread and stack.
    pub fn observed(&self) -> ByStack<Figures> {
        let mut observed: ByStack<Figures> = FxHashMap::default();
        for (key, figures) in &self.by {
            *observed.entry((key.thread, key.stack)).or_default() += *figures;
        }
        observed
    }

    /// Groups the stacks of what was observed. Remainders have no stacks.
    pub fn regroup(&mut self, patterns: &Patterns, grouping: Grouping) -> Applied<Figures> {
        let observed = &mut self.by;
        regroup(&mut self.profile, observed, (patterns, grouping), |key| key.thread, |key| &mut key.stack)
    }
}

/// The label of the file that an event is about.
fn file_label(view: &EventView<'_>, out: &mut Observations) -> Label {
    out.label(&fields::file_name(view))
}
