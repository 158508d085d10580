//! The join of system calls: see the [module](super).

use std::collections::VecDeque;
use std::time::Duration;

use stackhound_etl::Selection;
use stackhound_schema::kernel::{hook_id, view};
use stackhound_stacks::Window;
use stackhound_trace::{Event, EventKey, LossMap, TraceTime};
use stackhound_types::{Address, PointerSize, Tid};

use super::threads::{Exit, OpenCall, Processors, ThreadKey, Threads};
use super::{CallEnd, CallOutcome, CallStats, ServiceKind};
use crate::Map;

/// An entry or exit whose event has not left the correlator yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    event: EventKey,
    source: u16,
    is_exit: bool,
    tid: Option<Tid>,
    routine: Option<Address>,
    end: Option<CallEnd>,
    /// Sequence number of the exit, once it is known.
    exit: Option<u64>,
}

/// Whether and since when the records of a source are complete.
#[derive(Clone, Copy, Debug)]
struct Completeness {
    intact: TraceTime,
    checked: TraceTime,
    /// Whether records were missing before.
    has_gap: bool,
}

impl Completeness {
    fn new(time: TraceTime) -> Completeness {
        Completeness { intact: time, checked: time, has_gap: false }
    }
}

/// Joins the entries of system calls with their exits.
///
/// Call [`push`](CallJoin::push) for each event that has entered the correlator,
/// [`end`](CallJoin::end) after the last one, and [`outcome`](CallJoin::outcome) for each event
/// that leaves it. Memory is limited by the correlator's window, 16,384 threads, and 64 open calls
/// of a thread.
#[derive(Debug)]
pub struct CallJoin {
    window: Window,
    ticks_per_second: u64,
    /// In the order in which they enter and leave the correlator.
    pending: VecDeque<Pending>,
    /// Sequence number of the first of `pending`.
    first: u64,
    threads: Threads,
    processors: Processors,
    sources: Map<u16, Completeness>,
    /// By session: an interval of time in which a wrong thread was assumed to run on a processor.
    doubtful: Map<u32, (TraceTime, TraceTime)>,
    newest: TraceTime,
    /// Calls that a step leaves without an exit; kept for its memory.
    left: Vec<OpenCall>,
    /// Whether a limit has removed calls, so that an exit can belong to one of them.
    gave_up: bool,
    ended: bool,
    stats: CallStats,
}

/// The hook ids of the events that the join uses.
const HOOK_IDS: [u16; 5] = [
    hook_id::THREAD_C_SWITCH,
    hook_id::PERF_INFO_SYS_CALL_ENTER,
    hook_id::PERF_INFO_SYS_CALL_EXIT,
    hook_id::THREAD_START,
    hook_id::THREAD_END,
];

