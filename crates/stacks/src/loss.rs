//! Where buffers were lost, and with them perhaps stacks.

use std::collections::VecDeque;

use hashbrown::HashMap;
use stackhound_trace::{Event, TimeBase, TraceTime};

/// Spans of trace time in which a stack could have been lost.
///
/// Events are asked about in time order, so only the spans from the current one on are kept.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Disjoint and in order; sources are not told apart.
    spans: VecDeque<(i64, i64)>,
    /// Between which times a stream has a hole. Disjoint and in order; streams are not told apart.
    holes: VecDeque<(i64, i64)>,
    /// Whether blocks are the buffers that were in use. In a live session they are what has come at once.
    blocks_are_buffers: bool,
    /// The time of the last event of each stream's latest block; a stream is a processor of a session.
    ends: HashMap<(u32, Option<u16>), i64, foldhash::fast::RandomState>,
}

/// Spans and holes that are kept; where there are more, neighbours become one, with what is between them.
const SPANS_MAX: usize = 1 << 12;

/// Makes room: what ended before `oldest` goes, else the two oldest become one.
fn bound(spans: &mut VecDeque<(i64, i64)>, oldest: i64) {
    if spans.len() <= SPANS_MAX {
        return;
    }
    spans.retain(|&(_, end)| end >= oldest);
    while spans.len() > SPANS_MAX {
        let Some((from, _)) = spans.pop_front() else { return };
        if let Some(next) = spans.front_mut() {
            next.0 = next.0.min(from);
        }
    }
}

/// See [`Losses::note`].
const REACH: i64 = 200;

impl Losses {
    pub fn new(blocks_are_buffers: bool) -> Losses {
        Losses { blocks_are_buffers, ..Losses::default() }
    }

    /// Takes note of the block whose first event this is, and of a buffer that is missing just before it. Nothing
    /// will be asked about times before `oldest`.
    pub fn enter_block(&mut self, event: &Event<'_>, base: &TimeBase, max_hold: i64, oldest: TraceTime) {
        let Some(last) = event.block().entries().last() else { return };
        let stream = (event.session_number(), event.processor());
        let before = self.ends.insert(stream, base.trace_time(last.time).0);
        if event.block().origin().after_loss {
            self.note(event, max_hold);
            // Where a stream begins, the missing buffer is mostly another one's.
            if let Some(before) = before {
                self.note_hole(before, event.time().0);
            }
            bound(&mut self.spans, oldest.0);
            bound(&mut self.holes, oldest.0);
        }
    }

    fn note_hole(&mut self, mut from: i64, until: i64) {
        while let Some(before) = self.holes.pop_back() {
            if before.1 < from {
                self.holes.push_back(before);
                break;
            }
            from = from.min(before.0);
        }
        self.holes.push_back((from, until));
    }

    /// Whether a record between these two times could be missing. Holes that end before `from` are forgotten.
    pub fn between(&mut self, from: i64, until: i64) -> bool {
        while self.holes.front().is_some_and(|&(_, end)| end <= from) {
            self.holes.pop_front();
        }
        from < until && self.holes.front().is_some_and(|&(start, _)| start < until)
    }

    /// Notes that a buffer is missing just before the block whose first event this is.
    ///
    /// A missing buffer was taken into use at about the time of this block's first event and held about as long a time
    /// as this block does, or, where blocks tell nothing, at most until the flush timer ran out: half of the usual window.
    /// Its stack parts belong to events before them: 99 of 100 parts come within 10 ms, which is
    /// the [`REACH`]th part of the usual window.
    fn note(&mut self, event: &Event<'_>, max_hold: i64) {
        let entries = event.block().entries();
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let span = last.time.0.saturating_sub(first.time.0).max(0).saturating_mul(2);
        let from = event.time().0.saturating_sub(max_hold / REACH);
        let until = event.time().0.saturating_add(if self.blocks_are_buffers { span } else { max_hold / 2 });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_limit_to_what_is_remembered_of_losses() {
        let end = 10 * SPANS_MAX as i64;
        let all = || -> VecDeque<(i64, i64)> { (0..end / 10).map(|n| (10 * n, 10 * n + 5)).collect() };
        let mut spans = all();
        bound(&mut spans, 0);
        assert_eq!(spans, all());
        // Nothing is asked any more about most of them.
        spans.push_back((end, end + 5));
        bound(&mut spans, end - 10);
        assert_eq!(spans, [(end - 10, end - 5), (end, end + 5)]);
        // Something may be asked about all of them.
        spans = all();
        spans.push_back((end, end + 5));
        bound(&mut spans, 0);
        assert_eq!((spans.len(), spans[0], spans[1]), (SPANS_MAX, (0, 15), (20, 25)));
    }
}
