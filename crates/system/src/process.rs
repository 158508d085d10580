//! Processes.

use stackhound_trace::TraceTime;
use stackhound_types::{Address, FileTime, Pid};

use crate::caller::Caller;
use crate::lifetimes::{Identity, Lifetimes};
use crate::module::ModuleRef;
use crate::slab::Id;
use crate::span::{Phase, Span};
use crate::system::System;
use crate::text::{Text, Texts};
use crate::validity::ValidityRange;

/// The id of a process in a [`System`]. Indexes start at 0, in the order of first observation. The
/// index of a [forgotten](System::forget_before) process is used again, with a different id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub(crate) Id);

impl ProcessId {
    /// The idle process.
    pub const IDLE: ProcessId = ProcessId(Id::first(0));
    /// The System process.
    pub const SYSTEM: ProcessId = ProcessId(Id::first(1));

    /// An index for columns with one entry for each process. If processes are forgotten, an entry
    /// can still belong to an earlier process with the same index.
    pub fn index(self) -> usize {
        self.0.index()
    }
}

/// Identifies a process among all processes of a trace, regardless of which parts of the trace were
/// read. Process ids are reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessEntity {
    /// The process id.
    pub pid: Pid,
    /// The start time; `None` if it was before the trace.
    pub start: Option<TraceTime>,
}

/// The facts that an event states about a process. Empty texts and `None` mean "not stated".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessFacts<'a> {
    /// The process id.
    pub pid: Pid,
    /// The process that this one inherits from. It can differ from the creator.
    pub parent: Option<Pid>,
    /// The terminal session.
    pub session: Option<u32>,
    /// The address of the process object. It distinguishes processes with the same id.
    pub key: Option<Address>,
    /// The recorded flags: 1 has an application id, 2 WOW64, 4 protected, 8 packaged.
    pub flags: Option<u32>,
    /// NTSTATUS. Used only from events that report the end.
    pub exit_status: Option<u32>,
    /// The SID of the user, without the structure around it.
    pub sid: &'a [u8],
    /// The file name, without its folder.
    pub image_name: &'a str,
    /// The command line, as given to the process.
    pub command_line: &'a str,
    /// The thread that created the process.
    pub creator: Option<Caller>,
}

impl ProcessFacts<'_> {
    /// Facts with a process id only.
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

/// The facts about a process that only Microsoft-Windows-Kernel-Process states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessDetails<'a> {
    /// The time at which the process was created.
    pub create_time: FileTime,
    /// The integrity level: the last number of the mandatory label.
    pub integrity: Option<u32>,
    /// The NT path of the program.
    pub path: &'a str,
}

/// As [`ProcessDetails`], with an interned path, and the time of the statement.
#[derive(Clone, Copy, Debug)]
struct Details {
    stated: TraceTime,
    create_time: FileTime,
    integrity: Option<u32>,
    path: Text,
}

/// The source of a statement about a process. Each reports a start once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The kernel class.
    Class = 1,
    /// Microsoft-Windows-Kernel-Process.
    Provider = 2,
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
    /// Modules or methods were forgotten because a limit was exceeded.
    was_shed: bool,
    /// The times of the first and the last statement that certainly is about this process.
    seen: Option<(TraceTime, TraceTime)>,
    /// The [`Source`]s that reported the start.
    started_by: u8,
    details: Option<Box<Details>>,
}

impl Record {
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
            seen: None,
            started_by: 0,
            details: None,
        }
    }

    /// Whether the other source can have reported this start: it differs in no fact that both
    /// state, and the source has not reported the start of this process yet.
    fn is_reported_by(&self, source: Source, texts: &Texts, facts: &ProcessFacts<'_>) -> bool {
        self.started_by != 0
            && self.started_by & source as u8 == 0
            && self.parent.is_some()
            && self.parent == facts.parent
            && is_same_name(texts.get(self.image_name), facts.image_name)
    }

    fn note_statement(&mut self, time: TraceTime, is_certain: bool) {
        self.seen = match self.seen {
            None => Some((time, time)),
            Some((first, last)) if is_certain => Some((first.min(time), last.max(time))),
            seen => seen,
        };
    }
}

