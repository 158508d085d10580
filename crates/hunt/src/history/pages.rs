//! The recorded history of the pages of one process, in segments of equal history.

use std::collections::BTreeMap;

use stackhound_detect::{Author, History, MemoryKind, is_executable, is_patch, is_writable};
use stackhound_trace::TraceTime;

/// Maximum number of segments of a process: about 300 kB. Then the half that changed least recently
/// is forgotten.
pub(super) const SEGMENTS_MAX: usize = 1 << 11;

/// Addresses with the same history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    last: u64,
    changed: TraceTime,
    /// The times when the pages first and last became executable.
    executable: Option<(TraceTime, TraceTime)>,
    /// Whether the allocation of the memory was recorded.
    pub is_whole: bool,
    has_author: bool,
    pub history: History,
}

/// A change of the protection of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProtectionChange {
    pub previous: Option<u32>,
    pub protection: u32,
    pub time: TraceTime,
}

impl Segment {
    fn new(last: u64, time: TraceTime) -> Segment {
        let history = History::default();
        Segment { last, changed: time, executable: None, is_whole: false, has_author: false, history }
    }

    /// Records the author of a change. The most suspicious one is kept.
    pub fn changed_by(&mut self, author: Author) {
        let known = self.history.author;
        self.history.author = if self.has_author { known.max(author) } else { author };
        self.has_author = true;
    }

    /// Forgets everything but the image that the memory replaced, because it was allocated anew.
    pub fn allocate(&mut self) {
        let history = History { replaced: self.history.replaced, ..History::default() };
        *self = Segment { is_whole: true, history, ..Segment::new(self.last, self.changed) };
    }

    /// Records a change of protection. `span` converts raw time to units of 100 ns.
    pub fn protect(&mut self, change: ProtectionChange, span: impl Fn(i64) -> i64) {
        let ProtectionChange { previous, protection, time } = change;
        let history = &mut self.history;
        let previous = previous.or(history.protection).unwrap_or(0);
        let (was_writable, was_executable) = (is_writable(previous), is_executable(previous));
        let is_patch = is_patch(previous, protection);
        let (is_writable, is_executable) = (is_writable(protection), is_executable(protection));
        history.protection = Some(protection);
        history.made_executable |= is_executable && was_writable;
        history.writable_code |= is_executable && is_writable;
        history.image_changed |= history.kind == Some(MemoryKind::Image) && is_patch;
        if was_executable && self.executable.is_none() {
            self.executable = Some((time, time));
        }
        if is_executable && !was_executable {
            let (first, _) = *self.executable.get_or_insert((time, time));
            if first != time {
                history.cycles = history.cycles.saturating_add(1);
                let elapsed = u64::try_from(span(time.0.saturating_sub(first.0))).unwrap_or(0);
                history.period = Some(elapsed / u64::from(history.cycles));
            }
            self.executable = Some((first, time));
        }
    }
}

/// The pages of a process whose changes were recorded.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// By their first addresses; they do not overlap.
    segments: BTreeMap<u64, Segment>,
    /// Whether segments were forgotten because there were too many.
    pub has_forgotten: bool,
}

impl Pages {
    /// The segment that contains an address.
    pub fn at(&self, address: u64) -> Option<&Segment> {
        let (_, segment) = self.segments.range(..=address).next_back()?;
        (segment.last >= address).then_some(segment)
    }

    /// Whether a range has a history.
    pub fn has(&self, (first, last): (u64, u64)) -> bool {
        self.at(first).is_some() || self.segments.range(first..=last).next().is_some()
    }

    /// Number of segments.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Splits the segment that contains an address, so that one starts there.
    fn split(&mut self, at: u64) {
        let Some((&first, segment)) = self.segments.range_mut(..at).next_back() else { return };
        if first < at && segment.last >= at {
            let rest = *segment;
            segment.last = at - 1;
            self.segments.insert(at, rest);
        }
    }

    fn split_around(&mut self, first: u64, last: u64) {
        self.split(first);
        if let Some(after) = last.checked_add(1) {
            self.split(after);
        }
    }

    /// Changes the history of a range. Addresses without one get a new one if `adds`.
    pub fn update(
        &mut self,
        (first, last): (u64, u64),
        time: TraceTime,
        adds: bool,
        mut change: impl FnMut(&mut Segment),
    ) {
        self.split_around(first, last);
        if adds {
            let known: Vec<(u64, u64)> =
                self.segments.range(first..=last).map(|(first, segment)| (*first, segment.last)).collect();
            let mut next = Some(first);
            for (start, end) in known {
                if let Some(from) = next.filter(|from| *from < start) {
                    self.segments.insert(from, Segment::new(start - 1, time));
                }
                next = end.checked_add(1);
            }
            if let Some(from) = next.filter(|from| *from <= last) {
                self.segments.insert(from, Segment::new(last, time));
            }
        }
        for (_, segment) in self.segments.range_mut(first..=last) {
            change(segment);
            segment.changed = time;
        }
        self.keep_limit();
    }

    /// Forgets the history of a range, because its memory is gone.
    pub fn clear(&mut self, (first, last): (u64, u64)) {
        self.split_around(first, last);
        let gone: Vec<u64> = self.segments.range(first..=last).map(|(first, _)| *first).collect();
        for first in gone {
            self.segments.remove(&first);
        }
        self.keep_limit();
    }

