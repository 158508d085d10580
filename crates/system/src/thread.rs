//! Threads.

use std::collections::BTreeMap;

use stackhound_etl::{Address, Pid, Tid};
use stackhound_trace::TraceTime;

use crate::caller::Caller;
use crate::lifetimes::{Identity, Lifetimes};
use crate::process::{ProcessId, ProcessRef};
use crate::span::{Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};

/// One thread of a [`System`]. Numbers are dense and start at 0, in the order of first sighting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ThreadId(pub(crate) u32);

impl ThreadId {
    /// For columns with a place for each thread.
    pub fn index(self) -> usize {
        self.0 as usize
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
        self.records.len()
    }

    #[inline]
    pub fn at(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        self.lifetimes.at(tid.0, time).map(ThreadId)
    }

    #[inline]
    pub fn newest_until(&self, tid: Tid, time: TraceTime) -> Option<ThreadId> {
        self.lifetimes.newest_until(tid.0, time).map(ThreadId)
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
        let has_other_names = !is_new && self.renames(ThreadId(holder), Span::OPEN).next().is_some();
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
        ThreadId(holder)
    }

    /// Takes in that a thread is named.
    pub fn rename(&mut self, time: TraceTime, (process, tid): (ProcessId, Tid), name: Text) {
        let (holder, is_new) = self.lifetimes.expect(tid.0, time);
        self.record(holder, is_new, tid, process);
        self.renamed.insert((ThreadId(holder), time), name);
    }

    /// Names given up to a time, the latest first.
    fn renames(&self, id: ThreadId, until: TraceTime) -> impl Iterator<Item = Text> + '_ {
        self.renamed.range((id, Span::BEGINNING)..=(id, until)).rev().map(|(_, &name)| name)
    }

    fn record(&mut self, holder: u32, is_new: bool, tid: Tid, process: ProcessId) -> &mut Record {
        if is_new {
            self.records.push(Record {
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
            });
        }
        &mut self.records[holder as usize]
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
        self.system.threads.lifetimes.span(self.id.0)
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