impl CallJoin {
    /// A join for events that pass through a correlator with this window. The clock of trace times
    /// has this frequency.
    pub fn new(window: Window, ticks_per_second: u64) -> CallJoin {
        CallJoin {
            window,
            ticks_per_second: ticks_per_second.max(1),
            pending: VecDeque::new(),
            first: 0,
            threads: Threads::default(),
            processors: Processors::default(),
            sources: Map::default(),
            doubtful: Map::default(),
            newest: TraceTime(i64::MIN),
            left: Vec::new(),
            gave_up: false,
            ended: false,
            stats: CallStats::default(),
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> CallStats {
        self.stats
    }

    /// Marks the end of the trace: no more events follow.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Adds the events that [`push`](CallJoin::push) uses, besides the first of each block.
    pub fn select(selection: Selection) -> Selection {
        selection.hook_ids(HOOK_IDS)
    }

    /// Observes an event that has entered the correlator, whose losses are passed. `kind_of` is
    /// called for entries, with the address of the service's routine.
    #[inline]
    pub fn push(
        &mut self,
        event: &Event<'_>,
        losses: &LossMap,
        kind_of: impl FnOnce(Address) -> ServiceKind,
    ) {
        let is_relevant = event.hook_id().is_some_and(|hook_id| HOOK_IDS.contains(&hook_id));
        // Losses become known, and old ones are forgotten, when a buffer begins.
        if is_relevant || (event.index() == 0 && !losses.is_lossless()) {
            self.take(event, losses, kind_of);
        }
    }

    fn take(&mut self, event: &Event<'_>, losses: &LossMap, kind_of: impl FnOnce(Address) -> ServiceKind) {
        let (time, source) = (event.time(), event.source());
        let processor = (event.session_number(), event.processor());
        self.newest = self.newest.max(time);
        if !losses.is_lossless() {
            self.processors.check(processor, time, |from, until| {
                losses.on_processor(source, processor.1, from.0, until.0)
            });
            let of = self.sources.entry(source).or_insert_with(|| Completeness::new(time));
            if losses.between(source, of.checked.0, time.0) {
                (of.intact, of.has_gap) = (time, true);
            }
            of.checked = of.checked.max(time);
        }
        let record = event.record();
        let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
        match event.hook_id() {
            Some(hook_id::THREAD_C_SWITCH) => {
                let switch = view::CSwitch::parse(payload, version, pointer).ok();
                let threads = switch.map(|switch| (switch.old_thread_id, switch.new_thread_id));
                if let Some(since) = self.processors.switch(processor, threads, time) {
                    self.doubt(processor.0, since, time);
                }
                self.note_malformed(threads.is_none(), source, time);
            }
            Some(hook @ (hook_id::THREAD_START | hook_id::THREAD_END)) => {
                let thread = view::Thread::parse(payload, version, pointer).ok();
                self.note_malformed(thread.is_none(), source, time);
                let Some(key) = thread.map(|thread| (processor.0, thread.thread_id)) else { return };
                match hook {
                    hook_id::THREAD_START => {
                        self.threads.make_room(key, &mut self.left);
                        self.give_up(source);
                        self.threads.start(key, time, &mut self.left);
                    }
                    _ => self.threads.end(key, &mut self.left),
                }
                self.leave(source, CallEnd::ThreadEnded);
            }
            Some(hook_id::PERF_INFO_SYS_CALL_ENTER) => {
                let call = view::SysCallEnter::parse(payload, version, pointer).ok();
                self.note_malformed(call.is_none(), source, time);
                let routine = call.map(|call| call.sys_call_address);
                // 32-bit kernels return from callbacks by an interrupt, which is no system call.
                let is_64_bit = event.block().session().pointer_size == PointerSize::Eight;
                let kind = routine.filter(|_| is_64_bit).map_or(ServiceKind::Unknown, kind_of);
                self.enter(event, routine, kind);
            }
            Some(hook_id::PERF_INFO_SYS_CALL_EXIT) => {
                let status = payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
                self.note_malformed(status.is_none(), source, time);
                self.exit(event, status);
            }
            _ => {}
        }
    }

    /// Records that cannot be read count as lost.
    fn note_malformed(&mut self, is_malformed: bool, source: u16, time: TraceTime) {
        if is_malformed {
            self.stats.malformed += 1;
            let of = self.sources.entry(source).or_insert_with(|| Completeness::new(time));
            (of.intact, of.has_gap) = (time, true);
        }
    }

    /// Notes that the thread of a processor was wrong in an interval of time.
    fn doubt(&mut self, session: u32, from: TraceTime, until: TraceTime) {
        let oldest = self.pending.front().map_or(until, |pending| pending.event.time);
        let known = self.doubtful.entry(session).or_insert((from, until));
        *known = match *known {
            before if before.1 >= oldest => (before.0.min(from), until),
            _ => (from, until),
        };
    }

    fn intact(&self, source: u16) -> TraceTime {
        self.sources.get(&source).map_or(TraceTime(i64::MIN), |of| of.intact)
    }

    fn has_gap(&self, source: u16) -> bool {
        self.sources.get(&source).is_some_and(|of| of.has_gap)
    }

    fn thread(&self, event: &Event<'_>) -> Option<Tid> {
        let running = || self.processors.running((event.session_number(), event.processor()));
        event.header_tid().or_else(running)
    }

    fn add(&mut self, event: &Event<'_>, is_exit: bool, tid: Option<Tid>) -> &mut Pending {
        if self.pending.len() > self.window.max_pending {
            self.drop_first(None);
        }
        let end = tid.is_none().then_some(CallEnd::UnknownThread);
        let (event, source, routine, exit) = (event.key(), event.source(), None, None);
        self.pending.push_back(Pending { event, source, is_exit, tid, routine, end, exit });
        self.pending.back_mut().expect("it was added")
    }

    fn enter(&mut self, event: &Event<'_>, routine: Option<Address>, kind: ServiceKind) {
        let tid = self.thread(event);
        self.add(event, false, tid).routine = routine;
        let Some(tid) = tid else { return };
        let number = self.first + self.pending.len() as u64 - 1;
        let call = OpenCall { number, from: event.time(), routine, kind, is_doubtful: false };
        let key: ThreadKey = (event.session_number(), tid);
        self.threads.enter(key, call, &mut self.left);
        self.give_up(event.source());
    }

    fn exit(&mut self, event: &Event<'_>, status: Option<u32>) {
        let (tid, time, source) = (self.thread(event), event.time(), event.source());
        self.add(event, true, tid);
        let Some(tid) = tid else { return };
        let number = self.first + self.pending.len() as u64 - 1;
        let intact = self.intact(source);
        let key: ThreadKey = (event.session_number(), tid);
        let exit = self.threads.exit(key, status.unwrap_or(u32::MAX), intact, &mut self.left);
        self.leave(source, CallEnd::NotReturned);
        let (routine, end) = match exit {
            // The entry may have been lost or given up.
            Exit::NotEntered if self.gave_up || self.has_gap(source) => (None, CallEnd::Lost),
            Exit::NotEntered => (None, CallEnd::NotEntered),
            Exit::Perhaps(call) => {
                self.settle(call.number, CallEnd::Unconfirmed, None);
                (None, CallEnd::Unconfirmed)
            }
            Exit::Of(call) => {
                let end = match status {
                    Some(status) if call.from >= intact => {
                        let duration = self.duration(call.from, time);
                        CallEnd::Completed { status, from: call.from, until: time, duration }
                    }
                    _ => CallEnd::Lost,
                };
                let is_late = time.0.saturating_sub(call.from.0) > self.window.max_hold;
                self.settle(call.number, if is_late { CallEnd::Late } else { end }, Some(number));
                (call.routine.filter(|_| end != CallEnd::Lost), end)
            }
        };
        if let Some(pending) = self.pending.back_mut() {
            (pending.routine, pending.end) = (routine, Some(end));
        }
    }

    fn duration(&self, from: TraceTime, until: TraceTime) -> Duration {
        let ticks = until.0.saturating_sub(from.0).max(0) as u64;
        let (seconds, rest) = (ticks / self.ticks_per_second, ticks % self.ticks_per_second);
        let nanoseconds = u128::from(rest) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Duration::new(seconds, nanoseconds as u32)
    }

    /// Settles the calls that a limit has removed.
    fn give_up(&mut self, source: u16) {
        self.gave_up |= !self.left.is_empty();
        self.leave(source, CallEnd::Lost);
    }

    /// Settles the calls that a step has left without an exit.
    fn leave(&mut self, source: u16, end: CallEnd) {
        let intact = self.intact(source);
        let mut left = std::mem::take(&mut self.left);
        for call in left.drain(..) {
            self.settle(call.number, if call.from >= intact { end } else { CallEnd::Lost }, None);
        }
        self.left = left;
    }

    fn pending(&mut self, number: u64) -> Option<&mut Pending> {
        self.pending.get_mut(number.checked_sub(self.first)? as usize)
    }

    fn settle(&mut self, number: u64, end: CallEnd, exit: Option<u64>) {
        if let Some(pending) = self.pending(number) {
            pending.end.get_or_insert(end);
            pending.exit = exit;
        }
    }

    /// The outcome of an entry or exit that leaves the correlator, whose losses are passed. `None`
    /// for other events.
    ///
    /// `stated` is the thread that the stack record of the event states. It is the thread of an entry
    /// that no context switch precedes. Its exit, which has no stack, cannot be found.
    #[inline]
    pub fn outcome(
        &mut self,
        event: &Event<'_>,
        stated: Option<Tid>,
        losses: Option<&LossMap>,
    ) -> Option<CallOutcome> {
        match event.hook_id() {
            Some(hook_id::PERF_INFO_SYS_CALL_ENTER | hook_id::PERF_INFO_SYS_CALL_EXIT) => {}
            _ => return None,
        }
        if self.pending.front().is_none_or(|pending| pending.event != event.key()) {
            // It was already dropped and counted.
            return Some(CallOutcome { tid: stated, routine: None, end: CallEnd::Late });
        }
        let outcome = self.drop_first(losses)?;
        Some(CallOutcome { tid: outcome.tid.or(stated), ..outcome })
    }

    /// Drops the oldest entry or exit: an exit that follows is not joined with it.
    fn drop_first(&mut self, losses: Option<&LossMap>) -> Option<CallOutcome> {
        let pending = self.pending.pop_front()?;
        self.first += 1;
        let (session, source, from) = (pending.event.session_number, pending.source, pending.event.time);
        let never = if self.ended { CallEnd::Unfinished } else { CallEnd::Late };
        let end = pending.end.unwrap_or(never);
        let interval = match end {
            CallEnd::Completed { from, until, .. } => Some((from, until)),
            CallEnd::Late | CallEnd::Unfinished => Some((from, self.newest)),
            _ => None,
        };
        let is_doubtful = |(from, until): (TraceTime, TraceTime)| {
            let is_lost = losses.is_some_and(|losses| losses.between(source, from.0, until.0));
            let doubtful = self.doubtful.get(&session);
            is_lost || doubtful.is_some_and(|&(since, to)| since <= until && from <= to)
        };
        let is_lost = interval.is_some_and(is_doubtful) || self.is_older_than_a_loss(&pending, end);
        let end = if is_lost { CallEnd::Lost } else { end };
        if is_lost && let Some(exit) = pending.exit.and_then(|exit| self.pending(exit)) {
            (exit.end, exit.routine) = (Some(CallEnd::Lost), None);
        }
        match end {
            CallEnd::Completed { .. } if pending.is_exit => {}
            _ if pending.is_exit => self.stats.other_exits += 1,
            end => self.stats.count(end),
        }
        let routine = pending.routine.filter(|_| !(pending.is_exit && is_lost));
        Some(CallOutcome { tid: pending.tid, routine, end })
    }

    /// Whether records are missing since a call that has no exit.
    fn is_older_than_a_loss(&self, pending: &Pending, end: CallEnd) -> bool {
        matches!(end, CallEnd::Late | CallEnd::Unfinished) && pending.event.time < self.intact(pending.source)
    }
}