/// The length at which older systems cut names.
const NAME_CUT: usize = 14;

/// The first of several modules; `None` if there is none, or if they have different paths.
pub fn with_one_path<'s>(mut modules: impl Iterator<Item = ModuleRef<'s>>) -> Option<ModuleRef<'s>> {
    let first = modules.next()?;
    modules.all(|module| module.path().eq_ignore_ascii_case(first.path())).then_some(first)
}

/// Whether two file names of a program are equal, also if one of them was cut at 14 or 15
/// characters, as older systems do. An empty name equals none.
pub fn is_same_name(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let start = long.get(..short.len());
    let is_start = !short.is_empty() && start.is_some_and(|start| start.eq_ignore_ascii_case(short));
    is_start && (short.len() == long.len() || (NAME_CUT..=NAME_CUT + 1).contains(&short.len()))
}

/// All processes. Each takes about 180 bytes, plus its distinct texts.
#[derive(Debug)]
pub(crate) struct Processes {
    lifetimes: Lifetimes,
    records: Vec<Record>,
}

impl Processes {
    /// The two processes that exist without any event. Events refer to them before any rundown.
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

    /// `None` if the process was forgotten.
    pub fn pid(&self, id: ProcessId) -> Option<Pid> {
        self.span(id).map(|_| self.records[id.index()].pid)
    }

    #[inline]
    pub fn at(&self, pid: Pid, time: TraceTime) -> Option<ProcessId> {
        self.lifetimes.at(pid.0, time).map(|holder| self.id(holder))
    }

    #[inline]
    pub fn newest_until(&self, pid: Pid, time: TraceTime) -> Option<ProcessId> {
        self.lifetimes.newest_until(pid.0, time).map(|holder| self.id(holder))
    }

    /// The times around a time at which the newest process with this id is the same.
    pub fn validity(&self, pid: Pid, time: TraceTime) -> ValidityRange {
        self.lifetimes.validity(pid.0, time)
    }

    fn id(&self, holder: u32) -> ProcessId {
        ProcessId(self.lifetimes.id(holder))
    }

    /// Forgets processes that ended before a time. Returns their indexes.
    pub fn forget_before(&mut self, time: TraceTime) -> Vec<u32> {
        let forgotten = self.lifetimes.forget(|_, span| (span.to < time).then_some(span.to));
        for &slot in &forgotten {
            let record = &mut self.records[slot as usize];
            *record = Record::of(record.pid);
        }
        forgotten
    }

    pub fn is_over(&self, index: u32) -> bool {
        self.lifetimes.get(index).is_none_or(|span| span.to != Span::OPEN)
    }

    /// Records that modules or methods of a process were forgotten before its end.
    pub fn mark_shed(&mut self, index: u32) {
        if let Some(record) = self.records.get_mut(index as usize) {
            record.was_shed = true;
        }
    }

    /// Whether modules or methods of a process were forgotten.
    pub fn was_shed(&self, id: ProcessId) -> bool {
        self.records[id.index()].was_shed
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.records.iter_mut().flat_map(|record| {
            let path = record.details.as_mut().map(|details| &mut details.path);
            [&mut record.image_name, &mut record.command_line].into_iter().chain(path)
        })
    }

    pub fn observe(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
    ) -> ProcessId {
        self.observe_from(Source::Class, texts, phase, time, facts)
    }

    /// Records a statement of Microsoft-Windows-Kernel-Process.
    pub fn observe_details(
        &mut self,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
        details: &ProcessDetails<'_>,
    ) -> ProcessId {
        let id = self.observe_from(Source::Provider, texts, phase, time, facts);
        let &ProcessDetails { create_time, integrity, path } = details;
        self.records[id.index()].details.get_or_insert_with(|| {
            let path = texts.intern(path);
            Box::new(Details { stated: time, create_time, integrity, path })
        });
        id
    }

