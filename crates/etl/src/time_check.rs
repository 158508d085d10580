//! Finds the records of a buffer whose times cannot be right.
//!
//! A record states one time and has no checksum. Other evidence contradicts a damaged time: the
//! other records of its buffer, the time at which the buffer was written, the start of the session,
//! and the next buffer of its stream. The rules are described in `docs/format/damage.md`.

use stackhound_types::{FileTime, RawTime, TICKS_PER_SECOND};

use crate::buffer::BufferHeader;
use crate::index::BufferRef;
use crate::logfile::{LogFileMode, LogfileHeader};
use crate::record::{HeaderKind, Record, Records};
use crate::{BUFFER_HEADER_SIZE, BufferType, ClockKind};

/// A clock that can be set, or that differs between processors, contradicts a time only if they
/// differ by more than this.
const DAY: i64 = 24 * 60 * 60 * TICKS_PER_SECOND;

/// The tolerance of a UTC time, since the system time is corrected while the performance counter is
/// not.
const SECOND: i64 = TICKS_PER_SECOND;

/// Writers that share a buffer are assumed to overtake each other by at most this.
const OVERTAKING: i64 = 10 * TICKS_PER_SECOND;

/// The evidence about the times of a buffer's records that is outside of the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBounds {
    /// The start of the session.
    start: i64,
    /// When the buffer was written. No record is later.
    written: Option<i64>,
    /// Whether `written` is of the clock of the records, so that it is as precise as they are.
    is_exact: bool,
    /// The first record of the next buffer. No record is later.
    next: Option<i64>,
    /// By how much a record may be out of order, in raw ticks.
    disorder: i64,
    /// By how much a time must differ from the evidence, in raw ticks.
    tolerance: i64,
    /// The same for `written`.
    written_tolerance: i64,
}

impl TimeBounds {
    /// The evidence about a buffer; `None` if the times of its records are not checked.
    pub fn of(buffer: &BufferRef, header: &BufferHeader, session: &LogfileHeader) -> Option<TimeBounds> {
        if header.buffer_type() != Some(BufferType::Generic) {
            return None;
        }
        let (clock, is_ordered) = (session.clock(), is_ordered(session));
        let is_steady = clock.kind() == ClockKind::PerformanceCounter;
        let tolerance = if is_steady { 0 } else { clock.span_to_raw(DAY) };
        let stamp = Some(header.time_stamp.get()).filter(|&stamp| stamp > 0);
        let is_merged = session.mode.has(LogFileMode::RELOG);
        // Conversion to UTC rounds down.
        let utc = |stamp: i64| clock.to_raw(FileTime(stamp.saturating_add(1))).0.saturating_sub(1);
        // A session in memory writes a file when it is asked to, with events from before that time.
        // If the buffer was written before the start of the session, the start is wrong.
        let is_early = !is_merged && stamp.is_some_and(|stamp| stamp < session.reference.0);
        let has_start = !is_early && !session.mode.has(LogFileMode::BUFFERING);
        Some(TimeBounds {
            start: if has_start { session.reference.0 } else { i64::MIN },
            written: stamp.map(|stamp| if is_merged { utc(stamp) } else { stamp }),
            is_exact: is_steady && !is_merged,
            next: buffer.next_time.map(|time| time.0).filter(|_| is_ordered),
            disorder: if is_ordered { tolerance } else { tolerance.max(clock.span_to_raw(OVERTAKING)) },
            tolerance,
            written_tolerance: if is_merged { tolerance.max(clock.span_to_raw(SECOND)) } else { tolerance },
        })
    }

    /// Whether the times between these two, of records in the order of their times, contradict no
    /// evidence.
    #[inline]
    pub fn admit(&self, first: RawTime, last: RawTime) -> bool {
        first.0 >= self.start
            && self.written.is_none_or(|written| last.0 <= written)
            && self.next.is_none_or(|next| last.0 <= next)
    }

    /// The records whose times cannot be right, by their numbers in ascending order.
    ///
    /// Linear in their number but for a search for each; allocates a few words for each.
    fn misfits(&self, times: &[i64]) -> Vec<usize> {
        let mut is_misfit = vec![false; times.len()];
        self.beyond_bounds(times, &mut is_misfit);
        let rest: Vec<usize> = (0..times.len()).filter(|&number| !is_misfit[number]).collect();
        let out_of_order = match self.disorder {
            0 => out_of_order(times, &rest),
            tolerance => spikes(times, &rest, tolerance),
        };
        // If many records are out of order, nothing shows which of them are right.
        if out_of_order.len() <= 1.max(rest.len() / 4) {
            out_of_order.into_iter().for_each(|number| is_misfit[number] = true);
        }
        (0..times.len()).filter(|&number| is_misfit[number]).collect()
    }

