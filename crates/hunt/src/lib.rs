//! Evaluating the events of a trace by their stacks.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_detect::Binaries;
//! use stackhound_hunt::HuntSession;
//! use stackhound_pipeline::{Passes, Pipeline};
//! use stackhound_trace::Recordings;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = Recordings::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two);
//! let mut hunter = HuntSession::new(Binaries::none(), pipeline.clock());
//! pipeline.run(|event| {
//!     for (id, outcome) in hunter.evaluate(event).findings() {
//!         println!("{} {} {}", id.name(), outcome.severity.name(), event.name());
//!     }
//!     ControlFlow::Continue(())
//! });
//! # Ok(())
//! # }
//! ```
//!
//! A [`HuntSession`] brings events into the normal form of [`detect`](stackhound_detect) and remembers evaluations. Knows events and
//! what is known of the trace; must not know what detections ask, or how findings are shown.
#![forbid(unsafe_code)]

mod cache;
mod context;
mod event_context;
mod facts;
mod kind;
pub mod memory;
mod services;
mod stack;

use std::sync::Arc;

use stackhound_detect::{
    Binaries, Case, Entry, Evaluation, Event, LiveFrame, Process, Services as Ran, Stack, Start, Target,
    Totals, evaluate,
};
use stackhound_etl::Clock;
use stackhound_frames::{First, Frame, FrameResolver, Modules, Operation};
use stackhound_pipeline::EventView;
use stackhound_stacks::{StackState, StackStates, WALK_FRAMES_MAX};
use stackhound_system::ProcessId;
use stackhound_types::Mode;

use cache::{Cache, ContextNumbers, FrameNumbers, Interner, Key, NumberSource};
use context::{ContextCache, StackContext};
use kind::Kind;
use memory::{LiveMemory, MemoryStats};

use services::Services;

use facts::EventFacts;

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HuntStats {
    /// Events with a stack, or a part of one, that were evaluated.
    pub with_stack: u64,
    /// Evaluated events whose evaluation was remembered: that of the same stack, or that of one which means the same.
    pub remembered: u64,
}

/// Evaluates the events of one trace.
///
/// Remembers what was evaluated: a case that was met before costs a few look-ups and allocates nothing. Memory is bounded, by
/// about 50 MB beside the files that the engine looks into.
#[derive(Debug)]
pub struct HuntSession {
    binaries: Binaries,
    /// Of trace time.
    clock: Clock,
    process_numbers: ContextNumbers,
    services: Services,
    contexts: ContextCache,
    frame_numbers: FrameNumbers,
    /// Whom something was done to: by what is known of the process, whether it is another one, and the rights.
    targets: Interner<(u32, bool, Option<u32>)>,
    numbers: NumberSource,
    /// By the system's index of each process: whether a start of one of its threads was met.
    has_threads: Vec<Option<ProcessId>>,
    /// Of live sessions, if it is asked for.
    memory: Option<LiveMemory>,
    cache: Cache,
    /// The evaluation of a case that is not remembered.
    single: Option<Evaluation>,
    singles: Totals,
    /// Of the case that was evaluated last.
    frames: Arc<[Frame]>,
    live: Vec<LiveFrame>,
    signature: Vec<u32>,
    stats: HuntStats,
}

/// All about an event, but for its frames.
#[derive(Clone, Copy, Debug)]
struct CaseContext {
    around: StackContext,
    states: StackStates,
    kind: Kind,
    facts: EventFacts,
}

impl CaseContext {
    /// Whether events that could have facts of the stack or of the process's modules are known to be missing.
    fn has_losses(&self) -> bool {
        self.states.has(StackState::Lost) || self.around.is_lossy
    }
}

impl HuntSession {
    /// For a trace with this clock. Files that were read for other traces belong to the modules of those: hand these to
    /// [`Pipeline::with_modules`](stackhound_pipeline::Pipeline::with_modules), which also takes lists.
    pub fn new(binaries: Binaries, clock: Clock) -> HuntSession {
        HuntSession {
            binaries,
            clock,
            process_numbers: ContextNumbers::default(),
            services: Services::default(),
            contexts: ContextCache::default(),
            frame_numbers: FrameNumbers::default(),
            targets: Interner::default(),
            numbers: NumberSource::default(),
            has_threads: Vec::new(),
            memory: None,
            cache: Cache::default(),
            single: None,
            singles: Totals::default(),
            frames: Arc::default(),
            live: Vec::new(),
            signature: Vec::new(),
            stats: HuntStats::default(),
        }
    }

