//! The ranges of one address space over trace time.
//!
//! At each address, the latest statement up to a time applies. Statements are changes ("from now on
//! this range is X", "from now on it is free") and, below all changes, the contents of rundowns:
//! ranges that existed from the beginning of the trace. An address without a statement is free.

use stackhound_trace::{LossPeriod, TraceTime};

use crate::disjoint::DisjointRanges;
use crate::multiversion::{Change, RangeTree};
use crate::span::Span;
use crate::validity::ValidityRange;

/// The number of newest changes that are kept apart, ordered by time. A late change is sorted in
/// among them.
const RECENT_MAX: usize = 32;

/// No change covers the address.
const UNTOUCHED: u32 = u32::MAX;
/// A change freed the address.
const FREE: u32 = u32::MAX - 1;

/// A range of addresses. Both ends are inclusive, so that a range can reach the end of the address
/// space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AddressRange {
    pub first: u64,
    pub last: u64,
}

impl AddressRange {
    /// `size` bytes from `base` on, cut at the end of the address space. `None` if `size` is 0.
    pub fn new(base: u64, size: u64) -> Option<AddressRange> {
        Some(AddressRange { first: base, last: base.saturating_add(size.checked_sub(1)?) })
    }
}

/// The changes of a period.
#[derive(Debug)]
struct Epoch {
    /// The earliest time that is looked up in this epoch.
    from: TraceTime,
    /// Changes of ranges in which nothing had changed before.
    first: DisjointRanges,
    /// All other changes, which override those in `first`.
    tree: Option<RangeTree>,
    /// The time of the newest change.
    newest: TraceTime,
    /// The number of changes, including those that represent the initial state.
    changes: usize,
    /// The number of changes at which the next epoch may begin.
    full: usize,
}

/// The latest time of a change.
const LATEST: TraceTime = TraceTime(i64::MAX - 1);

/// The minimum number of changes of an epoch.
const EPOCH_MIN: usize = if cfg!(test) { 4 } else { 64 };

impl Epoch {
    /// Begins with the newest state of the previous epoch.
    fn following(before: &Epoch, from: TraceTime) -> Epoch {
        let mut epoch = Epoch::default();
        let mut begin = |first, last, value| {
            epoch.change(Change { time: Span::BEGINNING, first, last, value });
        };
        let state = before.tree.as_ref().map(RangeTree::newest_state);
        for (first, last, value) in state.unwrap_or_else(|| vec![(0, u64::MAX, UNTOUCHED)]) {
            if value != UNTOUCHED {
                begin(first, last, value);
                continue;
            }
            // Where nothing overrides it, the first change still applies.
            for change in before.first.within(first, last) {
                begin(change.first.max(first), change.last.min(last), change.value);
            }
        }
        Epoch { from, full: EPOCH_MIN.max(2 * epoch.changes), ..epoch }
    }

    fn change(&mut self, change: Change) {
        self.changes += 1;
        let Change { first, last, .. } = change;
        // A change that is earlier than the newest one counts as made at the time of the newest.
        self.newest = self.newest.max(change.time.min(LATEST));
        let change = Change { time: self.newest, ..change };
        let is_first = self.tree.as_ref().is_none_or(|tree| tree.is_all(first, last, UNTOUCHED));
        if !is_first || !self.first.insert(change) {
            self.tree.get_or_insert_with(|| RangeTree::new(UNTOUCHED)).change(change);
        }
    }

    fn at(&self, address: u64, time: TraceTime) -> u32 {
        let changed = self.tree.as_ref().map_or(UNTOUCHED, |tree| tree.at(address, time));
        if changed != UNTOUCHED {
            return changed;
        }
        match self.first.at(address) {
            Some(change) if change.time <= time => change.value,
            _ => UNTOUCHED,
        }
    }
}

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch {
            from: Span::BEGINNING,
            first: DisjointRanges::default(),
            tree: None,
            newest: Span::BEGINNING,
            changes: 0,
            full: EPOCH_MIN,
        }
    }
}

