//! Loss intervals: spans of trace time in which records of a source are known to be missing.
//!
//! Sequence numbers count buffers in the order in which the session starts to fill them, over all
//! processors. A missing number does not identify its processor, but the buffers around it are
//! bounds: a buffer is started after each buffer with a smaller number was started, and before the
//! first record of each buffer with a larger number. So only processors whose previous buffer had
//! ended by then can have filled it, between that end and the beginning of their next buffer.
//!
//! The rules are described in `docs/format/damage.md`.

use std::collections::BTreeMap;

use stackhound_etl::{BufferRef, Extent, LogFileMode, LogfileHeader, MissingBuffers};

use crate::event::Event;
use crate::merge::{BlockExtent, TimeBase};
use crate::ordered::Ordered;
use crate::trace_files::OpenTrace;

/// Maximum number of intervals in a set. Beyond that, the two oldest are merged, including the time
/// between them.
const INTERVALS_MAX: usize = 1 << 14;

/// Closed intervals of trace time, disjoint and in order.
#[derive(Clone, Debug, Default)]
struct Intervals(Vec<(i64, i64)>);

impl Intervals {
    fn insert(&mut self, from: i64, until: i64) {
        let until = until.max(from);
        let start = self.0.partition_point(|&(_, end)| end < from);
        let end = start + self.0[start..].partition_point(|&(begin, _)| begin <= until);
        let overlapping = &self.0[start..end];
        let from = overlapping.first().map_or(from, |&(begin, _)| begin.min(from));
        let until = overlapping.last().map_or(until, |&(_, last)| last.max(until));
        self.0.splice(start..end, [(from, until)]);
        if self.0.len() > INTERVALS_MAX {
            let (begin, _) = self.0.remove(0);
            self.0[0].0 = begin;
        }
    }

    /// Whether an interval overlaps this one.
    fn meet(&self, from: i64, until: i64) -> bool {
        self.first_in(from, until).is_some()
    }

    /// The interval that contains a time, or the times between two intervals that do. Inclusive.
    fn around(&self, time: i64) -> (i64, i64) {
        let next = self.0.partition_point(|&(_, end)| end < time);
        let from = next.checked_sub(1).map_or(i64::MIN, |before| self.0[before].1.saturating_add(1));
        match self.0.get(next) {
            Some(&(begin, end)) if begin <= time => (begin, end),
            Some(&(begin, _)) => (from, begin.saturating_sub(1)),
            None => (from, i64::MAX),
        }
    }

    /// Twice the number of intervals that begin at or before a time, less one if the last of them has
    /// not ended by then.
    fn bounds_before(&self, time: i64) -> u32 {
        let ended = self.0.partition_point(|&(_, end)| end < time);
        let is_inside = self.0.get(ended).is_some_and(|&(begin, _)| begin <= time);
        2 * ended as u32 + u32::from(is_inside)
    }

    /// The first interval that overlaps this one.
    fn first_in(&self, from: i64, until: i64) -> Option<(i64, i64)> {
        let first = self.0.partition_point(|&(_, end)| end < from);
        self.0.get(first).copied().filter(|&(begin, _)| begin <= until)
    }

    /// The last interval that overlaps this one.
    fn last_in(&self, from: i64, until: i64) -> Option<(i64, i64)> {
        let next = self.0.partition_point(|&(begin, _)| begin <= until);
        next.checked_sub(1).map(|last| self.0[last]).filter(|&(_, end)| end >= from)
    }

    fn forget_before(&mut self, time: i64) {
        let over = self.0.partition_point(|&(_, end)| end < time);
        self.0.drain(..over);
    }
}

/// The intersection of two intervals that overlap.
fn within(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.max(other.0), one.1.min(other.1))
}

/// The latest buffer of a processor.
#[derive(Clone, Copy, Debug)]
struct Latest {
    /// Epoch and sequence number, where buffers have them.
    number: (u32, i64),
    /// Trace time of the last record.
    last: i64,
    is_cut: bool,
}

#[derive(Clone, Debug, Default)]
struct Processor {
    latest: Option<Latest>,
    lost: Intervals,
}

