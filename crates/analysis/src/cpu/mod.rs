//! Processor time, by two independent measurements: profile samples, which have stacks, and context
//! switches, which are exact.
//!
//! Samples of the idle thread are not work. Samples in deferred procedure calls and interrupt
//! service routines carry the thread that they interrupted; they count for the processes `DPC` and
//! `ISR` instead, with the kernel frames of their stacks.

mod gaps;
mod measured;
pub mod weights;

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_frames::Backing;
use stackhound_pipeline::{EventView, FrameView, Naming, TraceState};
use stackhound_profile::{Full, Grouping, Patterns, Profile, StackId, Sums, ThreadId};
use stackhound_schema::kernel::{hook_id, view as payload};
use stackhound_stacks::StackState;
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{Address, Tid};

use self::gaps::Gaps;
use self::measured::Measured;
use self::weights::{Interval, Processor, USUAL_INTERVAL, Weighing, Weights};
use crate::parts::{Interrupt, Parts};
use crate::repeats::Repeats;
use crate::rows::{Applied, By, ByStack, Row, regroup, rows};
use crate::scheduling::scheduler::{Activity, SchedulerStats, Slice};
use crate::scheduling::{Key, Scheduling};
use crate::slices::Slices;
use crate::stacks::StackUse;
use crate::window::Window;

/// What a processor did when a sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Thread,
    Idle,
    Interrupt(Interrupt),
}

/// A sample that counts. Samples in interrupts have a thread that stands for these.
#[derive(Clone, Copy, Debug)]
struct Sample {
    class: Class,
    thread: ThreadId,
    stack: StackId,
    processor: Processor,
    time: TraceTime,
    known: Known,
}

/// What is known of the stack of a sample, in spite of losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    All,
    /// The innermost frame, which is the sampled instruction.
    Innermost,
    Nothing,
}

/// The sums of samples by what the processors did, in raw ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Classes {
    /// Threads.
    pub threads: Sums,
    /// Idle threads.
    pub idle: Sums,
    /// Deferred procedure calls.
    pub dpc: Sums,
    /// Interrupt service routines.
    pub isr: Sums,
}

impl Classes {
    /// The sum of everything that is work.
    pub fn busy(&self) -> Sums {
        let mut sums = self.threads;
        sums += self.dpc;
        sums += self.isr;
        sums
    }

    fn of(&mut self, class: Class) -> &mut Sums {
        match class {
            Class::Thread => &mut self.threads,
            Class::Idle => &mut self.idle,
            Class::Interrupt(Interrupt::Dpc) => &mut self.dpc,
            Class::Interrupt(Interrupt::Isr) => &mut self.isr,
        }
    }
}

/// The sums of all samples that count.
#[derive(Debug, Default)]
struct Sampled {
    by_stack: ByStack,
    classes: Classes,
    /// Time of samples whose stack is not certain, and whose innermost frame is not either.
    uncertain: (u64, u64),
    slices: Option<Slices<(ThreadId, StackId)>>,
    /// The start of the analyzed part, to which the time of a sample is clipped.
    from: Option<TraceTime>,
    /// The time of the samples of each processor that stand for one interval each.
    nominal: Option<FxHashMap<Processor, u64>>,
}

impl Sampled {
    fn new(window: Window, weighing: Weighing) -> Sampled {
        let nominal = (weighing == Weighing::Nominal).then(FxHashMap::default);
        Sampled { from: window.from, nominal, ..Sampled::default() }
    }

    fn count(&mut self, sample: Option<Sample>, weight: u64) {
        let Some(Sample { class, thread, stack, processor, time, known }) = sample else { return };
        let weight = match (&mut self.nominal, self.from) {
            (Some(nominal), _) => {
                *nominal.entry(processor).or_default() += weight;
                weight
            }
            (None, Some(from)) => weight.min(time.ticks_since(from)),
            (None, None) => weight,
        };
        let sums = Sums::one(weight);
        *self.classes.of(class) += sums;
        if class == Class::Idle {
            return;
        }
        *self.by_stack.entry((thread, stack)).or_default() += sums;
        if let Some(slices) = &mut self.slices {
            slices.add((thread, stack), time, weight);
            let (stacks, innermost) = &mut self.uncertain;
            *stacks = stacks.saturating_add(if known == Known::All { 0 } else { weight });
            *innermost = innermost.saturating_add(if known == Known::Nothing { weight } else { 0 });
        }
    }
}