    /// Looks into the memory of the processes, too. For live sessions of this machine alone: processes of a recording are
    /// others. Evaluations then rest on when they are made, and are made again after some seconds.
    pub fn with_memory(self, memory: LiveMemory) -> HuntSession {
        HuntSession { memory: Some(memory), ..self }
    }

    /// What was asked of the memory of processes.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        self.memory.as_ref().map(LiveMemory::stats)
    }

    /// The files that were read.
    pub fn into_binaries(self) -> Binaries {
        self.binaries
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

    /// Whether there is anything to evaluate: a stack, a part of one, something that is known of one, or facts that detections
    /// look at without a stack. Of other events, every answer would be that the stack is missing.
    pub fn can_evaluate(view: &EventView<'_>) -> bool {
        view.state() != StackState::None || Kind::of(view.event()).is_evaluated_alone()
    }

    /// Evaluates an event.
    pub fn evaluate(&mut self, view: &EventView<'_>) -> &Evaluation {
        if self.numbers.are_spent() {
            self.forget();
        }
        let resolver = &mut *view.resolver();
        let all = self.context_of(view, resolver);
        self.stats.with_stack += u64::from(view.stack().is_some());
        if all.facts.is_single() {
            let evaluation = self.with_case(view, resolver, &all, |(modules, binaries), case| {
                evaluate(modules, binaries, case)
            });
            self.singles.add(&evaluation, 1);
            return self.single.insert(evaluation);
        }
        let key = self.key(view, &all);
        let number = match self.cache.find(&key) {
            Some(known) if known.memory == 0 || known.memory == self.memory_number(view, &all) => {
                self.stats.remembered += 1;
                known.number
            }
            _ => self.evaluate_new(view, resolver, &all, key),
        };
        self.cache.count(number)
    }

    /// Evaluates a case that is not remembered by its stack. Gives the number of the evaluation.
    fn evaluate_new(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        key: Key,
    ) -> u32 {
        // What is read from memory is not the same twice.
        if self.memory.is_some() {
            let (evaluation, in_images) = self.with_case(view, resolver, all, |(modules, binaries), case| {
                (evaluate(modules, binaries, case), is_in_images(case))
            });
            let memory = if in_images { 0 } else { self.memory_number(view, all) };
            let number = self.cache.number(evaluation);
            self.cache.keep(key, memory, number);
            return number;
        }
        let memory = self.find_signature(view, resolver, all, &key);
        let number = match self.cache.of_signature(&self.signature) {
            Some(number) => {
                self.stats.remembered += 1;
                number
            }
            None => {
                let evaluation = self.with_case(view, resolver, all, |(modules, binaries), case| {
                    evaluate(modules, binaries, case)
                });
                let number = self.cache.number(evaluation);
                self.signature_of_evaluated(resolver, all, &key);
                self.cache.keep_signature(&self.signature, number);
                number
            }
        };
        self.cache.keep(key, memory, number);
        number
    }

    /// Forgets all that has a number.
    fn forget(&mut self) {
        self.cache.forget();
        self.process_numbers = ContextNumbers::default();
        self.contexts.forget();
        (self.frame_numbers, self.targets) = (FrameNumbers::default(), Interner::default());
        self.numbers = NumberSource::default();
    }

    /// Everything that the evaluation of an event rests on, but for its frames.
    fn context_of(&mut self, view: &EventView<'_>, resolver: &mut FrameResolver) -> CaseContext {
        let around = self.around(view, resolver);
        let kind = Kind::of(view.event());
        let facts = self.facts(view, resolver, kind, &around);
        CaseContext { around, states: view.stack_states(), kind, facts }
    }

    #[inline]
    fn key(&mut self, view: &EventView<'_>, all: &CaseContext) -> Key {
        let CaseContext { around, states, kind, facts } = all;
        let target = |target: facts::TargetFacts| (target.number, target.is_other, target.access);
        Key {
            stack: view.stack(),
            module_map_generation: around.module_map_generation,
            start: around.start,
            facts: match (facts.service, facts.target) {
                (None, None) => 0,
                (Some(service), _) => service.number(),
                (None, Some(facts)) => self.targets.of(target(facts), &mut self.numbers),
            },
            what: kind.number()
                | (First::of(view.event()) as u32) << 7
                | u32::from(states.bits()) << 9
                | facts.tag() << 20,
        }
    }

    /// Stands for all memory of the stack's process as it is at the event's time.
    fn memory_number(&mut self, view: &EventView<'_>, all: &CaseContext) -> u32 {
        let (system, process) = (view.trace_state().system(), all.around.owner.process);
        self.contexts.memory(system, process, view.time(), &mut self.numbers)
    }

    /// Hands an event in its normal form to `use_case`.
    fn with_case<R>(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        use_case: impl FnOnce(services::Files<'_>, &Case<'_>) -> R,
    ) -> R {
        let (system, CaseContext { around, states, kind, facts }) = (view.trace_state().system(), all);
        let (owner, has_losses) = (around.owner, all.has_losses());
        let frames = resolver.at(system, owner, view.time(), around.pointer_size).all(view.delivered());
        self.live.clear();
        if let (Some(memory), Some(process)) = (&mut self.memory, owner.process) {
            memory.read(system.process(process).entity(), view.utc(), &frames, &mut self.live);
        }
        // The stack may be that of another event of the thread.
        let is_own = !states.has(StackState::Ambiguous);
        let (service, operation) = self.service_and_operation(resolver.modules(), *kind, facts, &frames);
        let has = |mode| frames.iter().any(|frame: &Frame| frame.mode == mode);
        let (kernel, user) = stack::parts(*states, has(Mode::Kernel), has(Mode::User), has_losses);
        let start_name = facts
            .start
            .and_then(|start| services::location_name((resolver.modules(), &mut self.binaries), start.code));
        let image = facts.target.and_then(|target| Some(system.process(target.process?).image_name()));
        let (modules, context) =
            resolver.modules_and_process(system, around.pointer_size, owner.process, view.time());
        let HuntSession { binaries, services, live, .. } = self;
        let case = Case {
            event: Event {
                entry: if is_own { kind.entry } else { Entry::Unknown },
                operation,
                services: match service {
                    _ if !is_own => Ran::Unknown,
                    Some(service) => Ran::Entered(services.get(service).0),
                    None if kind.has_causes => match modules.lists().causes(kind.operation) {
                        [] => Ran::Unknown,
                        causes => Ran::OneOf(causes),
                    },
                    None => Ran::Unknown,
                },
                target: facts.target.map(|target| Target {
                    image: image.unwrap_or_default(),
                    is_other: target.is_other,
                    access: target.access,
                }),
                start: facts.start.map(|start| Start {
                    address: start.address.0,
                    is_kernel: start.address.is_kernel(around.pointer_size),
                    code: start.code,
                    function: start_name.as_deref(),
                    is_remote: start.is_remote,
                }),
                load: facts.load,
            },
            process: Process {
                image: &context.image,
                is_wow64: context.is_wow64,
                has_runtime: context.has_runtime,
                has_win32u: context.has_win32u,
                thread_start: around.thread_start,
            },
            stack: Stack {
                frames: &frames,
                live,
                kernel,
                user,
                limit: Some(WALK_FRAMES_MAX),
                map_is_complete: around.is_complete,
                has_losses,
                is_certain: states.has_certain_frames(),
                is_truncated: states.has(StackState::Truncated),
            },
        };
        let used = use_case((modules, binaries), &case);
        self.frames = frames;
        used
    }

    /// The service that ran, and what was done: by what the event tells, else by names in the stack.
    fn service_and_operation(
        &mut self,
        modules: &Modules,
        kind: Kind,
        facts: &EventFacts,
        frames: &[Frame],
    ) -> (Option<services::Service>, Operation) {
        // What the kernel calls on behalf of another service is not what user code asked for: that is what the dispatcher
        // of system calls has called.
        let service = match (self.services.in_stack((modules, &mut self.binaries), frames), facts.service) {
            (Some(asked_for), _) => Some(asked_for),
            (None, Some(_)) if stack::is_called_by_kernel(frames) => None,
            (None, entered) => entered,
        };
        let by_kind = kind.operation;
        let operation = match service {
            Some(service) if matches!(by_kind, Operation::Other | Operation::Wait) => {
                self.services.get(service).1
            }
            Some(_) => by_kind,
            // The stub that is returned to tells nothing of the service for sure, but whether the thread waits in it.
            None if by_kind == Operation::Wait => {
                let top = frames.iter().find(|frame| frame.mode == Mode::User);
                let stub = top.and_then(|top| services::named((modules, &mut self.binaries), top));
                stub.map_or(by_kind, |name| modules.lists().operation(&name.text))
            }
            None => by_kind,
        };
        (service, operation)
    }
}

/// Whether nothing but modules decides where the user frames lie.
fn is_in_images(case: &Case<'_>) -> bool {
    let mut user = case.stack.frames.iter().filter(|frame| frame.mode == Mode::User);
    user.all(|frame| frame.code.module().is_some())
}