/// Whether the numbers before the first one of a file of a series are those of an earlier file.
fn is_in_another_file(trace: &OpenTrace, number: usize, missing: &MissingBuffers) -> bool {
    let session = |number: usize| trace.indexes()[number].sessions.first();
    let of_series = |number: usize| session(number).filter(|of| of.mode.has(LogFileMode::NEW_FILE));
    let Some(own) = of_series(number).filter(|_| missing.first == 1) else { return false };
    (0..trace.indexes().len()).any(|other| {
        let is_same = of_series(other).is_some_and(|other| other.session_name == own.session_name);
        let buffers = &trace.indexes()[other].buffers;
        is_same && other != number && buffers.iter().any(|buffer| buffer.sequence == missing.last)
    })
}

/// Missing sequence numbers, with bounds of the time at which the first of these buffers was
/// started.
#[derive(Clone, Copy, Debug)]
struct Gap {
    missing: MissingBuffers,
    /// Not before this time: the end of the buffer whose successor has a smaller number.
    not_before: i64,
    /// Not after this time: the first record of a buffer with a larger number.
    not_after: i64,
}

/// The losses of one source.
#[derive(Clone, Debug, Default)]
struct Source {
    /// In file order.
    buffers: Vec<BufferRef>,
    /// In the order of their numbers.
    gaps: Vec<Gap>,
    /// In ascending order.
    processors: BTreeMap<Option<u16>, Processor>,
    /// The number of processors of the machine.
    processor_count: u32,
    /// All intervals, whatever their processor.
    lost: Intervals,
    /// Whether the session counted losses that no buffer shows. Records can then be missing
    /// anywhere.
    is_unresolved: bool,
    /// The largest sequence number so far, with its epoch.
    reached: (u32, i64),
}

impl Source {
    fn of(trace: &OpenTrace, number: usize) -> Source {
        let index = &trace.indexes()[number];
        let missing =
            index.missing().into_iter().filter(|missing| !is_in_another_file(trace, number, missing));
        let gaps = missing.map(|missing| Gap { missing, not_before: i64::MIN, not_after: i64::MAX });
        let gaps: Vec<Gap> = gaps.collect();
        let is_marked = index.buffers.iter().any(|buffer| buffer.is_marked_lossy);
        let sum = |lost: fn(&LogfileHeader) -> u32| {
            index.sessions.iter().map(|session| u64::from(lost(session))).sum()
        };
        let (events_lost, buffers_lost): (u64, u64) =
            (sum(|session| session.events_lost), sum(|session| session.buffers_lost));
        let is_unresolved = !is_marked && (events_lost > 0 || buffers_lost > index.missing_buffers());
        let mut source = Source {
            buffers: index.buffers.clone(),
            gaps,
            processor_count: index.sessions.iter().map(|session| session.processors).max().unwrap_or(0),
            is_unresolved,
            ..Source::default()
        };
        if is_unresolved {
            source.lost.insert(i64::MIN, i64::MAX);
        }
        source
    }

    /// The buffer at an offset of the file.
    fn buffer_at(&self, offset: u64) -> Option<&BufferRef> {
        let index = self.buffers.binary_search_by_key(&offset, |buffer| buffer.offset).ok()?;
        Some(&self.buffers[index])
    }

    /// The gaps between two sequence numbers.
    fn gaps_between(&self, after: (u32, i64), before: (u32, i64)) -> &[Gap] {
        let start = self.gaps.partition_point(|gap| (gap.missing.epoch, gap.missing.last) < after);
        let end = self.gaps.partition_point(|gap| (gap.missing.epoch, gap.missing.first) < before);
        self.gaps.get(start..end).unwrap_or_default()
    }

    /// The earliest time at which a missing buffer can have begun on a processor whose previous
    /// buffer ended at `last`.
    fn candidate(&self, after: (u32, i64), before: (u32, i64), last: i64) -> Option<i64> {
        let gaps = self.gaps_between(after, before).iter();
        let mut possible = gaps.filter(|gap| last <= gap.not_after);
        possible.next().map(|gap| last.max(gap.not_before))
    }

