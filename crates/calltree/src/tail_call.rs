//! Tail calls: functions that a frame reached by jumps, after the one that it is named after.

use std::fmt;

use crate::frame::Frame;
use crate::id::{ContextId, TransitionId};
use crate::location::{Location, Name};
use crate::pattern::Pattern;
use crate::trace::{Context, Trace, Transition};

/// A jump by which a frame continued in another function, which returns in place of the one before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TailCall<'t> {
    frame: Frame<'t>,
    /// Its number among those of the trace.
    number: u64,
}

impl<'t> TailCall<'t> {
    fn numbered(trace: &'t Trace, number: u64) -> Option<Self> {
        Some(Self { frame: Frame::numbered(trace, trace.index.tail_calls.get(number))?, number })
    }

    /// Returns the frame that continued in the function.
    pub fn frame(&self) -> Frame<'t> {
        self.frame
    }

    /// Returns the jump.
    pub fn transition(&self) -> Transition<'t> {
        Transition::new(self.frame.trace(), TransitionId(self.first().saturating_sub(1)))
    }

    /// Returns the first context in the function.
    pub fn first_context(&self) -> Context<'t> {
        Context::new(self.frame.trace(), ContextId(self.first()))
    }

    /// Returns the last context before the next tail call of the frame, or else of the frame.
    pub fn last_context(&self) -> Context<'t> {
        let trace = self.frame.trace();
        let next = Self::numbered(trace, self.number + 1)
            .filter(|next| self.number + 1 < trace.tail_call_count() && next.frame == self.frame);
        match next {
            Some(next) => Context::new(trace, ContextId(next.first().saturating_sub(1).max(self.first()))),
            None => self.frame.last_context(),
        }
    }

    /// Returns the start of the function. `None` if it is unknown.
    pub fn location(&self) -> Option<Location<'t>> {
        let trace = self.frame.trace();
        let location = trace.index.tail_locations.get(self.number);
        (u64::from(location) < trace.index.tables.location_count).then(|| Location::new(trace, location))
    }

    /// Returns the name of the function, with the known parts.
    pub fn name(&self) -> Name<'t> {
        Name(self.location())
    }

    fn first(&self) -> u64 {
        let trace = self.frame.trace();
        trace.index.tail_contexts.get(self.number).min(trace.transition_count())
    }
}

/// For example `#199890 - vmlinux!ksys_write`: the jump and the function.
impl fmt::Display for TailCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.transition().id(), self.name())
    }
}

impl fmt::Debug for TailCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'t> Frame<'t> {
    /// The functions that it reached by tail calls, in order. Its name is that of the function that was
    /// called.
    pub fn tail_calls(&self) -> impl Iterator<Item = TailCall<'t>> + use<'t> {
        let (trace, number) = (self.trace(), self.id().0);
        let numbers = &trace.index.tail_calls;
        let from = number.checked_sub(1).map_or(0, |before| numbers.rank(before));
        (from..numbers.rank(number)).filter_map(|number| TailCall::numbered(trace, number))
    }
}

impl Trace {
    /// The number of tail calls.
    pub fn tail_call_count(&self) -> u64 {
        self.index.tail_calls.len()
    }

    /// The tail calls of all functions whose names match a pattern, in order. Looks up those of these
    /// functions only.
    pub fn tail_calls(&self, pattern: &Pattern) -> Vec<TailCall<'_>> {
        self.tail_calls_where(|location| pattern.fits(location))
    }

    /// [`Trace::tail_calls`] for the locations for which `fits` returns `true`.
    pub fn tail_calls_where(&self, fits: impl Fn(&Location<'_>) -> bool) -> Vec<TailCall<'_>> {
        let locations = &self.index.tail_locations;
        let mut found = Vec::new();
        for number in 0..self.index.tables.location_count.min(u64::from(u32::MAX)) as u32 {
            let count = locations.count(number);
            if count > 0 && fits(&Location::new(self, number)) {
                let numbers = (0..count).map(|nth| locations.select(number, nth));
                found.extend(numbers.filter_map(|number| TailCall::numbered(self, number)));
            }
        }
        found.sort_by_cached_key(|found| (found.first_context().id(), found.number));
        found
    }
}