/// The values of the ranges of an address space over time. Values are numbers below 2³² − 2.
///
/// A range that existed from the beginning takes about 45 bytes, as does the first change of a
/// range; a later change takes about 200.
///
/// If the past is [forgotten](RangeHistory::forget_before), changes are stored in epochs. Each
/// epoch begins with the final state of the previous one, so that earlier epochs can be dropped.
#[derive(Debug, Default)]
pub(crate) struct RangeHistory {
    /// Ranges that existed from the beginning.
    from_beginning: DisjointRanges,
    /// Ordered by time; none is earlier than the changes in `older`.
    recent: Vec<Change>,
    /// Ordered by time; none is empty.
    older: Vec<Epoch>,
    /// The time of the newest change in `older`.
    older_until: Option<TraceTime>,
    /// The times of changes, in ascending order.
    changed: Vec<TraceTime>,
    /// The number of changes whose times are forgotten.
    forgotten: u64,
    /// The number of statements about times for which a statement existed already.
    revision: u64,
}

/// Identifies a period of trace time in which nothing changes as far as is known now, and in which
/// the losses before and after it are the same. Two times with equal ids have equal lookup results,
/// until another statement about them is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ValidityId {
    /// Twice the number of changes up to the time, plus one at the exact time of a change.
    changes: u64,
    revision: u64,
    losses: LossPeriod,
}

impl ValidityId {
    /// Identifies the part of the period in which the losses before and after it are the same.
    pub(crate) fn within(self, losses: LossPeriod) -> ValidityId {
        ValidityId { losses, ..self }
    }

    /// Identifies the period in which nothing changes in either of the two histories.
    pub(crate) fn and(self, other: ValidityId) -> ValidityId {
        // All counters only increase, with time and with recorded statements.
        let both_at_change = self.changes & other.changes & 1;
        ValidityId {
            changes: self.changes + other.changes - both_at_change,
            revision: self.revision + other.revision,
            losses: self.losses,
        }
    }
}

impl RangeHistory {
    /// The value of an address at a time. An address that is freed at exactly this time still has
    /// its value.
    #[inline]
    pub fn at(&self, address: u64, time: TraceTime) -> Option<u32> {
        match self.changed(address, time) {
            FREE => self.held_at(address, TraceTime(time.0.saturating_sub(1))),
            value => self.below_changes(address, value),
        }
    }

    /// The value of an address at a time, after all changes of that time.
    pub fn held_at(&self, address: u64, time: TraceTime) -> Option<u32> {
        self.below_changes(address, self.changed(address, time))
    }

    #[inline]
    fn below_changes(&self, address: u64, value: u32) -> Option<u32> {
        match value {
            FREE => None,
            UNTOUCHED => self.from_beginning.at(address).map(|range| range.value),
            value => Some(value),
        }
    }

    #[inline]
    fn changed(&self, address: u64, time: TraceTime) -> u32 {
        let covers =
            |change: &&Change| change.time <= time && change.first <= address && address <= change.last;
        if let Some(change) = self.recent.iter().rev().find(covers) {
            return change.value;
        }
        match &*self.older {
            [] => UNTOUCHED,
            [only] => only.at(address, time),
            epochs => {
                let epoch = epochs.iter().rev().find(|epoch| epoch.from <= time);
                epoch.unwrap_or(&epochs[0]).at(address, time)
            }
        }
    }

    /// States that a range has a value from the beginning on, unless a change overrides it.
    ///
    /// Returns false, and does nothing, if the range is not free from the beginning or its first
    /// address was changed.
    pub fn set_from_beginning(&mut self, range: AddressRange, value: u32) -> bool {
        let AddressRange { first, last } = range;
        if self.changed(first, TraceTime(i64::MAX)) != UNTOUCHED
            || !self.from_beginning.insert(Change { time: Span::BEGINNING, first, last, value })
        {
            return false;
        }
        self.revision += 1;
        true
    }

    /// The time of the newest change.
    #[inline]
    pub fn newest_change(&self) -> Option<TraceTime> {
        // Some of the recent changes always stay there.
        self.recent.last().map(|change| change.time)
    }

