//! A trace, the starting point of all queries: its contexts, the transitions between them, and the
//! stacks at a context.

use std::fmt;

use bytes::Bytes;

use crate::change::StackInfo;
use crate::frame::Frame;
use crate::id::{ContextId, Cpu, FrameId, StackId, TransitionId};
use crate::index::{Index, NO_SWITCHES, SAMPLED, StackRow};
use crate::kind::{Bound, Count, StackKind};
use crate::location::Name;
use crate::pattern::Pattern;
use crate::{Error, Location, distinct};

/// The stacks of a process or a system, from the first context to the last.
///
/// A trace consists of the bytes of its index, which may be memory-mapped. Opening it loads and
/// builds nothing.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) index: Index,
}

/// One period in which a stack was the active stack of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) number: u64,
    pub(crate) cpu: Cpu,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) stack: Option<StackId>,
}

impl Trace {
    /// The first bytes of every index.
    pub const MAGIC: &[u8] = crate::index::MAGIC;

    /// Opens a trace from the bytes of an index. Reads all bytes once, to verify the checksums.
    ///
    /// # Errors
    /// The bytes are not an index, the index has another version, or it is damaged.
    pub fn open(bytes: Bytes) -> Result<Self, Error> {
        Ok(Self { index: Index::new(bytes)? })
    }

