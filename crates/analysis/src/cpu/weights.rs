//! The time that each profile sample stands for.
//!
//! A sample stands for the time since the previous sample of its processor, at most two sampling
//! intervals: after a gap, in which the processor slept or samples were lost, a sample does not
//! stand for the whole gap. The first sample of a processor stands for one interval. These are the
//! rules of the Windows Performance Analyzer, with a limit. With [`Weighing::Nominal`], each sample
//! stands for one interval, as in PerfView.

use rustc_hash::FxHashMap;
use stackhound_trace::TraceTime;
use stackhound_types::TICKS_PER_SECOND;

/// The rule for the weight of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Weighing {
    /// The time since the previous sample of the processor, at most two intervals.
    #[default]
    Elapsed,
    /// One interval.
    Nominal,
}

/// A sampling interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Length in raw ticks.
    pub ticks: u64,
    /// Whether no event stated it before the samples, and the usual one is assumed.
    pub is_assumed: bool,
}

/// Maximum number of samples before the first known interval. With more, the interval is assumed.
const PENDING_MAX: usize = 1 << 16;

/// The interval of Windows if nothing else is set, in units of 100 ns.
pub const USUAL_INTERVAL: i64 = TICKS_PER_SECOND / 1000;

/// A processor of a session. Each session samples for itself.
pub type Processor = (u32, Option<u16>);

/// Weighs samples in the order of time. `T` is what the caller needs to know about a sample.
#[derive(Debug)]
pub struct Weights<T> {
    weighing: Weighing,
    /// The interval to assume if no event states one, in raw ticks.
    usual_interval: u64,
    /// In raw ticks. `None` until the first event states it.
    interval: Option<u64>,
    /// The interval that was assumed, in raw ticks.
    assumed: Option<u64>,
    previous: FxHashMap<Processor, TraceTime>,
    /// By session: the earliest time for which a sample stands.
    since: FxHashMap<u32, TraceTime>,
    /// Samples before the first known interval.
    pending: Vec<(Processor, TraceTime, u16, T)>,
}

impl<T> Weights<T> {
    /// Weights by this rule. `usual_interval` is assumed if no event states the interval.
    pub fn new(weighing: Weighing, usual_interval: u64) -> Weights<T> {
        Weights {
            weighing,
            usual_interval,
            interval: None,
            assumed: None,
            previous: FxHashMap::default(),
            since: FxHashMap::default(),
            pending: Vec::new(),
        }
    }

    /// Sets the interval from now on, in raw ticks. `old` is the one until now, if that is known.
    /// `out` receives the samples before it with their weights.
    pub fn set_interval(&mut self, old: Option<u64>, new: u64, out: impl FnMut(T, u64)) {
        if self.interval.is_none() {
            self.settle(old.unwrap_or(new), out);
        }
        self.interval = Some(new);
    }

    /// Adds a record that stands for `count` samples. `out` receives samples with their weights in
    /// raw ticks: this one, or earlier ones, or none yet.
    #[inline]
    pub fn add(
        &mut self,
        processor: Processor,
        time: TraceTime,
        count: u16,
        sample: T,
        mut out: impl FnMut(T, u64),
    ) {
        if let Some(interval) = self.interval {
            let weight = self.weight(processor, time, count, interval);
            return out(sample, weight);
        }
        self.pending.push((processor, time, count, sample));
        if self.pending.len() == PENDING_MAX {
            self.end(out);
        }
    }

    /// Ends the trace. If no event states the interval, the usual one is assumed.
    pub fn end(&mut self, out: impl FnMut(T, u64)) {
        if self.interval.is_none() && !self.pending.is_empty() {
            self.assumed = Some(self.usual_interval);
            self.interval = self.assumed;
            self.settle(self.usual_interval, out);
        }
    }

    /// The last known interval in raw ticks, or an assumed one if samples have it.
    pub fn interval(&self) -> Option<Interval> {
        let ticks = self.assumed.or(self.interval)?;
        Some(Interval { ticks, is_assumed: self.assumed.is_some() })
    }

