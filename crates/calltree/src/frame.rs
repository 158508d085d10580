//! A frame, one execution of one function from its first context to its last: who called it, what
//! happens below it, in order, and when it was really executed.

use std::fmt;

use crate::class::Class;
use crate::distinct;
use crate::id::{ContextId, FrameId, StackId, TransitionId};
use crate::index::StackRow;
use crate::kind::{Bound, Continuity, Count, EndType, Evidence, StartType};
use crate::location::{Location, Name};
use crate::pattern::Pattern;
use crate::succinct::Node;
use crate::trace::{Context, ContextRange, Period, Stack, Trace, Transition, partition};

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
        Some(Self { trace, node, stack: trace.stack_at(node.position) })
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
        let end = self.end_position();
        let row = self.trace.row(self.stack).0;
        let (mut from, mut position) = (self.first(), self.node.position + 1);
        loop {
            let to = if position < end { self.trace.boundary(&row, position) } else { self.last() + 1 };
            if let Some(active) = self.active_from(from).filter(|active| *active < to) {
                return Some(Context::new(self.trace, ContextId(active)));
            }
            if position >= end {
                return None;
            }
            position = self.trace.index.frames.end(position)? + 1;
            from = self.trace.boundary(&row, position - 1);
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
        let before = self.node.position.checked_sub(1).filter(|before| *before >= row.bounds)?;
        let node = self.trace.index.frames.top(before)?;
        Some(Self { node, ..*self })
    }

    /// Its parent, the parent's parent, and so on.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<'t> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// The numbers of its ancestors, the nearest first, appended to `numbers`: at the price of one look into the index.
    pub fn ancestor_ids(&self, numbers: &mut Vec<FrameId>) {
        if let Some(before) = self.node.position.checked_sub(1) {
            self.trace.index.frames.line(before, |number| numbers.push(FrameId(number)));
        }
    }

    /// How many ancestors it has.
    pub fn depth(&self) -> u64 {
        self.trace.index.frames.depth(self.node.position).saturating_sub(1)
    }

    /// The frames it called, in order.
    pub fn children(&self) -> impl Iterator<Item = Self> + use<'t> {
        let frame = *self;
        let end = frame.end_position();
        let mut position = frame.node.position + 1;
        std::iter::from_fn(move || {
            let frames = &frame.trace.index.frames;
            if position >= end || !frames.begins(position) {
                return None;
            }
            let node = Node { number: frames.rank(position), position };
            position = frames.end(position)? + 1;
            Some(Self { node, ..frame })
        })
    }

    /// The frames it called, the last one first.
    pub fn reversed_children(&self) -> impl Iterator<Item = Self> + use<'t> {
        let frame = *self;
        let mut behind = frame.end_position();
        std::iter::from_fn(move || {
            let last = behind.checked_sub(1).filter(|last| *last > frame.node.position)?;
            // The frame that ends here is the top one just before.
            let node = frame.trace.index.frames.top(last.checked_sub(1)?)?;
            behind = node.position;
            Some(Self { node, ..frame })
        })
    }

    /// The next frame that its parent called; for one without a parent, the next one of the stack.
    pub fn next_sibling(&self) -> Option<Self> {
        let position = self.end_position() + 1;
        let end = self.trace.row(self.stack).1;
        let frames = &self.trace.index.frames;
        (position < end && frames.begins(position))
            .then(|| Self { node: Node { number: frames.rank(position), position }, ..*self })
    }

    /// The frame that its parent called before; for one without a parent, the one of the stack before.
    pub fn previous_sibling(&self) -> Option<Self> {
        let row = self.trace.row(self.stack).0;
        let before = self.node.position.checked_sub(1).filter(|before| *before > row.bounds)?;
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
        (self.end_position() - self.node.position - 1) / 2
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
        let from = partition(periods, |nth| frame.own(nth).is_some_and(|period| period.last < first));
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
    pub(crate) fn end_position(&self) -> u64 {
        self.trace.index.frames.end(self.node.position).unwrap_or(self.node.position + 1)
    }

    /// A period of its stack.
    pub(crate) fn own(&self, nth: u64) -> Option<Period> {
        self.trace.period_of_stack(nth).filter(|period| period.stack == Some(self.stack))
    }

    pub(crate) fn stack_id(&self) -> StackId {
        self.stack
    }

    fn first(&self) -> u64 {
        let first = self.trace.boundary(&self.trace.row(self.stack).0, self.node.position);
        first.min(self.trace.transition_count())
    }

    fn last(&self) -> u64 {
        let behind = self.trace.boundary(&self.trace.row(self.stack).0, self.end_position());
        behind.saturating_sub(1)
    }

    /// The first context from `from` on at which its stack is active.
    fn active_from(&self, from: u64) -> Option<u64> {
        let periods = self.trace.row(self.stack).0.periods;
        let nth = partition(periods, |nth| self.own(nth).is_some_and(|period| period.last < from));
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

/// One thing that happens below a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StackEvent<'t> {
    /// A frame begins.
    FrameStart(Frame<'t>),
    /// A frame ends. Its last context is that before the transition that ends it. A frame that is open at the end of the
    /// trace has no such event.
    FrameEnd(Frame<'t>),
    /// Another stack becomes the active one. The frame still has the context before this transition.
    StackLeave(Transition<'t>),
    /// The stack becomes active again. The frame has the context behind this transition.
    StackEnter(Transition<'t>),
}

/// As in `Start #199886 - ntoskrnl!KeWaitForSingleObject`, `Leave #209497`.
impl fmt::Display for StackEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameStart(frame) => write!(f, "Start {frame}"),
            Self::FrameEnd(frame) => write!(f, "End {frame}"),
            Self::StackLeave(transition) => write!(f, "Leave {}", transition.id()),
            Self::StackEnter(transition) => write!(f, "Enter {}", transition.id()),
        }
    }
}

/// The events below a frame. Its own beginning and end are not among them.
#[derive(Clone, Debug)]
pub struct StackEvents<'t> {
    trace: &'t Trace,
    frame: Frame<'t>,
    row: StackRow,
    /// The next beginning or end, and the place behind the last one.
    position: u64,
    end: u64,
    /// The next change of stacks, and its number among the stack's starts and ends of periods.
    change: u64,
    /// The end of those before the frame's end.
    changes_end: u64,
    open: Vec<Node>,
    just_started: bool,
}

/// Where something stands among others: the first context at which it holds; of what holds from the same context on,
/// entering comes before frames and these before leaving.
type Key = (u64, u8);
const ENTER: u8 = 0;
const FRAME: u8 = 1;
const LEAVE: u8 = 2;

impl<'t> StackEvents<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let trace = frame.trace();
        let row = trace.row(frame.stack_id()).0;
        let own_end = frame.end_position();
        let end = match frame.has_ended() {
            true => own_end,
            // Behind what holds at the last context stands only what is left open.
            false => trace
                .position(frame.stack_id(), trace.transition_count())
                .map_or(own_end, |last| own_end.min(last + 1)),
        };
        let mut events = Self {
            trace,
            frame,
            row,
            position: frame.node().position + 1,
            end,
            change: 0,
            changes_end: 0,
            open: Vec::new(),
            just_started: false,
        };
        events.change = events.changes_before((trace.boundary(&row, frame.node().position), FRAME));
        events.changes_end = events.changes_before((trace.boundary(&row, own_end), FRAME)).max(events.change);
        events
    }

    /// Leaves out everything below the frame that has just begun: the next event is its end. Only works right behind a
    /// [`StackEvent::FrameStart`]; otherwise it does nothing. Costs the same however much is left out.
    pub fn skip_children(&mut self) {
        let Some(node) = self.open.last().filter(|_| self.just_started) else { return };
        let Some(end) = self.trace.index.frames.end(node.position) else { return };
        self.position = end;
        let behind = self.changes_before((self.trace.boundary(&self.row, end), FRAME));
        self.change = behind.clamp(self.change, self.changes_end);
        self.just_started = false;
    }

    /// Whether the stack is active just behind what came last.
    pub(crate) fn is_active(&self) -> bool {
        // The next change is to leave it, or it was never left again.
        self.change % 2 == 1
    }

    /// How many changes of stacks stand before a key. Changes 2n and 2n+1 are the start and the end of period n of all
    /// stacks' periods.
    fn changes_before(&self, key: Key) -> u64 {
        let (from, to) = self.row.periods;
        partition((from * 2, to * 2), |change| self.change_key(change).is_some_and(|found| found < key))
    }

    fn change_key(&self, change: u64) -> Option<Key> {
        let period = self.frame.own(change / 2)?;
        Some(if change.is_multiple_of(2) { (period.first, ENTER) } else { (period.last + 1, LEAVE) })
    }
}

