//! Ranges of one address space over trace time: which is where when.
//!
//! At each address the latest statement up to a time holds. Statements are changes ("from now on this range is X",
//! "from now on it is free") and, below all changes, what rundowns tell: what was there from the beginning on. What
//! was never stated is free.

use std::collections::BTreeMap;

use stackhound_trace::TraceTime;

use crate::multiversion::{Change, RangeTree};
use crate::span::Span;
use crate::validity::ValidityRange;

/// Newest changes that are kept apart, in the order of their times: a late one finds its place among them.
const RECENT_MAX: usize = 32;

/// No change concerns the address.
const UNTOUCHED: u32 = u32::MAX;
/// A change made the address free.
const FREE: u32 = u32::MAX - 1;

/// A range of addresses, both ends included, so that it can reach the end of the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AddressRange {
    pub first: u64,
    pub last: u64,
}

impl AddressRange {
    /// `size` bytes from `base` on, cut at the end of the space. `None` if there are none.
    pub fn new(base: u64, size: u64) -> Option<AddressRange> {
        Some(AddressRange { first: base, last: base.saturating_add(size.checked_sub(1)?) })
    }
}

/// Changes of a time, in a tree that is not too long.
#[derive(Debug)]
struct Epoch {
    /// The first time that is asked about here.
    from: TraceTime,
    tree: RangeTree,
    /// Changes in `tree`, with those that stand for the state in which it began.
    changes: usize,
    /// Changes at which the next epoch may begin.
    full: usize,
}

/// Changes of an epoch, at least.
const EPOCH_MIN: usize = if cfg!(test) { 4 } else { 64 };

impl Epoch {
    /// Begins with the newest state of the one before.
    fn behind(before: &Epoch, from: TraceTime) -> Epoch {
        let mut epoch = Epoch::default();
        for (first, last, value) in before.tree.newest_state() {
            if value != UNTOUCHED {
                epoch.change(Change { time: Span::BEGINNING, first, last, value });
            }
        }
        Epoch { from, full: EPOCH_MIN.max(2 * epoch.changes), ..epoch }
    }

    fn change(&mut self, change: Change) {
        self.changes += 1;
        self.tree.change(change);
    }
}

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch { from: Span::BEGINNING, tree: RangeTree::new(UNTOUCHED), changes: 0, full: EPOCH_MIN }
    }
}

/// Which ranges of an address space hold which values when. Values are numbers below 2³² − 2.
///
/// About 40 bytes for what was there from the beginning, 200 for a change.
///
/// Where the past is [forgotten](RangeHistory::forget_before), changes stand in epochs. Each begins with the state that
/// the one before ended with, so that those before can go.
#[derive(Debug, Default)]
pub(crate) struct RangeHistory {
    /// From first address to last address and value; no two overlap.
    from_beginning: BTreeMap<u64, (u64, u32)>,
    /// In time order, none earlier than those in `older`.
    recent: Vec<Change>,
    /// In time order, none without changes.
    older: Vec<Epoch>,
    /// Time of the newest change in `older`.
    older_until: Option<TraceTime>,
    /// Times of changes, in ascending order.
    changed: Vec<TraceTime>,
    /// Changes whose times are forgotten.
    forgotten: u64,
    /// How often something was stated about times that had been stated about before.
    revision: u64,
}

/// A stretch of trace time in which nothing changes, as far as is known by now: what is looked up in it is the same at
/// each of its times, until something more is taken in about them. Two times are in one stretch if these are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ValidityId {
    /// Changes up to the time, doubled; one more at the very time of a change.
    changes: u64,
    revision: u64,
}

impl ValidityId {
    /// The stretch in which nothing changes here and there.
    pub(crate) fn and(self, other: ValidityId) -> ValidityId {
        // All are counters that only go up with time, and with what is taken in.
        let both_at_change = self.changes & other.changes & 1;
        ValidityId {
            changes: self.changes + other.changes - both_at_change,
            revision: self.revision + other.revision,
        }
    }
}

impl RangeHistory {
    /// The value of an address at a time. What was made free at that very time still has its value.
    #[inline]
    pub fn at(&self, address: u64, time: TraceTime) -> Option<u32> {
        match self.changed(address, time) {
            FREE => self.held_at(address, TraceTime(time.0.saturating_sub(1))),
            value => self.below_changes(address, value),
        }
    }

    /// The value of an address at a time, behind all changes of that time.
    pub fn held_at(&self, address: u64, time: TraceTime) -> Option<u32> {
        self.below_changes(address, self.changed(address, time))
    }