/// Processor time by context switches, in raw ticks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exact {
    /// Of each thread, without idle threads: its time, and how often it ran.
    pub threads: FxHashMap<ThreadId, Sums>,
    /// Time of idle threads.
    pub idle: u64,
    /// Counters.
    pub stats: SchedulerStats,
}

impl Exact {
    /// The time of all threads but the idle ones.
    pub fn busy(&self) -> u64 {
        self.threads.values().fold(0, |sum, sums| sum.saturating_add(sums.amount))
    }
}

/// The distribution of samples over time, and what may be missing of it.
#[derive(Debug)]
pub struct SlicedSamples {
    /// By thread and stack.
    pub slices: Slices<(ThreadId, StackId)>,
    /// Whether the trace lost records.
    pub is_lossy: bool,
    /// Time without samples in which samples may have been lost, in raw ticks.
    pub lost: u64,
    /// Time of samples whose stack is not certain, because records are missing; in raw ticks.
    pub uncertain_stacks: u64,
    /// The part of it whose innermost frame is not certain either.
    pub uncertain_innermost: u64,
}

/// Maximum number of processors: events state them with 16 bits.
const PROCESSORS_MAX: u32 = 1 << 16;

/// The processor time of a capture.
#[derive(Debug)]
pub struct CpuReport {
    /// The threads and stacks that the sums refer to.
    pub profile: Profile,
    /// The time of samples by thread and stack, in raw ticks.
    pub samples: ByStack,
    /// The distribution of `samples` over time, if it was [requested](Cpu::with_slices).
    pub sliced: Option<SlicedSamples>,
    /// The time of samples by what the processors did, in raw ticks.
    pub classes: Classes,
    /// The number of samples that have no stack: they have the sampled address only.
    pub without_stack: u64,
    /// The sampling interval at the end. `None` without samples, whether they were selected or not.
    pub interval: Option<Interval>,
    /// `None` without context switches.
    pub exact: Option<Exact>,
    /// Records with switches in the compact form, which is not read. With them, exact times are too
    /// small.
    pub compact: u64,
    /// The number of processors.
    pub processors: u32,
    /// The analyzed part of the trace.
    pub window: (TraceTime, TraceTime),
    /// The part of it in which sessions with samples or context switches ran, in raw ticks. With
    /// [`Weighing::Nominal`], at least the time of the samples of one processor.
    pub measured: u64,
    /// Converts raw ticks.
    pub clock: Clock,
}

impl CpuReport {
    /// The processor time that was available: the measured time times the number of processors, in raw
    /// ticks.
    pub fn available(&self) -> u64 {
        self.measured.saturating_mul(self.processors.into())
    }

    /// The measured time in nanoseconds.
    pub fn duration(&self) -> u64 {
        self.nanos(self.measured)
    }

    /// Available time in which the thread of a processor is not known.
    pub fn unknown(&self, exact: &Exact) -> u64 {
        self.available().saturating_sub(exact.busy().saturating_add(exact.idle))
    }

    /// Groups the stacks of the samples. The sums of `classes` remain.
    pub fn regroup(&mut self, patterns: &Patterns, grouping: Grouping) -> Applied {
        let observed = &mut self.samples;
        regroup(&mut self.profile, observed, (patterns, grouping), |key| key.0, |key| &mut key.1)
    }

    /// The rows, those with the most time first.
    pub fn rows(&self, by: By) -> Vec<Row> {
        rows(&self.profile, &self.samples, self.exact.as_ref().map(|exact| &exact.threads), by)
    }

    /// Nanoseconds of raw ticks.
    pub fn nanos(&self, ticks: u64) -> u64 {
        crate::nanos(&self.clock, ticks)
    }
}

/// Measures the processor time of one capture, from events in time order.
#[derive(Debug)]
pub struct Cpu {
    parts: Parts,
    window: Window,
    clock: Clock,
    processors: u32,
    weights: Weights<Option<Sample>>,
    measured: Measured,
    sampled: Sampled,
    without_stack: u64,
    has_samples: bool,
    gaps: Gaps,
    repeats: Repeats,
    scheduling: Scheduling,
    exact: Exact,
}