    /// Enters the buffer at an offset of the file, or one of a live session. Buffers must be
    /// entered in the order of their first records.
    fn enter_at(&mut self, offset: u64, processor: Option<u16>, times: (i64, i64), entered: Entered) {
        match self.buffer_at(offset).copied() {
            None => self.enter(processor, (0, 0), times, entered),
            // Header buffers are not part of a processor's sequence.
            Some(buffer) if buffer.sequence <= 0 => {}
            Some(buffer) => {
                let entered = Entered { is_marked: entered.is_marked || buffer.is_marked_lossy, ..entered };
                self.enter(processor, (buffer.epoch, buffer.sequence), times, entered);
            }
        }
    }

    fn enter(
        &mut self,
        processor: Option<u16>,
        number: (u32, i64),
        (first, last): (i64, i64),
        entered: Entered,
    ) {
        let latest = self.processors.get(&processor).and_then(|of| of.latest);
        let previous_last = latest.map_or(i64::MIN, |latest| latest.last);
        self.bound_gaps(number, first, previous_last);
        let after = latest.map_or((number.0, 0), |latest| latest.number);
        let is_lost = entered.is_marked || latest.is_some_and(|latest| latest.is_cut);
        let from = match is_lost {
            true => Some(previous_last),
            false => self.candidate(after, number, previous_last),
        };
        let of = self.processors.entry(processor).or_default();
        of.latest = Some(Latest { number, last, is_cut: entered.is_cut });
        self.reached = self.reached.max(number);
        for (from, until) in from.map(|from| (from, first)).into_iter().chain(entered.gap) {
            of.lost.insert(from, until);
            self.lost.insert(from, until);
        }
    }

    /// Narrows the bounds of the gaps around a buffer with this number, which begins at `first` and
    /// whose processor's previous buffer ended at `previous_last`.
    fn bound_gaps(&mut self, number: (u32, i64), first: i64, previous_last: i64) {
        let above = self.gaps.partition_point(|gap| (gap.missing.epoch, gap.missing.last) < number);
        if let Some(gap) = self.gaps.get_mut(above) {
            gap.not_before = gap.not_before.max(previous_last);
        }
        if let Some(below) = above.checked_sub(1).and_then(|below| self.gaps.get_mut(below)) {
            below.not_after = below.not_after.min(first);
        }
    }

    /// The start of a loss on a processor that can have begun after its latest buffer and has not
    /// ended.
    fn open_since(&self, latest: &Latest, reached: (u32, i64)) -> Option<i64> {
        if latest.is_cut {
            return Some(latest.last);
        }
        // Buffers up to one after the largest number so far are in use by now.
        let before = (reached.0, reached.1.saturating_add(2));
        self.candidate(latest.number, before, latest.last)
    }

    /// Ends all processors: no more buffers follow.
    fn end(&mut self, is_unfinished: bool) {
        let after_all = (u32::MAX, i64::MAX);
        let ends: Vec<_> = self
            .processors
            .iter()
            .filter_map(|(&processor, of)| {
                let latest = of.latest.as_ref()?;
                let from = self.open_since(latest, after_all).or(is_unfinished.then_some(latest.last))?;
                Some((processor, from))
            })
            .collect();
        for (processor, from) in ends {
            self.lost.insert(from, i64::MAX);
            self.processors.entry(processor).or_default().lost.insert(from, i64::MAX);
        }
        if let Some(from) = self.unseen_since() {
            self.lost.insert(from, i64::MAX);
        }
        if !self.gaps.is_empty() && self.lost.0.is_empty() {
            self.lost.insert(i64::MIN, i64::MAX);
        }
    }

    /// The time since when a missing buffer can belong to a processor of which the file has no
    /// buffer.
    fn unseen_since(&self) -> Option<i64> {
        let seen = self.processors.keys().flatten().count();
        let has_unseen = seen > 0 && (seen as u64) < u64::from(self.processor_count);
        let gap = self.gaps.first().filter(|gap| has_unseen && self.is_reached(gap))?;
        Some(gap.not_before)
    }

    fn is_reached(&self, gap: &Gap) -> bool {
        (gap.missing.epoch, gap.missing.first.saturating_sub(1)) <= self.reached
    }
}