    #[inline]
    fn below_changes(&self, address: u64, value: u32) -> Option<u32> {
        match value {
            FREE => None,
            UNTOUCHED => {
                let (_, &(last, value)) = self.from_beginning.range(..=address).next_back()?;
                (address <= last).then_some(value)
            }
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
            [only] => only.tree.at(address, time),
            epochs => {
                let epoch = epochs.iter().rev().find(|epoch| epoch.from <= time);
                epoch.unwrap_or(&epochs[0]).tree.at(address, time)
            }
        }
    }

    /// States that a range has a value from the beginning on, as far as no change says otherwise.
    ///
    /// Refused where the range is not free from the beginning, or its first address was changed.
    pub fn set_from_beginning(&mut self, range: AddressRange, value: u32) -> bool {
        let before = self.from_beginning.range(..=range.last).next_back();
        let taken = before.is_some_and(|(_, &(last, _))| last >= range.first);
        if taken || self.changed(range.first, TraceTime(i64::MAX)) != UNTOUCHED {
            return false;
        }
        self.from_beginning.insert(range.first, (range.last, value));
        self.revision += 1;
        true
    }

    /// States that a range has a value from `time` on.
    pub fn set(&mut self, time: TraceTime, range: AddressRange, value: u32) {
        // A change that is too late to be sorted in counts as made when it still can be.
        let time = self.older_until.map_or(time, |until| time.max(until));
        let location = self.changed.partition_point(|&changed| changed <= time);
        self.revision += u64::from(location < self.changed.len());
        self.changed.insert(location, time);
        let location = self.recent.partition_point(|change| change.time <= time);
        self.recent.insert(location, Change { time, first: range.first, last: range.last, value });
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

    /// The stretch of time around a time.
    #[inline]
    pub fn validity_id(&self, time: TraceTime) -> ValidityId {
        // Mostly asked about the newest time.
        let passed = match self.changed.last() {
            Some(&last) if last > time => self.changed.partition_point(|&changed| changed <= time),
            _ => self.changed.len(),
        };
        let at_change = passed > 0 && self.changed[passed - 1] == time;
        let all_passed = self.forgotten + passed as u64;
        ValidityId { changes: 2 * all_passed + u64::from(at_change), revision: self.revision }
    }

    /// The times around a time that are in one [stretch](RangeHistory::validity_id) with it.
    pub fn validity(&self, time: TraceTime) -> ValidityRange {
        let passed = self.changed.partition_point(|&changed| changed <= time);
        match passed.checked_sub(1).map(|last| self.changed[last]) {
            Some(last) if last == time => ValidityRange::at(time),
            last => {
                let behind = last.map(|last| TraceTime(last.0.saturating_add(1)));
                ValidityRange::between(behind, self.changed.get(passed).copied())
            }
        }
    }

    /// Forgets what no answer about this time or a later one rests on; some of it stays until there is enough of it.
    pub fn forget_before(&mut self, time: TraceTime) {
        // What was made free at a time is looked up just before it.
        while self.older.get(1).is_some_and(|next| next.from < time) {
            self.older.remove(0);
        }
        if let (Some(newest), Some(until)) = (self.older.last(), self.older_until)
            && newest.changes >= newest.full
        {
            self.older.push(Epoch::behind(newest, until));
        }
        let passed = self.changed.partition_point(|&changed| changed < time);
        if passed > EPOCH_MIN && passed >= self.changed.len() / 2 {
            self.changed.drain(..passed);
            self.changed.shrink_to_fit();
            self.forgotten += passed as u64;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        let forgotten = self.forgotten + self.changed.len() as u64;
        *self = RangeHistory { forgotten, revision: self.revision + 1, ..RangeHistory::default() };
    }

    /// How much is remembered, in changes.
    pub fn len(&self) -> usize {
        let older: usize = self.older.iter().map(|epoch| epoch.changes).sum();
        self.from_beginning.len() + self.recent.len() + older
    }

    /// All values that are remembered, some of them several times.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        let recent = self.recent.iter().map(|change| change.value);
        let older = self.older.iter().flat_map(|epoch| epoch.tree.values());
        let changed = recent.chain(older).filter(|&value| value != FREE && value != UNTOUCHED);
        changed.chain(self.from_beginning.values().map(|&(_, value)| value))
    }

    /// States that a range is free from `time` on.
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
                let location = changes.partition_point(|&(other, ..)| other <= time);
                changes.insert(location, (time, range, change));
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
            // What is looked up in one stretch is the same.
            for time in 0..=now + 1 {
                let (before, here) = (TraceTime(time - 1), TraceTime(time));
                if history.validity_id(before) == history.validity_id(here) {
                    prop_assert!((0..52).all(|address| history.at(address, before) == history.at(address, here)));
                }
            }
        }

        #[test]
        fn without_the_past_the_rest_is_as_it_was(statements in statements(), every in 1usize..40, back in 0i64..60) {
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
    fn a_long_history_without_its_past_is_short() {
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
