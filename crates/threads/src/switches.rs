//! The last context switches of every thread, as events tell them.
//!
//! The stack that comes with a context switch is of the thread that is switched to: walked as it comes back, it is the one
//! with which it was switched out. So a thread that runs has had the stack of its last switch as it began to, and one
//! that does not run at a time has the stack with which it comes back later.
//!
//! Keeps one stack for each thread, two for those that come back behind the time in question.

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

/// The state of a thread that is switched out for good: see the map `ThreadState`.
const ENDED: u8 = 4;

/// So many threads are followed; each can cost two stacks, of 3 KB at most as a rule. No system is known to have more.
const THREADS_MAX: usize = 1 << 16;

/// A stack that came with a switch.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub time: TraceTime,
    pub pid: Option<Pid>,
    /// All frames, innermost first; some are of the kernel.
    pub addresses: Vec<Address>,
    /// How much of the stack there is.
    pub state: StackState,
}

/// What a thread does since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    Runs(TraceTime),
    CouldRun(TraceTime),
    Waits(TraceTime, Option<Cow<'static, str>>),
    HasEnded,
}

/// What is known of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// The newest one up to the time in question.
    pub stack: Option<Taken>,
    /// Switches to and away from it since then.
    pub later: u64,
    /// Whether one of them lost its stack.
    pub lost: bool,
    /// Why the last switch to it has no stack.
    pub why: Option<Absent>,
    /// What it does, if anything tells.
    pub doing: Option<Doing>,
    /// When it was switched out last, unless it runs or was never seen to.
    out: Option<TraceTime>,
    /// With which stack it came back behind the time in question, and whether events are missing that could tell that it ran
    /// meanwhile.
    pub resumed: Option<(Taken, bool)>,
    /// What comes of it from here on is of no use for the time in question.
    is_done: bool,
}

/// Where events are missing.
#[derive(Debug, Default)]
struct Losses {
    /// Of recordings; sessions tell of a loss with the buffer behind it.
    gaps: Option<Gaps>,
    /// Processors of which events are missing now.
    open: HashSet<(u16, Option<u16>)>,
    /// The latest time of which is known that events are missing.
    latest: Option<TraceTime>,
    /// Sessions tell only the number of lost events: they can be anywhere.
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

    fn behind(&mut self, view: &EventView<'_>) {
        let event = view.event();
        if self.gaps.as_mut().is_some_and(|gaps| gaps.begins_behind(event)) {
            self.open.insert((event.source(), event.processor()));
        }
    }

    /// Whether events are missing between a time and the latest event.
    fn since(&self, time: Option<TraceTime>) -> bool {
        self.anywhere || !self.open.is_empty() || self.latest.is_some_and(|latest| Some(latest) > time)
    }
}

/// What is known of all threads.
#[derive(Debug)]
pub(super) struct Switches {
    /// The time in question; the end if there is none.
    at: Option<TraceTime>,
    /// Whether all threads are known from the beginning.
    knows_threads: bool,
    pub threads: HashMap<Tid, Thread>,
    losses: Losses,
    /// Threads whose way back is waited for, once the time is over.
    awaited: Option<HashSet<Tid>>,
    /// Whether events are missing up to the time in question, and where: behind which times.
    lost_at: Option<(bool, Option<TraceTime>)>,
    /// The time of the last event.
    pub end: Option<TraceTime>,
    /// How wide the system's addresses are.
    pub pointer_size: PointerSize,
    has_switches: bool,
    has_batches: bool,
    has_stacks: bool,
    /// There were more threads than are followed.
    has_too_many: bool,
}

impl Switches {
    /// `trace` is the recordings that are read, if it is recordings, and twice.
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

    /// The time that is told of.
    pub fn time(&self) -> Option<TraceTime> {
        match (self.at, self.end) {
            // Behind the end, nothing is known that was not at the end.
            (Some(at), Some(end)) => Some(at.min(end)),
            (None, end) => end,
            (at, None) => at,
        }
    }