/// The loss information of a buffer.
#[derive(Clone, Copy, Debug)]
struct Entered {
    /// Records before it were lost.
    is_marked: bool,
    /// Records at its end cannot be read.
    is_cut: bool,
    /// Trace times between which other records of it cannot be read.
    gap: Option<(i64, i64)>,
}

impl Entered {
    fn of(extent: &Extent, base: &TimeBase) -> Entered {
        let Extent { is_cut, follows_unreadable: is_marked, gap, .. } = *extent;
        let gap = gap.map(|(from, until)| (base.trace_time(from).0, base.trace_time(until).0));
        Entered { is_marked, is_cut, gap }
    }
}

/// Identifies the times that lie in the same loss intervals: one interval, or what is between two of
/// them. Two times with equal values have the same answers about losses before and after them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LossPeriod {
    /// Twice the number of intervals that begin before the time, less one in such an interval.
    bounds: u32,
    /// The number of blocks entered so far that can have changed intervals.
    revision: u32,
}

/// The loss intervals of a trace.
///
/// After a first pass over the trace, all intervals are known ([`LossMap::surveyed`]). Otherwise
/// they become known as blocks are read ([`LossMap::enter_block`]), each at the latest when the
/// next block of its processor begins.
#[derive(Clone, Debug, Default)]
pub struct LossMap {
    sources: Vec<Source>,
    /// Whether no more blocks have to be entered.
    is_complete: bool,
    /// Whether a loss is known, or a missing buffer whose time is not known yet.
    is_lossy: bool,
    damaged_buffers: u64,
    /// Intervals in which records of any source can be missing.
    anywhere: Intervals,
    /// See [`LossPeriod`].
    revision: u32,
}

impl LossMap {
    /// An empty map for live sessions, whose blocks mark the losses before them.
    pub fn live() -> LossMap {
        LossMap::default()
    }

    /// A map for a trace that is read in one pass. Finds the missing sequence numbers.
    pub fn of(trace: &OpenTrace) -> LossMap {
        let sources: Vec<Source> =
            (0..trace.sources().len()).map(|number| Source::of(trace, number)).collect();
        let is_lossy = sources.iter().any(|source| !source.gaps.is_empty() || source.is_unresolved);
        LossMap { sources, is_lossy, ..LossMap::default() }
    }

    /// The complete map of a trace, after a survey has read a selection of it to the end.
    pub fn surveyed(trace: &OpenTrace, survey: Ordered) -> LossMap {
        let mut map = LossMap::of(trace);
        let bases = trace.time_bases();
        let mut blocks = survey.into_extents();
        blocks.sort_unstable_by_key(|block| (block.source, block.offset));
        for (number, source) in map.sources.iter_mut().enumerate() {
            // A damaged buffer of which no record could be read has no times either.
            let is_unread = |buffer: &&BufferRef| {
                let location = (number as u16, buffer.offset);
                let block = blocks.binary_search_by_key(&location, |block| (block.source, block.offset));
                block
                    .map_or(true, |block| blocks[block].extent.is_cut && blocks[block].extent.times.is_none())
            };
            let gaps = source.gaps.len();
            source.add_unread(trace.indexes()[number].buffers.iter().filter(is_unread));
            map.damaged_buffers += (source.gaps.len() - gaps) as u64;
        }
        let is_damaged = |block: &&BlockExtent| block.extent.is_cut || block.extent.gap.is_some();
        map.damaged_buffers += blocks.iter().filter(is_damaged).count() as u64;
        let timed = |block: &BlockExtent| {
            let (base, (first, last)) = (bases.get(block.session as usize)?, block.extent.times?);
            let entered = Entered::of(&block.extent, base);
            Some((base.trace_time(first).0, base.trace_time(last).0, *block, entered))
        };
        let mut timed: Vec<_> = blocks.iter().filter_map(timed).collect();
        timed.sort_unstable_by_key(|&(first, _, block, _)| (first, block.source, block.offset));
        for (first, last, block, entered) in timed {
            map.sources[usize::from(block.source)].enter_at(
                block.offset,
                block.processor,
                (first, last),
                entered,
            );
        }
        for (source, index) in map.sources.iter_mut().zip(trace.indexes()) {
            source.end(index.sessions.last().is_some_and(|session| session.end_time.is_none()));
        }
        map.is_complete = true;
        map.is_lossy = map.sources.iter().any(|source| !source.lost.0.is_empty());
        map
    }