    fn keep_limit(&mut self) {
        if self.segments.len() <= SEGMENTS_MAX {
            return;
        }
        let mut times: Vec<TraceTime> = self.segments.values().map(|segment| segment.changed).collect();
        let (_, &mut median, _) = times.select_nth_unstable(SEGMENTS_MAX / 2);
        self.segments.retain(|_, segment| segment.changed > median);
        self.has_forgotten = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number of addresses of the small address space in which ranges are compared with a
    /// history for each address.
    const ADDRESSES: u64 = 48;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Protect(u32, u32),
        Allocate,
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, u64, u64)>> {
        let protection = || prop_oneof![Just(RW), Just(RX), Just(RWX)];
        let step = prop_oneof![
            4 => (protection(), protection()).prop_map(|(from, to)| Step::Protect(from, to)),
            1 => Just(Step::Allocate),
            1 => Just(Step::Clear),
        ];
        proptest::collection::vec((step, 0..ADDRESSES, 0..16_u64), 0..60)
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_history_for_each_address(steps in steps()) {
            let mut pages = Pages::default();
            let mut each: Vec<Option<Segment>> = vec![None; ADDRESSES as usize];
            for (time, (step, first, size)) in (0..).zip(steps) {
                let (time, last) = (TraceTime(time), (first + size).min(ADDRESSES - 1));
                if let Step::Clear = step {
                    pages.clear((first, last));
                    each[first as usize..=last as usize].fill(None);
                    continue;
                }
                let change = |segment: &mut Segment| match step {
                    Step::Protect(from, protection) => {
                        let previous = Some(from);
                        segment.protect(ProtectionChange { previous, protection, time }, |raw| raw);
                    }
                    Step::Allocate | Step::Clear => segment.allocate(),
                };
                pages.update((first, last), time, true, change);
                for address in first..=last {
                    change(each[address as usize].get_or_insert_with(|| Segment::new(address, time)));
                }
            }
            for address in 0..ADDRESSES {
                let history = pages.at(address).map(|segment| segment.history);
                let expected = each[address as usize].map(|segment| segment.history);
                prop_assert_eq!(history, expected, "{}", address);
                prop_assert_eq!(pages.has((address, address)), expected.is_some());
            }
        }
    }

    const RW: u32 = 0x04;
    const RX: u32 = 0x20;
    const RWX: u32 = 0x40;

    fn protect(pages: &mut Pages, range: (u64, u64), time: i64, previous: u32, protection: u32) {
        let time = TraceTime(time);
        let change = ProtectionChange { previous: Some(previous), protection, time };
        pages.update(range, time, true, |segment| segment.protect(change, |raw| raw));
    }

    #[test]
    fn a_range_is_split_where_histories_differ() {
        let mut pages = Pages::default();
        protect(&mut pages, (0x1000, 0x4fff), 1, RW, RX);
        protect(&mut pages, (0x2000, 0x2fff), 2, RX, RWX);
        let facts = |at: u64| pages.at(at).map(|segment| segment.history.writable_code);
        for (at, expected) in [
            (0xfff, None),
            (0x1000, Some(false)),
            (0x1fff, Some(false)),
            (0x2000, Some(true)),
            (0x2fff, Some(true)),
            (0x3000, Some(false)),
            (0x4fff, Some(false)),
            (0x5000, None),
        ] {
            assert_eq!(facts(at), expected, "{at:#x}");
        }
        pages.clear((0x1800, 0x27ff));
        assert!(pages.at(0x17ff).is_some() && pages.at(0x1800).is_none() && pages.at(0x2800).is_some());
    }

    #[test]
    fn the_end_of_the_address_space_is_a_range() {
        let mut pages = Pages::default();
        protect(&mut pages, (u64::MAX - 0xfff, u64::MAX), 1, RW, RX);
        protect(&mut pages, (0, u64::MAX), 2, RX, RW);
        assert!(pages.at(0).is_some() && pages.at(u64::MAX).is_some());
        pages.clear((0, u64::MAX));
        assert_eq!(pages.len(), 0);
    }

    #[test]
    fn cycles_count_returns_to_executable() {
        let mut pages = Pages::default();
        for cycle in 0..4 {
            protect(&mut pages, (0x1000, 0x1fff), 100 * cycle, RW, RX);
            protect(&mut pages, (0x1000, 0x1fff), 100 * cycle + 10, RX, RW);
        }
        let history = pages.at(0x1000).unwrap().history;
        assert_eq!((history.cycles, history.period), (3, Some(100)));
        assert!(history.made_executable && !history.writable_code);
    }

    #[test]
    fn memory_is_bounded() {
        let mut pages = Pages::default();
        for page in 0..10 * SEGMENTS_MAX as u64 {
            protect(&mut pages, (page * 0x2000, page * 0x2000 + 0xfff), page as i64, RW, RX);
            assert!(pages.len() <= SEGMENTS_MAX);
        }
        assert!(pages.has_forgotten && pages.at(0).is_none());
        assert!(pages.at((10 * SEGMENTS_MAX as u64 - 1) * 0x2000).is_some());
        // Freed pages split the memory around them.
        let mut pages = Pages::default();
        protect(&mut pages, (0, u64::MAX), 1, RW, RX);
        for page in 0..2 * SEGMENTS_MAX as u64 {
            pages.clear((page * 0x2000 + 0x1000, page * 0x2000 + 0x1fff));
            assert!(pages.len() <= SEGMENTS_MAX);
        }
        assert!(pages.has_forgotten);
    }
}
