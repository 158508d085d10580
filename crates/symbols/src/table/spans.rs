//! Converts nested, overlapping and adjacent ranges to a list of ranges that do not overlap.

use std::cmp::Reverse;

/// A range with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span<V> {
    pub start: u32,
    pub end: u32,
    pub value: V,
}

/// Returns the value at each address: that of the range that starts last; then of the one that ends
/// first; of equal ranges, the first one in the list. Each entry applies up to the next one.
pub(super) fn flatten<V: Copy + PartialEq>(mut spans: Vec<Span<V>>) -> Vec<(u32, Option<V>)> {
    spans.retain(|span| span.start < span.end);
    spans.sort_by_key(|span| (span.start, Reverse(span.end)));
    let mut flat = Flat(Vec::with_capacity(spans.len() * 2));
    // Ranges that have started, the last one on top. Some may have ended.
    let mut open: Vec<Span<V>> = Vec::new();
    for span in spans {
        end_until(&mut open, &mut flat, span.start);
        let same = |top: &Span<V>| (top.start, top.end) == (span.start, span.end);
        if !open.last().is_some_and(same) {
            flat.push(span.start, Some(span.value));
            open.push(span);
        }
    }
    end_until(&mut open, &mut flat, u32::MAX);
    flat.0
}

struct Flat<V>(Vec<(u32, Option<V>)>);

impl<V: PartialEq> Flat<V> {
    fn push(&mut self, start: u32, value: Option<V>) {
        if self.0.last().is_some_and(|last| last.0 == start) {
            self.0.pop();
        }
        if self.0.last().map(|last| &last.1) != Some(&value) {
            self.0.push((start, value));
        }
    }
}

/// Ends the ranges up to an address. The ranges below them continue.
fn end_until<V: Copy + PartialEq>(open: &mut Vec<Span<V>>, flat: &mut Flat<V>, address: u32) {
    while let Some(top) = open.last().copied() {
        if top.end > address {
            return;
        }
        // Ranges below it that end no later have ended, too.
        while open.last().is_some_and(|below| below.end <= top.end) {
            open.pop();
        }
        flat.push(top.end, open.last().map(|below| below.value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at<V: Copy>(flat: &[(u32, Option<V>)], address: u32) -> Option<V> {
        let end = flat.partition_point(|entry| entry.0 <= address);
        flat[..end].last()?.1
    }

    proptest! {
        #[test]
        fn each_address_has_the_value_of_the_range_that_starts_last(
            ranges in prop::collection::vec((0u32..40, 0u32..20), 0..12)
        ) {
            let spans: Vec<_> = ranges
                .iter()
                .zip(0u32..)
                .map(|(&(start, length), value)| Span { start, end: start + length, value })
                .collect();
            let flat = flatten(spans.clone());
            prop_assert!(flat.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1));
            for address in 0..70 {
                let around = spans.iter().filter(|span| span.start <= address && address < span.end);
                let expected = around.max_by_key(|span| (span.start, Reverse(span.end), Reverse(span.value)));
                prop_assert_eq!(at(&flat, address), expected.map(|span| span.value), "at {}", address);
            }
        }
    }
}
