//! Converts an ETW trace into the stack model: for each event, the running functions with their
//! callers and callees.
//!
//! This module derives the input of a [`Timeline`] from the pipeline's events, and
//! builds a [`calltree::Trace`](Trace) of its output.

mod events;
mod functions;

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use hashbrown::HashMap;
use stackhound_calltree::{Builder, ContextId, Cpu, Error, StackInfo, Trace};
use stackhound_frames::{KernelSymbols, Origin, PolicyText};
use stackhound_pipeline::{Depth, Enrichment, EventView, Outcome, Passes, Pipeline};
use stackhound_stacks::{Before, Gaps};
use stackhound_system::{System, ThreadId};
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{TICKS_PER_SECOND, Tid};

use crate::{Counts, EventKind, Options, StackEvent, Step, Timeline};
use functions::Functions;

/// The information of a trace that the model uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stacks {
    /// Only exact information: context switches, system calls and interrupt routines.
    Exact,
    /// Also recorded call stacks; the calls between them are inferred.
    #[default]
    Recorded,
}

/// Counters and the outcome of the conversion.
#[derive(Clone, Debug)]
pub struct TimelineReport {
    /// Counters of used and ignored events.
    pub counts: Counts,
    /// The outcome of reading the trace.
    pub outcome: Outcome,
}

/// Events are held for one second divided by this number; interrupt routines up to this duration
/// start at their exact context.
const HOLD_PER_SECOND: i64 = 50;