    /// Returns the bytes of its index, to be written to a file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.index.file
    }

    /// Returns the length and the checksum of its source file, if stated.
    pub fn made_from(&self) -> Option<(u64, u64)> {
        let [length, checksum] = self.index.header.source;
        (length > 0).then_some((length, checksum))
    }

    /// Whether the trace is sampled, so that its counts are lower bounds.
    pub fn is_sampled(&self) -> bool {
        self.index.header.flags & SAMPLED != 0
    }

    /// Whether the switches of threads were observed. Without them, a thread is known to be active only
    /// at its own transitions, and is assumed to stay so until the next one of its processor.
    pub fn has_switches(&self) -> bool {
        self.index.header.flags & NO_SWITCHES == 0
    }

    /// Converts a number of observed items to a count.
    pub fn counted(&self, seen: u64) -> Count {
        if self.is_sampled() { Count::AtLeast(seen) } else { Count::Exactly(seen) }
    }

    /// Returns how many calls the frames represent. They must be in the order of their first
    /// contexts, as [`calls`](Trace::calls) returns them.
    pub fn counted_frames<'t>(&'t self, frames: impl IntoIterator<Item = Frame<'t>>) -> Count {
        distinct::count(self, frames.into_iter())
    }

    /// The number of transitions. The number of contexts is one higher.
    pub fn transition_count(&self) -> u64 {
        self.index.header.transitions
    }

    /// The number of frames.
    pub fn frame_count(&self) -> u64 {
        self.index.frames.nodes()
    }

    /// The number of stacks.
    pub fn stack_count(&self) -> u32 {
        self.index.tables.stack_count
    }

    /// The number of processors, at least one.
    pub fn cpu_count(&self) -> u32 {
        self.index.header.cpus.max(1)
    }

    /// The context before all transitions.
    pub fn first_context(&self) -> Context<'_> {
        Context::new(self, ContextId(0))
    }

    /// The context after all transitions.
    pub fn last_context(&self) -> Context<'_> {
        Context::new(self, ContextId(self.transition_count()))
    }

    /// The context before a transition, or the last one.
    ///
    /// # Errors
    /// The context is outside the trace.
    pub fn context(&self, id: ContextId) -> Result<Context<'_>, Error> {
        let last = ContextId(self.transition_count());
        match id <= last {
            true => Ok(Context::new(self, id)),
            false => Err(Error::ContextOutside { requested: id, last }),
        }
    }

    /// A transition.
    ///
    /// # Errors
    /// The transition is outside the trace.
    pub fn transition(&self, id: TransitionId) -> Result<Transition<'_>, Error> {
        match id.0 < self.transition_count() {
            true => Ok(Transition::new(self, id)),
            false => Err(Error::TransitionOutside { requested: id, count: self.transition_count() }),
        }
    }

    /// The frame with this number.
    ///
    /// # Errors
    /// The number is outside the trace.
    pub fn frame(&self, id: FrameId) -> Result<Frame<'_>, Error> {
        Frame::numbered(self, id.0).ok_or(Error::NoSuchFrame { requested: id.0, count: self.frame_count() })
    }

    /// The frames of all stacks with this first context, outer before inner. Searches every stack.
    ///
    /// # Errors
    /// The context is outside the trace.
    pub fn frames_from(&self, first: ContextId) -> Result<Vec<Frame<'_>>, Error> {
        let mut found = Vec::new();
        for stack in self.stacks(first)? {
            let begins = |frame: &Frame<'_>| frame.first_context().id() == first;
            let top = stack.frame().filter(begins);
            found.extend(std::iter::successors(top, |frame| frame.parent().filter(begins)));
        }
        found.sort_by_key(Frame::id);
        Ok(found)
    }

    /// A stack at a context, whether it is active there or not.
    ///
    /// # Errors
    /// The stack or the context is outside the trace.
    pub fn stack(&self, id: StackId, at: ContextId) -> Result<Stack<'_>, Error> {
        let at = self.context(at)?.id();
        match id.0 < self.stack_count() {
            true => Ok(Stack::new(self, id, at)),
            false => Err(Error::NoSuchStack { requested: id.0, count: self.stack_count() }),
        }
    }

    /// All stacks at a context.
    ///
    /// # Errors
    /// The context is outside the trace.
    pub fn stacks(&self, at: ContextId) -> Result<impl Iterator<Item = Stack<'_>>, Error> {
        let at = self.context(at)?.id();
        Ok((0..self.stack_count()).map(move |number| Stack::new(self, StackId(number), at)))
    }

    /// The first context at or after a time in 100 ns since 1601. `None` if the trace has no times
    /// or ends before.
    pub fn context_at(&self, time: u64) -> Option<Context<'_>> {
        let times = self.index.times.as_ref()?;
        let before = match time.checked_sub(self.index.header.origin).and_then(|time| time.checked_sub(1)) {
            Some(earlier) => times.rank(earlier),
            None => 0,
        };
        (before < self.transition_count()).then(|| Context::new(self, ContextId(before)))
    }

    /// The frames of all functions whose names match a pattern, in the order of their first
    /// contexts; with the same first context, outer frames precede inner ones. Looks up the frames
    /// of these functions only. Needs 16 bytes of memory for each.
    pub fn calls(&self, pattern: &Pattern) -> Vec<Frame<'_>> {
        self.calls_where(|location| pattern.fits(location))
    }

    /// Whether the trace has a module that the pattern matches. A pattern without a module matches
    /// every module.
    pub fn has_module_of(&self, pattern: &Pattern) -> bool {
        let mut modules = self.index.tables.modules();
        pattern.fits_module("", None) || modules.any(|(name, path, _)| pattern.fits_module(name, path))
    }

    /// [`Trace::calls`] for the locations for which `fits` returns `true`.
    pub fn calls_where(&self, fits: impl Fn(&Location<'_>) -> bool) -> Vec<Frame<'_>> {
        let index = &self.index;
        let mut found = Vec::new();
        for number in 0..index.tables.location_count.min(u64::from(u32::MAX)) as u32 {
            if fits(&Location::new(self, number)) {
                let count = index.locations.count(number + 1);
                found.extend(
                    (0..count)
                        .filter_map(|nth| Frame::numbered(self, index.locations.select(number + 1, nth))),
                );
            }
        }
        found.sort_by_cached_key(|frame| (frame.first_context().id(), frame.id()));
        found
    }

    /// The outermost frame that `fits` with the most frames below it; of several, the first one. Costs
    /// one look-up for each outermost frame. `None` if there is none.
    pub fn largest_call(&self, fits: impl Fn(&Frame<'_>) -> bool) -> Option<Frame<'_>> {
        let mut number = 0;
        let outermost = std::iter::from_fn(|| {
            let frame = Frame::numbered(self, number).filter(|_| number < self.frame_count())?;
            number += 1 + frame.descendant_number();
            Some(frame)
        });
        outermost.filter(fits).reduce(|most, frame| {
            if frame.descendant_number() > most.descendant_number() { frame } else { most }
        })
    }

    /// Every known function location with the number of its frames. Costs one look-up for each
    /// location.
    pub fn call_counts(&self) -> impl Iterator<Item = (Location<'_>, u64)> {
        let locations = 0..self.index.tables.location_count.min(u64::from(u32::MAX)) as u32;
        locations.map(|number| (Location::new(self, number), self.index.locations.count(number + 1)))
    }

    /// The processor of a transition, or the only processor if none is stored.
    pub(crate) fn cpu(&self, context: ContextId) -> Cpu {
        let last = self.transition_count().saturating_sub(1);
        self.index.cpus.as_ref().map_or(Cpu(0), |cpus| Cpu(cpus.get(context.0.min(last)) as u16))
    }

    /// The active stack of a processor at a context.
    pub(crate) fn active(&self, cpu: Cpu, at: u64) -> Option<StackId> {
        let base = u64::from(cpu.0) * self.stretch();
        let number = self.index.periods.rank(base + at).checked_sub(1)?;
        // The periods of the previous processors precede.
        if base > 0 && self.index.periods.get(number) < base {
            return None;
        }
        self.period_stack(number)
    }

    fn period_stack(&self, number: u64) -> Option<StackId> {
        let stack = StackId(self.index.period_stacks.get(number).checked_sub(1)? as u32);
        (stack.0 < self.stack_count()).then_some(stack)
    }

    /// The period with this number.
    pub(crate) fn period(&self, number: u64) -> Option<Period> {
        self.period_with(number, |number| self.index.periods.get(number))
    }

    /// The period with this number, given the starts of periods.
    pub(crate) fn period_with(&self, number: u64, mut start: impl FnMut(u64) -> u64) -> Option<Period> {
        let count = self.index.periods.len();
        if number >= count {
            return None;
        }
        let stretch = self.stretch();
        let from = start(number);
        let (cpu, first) = (from / stretch, from % stretch);
        let next = if number + 1 < count { start(number + 1) } else { u64::MAX };
        let last =
            if next / stretch == cpu { (next % stretch).saturating_sub(1) } else { self.transition_count() };
        Some(Period { number, cpu: Cpu(cpu as u16), first, last, stack: self.period_stack(number) })
    }

    /// The nth period of a stack, counted over all stacks.
    pub(crate) fn period_of_stack(&self, nth: u64) -> Option<Period> {
        self.period(self.index.periods_by_stack.get(nth))
    }

    /// The row of a stack, and the end of its bounds.
    pub(crate) fn row(&self, stack: StackId) -> (StackRow, u64) {
        let tables = &self.index.tables;
        let row = tables.stack_row(stack.0);
        let end = match stack.0 + 1 < tables.stack_count {
            true => tables.stack_row(stack.0 + 1).bounds,
            false => self.index.bounds.len(),
        };
        (row, end)
    }

    /// The position of the last frame start or end of a stack at or before a context.
    pub(crate) fn position(&self, stack: StackId, at: u64) -> Option<u64> {
        let (row, end) = self.row(stack);
        let since = at.checked_sub(row.first)?;
        let count = self.index.bounds.rank(row.stretch.checked_add(since)?).min(end);
        count.checked_sub(1).filter(|position| *position >= row.bounds)
    }

    /// The first context at which the start or end at `position` holds.
    pub(crate) fn boundary(&self, row: &StackRow, position: u64) -> u64 {
        let key = self.index.bounds.get(position);
        (row.first + key.saturating_sub(row.stretch)).min(self.transition_count() + 1)
    }

    /// The stack of the bound at `position`.
    pub(crate) fn stack_at(&self, position: u64) -> StackId {
        let (mut low, mut high) = (0, self.stack_count());
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.index.tables.stack_row(middle).bounds <= position { low = middle } else { high = middle }
        }
        StackId(low)
    }

    fn stretch(&self) -> u64 {
        self.transition_count() + 2
    }
}

/// The state between two transitions, viewed from one processor.
#[derive(Clone, Copy)]
pub struct Context<'t> {
    trace: &'t Trace,
    id: ContextId,
    cpu: Cpu,
}

impl<'t> Context<'t> {
    /// Uses the processor of the next transition.
    pub(crate) fn new(trace: &'t Trace, id: ContextId) -> Self {
        Self { trace, id, cpu: trace.cpu(id) }
    }

    /// Returns its number.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// Returns its trace.
    pub fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Its processor: the one of the next transition, or at the end of the trace the one of the
    /// last transition.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// The same context, viewed from another processor.
    pub fn on(&self, cpu: Cpu) -> Self {
        Self { cpu, ..*self }
    }

    /// The time of the next transition, in 100 ns since 1601, or at the end of the trace the time
    /// of the last transition.
    pub fn time(&self) -> Option<u64> {
        let times = self.trace.index.times.as_ref()?;
        let last = self.trace.transition_count().checked_sub(1)?;
        Some(self.trace.index.header.origin + times.get(self.id.0.min(last)))
    }

    /// The active stack of its processor. `None` if it is unknown.
    pub fn stack(&self) -> Option<Stack<'t>> {
        Some(Stack::new(self.trace, self.trace.active(self.cpu, self.id.0)?, self.id))
    }

    /// The stacks of a thread at this context, in user mode and in kernel mode.
    pub fn stacks_of(&self, thread: u32) -> impl Iterator<Item = Stack<'t>> + use<'t> {
        let (trace, id) = (self.trace, self.id);
        (0..trace.stack_count())
            .filter(move |number| trace.index.tables.stack_info(*number).thread == Some(thread))
            .map(move |number| Stack::new(trace, StackId(number), id))
    }

    /// The stack of a thread with this kind.
    pub fn stack_of(&self, thread: u32, kind: StackKind) -> Option<Stack<'t>> {
        self.stacks_of(thread).find(|stack| stack.info().kind == kind)
    }

    /// The transition before it. `None` at the start of the trace.
    pub fn transition_before(&self) -> Option<Transition<'t>> {
        Some(Transition::new(self.trace, TransitionId(self.id.0.checked_sub(1)?)))
    }

    /// The transition after it. `None` at the end of the trace.
    pub fn transition_after(&self) -> Option<Transition<'t>> {
        (self.id.0 < self.trace.transition_count())
            .then(|| Transition::new(self.trace, TransitionId(self.id.0)))
    }

    /// The context `by` transitions later, or earlier if negative.
    ///
    /// # Errors
    /// The context is outside the trace.
    pub fn moved(&self, by: i64) -> Result<Self, Error> {
        let last = ContextId(self.trace.transition_count());
        let requested = ContextId(self.id.0.saturating_add_signed(by));
        let outside = if by < 0 { self.id.0 < by.unsigned_abs() } else { requested > last };
        if outside { Err(Error::ContextOutside { requested, last }) } else { self.trace.context(requested) }
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

/// The step from one context to the next.
#[derive(Clone, Copy)]
pub struct Transition<'t> {
    trace: &'t Trace,
    id: TransitionId,
}

