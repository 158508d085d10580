//! Threads.

use std::collections::BTreeMap;

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, Tid};

use crate::caller::Caller;
use crate::lifetimes::{Identity, Lifetimes};
use crate::process::{ProcessId, ProcessRef};
use crate::slab::Id;
use crate::span::{Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::validity::ValidityRange;

/// One thread of a [`System`]. Indexes start at 0, in the order of first observation. That of a thread that was
/// [forgotten](System::forget_before) is given to another one, whose number is not equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) Id);

impl ThreadId {
    /// For columns with a place for each thread. Where threads are forgotten, what stands there can be of another one
    /// that had the index before.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// A stack of a thread. It grows from `base` down to `limit`, the lowest address so far in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StackExtent {
    /// Just above the first frame.
    pub base: Address,
    /// The lowest address.
    pub limit: Address,
}

/// What an event states about a thread beside its number. An empty text and `None` stand for "not stated".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadFacts<'a> {
    /// The stack in the kernel.
    pub kernel_stack: Option<StackExtent>,
    /// The stack in user mode.
    pub user_stack: Option<StackExtent>,
    /// Where the kernel starts it.
    pub start_address: Option<Address>,
    /// The function that it was created for.
    pub win32_start_address: Option<Address>,
    /// Its environment block.
    pub teb: Option<Address>,
    /// Tells threads of different services in one process apart.
    pub sub_process_tag: Option<u32>,
    /// The name that somebody gave it.
    pub name: &'a str,
    /// The thread that created it.
    pub creator: Option<Caller>,
}

#[derive(Debug)]
struct Record {
    tid: Tid,
    process: ProcessId,
    kernel_stack: Option<StackExtent>,
    user_stack: Option<StackExtent>,
    start_address: Option<Address>,
    win32_start_address: Option<Address>,
    teb: Option<Address>,
    sub_process_tag: Option<u32>,
    /// Up to the first time that it is named again.
    name: Text,
    creator: Option<Caller>,
}

impl Record {
    /// Nothing but its numbers.
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
        }
    }
}

/// All threads. About 200 bytes each, and 40 for each time that one is named again.
#[derive(Debug)]
pub(crate) struct Threads {
    lifetimes: Lifetimes,
    records: Vec<Record>,
    /// Names given in mid-life, by thread and time.
    renamed: BTreeMap<(ThreadId, TraceTime), Text>,
}

impl Threads {
    /// The idle threads, which share one number, are there without any event.
    pub fn new() -> Threads {
        let mut threads =
            Threads { lifetimes: Lifetimes::default(), records: Vec::new(), renamed: BTreeMap::new() };
        let (holder, is_new) = threads.lifetimes.expect(Tid(0).0, Span::BEGINNING);
        threads.record(holder, is_new, Tid(0), ProcessId::IDLE);
        threads
    }

    pub fn len(&self) -> usize {
        self.lifetimes.len()
    }

    /// Names given in mid-life that are kept.
    pub fn renames_len(&self) -> usize {
        self.renamed.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ThreadId> {
        self.lifetimes.ids().map(ThreadId)
    }

    fn id(&self, holder: u32) -> ThreadId {
        ThreadId(self.lifetimes.id(holder))
    }

    /// Forgets threads that ended before a time, and those of processes that are not there any more. Gives how many.
    pub fn forget_before(&mut self, time: TraceTime, is_there: impl Fn(ProcessId) -> bool) -> u64 {
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
            // Of the names before the time, the last one holds.
            if at < time && kept.last().is_some_and(|((other, _), _)| *other == thread) {
                kept.pop();
            }
            kept.push((key, name));
        }
        self.renamed = kept.into_iter().collect();
        forgotten.len() as u64
    }

    /// Forgets the oldest names given in mid-life until so many are left. Gives how many.
    pub fn forget_renames(&mut self, left: usize) -> u64 {
        let excess = self.renamed.len().saturating_sub(left);
        let mut times: Vec<TraceTime> = self.renamed.keys().map(|&(_, time)| time).collect();
        if excess > 0 {
            let (_, &mut newest, _) = times.select_nth_unstable(excess - 1);
            self.renamed.retain(|&(_, time), _| time > newest);
        }
        (times.len() - self.renamed.len()) as u64
    }

