//! A trace: where everything else is asked for.

use bytes::Bytes;

use crate::context::{Context, Transition};
use crate::frame::Frame;
use crate::id::{ContextId, Cpu, FrameId, StackId, TransitionId};
use crate::index::{Index, SAMPLED, StackRow};
use crate::kind::Count;
use crate::pattern::Pattern;
use crate::stack::Stack;
use crate::{Error, Location, distinct};

/// What happened to the stacks of a process or a system, from its first context to its last.
///
/// Reading it takes nothing but the bytes of its index, which may be mapped: nothing is loaded or built.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) index: Index,
}

/// One period in which a stack was the active one of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) number: u64,
    pub(crate) cpu: Cpu,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) stack: Option<StackId>,
}

impl Trace {
    /// What the bytes of an index begin with.
    pub const MAGIC: &[u8] = crate::index::MAGIC;

    /// A trace of the bytes of an index.
    ///
    /// # Errors
    /// The bytes are no index, one of another version, or damaged. All of them are read once, for their checksums.
    pub fn open(bytes: Bytes) -> Result<Self, Error> {
        Ok(Self { index: Index::new(bytes)? })
    }

    /// The bytes of its index, to be written to a file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.index.file
    }

    /// Length and checksum of the file it was made from, where that was stated.
    pub fn made_from(&self) -> Option<(u64, u64)> {
        let [length, checksum] = self.index.header.source;
        (length > 0).then_some((length, checksum))
    }

    /// Whether only some of what happened was seen, so that no count is exact.
    pub fn is_sampled(&self) -> bool {
        self.index.header.flags & SAMPLED != 0
    }

    /// A number of things that were seen in it.
    pub fn counted(&self, seen: u64) -> Count {
        if self.is_sampled() { Count::AtLeast(seen) } else { Count::Exactly(seen) }
    }

    /// How many calls some of its frames are. They come in the order of their first contexts, as
    /// [`calls`](Trace::calls) gives them.
    pub fn counted_frames<'t>(&'t self, frames: impl IntoIterator<Item = Frame<'t>>) -> Count {
        distinct::count(self, frames.into_iter())
    }

    /// How many transitions it has. Its contexts are one more.
    pub fn transition_count(&self) -> u64 {
        self.index.header.transitions
    }

    /// How many frames it has.
    pub fn frame_count(&self) -> u64 {
        self.index.frames.nodes()
    }

    /// How many stacks it has.
    pub fn stack_count(&self) -> u32 {
        self.index.tables.stack_count
    }

    /// How many processors it has; at least one.
    pub fn cpu_count(&self) -> u32 {
        self.index.header.cpus.max(1)
    }

    /// The context before everything.
    pub fn first_context(&self) -> Context<'_> {
        Context::new(self, ContextId(0))
    }

    /// The context behind everything.
    pub fn last_context(&self) -> Context<'_> {
        Context::new(self, ContextId(self.transition_count()))
    }

    /// The context before a transition, or the last one.
    ///
    /// # Errors
    /// There is no such context.
    pub fn context(&self, id: ContextId) -> Result<Context<'_>, Error> {
        let last = ContextId(self.transition_count());
        match id <= last {
            true => Ok(Context::new(self, id)),
            false => Err(Error::ContextOutside { asked: id, last }),
        }
    }

    /// A transition.
    ///
    /// # Errors
    /// There is no such transition.
    pub fn transition(&self, id: TransitionId) -> Result<Transition<'_>, Error> {
        match id.0 < self.transition_count() {
            true => Ok(Transition::new(self, id)),
            false => Err(Error::TransitionOutside { asked: id, count: self.transition_count() }),
        }
    }

    /// The frame with this number.
    ///
    /// # Errors
    /// There is no such frame.
    pub fn frame(&self, id: FrameId) -> Result<Frame<'_>, Error> {
        Frame::numbered(self, id.0).ok_or(Error::NoSuchFrame { asked: id.0, count: self.frame_count() })
    }

    /// The frames whose first context this is, on whatever stack, outer before inner. Looks at each stack.
    ///
    /// # Errors
    /// There is no such context.
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

    /// A stack, as it is at a context, whether it is active there or not.
    ///
    /// # Errors
    /// There is no such stack or context.
    pub fn stack(&self, id: StackId, at: ContextId) -> Result<Stack<'_>, Error> {
        let at = self.context(at)?.id();
        match id.0 < self.stack_count() {
            true => Ok(Stack::new(self, id, at)),
            false => Err(Error::NoSuchStack { asked: id.0, count: self.stack_count() }),
        }
    }

    /// All stacks as they are at a context.
    ///
    /// # Errors
    /// There is no such context.
    pub fn stacks(&self, at: ContextId) -> Result<impl Iterator<Item = Stack<'_>>, Error> {
        let at = self.context(at)?.id();
        Ok((0..self.stack_count()).map(move |number| Stack::new(self, StackId(number), at)))
    }

    /// The first context at or behind a time in 100 ns since 1601; `None` if the trace has no times or ends before.
    pub fn context_at(&self, time: u64) -> Option<Context<'_>> {
        let times = self.index.times.as_ref()?;
        let before = match time.checked_sub(self.index.header.origin).and_then(|time| time.checked_sub(1)) {
            Some(earlier) => times.rank(earlier),
            None => 0,
        };
        (before < self.transition_count()).then(|| Context::new(self, ContextId(before)))
    }

    /// The frames of functions whose names fit a pattern, in order of their first contexts. Of the same first context,
    /// outer frames come first. Finds them by their names alone and looks at no other frames; needs 16 bytes for each.
    pub fn calls(&self, pattern: &Pattern) -> Vec<Frame<'_>> {
        self.calls_where(|location| pattern.fits(location))
    }

    /// Whether some module of the trace is one that the pattern names; a pattern without a module names all.
    pub fn has_module_of(&self, pattern: &Pattern) -> bool {
        pattern.fits_module("") || self.index.tables.module_names().any(|name| pattern.fits_module(name))
    }

    /// As [`Trace::calls`], of the locations for which `fits` says so.
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

    /// The processor of a transition; the only one where it is not stored.
    pub(crate) fn cpu(&self, context: ContextId) -> Cpu {
        let last = self.transition_count().saturating_sub(1);
        self.index.cpus.as_ref().map_or(Cpu(0), |cpus| Cpu(cpus.get(context.0.min(last)) as u16))
    }

    /// The active stack of a processor at a context.
    pub(crate) fn active(&self, cpu: Cpu, at: u64) -> Option<StackId> {
        let base = u64::from(cpu.0) * self.stretch();
        let number = self.index.periods.rank(base + at).checked_sub(1)?;
        // Those of the processors before stand before.
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
        if number >= self.index.periods.len() {
            return None;
        }
        let stretch = self.stretch();
        let start = self.index.periods.get(number);
        let (cpu, first) = (start / stretch, start % stretch);
        let next =
            if number + 1 < self.index.periods.len() { self.index.periods.get(number + 1) } else { u64::MAX };
        let last =
            if next / stretch == cpu { (next % stretch).saturating_sub(1) } else { self.transition_count() };
        Some(Period { number, cpu: Cpu(cpu as u16), first, last, stack: self.period_stack(number) })
    }

    /// The nth period of a stack, counted over all stacks.
    pub(crate) fn period_of_stack(&self, nth: u64) -> Option<Period> {
        self.period(self.index.periods_by_stack.get(nth))
    }

    /// The row of a stack, with the place behind its last bound.
    pub(crate) fn row(&self, stack: StackId) -> (StackRow, u64) {
        let tables = &self.index.tables;
        let row = tables.stack_row(stack.0);
        let end = match stack.0 + 1 < tables.stack_count {
            true => tables.stack_row(stack.0 + 1).bounds,
            false => self.index.bounds.len(),
        };
        (row, end)
    }

    /// The last beginning or end of a stack that holds at a context.
    pub(crate) fn place(&self, stack: StackId, at: u64) -> Option<u64> {
        let (row, end) = self.row(stack);
        let since = at.checked_sub(row.first)?;
        let count = self.index.bounds.rank(row.stretch.checked_add(since)?).min(end);
        count.checked_sub(1).filter(|place| *place >= row.bounds)
    }

    /// The context at which the beginning or end at `place` of `stack` holds first.
    pub(crate) fn boundary(&self, row: &StackRow, place: u64) -> u64 {
        let key = self.index.bounds.get(place);
        (row.first + key.saturating_sub(row.stretch)).min(self.transition_count() + 1)
    }

    /// The stack to which the bound at `place` belongs.
    pub(crate) fn stack_at(&self, place: u64) -> StackId {
        let (mut low, mut high) = (0, self.stack_count());
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.index.tables.stack_row(middle).bounds <= place { low = middle } else { high = middle }
        }
        StackId(low)
    }

    fn stretch(&self) -> u64 {
        self.transition_count() + 2
    }
}