    /// The number of buffers of a surveyed trace that cannot be read completely.
    pub fn damaged_buffers(&self) -> u64 {
        self.damaged_buffers
    }

    /// The processors of a source that lost records, and the intervals of trace time (inclusive) in
    /// which they are missing, disjoint and in order. Complete only after a survey.
    pub fn of_processors(&self, source: u16) -> impl Iterator<Item = (Option<u16>, &[(i64, i64)])> {
        let source = self.sources.get(usize::from(source));
        let processors = source.into_iter().flat_map(|source| &source.processors);
        processors.map(|(processor, of)| (*processor, &*of.lost.0)).filter(|(_, lost)| !lost.is_empty())
    }

    /// Whether records of a source can be missing at times that are in no interval of a processor.
    pub fn is_beyond_processors(&self, source: u16) -> bool {
        let mut known = Intervals::default();
        for &(from, until) in self.of_processors(source).flat_map(|(_, lost)| lost) {
            known.insert(from, until);
        }
        let source = self.sources.get(usize::from(source));
        !self.anywhere.0.is_empty()
            || source.is_some_and(|source| source.is_unresolved || source.lost.0 != known.0)
    }

    /// Whether no record is known to be missing from the trace so far.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        !self.is_lossy
    }

    /// Enters the block that begins with this event. Intervals that end before `oldest` are
    /// dropped.
    pub fn enter_block(&mut self, event: &Event<'_>, base: &TimeBase, oldest: i64) {
        if self.is_complete {
            return;
        }
        let block = event.block();
        let extent = block.extent();
        let Some((first, last)) = extent.times else { return };
        let (origin, times) = (block.origin(), (base.trace_time(first).0, base.trace_time(last).0));
        let number = usize::from(event.source());
        if self.sources.len() <= number {
            self.sources.resize_with(number + 1, Source::default);
        }
        let source = &mut self.sources[number];
        // For files, the index has the loss marks of each processor; their blocks are also marked
        // if another processor's buffer is missing.
        let mut entered = Entered::of(&extent, base);
        entered.is_marked |= source.buffers.is_empty() && origin.after_loss;
        source.enter_at(origin.file_offset, event.processor(), times, entered);
        self.is_lossy |= entered.is_marked || entered.is_cut || !source.lost.0.is_empty();
        self.revision += u32::from(self.is_lossy);
        source.lost.forget_before(oldest);
        source.processors.values_mut().for_each(|of| of.lost.forget_before(oldest));
    }

    /// Enters an interval in which records of any source and processor can be missing.
    pub fn enter_interval(&mut self, from: i64, until: i64) {
        self.anywhere.insert(from, until);
        self.is_lossy = true;
        self.revision += 1;
    }

    /// Whether records of a source between these two times (inclusive) may be missing.
    pub fn between(&self, source: u16, from: i64, until: i64) -> bool {
        if !self.is_lossy {
            return false;
        }
        let of = self.sources.get(usize::from(source));
        self.anywhere.meet(from, until) || of.is_some_and(|of| self.first_of(of, from, until).is_some())
    }

    /// Whether records of any source between these two times (inclusive) may be missing.
    pub fn anywhere_between(&self, from: i64, until: i64) -> bool {
        self.is_lossy
            && (self.anywhere.meet(from, until)
                || self.sources.iter().any(|source| self.first_of(source, from, until).is_some()))
    }

    /// The earliest interval in which records of any source between these two times (inclusive) may
    /// be missing.
    pub fn first_between(&self, from: i64, until: i64) -> Option<(i64, i64)> {
        if !self.is_lossy {
            return None;
        }
        let of_sources = self.sources.iter().filter_map(|source| self.first_of(source, from, until));
        of_sources.chain(self.anywhere.first_in(from, until)).min()
    }

    /// The latest interval in which records of any source between these two times (inclusive) may be
    /// missing.
    pub fn last_between(&self, from: i64, until: i64) -> Option<(i64, i64)> {
        if !self.is_lossy {
            return None;
        }
        let open = self.sources.iter().filter(|_| !self.is_complete).filter_map(|of| of.open_from(None));
        let open = open.filter(|open| *open <= until).map(|open| (open, i64::MAX));
        let lost = self.sources.iter().map(|source| &source.lost).chain([&self.anywhere]);
        lost.filter_map(|lost| lost.last_in(from, until)).chain(open).max()
    }

    /// The first interval of a source that overlaps this one. One that has not ended as far as is
    /// known reaches to the end of time.
    fn first_of(&self, source: &Source, from: i64, until: i64) -> Option<(i64, i64)> {
        let found = source.lost.first_in(from, until);
        if found.is_some() || self.is_complete {
            return found;
        }
        let open = source.open_from(None).filter(|open| *open <= until)?;
        Some((open, i64::MAX))
    }

    /// The times around a time (inclusive) that lie in the same intervals, as far as is known.
    pub fn around(&self, time: i64) -> (i64, i64) {
        if !self.is_lossy {
            return (i64::MIN, i64::MAX);
        }
        let lost = self.sources.iter().map(|source| &source.lost).chain([&self.anywhere]);
        let (from, until) = lost.map(|lost| lost.around(time)).fold((i64::MIN, i64::MAX), within);
        let open = self.sources.iter().filter(|_| !self.is_complete).filter_map(|of| of.open_from(None));
        let around_open = |open| if open <= time { (open, i64::MAX) } else { (i64::MIN, open - 1) };
        open.map(around_open).fold((from, until), within)
    }

    /// Identifies the times around a time that lie in the same intervals, as far as is known.
    pub fn period(&self, time: i64) -> LossPeriod {
        if !self.is_lossy {
            return LossPeriod::default();
        }
        let lost = self.sources.iter().map(|source| &source.lost).chain([&self.anywhere]);
        let open = self.sources.iter().filter(|_| !self.is_complete).filter_map(|of| of.open_from(None));
        let bounds: u32 = lost.map(|lost| lost.bounds_before(time)).sum();
        let open = open.filter(|open| *open <= time).count() as u32;
        LossPeriod { bounds: bounds + open, revision: if self.is_complete { 0 } else { self.revision } }
    }

    /// Whether records of one processor between these two times (inclusive) may be missing.
    pub fn on_processor(&self, source: u16, processor: Option<u16>, from: i64, until: i64) -> bool {
        let Some(source) = self.sources.get(usize::from(source)).filter(|_| self.is_lossy) else {
            return false;
        };
        let lost = source.processors.get(&processor).is_some_and(|of| of.lost.meet(from, until));
        let is_open = || source.open_from(Some(processor)).is_some_and(|open| open <= until);
        lost || source.is_unresolved || self.anywhere.meet(from, until) || (!self.is_complete && is_open())
    }
}