/// The known cause of a transition.
#[derive(Clone, Copy, Debug)]
pub enum TransitionKind<'t> {
    /// An event with this name.
    Event(&'t str),
    /// A call that starts this frame.
    Call(Frame<'t>),
    /// An interrupt that starts this frame.
    Interrupt(Frame<'t>),
    /// A return that ends this frame.
    Return(Frame<'t>),
    /// Another or an unknown cause.
    Other,
}

impl<'t> Transition<'t> {
    pub(crate) fn new(trace: &'t Trace, id: TransitionId) -> Self {
        Self { trace, id }
    }

    /// Returns its number.
    pub fn id(&self) -> TransitionId {
        self.id
    }

    /// The context just before it.
    pub fn context_before(&self) -> Context<'t> {
        Context::new(self.trace, self.id.context_before())
    }

    /// The context just after it, viewed from the same processor.
    pub fn context_after(&self) -> Context<'t> {
        Context::new(self.trace, self.id.context_after()).on(self.trace.cpu(self.id.context_before()))
    }

    /// The name of its event, if it is an event.
    pub fn label(&self) -> Option<&'t str> {
        let labels = self.trace.index.labels.as_ref()?;
        Some(self.trace.index.tables.label(labels.get(self.id.0)))
    }

    /// Its known cause.
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

    /// The frame that it starts, if any.
    pub fn begins(&self) -> Option<Frame<'t>> {
        let frame = self.context_after().stack()?.frame()?;
        (frame.creation_transition().map(|transition| transition.id()) == Some(self.id)).then_some(frame)
    }

    /// The outermost frame that it ends, if any.
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
}