    /// Whether only Microsoft-Windows-Kernel-Process has stated the newest process with an id.
    pub fn is_known_by_provider_only(&self, pid: Pid, time: TraceTime) -> bool {
        self.newest_until(pid, time).is_some_and(|id| {
            let record = &self.records[id.index()];
            record.key.is_none() && record.details.is_some()
        })
    }

    fn observe_from(
        &mut self,
        source: Source,
        texts: &mut Texts,
        phase: Phase,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
    ) -> ProcessId {
        let phase = match phase {
            // These two processes never start or end, whatever a trace states.
            Phase::Start | Phase::End if facts.pid.is_kernel_only() => Phase::RundownAtStart,
            phase => phase,
        };
        let records = &self.records;
        let identity = |holder: u32| {
            let record = &records[holder as usize];
            match (record.key, facts.key) {
                _ if facts.pid.is_kernel_only() => Identity::Same,
                (Some(known), Some(stated)) if known == stated => Identity::Same,
                (Some(_), Some(_)) => Identity::Different,
                _ if phase == Phase::Start && record.is_reported_by(source, texts, facts) => Identity::Same,
                _ => Identity::Unsure,
            }
        };
        let (holder, is_new) = self.lifetimes.observe(facts.pid.0, phase, time, identity);
        let record = self.record(holder, is_new, facts.pid);
        record.note_statement(time, is_new || (record.key.is_some() && record.key == facts.key));
        if phase == Phase::Start {
            record.started_by |= source as u8;
        }
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

    /// Records that a process is defunct at the end of the trace: it has ended, but a handle to it
    /// is open.
    pub fn observe_defunct(
        &mut self,
        texts: &mut Texts,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
    ) -> ProcessId {
        let id = self.observe(texts, Phase::RundownAtEnd, time, facts);
        let record = &mut self.records[id.index()];
        record.is_defunct = true;
        record.exit_status = record.exit_status.or(facts.exit_status);
        id
    }

    /// The process that an event refers to. Adds one if none is known.
    pub fn expect(&mut self, pid: Pid, time: TraceTime) -> ProcessId {
        let (holder, is_new) = self.lifetimes.expect(pid.0, time);
        self.record(holder, is_new, pid);
        self.id(holder)
    }

    /// As [`expect`](Processes::expect), for the end of an object, which may be recorded after the
    /// end of its process.
    pub fn expect_until(&mut self, pid: Pid, time: TraceTime) -> ProcessId {
        self.newest_until(pid, time).unwrap_or_else(|| self.expect(pid, time))
    }

    fn record(&mut self, holder: u32, is_new: bool, pid: Pid) -> &mut Record {
        let index = holder as usize;
        if is_new {
            // A new slot, or the slot of a forgotten process.
            match self.records.get_mut(index) {
                Some(record) => *record = Record::of(pid),
                None => self.records.push(Record::of(pid)),
            }
        }
        &mut self.records[index]
    }
}

/// A process in a [`System`].
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

