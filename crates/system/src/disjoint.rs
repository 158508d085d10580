//! Ranges of addresses that do not overlap, in a compact ordered list.

use std::collections::BTreeMap;

use crate::multiversion::Change;

/// The maximum number of ranges in a part.
const PART_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// Ranges that do not overlap. Each takes about 45 bytes. An insertion and a look-up take O(log n)
/// steps.
#[derive(Debug, Default)]
pub(crate) struct DisjointRanges {
    /// The list, cut into parts; none is empty. The key of a part is the lowest address that its
    /// ranges may have; that of the first part is 0.
    parts: BTreeMap<u64, Vec<Change>>,
    len: usize,
}

impl DisjointRanges {
    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The range that contains an address.
    #[inline]
    pub fn at(&self, address: u64) -> Option<&Change> {
        let (_, part) = self.parts.range(..=address).next_back()?;
        let after = part.partition_point(|range| range.first <= address);
        part[..after].last().filter(|range| address <= range.last)
    }

    /// All ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.parts.values().flatten()
    }

    /// The ranges that overlap a range, in ascending order.
    pub fn within(&self, first: u64, last: u64) -> impl Iterator<Item = &Change> {
        let start = self.parts.range(..=first).next_back().map_or(0, |(&low, _)| low);
        let parts = self.parts.range(start..).flat_map(|(_, part)| part);
        parts.skip_while(move |range| range.last < first).take_while(move |range| range.first <= last)
    }

    /// Inserts a range, unless it overlaps another one. Returns whether it was inserted.
    pub fn insert(&mut self, new: Change) -> bool {
        if self.parts.is_empty() {
            self.parts.insert(0, Vec::new());
        }
        // The first range of the next part starts at the key of that part.
        let above = new.first.checked_add(1);
        let next = above.and_then(|above| self.parts.range(above..).next());
        if next.is_some_and(|(&low, _)| low <= new.last) {
            return false;
        }
        let (_, part) = self.parts.range_mut(..=new.first).next_back().expect("the first key is 0");
        let index = part.partition_point(|range| range.first <= new.first);
        let is_taken = |range: Option<&Change>| {
            range.is_some_and(|range| range.first <= new.last && new.first <= range.last)
        };
        if is_taken(part[..index].last()) || is_taken(part.get(index)) {
            return false;
        }
        self.len += 1;
        part.insert(index, new);
        if part.len() > PART_MAX {
            // Ranges are often inserted in ascending order.
            let at = if index == PART_MAX { PART_MAX } else { PART_MAX / 2 };
            let above = part.split_off(at);
            part.shrink_to_fit();
            self.parts.insert(above[0].first, above);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stackhound_trace::TraceTime;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(steps in proptest::collection::vec((0u64..200, 0u64..10), 0..100)) {
            let mut ranges = DisjointRanges::default();
            let mut expected: Vec<(u64, u64, u32)> = Vec::new();
            // The last addresses are those at the end of the address space.
            let spread = |point: u64| if point < 100 { point } else { u64::MAX - 199 + point };
            for (value, (first, size)) in (0..).zip(steps) {
                let (first, last) = (spread(first), spread((first + size).min(199)));
                let is_free = !expected.iter().any(|known| known.0 <= last && first <= known.1);
                let new = Change { time: TraceTime(0), first, last, value };
                prop_assert_eq!(ranges.insert(new), is_free);
                if is_free {
                    expected.push((first, last, value));
                }
            }
            expected.sort_unstable();
            let of = |range: &Change| (range.first, range.last, range.value);
            prop_assert_eq!(ranges.iter().map(of).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(ranges.len(), expected.len());
            for address in (0..200).map(spread) {
                let covers = |range: &&(u64, u64, u32)| range.0 <= address && address <= range.1;
                prop_assert_eq!(ranges.at(address).map(of), expected.iter().find(covers).copied());
                let end = address.saturating_add(20);
                let overlaps = |range: &&(u64, u64, u32)| range.0 <= end && address <= range.1;
                let within: Vec<_> = expected.iter().filter(overlaps).copied().collect();
                prop_assert_eq!(ranges.within(address, end).map(of).collect::<Vec<_>>(), within);
            }
        }
    }
}
