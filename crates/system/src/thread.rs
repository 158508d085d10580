//! Threads.

use std::collections::BTreeMap;

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, Tid};

use crate::caller::Caller;
use crate::lifetimes::{Identity, Lifetimes};
use crate::process::{ProcessId, ProcessRef};
use crate::slab::Id;
use crate::span::{Evidence, Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::thread_owners::Statements;
use crate::validity::ValidityRange;

/// The id of a thread in a [`System`]. Indexes start at 0, in the order of first observation. The
/// index of a [forgotten](System::forget_before) thread is used again, with a different id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) Id);

impl ThreadId {
    /// An index for columns with one entry for each thread. If threads are forgotten, an entry can
    /// still belong to an earlier thread with the same index.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// The stack of a thread. It grows from `base` down to `limit`, the lowest address in use so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackExtent {
    /// The address just above the first frame.
    pub base: Address,
    /// The lowest address.
    pub limit: Address,
}

/// The facts that an event states about a thread in addition to its ids. An empty text and `None`
/// mean "not stated".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadFacts<'a> {
    /// The kernel stack.
    pub kernel_stack: Option<StackExtent>,
    /// The user stack.
    pub user_stack: Option<StackExtent>,
    /// The address at which the kernel starts the thread.
    pub start_address: Option<Address>,
    /// The function that the thread was created for.
    pub win32_start_address: Option<Address>,
    /// The thread environment block.
    pub teb: Option<Address>,
    /// Distinguishes threads of different services in one process.
    pub sub_process_tag: Option<u32>,
    /// The name of the thread.
    pub name: &'a str,
    /// The thread that created this one.
    pub creator: Option<Caller>,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub tid: Tid,
    pub process: ProcessId,
    kernel_stack: Option<StackExtent>,
    user_stack: Option<StackExtent>,
    start_address: Option<Address>,
    win32_start_address: Option<Address>,
    teb: Option<Address>,
    sub_process_tag: Option<u32>,
    /// The name up to the first renaming.
    name: Text,
    creator: Option<Caller>,
    /// The times of the first thread event about the thread, and of the last one that states the
    /// same start address.
    pub thread_events: Option<(TraceTime, TraceTime)>,
    /// Whether it is an earlier thread, for which another process was stated in between, and no thread
    /// event since then.
    pub is_continued: bool,
    /// Whether thread events state that a thread of another process had the id before and after.
    pub is_disputed: bool,
    /// The times of the first and the last event that states the process of the thread.
    pub observed: Option<(TraceTime, TraceTime)>,
}

impl Record {
    fn of(tid: Tid, process: ProcessId) -> Record {
        Record {
            tid,
            process,
            kernel_stack: None,
            user_stack: None,
            start_address: None,
            win32_start_address: None,
            teb: None,
            sub_process_tag: None,
            name: Text::EMPTY,
            creator: None,
            thread_events: None,
            is_continued: false,
            is_disputed: false,
            observed: None,
        }
    }

    /// The same thread, after another process was stated for it.
    pub fn continued(self) -> Record {
        Record { is_continued: true, observed: None, ..self }
    }

    /// Notes the time of an event that states the process.
    pub fn observe(&mut self, time: TraceTime) {
        let (first, last) = self.observed.unwrap_or((time, time));
        self.observed = Some((first.min(time), last.max(time)));
    }

    /// The time of the last event that states the process.
    pub fn last_observed(&self) -> TraceTime {
        self.observed.map_or(Span::BEGINNING, |(_, last)| last)
    }
}

/// All threads. Each takes about 220 bytes, plus 40 for each renaming.
#[derive(Debug)]
pub(crate) struct Threads {
    pub lifetimes: Lifetimes,
    pub records: Vec<Record>,
    pub statements: Statements,
    /// Whether any thread is disputed.
    pub has_disputed: bool,
    /// Names given during the life of a thread, by thread and time.
    renamed: BTreeMap<(ThreadId, TraceTime), Text>,
}

impl Threads {
    /// The idle threads, which share one id, exist without any event.
    pub fn new() -> Threads {
        let mut threads = Threads {
            lifetimes: Lifetimes::default(),
            records: Vec::new(),
            statements: Statements::default(),
            has_disputed: false,
            renamed: BTreeMap::new(),
        };
        let (holder, is_new) = threads.lifetimes.expect(Tid(0).0, Span::BEGINNING);
        threads.record(holder, is_new, Tid(0), ProcessId::IDLE);
        threads
    }

    pub fn len(&self) -> usize {
        self.lifetimes.len()
    }

