//! Sums with their distribution over time, from which the noise of a measurement is estimated.
//!
//! The time between the first and the last observation is divided into equal slices. Their number
//! is limited: when there would be more, each two are merged.

use std::hash::Hash;
use std::ops::AddAssign;

use rustc_hash::FxHashMap;
use stackhound_profile::Sums;
use stackhound_trace::TraceTime;

use crate::rows::Amount;

/// Maximum number of slices. A trace that is longer than this many of the shortest slices has more
/// than half of it.
pub const SLICES_MAX: usize = 64;

/// Sums, and the number of observations in each slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sliced {
    /// The sums.
    pub sums: Sums,
    counts: [u32; SLICES_MAX],
}

impl Default for Sliced {
    fn default() -> Sliced {
        Sliced { sums: Sums::default(), counts: [0; SLICES_MAX] }
    }
}

impl AddAssign for Sliced {
    fn add_assign(&mut self, other: Sliced) {
        self.sums += other.sums;
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }
}

impl Amount for Sliced {
    fn amount(self) -> u64 {
        self.sums.amount
    }
}

impl Sliced {
    /// Adds one observation.
    fn add(&mut self, slice: usize, amount: u64) {
        self.sums += Sums::one(amount);
        self.counts[slice] = self.counts[slice].saturating_add(1);
    }

    /// Merges each two slices.
    fn halve(&mut self) {
        for slice in 0..SLICES_MAX {
            let both = self.counts.get(2 * slice).zip(self.counts.get(2 * slice + 1));
            self.counts[slice] = both.map_or(0, |(a, b)| a.saturating_add(*b));
        }
    }

    /// The estimated variance of the number of observations, if the measurement were repeated.
    ///
    /// It is half of the sum of the squared differences between neighbors, where the last slice
    /// is a neighbor of the first. Observations that are independent of each other have a variance
    /// that is equal to their number, which is the smallest result. Observations that come in
    /// bursts have more. A phase of the trace that is longer than a slice counts only where it
    /// begins and ends, unlike in the variance of all slices.
    pub fn variance(&self, axis: &Axis) -> f64 {
        let independent = self.sums.count as f64;
        let used = &self.counts[..axis.slices()];
        // The last slice is shorter than the others. That it has less means nothing.
        let used = match used {
            [whole @ .., before, last] if last <= before => &used[..whole.len() + 1],
            used => used,
        };
        let differs = |(a, b): (&u32, &u32)| (f64::from(*a) - f64::from(*b)).powi(2);
        let neighbors = used.iter().zip(used.iter().cycle().skip(1));
        independent.max(neighbors.map(differs).sum::<f64>() / 2.0)
    }
}

/// The slices of the time between the first and the last observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    times: Option<(TraceTime, TraceTime)>,
    /// Length of a slice in raw ticks.
    length: u64,
}

impl Axis {
    /// The number of slices in use, at most [`SLICES_MAX`].
    pub fn slices(&self) -> usize {
        self.times.map_or(0, |(first, last)| self.slice(first, last) + 1).min(SLICES_MAX)
    }

    fn slice(&self, first: TraceTime, time: TraceTime) -> usize {
        usize::try_from(time.ticks_since(first) / self.length).unwrap_or(usize::MAX)
    }
}

/// Sums by key.
#[derive(Clone, Debug)]
pub struct Slices<K> {
    axis: Axis,
    sums: FxHashMap<K, Sliced>,
}

impl<K: Copy + Eq + Hash> Slices<K> {
    /// `shortest` is the shortest length of a slice, in raw ticks.
    pub fn new(shortest: u64) -> Slices<K> {
        Slices { axis: Axis { times: None, length: shortest.max(1) }, sums: FxHashMap::default() }
    }

    /// Extends the time to this one. Times must not go back.
    #[inline]
    pub fn extend(&mut self, time: TraceTime) {
        let first = self.axis.times.map_or(time, |(first, _)| first);
        let last = self.axis.times.map_or(time, |(_, last)| last.max(time));
        self.axis.times = Some((first, last));
        while self.axis.slice(first, last) >= SLICES_MAX {
            self.axis.length = self.axis.length.saturating_mul(2);
            self.sums.values_mut().for_each(Sliced::halve);
        }
    }

    /// Adds an observation at a time that was included by [`extend`](Slices::extend).
    #[inline]
    pub fn add(&mut self, key: K, time: TraceTime, amount: u64) {
        let Some((first, _)) = self.axis.times else { return };
        let slice = self.axis.slice(first, time).min(SLICES_MAX - 1);
        self.sums.entry(key).or_default().add(slice, amount);
    }

    /// The slices of time.
    pub fn axis(&self) -> &Axis {
        &self.axis
    }

    /// The sums.
    pub fn sums(&self) -> &FxHashMap<K, Sliced> {
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sliced(times: &[i64]) -> Slices<()> {
        let mut slices = Slices::new(1);
        for &time in times {
            slices.extend(TraceTime(time));
            slices.add((), TraceTime(time), 10);
        }
        slices
    }

    fn variance(times: &[i64]) -> f64 {
        let slices = sliced(times);
        slices.sums()[&()].variance(slices.axis())
    }

    #[test]
    fn bursts_have_more_variance_than_single_observations() {
        let every = |step: i64, burst: i64| -> Vec<i64> {
            (0..8191).filter(|time| time % step < burst).chain([8191]).collect()
        };
        // One observation in each slice of 128 ticks, or 100 in every eighth.
        assert_eq!(variance(&every(128, 1)), 65.0);
        assert!((78_000.0..=80_000.0).contains(&variance(&every(1024, 100))));
        // One phase has two edges, however long it is.
        let phase: Vec<i64> = (2048..4096).chain([8191]).collect();
        let phase = [&[0], &phase[..]].concat();
        assert!((16_000.0..17_000.0).contains(&variance(&phase)), "{}", variance(&phase));
        // The last slice is shorter than the others.
        let steady: Vec<i64> = (0..8210).collect();
        assert_eq!(variance(&steady), 8210.0);
        assert_eq!(variance(&[7]), 1.0);
    }

    proptest! {
        /// However often slices were merged, they are those of the final length.
        #[test]
        fn slices_do_not_depend_on_when_they_were_merged(mut times in prop::collection::vec(0_i64..100_000, 1..300)) {
            times.sort_unstable();
            let slices = sliced(&times);
            let length = slices.axis.length as i64;
            let mut expected = [0; SLICES_MAX];
            times.iter().for_each(|time| expected[((time - times[0]) / length) as usize] += 1);
            let sums = slices.sums()[&()];
            prop_assert_eq!(sums.counts, expected);
            prop_assert_eq!(sums.sums.amount, 10 * times.len() as u64);
            prop_assert!(slices.axis.slices() > SLICES_MAX / 2 || length == 1);
        }
    }
}
