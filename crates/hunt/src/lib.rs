//! Evaluates the events of a trace and their stacks with detections and rules.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_detect::{Binaries, Severity};
//! use stackhound_hunt::{FindingSelection, Hunt, Policy};
//! use stackhound_pipeline::{Passes, Pipeline};
//! use stackhound_trace::TraceFiles;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = TraceFiles::file("trace.etl").open()?;
//! let pipeline = Pipeline::new(&trace, Passes::Two);
//! let selection = FindingSelection::from_severity(Severity::Medium);
//! let hunt = Hunt::new(Policy::default(), Binaries::none(), selection);
//! let (mut hunt, _) = hunt.run(
//!     pipeline,
//!     vec!["trace.etl".to_owned()],
//!     |_| ControlFlow::Continue(true),
//!     |event| {
//!         for finding in &event.findings {
//!             println!("{} {}", finding.analytic.title(), event.context.event.name);
//!         }
//!         ControlFlow::Continue(())
//!     },
//! );
//! println!("{} alerts", hunt.take_report().alerts.len());
//! # Ok(())
//! # }
//! ```
//!
//! A [`Hunt`] has a [`Policy`]: lists, exceptions, a baseline, rules and facts about images. It is
//! the only driver of evaluations, so that all users of a policy have the same findings. It uses a
//! [`HuntSession`], which converts events to the normal form of [`detect`](stackhound_detect) and
//! caches evaluations, and a [`RuleSession`]. This crate knows events and the state of the trace. It
//! does not know what detections evaluate or how findings are shown.
#![forbid(unsafe_code)]

mod cache;
mod collector;
mod context;
mod event_context;
mod facts;
mod history;
mod hunt;
mod kind;
pub mod memory;
mod memory_change;
mod policy;
mod rules;
mod services;
mod stack;
mod threat;
mod tuner;

use std::sync::Arc;

use stackhound_detect::{
    Binaries, Case, Entry, Evaluation, Event, History, LiveFrame, MemoryEvidence, Process, Services as Ran,
    Stack, Start, Target, Totals, evaluate,
};
use stackhound_etl::Clock;
use stackhound_frames::{First, Frame, FrameResolver, Modules, Operation};
use stackhound_pipeline::EventView;
use stackhound_stacks::{StackState, StackStates, WALK_FRAMES_MAX};
use stackhound_system::ProcessId;
use stackhound_types::Mode;

use cache::{Cache, ContextNumbers, FrameNumbers, Interner, Key, NumberSource};
use context::{ContextCache, StackContext};
use history::MemoryHistories;
use kind::Kind;
use memory::{LiveMemory, MemoryStats};

use services::Services;

use facts::EventFacts;

pub use collector::{EventFindings, FindingCollector, HuntReport};
pub use hunt::{Hunt, TraceHunt};
pub use memory_change::{MemoryChange, MemoryChangeKind, PageProtection};
pub use policy::{Analytics, FindingSelection, Policy};
pub use rules::{RuleAnswer, RuleSession, Rules};
pub use threat::{ThreatEvent, ThreatKind};

/// Statistics of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HuntStats {
    /// Number of evaluated events with a complete or partial stack.
    pub with_stack: u64,
    /// Number of evaluated events whose evaluation was in the cache.
    pub remembered: u64,
}

/// Evaluates the events of one trace.
///
/// Evaluations are cached: a case that was evaluated before costs a few look-ups and no allocation.
/// Memory is limited to about 50 MB in addition to the image and symbol files that detections use.
#[derive(Debug)]
pub struct HuntSession {
    binaries: Binaries,
    /// The clock of trace times.
    clock: Clock,
    process_numbers: ContextNumbers,
    services: Services,
    contexts: ContextCache,
    frame_numbers: FrameNumbers,
    /// Targets of operations: the number of the process's facts, whether it is another process, and
    /// the access rights.
    targets: Interner<(u32, bool, Option<u32>)>,
    numbers: NumberSource,
    /// By the system's index of each process: the process for which a thread start was seen.
    has_threads: Vec<Option<ProcessId>>,
    /// Live memory, if requested.
    memory: Option<LiveMemory>,
    /// The recorded history of the memory of processes.
    histories: MemoryHistories,
    cache: Cache,
    /// The last evaluation that was not cached.
    single: Option<Evaluation>,
    singles: Totals,
    /// The frames of the last evaluated case.
    frames: Arc<[Frame]>,
    live: Vec<LiveFrame>,
    frame_histories: Vec<Option<History>>,
    signature: Vec<u32>,
    stats: HuntStats,
}

