//! Conversion of raw session time to UTC and back.
//!
//! A trace has one clock. The logfile header contains one pair of a raw timestamp and its UTC time;
//! all other times are computed from this pair and the frequency of the clock. See
//! `docs/format/clocks.md`.

use std::num::NonZeroU64;
use std::time::Duration;

use stackhound_types::{FileTime, RawTime, TICKS_PER_SECOND};

/// The unit of a session's raw timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockKind {
    /// Ticks of the performance counter.
    PerformanceCounter,
    /// Units of 100 ns since 1601.
    SystemTime,
    /// Processor cycles.
    CpuCycles,
}

/// Converts a session's raw timestamps to UTC and back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    kind: ClockKind,
    /// Raw ticks per `period` units of 100 ns.
    ticks: NonZeroU64,
    period: NonZeroU64,
    reference: RawTime,
    start: FileTime,
}

impl Clock {
    /// The performance counter with `frequency` ticks per second. `reference` is its value at
    /// `start`.
    pub fn performance_counter(frequency: NonZeroU64, reference: RawTime, start: FileTime) -> Clock {
        let period = const { NonZeroU64::new(TICKS_PER_SECOND as u64).unwrap() };
        Clock { kind: ClockKind::PerformanceCounter, ticks: frequency, period, reference, start }
    }

    /// The system time. Raw timestamps are already UTC.
    pub fn system_time() -> Clock {
        let one = const { NonZeroU64::new(1).unwrap() };
        Clock {
            kind: ClockKind::SystemTime,
            ticks: one,
            period: one,
            reference: RawTime(0),
            start: FileTime(0),
        }
    }

    /// Processor cycles at `mhz` MHz. `reference` is the count at `start`. Drifts if the
    /// processor's frequency changes.
    pub fn cpu_cycles(mhz: NonZeroU64, reference: RawTime, start: FileTime) -> Clock {
        let period = const { NonZeroU64::new(10).unwrap() };
        Clock { kind: ClockKind::CpuCycles, ticks: mhz, period, reference, start }
    }

    /// The kind of clock.
    pub fn kind(&self) -> ClockKind {
        self.kind
    }

    /// Raw ticks per second.
    pub fn ticks_per_second(&self) -> u64 {
        (u128::from(self.ticks.get()) * TICKS_PER_SECOND as u128 / u128::from(self.period.get())) as u64
    }

    /// The UTC time of a raw timestamp, rounded down. Saturates far outside the representable
    /// range.
    pub fn to_file_time(&self, raw: RawTime) -> FileTime {
        let ticks = i128::from(raw.0) - i128::from(self.reference.0);
        let span = (ticks * i128::from(self.period.get())).div_euclid(i128::from(self.ticks.get()));
        FileTime(saturate(i128::from(self.start.0) + span))
    }

    /// The smallest raw timestamp whose UTC time is not before `time`. Saturates as
    /// [`to_file_time`](Clock::to_file_time) does.
    pub fn to_raw(&self, time: FileTime) -> RawTime {
        let span = i128::from(time.0) - i128::from(self.start.0);
        let (ticks, period) = (i128::from(self.ticks.get()), i128::from(self.period.get()));
        // Spans and frequencies come from files. A value that does not fit into 128 bits is far
        // beyond the end of the range anyway.
        let raw = span.saturating_mul(ticks).saturating_add(period - 1).div_euclid(period);
        RawTime(saturate(raw + i128::from(self.reference.0)))
    }

    /// Raw ticks in a span of units of 100 ns, rounded down.
    pub fn span_to_raw(&self, span: i64) -> i64 {
        saturate((i128::from(span) * i128::from(self.ticks.get())).div_euclid(i128::from(self.period.get())))
    }

    /// Raw ticks in a duration, rounded down.
    pub fn duration_to_raw(&self, duration: Duration) -> i64 {
        self.span_to_raw(i64::try_from(duration.as_nanos() / 100).unwrap_or(i64::MAX))
    }

