//! Judging the events of a trace by their stacks.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound::detect::{Binaries, Judge, Lists};
//! use stackhound::hunt::Hunter;
//! use stackhound::{Passes, Pipeline, trace::Recordings};
//!
//! # fn main() -> Result<(), stackhound::trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = Recordings::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two);
//! let mut hunter = Hunter::new(Judge::new(Lists::default(), Binaries::none()), pipeline.clock());
//! pipeline.run(|seen| {
//!     for (id, outcome) in hunter.judge(seen).findings() {
//!         println!("{} {} {}", id.name(), outcome.severity.name(), seen.name());
//!     }
//!     ControlFlow::Continue(())
//! });
//! # Ok(())
//! # }
//! ```
//!
//! A [`Hunter`] brings events into the normal form of [`detect`](crate::detect) and remembers judgements. Knows events and
//! what is known of the trace; must not know what detections ask, or how findings are shown.

mod cache;
mod kind;
pub mod memory;
mod modules;
mod process;
mod services;
mod sighting;
mod stack;
mod told;

use stackhound_detect::{
    Case, Entry, Event, Frame, Judge, Judgement, Mode, Operation, Process, Services as Ran, Stack, Start,
    Target, Totals,
};
use stackhound_enrich::{Frames, StackOwner};
use stackhound_etl::{Address, Clock, Pid, PointerSize};
use stackhound_stacks::StackState;
use stackhound_symbols::AddressKind;
use stackhound_system::{Completeness, Gap, ProcessId, Stretch, System, ThreadId};
use stackhound_trace::TraceTime;

use crate::seen::Seen;
use cache::{Cache, Circumstances, Key};
use kind::Kind;
use memory::{LiveMemory, MemoryStats};
use modules::ModuleNumbers;
use process::Processes;
use services::Services;
use stack::{LIMIT, Place};
use told::{Causes, Told};

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HuntStats {
    /// Events with a stack, or a part of one, that were judged.
    pub with_stack: u64,
    /// Judged events whose judgement was remembered.
    pub remembered: u64,
}

/// Judges the events of one trace.
///
/// Remembers what was judged: a case that was met before costs a few look-ups and allocates nothing. Memory is bounded, by
/// about 60 MB beside the files that the judge looks into.
#[derive(Debug)]
pub struct Hunter {
    judge: Judge,
    /// Of trace time.
    clock: Clock,
    modules: ModuleNumbers,
    processes: Processes,
    services: Services,
    causes: Causes,
    /// By the system's index of each thread: where it started.
    starts: Vec<Option<ThreadStart>>,
    /// By the system's index of each process: whether a start of one of its threads was met.
    has_threads: Vec<Option<ProcessId>>,
    /// Of live sessions, if it is asked for.
    memory: Option<LiveMemory>,
    cache: Cache,
    /// The judgement of a case that is not remembered.
    single: Option<Judgement>,
    singles: Totals,
    frames: Vec<Frame>,
    stats: HuntStats,
}

#[derive(Clone, Copy, Debug)]
struct ThreadStart {
    id: ThreadId,
    modules: Stretch,
    /// Of code in no module: in which all memory is as it was.
    memory: Option<Stretch>,
    is_complete: bool,
    code: stackhound_detect::Code,
}

/// All about an event, but for its frames.
#[derive(Clone, Copy, Debug)]
struct Circumscribed {
    owner: StackOwner,
    session: PointerSize,
    key: Key,
    now: Circumstances,
    told: Told,
    /// Of the process's facts.
    is_wow64: bool,
}

impl Hunter {
    /// For a trace with this clock, with a judge that may have judged other traces.
    pub fn new(judge: Judge, clock: Clock) -> Hunter {
        Hunter {
            causes: Causes::new(judge.lists()),
            judge,
            clock,
            modules: ModuleNumbers::default(),
            processes: Processes::default(),
            services: Services::default(),
            starts: Vec::new(),
            has_threads: Vec::new(),
            memory: None,
            cache: Cache::default(),
            single: None,
            singles: Totals::default(),
            frames: Vec::new(),
            stats: HuntStats::default(),
        }
    }

    /// Looks into the memory of the processes, too. For live sessions of this machine alone: processes of a recording are
    /// others. Judgements then rest on when they are made, and are made again after some seconds.
    pub fn with_memory(self, memory: LiveMemory) -> Hunter {
        Hunter { memory: Some(memory), ..self }
    }

