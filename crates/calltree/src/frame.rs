//! A frame: one execution of a function from its first context to its last, with its caller, the
//! events below it in order, and the ranges in which it was executing.

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

    /// Returns its number.
    pub fn id(&self) -> FrameId {
        FrameId(self.node.number)
    }

    /// Returns its trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Returns its stack at its first context.
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

    /// The evidence for its existence.
    pub fn evidence(&self) -> Evidence {
        self.class().evidence
    }

    /// Whether all of its observations are known to be the same call.
    pub fn continuity(&self) -> Continuity {
        match self.evidence() {
            Evidence::Exact | Evidence::Boundary => Continuity::Observed,
            _ if self.first_context().id() == self.last_context().id() => Continuity::Observed,
            _ => Continuity::Assumed,
        }
    }

    /// The first context at which the frame, or a frame that it called, is executing. For a frame
    /// that was called before anything is known of its stack: the first context at which the stack
    /// is active.
    pub fn first_context(&self) -> Context<'t> {
        Context::new(self.trace, ContextId(self.first()))
    }

    /// The first context at which the frame itself is the top of the active stack. `None` if there
    /// is none. The cost grows with the number of frames that it calls before that.
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

    /// The last context at which it exists: the context before the transition that ends it, or the
    /// last context of the trace.
    pub fn last_context(&self) -> Context<'t> {
        Context::new(self.trace, ContextId(self.last()))
    }

    /// Its contexts from the first to the last, including those at which its stack is not active.
    pub fn range(&self) -> ContextRange {
        let first = self.first_context().id();
        ContextRange::new(first, self.last_context().id()).unwrap_or_else(|_| ContextRange::of_one(first))
    }

    /// When it started, with the certainty.
    pub fn start(&self) -> Bound {
        let first = ContextId(self.first());
        match self.slack().0 {
            Some(0) => Bound::Observed(first),
            Some(earlier) => Bound::Inferred { lo: ContextId(first.0.saturating_sub(earlier)), hi: first },
            None if self.start_type() == StartType::Unknown => Bound::Open,
            None => Bound::Observed(first),
        }
    }

    /// When it ended, with the certainty.
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

    /// The first and the last possible time of its start, in 100 ns since 1601: of the transition
    /// before its first context, and if that is inferred, of the one at which the frame was first
    /// observed. `None` if the start is open, also to one side because no transition precedes context
    /// 0, or if the trace has no times.
    pub fn start_time(&self) -> Option<(u64, u64)> {
        let (lo, latest) = match self.start() {
            Bound::Observed(at) => (at.0, at.0.checked_sub(1)?),
            Bound::Inferred { lo, hi } => (lo.0, hi.0),
            Bound::Open => return None,
        };
        Some((self.time(lo.checked_sub(1)?)?, self.time(latest)?))
    }

    /// The shortest and the longest possible time from its start to the transition after its last
    /// context, in 100 ns. `None` if a bound is open or the trace has no times.
    pub fn duration(&self) -> Option<(u64, u64)> {
        let (start, (lo, hi)) = (self.start_time()?, self.end().contexts()?);
        Some((self.time(lo)?.saturating_sub(start.1), self.time(hi)?.saturating_sub(start.0)))
    }

    fn time(&self, context: u64) -> Option<u64> {
        self.trace.context(ContextId(context)).ok()?.time()
    }

    /// The transition that created it. `None` if it was not observed.
    pub fn creation_transition(&self) -> Option<Transition<'t>> {
        let seen = !matches!(self.start_type(), StartType::Unknown | StartType::Damaged)
            && matches!(self.start(), Bound::Observed(_));
        let id = TransitionId(self.first().checked_sub(1).filter(|_| seen)?);
        Some(Transition::new(self.trace, id))
    }

    /// The transition at which its function starts: the call or the interrupt. `None` if it was not
    /// observed, or if the frame was created while another stack was active.
    pub fn function_start(&self) -> Option<Transition<'t>> {
        match self.start_type() {
            StartType::Call | StartType::Interrupt => self.creation_transition(),
            _ => None,
        }
    }

    /// The start of its function, or the location at which it was first observed; check the symbol
    /// offset. `None` if the location is unknown.
    pub fn function_location(&self) -> Option<Location<'t>> {
        let number = self.trace.index.locations.get(self.node.number).checked_sub(1)?;
        (u64::from(number) < self.trace.index.tables.location_count)
            .then(|| Location::new(self.trace, number))
    }

    /// Whether a pattern matches the name of its function. `false` if the function is unknown.
    pub fn fits(&self, pattern: &Pattern) -> bool {
        self.function_location().is_some_and(|location| pattern.fits(&location))
    }

    /// The name of its function, with the known parts.
    pub fn name(&self) -> Name<'t> {
        Name(self.function_location())
    }

    /// The frame to which it returns, on the same stack.
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

    /// Appends the numbers of its ancestors to `numbers`, nearest first. Costs one lookup in the
    /// index.
    pub fn ancestor_ids(&self, numbers: &mut Vec<FrameId>) {
        if let Some(before) = self.node.position.checked_sub(1) {
            self.trace.index.frames.line(before, |number| numbers.push(FrameId(number)));
        }
    }

    /// The number of its ancestors.
    pub fn depth(&self) -> u64 {
        self.trace.index.frames.depth(self.node.position).saturating_sub(1)
    }

    /// The frames that it called, in order.
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

    /// The frames that it called, the last one first.
    pub fn reversed_children(&self) -> impl Iterator<Item = Self> + use<'t> {
        let frame = *self;
        let mut end = frame.end_position();
        std::iter::from_fn(move || {
            let last = end.checked_sub(1).filter(|last| *last > frame.node.position)?;
            // The frame that ends here is the top frame just before.
            let node = frame.trace.index.frames.top(last.checked_sub(1)?)?;
            end = node.position;
            Some(Self { node, ..frame })
        })
    }

    /// The next frame that its parent called. Without a parent: the next outermost frame of the
    /// stack.
    pub fn next_sibling(&self) -> Option<Self> {
        let position = self.end_position() + 1;
        let end = self.trace.row(self.stack).1;
        let frames = &self.trace.index.frames;
        (position < end && frames.begins(position))
            .then(|| Self { node: Node { number: frames.rank(position), position }, ..*self })
    }

    /// The previous frame that its parent called. Without a parent: the previous outermost frame of
    /// the stack.
    pub fn previous_sibling(&self) -> Option<Self> {
        let row = self.trace.row(self.stack).0;
        let before = self.node.position.checked_sub(1).filter(|before| *before > row.bounds)?;
        let frames = &self.trace.index.frames;
        // The frame that ends just before is the top frame before its end.
        let node = frames.top(before - 1).filter(|_| !frames.begins(before))?;
        Some(Self { node, ..*self })
    }

    /// The number of frames that it called. Iterates over them.
    pub fn child_count(&self) -> Count {
        distinct::count(self.trace, self.children())
    }

    /// The number of frames below it: those that it called, those that they called, and so on.
    /// Iterates over them in sampled traces; takes constant time in others.
    pub fn descendant_count(&self) -> Count {
        let number = self.descendant_number();
        if !self.trace.is_sampled() {
            return Count::Exactly(number);
        }
        let all = self.node.number + 1..=self.node.number + number;
        distinct::count(self.trace, all.filter_map(|number| Self::numbered(self.trace, number)))
    }

    /// The number of frames below it. Their numbers follow its own number.
    pub fn descendant_number(&self) -> u64 {
        (self.end_position() - self.node.position - 1) / 2
    }

    /// The starts and ends of all frames below it, and the switches to other stacks and back, in
    /// order.
    pub fn descendant_events(&self) -> StackEvents<'t> {
        StackEvents::new(*self)
    }

    /// The ranges in which its stack was active.
    pub fn execution_ranges(&self) -> impl Iterator<Item = ContextRange> + use<'t> {
        self.execution_ranges_within(self.range())
    }

    /// The part of [`Frame::execution_ranges`] in a range. Finds the first range without iterating
    /// over earlier ones.
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

    /// [`Frame::execution_ranges`], split at the starts and ends of the frames below it. Each range
    /// has the frame that was executing.
    pub fn execution_ranges_by_call(&self) -> CallRanges<'t> {
        CallRanges::new(*self)
    }

    pub(crate) fn node(&self) -> Node {
        self.node
    }

    /// The position of its end, which is after that of its start.
    pub(crate) fn end_position(&self) -> u64 {
        self.trace.index.frames.end(self.node.position).unwrap_or(self.node.position + 1)
    }

    /// Returns a period of its stack.
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
        let end = self.trace.boundary(&self.trace.row(self.stack).0, self.end_position());
        end.saturating_sub(1)
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

    /// How much earlier it may have started and how much later it may have ended, if stated.
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