    pub fn set(&mut self, time: TraceTime, range: AddressRange, value: u32) {
        // A change that is too late to be sorted in counts as made at the earliest time that is
        // still possible.
        let time = self.older_until.map_or(time, |until| time.max(until));
        let index = self.changed.partition_point(|&changed| changed <= time);
        self.revision += u64::from(index < self.changed.len());
        self.changed.insert(index, time);
        let index = self.recent.partition_point(|change| change.time <= time);
        if self.recent.len() == RECENT_MAX / 2 {
            self.recent.reserve_exact(RECENT_MAX / 2 + 1);
        }
        self.recent.insert(index, Change { time, first: range.first, last: range.last, value });
        if self.recent.len() > RECENT_MAX {
            if self.older.is_empty() {
                self.older.push(Epoch::default());
            }
            let newest = self.older.len() - 1;
            let older = &mut self.older[newest];
            for change in self.recent.drain(..RECENT_MAX / 2) {
                self.older_until = Some(change.time);
                older.change(change);
            }
        }
    }

    /// Identifies the period around a time in which nothing changes.
    #[inline]
    pub fn validity_id(&self, time: TraceTime) -> ValidityId {
        // Most lookups are about the newest time.
        let passed = match self.changed.last() {
            Some(&last) if last > time => self.changed.partition_point(|&changed| changed <= time),
            _ => self.changed.len(),
        };
        let at_change = passed > 0 && self.changed[passed - 1] == time;
        let all_passed = self.forgotten + passed as u64;
        ValidityId {
            changes: 2 * all_passed + u64::from(at_change),
            revision: self.revision,
            losses: LossPeriod::default(),
        }
    }

    /// The times around a time that have the same [`validity_id`](RangeHistory::validity_id).
    pub fn validity(&self, time: TraceTime) -> ValidityRange {
        let passed = self.changed.partition_point(|&changed| changed <= time);
        match passed.checked_sub(1).map(|last| self.changed[last]) {
            Some(last) if last == time => ValidityRange::at(time),
            last => {
                let from = last.map(|last| TraceTime(last.0.saturating_add(1)));
                ValidityRange::between(from, self.changed.get(passed).copied())
            }
        }
    }

    /// Forgets state that no query about this time or a later one needs. Forgetting happens in
    /// batches.
    pub fn forget_before(&mut self, time: TraceTime) {
        // An address that is freed at a time is looked up just before it.
        while self.older.get(1).is_some_and(|next| next.from < time) {
            self.older.remove(0);
        }
        if let (Some(newest), Some(until)) = (self.older.last(), self.older_until)
            && newest.changes >= newest.full
        {
            self.older.push(Epoch::following(newest, until));
        }
        let passed = self.changed.partition_point(|&changed| changed < time);
        if passed > EPOCH_MIN && passed >= self.changed.len() / 2 {
            self.changed.drain(..passed);
            self.changed.shrink_to_fit();
            self.forgotten += passed as u64;
        }
    }

    pub fn clear(&mut self) {
        let forgotten = self.forgotten + self.changed.len() as u64;
        *self = RangeHistory { forgotten, revision: self.revision + 1, ..RangeHistory::default() };
    }

    /// The number of stored changes.
    pub fn len(&self) -> usize {
        let older: usize = self.older.iter().map(|epoch| epoch.changes).sum();
        self.from_beginning.len() + self.recent.len() + older
    }

