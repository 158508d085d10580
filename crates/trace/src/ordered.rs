//! All events of a trace in time order.

use crate::ahead::Ahead;
use crate::event::{Event, TraceTime};
use crate::merge::{BlockExtent, Merge};
use crate::stats::Stats;

/// All events of a trace in time order, one at a time.
///
/// Not an [`Iterator`], because an event borrows from the merge. To keep an event, keep
/// [`Event::block`] and [`Event::index`].
#[derive(Debug)]
pub struct Ordered(Merging);

#[derive(Debug)]
enum Merging {
    /// On the calling thread, with the time of the latest event.
    Here(Box<Merge>, TraceTime),
    /// On another thread.
    Ahead(Box<Ahead>),
}

impl Ordered {
    pub(crate) fn new(merge: Merge, on_own_thread: bool) -> Ordered {
        let merge = Box::new(merge);
        let started = if on_own_thread { Ahead::start(merge) } else { Err(merge) };
        Ordered(match started {
            Ok(ahead) => Merging::Ahead(Box::new(ahead)),
            Err(merge) => Merging::Here(merge, TraceTime(i64::MIN)),
        })
    }

    /// The next event; `None` at the end of the trace.
    #[inline(always)] // A call costs a sixth of the loop over events.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Option<Event<'_>> {
        match &mut self.0 {
            Merging::Here(merge, last) => {
                let (stream, time) = merge.step()?;
                merge.stats_mut().count(last, time);
                Some(merge.event(stream, time))
            }
            Merging::Ahead(ahead) => ahead.next(),
        }
    }

    /// The counters so far; complete after the last event.
    pub fn stats(&self) -> &Stats {
        match &self.0 {
            Merging::Here(merge, _) => merge.stats(),
            Merging::Ahead(ahead) => ahead.stats(),
        }
    }

    /// Ends the merge and returns the counters.
    pub fn into_stats(self) -> Stats {
        self.stats().clone().sorted()
    }

    /// The blocks that were read, if this is a survey.
    pub(crate) fn into_extents(self) -> Vec<BlockExtent> {
        let merge = match self.0 {
            Merging::Here(merge, _) => Some(merge),
            Merging::Ahead(ahead) => ahead.into_merge(),
        };
        merge.map(|merge| merge.into_extents()).unwrap_or_default()
    }
}