/// For example `#199862 - usbhub!UsbhDecHubBusy`. If the start was not observed, the first context
/// of the frame is written, as in `~#199863`, or `???` if the frame existed before anything is
/// known of its stack.
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

/// An event below a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StackEvent<'t> {
    /// A frame starts.
    FrameStart(Frame<'t>),
    /// A frame ends. Its last context is the one before the transition that ends it. A frame that
    /// is open at the end of the trace has no such event.
    FrameEnd(Frame<'t>),
    /// Another stack becomes active. The context before this transition is the last one of the
    /// frame's stack.
    StackLeave(Transition<'t>),
    /// The stack becomes active again. The context after this transition is the first one of the
    /// frame's stack.
    StackEnter(Transition<'t>),
}

/// For example `Start #199886 - ntoskrnl!KeWaitForSingleObject`, `Leave #209497`.
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

/// Iterates over the events below a frame, without its own start and end.
///
/// Frames start and end only while their stack is active. If one was first or last observed while it
/// was not, such as by events in the kernel, this decides the order: the frame starts before its
/// stack is left, and ends after it is entered again. If the stack was already left when the frame
/// of the query was first observed, the events contain that too.
#[derive(Clone, Debug)]
pub struct StackEvents<'t> {
    trace: &'t Trace,
    frame: Frame<'t>,
    row: StackRow,
    order: Order,
    /// The position of the next start or end, and the end of the positions.
    position: u64,
    end: u64,
    /// The number of the next switch of stacks, among the starts and ends of the stack's periods.
    change: u64,
    /// The end of the switches before the frame's end.
    changes_end: u64,
    open: Vec<Node>,
    just_started: bool,
}

/// The order of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// That of their keys.
    Observed,
    /// As [`StackEvents`] describes.
    Possible,
}

/// The order of events: the first context after the event. At the same context, the stack is
/// entered first, then frames start and end, then the stack is left.
type Key = (u64, u8);
const ENTER: u8 = 0;
const FRAME: u8 = 1;
const LEAVE: u8 = 2;

impl<'t> StackEvents<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let mut events = Self { order: Order::Possible, ..Self::observed(frame) };
        if !events.is_active() && events.change > 2 * events.row.periods.0 {
            events.change -= 1;
        }
        events
    }

    fn observed(frame: Frame<'t>) -> Self {
        let trace = frame.trace();
        let row = trace.row(frame.stack_id()).0;
        let own_end = frame.end_position();
        let end = match frame.has_ended() {
            true => own_end,
            // After the bounds of the last context, only open frames follow.
            false => trace
                .position(frame.stack_id(), trace.transition_count())
                .map_or(own_end, |last| own_end.min(last + 1)),
        };
        let mut events = Self {
            trace,
            frame,
            row,
            order: Order::Observed,
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

    /// Skips everything below the frame that has just started: the next event is its end. This has
    /// an effect only directly after a [`StackEvent::FrameStart`]. The cost is independent of the
    /// number of skipped events.
    pub fn skip_children(&mut self) {
        let Some(node) = self.open.last().filter(|_| self.just_started) else { return };
        let Some(end) = self.trace.index.frames.end(node.position) else { return };
        self.position = end;
        let change = self.changes_before((self.trace.boundary(&self.row, end), FRAME));
        let change = change.clamp(self.change, self.changes_end);
        let has_end_event = end < self.end;
        let ends_inactive = has_end_event && change > self.change && is_enter(change);
        self.change = match (self.order, ends_inactive) {
            (Order::Possible, true) if change < self.changes_end => change + 1,
            (Order::Possible, true) => change - 1,
            _ => change,
        };
        self.just_started = false;
    }

    /// Whether the stack is active directly after the previous event.
    pub(crate) fn is_active(&self) -> bool {
        // The next switch leaves the stack, or it is never left again.
        !is_enter(self.change)
    }

    /// Returns the number of switches before a key. Switches 2n and 2n+1 are the start and the end
    /// of the period with the number n among the periods of all stacks.
    fn changes_before(&self, key: Key) -> u64 {
        let (from, to) = self.row.periods;
        partition((from * 2, to * 2), |change| self.change_key(change).is_some_and(|found| found < key))
    }

    fn change_key(&self, change: u64) -> Option<Key> {
        let period = self.frame.own(change / 2)?;
        Some(if is_enter(change) { (period.first, ENTER) } else { (period.last + 1, LEAVE) })
    }

    /// The next switch, if it precedes the next start or end.
    fn next_change(&self) -> Option<Key> {
        let nth = |change: u64| self.change_key(change).filter(|_| change < self.changes_end);
        let change = nth(self.change)?;
        if self.position >= self.end {
            return Some(change);
        }
        let boundary = self.trace.boundary(&self.row, self.position);
        let precedes = match (self.order, change.1) {
            (Order::Observed, _) => change < (boundary, FRAME),
            (Order::Possible, LEAVE) if change < (boundary, FRAME) => match nth(self.change + 1) {
                Some((again, _)) => boundary >= again || !self.trace.index.frames.begins(self.position),
                None => false,
            },
            (Order::Possible, kind) => kind == ENTER,
        };
        precedes.then_some(change)
    }
}

/// Whether a switch enters the stack.
fn is_enter(change: u64) -> bool {
    change.is_multiple_of(2)
}

impl<'t> Iterator for StackEvents<'t> {
    type Item = StackEvent<'t>;

    fn next(&mut self) -> Option<StackEvent<'t>> {
        self.just_started = false;
        if let Some((context, kind)) = self.next_change() {
            self.change += 1;
            let transition = Transition::new(self.trace, TransitionId(context.saturating_sub(1)));
            return Some(if kind == ENTER {
                StackEvent::StackEnter(transition)
            } else {
                StackEvent::StackLeave(transition)
            });
        }
        if self.position >= self.end {
            return None;
        }
        let frames = &self.trace.index.frames;
        let position = self.position;
        self.position += 1;
        if frames.begins(position) {
            let number = match self.open.last() {
                // Between a frame and its first child there is no other event.
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
    /// The depth below the frame of the query, which has the depth 0.
    pub depth: u64,
    /// The contexts.
    pub range: ContextRange,
}

impl<'t> CallRange<'t> {
    /// Returns the frames from the frame of the query to this one.
    pub fn path(&self) -> Vec<Frame<'t>> {
        let mut path: Vec<Frame<'t>> =
            std::iter::once(self.frame).chain(self.frame.ancestors()).take(self.depth as usize + 1).collect();
        path.reverse();
        path
    }
}

/// For example
/// `[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before #199887, Context before #199992]`.
impl fmt::Display for CallRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]{} {}", self.depth, self.frame, self.range)
    }
}

/// Iterates over the ranges of a frame and of the frames below it, in order. No range is empty, and
/// ranges do not overlap. Together they are the execution ranges of the frame.
#[derive(Debug)]
pub struct CallRanges<'t> {
    events: StackEvents<'t>,
    path: Vec<Frame<'t>>,
    /// The first context of the current range of the top of the path. `None` while another stack is
    /// active.
    since: Option<ContextId>,
    done: bool,
}

impl<'t> CallRanges<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let events = StackEvents::observed(frame);
        let since = events.is_active().then(|| frame.first_context().id());
        Self { events, path: vec![frame], since, done: false }
    }

    /// Skips the frames for which `excluded` returns `true`, and everything below them.
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
