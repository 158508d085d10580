//! Time without samples in which samples may have been lost.
//!
//! A processor without samples is not evidence of a loss: it can have slept. A gap counts if records
//! of its source may be missing in it. No more samples can have been lost than it has room for.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_trace::{LossMap, TraceTime};

use super::weights::{Interval, Processor};
use crate::loss;

/// The gaps of all processors.
#[derive(Debug)]
pub struct Gaps {
    /// The interval to assume if no event states one, in raw ticks.
    usual_interval: u64,
    /// The last sample of each processor, with its source.
    last: FxHashMap<Processor, (u16, TraceTime)>,
    lost: u64,
}

impl Gaps {
    pub fn new(usual_interval: u64) -> Gaps {
        Gaps { usual_interval, last: FxHashMap::default(), lost: 0 }
    }

    /// Adds the next sample in the analyzed part of the trace, which begins at `start`.
    #[inline]
    pub fn observe(
        &mut self,
        view: &EventView<'_>,
        processor: Processor,
        start: TraceTime,
        interval: Option<Interval>,
    ) {
        let (source, now) = (view.event().source(), view.time());
        let since = self.last.insert(processor, (source, now)).map_or(start, |(_, time)| time);
        let interval = interval.map_or(self.usual_interval, |interval| interval.ticks);
        let elapsed = now.ticks_since(since);
        if elapsed > interval.saturating_add(interval / 2) && loss::is_lost(view, source, since) {
            self.lost = self.lost.saturating_add(elapsed);
        }
    }

    /// Ends the trace. Returns the length of all gaps in raw ticks. A processor of which no sample
    /// was found can have lost all of them.
    pub fn finish(self, losses: &LossMap, window: (TraceTime, TraceTime), processors: u32) -> u64 {
        if losses.is_lossless() {
            return 0;
        }
        let ends = self.last.values().filter(|(source, last)| losses.between(*source, last.0, window.1.0));
        let at_end = ends.map(|(_, last)| window.1.ticks_since(*last)).fold(0, u64::saturating_add);
        let without = u64::from(processors).saturating_sub(self.last.len() as u64);
        let in_these = without.saturating_mul(window.1.ticks_since(window.0));
        self.lost.saturating_add(at_end).saturating_add(in_these)
    }
}