    /// The number of stored names that were given during the life of a thread.
    pub fn renames_len(&self) -> usize {
        self.renamed.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ThreadId> {
        self.lifetimes.ids().map(ThreadId)
    }

    pub(crate) fn id(&self, holder: u32) -> ThreadId {
        ThreadId(self.lifetimes.id(holder))
    }

    /// Forgets threads that ended before a time, and threads of forgotten processes. Returns their
    /// number.
    pub fn forget_before(&mut self, time: TraceTime, is_there: impl Fn(ProcessId) -> bool) -> u64 {
        self.forget_statements();
        let records = &self.records;
        let forgotten = self.lifetimes.forget(|id, span| {
            let is_over = span.to < time || !is_there(records[id.index()].process);
            is_over.then_some(span.to.min(time))
        });
        for &slot in &forgotten {
            let record = &mut self.records[slot as usize];
            *record = Record::of(record.tid, record.process);
        }
        let mut kept: Vec<((ThreadId, TraceTime), Text)> = Vec::new();
        for (key, name) in std::mem::take(&mut self.renamed) {
            let (thread, at) = key;
            if self.lifetimes.span_of(thread.0).is_none() {
                continue;
            }
            // Of the names given before the time, the last one applies.
            if at < time && kept.last().is_some_and(|((other, _), _)| *other == thread) {
                kept.pop();
            }
            kept.push((key, name));
        }
        self.renamed = kept.into_iter().collect();
        forgotten.len() as u64
    }

    /// Forgets the oldest names given during the life of a thread until `left` remain. Returns the
    /// number of forgotten names.
    pub fn forget_renames(&mut self, left: usize) -> u64 {
        let excess = self.renamed.len().saturating_sub(left);
        let mut times: Vec<TraceTime> = self.renamed.keys().map(|&(_, time)| time).collect();
        if excess > 0 {
            let (_, &mut newest, _) = times.select_nth_unstable(excess - 1);
            self.renamed.retain(|&(_, time), _| time > newest);
        }
        (times.len() - self.renamed.len()) as u64
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.records.iter_mut().map(|record| &mut record.name).chain(self.renamed.values_mut())
    }

    #[inline]
    pub fn at(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        self.lifetimes.at(tid.0, time).map(|holder| self.id(holder))
    }

    /// The thread with this id at a time, or the last one. `None` also at times of which it is not
    /// known whether the id still had its thread or already the next one.
    #[inline]
    pub fn of_event(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        let holder = self.lifetimes.holder_of_event(tid.0, time)?;
        (!self.records[holder as usize].is_disputed).then(|| self.id(holder))
    }

    /// Whether events contradict each other about the process of the thread with this id at a time.
    pub fn is_uncertain(&self, tid: Tid, time: TraceTime) -> bool {
        let newest = self.lifetimes.newest_until(tid.0, time);
        newest.is_some_and(|holder| {
            self.lifetimes.span(holder).is_uncertain_at(time) || self.records[holder as usize].is_disputed
        })
    }

    /// The times around a time at which an event that states this id refers to the same thread.
    pub fn validity(&self, tid: Tid, time: TraceTime) -> ValidityRange {
        self.lifetimes.validity(tid.0, time)
    }

    pub fn observe(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        (process, tid): (ProcessId, Tid),
        facts: &ThreadFacts<'_>,
    ) -> ThreadId {
        let is_idle = tid == Tid(0);
        self.forget_statement(tid);
        let phase = match phase {
            // One id represents the idle threads of all processors.
            Phase::Start | Phase::End if is_idle => Phase::RundownAtStart,
            phase => phase,
        };
        let records = &self.records;
        let identity = |holder: u32| {
            if is_idle {
                Identity::Same
            } else if records[holder as usize].process == process {
                Identity::Unsure
            } else {
                Identity::Different
            }
        };
        let before = self.lifetimes.newest_until(tid.0, time);
        let (holder, is_new) = self.lifetimes.observe(tid.0, phase, time, identity);
        if let Some(before) = before.filter(|_| is_new && phase != Phase::Start) {
            self.end_replaced(before, time);
        }
        let record = self.record(holder, is_new, tid, process);
        let repeats =
            record.win32_start_address.is_some() && record.win32_start_address == facts.win32_start_address;
        record.thread_events = match record.thread_events {
            Some((first, last)) if repeats => Some((first, last.max(time))),
            events => events.or(Some((time, time))),
        };
        record.observe(time);
        record.kernel_stack = record.kernel_stack.or(facts.kernel_stack);
        record.user_stack = record.user_stack.or(facts.user_stack);
        record.start_address = record.start_address.or(facts.start_address);
        record.win32_start_address = record.win32_start_address.or(facts.win32_start_address);
        record.teb = record.teb.or(facts.teb);
        record.sub_process_tag = record.sub_process_tag.or(facts.sub_process_tag);
        record.creator = record.creator.or(facts.creator.filter(|_| phase == Phase::Start));
        // The name of a thread at its end may have been given during its life.
        let takes_name = record.name.is_empty() && !facts.name.is_empty();
        let id = self.id(holder);
        if takes_name && self.renames(id, Span::OPEN).next().is_none() {
            self.records[id.index()].name = texts.intern(facts.name);
        }
        if phase != Phase::Start {
            self.dispute(holder);
        }
        id
    }

    /// Ends a thread that another one was found to have replaced at a time, when its own events end:
    /// the other one began at an unknown time.
    fn end_replaced(&mut self, thread: u32, time: TraceTime) {
        let span = self.lifetimes.span(thread);
        let last = self.records[thread as usize].last_observed();
        if span.end == Evidence::Unknown && span.to == time && last < time {
            self.lifetimes.end_unobserved(thread, last);
        }
    }

    /// Records a new name of a thread.
    pub fn rename(&mut self, time: TraceTime, (process, tid): (ProcessId, Tid), name: Text) {
        let (holder, is_new) = self.lifetimes.expect(tid.0, time);
        self.record(holder, is_new, tid, process);
        self.renamed.insert((self.id(holder), time), name);
    }

    /// The names given up to a time, the latest first.
    fn renames(&self, id: ThreadId, until: TraceTime) -> impl Iterator<Item = Text> + '_ {
        self.renamed.range((id, Span::BEGINNING)..=(id, until)).rev().map(|(_, &name)| name)
    }

