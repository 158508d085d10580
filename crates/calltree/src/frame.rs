//! A frame: one execution of one function, from its first context to its last.

use std::fmt;

use crate::class::Class;
use crate::context::{Context, ContextRange, Transition};
use crate::event::StackEvents;
use crate::id::{ContextId, FrameId, StackId, TransitionId};
use crate::kind::{Bound, Continuity, Count, EndType, Evidence, StartType};
use crate::location::{Location, Name};
use crate::pattern::Pattern;
use crate::range::CallRanges;
use crate::stack::Stack;
use crate::succinct::Node;
use crate::trace::Period;
use crate::{Trace, distinct, stack};

/// A frame of a stack.
#[derive(Clone, Copy)]
pub struct Frame<'t> {
    trace: &'t Trace,
    node: Node,
    stack: StackId,
}

impl<'t> Frame<'t> {
    pub(crate) fn at(trace: &'t Trace, node: Node, stack: StackId) -> Self {
        Self { trace, node, stack }
    }

    pub(crate) fn numbered(trace: &'t Trace, number: u64) -> Option<Self> {
        let node = trace.index.frames.node(number)?;
        Some(Self { trace, node, stack: trace.stack_at(node.place) })
    }

    /// Its number.
    pub fn id(&self) -> FrameId {
        FrameId(self.node.number)
    }