impl<'t> Iterator for StackEvents<'t> {
    type Item = StackEvent<'t>;

    fn next(&mut self) -> Option<StackEvent<'t>> {
        self.just_started = false;
        if self.change < self.changes_end {
            let key = (self.trace.boundary(&self.row, self.position), FRAME);
            if let Some((context, kind)) = self.change_key(self.change)
                && (self.position >= self.end || (context, kind) < key)
            {
                self.change += 1;
                let transition = Transition::new(self.trace, TransitionId(context.saturating_sub(1)));
                return Some(if kind == ENTER {
                    StackEvent::StackEnter(transition)
                } else {
                    StackEvent::StackLeave(transition)
                });
            }
        }
        if self.position >= self.end {
            return None;
        }
        let frames = &self.trace.index.frames;
        let position = self.position;
        self.position += 1;
        if frames.begins(position) {
            let number = match self.open.last() {
                // Nothing lies between a frame and its first child.
                Some(parent) if parent.position + 1 == position => parent.number + 1,
                _ => frames.rank(position),
            };
            let node = Node { number, position };
            self.open.push(node);
            self.just_started = true;
            return Some(StackEvent::FrameStart(Frame::at(self.trace, node, self.frame.stack_id())));
        }
        let node = self.open.pop()?;
        Some(StackEvent::FrameEnd(Frame::at(self.trace, node, self.frame.stack_id())))
    }
}

