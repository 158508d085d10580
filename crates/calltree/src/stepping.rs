//! Steps: from a transition to the next or the previous one of the same thread.
//!
//! Steps follow the *control flow* of the stack that is active on the transition's processor at the
//! context before it:
//!
//! - The flow of a thread's stack consists of all stacks of the thread, in user mode and in the
//!   kernel. An idle thread has one stack.
//! - The flow of a processor's stack, for interrupt service routines or deferred procedure calls,
//!   consists of this stack while its outermost frame exists, and before and after that of the flow
//!   of the interrupted stack.
//! - If the stack is unknown, the flow consists of all transitions of the processor.
//!
//! A transition belongs to the flow if the stack that is active on its processor does. Steps skip
//! all others: those of other threads and processors, and of the interrupt routines that interrupt
//! the flow.
//!
//! An event trace records an interrupt routine at its end, so no transition starts it. If a routine
//! interrupts another one on the same stack, steps over the outer routine skip it.
//!
//! # Cost
//!
//! A step to the adjacent transition costs a few look-ups if that is on the same thread's stack; a
//! step over in an event trace does not profit from this. Other steps also cost one look-up for
//! each stack of the trace, for each period of activity of the flow that they skip, and for each
//! transition of other processors within these periods. They read no transitions outside of these
//! periods. If the stack is unknown, they cost one look-up for each transition that they skip.

use std::ops::Range;

use crate::frame::Frame;
use crate::id::{ContextId, Cpu, StackId, TransitionId};
use crate::kind::{StackKind, StartType};
use crate::trace::{Axis, Context, Stack, Trace, Transition, partition};

impl<'t> Transition<'t> {
    /// The next transition of the same thread that is not in a function that this one starts. For a
    /// call, the transition after the return. For a system call, the first transition after its
    /// exit. For an interrupt, the first transition of the interrupted code after the interrupt
    /// return. Skips other threads and processors, and interrupts. `None` if the function does not
    /// end within the trace, or if no such transition follows.
    pub fn step_over(&self) -> Option<Self> {
        let after = self.id().0 + 1;
        // Only in an event trace, a frame can start on a stack that is not active.
        if let Some((next, stack)) = self.same_stack_at(after)
            && self.label().is_none()
            && stack.frame().is_none_or(|frame| frame.first_context().id().0 < after)
        {
            return Some(next);
        }
        let flow = Flow::at(&self.context_before());
        match flow.started_by(self) {
            Some(frame) => flow.next(after_end(&frame)?),
            None => flow.next(after),
        }
    }

    /// The previous transition of the same thread. If that ended a frame, the transition that
    /// created the frame, or, if its creation was not observed, the last transition of the thread
    /// before the frame's first context. Skips the same transitions as
    /// [`step_over`](Transition::step_over). `None` if there is none in the trace.
    pub fn step_over_backward(&self) -> Option<Self> {
        let before = self.id().0.checked_sub(1)?;
        let adjacent = self.same_stack_at(before).map(|(previous, _)| previous);
        if let Some(previous) = adjacent.filter(|previous| previous.ends().is_none()) {
            return Some(previous);
        }
        let flow = Flow::at(&self.context_before());
        let previous = flow.previous(self.id().0)?;
        match previous.ends() {
            Some(frame) => flow.previous(frame.first_context().id().0),
            None => Some(previous),
        }
    }

    /// The first transition of the same thread after the end of the current function. For an
    /// interrupt routine, the first transition of the interrupted code after it. If the system call
    /// or the interrupt routine that is current was not recorded, the next transition of the code
    /// below. `None` if the function does not end within the trace, or if no transition follows.
    pub fn step_out(&self) -> Option<Self> {
        let context = self.context_before();
        let stack = context.stack()?;
        let frame = stack.frame()?;
        let flow = Flow::at(&context);
        let is_below = match stack.info().kind {
            StackKind::Kernel => !frame.has_ended() || !is_started(&frame),
            kind => is_of_processor(kind) && !frame.has_ended(),
        };
        if is_below && frame.parent().is_none() {
            return flow.below(stack.id()).next(self.id().0 + 1);
        }
        flow.next(after_end(&frame)?)
    }

