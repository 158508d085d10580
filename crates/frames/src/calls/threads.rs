//! The calls that each thread has entered and not left, and the thread of each processor.

use hashbrown::HashSet;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Tid};

use super::ServiceKind;
use crate::Map;

/// Maximum number of calls of a thread that are kept. Calls that are never left remain until then.
const DEPTH_MAX: usize = 64;

/// Maximum number of threads.
const THREADS_MAX: usize = 1 << 14;

/// Maximum number of services that are known to return.
const SERVICES_MAX: usize = 1 << 14;

/// The status of `NtCallbackReturn` if there is nothing to return to: `STATUS_NO_CALLBACK_ACTIVE`.
const NO_CALLBACK_ACTIVE: u32 = 0xc000_0258;

/// A thread of a session.
pub(super) type ThreadKey = (u32, Tid);

/// A call that its thread has not left.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenCall {
    /// Sequence number of its entry.
    pub number: u64,
    pub from: TraceTime,
    pub routine: Option<Address>,
    pub kind: ServiceKind,
    /// Whether an earlier exit can have been its own.
    pub is_doubtful: bool,
}

/// What an exit means for the innermost calls of its thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    /// It is the exit of this call.
    Of(OpenCall),
    /// It can be the exit of this call, or of one around it.
    Perhaps(OpenCall),
    /// It is the exit of a call that was not recorded.
    NotEntered,
}

#[derive(Debug, Default)]
struct ThreadCalls {
    /// Outermost first.
    open: Vec<OpenCall>,
    /// Since when all calls of the thread are known: the start of the thread.
    all_since: Option<TraceTime>,
}

/// The open calls of all threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    threads: Map<ThreadKey, ThreadCalls>,
    /// Routines that have certainly returned. By session and address.
    returning: HashSet<(u32, u64), foldhash::fast::RandomState>,
}

impl Threads {
    /// Makes room for a thread. `dropped` receives the calls of all threads if there are too many.
    pub fn make_room(&mut self, key: ThreadKey, dropped: &mut Vec<OpenCall>) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&key) {
            dropped.extend(self.threads.drain().flat_map(|(_, calls)| calls.open));
        }
    }

    /// A thread starts, after [`make_room`](Threads::make_room). `left` receives the calls of an
    /// earlier thread with the same id.
    pub fn start(&mut self, key: ThreadKey, time: TraceTime, left: &mut Vec<OpenCall>) {
        let calls = self.threads.entry(key).or_default();
        left.append(&mut calls.open);
        calls.all_since = Some(time);
    }

    /// A thread ends. `left` receives its open calls.
    pub fn end(&mut self, key: ThreadKey, left: &mut Vec<OpenCall>) {
        left.extend(self.threads.remove(&key).into_iter().flat_map(|calls| calls.open));
    }

    /// A thread enters a call. `dropped` receives the calls that a limit removes.
    pub fn enter(&mut self, key: ThreadKey, call: OpenCall, dropped: &mut Vec<OpenCall>) {
        self.make_room(key, dropped);
        let calls = self.threads.entry(key).or_default();
        if calls.open.len() >= DEPTH_MAX {
            dropped.push(calls.open.remove(0));
            calls.all_since = None;
        }
        calls.open.push(call);
    }

    /// A thread leaves a call. Everything since `intact` was recorded. `left` receives the calls
    /// that the thread has left before, without an exit.
    pub fn exit(&mut self, key: ThreadKey, status: u32, intact: TraceTime, left: &mut Vec<OpenCall>) -> Exit {
        let Some(calls) = self.threads.get_mut(&key) else { return Exit::NotEntered };
        let knows_all = calls.all_since.is_some_and(|since| since >= intact);
        while let Some(call) = calls.open.pop() {
            let routine = (key.0, call.routine.map_or(0, |routine| routine.0));
            let is_last = left.is_empty();
            let kind = match call.kind {
                ServiceKind::Unknown if self.returning.contains(&routine) => ServiceKind::Other,
                kind => kind,
            };
            match kind {
                ServiceKind::Graphics => return Exit::of(call),
                ServiceKind::Other if is_last => return Exit::of(call),
                ServiceKind::CallbackReturn if is_last && status == NO_CALLBACK_ACTIVE => {
                    return Exit::of(call);
                }
                // A service outside of the window manager makes no callback to return from.
                ServiceKind::Other | ServiceKind::CallbackReturn => left.push(call),
                // There is no other call to leave.
                ServiceKind::Unknown if is_last && knows_all && calls.open.is_empty() => {
                    // `NtCallbackReturn` returns only if it fails.
                    let has_succeeded = status >> 31 == 0;
                    if has_succeeded && call.routine.is_some() && self.returning.len() < SERVICES_MAX {
                        self.returning.insert(routine);
                    }
                    return Exit::of(call);
                }
                ServiceKind::Unknown => {
                    calls.open.iter_mut().for_each(|outer| outer.is_doubtful = true);
                    calls.all_since = None;
                    return Exit::Perhaps(call);
                }
            }
        }
        calls.all_since = None;
        Exit::NotEntered
    }
}

impl Exit {
    fn of(call: OpenCall) -> Exit {
        if call.is_doubtful { Exit::Perhaps(call) } else { Exit::Of(call) }
    }
}

/// The thread that runs on a processor.
#[derive(Clone, Copy, Debug)]
struct Running {
    tid: Option<Tid>,
    /// Time of the switch to it.
    since: TraceTime,
    /// Time up to which the processor's records are known to be complete.
    checked: TraceTime,
}

/// The threads that run on the processors of each session.
#[derive(Debug, Default)]
pub(super) struct Processors {
    running: Map<(u32, Option<u16>), Running>,
}

impl Processors {
    /// Forgets the thread of a processor if its records since the last check may be incomplete.
    pub fn check(
        &mut self,
        processor: (u32, Option<u16>),
        now: TraceTime,
        may_be_lost: impl FnOnce(TraceTime, TraceTime) -> bool,
    ) {
        if let Some(running) = self.running.get_mut(&processor) {
            // A loss after this event begins at its time.
            let until = TraceTime(now.0.saturating_sub(1)).max(running.checked);
            if may_be_lost(running.checked, until) {
                running.tid = None;
            }
            running.checked = now;
        }
    }

    /// The thread that runs on a processor, if it is known. The idle thread makes no calls.
    pub fn running(&self, processor: (u32, Option<u16>)) -> Option<Tid> {
        self.running.get(&processor)?.tid.filter(|tid| tid.0 != 0)
    }

    /// The processor switches from one thread to another; `None` if they are not known. Returns
    /// since when a wrong thread was assumed to run on it, if that is so.
    pub fn switch(
        &mut self,
        processor: (u32, Option<u16>),
        threads: Option<(Tid, Tid)>,
        now: TraceTime,
    ) -> Option<TraceTime> {
        let tid = threads.map(|(_, new)| new);
        let before = self.running.insert(processor, Running { tid, since: now, checked: now })?;
        let is_wrong = threads.zip(before.tid).is_some_and(|((old, _), assumed)| old != assumed);
        is_wrong.then_some(before.since)
    }
}