    fn beyond_bounds(&self, times: &[i64], is_misfit: &mut [bool]) {
        let count = times.len();
        let mut mark = |is_beyond: &dyn Fn(i64) -> bool, most: usize| {
            let beyond: Vec<usize> = (0..count).filter(|&number| is_beyond(times[number])).collect();
            // A bound that most records contradict is itself wrong.
            if beyond.len() <= most {
                beyond.into_iter().for_each(|number| is_misfit[number] = true);
            }
        };
        let one_of = |least: usize| usize::from(count >= least);
        let beyond = |bound: i64, tolerance: i64| move |time: i64| time > bound.saturating_add(tolerance);
        if let Some(written) = self.written {
            let most = if self.is_exact { one_of(1).max(count / 2) } else { one_of(2) };
            mark(&beyond(written, self.written_tolerance), most);
        }
        if let Some(next) = self.next {
            mark(&beyond(next, self.tolerance), one_of(if self.tolerance == 0 { 1 } else { 2 }));
        }
        let (start, tolerance) = (self.start, self.tolerance);
        mark(&|time| time < start.saturating_sub(tolerance), one_of(if self.is_exact { 1 } else { 2 }));
    }
}

/// Whether the records of a buffer are in the order of their times: not if several writers share
/// it without an order, as threads of a process or processors do.
fn is_ordered(session: &LogfileHeader) -> bool {
    !session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING) && !session.mode.has(LogFileMode::PRIVATE)
}

/// The fewest records without which the rest is in order. Of two that contradict each other, the
/// later time: what remains is then bounded by its neighbors.
fn out_of_order(times: &[i64], numbers: &[usize]) -> Vec<usize> {
    // The longest sequence in order, by patience sorting: for each length, the number of its last
    // record, with the smallest time possible.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; times.len()];
    for &number in numbers {
        let length = ends.partition_point(|&end| times[end] <= times[number]);
        before[number] = length.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(length) {
            Some(end) => *end = number,
            None => ends.push(number),
        }
    }
    let mut is_kept = vec![false; times.len()];
    let mut kept = ends.last().copied();
    while let Some(number) = kept {
        is_kept[number] = true;
        kept = before[number];
    }
    // Nothing before the first two bounds the earlier one: the later time is kept if it is in order.
    if let [first, second, rest @ ..] = numbers
        && !is_kept[*first]
        && is_kept[*second]
        && rest.first().is_none_or(|third| is_kept[*third] && times[*first] <= times[*third])
    {
        (is_kept[*first], is_kept[*second]) = (true, false);
    }
    numbers.iter().copied().filter(|&number| !is_kept[number]).collect()
}

/// Single records that differ by more than the tolerance from both their neighbors.
fn spikes(times: &[i64], numbers: &[usize], tolerance: i64) -> Vec<usize> {
    let is_spike = |around: &&[usize]| {
        let [before, time, after] = [times[around[0]], times[around[1]], times[around[2]]];
        let (least, most) = (before.min(after), before.max(after));
        time < least.saturating_sub(tolerance) || time > most.saturating_add(tolerance)
    };
    numbers.windows(3).filter(is_spike).map(|around| around[1]).collect()
}

/// A record of a buffer, as far as the check needs it.
#[derive(Clone, Copy, Debug)]
struct Timed {
    offset: usize,
    size: usize,
    time: RawTime,
}

/// Records that are skipped because of their times, and the times between which they were logged.
#[derive(Clone, Debug)]
pub(crate) struct Misfits {
    /// Offsets of the records in the buffer, in ascending order.
    offsets: Vec<usize>,
    /// Size of all of them in bytes.
    pub bytes: usize,
    /// The time of the first of them.
    pub time: RawTime,
    /// The first and the last time of the other records; `None` if there are none.
    pub times: Option<(RawTime, RawTime)>,
    /// Whether records can be missing before the first one that remains: one of the first two
    /// records of the buffer is one of them.
    pub has_first: bool,
    /// Whether records can be missing after the last one that remains: one of the last two records
    /// of the buffer is one of them.
    pub has_last: bool,
    /// The times between which records are missing. If two records contradict each other, the one
    /// that remains may be the wrong one, so that the second record on each side is the bound.
    pub gap: Option<(RawTime, RawTime)>,
    /// Records without a time of their own, which have that of the record before them, and that
    /// time.
    untimed: Vec<(usize, RawTime)>,
}

