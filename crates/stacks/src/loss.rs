//! Where buffers were lost, and with them perhaps stacks.

use std::collections::VecDeque;

use stackhound_trace::Event;

/// Spans of trace time in which a stack could have been lost.
///
/// Events are asked about in time order, so only the spans from the current one on are kept.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Disjoint and in order; sources are not told apart.
    spans: VecDeque<(i64, i64)>,
}

/// See [`Losses::note`].
const REACH: i64 = 200;

impl Losses {
    /// Notes that a buffer is missing just before the block whose first event this is.
    ///
    /// A missing buffer was taken into use at about the time of this block's first event and held about as long a time
    /// as this block does. Its stack parts belong to events before them: 99 of 100 parts come within 10 ms, which is
    /// the [`REACH`]th part of the usual window.
    pub fn note(&mut self, event: &Event<'_>, max_hold: i64) {
        let entries = event.block().entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let span = last.time.0.saturating_sub(first.time.0).max(0);
        let from = event.time().0.saturating_sub(max_hold / REACH);
        let until = event.time().0.saturating_add(span.saturating_mul(2));
        match self.spans.back_mut() {
            Some(before) if from <= before.1 => *before = (before.0.min(from), before.1.max(until)),
            _ => self.spans.push_back((from, until)),
        }
    }

    /// Whether a part of this event's stack could have been in a lost buffer.
    #[inline]
    pub fn cover(&mut self, time: i64) -> bool {
        while self.spans.front().is_some_and(|&(_, until)| until < time) {
            self.spans.pop_front();
        }
        self.spans.front().is_some_and(|&(from, _)| from <= time)
    }
}