    /// The time from which the first sample of a session stands.
    pub fn since(&self, session: u32) -> Option<TraceTime> {
        self.since.get(&session).copied()
    }

    fn settle(&mut self, interval: u64, mut out: impl FnMut(T, u64)) {
        for (processor, time, count, sample) in std::mem::take(&mut self.pending) {
            let weight = self.weight(processor, time, count, interval);
            out(sample, weight);
        }
    }

    #[inline]
    fn weight(&mut self, processor: Processor, time: TraceTime, count: u16, interval: u64) -> u64 {
        let nominal = interval.saturating_mul(count.max(1).into());
        let Some(previous) = self.previous.insert(processor, time) else {
            let first = TraceTime(time.0.saturating_sub_unsigned(nominal));
            let since = self.since.entry(processor.0).or_insert(first);
            *since = first.min(*since);
            return nominal;
        };
        match self.weighing {
            Weighing::Nominal => nominal,
            Weighing::Elapsed => time.ticks_since(previous).min(nominal.saturating_mul(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Interval(Option<u64>, u64),
        Sample(u16, i64, u16),
    }
    use Step::{Interval, Sample};

    /// The weights of the samples, by their index.
    fn weights(weighing: Weighing, steps: &[Step]) -> Vec<u64> {
        let mut weights = Weights::new(weighing, 1000);
        let mut found = Vec::new();
        let mut number = 0;
        for step in steps {
            match *step {
                Interval(old, new) => {
                    weights.set_interval(old, new, |index, weight| found.push((index, weight)))
                }
                Sample(processor, time, count) => {
                    let out = |index, weight| found.push((index, weight));
                    weights.add((0, Some(processor)), TraceTime(time), count, number, out);
                    number += 1;
                }
            }
        }
        weights.end(|index, weight| found.push((index, weight)));
        assert!(found.iter().enumerate().all(|(index, (number, _))| index == *number), "{found:?}");
        found.into_iter().map(|(_, weight)| weight).collect()
    }

    #[test]
    fn samples_stand_for_the_time_since_the_previous_one() {
        let rows: &[(&[Step], &[u64], &[u64])] = &[
            // Two processors do not affect each other; the last sample follows a gap.
            (
                &[
                    Interval(None, 10),
                    Sample(0, 100, 1),
                    Sample(1, 105, 1),
                    Sample(0, 111, 1),
                    Sample(0, 700, 1),
                ],
                &[10, 10, 11, 20],
                &[10, 10, 10, 10],
            ),
            // The interval changes, and was another one before the first event that states it.
            (
                &[
                    Sample(0, 100, 1),
                    Sample(0, 190, 1),
                    Interval(Some(80), 10),
                    Sample(0, 200, 1),
                    Sample(0, 300, 1),
                ],
                &[80, 90, 10, 20],
                &[80, 80, 10, 10],
            ),
            (&[Sample(0, 100, 1), Interval(None, 8), Sample(0, 107, 1)], &[8, 7], &[8, 8]),
            // No event states the interval.
            (
                &[Sample(0, 0, 1), Sample(0, 900, 1), Sample(0, 9000, 1)],
                &[1000, 900, 2000],
                &[1000, 1000, 1000],
            ),
            // A record that stands for three samples.
            (&[Interval(None, 10), Sample(0, 100, 3), Sample(0, 131, 3)], &[30, 31], &[30, 30]),
            // Time goes back on a processor.
            (&[Interval(None, 10), Sample(0, 100, 1), Sample(0, 90, 1)], &[10, 0], &[10, 10]),
        ];
        for (index, (steps, elapsed, nominal)) in rows.iter().enumerate() {
            assert_eq!(weights(Weighing::Elapsed, steps), *elapsed, "row {index}");
            assert_eq!(weights(Weighing::Nominal, steps), *nominal, "row {index}");
        }
    }
}