/// Converts a trace into the stack model. Event `n` of the pipeline is transition `n`.
///
/// Function names come from the enrichment's symbolizer. Functions are distinguished only by name,
/// so all frames are named, including those of the kernel, regardless of the enrichment's policy.
/// The trace is read twice. A second thread builds the model, in memory: about 20 bytes for each
/// event, and 6 for each frame.
///
/// # Errors
/// The trace has more frames or stacks than the model's index can hold.
pub fn timeline(
    trace: &OpenTrace,
    enrichment: Enrichment,
    stacks: Stacks,
) -> Result<(Trace, TimelineReport), Error> {
    let mut enrichment = enrichment;
    enrichment.depth = Some(Depth::Function);
    let all = PolicyText { kernel_symbols: Some(KernelSymbols::Full), ..PolicyText::default() };
    enrichment.policy.put(all, Origin::Default);
    let mut pipeline = Pipeline::new(trace, Passes::Two).with(enrichment);
    let clock = trace.clock();
    let second = clock.to_raw(stackhound_types::FileTime(
        clock.to_file_time(stackhound_types::RawTime(0)).0 + TICKS_PER_SECOND,
    ));
    let options =
        Options { reorder: (second.0 / HOLD_PER_SECOND).max(1), snapshots: stacks == Stacks::Recorded };
    let mut build = TimelineBuild {
        builder: Builder::new(),
        functions: Functions::default(),
        gaps: Gaps::of(trace),
        events: events::Events::new(trace, stacks == Stacks::Recorded),
        threads: ThreadHolders::default(),
        batch: Vec::with_capacity(BATCH),
        switches: Switches::default(),
        transitions: 0,
    };
    if stacks == Stacks::Recorded {
        build.builder.sampled();
    }
    let (full, batches) = mpsc::sync_channel(BATCHES);
    let (done, empty) = mpsc::channel();
    let (tracked, outcome) = thread::scope(|scope| {
        let tracked = scope.spawn(move || Tracked::new(options).all(&batches, &done));
        let wanted = |_: &EventView<'_>| ControlFlow::Continue(true);
        let outcome = pipeline.run_chosen(wanted, |view| {
            build.event(view);
            if build.batch.len() < BATCH {
                return ControlFlow::Continue(());
            }
            let next = empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
            // The other thread only ends before the trace if it has an error.
            match full.send(std::mem::replace(&mut build.batch, next)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        build.switches.end(&mut build.batch);
        let _ = full.send(std::mem::take(&mut build.batch));
        drop(full);
        (tracked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), outcome)
    });
    let Tracked { timeline, builder, since, transitions } = tracked?;
    let counts = timeline.counts();
    build.builder.take_stacks(builder);
    if counts.switches == 0 {
        build.builder.without_switches();
    }
    let system = pipeline.trace_state().system();
    for (info, since) in build.builder.stack_infos().zip(since) {
        complete(info, since, system);
    }
    // Writing the index needs memory, and nothing of these.
    drop((pipeline, timeline, build.functions, build.events));
    Ok((build.builder.finish(transitions)?, TimelineReport { counts, outcome }))
}

/// The number of items in a batch, and of batches that wait.
const BATCH: usize = 1 << 11;
const BATCHES: usize = 4;

/// An item of the input of a [`Timeline`].
enum Item {
    Event(StackEvent),
    Lost(Cpu),
    Regained(Cpu),
    Replaced(Tid),
    SwitchesEnd(ContextId),
    SwitchesGoOn,
}

/// The session with context switches, which has the kernel events. It can end before the others, and only
/// the end of the trace shows it: items after a kernel event wait for the next one.
#[derive(Default)]
struct Switches {
    /// The context before the last kernel event, once there were switches.
    last: Option<ContextId>,
    waiting: Vec<Item>,
    /// Whether the items of the current event wait.
    waits: bool,
    is_over: bool,
}

/// The number of items that wait. If there are more, it is not known which threads run until the next
/// kernel event.
const WAITING_MAX: usize = 1 << 14;

impl Switches {
    /// Begins a kernel event, with the context before it.
    fn begin_kernel_event(&mut self, before: ContextId, items: &mut Vec<Item>) {
        self.waits = false;
        let Some(last) = &mut self.last else { return };
        *last = before;
        items.append(&mut self.waiting);
        if std::mem::take(&mut self.is_over) {
            items.push(Item::SwitchesGoOn);
        }
    }

    /// Begins another event.
    fn begin_event(&mut self, items: &mut Vec<Item>) {
        if self.waiting.len() >= WAITING_MAX {
            self.end(items);
        }
        self.waits = self.last.is_some() && !self.is_over;
    }

    /// Adds an item of the current event.
    fn add(&mut self, item: Item, items: &mut Vec<Item>) {
        let own = if self.waits { &mut self.waiting } else { items };
        own.push(item);
    }

    /// No kernel event follows, or none is near.
    fn end(&mut self, items: &mut Vec<Item>) {
        if !std::mem::replace(&mut self.is_over, true) {
            items.extend(self.last.map(Item::SwitchesEnd));
            items.append(&mut self.waiting);
        }
    }
}

/// Reads events: defines locations and transitions, and converts events to items.
struct TimelineBuild {
    builder: Builder,
    functions: Functions,
    gaps: Gaps,
    events: events::Events,
    threads: ThreadHolders,
    batch: Vec<Item>,
    switches: Switches,
    /// The number of transitions so far.
    transitions: u64,
}

impl TimelineBuild {
    fn event(&mut self, view: &EventView<'_>) {
        let cpu = view.processor().map(Cpu);
        let before = ContextId(self.transitions);
        match view.event().hook_id() {
            Some(_) => self.switches.begin_kernel_event(before, &mut self.batch),
            None => self.switches.begin_event(&mut self.batch),
        }
        if let Some(cpu) = cpu {
            let gap = self.gaps.before(view.event());
            if gap == Before::Gap {
                self.add(Item::Lost(cpu));
            }
            if gap != Before::Nothing {
                self.add(Item::Regained(cpu));
            }
        }
        self.transitions += 1;
        let label = self.events.label(view, &mut self.builder);
        self.builder.transition(view.utc().0.max(0) as u64, cpu.unwrap_or_default(), label);
        let thread = self.events.thread(view);
        let what = self.events.what(view, &mut self.functions, &mut self.builder);
        match what {
            EventKind::Switch { old, new, .. } => {
                self.switches.last = Some(before);
                self.replaced(view, old);
                self.replaced(view, new);
            }
            // The event itself reports that another thread has the id.
            EventKind::ThreadStart(tid) => _ = self.threads.changes(view, tid),
            _ => {}
        }
        if let Some(tid) = thread {
            self.replaced(view, tid);
        }
        let stack = self.events.stack(view, &mut self.functions, &mut self.builder);
        self.add(Item::Event(StackEvent { time: view.time().0, cpu, thread, what, stack }));
        if let Some(cpu) = cpu
            && self.gaps.begins_after(view.event())
        {
            self.add(Item::Lost(cpu));
        }
    }

    /// Adds an item of the current event.
    fn add(&mut self, item: Item) {
        self.switches.add(item, &mut self.batch);
    }

    /// Notes which thread has an id.
    fn replaced(&mut self, view: &EventView<'_>, tid: Tid) {
        if self.threads.changes(view, tid) {
            self.add(Item::Replaced(tid));
        }
    }
}

/// The threads that had thread ids last.
#[derive(Default)]
struct ThreadHolders(HashMap<Tid, ThreadId, foldhash::fast::RandomState>);

impl ThreadHolders {
    /// Whether another thread had the id of a thread until now.
    fn changes(&mut self, view: &EventView<'_>, tid: Tid) -> bool {
        let Some(thread) = view.trace_state().system().thread_of_event(tid, view.time()) else {
            return false;
        };
        self.0.insert(tid, thread.id()).is_some_and(|before| before != thread.id())
    }
}

/// The stacks with their changes, which a thread of its own derives from the items.
struct Tracked {
    timeline: Timeline,
    builder: Builder,
    /// The time of the first evidence of each stack.
    since: Vec<TraceTime>,
    transitions: u64,
}

impl Tracked {
    fn new(options: Options) -> Tracked {
        let (timeline, builder) = (Timeline::new(options), Builder::new());
        Tracked { timeline, builder, since: Vec::new(), transitions: 0 }
    }

    /// Tracks all batches, and returns them empty.
    fn all(mut self, batches: &Receiver<Vec<Item>>, done: &Sender<Vec<Item>>) -> Result<Tracked, Error> {
        for mut batch in batches {
            for item in batch.drain(..) {
                match item {
                    Item::Event(event) => self.timeline.push(event),
                    Item::Lost(cpu) => self.timeline.lose(cpu),
                    Item::Regained(cpu) => self.timeline.regain(cpu),
                    Item::Replaced(tid) => self.timeline.replace(tid),
                    Item::SwitchesEnd(last) => self.timeline.switches_end(last),
                    Item::SwitchesGoOn => self.timeline.switches_go_on(),
                }
                self.apply()?;
            }
            // The reader has ended if it does not take it.
            let _ = done.send(batch);
        }
        self.transitions = self.timeline.end();
        self.apply()?;
        Ok(self)
    }

    /// Applies the pending steps to the model.
    fn apply(&mut self) -> Result<(), Error> {
        for step in self.timeline.steps() {
            match step {
                Step::Stack { kind, thread, cpu, time, .. } => {
                    let thread = thread.map(|tid| tid.0);
                    let (process, name, region) = (None, None, None);
                    self.builder.stack(StackInfo { kind, process, thread, cpu, name, region });
                    self.since.push(TraceTime(time));
                }
                Step::Change(change) => self.builder.apply(change)?,
                Step::Enter { cpu, stack, lo, hi } => self.builder.enter_between(cpu, stack, lo, hi)?,
                Step::Open { stack, lo, hi, start, location, evidence } => {
                    self.builder.open_between(stack, (lo, hi), start, location, evidence)?;
                }
                Step::Close { stack, lo, hi, end } => self.builder.close_between(stack, (lo, hi), end)?,
            }
        }
        Ok(())
    }
}

/// Adds the process that had the thread of a stack at a time.
fn complete(info: &mut StackInfo, since: TraceTime, system: &System) {
    let process = info.thread.and_then(|tid| Some(system.thread_of_event(Tid(tid), since)?.process()));
    info.process = process.map(|process| process.pid().0);
    info.name = process.map(|process| process.image_name().to_owned()).filter(|name| !name.is_empty());
}
