//! Processes.

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid};

use crate::caller::Caller;
use crate::lifetimes::{Identity, Lifetimes};
use crate::slab::Id;
use crate::span::{Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::validity::ValidityRange;

/// One process of a [`System`]. Indexes start at 0, in the order of first observation. That of a process that was
/// [forgotten](System::forget_before) is given to another one, whose number is not equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub(crate) Id);

impl ProcessId {
    /// The idle process.
    pub const IDLE: ProcessId = ProcessId(Id::first(0));
    /// The System process.
    pub const SYSTEM: ProcessId = ProcessId(Id::first(1));

    /// For columns with a place for each process. Where processes are forgotten, what stands there can be of another
    /// one that had the index before.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// What tells a process from every other one of a trace, whatever was read of it: process ids are given out again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessEntity {
    /// Its process id.
    pub pid: Pid,
    /// When it started; `None` if before the trace.
    pub start: Option<TraceTime>,
}

/// What an event states about a process. Empty texts and `None` stand for "not stated".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessFacts<'a> {
    /// Its process id.
    pub pid: Pid,
    /// The process that it inherits from, which need not be the one that created it.
    pub parent: Option<Pid>,
    /// The terminal session.
    pub session: Option<u32>,
    /// The process object: tells processes with the same id apart.
    pub key: Option<Address>,
    /// As recorded: 1 has an application id, 2 WOW64, 4 protected, 8 packaged.
    pub flags: Option<u32>,
    /// NTSTATUS. Taken from events that tell of the end only.
    pub exit_status: Option<u32>,
    /// The user's SID, without what stands around it.
    pub sid: &'a [u8],
    /// File name, without its folder.
    pub image_name: &'a str,
    /// As given to the process.
    pub command_line: &'a str,
    /// The thread that created it.
    pub creator: Option<Caller>,
}

impl ProcessFacts<'_> {
    /// Nothing but the process id.
    pub fn of(pid: Pid) -> ProcessFacts<'static> {
        ProcessFacts {
            pid,
            parent: None,
            session: None,
            key: None,
            flags: None,
            exit_status: None,
            sid: &[],
            image_name: "",
            command_line: "",
            creator: None,
        }
    }
}

#[derive(Debug)]
struct Record {
    pid: Pid,
    parent: Option<Pid>,
    session: Option<u32>,
    key: Option<Address>,
    flags: Option<u32>,
    exit_status: Option<u32>,
    sid: Box<[u8]>,
    image_name: Text,
    command_line: Text,
    creator: Option<Caller>,
    is_defunct: bool,
    /// There was too much of its modules or methods, so that they were forgotten.
    was_shed: bool,
}

impl Record {
    /// Nothing but the process id.
    fn of(pid: Pid) -> Record {
        Record {
            pid,
            parent: None,
            session: None,
            key: None,
            flags: None,
            exit_status: None,
            sid: Box::default(),
            image_name: Text::EMPTY,
            command_line: Text::EMPTY,
            creator: None,
            is_defunct: false,
            was_shed: false,
        }
    }
}

/// All processes. About 180 bytes each, and their distinct texts.
#[derive(Debug)]
pub(crate) struct Processes {
    lifetimes: Lifetimes,
    records: Vec<Record>,
}

impl Processes {
    /// The two processes that are there without any event, since events name them before any rundown.
    pub fn new(texts: &mut Texts) -> Processes {
        let mut processes = Processes { lifetimes: Lifetimes::default(), records: Vec::new() };
        for (pid, name, id) in
            [(Pid::IDLE, "Idle", ProcessId::IDLE), (Pid::SYSTEM, "System", ProcessId::SYSTEM)]
        {
            let expected = processes.expect(pid, Span::BEGINNING);
            debug_assert_eq!(expected, id);
            processes.records[id.index()].image_name = texts.intern(name);
        }
        processes
    }

    pub fn len(&self) -> usize {
        self.lifetimes.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ProcessId> {
        self.lifetimes.ids().map(ProcessId)
    }

    /// `None` if the process was forgotten.
    #[inline]
    pub fn span(&self, id: ProcessId) -> Option<Span> {
        self.lifetimes.span_of(id.0)
    }

    #[inline]
    pub fn at(&self, pid: Pid, time: TraceTime) -> Option<ProcessId> {
        self.lifetimes.at(pid.0, time).map(|holder| self.id(holder))
    }

    #[inline]
    pub fn newest_until(&self, pid: Pid, time: TraceTime) -> Option<ProcessId> {
        self.lifetimes.newest_until(pid.0, time).map(|holder| self.id(holder))
    }

    /// The times around a time at which the same one is the newest with this id.
    pub fn validity(&self, pid: Pid, time: TraceTime) -> ValidityRange {
        self.lifetimes.validity(pid.0, time)
    }

    fn id(&self, holder: u32) -> ProcessId {
        ProcessId(self.lifetimes.id(holder))
    }

    /// Forgets processes that ended before a time; gives their indexes.
    pub fn forget_before(&mut self, time: TraceTime) -> Vec<u32> {
        let forgotten = self.lifetimes.forget(|_, span| (span.to < time).then_some(span.to));
        for &slot in &forgotten {
            let record = &mut self.records[slot as usize];
            *record = Record::of(record.pid);
        }
        forgotten
    }

    /// Whether a process has ended.
    pub fn is_over(&self, index: u32) -> bool {
        self.lifetimes.get(index).is_none_or(|span| span.to != Span::OPEN)
    }

    /// Notes that modules or methods of a process were forgotten although it is there.
    pub fn mark_shed(&mut self, index: u32) {
        if let Some(record) = self.records.get_mut(index as usize) {
            record.was_shed = true;
        }
    }

    /// Whether modules or methods of a process were forgotten.
    pub fn was_shed(&self, id: ProcessId) -> bool {
        self.records[id.index()].was_shed
    }

    /// All texts that are referred to.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.records.iter_mut().flat_map(|record| [&mut record.image_name, &mut record.command_line])
    }

