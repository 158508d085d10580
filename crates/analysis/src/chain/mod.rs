//! The critical path of a thread: what it waited for, and who worked in this time.
//!
//! The parts of the lives of all threads are kept until the end of the capture, because the path is
//! followed back in time, from the end of the analyzed part or of the thread. Of longer traces, the
//! last [`TILES_MAX`] parts and [`SAMPLES_MAX`] samples are kept: the time before them is not known.
//!
//! A wait that a deferred procedure call ended is not followed: the interrupted thread did nothing
//! for it. It waited for a disk if a transfer that it had requested was completed in the wait, on the
//! processor that ended it; for a timer if it was a delay, or if the stack of the deferred procedure
//! call has the routine of expired timers. The events of other devices do not say which thread waits.
//!
//! The algorithm is in [`path`].

pub mod path;

use rustc_hash::FxHashMap;
use stackhound_etl::Clock;
use stackhound_pipeline::{EventView, Naming, TraceState};
use stackhound_profile::{Full, Profile, StackId, ThreadId};
use stackhound_schema::kernel::{hook_id, is_disk_completion, view as payload};
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{FileTime, RawTime, Tid};

use self::path::{End, Lives, Path, Segment, State, Tile};
use crate::fields;
use crate::labels::{Label, Labels};
use crate::parts::{Interrupt, Parts};
use crate::scheduling::scheduler::{Activity, Processor, Readied, SchedulerStats, Slice};
use crate::scheduling::{Key, Scheduling};
use crate::stacks::StackUse;
use crate::window::Window;

/// The limit of parts of lives: 48 bytes each.
pub const TILES_MAX: usize = 1 << 22;
/// The limit of samples: 16 bytes each.
pub const SAMPLES_MAX: usize = 1 << 22;

/// The reasons `DelayExecution` and `WrDelayExecution` of the kernel: only a timer ends such a wait, or
/// an alert, which is the work of a thread.
const DELAYS: [u8; 2] = [4, 11];

/// Parts of the names of kernel routines that run when timers expire.
const TIMER_ROUTINES: [&str; 2] = ["TimerExpiration", "ExpiredTimer"];

/// The critical path of a thread in one capture, in raw ticks.
#[derive(Debug)]
pub struct ChainReport {
    /// The threads and stacks that the path refers to.
    pub profile: Profile,
    /// The path; `None` if no switch of the thread is in the window.
    pub found: Option<Found>,
    /// Counters.
    pub stats: SchedulerStats,
    /// Records with switches in the compact form, which is not read.
    pub compact: u64,
    /// The analyzed part of the trace.
    pub window: (TraceTime, TraceTime),
    /// Whether the trace has samples of a timer.
    pub has_samples: bool,
    /// Converts raw ticks.
    pub clock: Clock,
    start: FileTime,
    labels: Vec<String>,
    samples: Vec<Sample>,
}

/// The path of a thread.
#[derive(Debug)]
pub struct Found {
    /// The thread.
    pub thread: ThreadId,
    /// How many other threads had the id in the window before.
    pub earlier: usize,
    /// The analyzed part of its life.
    pub window: (TraceTime, TraceTime),
    /// The path in this part.
    pub path: Path<ThreadId>,
}

/// A sample of a running thread.
#[derive(Clone, Copy, Debug)]
struct Sample {
    thread: ThreadId,
    stack: StackId,
    time: TraceTime,
}

impl ChainReport {
    /// Nanoseconds of raw ticks.
    pub fn nanos(&self, ticks: u64) -> u64 {
        crate::nanos(&self.clock, ticks)
    }

    /// Nanoseconds since the start of the trace.
    pub fn since_start(&self, time: TraceTime) -> u64 {
        let units = self.clock.to_file_time(RawTime(time.0)).0.saturating_sub(self.start.0);
        u64::try_from(units).unwrap_or(0).saturating_mul(100)
    }

    /// A text.
    pub fn label(&self, label: Label) -> &str {
        &self.labels[label.0 as usize]
    }

