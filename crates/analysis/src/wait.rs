//! Where threads waited, and for how long they were ready to run before they ran.
//!
//! A thread resumes where it waited, so the stack of the context switch that resumes it is the stack
//! of its wait. The wait ends when the thread is made ready; from then on until it runs, it is ready.
//! A thread that was preempted while it ran did not wait, and is ready; so is a new thread before it
//! runs. The last wait of a thread, which does not end within the trace, has no stack: it is a sum of
//! its own.

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventView, Naming, TraceState};
use stackhound_profile::{Full, Grouping, Patterns, Profile, Sums, ThreadId};
use stackhound_trace::{OpenTrace, TraceTime};

use crate::parts::Parts;
use crate::rows::{Applied, By, ByStack, Row, named_rows, rekey, rows, thread_name};
use crate::scheduling::scheduler::{Activity, Readied, SchedulerStats, Slice};
use crate::scheduling::{Key, Scheduling};
use crate::window::Window;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Waits.
    Waits,
    /// Time in which threads were ready to run, and did not run.
    Ready,
}

/// What rows are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitBy {
    /// Processes, threads, modules, functions or stacks that waited.
    Waiting(By),
    /// The reasons that the kernel states (`KWAIT_REASON`), or why threads were ready.
    Reason,
    /// The threads that ended the waits.
    ReadyingThread,
}

/// The last part of a wait or of the time in which a thread was ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Cause {
    reason: Reason,
    readied: Option<ReadiedBy>,
}

/// Why a thread did not run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reason {
    /// It waited, with this `KWAIT_REASON`.
    Wait(u8),
    /// It was preempted while it ran.
    Preempted,
    /// Its wait had ended, or it had been started.
    ReadyToRun,
}

impl Reason {
    fn is_wait(self) -> bool {
        matches!(self, Reason::Wait(_))
    }
}

/// Who made a thread ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ReadiedBy {
    Thread(ThreadId),
    /// The thread that ran was interrupted by a deferred procedure call.
    Dpc,
    Idle,
    Unknown,
}

/// The waits of a capture, or the times in which threads were ready, in raw ticks.
#[derive(Debug, Default)]
struct Measured {
    by_stack: ByStack,
    /// What was not over at the end of the trace.
    open: Sums,
    without_stack: u64,
}

/// What was found, in raw ticks.
#[derive(Debug, Default)]
struct Found {
    waits: Measured,
    ready: Measured,
    causes: FxHashMap<Cause, Sums>,
    unknown: Sums,
    not_readied: u64,
}

impl Found {
    fn of(&self, measure: Measure) -> &Measured {
        match measure {
            Measure::Waits => &self.waits,
            Measure::Ready => &self.ready,
        }
    }
}

/// The waits of a capture, in raw ticks.
#[derive(Debug)]
pub struct WaitReport {
    /// The threads and stacks that the sums refer to.
    pub profile: Profile,
    found: Found,
    /// Counters.
    pub stats: SchedulerStats,
    /// Records with switches in the compact form, which is not read.
    pub compact: u64,
    /// The analyzed part of the trace.
    pub window: (TraceTime, TraceTime),
    /// Converts raw ticks.
    pub clock: Clock,
}

impl WaitReport {
    /// The sum of all rows.
    pub fn total(&self, measure: Measure) -> Sums {
        self.found.of(measure).by_stack.values().fold(Sums::default(), |mut sum, sums| {
            sum += *sums;
            sum
        })
    }

    /// What was not over at the end of the trace: the threads did not run again. It is in no row.
    pub fn open(&self, measure: Measure) -> Sums {
        self.found.of(measure).open
    }

    /// The number of times whose switch has no stack.
    pub fn without_stack(&self, measure: Measure) -> u64 {
        self.found.of(measure).without_stack
    }

    /// The number of waits without an event that ended them: the thread was ready for an unknown part
    /// of them.
    pub fn not_readied(&self) -> u64 {
        self.found.not_readied
    }

    /// Time in which what threads did is not known.
    pub fn unknown(&self) -> Sums {
        self.found.unknown
    }

    /// Nanoseconds of raw ticks.
    pub fn nanos(&self, ticks: u64) -> u64 {
        crate::nanos(&self.clock, ticks)
    }

    /// What was observed, by thread and stack.
    pub fn observed(&self, measure: Measure) -> &ByStack {
        &self.found.of(measure).by_stack
    }

    /// Groups the stacks of the switches that ended waits, and of those after which threads ran. Reasons
    /// and readying threads have no stacks. Returns what was left out of `measure`.
    pub fn regroup(&mut self, measure: Measure, patterns: &Patterns, grouping: Grouping) -> Applied {
        let threads = self.observed(measure).keys().map(|key| key.0);
        let regrouped = patterns.regroup(&self.profile, threads, grouping);
        let Found { waits, ready, .. } = &mut self.found;
        let [waits, ready] =
            [waits, ready].map(|measured| rekey(&mut measured.by_stack, &regrouped, |key| &mut key.1));
        let excluded = if measure == Measure::Waits { waits } else { ready };
        let own_directories = regrouped.own_directories.clone();
        self.profile.replace_stacks(regrouped);
        Applied { excluded, own_directories }
    }

    /// The rows, those with the most time first.
    pub fn rows(&self, measure: Measure, by: WaitBy) -> Vec<Row> {
        let is_wait = measure == Measure::Waits;
        let causes = self.found.causes.iter().filter(|(cause, _)| cause.reason.is_wait() == is_wait);
        match by {
            WaitBy::Waiting(by) => rows(&self.profile, &self.found.of(measure).by_stack, None, by),
            WaitBy::Reason => named_rows(causes.map(|(cause, sums)| (reason_name(cause.reason), *sums))),
            WaitBy::ReadyingThread => {
                named_rows(causes.map(|(cause, sums)| (self.readied_name(cause), *sums)))
            }
        }
    }

