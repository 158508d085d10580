//! A map from addresses to values that stores each of its states: a multiversion B-tree.
//!
//! A change assigns one value to a range of addresses. Blocks are never rewritten: an entry that a
//! change covers is marked as dead from the time of the change on, and new entries are added. A
//! full block is replaced, from that time on, by one or two blocks with its live entries. Every
//! state is therefore a tree of its own, and all trees share their common parts.
//!
//! A change and a lookup take O(log n) steps for any ranges. A change takes about 200 bytes.

use stackhound_trace::TraceTime;

/// The maximum number of entries of a block. It is small because entries are searched linearly.
const BLOCK_MAX: usize = 32;

/// The number of live entries above which a full block is replaced by two.
const SPLIT_AT: usize = BLOCK_MAX * 2 / 3;

const ALIVE: TraceTime = TraceTime(i64::MAX);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Value(u32),
    Block(u32),
}

/// Maps the addresses from `low` up to the next live entry to `target`, for times in `[from, to)`.
#[derive(Clone, Copy, Debug)]
struct Entry {
    low: u64,
    from: TraceTime,
    to: TraceTime,
    target: Target,
}

/// Assigns a value to a range of addresses. Both ends are inclusive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub time: TraceTime,
    pub first: u64,
    pub last: u64,
    pub value: u32,
}

/// The values of all addresses at all times.
#[derive(Debug)]
pub(crate) struct RangeTree {
    /// Each block is in ascending order of addresses. At any time of its life, its live entries
    /// cover its whole range.
    blocks: Vec<Vec<Entry>>,
    /// The roots and the times from which they apply, in ascending order.
    roots: Vec<(TraceTime, u32)>,
    /// The number of levels below the newest root.
    height: u32,
    newest: TraceTime,
}

/// The replacement of a block.
enum Replaced {
    No,
    By(u32),
    ByTwo(u32, u64, u32),
}

impl RangeTree {
    /// A tree in which all addresses have `value` at all times.
    pub fn new(value: u32) -> RangeTree {
        let beginning = TraceTime(i64::MIN);
        let all = Entry { low: 0, from: beginning, to: ALIVE, target: Target::Value(value) };
        RangeTree { blocks: vec![vec![all]], roots: vec![(beginning, 0)], height: 0, newest: beginning }
    }

    fn newest_root(&self) -> (TraceTime, u32) {
        *self.roots.last().expect("there is a root from the beginning on")
    }

    /// The value of an address at a time.
    pub fn at(&self, address: u64, time: TraceTime) -> u32 {
        // No entry dies at the maximum time.
        let time = time.min(TraceTime(ALIVE.0 - 1));
        let mut block = match self.newest_root() {
            (from, root) if from <= time => root,
            _ => {
                let later = self.roots.partition_point(|&(from, _)| from <= time);
                self.roots[later - 1].1
            }
        };
        loop {
            let entries = &self.blocks[block as usize];
            let covering = entries.iter().rev().find(|e| e.low <= address && e.from <= time && time < e.to);
            match covering.expect("live entries cover a block's whole range").target {
                Target::Value(value) => return value,
                Target::Block(next) => block = next,
            }
        }
    }

    /// Applies a change. A change that is earlier than the newest one counts as made at the time of
    /// the newest.
    pub fn change(&mut self, change: Change) {
        let time = change.time.min(TraceTime(ALIVE.0 - 1)).max(self.newest);
        self.newest = time;
        let (_, root) = self.newest_root();
        let new_root = match self.change_block(root, self.height, u64::MAX, Change { time, ..change }) {
            Replaced::No => return,
            Replaced::By(block) => block,
            Replaced::ByTwo(left, low, right) => {
                self.height += 1;
                let entry = |low, block| Entry { low, from: time, to: ALIVE, target: Target::Block(block) };
                self.add_block(vec![entry(0, left), entry(low, right)])
            }
        };
        self.roots.push((time, new_root));
    }

    /// Whether all addresses of a range have a value in the newest state.
    pub fn is_all(&self, first: u64, last: u64, value: u32) -> bool {
        let (_, root) = self.newest_root();
        let mut open = vec![(root, u64::MAX)];
        while let Some((block, mut high)) = open.pop() {
            for entry in self.blocks[block as usize].iter().rev().filter(|entry| entry.to == ALIVE) {
                if entry.low <= last && first <= high {
                    match entry.target {
                        Target::Block(block) => open.push((block, high)),
                        Target::Value(found) if found == value => {}
                        Target::Value(_) => return false,
                    }
                }
                high = entry.low.wrapping_sub(1);
                if entry.low <= first {
                    break;
                }
            }
        }
        true
    }