    /// The id in the system.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        self.record().pid
    }

    /// The lifetime of the process. It can be longer than that of its modules and threads: see
    /// [`Span`].
    pub fn span(&self) -> Span {
        self.system.processes.span(self.id).expect("the process was not forgotten")
    }

    /// The identity of the process in the trace.
    pub fn entity(&self) -> ProcessEntity {
        let from = self.span().from;
        ProcessEntity { pid: self.pid(), start: (from != Span::BEGINNING).then_some(from) }
    }

    /// The file name, without its folder. Older systems cut it at 15 characters. Empty if not
    /// known.
    pub fn image_name(&self) -> &'s str {
        self.system.texts.get(self.record().image_name)
    }

    /// The command line. Empty if not known.
    pub fn command_line(&self) -> &'s str {
        self.system.texts.get(self.record().command_line)
    }

    /// The process that this one inherits from. The creator of a process can specify any other
    /// process; see [`creator`](ProcessRef::creator).
    pub fn parent_pid(&self) -> Option<Pid> {
        self.record().parent
    }

    /// The process that had the parent's id when this one started, if it is known.
    pub fn parent(&self) -> Option<ProcessRef<'s>> {
        self.system.process_at(self.parent_pid()?, self.span().from).filter(|parent| parent.id != self.id)
    }

    /// The thread that created the process, if the start was observed.
    pub fn creator(&self) -> Option<Caller> {
        self.record().creator
    }

    /// The terminal session; `0xffff_ffff` for system processes.
    pub fn session(&self) -> Option<u32> {
        self.record().session
    }

    /// The address of the process object.
    pub fn unique_process_key(&self) -> Option<Address> {
        self.record().key
    }

    /// The recorded flags: 1 has an application id, 2 WOW64, 4 protected, 8 packaged.
    pub fn flags(&self) -> Option<u32> {
        self.record().flags
    }

    /// NTSTATUS, if the end was observed.
    pub fn exit_status(&self) -> Option<u32> {
        self.record().exit_status
    }

    /// The SID of the user.
    pub fn sid(&self) -> Option<&'s [u8]> {
        Some(&*self.record().sid).filter(|sid| !sid.is_empty())
    }

    /// The integrity level, the last number of the mandatory label. Only
    /// Microsoft-Windows-Kernel-Process of newer systems states it.
    pub fn integrity(&self) -> Option<u32> {
        self.details()?.integrity
    }

    /// The time at which the process was created, if Microsoft-Windows-Kernel-Process states it.
    /// Processes that existed before the trace can have one.
    pub fn create_time(&self) -> Option<FileTime> {
        Some(self.details()?.create_time)
    }

    /// The NT path of the program, if Microsoft-Windows-Kernel-Process states it.
    pub fn stated_path(&self) -> Option<&'s str> {
        Some(self.system.texts.get(self.details()?.path)).filter(|path| !path.is_empty())
    }

    /// The time of the statement with the [integrity](ProcessRef::integrity), the creation time and
    /// the path.
    pub fn details_stated(&self) -> Option<TraceTime> {
        Some(self.details()?.stated)
    }

    fn details(&self) -> Option<&'s Details> {
        self.record().details.as_deref()
    }

    /// The times of the first and the last statement that certainly is about this process. Between
    /// them, the id belongs to it. Outside, the id can belong to another process if events may be
    /// missing. `None` if no event has stated more than the id.
    pub fn observed(&self) -> Option<(TraceTime, TraceTime)> {
        self.record().seen
    }

    /// The module of the program: the one that has the name of the process. `None` if there is
    /// none, if modules with different paths have the name, or if the modules change more than
    /// `max` times.
    pub fn program(&self, time: TraceTime, max: usize) -> Option<ModuleRef<'s>> {
        // The last events of a process follow its end.
        let time = time.min(self.span().to);
        self.only_program(self.system.modules_of(self.id, max)?.filter(|module| module.span().touches(time)))
    }

    /// As [`program`](Self::program), at any time: a process that has ended has unloaded its modules.
    pub fn program_at_any_time(&self, max: usize) -> Option<ModuleRef<'s>> {
        self.only_program(self.system.modules_of(self.id, max)?)
    }

    fn only_program(&self, modules: impl Iterator<Item = ModuleRef<'s>>) -> Option<ModuleRef<'s>> {
        let name = self.image_name();
        with_one_path(modules.filter(|module| is_same_name(module.file_name(), name)))
    }

    /// Whether the process was defunct at the end of the trace: ended, with an open handle to it.
    /// If its end was not observed, it ended before the trace began or while events were lost.
    pub fn is_defunct(&self) -> bool {
        self.record().is_defunct
    }
}
