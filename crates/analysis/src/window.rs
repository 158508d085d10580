//! The analyzed part of a trace.

use stackhound_trace::TraceTime;

/// A span of trace time; without a limit at an end that is `None`. An interval counts as far as it
/// overlaps, an event if it is not before the start and before the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Start.
    pub from: Option<TraceTime>,
    /// End.
    pub to: Option<TraceTime>,
}

impl Window {
    /// Whether an event at this time counts.
    #[inline]
    pub fn contains(self, time: TraceTime) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }

    /// The length of the part of an interval that counts, in raw ticks.
    #[inline]
    pub fn overlap(self, from: TraceTime, until: TraceTime) -> u64 {
        let (from, until) = self.within((from, until));
        until.ticks_since(from)
    }

    /// The part of an interval that counts. If it does not overlap, the end is not after the start.
    #[inline]
    pub fn within(self, (from, until): (TraceTime, TraceTime)) -> (TraceTime, TraceTime) {
        (self.from.map_or(from, |start| start.max(from)), self.to.map_or(until, |end| end.min(until)))
    }
}