    /// All texts that are referred to.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.records.iter_mut().map(|record| &mut record.name).chain(self.renamed.values_mut())
    }

    #[inline]
    pub fn at(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        self.lifetimes.at(tid.0, time).map(|holder| self.id(holder))
    }

    #[inline]
    pub fn newest_until(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        self.lifetimes.newest_until(tid.0, time).map(|holder| self.id(holder))
    }

    /// The times around a time at which the same one is the newest with this id.
    pub fn validity(&self, tid: Tid, time: TraceTime) -> ValidityRange {
        self.lifetimes.validity(tid.0, time)
    }

    pub fn sight(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        (process, tid): (ProcessId, Tid),
        facts: &ThreadFacts<'_>,
    ) -> ThreadId {
        let is_idle = tid == Tid(0);
        let phase = match phase {
            // One number stands for the idle threads of all processors.
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
        let (holder, is_new) = self.lifetimes.sight(tid.0, phase, time, identity);
        let has_other_names = !is_new && self.renames(self.id(holder), Span::OPEN).next().is_some();
        let record = self.record(holder, is_new, tid, process);
        record.kernel_stack = record.kernel_stack.or(facts.kernel_stack);
        record.user_stack = record.user_stack.or(facts.user_stack);
        record.start_address = record.start_address.or(facts.start_address);
        record.win32_start_address = record.win32_start_address.or(facts.win32_start_address);
        record.teb = record.teb.or(facts.teb);
        record.sub_process_tag = record.sub_process_tag.or(facts.sub_process_tag);
        record.creator = record.creator.or(facts.creator.filter(|_| phase == Phase::Start));
        // The name that a thread has at its end may have been given by then.
        if record.name.is_empty() && !has_other_names {
            record.name = texts.intern(facts.name);
        }
        self.id(holder)
    }

    /// Takes in that a thread is named.
    pub fn rename(&mut self, time: TraceTime, (process, tid): (ProcessId, Tid), name: Text) {
        let (holder, is_new) = self.lifetimes.expect(tid.0, time);
        self.record(holder, is_new, tid, process);
        self.renamed.insert((self.id(holder), time), name);
    }

    /// Names given up to a time, the latest first.
    fn renames(&self, id: ThreadId, until: TraceTime) -> impl Iterator<Item = Text> + '_ {
        self.renamed.range((id, Span::BEGINNING)..=(id, until)).rev().map(|(_, &name)| name)
    }

    fn record(&mut self, holder: u32, is_new: bool, tid: Tid, process: ProcessId) -> &mut Record {
        let location = holder as usize;
        if is_new {
            // A new number, or that of a thread that was forgotten.
            match self.records.get_mut(location) {
                Some(record) => *record = Record::of(tid, process),
                None => self.records.push(Record::of(tid, process)),
            }
        }
        &mut self.records[location]
    }
}

/// A thread as a [`System`] knows it.
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

    /// Its number.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// Its thread id.
    pub fn tid(&self) -> Tid {
        self.record().tid
    }

    /// Its process.
    pub fn process(&self) -> ProcessRef<'s> {
        ProcessRef { system: self.system, id: self.record().process }
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process().pid()
    }

    /// When it existed, as far as it is known.
    pub fn span(&self) -> Span {
        self.system.threads.lifetimes.span_of(self.id.0).expect("the thread was not forgotten")
    }

    /// The name that it had at a time; empty if it had none. One that only its end or the rundown at the end tells
    /// counts as given from its start on, and is known once that was observed.
    pub fn name_at(&self, time: TraceTime) -> &'s str {
        let threads = &self.system.threads;
        self.system.texts.get(threads.renames(self.id, time).next().unwrap_or(self.record().name))
    }

    /// The thread that created it, if its start was observed. Its process need not be this thread's.
    pub fn creator(&self) -> Option<Caller> {
        self.record().creator
    }

    /// Where the kernel starts it; known from older systems only.
    pub fn start_address(&self) -> Option<Address> {
        self.record().start_address
    }

    /// The function that it was created for.
    pub fn win32_start_address(&self) -> Option<Address> {
        self.record().win32_start_address
    }

    /// The stack in the kernel.
    pub fn kernel_stack(&self) -> Option<StackExtent> {
        self.record().kernel_stack
    }

    /// The stack in user mode; threads of the kernel have none.
    pub fn user_stack(&self) -> Option<StackExtent> {
        self.record().user_stack
    }

    /// Its environment block.
    pub fn teb(&self) -> Option<Address> {
        self.record().teb
    }

    /// Tells threads of different services in one process apart.
    pub fn sub_process_tag(&self) -> Option<u32> {
        self.record().sub_process_tag
    }
}