    /// What was asked of the memory of processes.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        self.memory.as_ref().map(LiveMemory::stats)
    }

    /// The judge, with the files that it has loaded.
    pub fn into_judge(self) -> Judge {
        self.judge
    }

    /// What was counted.
    pub fn stats(&self) -> HuntStats {
        self.stats
    }

    /// All answers.
    pub fn totals(&self) -> Totals {
        let mut totals = self.cache.totals();
        totals.merge(&self.singles);
        totals
    }

    /// Whether there is anything to judge: a stack, a part of one, something that is known of one, or facts that detections
    /// look at without a stack. Of other events, every answer would be that the stack is missing.
    pub fn can_judge(seen: &Seen<'_>) -> bool {
        seen.state() != StackState::None || Kind::of(seen.event()).is_judged_alone()
    }

    /// Judges an event.
    pub fn judge(&mut self, seen: &Seen<'_>) -> &Judgement {
        let all = self.circumscribe(seen);
        self.stats.with_stack += u64::from(seen.stack().is_some());
        if all.told.is_single() {
            let judgement = self.with_case(seen, &all, |judge, case| judge.judge(case));
            self.singles.add(&judgement, 1);
            return self.single.insert(judgement);
        }
        let memory = || memory(seen.knowledge().system(), all.owner, seen.time());
        let number = match self.cache.find(&all.key, &all.now, memory) {
            Some(number) => {
                self.stats.remembered += 1;
                number
            }
            None => {
                let (judgement, in_images) =
                    self.with_case(seen, &all, |judge, case| (judge.judge(case), is_in_images(case)));
                let memory = (!in_images).then(memory);
                self.cache.keep(all.key, all.now, memory, judgement)
            }
        };
        self.cache.count(number)
    }

    /// Everything that the judgement of an event rests on.
    fn circumscribe(&mut self, seen: &Seen<'_>) -> Circumscribed {
        let (system, time, event) = (seen.knowledge().system(), seen.time(), seen.event());
        let session = event.block().session().pointer_size;
        let owner = seen.stack_owner();
        let kind = Kind::of(event);
        let completeness = owner.process.map(|process| system.map_complete_in(process));
        let is_complete = completeness == Some(Completeness::Complete);
        let numbers = (&mut self.judge, &mut self.modules);
        let process = self.processes.number(system, numbers, session, owner.process, time);
        let facts = self.processes.facts(owner.process);
        let (is_wow64, is_built) = (facts.is_wow64(), facts.is_built());
        let now = Circumstances {
            modules: owner.process.map(|process| system.module_stretch(process, time)).unwrap_or_default(),
            kernel: system.stretch(None, time),
            is_complete: is_complete && is_built,
            has_losses: seen.state() == StackState::Lost
                || matches!(completeness, Some(Completeness::Incomplete(Gap::Lost(_)))),
            all_drivers: system.map_complete_in(ProcessId::SYSTEM) == Completeness::Complete,
            memory: self.memory.as_ref().map(|_| LiveMemory::moment(seen.utc())),
        };
        let told = self.told(seen, kind, owner, session);
        let key = Key {
            stack: seen.stack(),
            state: seen.state(),
            hook: event.hook().unwrap_or_default(),
            kind,
            process,
            thread_start: self.thread_start(seen, owner, now, session),
            service: told.service,
            target: told.target.map(|target| (target.number, target.is_other, target.access)),
        };
        Circumscribed { owner, session, key, now, told, is_wow64 }
    }

    /// Where the thread of an event's stack started.
    fn thread_start(
        &mut self,
        seen: &Seen<'_>,
        owner: StackOwner,
        now: Circumstances,
        session: PointerSize,
    ) -> Option<stackhound_detect::Code> {
        let (system, time) = (seen.knowledge().system(), seen.time());
        let process = owner.process?;
        let thread = system.thread_of_event(owner.tid?, time)?;
        let index = thread.id().index();
        if let Some(&Some(ThreadStart { id, modules, memory: known, is_complete, code })) =
            self.starts.get(index)
            && (id, modules, is_complete) == (thread.id(), now.modules, now.is_complete)
            && known.is_none_or(|known| known == memory(system, owner, time))
        {
            return Some(code);
        }
        let is_start = |address: &Address| address.0 != 0 && !address.is_kernel(session);
        let address = thread.win32_start_address().filter(is_start)?;
        // A thread of another process: what is known of it is old, or wrong.
        system.process_at(thread.pid(), time).filter(|found| found.id() == process)?;
        let code = self.code_at(system, owner, time, session, address);
        if self.starts.len() <= index {
            self.starts.resize(index + 1, None);
        }
        let memory = code.module().is_none().then(|| memory(system, owner, time));
        let (id, modules, is_complete) = (thread.id(), now.modules, now.is_complete);
        self.starts[index] = Some(ThreadStart { id, modules, memory, is_complete, code });
        Some(code)
    }

    /// What is at an address of a process.
    fn code_at(
        &mut self,
        system: &System,
        owner: StackOwner,
        time: TraceTime,
        session: PointerSize,
        address: Address,
    ) -> stackhound_detect::Code {
        let numbers = (&mut self.judge, &mut self.modules);
        self.processes.number(system, numbers, session, owner.process, time);
        let is_built = self.processes.facts(owner.process).is_built();
        let facts = Frames::new(system, owner, time, session).frame(address, AddressKind::Instruction);
        let place = Place { is_wow64: false, all_modules: is_built, all_drivers: false };
        stack::frame(system, (&mut self.judge, &mut self.modules), &facts, place).code
    }

    /// What is at an address of a process that is known by its id.
    fn code_in(
        &mut self,
        system: &System,
        pid: Pid,
        (time, session): (TraceTime, PointerSize),
        address: Address,
    ) -> stackhound_detect::Code {
        let process = system.process_of_event(pid, time).map(|process| process.id());
        self.code_at(system, StackOwner { pid: Some(pid), tid: None, process }, time, session, address)
    }

    /// Hands an event in its normal form to `use_case`.
    fn with_case<R>(
        &mut self,
        seen: &Seen<'_>,
        all: &Circumscribed,
        use_case: impl FnOnce(&mut Judge, &Case<'_>) -> R,
    ) -> R {
        let (system, Circumscribed { key, now, told, .. }) = (seen.knowledge().system(), all);
        let place =
            Place { is_wow64: all.is_wow64, all_modules: now.is_complete, all_drivers: now.all_drivers };
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        for facts in seen.facts() {
            frames.push(stack::frame(system, (&mut self.judge, &mut self.modules), &facts, place));
        }
        if let (Some(memory), Some(process)) = (&mut self.memory, all.owner.process) {
            memory.fill(system.process(process).entity(), seen.utc(), &mut frames);
        }
        // The stack may be that of another event of the thread.
        let is_own = key.state != StackState::Ambiguous;
        let (service, operation) = self.service_and_operation(key, told, &frames);
        let has = |mode| frames.iter().any(|frame: &Frame| frame.mode == mode);
        let (kernel, user) = stack::parts(key.state, has(Mode::Kernel), has(Mode::User), now.has_losses);
        let start_name = told.start.and_then(|start| services::place_name(&mut self.judge, start.code));
        let image = told.target.and_then(|target| Some(system.process(target.process?).image_name()));
        let Hunter { judge, processes, services, causes, .. } = self;
        let case = Case {
            event: Event {
                entry: if is_own { key.kind.entry } else { Entry::Unknown },
                operation,
                services: match service {
                    _ if !is_own => Ran::Unknown,
                    Some(service) => Ran::Entered(services.get(service).0),
                    None if key.kind.has_causes => causes.of(key.kind.operation),
                    None => Ran::Unknown,
                },
                target: told.target.map(|target| Target {
                    image: image.unwrap_or_default(),
                    is_other: target.is_other,
                    access: target.access,
                }),
                start: told.start.map(|start| Start {
                    address: start.address.0,
                    is_kernel: start.address.is_kernel(all.session),
                    code: start.code,
                    function: start_name.as_deref(),
                    is_remote: start.is_remote,
                }),
                load: told.load,
            },
            process: Process {
                thread_start: key.thread_start,
                ..processes.facts(all.owner.process).process()
            },
            stack: Stack {
                frames: &frames,
                kernel,
                user,
                limit: Some(LIMIT),
                map_is_complete: now.is_complete,
                has_losses: now.has_losses,
            },
        };
        let used = use_case(judge, &case);
        self.frames = frames;
        used
    }

    /// The service that ran, and what was done: by what the event tells, else by names in the stack.
    fn service_and_operation(
        &mut self,
        key: &Key,
        told: &Told,
        frames: &[Frame],
    ) -> (Option<services::Service>, Operation) {
        // What the kernel calls on behalf of another service is not what user code asked for: that is what the dispatcher
        // of system calls has called.
        let service = match (self.services.in_stack(&mut self.judge, frames), told.service) {
            (Some(asked_for), _) => Some(asked_for),
            (None, Some(_)) if stack::is_called_by_kernel(frames) => None,
            (None, entered) => entered,
        };
        let by_kind = key.kind.operation;
        let operation = match service {
            Some(service) if matches!(by_kind, Operation::Other | Operation::Wait) => {
                self.services.get(service).1
            }
            Some(_) => by_kind,
            // The stub that is returned to tells nothing of the service for sure, but whether the thread waits in it.
            None if by_kind == Operation::Wait => {
                let top = frames.iter().find(|frame| frame.mode == Mode::User);
                let stub = top.and_then(|top| services::named(&mut self.judge, top));
                stub.map_or(by_kind, |(name, _)| self.judge.lists().operation(&name))
            }
            None => by_kind,
        };
        (service, operation)
    }
}

/// The stretch in which all memory of a stack's owner stays as it is.
fn memory(system: &System, owner: StackOwner, time: TraceTime) -> Stretch {
    owner.process.map(|process| system.stretch(Some(process), time)).unwrap_or_default()
}

/// Whether nothing but modules decides where the user frames lie.
fn is_in_images(case: &Case<'_>) -> bool {
    let mut user = case.stack.frames.iter().filter(|frame| frame.mode == Mode::User);
    user.all(|frame| frame.code.module().is_some())
}