    /// The transition that called the current function. For an interrupt routine or a system call,
    /// the last transition of the code below before its first context, even if it was recorded only
    /// at its end; if the system call that is current was not recorded, the last one before this
    /// transition. `None` if the call was not observed.
    pub fn step_out_backward(&self) -> Option<Self> {
        let context = self.context_before();
        let stack = context.stack()?;
        let frame = stack.frame()?;
        let flow = Flow::at(&context);
        let is_outermost = frame.parent().is_none();
        let kind = stack.info().kind;
        if is_outermost && kind == StackKind::Kernel && !is_started(&frame) {
            return flow.below(stack.id()).previous(self.id().0);
        }
        let is_routine = frame.start_type() == StartType::Interrupt
            || is_outermost && (is_of_processor(kind) || kind == StackKind::Kernel);
        (is_routine || frame.function_start().is_some())
            .then(|| flow.previous(frame.first_context().id().0))?
    }

    /// The transition `number` and the stack before it, if that is the stack of a thread, and the
    /// same as before this one on the same processor.
    fn same_stack_at(&self, number: u64) -> Option<(Self, Stack<'t>)> {
        let here = self.context_before();
        let there = here.trace().transition(TransitionId(number)).ok()?;
        let context = there.context_before();
        let (stack, other) = (here.stack()?, context.stack()?);
        let is_same =
            context.cpu() == here.cpu() && stack.id() == other.id() && !is_of_processor(stack.info().kind);
        is_same.then_some((there, other))
    }
}

/// The transitions that steps visit.
struct Flow<'t> {
    trace: &'t Trace,
    /// The current part, then the parts below it, each for the contexts outside of the previous
    /// one.
    parts: Vec<Part>,
}

/// Code that is executed at a range of contexts.
struct Part {
    code: Code,
    contexts: Range<u64>,
}

enum Code {
    Stacks(Vec<StackId>),
    /// Unknown code of a processor.
    Unknown(Cpu),
}

impl<'t> Flow<'t> {
    fn at(context: &Context<'t>) -> Self {
        let trace = context.trace();
        let mut parts = Vec::new();
        let mut next = context.stack();
        // The first context of the routine above.
        let mut above = context.id().0;
        // Every turn continues in an earlier period.
        while let Some(stack) = next.filter(|stack| is_of_processor(stack.info().kind)) {
            let at = stack.context().id().0;
            let routine = std::iter::successors(stack.frame(), Frame::parent).last();
            let contexts = match routine {
                Some(frame) => frame.first_context().id().0..frame.last_context().id().0 + 1,
                None => stack.period().map_or(at..at + 1, |period| period.first..period.last + 1),
            };
            let start = Stack::new(trace, stack.id(), ContextId(contexts.start.min(at)));
            // A routine that ended just before another one was not interrupted by it.
            if contexts.end > above {
                above = contexts.start;
                parts.push(Part { code: Code::Stacks(vec![stack.id()]), contexts });
            }
            next = start.prev_stack(Axis::Cpu).filter(|below| below.context().id() < start.context().id());
        }
        let code = match next {
            Some(stack) => {
                let kind = |id: &StackId| trace.index.tables.stack_info(id.0).kind;
                let others = stack.others_of_thread().filter(|id| !is_of_processor(kind(id)));
                Code::Stacks(others.chain([stack.id()]).collect())
            }
            None => Code::Unknown(context.cpu()),
        };
        parts.push(Part { code, contexts: 0..u64::MAX });
        Self { trace, parts }
    }

    /// The code of the flow below its current stack.
    fn below(mut self, stack: StackId) -> Self {
        match &mut self.parts[..] {
            [Part { code: Code::Stacks(stacks), .. }] => stacks.retain(|other| *other != stack),
            _ => drop(self.parts.remove(0)),
        }
        self
    }

    /// The outermost frame of a function that a transition starts. In an event trace, the frame of
    /// a system call can start while its stack is not active: an interrupt or a callback into user
    /// mode can follow before the next event.
    fn started_by(&self, transition: &Transition<'t>) -> Option<Frame<'t>> {
        let Code::Stacks(stacks) = &self.parts.first()?.code else { return None };
        let after = transition.id().context_after();
        stacks.iter().find_map(|stack| {
            let top = Stack::new(self.trace, *stack, after).frame();
            frames_since(top, after.0).filter(|frame| frame.function_start() == Some(*transition)).last()
        })
    }

    /// The first transition from `from` on, outside of functions that start from there on: they
    /// start without a transition of the flow.
    fn next(&self, mut from: u64) -> Option<Transition<'t>> {
        loop {
            let found = self.first_from(from)?;
            let top = Context::new(self.trace, ContextId(found)).stack().and_then(|stack| stack.frame());
            match frames_since(top, from).filter(is_started).last() {
                Some(frame) => from = after_end(&frame)?.max(found + 1),
                None => return Some(Transition::new(self.trace, TransitionId(found))),
            }
        }
    }

