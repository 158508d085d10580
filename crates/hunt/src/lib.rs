//! Judging the events of a trace by their stacks.
//!
//! ```
//! use std::ops::ControlFlow;
//! use stackhound_detect::Binaries;
//! use stackhound_hunt::Hunter;
//! use stackhound_pipeline::{Passes, Pipeline};
//! use stackhound_trace::Recordings;
//!
//! # fn main() -> Result<(), stackhound_trace::Error> {
//! # if !std::path::Path::new("trace.etl").exists() { return Ok(()) }
//! let trace = Recordings::file("trace.etl").open()?;
//! let mut pipeline = Pipeline::new(&trace, Passes::Two);
//! let mut hunter = Hunter::new(Binaries::none(), pipeline.clock());
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
//! A [`Hunter`] brings events into the normal form of [`detect`](stackhound_detect) and remembers judgements. Knows events and
//! what is known of the trace; must not know what detections ask, or how findings are shown.
#![forbid(unsafe_code)]

mod around;
mod cache;
mod kind;
pub mod memory;
mod services;
mod sighting;
mod stack;
mod told;

use std::sync::Arc;

use stackhound_detect::{
    Binaries, Case, Entry, Event, Judgement, LiveFrame, Process, Services as Ran, Stack, Start, Target,
    Totals, evaluate,
};
use stackhound_etl::Clock;
use stackhound_frames::{First, Frame, FrameResolver, Modules, Operation};
use stackhound_pipeline::Seen;
use stackhound_stacks::{StackState, StackStates, WALK_FRAMES_MAX};
use stackhound_system::ProcessId;
use stackhound_types::Mode;

use around::{Around, Surroundings};
use cache::{Cache, ContextNumbers, FrameNumbers, Key, Numbered, Numbers};
use kind::Kind;
use memory::{LiveMemory, MemoryStats};

use services::Services;

use told::Told;

/// What was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HuntStats {
    /// Events with a stack, or a part of one, that were judged.
    pub with_stack: u64,
    /// Judged events whose judgement was remembered: that of the same stack, or that of one which means the same.
    pub remembered: u64,
}

/// Judges the events of one trace.
///
/// Remembers what was judged: a case that was met before costs a few look-ups and allocates nothing. Memory is bounded, by
/// about 50 MB beside the files that the judge looks into.
#[derive(Debug)]
pub struct Hunter {
    binaries: Binaries,
    /// Of trace time.
    clock: Clock,
    contexts: ContextNumbers,
    services: Services,
    surroundings: Surroundings,
    frame_numbers: FrameNumbers,
    /// Whom something was done to: by what is known of the process, whether it is another one, and the rights.
    targets: Numbered<(u32, bool, Option<u32>)>,
    numbers: Numbers,
    /// By the system's index of each process: whether a start of one of its threads was met.
    has_threads: Vec<Option<ProcessId>>,
    /// Of live sessions, if it is asked for.
    memory: Option<LiveMemory>,
    cache: Cache,
    /// The judgement of a case that is not remembered.
    single: Option<Judgement>,
    singles: Totals,
    /// Of the case that was judged last.
    frames: Arc<[Frame]>,
    live: Vec<LiveFrame>,
    shape: Vec<u32>,
    stats: HuntStats,
}

/// All about an event, but for its frames.
#[derive(Clone, Copy, Debug)]
struct Circumscribed {
    around: Around,
    states: StackStates,
    kind: Kind,
    told: Told,
}

impl Circumscribed {
    /// Whether events that could have told of the stack or of the process's modules are known to be missing.
    fn has_losses(&self) -> bool {
        self.states.has(StackState::Lost) || self.around.is_lossy
    }
}