    /// The samples of the thread in a segment: their number, and the stack that most of them have.
    pub fn samples(&self, segment: &Segment<ThreadId>) -> Option<(usize, StackId)> {
        let start = |time| {
            self.samples.partition_point(|sample| (sample.thread, sample.time) < (segment.thread, time))
        };
        let samples = &self.samples[start(segment.from)..start(segment.until)];
        let mut counts: FxHashMap<StackId, usize> = FxHashMap::default();
        for sample in samples {
            *counts.entry(sample.stack).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|&(stack, count)| (count, std::cmp::Reverse(stack)));
        most.map(|(stack, _)| (samples.len(), stack))
    }
}

/// What is known about the end of a wait before it is known when it began.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    stack: Option<StackId>,
    /// The completion of a transfer that the thread had requested.
    transfer: Option<Transfer>,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    time: TraceTime,
    processor: Processor,
    file: Label,
}

/// Follows the threads of one capture, from events in time order.
#[derive(Debug)]
pub struct Chain {
    tid: Tid,
    parts: Parts,
    window: Window,
    scheduling: Scheduling,
    tiles: Vec<Tile<ThreadId>>,
    samples: Vec<Sample>,
    /// Before this time, tiles were dropped.
    kept_since: TraceTime,
    has_samples: bool,
    started: FxHashMap<ThreadId, TraceTime>,
    ended: FxHashMap<ThreadId, TraceTime>,
    /// By the thread that waited.
    waits: FxHashMap<Tid, Ended>,
    /// The last completed transfer of each thread.
    transfers: FxHashMap<Tid, Transfer>,
    labels: Labels,
    clock: Clock,
    tiles_max: usize,
    /// Slices of the current event; kept for its memory.
    slices: Vec<Slice<Key>>,
}

impl Chain {
    /// Starts with a capture. `product` names it, `tid` is the thread whose path is followed.
    pub fn new(product: String, trace: &OpenTrace, window: Window, tid: Tid) -> Chain {
        Chain {
            tid,
            parts: Parts::new(product, trace),
            window,
            scheduling: Scheduling::default(),
            tiles: Vec::new(),
            samples: Vec::new(),
            kept_since: TraceTime(i64::MIN),
            has_samples: false,
            started: FxHashMap::default(),
            ended: FxHashMap::default(),
            waits: FxHashMap::default(),
            transfers: FxHashMap::default(),
            labels: Labels::default(),
            clock: trace.clock(),
            tiles_max: TILES_MAX,
            slices: Vec::new(),
        }
    }

    /// Keeps another number of parts of lives.
    #[must_use]
    pub fn keeping(self, tiles_max: usize) -> Chain {
        Chain { tiles_max: tiles_max.max(2), ..self }
    }

    /// Adds the next event. Every event of the trace must be passed.
    ///
    /// # Errors
    /// If there are too many different stacks, frames, processes or threads, or the trace is too long.
    pub fn observe(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        self.parts.observe(view)?;
        self.slices.clear();
        self.slices.extend_from_slice(self.scheduling.observe(view, &mut self.parts)?);
        for index in 0..self.slices.len() {
            let slice = self.slices[index];
            self.add(&slice, Some(view))?;
        }
        match view.kernel_id() {
            Some(hook_id::THREAD_C_SWITCH) => self.forget(view),
            Some(hook_id::THREAD_READY_THREAD) => self.ready(view)?,
            Some(id @ (hook_id::THREAD_START | hook_id::THREAD_END)) => self.lifetime(view, id)?,
            Some(id) if is_disk_completion(id) => self.transfer(view),
            Some(hook_id::PERF_INFO_SAMPLED_PROFILE) => self.sample(view)?,
            _ => {}
        }
        Ok(())
    }

