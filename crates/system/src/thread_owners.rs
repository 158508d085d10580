//! The process of a thread, learned from events of the thread that state both ids: in their headers,
//! and in the records of their stacks.
//!
//! Traces often contain events of threads that neither a thread event nor a rundown lists. If another
//! process is stated for a thread id, the earlier thread ended unobserved.

use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use crate::process::ProcessId;
use crate::span::Evidence;
use crate::thread::{Record, ThreadId, Threads};

/// The number of threads whose last statement is kept.
const SLOTS: usize = 256;

/// The last statement about a thread.
#[derive(Clone, Copy, Debug)]
struct Statement {
    pid: Pid,
    tid: Tid,
    /// The slot of the thread.
    holder: u32,
    time: TraceTime,
}

/// The last statements, so that repetitions cost little. Threads share slots.
#[derive(Debug)]
pub(crate) struct Statements(Box<[Option<Statement>; SLOTS]>);

impl Default for Statements {
    fn default() -> Statements {
        Statements(Box::new([None; SLOTS]))
    }
}

impl Statements {
    fn slot(&mut self, tid: Tid) -> &mut Option<Statement> {
        // Thread ids are multiples of four.
        &mut self.0[tid.0 as usize / 4 % SLOTS]
    }

    /// Whether the statement repeats the last one about the thread.
    #[inline]
    fn repeats(&mut self, time: TraceTime, pid: Pid, tid: Tid) -> bool {
        match self.slot(tid) {
            Some(last) if last.tid == tid && last.pid == pid => {
                last.time = last.time.max(time);
                true
            }
            _ => false,
        }
    }
}

impl Threads {
    /// Whether a statement repeats the last one about its thread, so that nothing needs to be done.
    #[inline]
    pub fn repeats_owner(&mut self, time: TraceTime, pid: Pid, tid: Tid) -> bool {
        self.statements.repeats(time, pid, tid)
    }

    /// Records that a thread belonged to a process at a time. `since` returns the start of this process
    /// if it has the id of another one: then no thread is of that one any more. Returns whether the
    /// thread is new.
    pub fn observe_owner(
        &mut self,
        time: TraceTime,
        (process, pid): (ProcessId, Pid),
        tid: Tid,
        since: impl FnOnce(ProcessId) -> Option<TraceTime>,
    ) -> bool {
        self.forget_statement(tid);
        let records = &self.records;
        let is_same = |holder: u32| records[holder as usize].process == process;
        let last = |holder: u32| records[holder as usize].last_observed();
        let since = |holder: u32| since(records[holder as usize].process);
        let (holder, is_new) = self.lifetimes.observe_holder(tid.0, time, is_same, last, since);
        let earlier = if is_new { self.continued_by(tid, holder, process) } else { None };
        let record = self.record(holder, is_new, tid, process);
        if let Some(earlier) = earlier {
            *record = earlier.continued();
        }
        record.observe(time);
        if let Some(other) = self.statements.slot(tid).replace(Statement { pid, tid, holder, time }) {
            self.settle(other);
        }
        is_new
    }

    /// The thread before the one before a new one, if it has the same process and its end was not
    /// observed: then it is the same thread, and the one between them contradicts it.
    fn continued_by(&self, tid: Tid, holder: u32, process: ProcessId) -> Option<Record> {
        let earlier = self.before(tid, self.before(tid, holder)?)?;
        let record = &self.records[earlier as usize];
        let is_same = record.process == process && self.lifetimes.span(earlier).end == Evidence::Unknown;
        is_same.then(|| record.clone())
    }

    /// The thread that had the id before a thread.
    fn before(&self, tid: Tid, holder: u32) -> Option<u32> {
        let from = self.lifetimes.span(holder).from;
        self.lifetimes.newest_until(tid.0, TraceTime(from.0.checked_sub(1)?))
    }

    /// Marks the threads that only their own events state, and that had the id of a thread between two
    /// thread events about it. A later call for the same id stops at this thread.
    pub(crate) fn dispute(&mut self, thread: u32) {
        let Record { process, tid, .. } = self.records[thread as usize];
        self.records[thread as usize].is_continued = false;
        let (mut between, mut holder) = (Vec::new(), thread);
        while let Some(earlier) = self.before(tid, holder)
            && self.lifetimes.span(earlier).end == Evidence::Unknown
        {
            let record = &self.records[earlier as usize];
            match (record.process == process, record.thread_events.is_some() && !record.is_continued) {
                (true, true) => {
                    self.has_disputed |= !between.is_empty();
                    between.iter().for_each(|&other: &u32| self.records[other as usize].is_disputed = true);
                    return;
                }
                (false, true) => return,
                (false, false) => between.push(earlier),
                (true, false) => {}
            }
            holder = earlier;
        }
    }

    /// The next thread with an id after a time, if its start was not observed.
    pub(crate) fn next_unobserved(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        let [_, next] = self.lifetimes.around(tid.0, time);
        let next = next.filter(|&next| self.lifetimes.span(next).start != Evidence::Observed)?;
        (!self.records[next as usize].is_disputed).then(|| self.id(next))
    }

    /// The processes of the disputed threads that have an id at a time, or next: the record of a stack
    /// follows the event that it belongs to.
    pub(crate) fn disputed_around(&self, tid: Tid, time: TraceTime) -> impl Iterator<Item = ProcessId> {
        let holders = self.lifetimes.around(tid.0, time).into_iter().flatten();
        let records = holders.map(|holder| &self.records[holder as usize]);
        records.filter(|record| record.is_disputed).map(|record| record.process)
    }

    /// Forgets the last statement about a thread, of which other events report something new.
    pub(crate) fn forget_statement(&mut self, tid: Tid) {
        if let Some(statement) = self.statements.slot(tid).take_if(|statement| statement.tid == tid) {
            self.settle(statement);
        }
    }

    /// Forgets all last statements, because thread ids may belong to other threads.
    pub(crate) fn forget_statements(&mut self) {
        for slot in std::mem::take(&mut self.statements).0.into_iter().flatten() {
            self.settle(slot);
        }
    }

    /// Stores the time of a statement that is forgotten.
    fn settle(&mut self, statement: Statement) {
        self.records[statement.holder as usize].observe(statement.time);
    }

    /// The last statement about a thread, if it is kept.
    pub(crate) fn last_statement(&self, tid: Tid, holder: u32) -> Option<TraceTime> {
        let last = self.statements.0[tid.0 as usize / 4 % SLOTS]?;
        (last.tid == tid && last.holder == holder).then_some(last.time)
    }
}