    /// All stored values, some of them several times.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        let recent = self.recent.iter().map(|change| change.value);
        let older = self.older.iter().flat_map(|epoch| {
            let first = epoch.first.iter().map(|change| change.value);
            first.chain(epoch.tree.iter().flat_map(RangeTree::values))
        });
        let changed = recent.chain(older).filter(|&value| value != FREE && value != UNTOUCHED);
        changed.chain(self.from_beginning.iter().map(|range| range.value))
    }

    pub fn free(&mut self, time: TraceTime, range: AddressRange) {
        self.set(time, range, FREE);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Statement {
        FromBeginning,
        Set,
        Free,
    }

    fn statements() -> impl Strategy<Value = Vec<(Statement, i64, i64, AddressRange)>> {
        let kind = prop_oneof![Just(Statement::FromBeginning), Just(Statement::Set), Just(Statement::Free)];
        let step =
            (kind, 0i64..4, 0i64..20, 0u64..40, 1u64..12).prop_map(|(kind, wait, late, base, size)| {
                (kind, wait, late, AddressRange::new(base, size).unwrap())
            });
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(statements in statements()) {
            let mut history = RangeHistory::default();
            let mut from_beginning: Vec<(AddressRange, u32)> = Vec::new();
            let mut changes: Vec<(i64, AddressRange, Option<u32>)> = Vec::new();
            let covers = |range: AddressRange, address| range.first <= address && address <= range.last;
            let mut now = 0;
            for (value, (kind, wait, late, range)) in statements.into_iter().enumerate() {
                now += wait;
                // At most 16 changes are overtaken.
                let overtaken = changes.len().saturating_sub(16);
                let floor = changes.get(overtaken).map_or(0, |&(time, ..)| time);
                let time = (now - late).max(floor);
                let value = value as u32;
                let change = match kind {
                    Statement::FromBeginning => {
                        let free = (range.first..=range.last)
                            .all(|address| !from_beginning.iter().any(|&(range, _)| covers(range, address)));
                        let touched = changes.iter().any(|&(_, changed, _)| covers(changed, range.first));
                        prop_assert_eq!(history.set_from_beginning(range, value), free && !touched);
                        if free && !touched {
                            from_beginning.push((range, value));
                        }
                        continue;
                    }
                    Statement::Set => Some(value),
                    Statement::Free => None,
                };
                match change {
                    Some(value) => history.set(TraceTime(time), range, value),
                    None => history.free(TraceTime(time), range),
                }
                let index = changes.partition_point(|&(other, ..)| other <= time);
                changes.insert(index, (time, range, change));
            }
            let oracle = |address, time: i64| {
                let newest = |time| changes.iter().rev().find(|c| c.0 <= time && covers(c.1, address)).map(|c| c.2);
                let mut found = newest(time);
                if found == Some(None) {
                    found = newest(time - 1);
                }
                let beginning = || from_beginning.iter().find(|b| covers(b.0, address)).map(|b| b.1);
                found.unwrap_or_else(beginning)
            };
            for time in -1..=now + 1 {
                for address in 0..52 {
                    prop_assert_eq!(history.at(address, TraceTime(time)), oracle(address, time));
                }
            }
            // Lookups at times with the same id have the same results.
            for time in 0..=now + 1 {
                let (before, here) = (TraceTime(time - 1), TraceTime(time));
                if history.validity_id(before) == history.validity_id(here) {
                    prop_assert!((0..52).all(|address| history.at(address, before) == history.at(address, here)));
                }
            }
        }

        #[test]
        fn forgetting_the_past_keeps_the_rest(statements in statements(), every in 1usize..40, back in 0i64..60) {
            let mut whole = RangeHistory::default();
            let mut forgetful = RangeHistory::default();
            let (mut now, mut known) = (0, i64::MIN);
            for (value, (kind, wait, late, range)) in statements.into_iter().enumerate() {
                now += wait;
                let (time, number) = (TraceTime((now - late).max(known)), value as u32);
                match kind {
                    Statement::FromBeginning => {
                        let is_new = whole.set_from_beginning(range, number);
                        prop_assert_eq!(forgetful.set_from_beginning(range, number), is_new);
                    }
                    Statement::Set => {
                        whole.set(time, range, number);
                        forgetful.set(time, range, number);
                    }
                    Statement::Free => {
                        whole.free(time, range);
                        forgetful.free(time, range);
                    }
                }
                if value % every == 0 {
                    known = known.max(now - back);
                    forgetful.forget_before(TraceTime(known));
                }
                let values: Vec<u32> = forgetful.values().collect();
                for time in known.max(now - 30)..=now + 1 {
                    let time = TraceTime(time);
                    prop_assert_eq!(forgetful.validity_id(time), whole.validity_id(time));
                    for address in (value as u64 % 4..52).step_by(4) {
                        let found = forgetful.at(address, time);
                        prop_assert_eq!(found, whole.at(address, time), "{} at {:?}", address, time);
                        prop_assert_eq!(forgetful.held_at(address, time), whole.held_at(address, time));
                        prop_assert!(found.is_none_or(|value| values.contains(&value)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_history_is_short_without_its_past() {
        let mut history = RangeHistory::default();
        for n in 0..200_000i64 {
            let range = AddressRange::new(n as u64 % 50 * 0x1000, 0x1000).unwrap();
            if n % 2 == 0 {
                history.set(TraceTime(n), range, n as u32)
            } else {
                history.free(TraceTime(n), range)
            }
            if n % 100 == 0 {
                history.forget_before(TraceTime(n - 1000));
            }
            assert!(history.len() < 3000 && history.changed.len() < 3000, "{} of {n}", history.len());
        }
        assert!(history.values().count() < 20_000);
    }
}