    fn first_from(&self, mut from: u64) -> Option<u64> {
        let count = self.trace.transition_count();
        self.parts.iter().find_map(|part| {
            let found = part.nearest(self.trace, from..part.contexts.end.min(count), true);
            from = from.max(part.contexts.end);
            found
        })
    }

    /// The last transition before `end`.
    fn previous(&self, mut end: u64) -> Option<Transition<'t>> {
        let found = self.parts.iter().find_map(|part| {
            let found = part.nearest(self.trace, part.contexts.start..end.min(part.contexts.end), false);
            end = end.min(part.contexts.start);
            found
        })?;
        Some(Transition::new(self.trace, TransitionId(found)))
    }
}

impl Part {
    /// The first or the last transition in a range.
    fn nearest(&self, trace: &Trace, mut range: Range<u64>, is_first: bool) -> Option<u64> {
        let stacks = match &self.code {
            Code::Stacks(stacks) => stacks,
            Code::Unknown(cpu) => return transition_of(trace, *cpu, range, is_first),
        };
        // The numbers of the periods of each stack that are not searched yet.
        let mut periods: Vec<Range<u64>> = stacks
            .iter()
            .map(|stack| {
                let (low, high) = trace.row(*stack).0.periods;
                let is_before =
                    |nth| trace.period_of_stack(nth).is_some_and(|period| period.last < range.start);
                let begins = |nth| trace.period_of_stack(nth).is_some_and(|period| period.first < range.end);
                let low = partition((low, high), is_before);
                low..partition((low, high), begins)
            })
            .collect();
        let mut found = None;
        loop {
            let next = periods.iter_mut().filter(|numbers| !numbers.is_empty()).filter_map(|numbers| {
                let nth = if is_first { numbers.start } else { numbers.end - 1 };
                Some((trace.period_of_stack(nth)?, numbers))
            });
            let nearest =
                next.min_by_key(|(period, _)| if is_first { period.first } else { u64::MAX - period.last });
            // The others are further away than the transition that was found.
            let Some((period, numbers)) =
                nearest.filter(|(period, _)| period.first < range.end && range.start <= period.last)
            else {
                return found;
            };
            if is_first {
                numbers.start += 1
            } else {
                numbers.end -= 1
            }
            let within = range.start.max(period.first)..range.end.min(period.last + 1);
            if let Some(number) = transition_of(trace, period.cpu, within, is_first) {
                found = Some(number);
                if is_first { range.end = number } else { range.start = number + 1 }
            }
        }
    }
}

/// The first or the last transition of a processor in a range.
fn transition_of(trace: &Trace, cpu: Cpu, range: Range<u64>, is_first: bool) -> Option<u64> {
    // Without stored processors, a damaged index can have more transitions than bytes.
    let can_exist = trace.index.cpus.as_ref().map_or(cpu == Cpu(0), |cpus| cpus.can_store(cpu.0.into()));
    let mut range = if can_exist { range } else { 0..0 };
    let is_of_cpu = |number: &u64| trace.cpu(ContextId(*number)) == cpu;
    if is_first { range.find(is_of_cpu) } else { range.rev().find(is_of_cpu) }
}

/// The frames that start at or after a context, from the top frame down.
fn frames_since<'t>(top: Option<Frame<'t>>, first: u64) -> impl Iterator<Item = Frame<'t>> {
    std::iter::successors(top, Frame::parent).take_while(move |frame| frame.first_context().id().0 >= first)
}

/// The context after the last one of a frame. `None` if it does not end within the trace.
fn after_end(frame: &Frame<'_>) -> Option<u64> {
    frame.has_ended().then(|| frame.last_context().id().0 + 1)
}

/// Whether the frame is that of a function from its start.
fn is_started(frame: &Frame<'_>) -> bool {
    matches!(frame.start_type(), StartType::Call | StartType::Interrupt)
}

/// Whether a stack belongs to a processor. A recorder may state the thread that it interrupted.
fn is_of_processor(kind: StackKind) -> bool {
    matches!(kind, StackKind::Interrupt | StackKind::Deferred)
}