impl PartialEq for Transition<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.id == other.id
    }
}

/// For example `#199862 call 0xfffff800fe4ac010`.
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

/// A range of contexts, including its first and its last context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextRange {
    begin: ContextId,
    last: ContextId,
}

impl ContextRange {
    /// Creates the range from `begin` to `last`.
    ///
    /// # Errors
    /// `last` is before `begin`.
    pub fn new(begin: ContextId, last: ContextId) -> Result<Self, Error> {
        if begin <= last { Ok(Self { begin, last }) } else { Err(Error::EmptyRange { begin, last }) }
    }

    pub(crate) fn of_one(context: ContextId) -> Self {
        Self { begin: context, last: context }
    }

    /// The first context.
    pub fn begin(&self) -> ContextId {
        self.begin
    }

    /// The last context.
    pub fn last(&self) -> ContextId {
        self.last
    }

    /// The number of contexts, at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.last.0 - self.begin.0 + 1
    }

    /// Whether it contains a context.
    pub fn contains(&self, context: ContextId) -> bool {
        (self.begin..=self.last).contains(&context)
    }
}

/// For example `[Context before #199863, Context before #200320]`.
impl fmt::Display for ContextRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.begin, self.last)
    }
}

/// For example `ContextRange(begin=Context before #199863, last=Context before #200320)`.
impl fmt::Debug for ContextRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextRange(begin={}, last={})", self.begin, self.last)
    }
}