impl Cpu {
    /// Starts with a capture. `product` names it.
    pub fn new(product: String, trace: &OpenTrace, window: Window, weighing: Weighing) -> Cpu {
        let clock = trace.clock();
        let processors = trace.sources().iter().map(|source| source.etl_file.session().processors).max();
        let usual_interval = u64::try_from(clock.span_to_raw(USUAL_INTERVAL)).unwrap_or(1);
        Cpu {
            parts: Parts::new(product, trace),
            window,
            clock,
            processors: processors.unwrap_or(1).clamp(1, PROCESSORS_MAX),
            weights: Weights::new(weighing, usual_interval),
            measured: Measured::default(),
            sampled: Sampled::new(window, weighing),
            without_stack: 0,
            has_samples: false,
            gaps: Gaps::new(usual_interval),
            repeats: Repeats::of(trace),
            scheduling: Scheduling::default(),
            exact: Exact::default(),
        }
    }

    /// Also keeps the distribution of samples over time. Needs about 300 bytes for each thread with a
    /// stack.
    #[must_use]
    pub fn with_slices(mut self) -> Cpu {
        let shortest = u64::try_from(self.clock.span_to_raw(USUAL_INTERVAL)).unwrap_or(1);
        self.sampled.slices = Some(Slices::new(shortest));
        self
    }