    pub(crate) fn record(&mut self, holder: u32, is_new: bool, tid: Tid, process: ProcessId) -> &mut Record {
        let index = holder as usize;
        if is_new {
            // A new slot, or the slot of a forgotten thread.
            match self.records.get_mut(index) {
                Some(record) => *record = Record::of(tid, process),
                None => self.records.push(Record::of(tid, process)),
            }
        }
        &mut self.records[index]
    }
}

/// A thread in a [`System`].
#[derive(Clone, Copy, Debug)]
pub struct ThreadRef<'s> {
    pub(crate) system: &'s System,
    pub(crate) id: ThreadId,
}

impl<'s> ThreadRef<'s> {
    fn record(&self) -> &'s Record {
        self.span();
        &self.system.threads.records[self.id.index()]
    }

    /// The id in the system.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// The thread id.
    pub fn tid(&self) -> Tid {
        self.record().tid
    }

    /// The process of the thread.
    pub fn process(&self) -> ProcessRef<'s> {
        ProcessRef { system: self.system, id: self.record().process }
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        self.process().pid()
    }

    /// The known lifetime of the thread.
    pub fn span(&self) -> Span {
        self.system.threads.lifetimes.span_of(self.id.0).expect("the thread was not forgotten")
    }

    /// The name at a time; empty if there was none. A name that is recorded only at the end of the
    /// thread or in the rundown at the end counts as given at the start of the thread, and is known
    /// after it was observed.
    pub fn name_at(&self, time: TraceTime) -> &'s str {
        let threads = &self.system.threads;
        self.system.texts.get(threads.renames(self.id, time).next().unwrap_or(self.record().name))
    }

    /// The times of the first and the last event that states the process of the thread: a thread
    /// event, an event of the thread, or the record of its stack. `None` if there is none.
    pub fn process_observed(&self) -> Option<(TraceTime, TraceTime)> {
        let (first, last) = self.record().observed?;
        let statement = self.system.threads.last_statement(self.tid(), self.id.0.slot());
        Some((first, statement.map_or(last, |time| time.max(last))))
    }

    /// The times of the first thread event about the thread, and of the last one that states the same
    /// start address. Its facts apply to all times between which and one of these no event can be
    /// missing. `None` if no event has stated more than its id and its process.
    pub fn thread_events(&self) -> Option<(TraceTime, TraceTime)> {
        self.record().thread_events
    }

    /// The thread that created this one, if the start was observed. Its process can differ from
    /// this thread's process.
    pub fn creator(&self) -> Option<Caller> {
        self.record().creator
    }

    /// The address at which the kernel starts the thread. Recorded on older systems only.
    pub fn start_address(&self) -> Option<Address> {
        self.record().start_address
    }

    /// The function that the thread was created for.
    pub fn win32_start_address(&self) -> Option<Address> {
        self.record().win32_start_address
    }

    /// The function that the thread was created for, otherwise the address at which the kernel starts
    /// it.
    pub fn start_function(&self) -> Option<Address> {
        let is_known = |address: &Address| address.0 != 0;
        let function = self.win32_start_address().filter(is_known);
        function.or_else(|| self.start_address().filter(is_known))
    }

    /// The kernel stack.
    pub fn kernel_stack(&self) -> Option<StackExtent> {
        self.record().kernel_stack
    }

    /// The user stack. Kernel threads have none.
    pub fn user_stack(&self) -> Option<StackExtent> {
        self.record().user_stack
    }

    /// The thread environment block.
    pub fn teb(&self) -> Option<Address> {
        self.record().teb
    }

    /// Distinguishes threads of different services in one process.
    pub fn sub_process_tag(&self) -> Option<u32> {
        self.record().sub_process_tag
    }
}