    /// Takes in an event. Breaks where no later one tells anything more.
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
            // It can have begun before the time in question.
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
                if let Some(Thread { doing: Some(doing @ Doing::Waits(..)), .. }) = thread {
                    *doing = Doing::CouldRun(event.time());
                }
            }
            Some(hook_id::THREAD_START) => {
                if let Ok(thread) = view::Thread::parse(payload, version, pointer) {
                    self.started(thread.thread_id);
                }
            }
            _ => {}
        }
        self.losses.behind(view);
        match &self.awaited {
            Some(awaited) if awaited.is_empty() && self.knows_threads && self.has_stacks => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// The time in question is over: from here on, it is only of interest how threads come back.
    fn freeze(&mut self, system: &System) {
        let at = self.at.unwrap_or(TraceTime(i64::MAX));
        self.lost_at = Some((self.losses.since(Some(TraceTime(i64::MAX))), self.losses.latest));
        let runs =
            |tid: Tid| matches!(self.threads.get(&tid), Some(Thread { doing: Some(Doing::Runs(_)), .. }));
        let threads = system.threads().filter(|thread| thread.tid() != Tid(0) && thread.span().touches(at));
        let awaited = threads.map(|thread| thread.tid()).filter(|&tid| !runs(tid)).collect();
        self.awaited = Some(awaited);
    }

    /// A number is a new thread's.
    fn started(&mut self, tid: Tid) {
        match &mut self.awaited {
            None => drop(self.threads.remove(&tid)),
            Some(awaited) => {
                // Of the one that had the number at the time, nothing more will come.
                awaited.remove(&tid);
                if let Some(thread) = self.thread(tid) {
                    thread.is_done = true;
                }
            }
        }
    }

    /// What is known of a thread, unless there are too many.
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
            // It ran, though it was not seen to begin.
            thread.is_done = true;
            return;
        }
        thread.later += 1;
        thread.out = Some(time);
        thread.doing = Some(match switch.old_thread_state {
            ENDED => Doing::HasEnded,
            _ if switch.old_thread_waits() => {
                let names = kernel::map("WaitReason");
                let reason = names.and_then(|map| map.value_name(switch.old_thread_wait_reason.into()));
                Doing::Waits(time, reason.map(Cow::Borrowed))
            }
            _ => Doing::CouldRun(time),
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
            Taken { time, pid: view.stack_owner().pid, addresses, state: view.state() }
        };
        if is_over {
            let out = self.threads.get(&tid).and_then(|thread| thread.out);
            let is_lost = self.losses.since(out);
            let Some(thread) = self.thread(tid) else { return };
            let did_not_run = !matches!(thread.doing, Some(Doing::Runs(_) | Doing::HasEnded));
            if did_not_run && !thread.is_done && has_kernel_part {
                thread.resumed = Some((taken(Vec::new()), is_lost));
            }
            thread.is_done = true;
            return;
        }
        let Some(thread) = self.thread(tid) else { return };
        thread.doing = Some(Doing::Runs(time));
        thread.out = None;
        if has_kernel_part {
            let room = thread.stack.take().map(|taken| taken.addresses).unwrap_or_default();
            *thread = Thread { stack: Some(taken(room)), doing: thread.doing.take(), ..Thread::default() };
            return;
        }
        let why = match view.state() {
            // Where there is a user part, the kernel part was there too.
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

    /// Whether events are missing between a time and the time in question.
    pub fn lost_since(&self, time: TraceTime) -> bool {
        match self.lost_at {
            Some((anywhere, latest)) => anywhere || latest.is_some_and(|latest| latest > time),
            None => self.losses.since(Some(time)),
        }
    }

    /// Why a thread without any stack has none.
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

    /// The threads of which only switches tell.
    pub fn strangers<'s>(&'s self, system: &'s System, of: &'s Selection) -> impl Iterator<Item = Tid> + 's {
        let time = self.time().unwrap_or(TraceTime(i64::MAX));
        let known = self.threads.iter().filter(move |(tid, thread)| {
            let is_there = thread.stack.is_some() || thread.doing.is_some();
            is_there && thread.doing != Some(Doing::HasEnded) && system.thread_of_event(**tid, time).is_none()
        });
        let chosen =
            known.filter(|(tid, thread)| of.chooses(thread.stack.as_ref().and_then(|s| s.pid), **tid));
        chosen.map(|(&tid, _)| tid)
    }
}