    /// Adds the next event. A sample counts if `wanted` returns true. Every event of the trace must
    /// be passed.
    ///
    /// # Errors
    /// If there are too many different stacks, frames, processes or threads, or the trace is too long.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        self.parts.observe(view)?;
        let (session, now) = (view.event().session_number(), view.time());
        self.measured.record(session, view.kernel_id(), now);
        let before = self.scheduling.stats();
        for slice in self.scheduling.observe(view, &mut self.parts)? {
            self.exact.add(slice, self.window);
        }
        if self.window.contains(now) {
            self.exact.stats.add(before, self.scheduling.stats());
        }
        match view.kernel_id() {
            Some(hook_id::PERF_INFO_SAMPLED_PROFILE | hook_id::PERF_INFO_SAMPLED_PROFILE_NMI) => {
                self.sample(view, wanted)
            }
            Some(
                id @ (hook_id::PERF_INFO_SET_INTERVAL
                | hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_START
                | hook_id::PERF_INFO_SAMPLED_PROFILE_INTERVAL_COLLECTION_END),
            ) => {
                self.set_interval(view, id == hook_id::PERF_INFO_SET_INTERVAL);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn set_interval(&mut self, view: &EventView<'_>, is_change: bool) {
        let record = view.event().record();
        let interval = payload::ProfileInterval::parse(view.payload(), view.version(), record.pointer_size());
        let Some(interval) = interval.ok().filter(|interval| interval.source == 0) else { return };
        let ticks = |units: u32| u64::try_from(self.clock.span_to_raw(units.into())).unwrap_or(0);
        let old = (is_change && interval.old_interval > 0).then(|| ticks(interval.old_interval));
        let new = ticks(interval.new_interval);
        if new > 0 {
            self.weights.set_interval(old, new, |sample, weight| self.sampled.count(sample, weight));
        }
    }

    fn sample(&mut self, view: &EventView<'_>, wanted: impl FnOnce() -> bool) -> Result<(), Full> {
        let record = view.event().record();
        let parsed = payload::SampledProfile::parse(view.payload(), view.version(), record.pointer_size());
        let Ok(parsed) = parsed else { return Ok(()) };
        self.has_samples = true;
        if self.repeats.has(view) {
            return Ok(());
        }
        // A sample that does not count is still the previous one of its processor.
        let is_within = self.window.contains(view.time());
        let processor = (view.event().session_number(), view.processor());
        if let Some(slices) = self.sampled.slices.as_mut().filter(|_| is_within) {
            slices.extend(view.time());
            let start = self.window.within(self.parts.times()).0;
            self.gaps.observe(view, processor, start, self.weights.interval());
        }
        let sample = if is_within && wanted() { Some(self.classified(view, &parsed)?) } else { None };
        let out = |sample, weight| self.sampled.count(sample, weight);
        self.weights.add(processor, view.time(), parsed.count, sample, out);
        Ok(())
    }

    fn classified(&mut self, view: &EventView<'_>, sample: &payload::SampledProfile) -> Result<Sample, Full> {
        let (class, used, (process, thread)) = if let Some(interrupt) = Interrupt::of(sample) {
            (Class::Interrupt(interrupt), StackUse::Interrupt, self.parts.interrupt(interrupt)?)
        } else {
            let class = if sample.thread_id == Tid(0) { Class::Idle } else { Class::Thread };
            (class, StackUse::Sample, self.parts.thread(view, sample.thread_id)?)
        };
        let is_lossless = view.trace_state().losses().is_lossless();
        let is_needed = self.sampled.slices.is_some() && !is_lossless;
        let known = if is_needed { known(view, sample.instruction_pointer) } else { Known::All };
        let Parts { builder, stacks, .. } = &mut self.parts;
        let stack = if view.stack().is_some() {
            stacks.of(view, process, used, builder)?
        } else {
            self.without_stack += u64::from(class != Class::Idle);
            stacks.at(view, sample.instruction_pointer, builder)?
        };
        let processor = (view.event().session_number(), view.processor());
        Ok(Sample { class, thread, stack, processor, time: view.time(), known })
    }

    /// Ends the capture: names its frames, which waits for pending look-ups, and returns the report.
    pub fn finish(mut self, known: &TraceState, naming: Option<&mut Naming>) -> CpuReport {
        self.weights.end(|sample, weight| self.sampled.count(sample, weight));
        let has_switches = self.scheduling.stats().switches > 0;
        let times = self.measured.times(self.window, |session| self.weights.since(session));
        let exact = &mut self.exact;
        self.scheduling.end(known, &mut |slice| exact.add(&slice, self.window), &mut |_| {});
        self.parts.end_capture(known, naming);
        let window = self.window.within(self.parts.times());
        let bounds = match (times.first(), times.last()) {
            (Some((from, _)), Some((_, until))) => (*from, *until),
            _ => window,
        };
        let length = |(from, until): &(TraceTime, TraceTime)| until.ticks_since(*from);
        let measured = match times.is_empty() {
            true => length(&window),
            false => times.iter().map(length).fold(0, u64::saturating_add),
        };
        let nominal = self.sampled.nominal.iter().flat_map(FxHashMap::values).copied().max();
        let (uncertain_stacks, uncertain_innermost) = self.sampled.uncertain;
        let sliced = self.sampled.slices.map(|slices| SlicedSamples {
            slices,
            is_lossy: !known.losses().is_lossless(),
            lost: self.gaps.finish(known.losses(), bounds, self.processors),
            uncertain_stacks,
            uncertain_innermost,
        });
        CpuReport {
            profile: self.parts.builder.finish(),
            samples: self.sampled.by_stack,
            sliced,
            classes: self.sampled.classes,
            without_stack: self.without_stack,
            interval: self.weights.interval().filter(|_| self.has_samples),
            exact: has_switches.then_some(self.exact),
            compact: self.scheduling.compact(),
            processors: self.processors,
            window,
            measured: measured.max(nominal.unwrap_or(0)),
            clock: self.clock,
        }
    }
}

/// What is known of a sample of a trace with losses. A sample without a stack has the sampled
/// instruction.
fn known(view: &EventView<'_>, instruction: Address) -> Known {
    let is_known =
        |frame: FrameView<'_>| frame.address() == instruction && frame.backing() != Backing::Unknown;
    match (view.frames().next(), view.state()) {
        (Some(frame), StackState::Complete) if is_known(frame) => Known::All,
        (Some(frame), _) if is_known(frame) => Known::Innermost,
        _ => Known::Nothing,
    }
}

impl Exact {
    fn add(&mut self, slice: &Slice<Key>, window: Window) {
        let ticks = window.overlap(slice.from, slice.until);
        match (slice.activity, slice.thread) {
            _ if ticks == 0 => {}
            (Activity::Ran, Some(Key::Thread(thread))) => {
                *self.threads.entry(thread).or_default() += Sums::one(ticks);
            }
            (Activity::Ran, Some(Key::Idle(_))) => self.idle = self.idle.saturating_add(ticks),
            _ => {}
        }
    }
}
