//! Kernel stacks out of recordings and live sessions: of the context switches of each thread.

use std::ops::ControlFlow;

use stackhound_etl::Clock;
use stackhound_frames::{FrameResolver, StackOwner};
use stackhound_pipeline::{Counted, Depth, EventView, Naming, Outcome, Passes, Pipeline};
use stackhound_stacks::StackState;
use stackhound_system::{System, ThreadRef};
use stackhound_trace::{Flow, OpenTrace, TraceTime};
use stackhound_types::{Address, FileTime, Mode, Pid, RawTime, Tid};

use super::frames::{Unnamed, Walked};
use super::switches::{Doing, Switches, Taken, Thread};
use super::{
    Absent, Evidence, KernelStackError, KernelStackSource, Selection, StackFrame, SwitchEvidence,
    SwitchRelation, ThreadStack, ThreadState,
};

/// The stack with which each thread was last switched out or in at a time.
///
/// Threads are those that the trace tells of and that live at the time; of the idle threads, which share a number, nothing is
/// told. Reads the trace once more than it was read before, with one stack kept for each thread.
#[derive(Debug)]
pub struct SwitchStacks<'t> {
    pipeline: Pipeline<'t>,
    switches: Switches,
    depth: Depth,
    outcome: Option<Outcome>,
}

impl<'t> SwitchStacks<'t> {
    /// Of recordings, at a time; at their end if none is given. `pipeline` reads `trace` with so many passes.
    pub fn recorded(
        pipeline: Pipeline<'t>,
        trace: &OpenTrace,
        passes: Passes,
        at: Option<TraceTime>,
    ) -> SwitchStacks<'t> {
        let switches = Switches::new(at, Some(trace), passes == Passes::Two);
        SwitchStacks { pipeline, switches, depth: Depth::Function, outcome: None }
    }

    /// Of live sessions, when they end.
    pub fn live(pipeline: Pipeline<'t>) -> SwitchStacks<'t> {
        let switches = Switches::new(None, None, false);
        SwitchStacks { pipeline, switches, depth: Depth::Function, outcome: None }
    }

    /// How much of frames is told; functions otherwise, if the pipeline has names.
    pub fn depth(self, depth: Depth) -> SwitchStacks<'t> {
        SwitchStacks { depth, ..self }
    }

    /// The pipeline that reads.
    pub fn pipeline(&self) -> &Pipeline<'t> {
        &self.pipeline
    }

    /// The time that is told of, once the trace was read; `None` if it has no events.
    pub fn time(&self) -> Option<FileTime> {
        self.switches.time().map(|time| utc(&self.pipeline.clock(), time))
    }

    /// Reads the trace, unless that was done: calls `tick` for each event, and `watch` now and then, which can end it.
    pub fn read(&mut self, mut tick: impl FnMut(), watch: impl FnMut(&Counted<'_>) -> Flow) -> &Outcome {
        let (pipeline, switches) = (&mut self.pipeline, &mut self.switches);
        self.outcome.get_or_insert_with(|| {
            let take = |view: &EventView<'_>| {
                tick();
                switches.take(view)?;
                ControlFlow::Continue(false)
            };
            pipeline.run_watched(take, |_| ControlFlow::Continue(()), watch)
        })
    }
}

impl KernelStackSource for SwitchStacks<'_> {
    fn stacks(&mut self, of: &Selection) -> Result<Vec<ThreadStack>, KernelStackError> {
        self.read(|| (), |_| ControlFlow::Continue(()));
        let clock = self.pipeline.clock();
        let (known, resolver, mut naming) = self.pipeline.parts();
        let system = known.system();
        let time = self.switches.time().unwrap_or(TraceTime(i64::MAX));
        let teller = Teller { system, switches: &self.switches, clock, time, of };
        let mut threads: Vec<(Tid, Option<ThreadRef<'_>>)> = Vec::new();
        let living = system.threads().filter(|thread| {
            let (tid, span) = (thread.tid(), thread.span());
            // At the time of an end, another one can have the number already.
            let has_number = || system.thread_at(tid, time).is_some_and(|holder| holder.id() == thread.id());
            tid != Tid(0) && span.touches(time) && has_number() && of.chooses(Some(thread.pid()), tid)
        });
        threads.extend(living.map(|thread| (thread.tid(), Some(thread))));
        threads.extend(self.switches.strangers(system, of).map(|tid| (tid, None)));
        if threads.is_empty() {
            teller.is_there()?;
        }
        // All names are asked for before the first is waited for.
        let mut found: Vec<Found<'_>> = Vec::new();
        for (tid, thread) in threads {
            let last = self.switches.threads.get(&tid);
            let stack = last.and_then(|last| teller.stack(last));
            let unnamed =
                stack.map(|stack| teller.frames(stack.taken, resolver, self.depth, naming.as_deref_mut()));
            found.push(Found { tid, thread, last, stack, unnamed });
        }
        if let Some(naming) = &mut naming {
            naming.wait_for_all();
        }
        let naming = naming.as_deref();
        let mut told: Vec<ThreadStack> =
            found.iter().map(|found| teller.tell(found, self.depth, naming)).collect();
        told.sort_by_key(|told| (told.pid.is_none(), told.pid, told.tid));
        Ok(told)
    }
}

/// What was found of a thread.
struct Found<'s> {
    tid: Tid,
    thread: Option<ThreadRef<'s>>,
    last: Option<&'s Thread>,
    stack: Option<Stack<'s>>,
    unnamed: Option<Unnamed>,
}

