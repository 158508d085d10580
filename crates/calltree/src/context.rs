//! Contexts, transitions, and ranges of contexts.

use std::fmt;

use crate::frame::Frame;
use crate::id::{ContextId, Cpu, StackId, TransitionId};
use crate::kind::StackKind;
use crate::location::Name;
use crate::stack::Stack;
use crate::{Error, Trace};

/// The state between two transitions, seen from one processor.
#[derive(Clone, Copy)]
pub struct Context<'t> {
    trace: &'t Trace,
    id: ContextId,
    cpu: Cpu,
}

impl<'t> Context<'t> {
    /// Of the processor on which the next transition happens.
    pub(crate) fn new(trace: &'t Trace, id: ContextId) -> Self {
        Self { trace, id, cpu: trace.cpu(id) }
    }

    /// Its number.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// The trace it is of.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The processor it is seen from: that of the transition behind it, at the end of the trace that of the last one.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// The same context, seen from another processor.
    pub fn on(&self, cpu: Cpu) -> Self {
        Self { cpu, ..*self }
    }

    /// The time of the transition behind it, in 100 ns since 1601; of the last one at the end of the trace.
    pub fn time(&self) -> Option<u64> {
        let times = self.trace.index.times.as_ref()?;
        let last = self.trace.transition_count().checked_sub(1)?;
        Some(self.trace.index.header.origin + times.get(self.id.0.min(last)))
    }

    /// The active stack of its processor; `None` where it is not known.
    pub fn stack(&self) -> Option<Stack<'t>> {
        Some(Stack::new(self.trace, self.trace.active(self.cpu, self.id.0)?, self.id))
    }

    /// The stacks of a thread as they are here, in user mode and in the kernel.
    pub fn stacks_of(&self, thread: u32) -> impl Iterator<Item = Stack<'t>> + use<'t> {
        let (trace, id) = (self.trace, self.id);
        (0..trace.stack_count())
            .filter(move |number| trace.index.tables.stack_info(*number).thread == Some(thread))
            .map(move |number| Stack::new(trace, StackId(number), id))
    }

    /// The stack of a thread for one kind of work.
    pub fn stack_of(&self, thread: u32, kind: StackKind) -> Option<Stack<'t>> {
        self.stacks_of(thread).find(|stack| stack.info().kind == kind)
    }

    /// The transition that leads to it; `None` at the beginning of the trace.
    pub fn transition_before(&self) -> Option<Transition<'t>> {
        Some(Transition::new(self.trace, TransitionId(self.id.0.checked_sub(1)?)))
    }

    /// The transition that leads on; `None` at the end of the trace.
    pub fn transition_after(&self) -> Option<Transition<'t>> {
        (self.id.0 < self.trace.transition_count())
            .then(|| Transition::new(self.trace, TransitionId(self.id.0)))
    }

    /// The context so many transitions later, or earlier.
    ///
    /// # Errors
    /// It would lie outside the trace.
    pub fn moved(&self, by: i64) -> Result<Self, Error> {
        let last = ContextId(self.trace.transition_count());
        let asked = ContextId(self.id.0.saturating_add_signed(by));
        let outside = if by < 0 { self.id.0 < by.unsigned_abs() } else { asked > last };
        if outside { Err(Error::ContextOutside { asked, last }) } else { self.trace.context(asked) }
    }
}

impl PartialEq for Context<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.id == other.id
    }
}

impl fmt::Display for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}

/// What leads from one context to the next.
#[derive(Clone, Copy)]
pub struct Transition<'t> {
    trace: &'t Trace,
    id: TransitionId,
}

