//! A stack, seen at a context.

use std::fmt;

use crate::Trace;
use crate::change::StackInfo;
use crate::context::Context;
use crate::frame::Frame;
use crate::id::{ContextId, FrameId, StackId};
use crate::kind::{Bound, StackKind};
use crate::trace::Period;

/// A stack as it is at one context: its known frames, from the top down.
#[derive(Clone, Copy)]
pub struct Stack<'t> {
    trace: &'t Trace,
    id: StackId,
    at: ContextId,
}

/// Along what the stack before or behind is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Axis {
    /// What the same processor did before or behind.
    #[default]
    Cpu,
    /// The other stack of the same thread: from the kernel to the user mode that called it.
    Thread,
}

impl<'t> Stack<'t> {
    pub(crate) fn new(trace: &'t Trace, id: StackId, at: ContextId) -> Self {
        Self { trace, id, at }
    }

    /// Its number.
    pub fn id(&self) -> StackId {
        self.id
    }

    /// The context at which it is seen.
    pub fn context(&self) -> Context<'t> {
        Context::new(self.trace, self.at)
    }

    /// What it is for and whose it is.
    pub fn info(&self) -> StackInfo {
        self.trace.index.tables.stack_info(self.id.0)
    }

    /// Whether it is the active stack of some processor at its context.
    pub fn is_active(&self) -> bool {
        self.period().is_some_and(|period| period.last >= self.at.0)
    }

    /// Its top frame; `None` if no frame of it is known here.
    pub fn frame(&self) -> Option<Frame<'t>> {
        let place = self.trace.place(self.id, self.at.0)?;
        let (row, _) = self.trace.row(self.id);
        let node = self.trace.index.frames.top(place).filter(|node| node.place >= row.bounds)?;
        Some(Frame::at(self.trace, node, self.id))
    }

    /// Its known frames, from the top down.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'t>> + use<'t> {
        let mut numbers = Vec::new();
        self.frame_ids(&mut numbers);
        let trace = self.trace;
        numbers.into_iter().filter_map(move |number| Frame::numbered(trace, number.0))
    }

    /// The numbers of its known frames, from the top down, appended to `numbers`: a call stack at the price of one look
    /// into the index.
    pub fn frame_ids(&self, numbers: &mut Vec<FrameId>) {
        let Some(place) = self.trace.place(self.id, self.at.0) else { return };
        self.trace.index.frames.line(place, |number| numbers.push(FrameId(number)));
    }

    /// What came to be known of the start of the period of activity it is seen in, or of the one before; `None` if it
    /// was never active until here.
    pub fn active_since(&self) -> Option<Bound> {
        let period = self.period()?;
        let index = &self.trace.index;
        let hi = ContextId(period.first);
        let Some(nth) = index.inferred_periods.rank(period.number).checked_sub(1) else {
            return Some(Bound::Observed(hi));
        };
        Some(match index.inferred_periods.get(nth) == period.number {
            true => Bound::Inferred { lo: ContextId(hi.0.saturating_sub(index.period_slack.get(nth))), hi },
            false => Bound::Observed(hi),
        })
    }

    /// The stack that was active before this one's period of activity, as it was at the end of its own. `None` at the
    /// beginning of the trace, or where it is not known.
    pub fn prev_stack(&self, axis: Axis) -> Option<Self> {
        let period = self.period()?;
        let before = match axis {
            Axis::Cpu => {
                self.trace.period(period.number.checked_sub(1)?).filter(|before| before.cpu == period.cpu)?
            }
            Axis::Thread => {
                let periods = self.others_of_thread().filter_map(|stack| {
                    let nth = self.nth_period(stack, |first| first < period.first).checked_sub(1)?;
                    self.trace.period_of_stack(nth).filter(|found| found.stack == Some(stack))
                });
                periods.max_by_key(|period| period.first)?
            }
        };
        Some(Self::new(self.trace, before.stack?, ContextId(before.last)))
    }

    /// The stack that becomes active after this one's period of activity, as it is at the beginning of its own.
    pub fn next_stack(&self, axis: Axis) -> Option<Self> {
        let period = self.period()?;
        let behind = match axis {
            Axis::Cpu => self.trace.period(period.number + 1).filter(|behind| behind.cpu == period.cpu)?,
            Axis::Thread => {
                let periods = self.others_of_thread().filter_map(|stack| {
                    let nth = self.nth_period(stack, |first| first <= period.first);
                    self.trace.period_of_stack(nth).filter(|found| found.stack == Some(stack))
                });
                periods.min_by_key(|period| period.first)?
            }
        };
        Some(Self::new(self.trace, behind.stack?, ContextId(behind.first)))
    }

    /// The stack of its thread that is for something else, as it is at the same context.
    pub fn of_thread(&self, kind: StackKind) -> Option<Self> {
        let stacks = self.others_of_thread().map(|id| Self::new(self.trace, id, self.at));
        stacks.filter(|stack| stack.info().kind == kind).find(|stack| stack.frame().is_some())
    }

    /// Its last period of activity that began at or before its context.
    fn period(&self) -> Option<Period> {
        let nth = self.nth_period(self.id, |first| first <= self.at.0).checked_sub(1)?;
        self.trace.period_of_stack(nth).filter(|period| period.stack == Some(self.id))
    }

    /// The number, among all stacks' periods, of the first one of `stack` whose start `before` does not hold for.
    fn nth_period(&self, stack: StackId, before: impl Fn(u64) -> bool) -> u64 {
        let (row, _) = self.trace.row(stack);
        partition(row.periods, |nth| {
            self.trace.period_of_stack(nth).is_some_and(|period| before(period.first))
        })
    }

    fn others_of_thread(&self) -> impl Iterator<Item = StackId> + use<'t> {
        let trace = self.trace;
        let info = self.info();
        let own = self.id;
        (0..trace.stack_count()).map(StackId).filter(move |stack| {
            let other = trace.index.tables.stack_info(stack.0);
            *stack != own
                && info.thread.is_some()
                && other.thread == info.thread
                && other.process == info.process
        })
    }
}

/// The first number in a range for which `holds` does not hold, where it holds for all before.
pub(crate) fn partition((mut low, mut high): (u64, u64), holds: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

impl PartialEq for Stack<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.id == other.id && self.at == other.at
    }
}

/// As in `user stack of thread 1234`.
impl fmt::Display for Stack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        f.write_str(match info.kind {
            StackKind::User => "user stack",
            StackKind::Kernel => "kernel stack",
            StackKind::Interrupt => "interrupt stack",
            StackKind::Deferred => "stack of deferred calls",
            StackKind::Alternate => "alternate stack",
            StackKind::Wow64 => "WOW64 stack",
        })?;
        match (info.thread, info.cpu) {
            (Some(thread), _) => write!(f, " of thread {thread}")?,
            (None, Some(cpu)) => write!(f, " of processor {}", cpu.0)?,
            (None, None) => write!(f, " {}", self.id.0)?,
        }
        match &info.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Stack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} at {}", self.at)
    }
}