    /// The newest state: ranges with their values, in ascending order and without gaps. Adjacent
    /// ranges have different values.
    pub fn newest_state(&self) -> Vec<(u64, u64, u32)> {
        let mut found: Vec<(u64, u64, u32)> = Vec::new();
        let (_, root) = self.newest_root();
        // Targets to be visited, the lowest address last.
        let mut open = vec![(0, Target::Block(root))];
        while let Some((low, target)) = open.pop() {
            match target {
                Target::Block(block) => {
                    let alive = self.blocks[block as usize].iter().rev().filter(|entry| entry.to == ALIVE);
                    open.extend(alive.map(|entry| (entry.low, entry.target)));
                }
                Target::Value(value) => match found.last_mut() {
                    Some((_, _, before)) if *before == value => {}
                    before => {
                        if let Some((_, high, _)) = before {
                            *high = low - 1;
                        }
                        found.push((low, u64::MAX, value));
                    }
                },
            }
        }
        found
    }

    /// All values of any address at any time, some of them several times.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().flatten().filter_map(|entry| match entry.target {
            Target::Value(value) => Some(value),
            Target::Block(_) => None,
        })
    }

    fn add_block(&mut self, entries: Vec<Entry>) -> u32 {
        self.blocks.push(entries);
        self.blocks.len() as u32 - 1
    }

    /// Applies a change to one block that covers addresses up to `high`, overlaps the range of the
    /// change, and has `level` levels of blocks below it.
    ///
    /// An entry that the change covers only in part is passed down. Therefore a change adds entries
    /// only to the lowest blocks, and to higher blocks only if a block below is split. Otherwise
    /// changes could raise the tree without limit.
    fn change_block(&mut self, block: u32, level: u32, high: u64, change: Change) -> Replaced {
        let Change { time, first, last, value } = change;
        let alive = |low, target| Entry { low, from: time, to: ALIVE, target };
        // The part of the range that is not passed down.
        let (mut own_first, mut own_last) = (Some(first), Some(last));
        let mut added: Vec<Entry> = Vec::new();
        let mut end = high;
        for index in (0..self.blocks[block as usize].len()).rev() {
            let entry = self.blocks[block as usize][index];
            if entry.to != ALIVE {
                continue;
            }
            let (low, entry_high) = (entry.low, end);
            end = low.wrapping_sub(1);
            if low > last {
                continue;
            }
            if entry_high < first {
                break;
            }
            let (begins_before, ends_after) = (low < first, entry_high > last);
            let dies = if !begins_before && !ends_after {
                true
            } else if level == 0 {
                if ends_after {
                    added.push(alive(last + 1, entry.target));
                }
                !begins_before
            } else {
                if begins_before {
                    own_first = entry_high.checked_add(1);
                }
                if ends_after {
                    own_last = low.checked_sub(1);
                }
                let part = Change { first: first.max(low), last: last.min(entry_high), ..change };
                self.pass_down(entry, entry_high, level - 1, part, &mut added)
            };
            let entries = &mut self.blocks[block as usize];
            if dies && entry.from == time {
                entries.remove(index);
            } else if dies {
                entries[index].to = time;
            }
            if begins_before {
                break;
            }
        }
        if let (Some(first), Some(last)) = (own_first, own_last)
            && first <= last
        {
            added.push(alive(first, Target::Value(value)));
        }
        let entries = &mut self.blocks[block as usize];
        for entry in added {
            let index = entries.partition_point(|other| other.low <= entry.low);
            entries.insert(index, entry);
        }
        if entries.len() <= BLOCK_MAX { Replaced::No } else { self.split(block, time) }
    }

    /// Applies a change to the target of an entry. If the entry dies, its replacements are pushed
    /// to `added` and the result is true.
    fn pass_down(
        &mut self,
        entry: Entry,
        high: u64,
        level: u32,
        change: Change,
        added: &mut Vec<Entry>,
    ) -> bool {
        let alive = |low, block| Entry { low, from: change.time, to: ALIVE, target: Target::Block(block) };
        let (block, is_new) = match entry.target {
            Target::Block(block) => (block, false),
            target => (self.add_block(vec![Entry { from: change.time, target, ..entry }]), true),
        };
        match self.change_block(block, level, high, change) {
            Replaced::No if !is_new => return false,
            Replaced::No => added.push(alive(entry.low, block)),
            Replaced::By(block) => added.push(alive(entry.low, block)),
            Replaced::ByTwo(left, low, right) => added.extend([alive(entry.low, left), alive(low, right)]),
        }
        true
    }

    /// Replaces a full block.
    fn split(&mut self, block: u32, time: TraceTime) -> Replaced {
        let old = &mut self.blocks[block as usize];
        old.shrink_to_fit();
        let entries = old.iter().filter(|entry| entry.to == ALIVE);
        let mut left: Vec<Entry> = entries.map(|&entry| Entry { from: time, ..entry }).collect();
        if left.len() <= SPLIT_AT {
            return Replaced::By(self.add_block(left));
        }
        let right = left.split_off(left.len() / 2);
        // If changes go upwards, this block gets no more of them.
        left.shrink_to_fit();
        let low = right[0].low;
        let left = self.add_block(left);
        Replaced::ByTwo(left, low, self.add_block(right))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOTHING: u32 = u32::MAX;

    /// The value of the last change that covers the address.
    fn oracle(changes: &[Change], address: u64, time: TraceTime) -> u32 {
        let covers =
            |change: &&Change| change.time <= time && (change.first..=change.last).contains(&address);
        changes.iter().rev().find(covers).map_or(NOTHING, |change| change.value)
    }

    /// Addresses that often coincide, spread over the whole address space.
    fn spread(point: u64) -> u64 {
        point.wrapping_mul(u64::MAX / 60)
    }

    fn changes(points: u64, count: usize) -> impl Strategy<Value = Vec<Change>> {
        proptest::collection::vec((0i64..2, 0..points, 0..points), 0..count).prop_map(move |steps| {
            let mut time = 0;
            let change = |(value, (wait, a, b)): (usize, (i64, u64, u64))| {
                time += wait;
                let (first, last) = (spread(a.min(b)), spread(a.max(b)));
                Change { time: TraceTime(time), first, last, value: value as u32 / 2 }
            };
            steps.into_iter().enumerate().map(change).collect()
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(changes in changes(61, 300)) {
            let mut tree = RangeTree::new(NOTHING);
            for &change in &changes {
                tree.change(change);
            }
            let end = changes.last().map_or(0, |change| change.time.0);
            for time in [-1, 0, 1, end / 3, end / 2, end - 1, end, i64::MAX].map(TraceTime) {
                for point in 0..61 {
                    for address in [spread(point), spread(point).wrapping_add(1), spread(point).wrapping_sub(1)] {
                        prop_assert_eq!(tree.at(address, time), oracle(&changes, address, time));
                    }
                }
            }
            let state = tree.newest_state();
            prop_assert_eq!((state[0].0, state[state.len() - 1].1), (0, u64::MAX));
            prop_assert!(state.windows(2).all(|two| two[0].1 + 1 == two[1].0 && two[0].2 != two[1].2));
            for [a, b] in [[0, 0], [0, 60], [20, 40], [30, 31], [59, 60]] {
                let (first, last) = (spread(a), spread(b));
                let within = state.iter().filter(|&&(low, high, _)| low <= last && first <= high);
                let values: Vec<u32> = within.map(|&(_, _, value)| value).collect();
                for value in [NOTHING, values[0]] {
                    prop_assert_eq!(tree.is_all(first, last, value), values == [value]);
                }
            }
            for &(low, high, value) in &state {
                for address in [low, low + (high - low) / 2, high] {
                    prop_assert_eq!(value, oracle(&changes, address, TraceTime(end)));
                }
                prop_assert!(value == NOTHING || tree.values().any(|known| known == value));
            }
        }
    }

    /// The height of the tree after a series of changes, and its number of entries for each change.
    fn shape(changes: impl Iterator<Item = Change>) -> (u32, usize) {
        let mut tree = RangeTree::new(NOTHING);
        let mut count = 0;
        for change in changes {
            tree.change(change);
            count += 1;
        }
        (tree.height, tree.blocks.iter().map(Vec::capacity).sum::<usize>() / count)
    }

    #[test]
    fn hostile_changes_neither_raise_nor_fill_the_tree() {
        const COUNT: u64 = 100_000;
        let change = |n: u64, first, last| Change { time: TraceTime(n as i64), first, last, value: n as u32 };
        let runs: [&dyn Fn(u64) -> Change; 5] = [
            // Adjacent ranges, upwards and downwards.
            &|n| change(n, n * 16, n * 16 + 7),
            &|n| change(n, (COUNT - n) * 16, (COUNT - n) * 16 + 7),
            // Each range contains the previous one.
            &|n| change(n, COUNT - n, COUNT + n),
            // The same range repeatedly.
            &|n| change(n, 100, 200),
            // Small ranges, and sometimes one that covers all but the first.
            &|n| {
                let first = 1000 + n * 16;
                if n % 12 == 0 { change(n, 100, u64::MAX) } else { change(n, first, first + 7) }
            },
        ];
        for (number, run) in runs.into_iter().enumerate() {
            let (height, entries) = shape((0..COUNT).map(run));
            assert!(height <= 6 && entries <= 9, "run {number}: height {height}, {entries} entries a change");
        }
    }
}
