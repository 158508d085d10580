//! The last context switches of every thread.
//!
//! The stack of a context switch belongs to the thread that is switched *to*. It is captured when
//! the thread comes back, so it is the stack with which the thread was switched out. A running
//! thread therefore had the stack of its last switch when it began to run, and a thread that does
//! not run at a given time has the stack with which it comes back later.
//!
//! Keeps one stack per thread, and two for threads that come back after the requested time.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use stackhound_pipeline::EventView;
use stackhound_schema::kernel::{self, hook_id, view};
use stackhound_stacks::{Before, Gaps, StackState};
use stackhound_system::System;
use stackhound_trace::{Flow, OpenTrace, TraceTime};
use stackhound_types::{Address, Pid, PointerSize, Tid};

use crate::{Absent, Selection};

const SWITCH_BATCH: u16 = hook_id::THREAD_COMPACT_C_SWITCH;
const READY_THREAD: u16 = hook_id::THREAD_READY_THREAD;

/// The state of a thread that is switched out for the last time: see the map `ThreadState`.
const ENDED: u8 = 4;

/// The maximum number of tracked threads. Each can take two stacks of usually at most 3 KB. No
/// system is known to have more threads.
const THREADS_MAX: usize = 1 << 16;

/// The stack of a switch.
#[derive(Clone, Debug)]
pub(super) struct SwitchStack {
    pub time: TraceTime,
    pub pid: Option<Pid>,
    /// All frames, innermost first; at least one is a kernel frame.
    pub addresses: Vec<Address>,
    /// The completeness of the stack.
    pub state: StackState,
}

/// The state of a thread and its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    Runs(TraceTime),
    CouldRun(TraceTime),
    Waits(TraceTime, Option<Cow<'static, str>>),
    HasEnded,
}

/// The data of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// The latest stack up to the requested time.
    pub stack: Option<SwitchStack>,
    /// The number of switches to and from the thread since then.
    pub later: u64,
    /// Whether one of them lost its stack.
    pub lost: bool,
    /// The reason why the last switch to the thread has no stack.
    pub why: Option<Absent>,
    /// The state of the thread, if it is known.
    pub activity: Option<Activity>,
    /// The time at which the thread was last switched out; `None` if it runs or no such switch was
    /// seen.
    out: Option<TraceTime>,
    /// The stack with which the thread came back after the requested time, and whether events are
    /// missing that could show that it ran in between.
    pub resumed: Option<(SwitchStack, bool)>,
    /// Later events of the thread do not affect the result for the requested time.
    is_done: bool,
}

/// The losses of events.
#[derive(Debug, Default)]
struct Losses {
    /// The gaps of a trace; `None` for live sessions, which report a loss with the next buffer.
    gaps: Option<Gaps>,
    /// Sources and processors whose events are currently missing.
    open: HashSet<(u16, Option<u16>)>,
    /// The latest time at which a loss of events is known.
    latest: Option<TraceTime>,
    /// The sessions report only the number of lost events, which can be missing anywhere.
    anywhere: bool,
}

impl Losses {
    fn before(&mut self, view: &EventView<'_>) -> Before {
        let event = view.event();
        let before = match &mut self.gaps {
            Some(gaps) => gaps.before(event),
            None if event.index() == 0 && event.block().origin().after_loss => Before::Gap,
            None => Before::Nothing,
        };
        if before != Before::Nothing {
            self.open.remove(&(event.source(), event.processor()));
            self.latest = Some(event.time());
        }
        before
    }

    fn after(&mut self, view: &EventView<'_>) {
        let event = view.event();
        if self.gaps.as_mut().is_some_and(|gaps| gaps.begins_after(event)) {
            self.open.insert((event.source(), event.processor()));
        }
    }

    /// Whether events are missing between a time and the latest event.
    fn since(&self, time: Option<TraceTime>) -> bool {
        self.anywhere || !self.open.is_empty() || self.latest.is_some_and(|latest| Some(latest) > time)
    }
}

/// The data of all threads.
#[derive(Debug)]
pub(super) struct Switches {
    /// The requested time; `None` is the end of the trace.
    at: Option<TraceTime>,
    /// Whether all threads are known from the beginning.
    knows_threads: bool,
    pub threads: HashMap<Tid, Thread>,
    losses: Losses,
    /// Threads that are expected to be switched to again, after the requested time.
    awaited: Option<HashSet<Tid>>,
    /// Whether events are missing up to the requested time, and the latest time of a known loss.
    lost_at: Option<(bool, Option<TraceTime>)>,
    /// The time of the last event.
    pub end: Option<TraceTime>,
    /// The pointer size of the system.
    pub pointer_size: PointerSize,
    has_switches: bool,
    has_batches: bool,
    has_stacks: bool,
    /// There were more threads than can be tracked.
    has_too_many: bool,
}