/// A range in which one frame was the top of the active stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallRange<'t> {
    /// The frame.
    pub frame: Frame<'t>,
    /// How far below the frame that was asked it is: 0 for that one itself.
    pub depth: u64,
    /// The contexts.
    pub range: ContextRange,
}

impl<'t> CallRange<'t> {
    /// The frames from the one that was asked to this one.
    pub fn path(&self) -> Vec<Frame<'t>> {
        let mut path: Vec<Frame<'t>> =
            std::iter::once(self.frame).chain(self.frame.ancestors()).take(self.depth as usize + 1).collect();
        path.reverse();
        path
    }
}

/// As in `[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before #199887, Context before #199992]`.
impl fmt::Display for CallRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]{} {}", self.depth, self.frame, self.range)
    }
}

/// The ranges of a frame and the frames below it, in order, none empty and no two with a common context. Together they
/// are the frame's execution ranges.
#[derive(Debug)]
pub struct CallRanges<'t> {
    events: StackEvents<'t>,
    path: Vec<Frame<'t>>,
    /// Since when the top of the path is executed; `None` while another stack is active.
    since: Option<ContextId>,
    done: bool,
}

impl<'t> CallRanges<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let events = frame.descendant_events();
        let since = events.is_active().then(|| frame.first_context().id());
        Self { events, path: vec![frame], since, done: false }
    }

    /// Leaves out the frames for which `excluded` says so, with everything below them.
    pub fn without(self, excluded: impl Fn(&Frame<'t>) -> bool) -> impl Iterator<Item = CallRange<'t>> {
        let mut ranges = self;
        std::iter::from_fn(move || ranges.advance(&excluded))
    }

    fn advance(&mut self, excluded: &impl Fn(&Frame<'t>) -> bool) -> Option<CallRange<'t>> {
        while !self.done {
            let found = match self.events.next() {
                Some(StackEvent::FrameStart(frame)) => {
                    let found = self.until(frame.first_context().id().0.checked_sub(1));
                    if excluded(&frame) {
                        self.events.skip_children();
                        self.since = None;
                    } else {
                        self.since = self.since.map(|since| since.max(frame.first_context().id()));
                    }
                    self.path.push(frame);
                    found
                }
                Some(StackEvent::FrameEnd(frame)) => {
                    let last = frame.last_context().id();
                    let found = self.until(Some(last.0));
                    self.path.pop();
                    self.since = self.events.is_active().then_some(ContextId(last.0 + 1));
                    found
                }
                Some(StackEvent::StackLeave(transition)) => {
                    let found = self.until(Some(transition.id().context_before().0));
                    self.since = None;
                    found
                }
                Some(StackEvent::StackEnter(transition)) => {
                    self.since = Some(transition.id().context_after());
                    None
                }
                None => {
                    self.done = true;
                    self.until(self.path.first().map(|frame| frame.last_context().id().0))
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The range of the top of the path up to a context.
    fn until(&self, last: Option<u64>) -> Option<CallRange<'t>> {
        let range = ContextRange::new(self.since?, ContextId(last?)).ok()?;
        Some(CallRange { frame: *self.path.last()?, depth: self.path.len() as u64 - 1, range })
    }
}

impl<'t> Iterator for CallRanges<'t> {
    type Item = CallRange<'t>;

    fn next(&mut self) -> Option<CallRange<'t>> {
        self.advance(&|_| false)
    }
}