/// A stack at one context, with its known frames.
#[derive(Clone, Copy)]
pub struct Stack<'t> {
    trace: &'t Trace,
    id: StackId,
    at: ContextId,
}

/// The direction in which previous and next stacks are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Axis {
    /// The previous or next stack of the same processor.
    #[default]
    Cpu,
    /// The other stacks of the same thread: from the kernel stack to the user stack that called it.
    Thread,
}

impl<'t> Stack<'t> {
    pub(crate) fn new(trace: &'t Trace, id: StackId, at: ContextId) -> Self {
        Self { trace, id, at }
    }

    /// Returns its number.
    pub fn id(&self) -> StackId {
        self.id
    }

    /// The context of the query.
    pub fn context(&self) -> Context<'t> {
        Context::new(self.trace, self.at)
    }

    /// Its kind, name, process, thread and memory.
    pub fn info(&self) -> StackInfo {
        self.trace.index.tables.stack_info(self.id.0)
    }

    /// Whether it is the active stack of a processor at its context.
    pub fn is_active(&self) -> bool {
        self.period().is_some_and(|period| period.last >= self.at.0)
    }

    /// Its top frame. `None` if no frame is known at its context.
    pub fn frame(&self) -> Option<Frame<'t>> {
        let position = self.trace.position(self.id, self.at.0)?;
        let (row, _) = self.trace.row(self.id);
        let node = self.trace.index.frames.top(position).filter(|node| node.position >= row.bounds)?;
        Some(Frame::at(self.trace, node, self.id))
    }

    /// Its known frames, from the top down.
    pub fn frames(&self) -> impl Iterator<Item = Frame<'t>> + use<'t> {
        let mut numbers = Vec::new();
        self.frame_ids(&mut numbers);
        let trace = self.trace;
        numbers.into_iter().filter_map(move |number| Frame::numbered(trace, number.0))
    }

    /// Appends the numbers of its known frames to `numbers`, from the top down. Costs one lookup in
    /// the index.
    pub fn frame_ids(&self, numbers: &mut Vec<FrameId>) {
        let Some(position) = self.trace.position(self.id, self.at.0) else { return };
        self.trace.index.frames.line(position, |number| numbers.push(FrameId(number)));
    }

    /// The start of its current period of activity, or of the previous one. Inferred if the trace does
    /// not have the switches of its thread. `None` if it was never active up to its context.
    pub fn active_since(&self) -> Option<Bound> {
        let period = self.period()?;
        let index = &self.trace.index;
        let hi = ContextId(period.first);
        let nth = index.inferred_periods.rank(period.number).checked_sub(1);
        let nth = nth.filter(|nth| index.inferred_periods.get(*nth) == period.number);
        Some(match nth {
            Some(nth) => {
                Bound::Inferred { lo: ContextId(hi.0.saturating_sub(index.period_slack.get(nth))), hi }
            }
            None if self.has_bounded_activity() => Bound::Observed(hi),
            None => Bound::Inferred { lo: hi, hi },
        })
    }

    /// Whether the bounds of its activity are events of the trace. Those of a thread without its
    /// switches are not: it can have been switched out and in between any two of its transitions.
    pub fn has_bounded_activity(&self) -> bool {
        self.trace.has_switches() || self.info().kind.is_of_processor()
    }

    /// The stack that was active before the current period of this one, at the end of its own
    /// period. `None` at the start of the trace, or if it is unknown.
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

    /// The stack that becomes active after the current period of this one, at the start of its own
    /// period.
    pub fn next_stack(&self, axis: Axis) -> Option<Self> {
        let period = self.period()?;
        let next = match axis {
            Axis::Cpu => self.trace.period(period.number + 1).filter(|next| next.cpu == period.cpu)?,
            Axis::Thread => {
                let periods = self.others_of_thread().filter_map(|stack| {
                    let nth = self.nth_period(stack, |first| first <= period.first);
                    self.trace.period_of_stack(nth).filter(|found| found.stack == Some(stack))
                });
                periods.min_by_key(|period| period.first)?
            }
        };
        Some(Self::new(self.trace, next.stack?, ContextId(next.first)))
    }

    /// The stack of its thread with this kind, at the same context.
    pub fn of_thread(&self, kind: StackKind) -> Option<Self> {
        let stacks = self.others_of_thread().map(|id| Self::new(self.trace, id, self.at));
        stacks.filter(|stack| stack.info().kind == kind).find(|stack| stack.frame().is_some())
    }

    /// Its last period of activity that started at or before its context.
    pub(crate) fn period(&self) -> Option<Period> {
        let nth = self.nth_period(self.id, |first| first <= self.at.0).checked_sub(1)?;
        self.trace.period_of_stack(nth).filter(|period| period.stack == Some(self.id))
    }

    /// The number, among the periods of all stacks, of the first period of `stack` for whose start
    /// `before` is false.
    fn nth_period(&self, stack: StackId, before: impl Fn(u64) -> bool) -> u64 {
        let (row, _) = self.trace.row(stack);
        partition(row.periods, |nth| {
            self.trace.period_of_stack(nth).is_some_and(|period| before(period.first))
        })
    }

    /// The other stacks of its thread. The idle threads of all processors have the same id.
    pub(crate) fn others_of_thread(&self) -> impl Iterator<Item = StackId> + use<'t> {
        let trace = self.trace;
        let info = self.info();
        let own = self.id;
        (0..trace.stack_count()).map(StackId).filter(move |stack| {
            let other = trace.index.tables.stack_info(stack.0);
            *stack != own
                && info.thread.is_some()
                && other.thread == info.thread
                && other.process == info.process
                && other.cpu == info.cpu
        })
    }
}

/// The first number in a range for which `holds` is false. It must be true for all numbers before.
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

/// For example `user stack of thread 1234`.
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