    /// Units of 100 ns in a span of raw ticks, rounded down.
    pub fn span_from_raw(&self, raw: i64) -> i64 {
        saturate((i128::from(raw) * i128::from(self.period.get())).div_euclid(i128::from(self.ticks.get())))
    }

    /// Whether raw timestamps of both clocks can be compared directly: the same counter in the same
    /// boot.
    ///
    /// Sessions of one boot read the same counter, so their reference pairs differ by less than a
    /// second.
    pub fn comparable(&self, other: &Clock) -> bool {
        if self.kind != other.kind || self.ticks != other.ticks || self.period != other.period {
            return false;
        }
        self.kind == ClockKind::SystemTime
            || self.to_file_time(other.reference).0.abs_diff(other.start.0) < TICKS_PER_SECOND as u64
    }
}

fn saturate(value: i128) -> i64 {
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn raw_time_becomes_utc() {
        let start = FileTime(132_404_548_206_236_167);
        let qpc = |frequency| {
            Clock::performance_counter(NonZeroU64::new(frequency).unwrap(), RawTime(1_000), start)
        };
        for (clock, raw, expected) in [
            (qpc(10_000_000), 1_000, start.0),
            (qpc(10_000_000), 999, start.0 - 1),
            (qpc(2_648_433), 1_000 + 2_648_433, start.0 + TICKS_PER_SECOND),
            (qpc(2_648_433), 1_000 - 2_648_433, start.0 - TICKS_PER_SECOND),
            (Clock::cpu_cycles(NonZeroU64::new(3_592).unwrap(), RawTime(0), start), 359_200, start.0 + 1_000),
            (Clock::system_time(), start.0, start.0),
        ] {
            assert_eq!(clock.to_file_time(RawTime(raw)).0, expected, "{clock:?} {raw}");
        }
    }

    #[test]
    fn clocks_of_one_boot_compare() {
        let frequency = NonZeroU64::new(10_000_000).unwrap();
        let first = Clock::performance_counter(frequency, RawTime(0), FileTime(1_000));
        let later = Clock::performance_counter(frequency, RawTime(50_000_000), FileTime(50_001_200));
        let other_boot = Clock::performance_counter(frequency, RawTime(0), FileTime(90_000_000_000));
        assert!(first.comparable(&later));
        assert!(!first.comparable(&other_boot));
        assert!(!first.comparable(&Clock::system_time()));
    }

    #[test]
    fn the_widest_spans_and_frequencies_saturate() {
        let fastest = Clock::performance_counter(NonZeroU64::MAX, RawTime(0), FileTime(i64::MIN));
        for (time, expected) in [
            (i64::MIN, 0),
            (i64::MIN + 1, (u64::MAX / 10_000_000 + 1) as i64),
            (0, i64::MAX),
            (i64::MAX, i64::MAX),
        ] {
            assert_eq!(fastest.to_raw(FileTime(time)).0, expected, "{time}");
        }
        let ends = Clock::performance_counter(NonZeroU64::MAX, RawTime(i64::MAX), FileTime(i64::MAX));
        assert_eq!(ends.to_raw(FileTime(i64::MIN)).0, i64::MIN);
        assert_eq!(ends.to_file_time(RawTime(i64::MIN)).0, i64::MAX - 10_000_000);
        assert_eq!((ends.span_to_raw(i64::MIN), ends.span_from_raw(i64::MIN)), (i64::MIN, -5_000_001));
    }

    proptest! {
        #[test]
        fn to_raw_inverts_to_file_time(
            frequency in 1u64..4_000_000_000, reference in any::<i32>(), raw in -1i64<<50..1i64<<50,
        ) {
            let clock = Clock::performance_counter(
                NonZeroU64::new(frequency).unwrap(), RawTime(reference.into()), FileTime(1 << 56));
            let utc = clock.to_file_time(RawTime(raw));
            let back = clock.to_raw(utc);
            prop_assert!(back.0 <= raw);
            prop_assert!(clock.to_file_time(back) >= utc);
            prop_assert!(back.0 == i64::MIN || clock.to_file_time(RawTime(back.0 - 1)) < utc);
        }
    }
}
