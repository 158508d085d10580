//! Where buffers were lost, and with them perhaps stacks.

use std::collections::VecDeque;

use stackhound_trace::Event;

/// Spans of trace time in which a stack could have been lost.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    spans: VecDeque<(u16, i64, i64)>,
}

/// More spans than this are not told apart: the oldest goes.
const SPANS_MAX: usize = 1 << 12;

impl Losses {
    /// Notes that a buffer is missing just before the block whose first event this is.
    ///
    /// A missing buffer was taken into use at about the time of this block's first event and held about as long a time
    /// as this block does; its stack parts belong to events up to `max_hold` before.
    pub fn note(&mut self, event: &Event<'_>, max_hold: i64) {
        let entries = event.block().entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let span = last.time.0.saturating_sub(first.time.0).max(0);
        let from = event.time().0.saturating_sub(max_hold);
        let until = event.time().0.saturating_add(span.saturating_mul(2));
        if self.spans.len() == SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back((event.source(), from, until));
    }

    /// Whether a part of this event's stack could have been in a lost buffer.
    #[inline]
    pub fn cover(&self, event: &Event<'_>) -> bool {
        !self.spans.is_empty() && {
            let time = event.time().0;
            self.spans
                .iter()
                .any(|&(source, from, until)| source == event.source() && (from..=until).contains(&time))
        }
    }
}