/// What is known of a transition.
#[derive(Clone, Copy, Debug)]
pub enum TransitionKind<'t> {
    /// An event with this name.
    Event(&'t str),
    /// It begins this frame, by a call.
    Call(Frame<'t>),
    /// It begins this frame, by an interrupt.
    Interrupt(Frame<'t>),
    /// It ends this frame, by a return.
    Return(Frame<'t>),
    /// Something else.
    Other,
}

impl<'t> Transition<'t> {
    pub(crate) fn new(trace: &'t Trace, id: TransitionId) -> Self {
        Self { trace, id }
    }

    /// Its number.
    pub fn id(&self) -> TransitionId {
        self.id
    }

    /// The context just before it.
    pub fn context_before(&self) -> Context<'t> {
        Context::new(self.trace, self.id.context_before())
    }

    /// The context just after it, seen from the same processor.
    pub fn context_after(&self) -> Context<'t> {
        Context::new(self.trace, self.id.context_after()).on(self.trace.cpu(self.id.context_before()))
    }

    /// The name of its event, where it is one.
    pub fn label(&self) -> Option<&'t str> {
        let labels = self.trace.index.labels.as_ref()?;
        Some(self.trace.index.tables.label(labels.get(self.id.0)))
    }

    /// What is known of it.
    pub fn kind(&self) -> TransitionKind<'t> {
        use crate::kind::StartType;
        if let Some(label) = self.label() {
            return TransitionKind::Event(label);
        }
        match (self.begins(), self.ends()) {
            (Some(frame), _) if frame.start_type() == StartType::Call => TransitionKind::Call(frame),
            (Some(frame), _) if frame.start_type() == StartType::Interrupt => {
                TransitionKind::Interrupt(frame)
            }
            (_, Some(frame)) => TransitionKind::Return(frame),
            _ => TransitionKind::Other,
        }
    }

    /// The frame it begins, if it does.
    pub fn begins(&self) -> Option<Frame<'t>> {
        let frame = self.context_after().stack()?.frame()?;
        (frame.creation_transition().map(|transition| transition.id()) == Some(self.id)).then_some(frame)
    }

    /// The outermost frame it ends by a return, if it does.
    pub fn ends(&self) -> Option<Frame<'t>> {
        use crate::kind::EndType;
        let mut frame = self.context_before().stack()?.frame()?;
        let ends = |frame: &Frame<'t>| frame.last_context().id() == self.id.context_before();
        if !ends(&frame) || frame.end_type() == EndType::TraceEnd {
            return None;
        }
        while let Some(parent) = frame.parent().filter(ends) {
            frame = parent;
        }
        Some(frame)
    }

    /// The next transition in the same frame or one further out: behind a call, that behind the function's return.
    /// `None` where that lies outside the trace.
    pub fn step_over(&self) -> Option<Self> {
        let next = match self.begins() {
            Some(frame) if frame.has_ended() => frame.last_context().id().0 + 1,
            Some(_) => return None,
            None => self.id.0 + 1,
        };
        self.trace.transition(TransitionId(next)).ok()
    }

    /// The transition before, or, if that was a return, the one that called. `None` outside the trace.
    pub fn step_over_backward(&self) -> Option<Self> {
        let before = self.trace.transition(TransitionId(self.id.0.checked_sub(1)?)).ok()?;
        match before.ends() {
            Some(frame) => frame.creation_transition(),
            None => Some(before),
        }
    }

    /// The first transition behind the return of the function it happens in. `None` outside the trace.
    pub fn step_out(&self) -> Option<Self> {
        let frame = self.context_before().stack()?.frame().filter(Frame::has_ended)?;
        self.trace.transition(TransitionId(frame.last_context().id().0 + 1)).ok()
    }

    /// The transition that called the function it happens in. `None` if that was not seen.
    pub fn step_out_backward(&self) -> Option<Self> {
        self.context_before().stack()?.frame()?.function_start()
    }
}

impl PartialEq for Transition<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.id == other.id
    }
}

/// As in `#199862 call 0xfffff800fe4ac010`.
impl fmt::Display for Transition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            TransitionKind::Event(label) => write!(f, "{} {label}", self.id),
            TransitionKind::Call(frame) => {
                let location = frame.function_location();
                match location.and_then(|location| location.address()) {
                    Some(address) => write!(f, "{} call {address}", self.id),
                    None => write!(f, "{} call {}", self.id, Name(location)),
                }
            }
            TransitionKind::Interrupt(_) => write!(f, "{} interrupt", self.id),
            TransitionKind::Return(_) => write!(f, "{} return", self.id),
            TransitionKind::Other => write!(f, "{}", self.id),
        }
    }
}

impl fmt::Debug for Transition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The contexts from one to another, both included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextRange {
    begin: ContextId,
    last: ContextId,
}

impl ContextRange {
    /// The contexts from `begin` to `last`.
    ///
    /// # Errors
    /// `last` lies before `begin`.
    pub fn new(begin: ContextId, last: ContextId) -> Result<Self, Error> {
        if begin <= last { Ok(Self { begin, last }) } else { Err(Error::EmptyRange { begin, last }) }
    }

    pub(crate) fn of_one(context: ContextId) -> Self {
        Self { begin: context, last: context }
    }

    /// Its first context.
    pub fn begin(&self) -> ContextId {
        self.begin
    }

    /// Its last context.
    pub fn last(&self) -> ContextId {
        self.last
    }

    /// How many contexts it has; at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.last.0 - self.begin.0 + 1
    }

    /// Whether a context is one of them.
    pub fn contains(&self, context: ContextId) -> bool {
        (self.begin..=self.last).contains(&context)
    }
}

/// As in `[Context before #199863, Context before #200320]`.
impl fmt::Display for ContextRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.begin, self.last)
    }
}

/// As in `ContextRange(begin=Context before #199863, last=Context before #200320)`.
impl fmt::Debug for ContextRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextRange(begin={}, last={})", self.begin, self.last)
    }
}