    fn readied_name(&self, cause: &Cause) -> String {
        match (cause.readied, cause.reason) {
            (Some(ReadiedBy::Thread(thread)), _) => thread_name(&self.profile, thread),
            (Some(ReadiedBy::Dpc), _) => "a deferred procedure call".to_owned(),
            (Some(ReadiedBy::Idle), _) => "an idle processor".to_owned(),
            (Some(ReadiedBy::Unknown), _) => "a thread that is not known".to_owned(),
            (None, Reason::Preempted) => "none: preempted".to_owned(),
            (None, _) => "no event".to_owned(),
        }
    }
}

/// The name of a reason; see the map `WaitReason` of the kernel events.
fn reason_name(reason: Reason) -> String {
    match reason {
        Reason::Preempted => "preempted".to_owned(),
        Reason::ReadyToRun => "made ready".to_owned(),
        Reason::Wait(number) => wait_reason(number),
    }
}

/// The name of a `KWAIT_REASON`.
pub fn wait_reason(number: u8) -> String {
    let name = stackhound_schema::kernel::map("WaitReason").and_then(|map| map.value_name(number.into()));
    name.map_or_else(|| format!("reason {number}"), str::to_owned)
}

/// Measures the waits of one capture, from events in time order.
#[derive(Debug)]
pub struct Waits {
    parts: Parts,
    window: Window,
    scheduling: Scheduling,
    found: Found,
    clock: Clock,
    /// Slices of the current switch; kept for its memory.
    slices: Vec<Slice<Key>>,
}

impl Waits {
    /// Starts with a capture. `product` names it.
    pub fn new(product: String, trace: &OpenTrace, window: Window) -> Waits {
        Waits {
            parts: Parts::new(product, trace),
            window,
            scheduling: Scheduling::default(),
            found: Found::default(),
            clock: trace.clock(),
            slices: Vec::new(),
        }
    }

    /// Adds the next event. What a switch ends counts if `wanted` returns true for it. Every event of
    /// the trace must be passed.
    ///
    /// # Errors
    /// If there are too many different stacks, frames, processes or threads, or the trace is too long.
    pub fn observe(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        self.parts.observe(view)?;
        self.slices.clear();
        let off =
            self.scheduling.observe(view, &mut self.parts)?.iter().filter(|slice| slice.processor.is_none());
        self.slices.extend(off);
        if self.slices.is_empty() || !wanted() {
            return Ok(());
        }
        for index in 0..self.slices.len() {
            let slice = self.slices[index];
            self.add(view, &slice)?;
        }
        Ok(())
    }

    /// Adds what the new thread of a switch did before.
    fn add(&mut self, view: &EventView<'_>, slice: &Slice<Key>) -> Result<(), Full> {
        let ticks = self.window.overlap(slice.from, slice.until);
        let Some(Key::Thread(thread)) = slice.thread.filter(|_| ticks > 0) else { return Ok(()) };
        let sums = Sums::one(ticks);
        let (reason, readied) = match slice.activity {
            Activity::Waited { reason, readied } => (Reason::Wait(reason), readied),
            Activity::Ready { is_preempted: true } => (Reason::Preempted, None),
            Activity::Ready { is_preempted: false } => (Reason::ReadyToRun, None),
            Activity::Ran => return Ok(()),
            Activity::Unknown => {
                self.found.unknown += sums;
                return Ok(());
            }
        };
        let process = self.parts.builder.process_of(thread);
        let found = &mut self.found;
        let measured = if reason.is_wait() { &mut found.waits } else { &mut found.ready };
        let stack = match self.parts.stack_of(view, process)? {
            Some(stack) => stack,
            None => {
                measured.without_stack += 1;
                let frame = self.parts.stacks.remark("no stack", &mut self.parts.builder)?;
                self.parts.builder.stack(None, frame)?
            }
        };
        *measured.by_stack.entry((thread, stack)).or_default() += sums;
        let cause = Cause { reason, readied: readied.map(readied_by) };
        *found.causes.entry(cause).or_default() += sums;
        found.not_readied += u64::from(reason.is_wait() && readied.is_none());
        Ok(())
    }

    /// Ends the capture: names its frames, which waits for pending look-ups, and returns the report.
    pub fn finish(mut self, known: &TraceState, naming: Option<&mut Naming>) -> WaitReport {
        let (found, window) = (&mut self.found, self.window);
        self.scheduling.end(known, &mut |_| {}, &mut |slice| {
            let sums = Sums::one(window.overlap(slice.from, slice.until));
            match slice.activity {
                _ if sums.amount == 0 => {}
                Activity::Waited { .. } => found.waits.open += sums,
                Activity::Ready { .. } => found.ready.open += sums,
                Activity::Unknown => found.unknown += sums,
                Activity::Ran => {}
            }
        });
        self.parts.end_capture(known, naming);
        let window = self.window.within(self.parts.times());
        WaitReport {
            profile: self.parts.builder.finish(),
            found: self.found,
            stats: self.scheduling.stats(),
            compact: self.scheduling.compact(),
            window,
            clock: self.clock,
        }
    }
}

fn readied_by(readied: Readied<Key>) -> ReadiedBy {
    match readied.by {
        // The thread is innocent: it was interrupted.
        _ if readied.in_dpc => ReadiedBy::Dpc,
        Some(Key::Thread(thread)) => ReadiedBy::Thread(thread),
        Some(Key::Idle(_)) => ReadiedBy::Idle,
        None => ReadiedBy::Unknown,
    }
}
