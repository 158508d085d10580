//! Kernel stacks from traces and live sessions, taken from the context switches of each thread.

use std::ops::ControlFlow;

use stackhound_etl::Clock;
use stackhound_frames::{FrameResolver, StackOwner};
use stackhound_pipeline::{Counted, Depth, EventView, Naming, Outcome, Passes, Pipeline};
use stackhound_stacks::StackState;
use stackhound_system::{System, ThreadRef};
use stackhound_trace::{Flow, OpenTrace, TraceTime};
use stackhound_types::{Address, FileTime, Mode, Pid, RawTime, Tid};

use super::frames::{Unnamed, Walked};
use super::switches::{Activity, SwitchStack, Switches, Thread};
use super::{
    Absent, Evidence, KernelStackError, KernelStackSource, Selection, StackFrame, SwitchEvidence,
    SwitchRelation, ThreadStack, ThreadState,
};

/// For each thread, the stack of its last switch at a given time.
///
/// The threads are those that the trace describes and that are alive at that time. Idle threads
/// share a thread ID and are not included. Reads the trace once more, in addition to earlier
/// passes, and keeps one stack per thread.
#[derive(Debug)]
pub struct SwitchStacks<'t> {
    pipeline: Pipeline<'t>,
    switches: Switches,
    depth: Depth,
    outcome: Option<Outcome>,
}

impl<'t> SwitchStacks<'t> {
    /// Reads a trace, for a given time; for the end of the trace if none is given. `pipeline` must
    /// read `trace` with this number of passes.
    pub fn recorded(
        pipeline: Pipeline<'t>,
        trace: &OpenTrace,
        passes: Passes,
        at: Option<TraceTime>,
    ) -> SwitchStacks<'t> {
        let switches = Switches::new(at, Some(trace), passes == Passes::Two);
        SwitchStacks { pipeline, switches, depth: Depth::Function, outcome: None }
    }

    /// Reads live sessions, for the time at which they end.
    pub fn live(pipeline: Pipeline<'t>) -> SwitchStacks<'t> {
        let switches = Switches::new(None, None, false);
        SwitchStacks { pipeline, switches, depth: Depth::Function, outcome: None }
    }

    /// Sets the depth to which frames are resolved. The default is functions, if the pipeline has a
    /// symbolizer.
    pub fn depth(self, depth: Depth) -> SwitchStacks<'t> {
        SwitchStacks { depth, ..self }
    }

    /// The pipeline that reads the trace.
    pub fn pipeline(&self) -> &Pipeline<'t> {
        &self.pipeline
    }

    /// The time of the reported stacks, after the trace was read; `None` if the trace has no
    /// events.
    pub fn time(&self) -> Option<FileTime> {
        self.switches.time().map(|time| utc(&self.pipeline.clock(), time))
    }

    /// Reads the trace, unless it has been read already. Calls `tick` for each event, and `watch`
    /// at intervals, which can end the read.
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
        let builder = RecordBuilder { system, switches: &self.switches, clock, time, of };
        let mut threads: Vec<(Tid, Option<ThreadRef<'_>>)> = Vec::new();
        let living = system.threads().filter(|thread| {
            let (tid, span) = (thread.tid(), thread.span());
            // At the time a thread ends, another one can already have its ID.
            let has_number = || system.thread_at(tid, time).is_some_and(|holder| holder.id() == thread.id());
            tid != Tid(0) && span.touches(time) && has_number() && of.chooses(Some(thread.pid()), tid)
        });
        threads.extend(living.map(|thread| (thread.tid(), Some(thread))));
        threads.extend(self.switches.undescribed_threads(system, of).map(|tid| (tid, None)));
        if threads.is_empty() {
            builder.check_selection()?;
        }
        // All names are requested before the first wait.
        let mut found: Vec<Found<'_>> = Vec::new();
        for (tid, thread) in threads {
            let last = self.switches.threads.get(&tid);
            let stack = last.and_then(|last| builder.stack(last));
            let unnamed =
                stack.map(|stack| builder.frames(stack.taken, resolver, self.depth, naming.as_deref_mut()));
            found.push(Found { tid, thread, last, stack, unnamed });
        }
        if let Some(naming) = &mut naming {
            naming.wait_for_all();
        }
        let naming = naming.as_deref();
        let mut stacks: Vec<ThreadStack> =
            found.iter().map(|found| builder.thread_stack(found, self.depth, naming)).collect();
        stacks.sort_by_key(|stack| (stack.pid.is_none(), stack.pid, stack.tid));
        Ok(stacks)
    }
}

/// The data found for a thread.
struct Found<'s> {
    tid: Tid,
    thread: Option<ThreadRef<'s>>,
    last: Option<&'s Thread>,
    stack: Option<Stack<'s>>,
    unnamed: Option<Unnamed>,
}

/// The reported stack and its relation to the requested time.
#[derive(Clone, Copy)]
struct Stack<'s> {
    taken: &'s SwitchStack,
    relation: SwitchRelation,
    lost_between: bool,
}

/// Builds the records.
struct RecordBuilder<'s> {
    system: &'s System,
    switches: &'s Switches,
    clock: Clock,
    time: TraceTime,
    of: &'s Selection,
}

impl<'s> RecordBuilder<'s> {
    /// Returns an error if the selected thread or process does not exist.
    fn check_selection(&self) -> Result<(), KernelStackError> {
        match *self.of {
            Selection { pid, tid: Some(tid), .. } => Err(KernelStackError::NoThread(tid, pid)),
            Selection { pid: Some(pid), .. } if self.system.process_at(pid, self.time).is_none() => {
                Err(KernelStackError::NoProcess(pid))
            }
            _ => Ok(()),
        }
    }

    /// The best stack for the requested time.
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
        stack: &SwitchStack,
        resolver: &mut FrameResolver,
        depth: Depth,
        naming: Option<&mut Naming>,
    ) -> Unnamed {
        let SwitchStack { time, pid, ref addresses, .. } = *stack;
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

    fn thread_stack(&self, found: &Found<'_>, depth: Depth, naming: Option<&Naming>) -> ThreadStack {
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
            state: self.state(last.and_then(|last| last.activity.as_ref())),
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

    fn state(&self, activity: Option<&Activity>) -> ThreadState {
        let since = |time: TraceTime| Some(utc(&self.clock, time));
        match activity {
            None => ThreadState::Unknown,
            Some(&Activity::Runs(time)) => ThreadState::Running { since: since(time) },
            Some(&Activity::CouldRun(time)) => ThreadState::Ready { since: since(time) },
            Some(Activity::Waits(time, reason)) => {
                ThreadState::Waiting { since: since(*time), reason: reason.clone() }
            }
            Some(Activity::HasEnded) => ThreadState::Ended,
        }
    }
}

/// The reason why a stack with kernel frames has no user frames.
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