    /// The trace it is of.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// The stack it is on, as it is at its first context.
    pub fn stack(&self) -> Stack<'t> {
        Stack::new(self.trace, self.stack, self.first_context().id())
    }

    /// How it started.
    pub fn start_type(&self) -> StartType {
        self.class().start
    }

    /// How it ended.
    pub fn end_type(&self) -> EndType {
        self.class().end
    }

    /// Whether it ended within the trace.
    pub fn has_ended(&self) -> bool {
        self.end_type() != EndType::TraceEnd
    }

    /// What it rests on.
    pub fn evidence(&self) -> Evidence {
        self.class().evidence
    }

    /// Whether it is known to be the same one all the time.
    pub fn continuity(&self) -> Continuity {
        match self.evidence() {
            Evidence::Exact | Evidence::Boundary => Continuity::Observed,
            _ if self.first_context().id() == self.last_context().id() => Continuity::Observed,
            _ => Continuity::Assumed,
        }
    }

    /// The first context at which it, or a frame it called, is executed. For a frame that was called before anything is
    /// known of its stack: the first context at which the stack is active.
    pub fn first_context(&self) -> Context<'t> {
        Context::new(self.trace, ContextId(self.first()))
    }

    /// The first context at which it is itself the top of the active stack, not a frame it called. `None` if it never is.
    /// Takes longer the more frames it calls without doing anything in between.
    pub fn first_executed_context(&self) -> Option<Context<'t>> {
        let end = self.end_place();
        let row = self.trace.row(self.stack).0;
        let (mut from, mut place) = (self.first(), self.node.place + 1);
        loop {
            let to = if place < end { self.trace.boundary(&row, place) } else { self.last() + 1 };
            if let Some(active) = self.active_from(from).filter(|active| *active < to) {
                return Some(Context::new(self.trace, ContextId(active)));
            }
            if place >= end {
                return None;
            }
            place = self.trace.index.frames.end(place)? + 1;
            from = self.trace.boundary(&row, place - 1);
        }
    }

    /// The last context at which it exists: that before the transition that ends it, or the last one of the trace.
    pub fn last_context(&self) -> Context<'t> {
        Context::new(self.trace, ContextId(self.last()))
    }

    /// From its first context to its last, whether its stack is active or not.
    pub fn range(&self) -> ContextRange {
        let first = self.first_context().id();
        ContextRange::new(first, self.last_context().id()).unwrap_or_else(|_| ContextRange::of_one(first))
    }

    /// When it started, and how well that is known.
    pub fn start(&self) -> Bound {
        let first = ContextId(self.first());
        match self.slack().0 {
            Some(0) => Bound::Observed(first),
            Some(earlier) => Bound::Inferred { lo: ContextId(first.0.saturating_sub(earlier)), hi: first },
            None if self.start_type() == StartType::Unknown => Bound::Open,
            None => Bound::Observed(first),
        }
    }

    /// When it ended, and how well that is known.
    pub fn end(&self) -> Bound {
        let last = ContextId(self.last());
        match self.slack().1 {
            Some(0) => Bound::Observed(last),
            Some(later) => {
                let hi = ContextId(last.0.saturating_add(later)).min(self.trace.last_context().id());
                Bound::Inferred { lo: last, hi }
            }
            None if self.has_ended() => Bound::Observed(last),
            None => Bound::Open,
        }
    }

    /// The transition that created it; `None` where that was not seen.
    pub fn creation_transition(&self) -> Option<Transition<'t>> {
        let seen = !matches!(self.start_type(), StartType::Unknown | StartType::Damaged)
            && matches!(self.start(), Bound::Observed(_));
        let id = TransitionId(self.first().checked_sub(1).filter(|_| seen)?);
        Some(Transition::new(self.trace, id))
    }

    /// The transition at which its function starts: the call or the interrupt. `None` where that was not seen, or where
    /// the frame was set up from another stack.
    pub fn function_start(&self) -> Option<Transition<'t>> {
        match self.start_type() {
            StartType::Call | StartType::Interrupt => self.creation_transition(),
            _ => None,
        }
    }

    /// Where its function starts, or where it was when it was seen first; test the offset. `None` if nothing is known.
    pub fn function_location(&self) -> Option<Location<'t>> {
        let number = self.trace.index.locations.get(self.node.number).checked_sub(1)?;
        (u64::from(number) < self.trace.index.tables.location_count)
            .then(|| Location::new(self.trace, number))
    }

    /// Whether the name of its function fits a pattern; not where nothing is known of it.
    pub fn fits(&self, pattern: &Pattern) -> bool {
        self.function_location().is_some_and(|location| pattern.fits(&location))
    }

    /// What its function is called, as far as it is known.
    pub fn name(&self) -> Name<'t> {
        Name(self.function_location())
    }

    /// The frame that it returns to, on the same stack.
    pub fn parent(&self) -> Option<Self> {
        let row = self.trace.row(self.stack).0;
        let before = self.node.place.checked_sub(1).filter(|before| *before >= row.bounds)?;
        let node = self.trace.index.frames.top(before)?;
        Some(Self { node, ..*self })
    }

    /// Its parent, the parent's parent, and so on.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<'t> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// The numbers of its ancestors, the nearest first, appended to `numbers`: at the price of one look into the index.
    pub fn ancestor_ids(&self, numbers: &mut Vec<FrameId>) {
        if let Some(before) = self.node.place.checked_sub(1) {
            self.trace.index.frames.line(before, |number| numbers.push(FrameId(number)));
        }
    }

    /// How many ancestors it has.
    pub fn depth(&self) -> u64 {
        self.trace.index.frames.depth(self.node.place).saturating_sub(1)
    }

    /// The frames it called, in order.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'t> {
        let frame = *self;
        let end = frame.end_place();
        let mut place = frame.node.place + 1;
        std::iter::from_fn(move || {
            let frames = &frame.trace.index.frames;
            if place >= end || !frames.begins(place) {
                return None;
            }
            let node = Node { number: frames.rank(place), place };
            place = frames.end(place)? + 1;
            Some(Self { node, ..frame })
        })
    }

    /// The frames it called, the last one first.
    pub fn reversed_children(&self) -> impl Iterator<Item = Self> + use<'t> {
        let frame = *self;
        let mut behind = frame.end_place();
        std::iter::from_fn(move || {
            let last = behind.checked_sub(1).filter(|last| *last > frame.node.place)?;
            // The frame that ends here is the top one just before.
            let node = frame.trace.index.frames.top(last.checked_sub(1)?)?;
            behind = node.place;
            Some(Self { node, ..frame })
        })
    }

    /// The next frame that its parent called; for one without a parent, the next one of the stack.
    pub fn next_sibling(&self) -> Option<Self> {
        let place = self.end_place() + 1;
        let end = self.trace.row(self.stack).1;
        let frames = &self.trace.index.frames;
        (place < end && frames.begins(place))
            .then(|| Self { node: Node { number: frames.rank(place), place }, ..*self })
    }

    /// The frame that its parent called before; for one without a parent, the one of the stack before.
    pub fn previous_sibling(&self) -> Option<Self> {
        let row = self.trace.row(self.stack).0;
        let before = self.node.place.checked_sub(1).filter(|before| *before > row.bounds)?;
        let frames = &self.trace.index.frames;
        // The frame that ends just before is the top one before its end.
        let node = frames.top(before - 1).filter(|_| !frames.begins(before))?;
        Some(Self { node, ..*self })
    }

    /// How many frames it called. Takes as long as going through them.
    pub fn child_count(&self) -> Count {
        distinct::count(self.trace, self.children())
    }

    /// How many frames it called, these called, and so on. Takes as long as going through them where only some of what
    /// happened was seen, no time elsewhere.
    pub fn descendant_count(&self) -> Count {
        let number = self.descendant_number();
        if !self.trace.is_sampled() {
            return Count::Exactly(number);
        }
        let all = self.node.number + 1..=self.node.number + number;
        distinct::count(self.trace, all.filter_map(|number| Self::numbered(self.trace, number)))
    }

    /// How many frames are below it: their numbers follow its own.
    pub fn descendant_number(&self) -> u64 {
        (self.end_place() - self.node.place - 1) / 2
    }

    /// The beginnings and ends of all frames below it, and the changes to other stacks and back, in order.
    pub fn descendant_events(&self) -> StackEvents<'t> {
        StackEvents::new(*self)
    }

    /// Where it was on an active stack: its range without what other stacks did meanwhile.
    pub fn execution_ranges(&self) -> impl Iterator<Item = ContextRange> + use<'t> {
        self.execution_ranges_within(self.range())
    }

    /// As [`Frame::execution_ranges`], as far as they lie in a range. Finds the first one without going through those
    /// before.
    pub fn execution_ranges_within(
        &self,
        range: ContextRange,
    ) -> impl Iterator<Item = ContextRange> + use<'t> {
        let frame = *self;
        let (first, last) = (frame.first().max(range.begin().0), frame.last().min(range.last().0));
        let periods = frame.trace.row(frame.stack).0.periods;
        let from = stack::partition(periods, |nth| frame.own(nth).is_some_and(|period| period.last < first));
        (from..periods.1)
            .map_while(move |nth| frame.own(nth).filter(|period| period.first <= last))
            .filter_map(move |period| {
                let (begin, last) = (period.first.max(first), period.last.min(last));
                ContextRange::new(ContextId(begin), ContextId(last)).ok()
            })
    }

    /// As [`Frame::execution_ranges`], cut where frames below it begin and end, each range with the frame it belongs to.
    pub fn execution_ranges_by_call(&self) -> CallRanges<'t> {
        CallRanges::new(*self)
    }

    pub(crate) fn node(&self) -> Node {
        self.node
    }

    /// The place of its end, behind that of its beginning.
    pub(crate) fn end_place(&self) -> u64 {
        self.trace.index.frames.end(self.node.place).unwrap_or(self.node.place + 1)
    }

    /// A period of its stack.
    pub(crate) fn own(&self, nth: u64) -> Option<Period> {
        self.trace.period_of_stack(nth).filter(|period| period.stack == Some(self.stack))
    }

    pub(crate) fn stack_id(&self) -> StackId {
        self.stack
    }

    fn first(&self) -> u64 {
        let first = self.trace.boundary(&self.trace.row(self.stack).0, self.node.place);
        first.min(self.trace.transition_count())
    }

    fn last(&self) -> u64 {
        let behind = self.trace.boundary(&self.trace.row(self.stack).0, self.end_place());
        behind.saturating_sub(1)
    }

    /// The first context from `from` on at which its stack is active.
    fn active_from(&self, from: u64) -> Option<u64> {
        let periods = self.trace.row(self.stack).0.periods;
        let nth = stack::partition(periods, |nth| self.own(nth).is_some_and(|period| period.last < from));
        let period = self.own(nth).filter(|_| nth < periods.1)?;
        Some(period.first.max(from))
    }

    fn class(&self) -> Class {
        let index = &self.trace.index;
        let nth = index.classed.rank(self.node.number).checked_sub(1);
        match nth.filter(|nth| index.classed.get(*nth) == self.node.number) {
            Some(nth) => Class::of(index.classes.get(nth)),
            None => Class::USUAL,
        }
    }

    /// How much earlier it may have started and how much later it may have ended, where that was stated.
    fn slack(&self) -> (Option<u64>, Option<u64>) {
        let index = &self.trace.index;
        let nth = index.inferred.rank(self.node.number).checked_sub(1);
        match nth.filter(|nth| index.inferred.get(*nth) == self.node.number) {
            Some(nth) => (index.start_slack.get(nth).checked_sub(1), index.end_slack.get(nth).checked_sub(1)),
            None => (None, None),
        }
    }
}

impl PartialEq for Frame<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.node.number == other.node.number
    }
}

impl Eq for Frame<'_> {}

impl std::hash::Hash for Frame<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.node.number.hash(state);
    }
}

/// As in `#199862 - usbhub!UsbhDecHubBusy`. A start that was not seen is written as the first context at which the frame
/// was, as in `~#199863`; `???` where it was there before anything is known of its stack.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.creation_transition(), self.start()) {
            (Some(transition), _) => write!(f, "{} - {}", transition.id(), self.name()),
            (None, Bound::Open) => write!(f, "??? - {}", self.name()),
            (None, _) => write!(f, "~#{} - {}", self.first(), self.name()),
        }
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