impl Misfits {
    /// The records of `buffer` whose times contradict the evidence.
    #[cold]
    pub fn of(buffer: &[u8], bounds: &TimeBounds) -> Option<Misfits> {
        let (timed, untimed) = records(buffer);
        let times: Vec<i64> = timed.iter().map(|record| record.time.0).collect();
        Misfits::new(&timed, &untimed, &bounds.misfits(&times))
    }

    /// The first record of `buffer`, if only that one is earlier than the end of the buffer before
    /// it in its stream.
    #[cold]
    pub fn at_start(buffer: &[u8], session: &LogfileHeader, end: RawTime) -> Option<Misfits> {
        if !is_ordered(session) || session.clock().kind() != ClockKind::PerformanceCounter {
            return None;
        }
        let (timed, untimed) = records(buffer);
        let is_only = timed.first()?.time < end && timed.get(1).is_none_or(|second| second.time >= end);
        is_only.then(|| Misfits::new(&timed, &untimed, &[0])).flatten()
    }

    fn new(timed: &[Timed], untimed: &[Timed], numbers: &[usize]) -> Option<Misfits> {
        let (&first, &last) = (numbers.first()?, numbers.last()?);
        let others: Vec<&Timed> = (0..timed.len())
            .filter(|number| numbers.binary_search(number).is_err())
            .map(|number| &timed[number])
            .collect();
        let time_before = |offset: usize| {
            let earlier = others.partition_point(|record| record.offset < offset);
            others.get(earlier.saturating_sub(1)).map(|record| record.time)
        };
        let times = others.iter().map(|record| record.time);
        let times = times.clone().min().zip(times.max());
        let mut skipped: Vec<&Timed> = numbers.iter().map(|&number| &timed[number]).collect();
        if others.is_empty() {
            // No record is left whose time they could have.
            skipped.extend(untimed);
            skipped.sort_by_key(|record| record.offset);
        }
        Some(Misfits {
            offsets: skipped.iter().map(|record| record.offset).collect(),
            bytes: skipped.iter().map(|record| record.size).sum(),
            time: timed[first].time,
            times,
            has_first: first <= 1,
            has_last: last + 2 >= timed.len(),
            gap: times.map(|(earliest, latest)| {
                let after = first.checked_sub(2).map_or(earliest, |before| timed[before].time);
                (after, timed.get(last + 2).map_or(latest, |after| after.time))
            }),
            untimed: untimed
                .iter()
                .filter_map(|record| Some((record.offset, time_before(record.offset)?)))
                .collect(),
        })
    }

    /// The number of records.
    pub fn count(&self) -> usize {
        self.offsets.len()
    }

    /// The offset of the first record in the buffer.
    pub fn first_offset(&self) -> usize {
        self.offsets[0]
    }

    /// The time of the record at an offset: its own, or that of the record before it; `None` if the
    /// record is skipped.
    pub fn time_at(&self, offset: usize, stated: RawTime) -> Option<RawTime> {
        if self.offsets.binary_search(&offset).is_ok() {
            return None;
        }
        let untimed = self.untimed.binary_search_by_key(&offset, |&(at, _)| at);
        Some(untimed.map_or(stated, |index| self.untimed[index].1))
    }
}

/// The records of a buffer that state a time, and the others.
fn records(buffer: &[u8]) -> (Vec<Timed>, Vec<Timed>) {
    let mut records = Records::new(buffer, BUFFER_HEADER_SIZE);
    let (mut timed, mut untimed) = (Vec::new(), Vec::new());
    loop {
        let offset = records.position();
        let Some(record) = records.next() else { return (timed, untimed) };
        let list = if states_time(&record) { &mut timed } else { &mut untimed };
        list.push(Timed { offset, size: record.bytes().len(), time: record.time() });
    }
}