/// The stack that is told, and what it is for the time in question.
#[derive(Clone, Copy)]
struct Stack<'s> {
    taken: &'s Taken,
    relation: SwitchRelation,
    lost_between: bool,
}

/// Makes records of what was found.
struct Teller<'s> {
    system: &'s System,
    switches: &'s Switches,
    clock: Clock,
    time: TraceTime,
    of: &'s Selection,
}

impl<'s> Teller<'s> {
    /// Of no thread at all: whether there is what was asked for.
    fn is_there(&self) -> Result<(), KernelStackError> {
        match *self.of {
            Selection { pid, tid: Some(tid), .. } => Err(KernelStackError::NoThread(tid, pid)),
            Selection { pid: Some(pid), .. } if self.system.process_at(pid, self.time).is_none() => {
                Err(KernelStackError::NoProcess(pid))
            }
            _ => Ok(()),
        }
    }

    /// The stack that says most of the time in question.
    fn stack(&self, last: &'s Thread) -> Option<Stack<'s>> {
        if let Some((taken, lost_between)) = &last.resumed {
            return Some(Stack { taken, relation: SwitchRelation::Resumed, lost_between: *lost_between });
        }
        let relation = match last.later {
            0 => SwitchRelation::Last,
            later => SwitchRelation::Earlier { later, lost: last.lost },
        };
        let taken = last.stack.as_ref()?;
        Some(Stack { taken, relation, lost_between: self.switches.lost_since(taken.time) })
    }

    fn frames(
        &self,
        stack: &Taken,
        resolver: &mut FrameResolver,
        depth: Depth,
        naming: Option<&mut Naming>,
    ) -> Unnamed {
        let Taken { time, pid, ref addresses, .. } = *stack;
        let process = pid.and_then(|pid| self.system.process_of_event(pid, time));
        let owner = StackOwner { pid, tid: None, process: process.map(|process| process.id()) };
        let pointer_size = self.switches.pointer_size;
        let wanted: Vec<Address> = addresses
            .iter()
            .copied()
            .filter(|address| self.of.user || address.is_kernel(pointer_size))
            .collect();
        let walked = Walked { addresses: &wanted, owner, time, pointer_size };
        Unnamed::new(&walked, self.system, resolver, depth, naming)
    }

    fn tell(&self, found: &Found<'_>, depth: Depth, naming: Option<&Naming>) -> ThreadStack {
        let &Found { tid, thread, last, stack, .. } = found;
        let pid = thread.map(|thread| thread.pid()).or(stack.and_then(|stack| stack.taken.pid));
        let frames = found.unnamed.as_ref().map(|unnamed| unnamed.named(self.system, depth, naming));
        let (kernel, user): (Vec<StackFrame>, Vec<StackFrame>) =
            frames.unwrap_or_default().into_iter().partition(|frame| frame.mode == Mode::Kernel);
        let part =
            |frames: Vec<StackFrame>, why: Absent| if frames.is_empty() { Err(why) } else { Ok(frames) };
        let why = self.switches.why(last);
        let user_why = stack.map_or(why, |stack| user_why(pid, stack.taken.state));
        let process = pid.and_then(|pid| self.system.process_of_event(pid, self.time));
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ThreadStack {
            pid,
            tid,
            process: process.and_then(|process| text(process.image_name())),
            name: thread.and_then(|thread| text(thread.name_at(self.time))),
            state: self.state(last.and_then(|last| last.doing.as_ref())),
            kernel: part(kernel, why),
            user: self.of.user.then(|| part(user, user_why)),
            evidence: stack.map(|stack| self.evidence(stack)),
        }
    }

    fn evidence(&self, stack: Stack<'_>) -> Evidence {
        let Stack { taken, relation, lost_between } = stack;
        let age = self.clock.span_from_raw(self.time.0.saturating_sub(taken.time.0));
        Evidence::Switch(SwitchEvidence { time: utc(&self.clock, taken.time), age, relation, lost_between })
    }

    fn state(&self, doing: Option<&Doing>) -> ThreadState {
        let since = |time: TraceTime| Some(utc(&self.clock, time));
        match doing {
            None => ThreadState::Unknown,
            Some(&Doing::Runs(time)) => ThreadState::Running { since: since(time) },
            Some(&Doing::CouldRun(time)) => ThreadState::Ready { since: since(time) },
            Some(Doing::Waits(time, reason)) => {
                ThreadState::Waiting { since: since(*time), reason: reason.clone() }
            }
            Some(Doing::HasEnded) => ThreadState::Ended,
        }
    }
}

/// Why a stack with a kernel part has no user part.
fn user_why(pid: Option<Pid>, state: StackState) -> Absent {
    match state {
        _ if pid.is_some_and(Pid::is_kernel_only) => Absent::SystemThread,
        StackState::Complete => Absent::SystemThread,
        StackState::KernelOnly | StackState::None => Absent::NotReturned,
        StackState::UnresolvedKey => Absent::UnresolvedKey,
        StackState::Lost
        | StackState::Damaged
        | StackState::Ambiguous
        | StackState::Unconfirmed
        | StackState::Truncated
        | StackState::UserOnly => Absent::Lost,
    }
}

fn utc(clock: &Clock, time: TraceTime) -> FileTime {
    clock.to_file_time(RawTime(time.0))
}
