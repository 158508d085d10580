//! Where threads waited, and for how long they were ready to run before they ran.
//!
//! A thread resumes where it waited, so the stack of the context switch that resumes it is the stack
//! of its wait. The wait ends when the thread is made ready; from then on until it runs, it is ready.
//! A thread that was preempted while it ran did not wait, and is ready; so is a new thread before it
//! runs. The last wait of a thread, which does not
//! end within the trace, has no stack: it is a sum of its own.

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventView, Naming, TraceState};
use stackhound_profile::{Full, Profile, StackId, Sums, ThreadId};
use stackhound_trace::{OpenTrace, TraceTime};

use crate::parts::Parts;
use crate::rows::{By, Row, named_rows, rows, thread_name};
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

/// Who made a thread ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum ReadiedBy {
    Thread(ThreadId),
    /// The thread that ran was interrupted by a deferred procedure call.
    Dpc,
    Idle,
    Unknown,
}

/// The waits of a capture, in raw ticks.
#[derive(Debug)]
pub struct WaitReport {
    /// The threads and stacks that the sums refer to.
    pub profile: Profile,
    waits: Vec<((ThreadId, StackId), Sums)>,
    ready: Vec<((ThreadId, StackId), Sums)>,
    causes: Vec<(Cause, Sums)>,
    /// All waits, by thread.
    pub waits_of: FxHashMap<ThreadId, Sums>,
    /// All time in which threads were ready, by thread.
    pub ready_of: FxHashMap<ThreadId, Sums>,
    /// Time in which what a thread did is not known, by thread.
    pub unknown_of: FxHashMap<ThreadId, Sums>,
    open_waits: Sums,
    open_ready: Sums,
    waits_without_stack: u64,
    ready_without_stack: u64,
    /// The number of waits without an event that ended them: the thread was ready for an unknown
    /// part of them.
    pub not_readied: u64,
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
        let of = match measure {
            Measure::Waits => &self.waits_of,
            Measure::Ready => &self.ready_of,
        };
        sum(of)
    }

    /// What was not over at the end of the trace: the threads did not run again. It is in no row.
    pub fn open(&self, measure: Measure) -> Sums {
        match measure {
            Measure::Waits => self.open_waits,
            Measure::Ready => self.open_ready,
        }
    }

    /// The number of times whose switch has no stack.
    pub fn without_stack(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Waits => self.waits_without_stack,
            Measure::Ready => self.ready_without_stack,
        }
    }

    /// Time in which what threads did is not known.
    pub fn unknown(&self) -> Sums {
        sum(&self.unknown_of)
    }

    /// Nanoseconds of raw ticks.
    pub fn nanos(&self, ticks: u64) -> u64 {
        crate::nanos(&self.clock, ticks)
    }

    /// The rows, those with the most time first.
    pub fn rows(&self, measure: Measure, by: WaitBy) -> Vec<Row> {
        let observed = match measure {
            Measure::Waits => &self.waits,
            Measure::Ready => &self.ready,
        };
        let causes = self
            .causes
            .iter()
            .filter(|(cause, _)| matches!(cause.reason, Reason::Wait(_)) == (measure == Measure::Waits));
        match by {
            WaitBy::Waiting(by) => rows(&self.profile, observed, None, by),
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

fn sum(of: &FxHashMap<ThreadId, Sums>) -> Sums {
    of.values().fold(Sums::default(), |mut sum, sums| {
        sum += *sums;
        sum
    })
}

/// The name of a reason; see the map `WaitReason` of the kernel events.
fn reason_name(reason: Reason) -> String {
    match reason {
        Reason::Preempted => "preempted".to_owned(),
        Reason::ReadyToRun => "made ready".to_owned(),
        Reason::Wait(number) => {
            let name =
                stackhound_schema::kernel::map("WaitReason").and_then(|map| map.value_name(number.into()));
            name.map_or_else(|| format!("reason {number}"), str::to_owned)
        }
    }
}

/// Measures the waits of one capture, from events in time order.
#[derive(Debug)]
pub struct Waits {
    parts: Parts,
    window: Window,
    seen: Option<(TraceTime, TraceTime)>,
    scheduling: Scheduling,
    found: Found,
    clock: Clock,
    /// Slices of the current switch; kept for its memory.
    slices: Vec<Slice<Key>>,
}

#[derive(Debug, Default)]
struct Found {
    waits: FxHashMap<(ThreadId, StackId), Sums>,
    ready: FxHashMap<(ThreadId, StackId), Sums>,
    causes: FxHashMap<Cause, Sums>,
    waits_of: FxHashMap<ThreadId, Sums>,
    ready_of: FxHashMap<ThreadId, Sums>,
    unknown_of: FxHashMap<ThreadId, Sums>,
    open_waits: Sums,
    open_ready: Sums,
    waits_without_stack: u64,
    ready_without_stack: u64,
    not_readied: u64,
}

impl Waits {
    /// Starts with a capture. `product` names it.
    pub fn new(product: String, trace: &OpenTrace, window: Window) -> Waits {
        Waits {
            parts: Parts::new(product, trace),
            window,
            seen: None,
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
    /// If there are too many different stacks, frames, processes or threads.
    pub fn observe(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        let now = view.time();
        match &mut self.seen {
            Some((_, last)) => *last = now.max(*last),
            None => {
                self.seen = Some((now, now));
                self.parts.begin(now);
            }
        }
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
            Activity::Waited { reason, readied, .. } => (Reason::Wait(reason), readied),
            Activity::Ready { is_preempted: true } => (Reason::Preempted, None),
            Activity::Ready { is_preempted: false } => (Reason::ReadyToRun, None),
            Activity::Ran => return Ok(()),
            Activity::Unknown => {
                *self.found.unknown_of.entry(thread).or_default() += sums;
                return Ok(());
            }
        };
        let process = self.parts.builder.process_of(thread);
        let is_wait = matches!(reason, Reason::Wait(_));
        let stack = match self.parts.stack_of(view, process)? {
            Some(stack) => stack,
            None => {
                self.found.waits_without_stack += u64::from(is_wait);
                self.found.ready_without_stack += u64::from(!is_wait);
                let frame = self.parts.stacks.remark("no stack", &mut self.parts.builder)?;
                self.parts.builder.stack(None, frame)?
            }
        };
        let found = &mut self.found;
        let cause = Cause { reason, readied: readied.map(readied_by) };
        *found.causes.entry(cause).or_default() += sums;
        found.not_readied += u64::from(is_wait && readied.is_none());
        let (by_stack, by_thread) = if is_wait {
            (&mut found.waits, &mut found.waits_of)
        } else {
            (&mut found.ready, &mut found.ready_of)
        };
        *by_stack.entry((thread, stack)).or_default() += sums;
        *by_thread.entry(thread).or_default() += sums;
        Ok(())
    }

    /// Ends the capture: names its frames, which waits for pending look-ups, and returns the report.
    pub fn finish(mut self, known: &TraceState, naming: Option<&mut Naming>) -> WaitReport {
        let (found, window) = (&mut self.found, self.window);
        self.scheduling.end(known, &mut |_| {}, &mut |slice| {
            let sums = Sums::one(window.overlap(slice.from, slice.until));
            match (slice.activity, slice.thread) {
                _ if sums.amount == 0 => {}
                (Activity::Waited { .. }, _) => found.open_waits += sums,
                (Activity::Ready { .. }, _) => found.open_ready += sums,
                (Activity::Unknown, Some(Key::Thread(thread))) => {
                    *found.unknown_of.entry(thread).or_default() += sums;
                }
                _ => {}
            }
        });
        self.parts.end_capture(known, naming);
        let Found { waits, ready, causes, waits_of, ready_of, unknown_of, .. } = self.found;
        let sorted = |sums: FxHashMap<(ThreadId, StackId), Sums>| {
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_unstable_by_key(|(key, _)| *key);
            sums
        };
        WaitReport {
            profile: self.parts.builder.finish(),
            waits: sorted(waits),
            ready: sorted(ready),
            causes: causes.into_iter().collect(),
            waits_of,
            ready_of,
            unknown_of,
            open_waits: self.found.open_waits,
            open_ready: self.found.open_ready,
            waits_without_stack: self.found.waits_without_stack,
            ready_without_stack: self.found.ready_without_stack,
            not_readied: self.found.not_readied,
            stats: self.scheduling.stats(),
            compact: self.scheduling.compact(),
            window: self.window.within(self.seen.unwrap_or_default()),
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