/// Whether a record states its time. Otherwise its time is that of the record before it.
fn states_time(record: &Record<'_>) -> bool {
    match record.kind() {
        HeaderKind::Error => false,
        HeaderKind::Message => record.message_options().time(record.bytes()).is_some(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bounds() -> TimeBounds {
        TimeBounds {
            start: 0,
            written: Some(100),
            is_exact: true,
            next: None,
            disorder: 0,
            tolerance: 0,
            written_tolerance: 0,
        }
    }

    #[test]
    fn a_time_that_contradicts_the_others_is_found() {
        let steady = bounds();
        let merged = TimeBounds { is_exact: false, written_tolerance: 10, ..bounds() };
        let settable = TimeBounds { tolerance: 50, disorder: 50, written_tolerance: 50, ..merged };
        let shared = TimeBounds { disorder: 20, ..bounds() };
        let with_next = |bounds: TimeBounds| TimeBounds { next: Some(60), ..bounds };
        let cases: [(&str, TimeBounds, &[i64], &[usize]); 27] = [
            ("in order", steady, &[1, 5, 5, 9], &[]),
            ("later than those after it", steady, &[1, 70, 5, 9, 80], &[1]),
            ("earlier than those before it", steady, &[20, 25, 3, 30], &[2]),
            ("of two that contradict each other, the later", steady, &[10, 20, 15], &[1]),
            ("of the first two, the earlier", steady, &[20, 3, 25, 30], &[1]),
            ("two of them", steady, &[1, 70, 5, 9, 2, 11, 12, 13], &[1, 4]),
            ("most are out of order", steady, &[9, 8, 7, 6, 5, 4], &[]),
            ("after the buffer was written", steady, &[1, 5, 170], &[2]),
            ("after it, alone", steady, &[170], &[0]),
            ("the time of writing is wrong", steady, &[101, 102, 103], &[]),
            ("before the session", steady, &[-9, 5, 6], &[0]),
            ("before it, alone", steady, &[-9], &[0]),
            ("the start of the session is wrong", steady, &[-9, -8, -7], &[]),
            ("after the first of the next buffer", with_next(steady), &[1, 5, 61], &[2]),
            ("the next buffer's first is wrong", with_next(steady), &[1, 61, 62], &[]),
            ("the first of the next, alone", with_next(steady), &[61], &[0]),
            ("a merged buffer, within the tolerance", merged, &[1, 5, 110], &[]),
            ("a merged buffer, beyond it", merged, &[1, 5, 111], &[2]),
            ("the system time was set back after two records", merged, &[1, 111, 112], &[]),
            ("a merged buffer with one record", merged, &[111], &[]),
            ("the clock was set back", settable, &[40, 41, 3, 4], &[]),
            ("the clock was set back and forth", settable, &[1, 45, 3], &[]),
            ("a spike beyond what is set", settable, &[1, 99, 3], &[1]),
            ("a dip beyond what is set", settable, &[90, 9, 91], &[1]),
            ("writers that share a buffer", shared, &[5, 9, 7, 20, 8], &[]),
            ("one of them is late", shared, &[5, 9, 170, 8], &[2]),
            ("one of them overtakes by too much", shared, &[5, 9, 60, 8], &[2]),
        ];
        for (name, bounds, times, expected) in cases {
            assert_eq!(bounds.misfits(times), expected, "{name}");
        }
    }

    proptest! {
        /// A single time that is moved out of order is found, or one that is as near to the truth.
        #[test]
        fn what_remains_is_in_order(
            mut times in prop::collection::vec(0..100_i64, 2..40),
            (at, moved) in (any::<prop::sample::Index>(), any::<i64>()),
        ) {
            times.sort_unstable();
            let at = at.index(times.len());
            let (before, after) = (times[..at].last().copied(), times.get(at + 1).copied());
            times[at] = moved;
            let bounds = TimeBounds { written: Some(100), ..bounds() };
            let misfits = bounds.misfits(&times);
            prop_assert!(misfits.len() <= 1);
            let rest: Vec<i64> = (0..times.len()).filter(|at| !misfits.contains(at)).map(|at| times[at]).collect();
            prop_assert!(rest.is_sorted());
            // Whatever remains is between its neighbors and the bounds.
            prop_assert!(rest.iter().all(|time| (0..=100).contains(time)));
            let fits = before.is_none_or(|before| before <= moved) && after.is_none_or(|after| moved <= after);
            prop_assert_eq!(misfits.is_empty(), fits && (0..=100).contains(&moved));
        }
    }
}