/// The facts of a case except for its frames.
#[derive(Clone, Copy, Debug)]
struct CaseContext {
    stack_context: StackContext,
    states: StackStates,
    kind: Kind,
    facts: EventFacts,
}

impl CaseContext {
    /// Whether events about the stack or the modules of the process are known to be missing.
    fn has_losses(&self) -> bool {
        self.states.has(StackState::Lost) || self.stack_context.is_lossy || self.facts.is_lossy
    }
}

impl HuntSession {
    /// Creates a session for a trace with this clock. Files that `binaries` has read for other
    /// traces belong to the modules of those traces. Pass these modules to
    /// [`Pipeline::with_modules`](stackhound_pipeline::Pipeline::with_modules), which also accepts
    /// lists.
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
            histories: MemoryHistories::default(),
            cache: Cache::default(),
            single: None,
            singles: Totals::default(),
            frames: Arc::default(),
            live: Vec::new(),
            frame_histories: Vec::new(),
            signature: Vec::new(),
            stats: HuntStats::default(),
        }
    }

    /// Also reads the memory of processes. Only for live sessions of this machine, because the
    /// processes of a trace no longer exist or are on another machine. Evaluations then depend on
    /// the time when they are made, and are repeated after some seconds.
    pub fn with_memory(self, memory: LiveMemory) -> HuntSession {
        HuntSession { memory: Some(memory), ..self }
    }

    /// Statistics of memory look-ups; `None` without live memory.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        self.memory.as_ref().map(LiveMemory::stats)
    }

    /// Returns the files that were read.
    pub fn into_binaries(self) -> Binaries {
        self.binaries
    }

    /// Statistics of the session.
    pub fn stats(&self) -> HuntStats {
        self.stats
    }

    /// The answers of all evaluated events.
    pub fn totals(&self) -> Totals {
        let mut totals = self.cache.totals();
        totals.merge(&self.singles);
        totals
    }

    /// Whether an event has anything to evaluate: a complete or partial stack, facts about a stack,
    /// or facts that detections evaluate without a stack. For other events, every answer would be
    /// that the stack is missing.
    pub fn can_evaluate(view: &EventView<'_>) -> bool {
        view.state() != StackState::None || Kind::of(view).is_evaluated_alone()
    }

    /// Records what an event states about memory, without evaluating it. Each event must be
    /// observed or evaluated, in order; evaluation includes this.
    #[inline]
    pub fn observe(&mut self, view: &EventView<'_>) {
        self.histories.observe(view, &self.clock);
    }

    /// Evaluates an event. The history of memory is that of the events that were observed or
    /// evaluated before.
    pub fn evaluate(&mut self, view: &EventView<'_>) -> &Evaluation {
        self.observe(view);
        if self.numbers.is_exhausted() {
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

    /// Evaluates a case that was not found by its key. Returns the number of the evaluation.
    fn evaluate_new(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        key: Key,
    ) -> u32 {
        // Memory can change, so signatures do not identify evaluations. They do not contain its
        // recorded history either.
        if self.memory.is_some() || all.stack_context.history != 0 {
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

    /// Clears everything that is identified by numbers.
    fn forget(&mut self) {
        self.cache.forget();
        self.process_numbers = ContextNumbers::default();
        self.contexts.forget();
        (self.frame_numbers, self.targets) = (FrameNumbers::default(), Interner::default());
        self.numbers = NumberSource::default();
    }

    /// The facts of a case except for its frames.
    fn context_of(&mut self, view: &EventView<'_>, resolver: &mut FrameResolver) -> CaseContext {
        let stack_context = self.stack_context(view, resolver);
        let kind = Kind::of(view);
        let facts = self.facts(view, resolver, kind, &stack_context);
        CaseContext { stack_context, states: view.stack_states(), kind, facts }
    }

    #[inline]
    fn key(&mut self, view: &EventView<'_>, all: &CaseContext) -> Key {
        let CaseContext { stack_context, states, kind, facts } = all;
        let target = |target: facts::TargetFacts| (target.number, target.is_other, target.access);
        Key {
            stack: view.stack(),
            module_map_generation: stack_context.module_map_generation,
            start: stack_context.start,
            facts: match (facts.service, facts.target) {
                (None, None) => 0,
                (Some(service), _) => service.number(),
                (None, Some(facts)) => self.targets.of(target(facts), &mut self.numbers),
            },
            event_bits: kind.number()
                | (First::of(view.event()) as u32) << 7
                | u32::from(states.bits()) << 9
                | facts.tag() << 20
                | u32::from(facts.is_lossy) << 22,
        }
    }

    /// Number of the state of all memory of the stack's process at the time of the event.
    fn memory_number(&mut self, view: &EventView<'_>, all: &CaseContext) -> u32 {
        let (system, process) = (view.trace_state().system(), all.stack_context.owner.process);
        self.contexts.memory(system, process, view.time(), &mut self.numbers)
    }

    /// Calls `use_case` with an event in its normal form.
    fn with_case<R>(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        all: &CaseContext,
        use_case: impl FnOnce(services::Files<'_>, &Case<'_>) -> R,
    ) -> R {
        let (system, CaseContext { stack_context, states, kind, facts }) = (view.trace_state().system(), all);
        let owner = stack_context.owner;
        let change = if facts.has_change { self.histories.change(view) } else { None };
        let start_history = facts.start.and_then(|start| self.histories.at(start.pid, start.address.0));
        let has_history = change.is_some() || start_history.is_some();
        // The memory of another process can be older than this one.
        let is_other = change.is_some_and(|change| change.is_other) || start_history.is_some();
        let process = owner.process.filter(|_| !is_other);
        let has_losses =
            all.has_losses() || has_history && !system.is_gapless_since_start(process, view.time());
        let frames =
            resolver.at(system, owner, view.time(), stack_context.pointer_size).all(view.delivered());
        self.live.clear();
        if let (Some(memory), Some(process)) = (&mut self.memory, owner.process) {
            memory.read(system.process(process).entity(), view.utc(), &frames, &mut self.live);
        }
        self.frame_histories.clear();
        if stack_context.history != 0 {
            self.histories.of_frames(owner.pid, &frames, &mut self.frame_histories);
        }
        // The stack may belong to another event of the thread.
        let is_own = !states.has(StackState::Ambiguous);
        let (service, operation) = self.service_and_operation(resolver.modules(), *kind, facts, &frames);
        let has = |mode| frames.iter().any(|frame: &Frame| frame.mode == mode);
        let (kernel, user) = stack::parts(*states, has(Mode::Kernel), has(Mode::User), has_losses);
        let start_name = facts
            .start
            .and_then(|start| services::location_name((resolver.modules(), &mut self.binaries), start.code));
        let image = facts.target.and_then(|target| Some(system.process(target.process?).image_name()));
        let (modules, context) =
            resolver.modules_and_process(system, stack_context.pointer_size, owner.process, view.time());
        let HuntSession { binaries, services, live, frame_histories, .. } = self;
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
                    is_kernel: start.address.is_kernel(stack_context.pointer_size),
                    code: start.code,
                    function: start_name.as_deref(),
                    is_remote: start.is_remote,
                }),
                load: facts.load,
                memory: MemoryEvidence { change, frames: frame_histories, start: start_history },
                tampering: None,
            },
            process: Process {
                image: &context.image,
                is_wow64: context.is_wow64,
                has_runtime: context.has_runtime,
                has_win32u: context.has_win32u,
                thread_start: stack_context.thread_start,
            },
            stack: Stack {
                frames: &frames,
                live,
                kernel,
                user,
                limit: Some(WALK_FRAMES_MAX),
                map_is_complete: stack_context.is_complete,
                has_losses,
                is_certain: states.has_certain_frames(),
                is_truncated: states.has(StackState::Truncated),
            },
        };
        let used = use_case((modules, binaries), &case);
        self.frames = frames;
        used
    }

    /// The service that ran and the operation, as the event reports them, otherwise by names in the
    /// stack.
    fn service_and_operation(
        &mut self,
        modules: &Modules,
        kind: Kind,
        facts: &EventFacts,
        frames: &[Frame],
    ) -> (Option<services::Service>, Operation) {
        // User code did not request a service that the kernel calls on behalf of another one. The
        // requested service is the one that the system-call dispatcher has called.
        let service = match (self.services.in_stack((modules, &mut self.binaries), frames), facts.service) {
            (Some(requested), _) => Some(requested),
            (None, Some(_)) if stack::is_called_by_kernel(frames) => None,
            (None, entered) => entered,
        };
        let by_kind = kind.operation;
        let operation = match service {
            Some(service) if matches!(by_kind, Operation::Other | Operation::Wait) => {
                self.services.get(service).1
            }
            Some(_) => by_kind,
            // The stub that the call returns to does not reliably identify the service, but it
            // shows whether the thread waits in it.
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

/// Whether all user frames are in images, so that modules alone determine their code.
fn is_in_images(case: &Case<'_>) -> bool {
    let mut user = case.stack.frames.iter().filter(|frame| frame.mode == Mode::User);
    user.all(|frame| frame.code.module().is_some())
}