impl Source {
    /// Counts buffers of the file that cannot be read as missing.
    fn add_unread<'b>(&mut self, buffers: impl Iterator<Item = &'b BufferRef>) {
        for buffer in buffers {
            let missing =
                MissingBuffers { epoch: buffer.epoch, first: buffer.sequence, last: buffer.sequence };
            self.gaps.push(Gap { missing, not_before: i64::MIN, not_after: i64::MAX });
        }
        self.gaps.sort_by_key(|gap| (gap.missing.epoch, gap.missing.first));
    }

    /// The time at which the first loss of one processor, or of any, began that has not ended as far
    /// as is known.
    fn open_from(&self, processor: Option<Option<u16>>) -> Option<i64> {
        let of = self.processors.iter().filter(|(of, _)| processor.is_none_or(|processor| **of == processor));
        let open = of.filter_map(|(_, of)| self.open_since(of.latest.as_ref()?, self.reached));
        open.chain(self.unseen_since().filter(|_| processor.is_none())).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_match_a_set_of_times(
            inserted in prop::collection::vec((0..60_i64, 0..12_i64), 0..20),
            (from, length) in (0..70_i64, 0..10_i64),
        ) {
            let mut intervals = Intervals::default();
            let mut times = [false; 80];
            for (from, length) in inserted {
                intervals.insert(from, from + length);
                times[from as usize..=(from + length) as usize].fill(true);
            }
            let until = from + length;
            prop_assert_eq!(intervals.meet(from, until), times[from as usize..=until as usize].contains(&true));
            prop_assert!(intervals.0.windows(2).all(|pair| pair[0].1 < pair[1].0));
            let of = |time: i64| times.get(time as usize).is_some_and(|lost| *lost);
            let (first, last) = intervals.around(from);
            let same = (0..80).filter(|time| intervals.bounds_before(*time) == intervals.bounds_before(from));
            for time in same.clone() {
                prop_assert!(first <= time && time <= last && of(time) == of(from));
            }
            prop_assert!(same.count() as i64 == last.min(79) - first.max(0) + 1);
            intervals.forget_before(from);
            prop_assert_eq!(intervals.meet(from, until), times[from as usize..=until as usize].contains(&true));
        }
    }

    #[test]
    fn the_number_of_intervals_is_limited() {
        let mut intervals = Intervals::default();
        for n in 0..2 * INTERVALS_MAX as i64 {
            intervals.insert(10 * n, 10 * n + 5);
        }
        assert_eq!(intervals.0.len(), INTERVALS_MAX);
        // No lost time is dropped; the oldest intervals are merged, including the time between
        // them.
        assert_eq!(intervals.0[0].0, 0);
        assert!(intervals.meet(7, 7));
        assert!(!intervals.meet(20 * INTERVALS_MAX as i64 - 13, 20 * INTERVALS_MAX as i64 - 12));
    }

    /// A buffer of a processor: its number, and the times of its first and last record.
    type Buffer = (u16, i64, i64, i64);

    /// The loss intervals of each processor if these numbers are missing.
    fn lost(processors: u32, missing: &[i64], buffers: &[Buffer]) -> Vec<Vec<(i64, i64)>> {
        let gap = |&number: &i64| Gap {
            missing: MissingBuffers { epoch: 0, first: number, last: number },
            not_before: i64::MIN,
            not_after: i64::MAX,
        };
        let gaps = missing.iter().map(gap).collect();
        let mut source = Source { gaps, processor_count: processors, ..Source::default() };
        let mut buffers = buffers.to_vec();
        buffers.sort_by_key(|buffer| buffer.2);
        for (processor, number, first, last) in buffers {
            let entered = Entered { is_marked: false, is_cut: false, gap: None };
            source.enter(Some(processor), (0, number), (first, last), entered);
        }
        source.end(false);
        source.processors.values().map(|of| of.lost.0.clone()).collect()
    }

    #[test]
    fn a_missing_buffer_counts_for_each_processor_that_can_have_filled_it() {
        // Number 4 is missing. Processor 1 was still filling number 2 when number 5 had begun.
        let buffers = [(0, 1, 0, 10), (1, 2, 5, 60), (0, 3, 11, 20), (0, 5, 31, 40), (1, 6, 61, 70)];
        assert_eq!(lost(2, &[4], &buffers), [vec![(20, 31)], vec![]]);
        // Both processors can have filled it: the idle one had ended its buffer before.
        let idle = [(0, 1, 0, 10), (1, 2, 5, 15), (0, 3, 11, 20), (0, 5, 31, 40), (1, 6, 61, 70)];
        assert_eq!(lost(2, &[4], &idle), [vec![(20, 31)], vec![(15, 61)]]);
        // The buffer was started after number 3, that is, after the end of number 1.
        let late = [(0, 1, 0, 30), (1, 2, 5, 15), (0, 3, 31, 40), (1, 5, 41, 50)];
        assert_eq!(lost(2, &[4], &late), [vec![(40, i64::MAX)], vec![(30, 41)]]);
        // The missing buffer is the last one.
        let last = [(0, 1, 0, 10), (1, 2, 5, 15), (0, 3, 11, 20)];
        assert_eq!(lost(2, &[4], &last), [vec![(20, i64::MAX)], vec![(15, i64::MAX)]]);
        assert_eq!(lost(2, &[], &last), [vec![], vec![]]);
    }
}