    pub fn sight(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
    ) -> ProcessId {
        let phase = match phase {
            // These two never come and go, whatever a recording says.
            Phase::Start | Phase::End if facts.pid.is_kernel_only() => Phase::RundownAtStart,
            phase => phase,
        };
        let records = &self.records;
        let identity = |holder: u32| match (records[holder as usize].key, facts.key) {
            _ if facts.pid.is_kernel_only() => Identity::Same,
            (Some(known), Some(stated)) if known == stated => Identity::Same,
            (Some(_), Some(_)) => Identity::Different,
            _ => Identity::Unsure,
        };
        let (holder, is_new) = self.lifetimes.sight(facts.pid.0, phase, time, identity);
        let record = self.record(holder, is_new, facts.pid);
        record.parent = record.parent.or(facts.parent);
        record.session = record.session.or(facts.session);
        record.key = record.key.or(facts.key);
        record.flags = record.flags.or(facts.flags);
        record.creator = record.creator.or(facts.creator.filter(|_| phase == Phase::Start));
        if phase == Phase::End {
            record.exit_status = record.exit_status.or(facts.exit_status);
        }
        if record.sid.is_empty() {
            record.sid = facts.sid.into();
        }
        if record.image_name.is_empty() {
            record.image_name = texts.intern(facts.image_name);
        }
        if record.command_line.is_empty() {
            record.command_line = texts.intern(facts.command_line);
        }
        self.id(holder)
    }

    /// Takes in that at the recording's end a process is only an object: it has ended, but somebody holds a handle.
    pub fn sight_defunct(
        &mut self,
        texts: &mut Texts,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
    ) -> ProcessId {
        let id = self.sight(texts, Phase::RundownAtEnd, time, facts);
        let record = &mut self.records[id.index()];
        record.is_defunct = true;
        record.exit_status = record.exit_status.or(facts.exit_status);
        id
    }

    /// The process that an event about something in it means; made up where none is known.
    pub fn expect(&mut self, pid: Pid, time: TraceTime) -> ProcessId {
        let (holder, is_new) = self.lifetimes.expect(pid.0, time);
        self.record(holder, is_new, pid);
        self.id(holder)
    }

    /// As [`expect`](Processes::expect), for the end of something, which may come behind that of its process.
    pub fn expect_until(&mut self, pid: Pid, time: TraceTime) -> ProcessId {
        self.newest_until(pid, time).unwrap_or_else(|| self.expect(pid, time))
    }

    fn record(&mut self, holder: u32, is_new: bool, pid: Pid) -> &mut Record {
        let location = holder as usize;
        if is_new {
            // A new number, or that of a process that was forgotten.
            match self.records.get_mut(location) {
                Some(record) => *record = Record::of(pid),
                None => self.records.push(Record::of(pid)),
            }
        }
        &mut self.records[location]
    }
}

/// A process as a [`System`] knows it.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRef<'s> {
    pub(crate) system: &'s System,
    pub(crate) id: ProcessId,
}

impl<'s> ProcessRef<'s> {
    fn record(&self) -> &'s Record {
        self.span();
        &self.system.processes.records[self.id.index()]
    }

    /// Its number.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.record().pid
    }

    /// When it existed. It can have existed longer than its modules and threads: see [`Span`].
    pub fn span(&self) -> Span {
        self.system.processes.span(self.id).expect("the process was not forgotten")
    }

    /// What identifies it.
    pub fn entity(&self) -> ProcessEntity {
        let from = self.span().from;
        ProcessEntity { pid: self.pid(), start: (from != Span::BEGINNING).then_some(from) }
    }

    /// File name, without its folder; older systems cut it at 15 characters. Empty if not known.
    pub fn image_name(&self) -> &'s str {
        self.system.texts.get(self.record().image_name)
    }

    /// Empty if not known.
    pub fn command_line(&self) -> &'s str {
        self.system.texts.get(self.record().command_line)
    }

    /// The process that it inherits from. Whoever creates a process can name another one; see
    /// [`creator`](ProcessRef::creator).
    pub fn parent_pid(&self) -> Option<Pid> {
        self.record().parent
    }

    /// The process that had the parent's id when this one started, if it is known.
    pub fn parent(&self) -> Option<ProcessRef<'s>> {
        self.system.process_at(self.parent_pid()?, self.span().from).filter(|parent| parent.id != self.id)
    }

    /// The thread that created it, if its start was observed.
    pub fn creator(&self) -> Option<Caller> {
        self.record().creator
    }

    /// The terminal session; `0xffff_ffff` for system processes.
    pub fn session(&self) -> Option<u32> {
        self.record().session
    }

    /// The process object.
    pub fn unique_process_key(&self) -> Option<Address> {
        self.record().key
    }

    /// As recorded: 1 has an application id, 2 WOW64, 4 protected, 8 packaged.
    pub fn flags(&self) -> Option<u32> {
        self.record().flags
    }

    /// NTSTATUS, if its end was observed.
    pub fn exit_status(&self) -> Option<u32> {
        self.record().exit_status
    }

    /// The user's SID.
    pub fn sid(&self) -> Option<&'s [u8]> {
        Some(&*self.record().sid).filter(|sid| !sid.is_empty())
    }

    /// Whether at the recording's end it was only an object that somebody held a handle to. If its end was not
    /// observed, it ended before the recording began or while events were lost.
    pub fn is_defunct(&self) -> bool {
        self.record().is_defunct
    }
}