    /// Adds a part of the life of a thread. `view` is the event with which it became known; at the end
    /// of the trace, there is none.
    fn add(&mut self, slice: &Slice<Key>, view: Option<&EventView<'_>>) -> Result<(), Full> {
        let counts = self.window.overlap(slice.from, slice.until) > 0;
        let Some(Key::Thread(thread)) = slice.thread.filter(|_| counts) else { return Ok(()) };
        let is_off = slice.processor.is_none();
        let stack = match view {
            Some(view) if is_off && slice.activity != Activity::Unknown => {
                let process = self.parts.builder.process_of(thread);
                self.parts.stack_of(view, process)?
            }
            _ => None,
        };
        let mut ready_stack = None;
        let state = match slice.activity {
            Activity::Ran => State::Running,
            Activity::Ready { is_preempted } => State::Ready { is_preempted },
            Activity::Waited { reason, readied: None } if view.is_none() => {
                State::Waiting(reason, End::StillOpen)
            }
            Activity::Waited { reason, readied: None } => State::Waiting(reason, End::NoEvent),
            Activity::Waited { reason, readied: Some(readied) } => {
                let tid = self.parts.builder.tid(thread).map(Tid);
                let ended = tid.and_then(|tid| self.waits.get(&tid)).copied().unwrap_or_default();
                ready_stack = ended.stack;
                let transfer = ended.transfer.filter(|transfer| transfer.time >= slice.from);
                State::Waiting(reason, end(reason, readied, transfer))
            }
            Activity::Unknown => State::Unknown,
        };
        if self.tiles.len() >= self.tiles_max {
            // The later half, by the time at which they became known.
            self.tiles.drain(..self.tiles_max / 2).for_each(|tile| {
                self.kept_since = self.kept_since.max(tile.until);
            });
        }
        self.tiles.push(Tile { thread, from: slice.from, until: slice.until, state, stack, ready_stack });
        Ok(())
    }

    /// The new thread of a switch waits no more.
    fn forget(&mut self, view: &EventView<'_>) {
        let pointer_size = view.event().record().pointer_size();
        if let Ok(parsed) = payload::CSwitch::parse(view.payload(), view.version(), pointer_size) {
            self.waits.remove(&parsed.new_thread_id);
        }
    }

    fn ready(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        let Some(Key::Thread(thread)) = self.scheduling.readied() else { return Ok(()) };
        let Some(tid) = self.parts.builder.tid(thread).map(Tid) else { return Ok(()) };
        let (process, _) = self.parts.thread_of(view)?;
        let stack = self.parts.stack_of(view, process)?;
        let transfer = self.transfers.remove(&tid).filter(|of| of.processor == view.processor());
        self.waits.insert(tid, Ended { stack, transfer });
        Ok(())
    }

    fn lifetime(&mut self, view: &EventView<'_>, id: u16) -> Result<(), Full> {
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::Thread::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let (_, thread) = self.parts.thread(view, parsed.thread_id)?;
        let times = if id == hook_id::THREAD_START { &mut self.started } else { &mut self.ended };
        times.entry(thread).or_insert(view.time());
        Ok(())
    }

    fn transfer(&mut self, view: &EventView<'_>) {
        let Some(tid) = fields::tid(view, "IssuingThreadId") else { return };
        let path = view.file_path();
        let file = self.labels.label(path.as_deref().unwrap_or_default());
        let transfer = Transfer { time: view.time(), processor: view.processor(), file };
        self.transfers.insert(tid, transfer);
    }

    fn sample(&mut self, view: &EventView<'_>) -> Result<(), Full> {
        self.has_samples = true;
        let pointer_size = view.event().record().pointer_size();
        let parsed = payload::SampledProfile::parse(view.payload(), view.version(), pointer_size);
        let Ok(parsed) = parsed else { return Ok(()) };
        let is_of_thread = parsed.thread_id != Tid(0) && Interrupt::of(&parsed).is_none();
        if !is_of_thread || view.stack().is_none() || !self.window.contains(view.time()) {
            return Ok(());
        }
        let (process, thread) = self.parts.thread(view, parsed.thread_id)?;
        let stack = self.parts.stacks.of(view, process, StackUse::Sample, &mut self.parts.builder)?;
        if self.samples.len() >= SAMPLES_MAX {
            self.samples.drain(..SAMPLES_MAX / 2);
        }
        self.samples.push(Sample { thread, stack, time: view.time() });
        Ok(())
    }