impl Hunter {
    /// For a trace with this clock. Files that were read for other traces belong to the modules of those: hand these to
    /// [`Pipeline::with_modules`](stackhound_pipeline::Pipeline::with_modules), which also takes lists.
    pub fn new(binaries: Binaries, clock: Clock) -> Hunter {
        Hunter {
            binaries,
            clock,
            contexts: ContextNumbers::default(),
            services: Services::default(),
            surroundings: Surroundings::default(),
            frame_numbers: FrameNumbers::default(),
            targets: Numbered::default(),
            numbers: Numbers::default(),
            has_threads: Vec::new(),
            memory: None,
            cache: Cache::default(),
            single: None,
            singles: Totals::default(),
            frames: Arc::default(),
            live: Vec::new(),
            shape: Vec::new(),
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

    /// Whether there is anything to judge: a stack, a part of one, something that is known of one, or facts that detections
    /// look at without a stack. Of other events, every answer would be that the stack is missing.
    pub fn can_judge(seen: &Seen<'_>) -> bool {
        seen.state() != StackState::None || Kind::of(seen.event()).is_judged_alone()
    }

    /// Judges an event.
    pub fn judge(&mut self, seen: &Seen<'_>) -> &Judgement {
        if self.numbers.are_spent() {
            self.forget();
        }
        let resolver = &mut *seen.resolver();
        let all = self.circumscribe(seen, resolver);
        self.stats.with_stack += u64::from(seen.stack().is_some());
        if all.told.is_single() {
            let judgement = self.with_case(seen, resolver, &all, |(modules, binaries), case| {
                evaluate(modules, binaries, case)
            });
            self.singles.add(&judgement, 1);
            return self.single.insert(judgement);
        }
        let key = self.key(seen, &all);
        let number = match self.cache.find(&key) {
            Some(known) if known.memory == 0 || known.memory == self.memory_number(seen, &all) => {
                self.stats.remembered += 1;
                known.number
            }
            _ => self.judge_new(seen, resolver, &all, key),
        };
        self.cache.count(number)
    }

    /// Judges a case that is not remembered by its stack. Gives the number of the judgement.
    fn judge_new(
        &mut self,
        seen: &Seen<'_>,
        resolver: &mut FrameResolver,
        all: &Circumscribed,
        key: Key,
    ) -> u32 {
        // What is read from memory is not the same twice.
        if self.memory.is_some() {
            let (judgement, in_images) = self.with_case(seen, resolver, all, |(modules, binaries), case| {
                (evaluate(modules, binaries, case), is_in_images(case))
            });
            let memory = if in_images { 0 } else { self.memory_number(seen, all) };
            let number = self.cache.number(judgement);
            self.cache.keep(key, memory, number);
            return number;
        }
        let memory = self.find_shape(seen, resolver, all, &key);
        let number = match self.cache.of_shape(&self.shape) {
            Some(number) => {
                self.stats.remembered += 1;
                number
            }
            None => {
                let judgement = self.with_case(seen, resolver, all, |(modules, binaries), case| {
                    evaluate(modules, binaries, case)
                });
                let number = self.cache.number(judgement);
                self.shape_of_judged(resolver, all, &key);
                self.cache.keep_shape(&self.shape, number);
                number
            }
        };
        self.cache.keep(key, memory, number);
        number
    }

    /// Forgets all that has a number.
    fn forget(&mut self) {
        self.cache.forget();
        self.contexts = ContextNumbers::default();
        self.surroundings.forget();
        (self.frame_numbers, self.targets) = (FrameNumbers::default(), Numbered::default());
        self.numbers = Numbers::default();
    }

    /// Everything that the judgement of an event rests on, but for its frames.
    fn circumscribe(&mut self, seen: &Seen<'_>, resolver: &mut FrameResolver) -> Circumscribed {
        let around = self.around(seen, resolver);
        let kind = Kind::of(seen.event());
        let told = self.told(seen, resolver, kind, &around);
        Circumscribed { around, states: seen.stack_states(), kind, told }
    }

    #[inline]
    fn key(&mut self, seen: &Seen<'_>, all: &Circumscribed) -> Key {
        let Circumscribed { around, states, kind, told } = all;
        let target = |target: told::ToldTarget| (target.number, target.is_other, target.access);
        Key {
            stack: seen.stack(),
            ground: around.ground,
            start: around.start,
            told: match (told.service, told.target) {
                (None, None) => 0,
                (Some(service), _) => service.number(),
                (None, Some(told)) => self.targets.of(target(told), &mut self.numbers),
            },
            what: kind.number()
                | (First::of(seen.event()) as u32) << 7
                | u32::from(states.bits()) << 9
                | told.tag() << 20,
        }
    }

    /// Stands for all memory of the stack's process as it is at the event's time.
    fn memory_number(&mut self, seen: &Seen<'_>, all: &Circumscribed) -> u32 {
        let (system, process) = (seen.knowledge().system(), all.around.owner.process);
        self.surroundings.memory(system, process, seen.time(), &mut self.numbers)
    }

    /// Hands an event in its normal form to `use_case`.
    fn with_case<R>(
        &mut self,
        seen: &Seen<'_>,
        resolver: &mut FrameResolver,
        all: &Circumscribed,
        use_case: impl FnOnce(services::Files<'_>, &Case<'_>) -> R,
    ) -> R {
        let (system, Circumscribed { around, states, kind, told }) = (seen.knowledge().system(), all);
        let (owner, has_losses) = (around.owner, all.has_losses());
        let frames = resolver.at(system, owner, seen.time(), around.session).all(seen.delivered());
        self.live.clear();
        if let (Some(memory), Some(process)) = (&mut self.memory, owner.process) {
            memory.read(system.process(process).entity(), seen.utc(), &frames, &mut self.live);
        }
        // The stack may be that of another event of the thread.
        let is_own = !states.has(StackState::Ambiguous);
        let (service, operation) = self.service_and_operation(resolver.modules(), *kind, told, &frames);
        let has = |mode| frames.iter().any(|frame: &Frame| frame.mode == mode);
        let (kernel, user) = stack::parts(*states, has(Mode::Kernel), has(Mode::User), has_losses);
        let start_name = told
            .start
            .and_then(|start| services::place_name((resolver.modules(), &mut self.binaries), start.code));
        let image = told.target.and_then(|target| Some(system.process(target.process?).image_name()));
        let (modules, context) =
            resolver.modules_and_process(system, around.session, owner.process, seen.time());
        let Hunter { binaries, services, live, .. } = self;
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
                target: told.target.map(|target| Target {
                    image: image.unwrap_or_default(),
                    is_other: target.is_other,
                    access: target.access,
                }),
                start: told.start.map(|start| Start {
                    address: start.address.0,
                    is_kernel: start.address.is_kernel(around.session),
                    code: start.code,
                    function: start_name.as_deref(),
                    is_remote: start.is_remote,
                }),
                load: told.load,
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
        told: &Told,
        frames: &[Frame],
    ) -> (Option<services::Service>, Operation) {
        // What the kernel calls on behalf of another service is not what user code asked for: that is what the dispatcher
        // of system calls has called.
        let service = match (self.services.in_stack((modules, &mut self.binaries), frames), told.service) {
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