impl Switches {
    /// `trace` is the trace that is read, or `None` for a live session. `knows_threads` is true if
    /// the trace is read in two passes.
    pub fn new(at: Option<TraceTime>, trace: Option<&OpenTrace>, knows_threads: bool) -> Switches {
        let anywhere = trace.is_some_and(|trace| trace.sessions().any(|session| session.events_lost > 0));
        let losses = Losses { gaps: trace.map(Gaps::of), anywhere, ..Losses::default() };
        Switches {
            at,
            knows_threads,
            threads: HashMap::new(),
            losses,
            awaited: None,
            lost_at: None,
            end: None,
            pointer_size: PointerSize::Four,
            has_switches: false,
            has_batches: false,
            has_stacks: false,
            has_too_many: false,
        }
    }

    /// The time of the reported stacks.
    pub fn time(&self) -> Option<TraceTime> {
        match (self.at, self.end) {
            // After the end, no more is known than at the end.
            (Some(at), Some(end)) => Some(at.min(end)),
            (None, end) => end,
            (at, None) => at,
        }
    }

    /// Processes an event. Breaks if no later event can change the result.
    pub fn take(&mut self, view: &EventView<'_>) -> Flow {
        let event = view.event();
        self.end = Some(self.end.map_or(event.time(), |end| end.max(event.time())));
        self.pointer_size = self.pointer_size.max(event.block().session().pointer_size);
        if self.awaited.is_none() && self.at.is_some_and(|at| event.time() > at) {
            self.freeze(view.trace_state().system());
        }
        if self.losses.before(view) == Before::Gap
            && let Some((is_lost, _)) = &mut self.lost_at
        {
            // The loss can have begun before the requested time.
            *is_lost = true;
        }
        let record = event.record();
        let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
        match event.hook_id() {
            Some(hook_id::THREAD_C_SWITCH) => {
                self.has_switches = true;
                if let Ok(switch) = view::CSwitch::parse(payload, version, pointer) {
                    self.switched_out(&switch, event.time());
                    self.switched_in(switch.new_thread_id, view);
                }
            }
            Some(SWITCH_BATCH) => self.has_batches = true,
            Some(READY_THREAD) if self.awaited.is_none() => {
                let ready = view::ReadyThread::parse(payload, version, pointer).ok();
                let thread = ready.and_then(|ready| self.threads.get_mut(&ready.thread_id));
                if let Some(Thread { activity: Some(activity @ Activity::Waits(..)), .. }) = thread {
                    *activity = Activity::CouldRun(event.time());
                }
            }
            Some(hook_id::THREAD_START) => {
                if let Ok(thread) = view::Thread::parse(payload, version, pointer) {
                    self.started(thread.thread_id);
                }
            }
            _ => {}
        }
        self.losses.after(view);
        match &self.awaited {
            Some(awaited) if awaited.is_empty() && self.knows_threads && self.has_stacks => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Marks the end of the requested time: from here on, only the switches with which threads come
    /// back matter.
    fn freeze(&mut self, system: &System) {
        let at = self.at.unwrap_or(TraceTime(i64::MAX));
        self.lost_at = Some((self.losses.since(Some(TraceTime(i64::MAX))), self.losses.latest));
        let runs = |tid: Tid| {
            matches!(self.threads.get(&tid), Some(Thread { activity: Some(Activity::Runs(_)), .. }))
        };
        let threads = system.threads().filter(|thread| thread.tid() != Tid(0) && thread.span().touches(at));
        let awaited = threads.map(|thread| thread.tid()).filter(|&tid| !runs(tid)).collect();
        self.awaited = Some(awaited);
    }

    /// Processes the start of a thread with this ID.
    fn started(&mut self, tid: Tid) {
        match &mut self.awaited {
            None => drop(self.threads.remove(&tid)),
            Some(awaited) => {
                // The thread that had the ID at the requested time has ended.
                awaited.remove(&tid);
                if let Some(thread) = self.thread(tid) {
                    thread.is_done = true;
                }
            }
        }
    }

    /// The data of a thread; `None` if there are too many threads.
    fn thread(&mut self, tid: Tid) -> Option<&mut Thread> {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.has_too_many = true;
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    fn switched_out(&mut self, switch: &view::CSwitch, time: TraceTime) {
        let tid = switch.old_thread_id;
        if tid == Tid(0) {
            return;
        }
        let is_over = self.awaited.as_mut().map(|awaited| awaited.remove(&tid)).is_some();
        let Some(thread) = self.thread(tid) else { return };
        if is_over {
            // The thread ran, although the switch to it was not seen.
            thread.is_done = true;
            return;
        }
        thread.later += 1;
        thread.out = Some(time);
        thread.activity = Some(match switch.old_thread_state {
            ENDED => Activity::HasEnded,
            _ if switch.old_thread_waits() => {
                let names = kernel::map("WaitReason");
                let reason = names.and_then(|map| map.value_name(switch.old_thread_wait_reason.into()));
                Activity::Waits(time, reason.map(Cow::Borrowed))
            }
            _ => Activity::CouldRun(time),
        });
    }

    fn switched_in(&mut self, tid: Tid, view: &EventView<'_>) {
        let (time, pointer_size) = (view.time(), self.pointer_size);
        let is_kernel = |address: Address| address.is_kernel(pointer_size);
        let has_kernel_part = view.stack().is_some() && view.addresses().any(is_kernel);
        self.has_stacks |= has_kernel_part;
        if tid == Tid(0) {
            return;
        }
        let is_over = self.awaited.as_mut().map(|awaited| awaited.remove(&tid)).is_some();
        let taken = |mut addresses: Vec<Address>| {
            addresses.clear();
            addresses.extend(view.addresses());
            SwitchStack { time, pid: view.stack_owner().pid, addresses, state: view.state() }
        };
        if is_over {
            let out = self.threads.get(&tid).and_then(|thread| thread.out);
            let is_lost = self.losses.since(out);
            let Some(thread) = self.thread(tid) else { return };
            let did_not_run = !matches!(thread.activity, Some(Activity::Runs(_) | Activity::HasEnded));
            if did_not_run && !thread.is_done && has_kernel_part {
                thread.resumed = Some((taken(Vec::new()), is_lost));
            }
            thread.is_done = true;
            return;
        }
        let Some(thread) = self.thread(tid) else { return };
        thread.activity = Some(Activity::Runs(time));
        thread.out = None;
        if has_kernel_part {
            let buffer = thread.stack.take().map(|taken| taken.addresses).unwrap_or_default();
            *thread =
                Thread { stack: Some(taken(buffer)), activity: thread.activity.take(), ..Thread::default() };
            return;
        }
        let why = match view.state() {
            // If there is a user stack, there was a kernel stack too.
            StackState::Lost
            | StackState::Damaged
            | StackState::UserOnly
            | StackState::Ambiguous
            | StackState::Unconfirmed => Absent::Lost,
            StackState::UnresolvedKey => Absent::UnresolvedKey,
            StackState::None | StackState::Complete | StackState::Truncated | StackState::KernelOnly => {
                Absent::NotTaken
            }
        };
        thread.later += 1;
        thread.lost |= why == Absent::Lost;
        thread.why = Some(why);
    }

    /// Whether events are missing between a time and the requested time.
    pub fn lost_since(&self, time: TraceTime) -> bool {
        match self.lost_at {
            Some((anywhere, latest)) => anywhere || latest.is_some_and(|latest| latest > time),
            None => self.losses.since(Some(time)),
        }
    }

    /// The reason why a thread has no stack.
    pub fn why(&self, thread: Option<&Thread>) -> Absent {
        match thread.and_then(|thread| thread.why) {
            _ if !self.has_switches && self.has_batches => Absent::BatchedSwitches,
            _ if !self.has_switches => Absent::NoSwitches,
            _ if !self.has_stacks => Absent::WithoutStacks,
            Some(why) => why,
            None if thread.is_none() && self.has_too_many => Absent::TooMany,
            None => Absent::NeverSwitched,
        }
    }

    /// The threads that appear only in context switches.
    pub fn undescribed_threads<'s>(
        &'s self,
        system: &'s System,
        of: &'s Selection,
    ) -> impl Iterator<Item = Tid> + 's {
        let time = self.time().unwrap_or(TraceTime(i64::MAX));
        let known = self.threads.iter().filter(move |(tid, thread)| {
            let has_data = thread.stack.is_some() || thread.activity.is_some();
            has_data
                && thread.activity != Some(Activity::HasEnded)
                && system.thread_of_event(**tid, time).is_none()
        });
        let chosen =
            known.filter(|(tid, thread)| of.chooses(thread.stack.as_ref().and_then(|s| s.pid), **tid));
        chosen.map(|(&tid, _)| tid)
    }
}