    /// Ends the capture: names its frames, which waits for pending look-ups, and follows the path.
    ///
    /// # Errors
    /// If there are too many different threads.
    pub fn finish(mut self, known: &TraceState, naming: Option<&mut Naming>) -> Result<ChainReport, Full> {
        let (mut last, mut open) = (Vec::new(), Vec::new());
        self.scheduling.end(known, &mut |slice| last.push(slice), &mut |slice| open.push(slice));
        for slice in &mut open {
            // The thread may have run since.
            if self.scheduling.may_be_lost_since(known, slice.from) {
                slice.activity = Activity::Unknown;
            }
        }
        for slice in last.iter().chain(&open) {
            self.add(slice, None)?;
        }
        let times = self.parts.times();
        let start = self.parts.start();
        self.parts.end_capture(known, naming);
        let profile = self.parts.builder.finish();
        name_timers(&mut self.tiles, &profile);
        let window = self.window.within(times);
        let lives = Lives::new(self.tiles, self.started, self.kept_since);
        self.samples.sort_unstable_by_key(|sample| (sample.thread, sample.time));
        Ok(ChainReport {
            found: find(&profile, &lives, &self.ended, window, self.tid),
            profile,
            stats: self.scheduling.stats(),
            compact: self.scheduling.compact(),
            window,
            has_samples: self.has_samples,
            clock: self.clock,
            start,
            labels: self.labels.into_texts(),
            samples: self.samples,
        })
    }
}

/// Follows the path of the last thread with this id.
fn find(
    profile: &Profile,
    lives: &Lives<ThreadId>,
    ended: &FxHashMap<ThreadId, TraceTime>,
    window: (TraceTime, TraceTime),
    tid: Tid,
) -> Option<Found> {
    let last = |thread| lives.of(thread).last().map(|tile| (tile.until, thread));
    let with_id = profile.thread_ids().filter(|(_, thread)| thread.tid == Some(tid.0));
    let mut threads: Vec<_> = with_id.filter_map(|(thread, _)| last(thread)).collect();
    threads.sort_unstable();
    let (until, thread) = threads.pop()?;
    let from = lives.started(thread).map_or(window.0, |started| started.max(window.0));
    // The switch from a thread that ends is after the event about its end.
    let end = ended.get(&thread).map_or(window.1, |ended| until.max(*ended).min(window.1));
    let window = (from.min(end), end);
    let path = lives.path(thread, window.0, window.1);
    Some(Found { thread, earlier: threads.len(), window, path })
}

fn end(reason: u8, readied: Readied<Key>, transfer: Option<Transfer>) -> End<ThreadId> {
    match readied.by {
        // The thread is innocent: it was interrupted.
        _ if readied.in_dpc => match transfer {
            Some(transfer) => End::Disk(transfer.file),
            None if DELAYS.contains(&reason) => End::Timer,
            None => End::Dpc,
        },
        Some(Key::Thread(thread)) => End::Thread(thread),
        Some(Key::Idle(_)) => End::Idle,
        None => End::UnknownThread,
    }
}

/// Finds the waits that timers ended by the names of routines.
fn name_timers(tiles: &mut [Tile<ThreadId>], profile: &Profile) {
    let is_timer = |name: &str| TIMER_ROUTINES.iter().any(|routine| name.contains(routine));
    let frames: Vec<bool> = profile.frames().iter().map(|frame| is_timer(&frame.name)).collect();
    if !frames.contains(&true) {
        return;
    }
    for tile in tiles {
        let State::Waiting(_, end @ End::Dpc) = &mut tile.state else { continue };
        let Some(stack) = tile.ready_stack else { continue };
        if profile.stack(stack).any(|frame| frames[frame.index()]) {
            *end = End::Timer;
        }
    }
}
