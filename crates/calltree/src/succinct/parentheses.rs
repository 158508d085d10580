//! A forest as balanced parentheses: one bit for every start (1) and end (0) of a node, in order
//! (Jacobson 1989).
//!
//! For every block of 512 bits, the following is stored in addition:
//! - the number of starts before the block,
//! - the minimum depth in it, and the minima of pairs of blocks, to find distant ends,
//! - the nodes that are open at its start, innermost first, at most [`PATH_MAX`] of them.
//!
//! All ancestors of a node are therefore found with one scan of a block and one list. Nodes are
//! numbered in the order of their starts.

use super::{BitBuilder, Packed, Words, to_bytes, width_of};

const BLOCK_WORDS: u64 = 8;
const BLOCK_BITS: u64 = 64 * BLOCK_WORDS;
/// Maximum number of open nodes in the list of a block. Further ancestors are found through the
/// last listed node.
const PATH_MAX: u64 = 64;

/// A node of the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) number: u64,
    /// The position of its start.
    pub(crate) position: u64,
}

/// An open node: found by its position, or by its number in a list.
enum Open {
    Here(Node),
    Listed(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Parentheses {
    bits: Words,
    length: u64,
    blocks: u64,
    leaves: u64,
    /// For each block, the number of starts before it and the offset of its list in `paths`.
    heads: Packed,
    /// A binary heap of minimum depths, with the leaves from `leaves` on.
    least: Packed,
    paths: Packed,
    paths_length: u64,
}

impl Parentheses {
    /// Encodes balanced `bits`: four counts, then the bits, the heads of the blocks, the minima and
    /// the lists.
    pub(crate) fn build(bits: &BitBuilder) -> Vec<u8> {
        let length = bits.len();
        let blocks = length.div_ceil(BLOCK_BITS);
        let leaves = blocks.next_power_of_two();
        let (mut heads, mut paths) = (Vec::new(), Vec::new());
        let mut minima = vec![u64::MAX; leaves as usize];
        let (mut open, mut number, mut greatest) = (Vec::new(), 0_u64, 0_u64);
        for at in 0..length {
            let block = (at / BLOCK_BITS) as usize;
            if at.is_multiple_of(BLOCK_BITS) {
                heads.extend([number, paths.len() as u64]);
                paths.extend(open.iter().rev().take(PATH_MAX as usize).copied());
            }
            if bits.get(at) {
                open.push(number);
                number += 1;
            } else {
                let closed = open.pop();
                debug_assert!(closed.is_some(), "an end without a start");
            }
            let depth = open.len() as u64;
            minima[block] = minima[block].min(depth);
            greatest = greatest.max(depth);
        }
        debug_assert!(open.is_empty(), "a start without an end");
        heads.extend([number, paths.len() as u64]);
        // Unused leaves are deeper than all nodes.
        let mut heap = vec![greatest + 1; leaves as usize];
        heap.extend(minima.into_iter().map(|least| least.min(greatest + 1)));
        for index in (1..leaves as usize).rev() {
            heap[index] = heap[2 * index].min(heap[2 * index + 1]);
        }
        let widths = [width_of(number), width_of(greatest + 1), width_of(number.max(paths.len() as u64))];
        let counts = [length, number, greatest, paths.len() as u64];
        let parts = [
            Packed::build(heads.into_iter(), widths[2]),
            Packed::build(heap.into_iter(), widths[1]),
            Packed::build(paths.into_iter(), widths[0]),
        ];
        let mut bytes = to_bytes(&counts);
        bytes.extend(to_bytes(bits.words()));
        for part in parts {
            bytes.extend(to_bytes(&part));
        }
        bytes
    }

    /// Returns `None` if the bytes do not have the stated lengths.
    pub(crate) fn new(bytes: bytes::Bytes) -> Option<Self> {
        let head = Words::new(bytes.get(..32).map(|head| bytes.slice_ref(head))?);
        let [length, count, greatest, paths_length] = [0, 1, 2, 3].map(|index| head.get(index));
        if length != count.checked_mul(2)? || greatest > count {
            return None;
        }
        let blocks = length.div_ceil(BLOCK_BITS);
        let leaves = blocks.checked_next_power_of_two()?;
        let widths = [width_of(count), width_of(greatest.checked_add(1)?), width_of(count.max(paths_length))];
        let mut at = 32_usize;
        let mut take = |words: u64| {
            let end = at.checked_add(usize::try_from(words).ok()?.checked_mul(8)?)?;
            let part = bytes.get(at..end).map(|part| bytes.slice_ref(part))?;
            at = end;
            Some(Words::new(part))
        };
        let bits = take(length.div_ceil(64))?;
        let heads = Packed::new(take(Packed::words_for(2 * (blocks + 1), widths[2])?)?, widths[2]);
        let least = Packed::new(take(Packed::words_for(leaves.checked_mul(2)?, widths[1])?)?, widths[1]);
        let paths = Packed::new(take(Packed::words_for(paths_length, widths[0])?)?, widths[0]);
        (at == bytes.len()).then_some(Self {
            bits,
            length,
            blocks,
            leaves,
            heads,
            least,
            paths,
            paths_length,
        })
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> u64 {
        self.length / 2
    }

    /// Returns the number of starts and ends.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Whether a node starts at `position`.
    #[inline]
    pub(crate) fn begins(&self, position: u64) -> bool {
        position < self.length && self.bits.get((position / 64) as usize) >> (position % 64) & 1 == 1
    }

    /// Returns the number of starts before `position`, which is the number of a node that starts
    /// there.
    #[inline]
    pub(crate) fn rank(&self, position: u64) -> u64 {
        let position = position.min(self.length);
        let block = position / BLOCK_BITS;
        let mut count = self.before(block);
        for word in block * BLOCK_WORDS..position / 64 {
            count += u64::from(self.bits.get(word as usize).count_ones());
        }
        if !position.is_multiple_of(64) {
            let word = self.bits.get((position / 64) as usize) & ((1 << (position % 64)) - 1);
            count += u64::from(word.count_ones());
        }
        count
    }

    /// Returns the number of open nodes after `position`.
    pub(crate) fn depth(&self, position: u64) -> u64 {
        (2 * self.rank(position + 1)).saturating_sub(position + 1)
    }

    /// Returns the number of starts before a block.
    #[inline]
    fn before(&self, block: u64) -> u64 {
        self.heads.get(2 * block)
    }

    /// Returns the node with this number, or `None` if there are fewer nodes.
    pub(crate) fn node(&self, number: u64) -> Option<Node> {
        if number >= self.nodes() {
            return None;
        }
        // Find the last block with at most `number` starts before it.
        let (mut low, mut high) = (0, self.blocks);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.before(middle) <= number { low = middle } else { high = middle }
        }
        let mut left = number.saturating_sub(self.before(low));
        for index in low * BLOCK_WORDS..(low + 1) * BLOCK_WORDS {
            let word = self.bits.get(index as usize);
            let here = u64::from(word.count_ones());
            if left < here {
                let position = index * 64 + u64::from(super::bits::select_in_word(word, left as u32));
                return Some(Node { number, position });
            }
            left -= here;
        }
        None
    }

    /// Returns the innermost node that is open after `position`.
    pub(crate) fn top(&self, position: u64) -> Option<Node> {
        let mut found = None;
        self.open(position, |node| {
            found = Some(node);
            false
        });
        match found? {
            Open::Here(node) => Some(node),
            Open::Listed(number) => self.node(number),
        }
    }

    /// Calls `each` with the numbers of all nodes that are open after `position`, innermost first.
    pub(crate) fn line(&self, position: u64, mut each: impl FnMut(u64)) {
        self.open(position, |node| {
            each(match node {
                Open::Here(node) => node.number,
                Open::Listed(number) => number,
            });
            true
        });
    }

    /// Calls `found` with the nodes that are open after `position`, innermost first, until it
    /// returns `false`.
    fn open(&self, position: u64, mut found: impl FnMut(Open) -> bool) {
        let (mut position, mut ended) = (position, 0);
        // Each round continues with nodes further out and to the left.
        loop {
            let Some(left) = self.open_in_block(position, ended, |position| found(Open::Here(position)))
            else {
                return;
            };
            let block = position / BLOCK_BITS;
            let path = self.path(block);
            let listed = path.len() as u64;
            let mut last = None;
            for number in path.skip(left as usize) {
                if !found(Open::Listed(number)) {
                    return;
                }
                last = Some(number);
            }
            if listed < PATH_MAX {
                return;
            }
            let last = last.or_else(|| self.path(block).last()).and_then(|number| self.node(number));
            match last {
                Some(node) if node.position > 0 && node.position < block * BLOCK_BITS => {
                    position = node.position - 1
                }
                _ => return,
            }
            ended = left.saturating_sub(PATH_MAX);
        }
    }

    /// Returns the end position of the node that starts at `position`.
    pub(crate) fn end(&self, position: u64) -> Option<u64> {
        // The depth after its end equals the depth before its start.
        let target = self.depth(position).checked_sub(1)?;
        let block = position / BLOCK_BITS;
        let mut depth = target + 1;
        if let Some(end) = self.falls_to(target, &mut depth, position + 1, (block + 1) * BLOCK_BITS) {
            return Some(end);
        }
        let block = self.next_block(block, target)?;
        let start = block * BLOCK_BITS;
        let mut depth = (2 * self.before(block)).checked_sub(start)?;
        self.falls_to(target, &mut depth, start, start + BLOCK_BITS)
    }

    /// Returns the first position in `from..to` after which the depth is `target`. `depth` is the
    /// depth before `from`, which must be greater.
    fn falls_to(&self, target: u64, depth: &mut u64, from: u64, to: u64) -> Option<u64> {
        let to = to.min(self.length);
        let mut position = from;
        while position < to {
            let word = self.bits.get((position / 64) as usize) >> (position % 64);
            if position.is_multiple_of(8) && position + 8 <= to {
                let byte = usize::from(word as u8);
                if *depth > target + 8 || i64::from(LEAST[byte]) + *depth as i64 > target as i64 {
                    *depth = depth.checked_add_signed(2 * i64::from(STARTS[byte]) - 8)?;
                    position += 8;
                    continue;
                }
            }
            *depth = if word & 1 == 1 { *depth + 1 } else { depth.checked_sub(1)? };
            if *depth == target {
                return Some(position);
            }
            position += 1;
        }
        None
    }

    /// Returns the first block after `block` in which the depth falls to `target`.
    fn next_block(&self, block: u64, target: u64) -> Option<u64> {
        let mut at = self.leaves + block;
        while at > 1 {
            if at.is_multiple_of(2) && self.least.get(at + 1) <= target {
                at += 1;
                while at < self.leaves {
                    at *= 2;
                    if self.least.get(at) > target {
                        at += 1;
                    }
                }
                return Some(at - self.leaves).filter(|block| *block < self.blocks);
            }
            at /= 2;
        }
        None
    }

    /// Calls `found` with the nodes that start in the block of `position`, at or before it, and are
    /// open after it, innermost first. Skips the first `ended` nodes. Returns `None` when `found`
    /// returns `false`; otherwise, how many of the nodes that were open before the block have ended
    /// by then or are skipped.
    #[inline]
    fn open_in_block(
        &self,
        position: u64,
        mut ended: u64,
        mut found: impl FnMut(Node) -> bool,
    ) -> Option<u64> {
        let last = position.min(self.length.checked_sub(1)?);
        let first = last / BLOCK_BITS * BLOCK_WORDS;
        let mut index = last / 64;
        let mut left = last % 64 + 1;
        let mut number = self.rank(last + 1);
        loop {
            // Bits after the position are shifted out. The zeros that are shifted in are not used.
            let mut word = self.bits.get(index as usize) << (64 - left);
            let mut position = index * 64 + left;
            while left > 0 {
                let bits = left.min(8);
                let byte = usize::from((word >> 56) as u8);
                let (mut open, left_over) = OPEN[ended.min(8) as usize][byte];
                while open != 0 {
                    let above = open.leading_zeros();
                    let begun = u64::from(STARTS[byte >> (7 - above)]);
                    let node = Node {
                        number: number.saturating_sub(begun),
                        position: position - 1 - u64::from(above),
                    };
                    if !found(node) {
                        return None;
                    }
                    open &= !(0x80 >> above);
                }
                ended = ended.saturating_add_signed(i64::from(left_over) - (8 - bits) as i64);
                number = number.saturating_sub(u64::from(STARTS[byte]));
                word <<= 8;
                position -= bits;
                left -= bits;
            }
            if index == first {
                return Some(ended);
            }
            index -= 1;
            left = 64;
        }
    }

    /// Returns the nodes that are open before `block`, innermost first.
    fn path(&self, block: u64) -> impl ExactSizeIterator<Item = u64> + '_ {
        let start = self.heads.get(2 * block + 1).min(self.paths_length);
        let end = self.heads.get(2 * block + 3).min(self.paths_length).max(start);
        let length = (end - start).min(PATH_MAX) as usize;
        self.paths.run(start, length)
    }
}

/// The number of starts in each byte.
const STARTS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    table
};
/// The minimum sum over the first bits of a byte, from the lowest bit on, at least one bit. A start
/// counts as 1, an end as -1.
const LEAST: [i8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut least, mut bit) = (0, 8, 0);
        while bit < 8 {
            sum += if byte >> bit & 1 == 1 { 1 } else { -1 };
            if sum < least {
                least = sum;
            }
            bit += 1;
        }
        table[byte] = least;
        byte += 1;
    }
    table
};
/// For each number of ends after a byte (larger numbers count as eight): the starts in the byte
/// that remain open when each end closes the nearest start before it, and the change in the number
/// of unmatched ends.
const OPEN: [[(u8, i8); 256]; 9] = {
    let mut table = [[(0, 0); 256]; 9];
    let mut unmatched = 0;
    while unmatched < 9 {
        let mut byte = 0;
        while byte < 256 {
            let (mut open, mut ended, mut bit) = (0, unmatched as i8, 8);
            while bit > 0 {
                bit -= 1;
                if byte >> bit & 1 == 0 {
                    ended += 1;
                } else if ended > 0 {
                    ended -= 1;
                } else {
                    open |= 1 << bit;
                }
            }
            table[unmatched][byte] = (open, ended - unmatched as i8);
            byte += 1;
        }
        unmatched += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Creates a forest from any choices: an end without an open node becomes a start.
    fn balanced(choices: &[bool]) -> BitBuilder {
        let mut bits = BitBuilder::default();
        let mut open = 0;
        for choice in choices {
            let begins = *choice || open == 0;
            open = if begins { open + 1 } else { open - 1 };
            bits.push(begins);
        }
        (0..open).for_each(|_| bits.push(false));
        bits
    }

    fn agrees(bits: &BitBuilder) {
        let read = Parentheses::new(Parentheses::build(bits).into()).unwrap();
        let mut open: Vec<(Node, u64)> = Vec::new();
        let mut ends = Vec::new();
        let mut number = 0;
        for position in 0..bits.len() {
            assert_eq!(read.rank(position), number);
            if bits.get(position) {
                let node = Node { number, position };
                assert_eq!(read.node(number), Some(node));
                number += 1;
                open.push((node, position));
            } else {
                ends.push((open.pop().unwrap().0, position));
            }
            assert_eq!(read.depth(position), open.len() as u64);
            assert_eq!(read.top(position), open.last().map(|open| open.0), "after {position}");
            if position % 7 == 0 || bits.len() < 500 {
                let mut line = Vec::new();
                read.line(position, |number| line.push(number));
                let expected: Vec<u64> = open.iter().rev().map(|open| open.0.number).collect();
                assert_eq!(line, expected, "after {position}");
            }
        }
        for (node, end) in ends {
            assert_eq!(read.end(node.position), Some(end));
        }
        assert_eq!(read.node(number), None);
    }

    proptest! {
        #[test]
        fn small_forests(choices in prop::collection::vec(any::<bool>(), 0..300)) {
            agrees(&balanced(&choices));
        }

        #[test]
        fn forests_of_several_blocks(
            choices in prop::collection::vec(prop::bool::weighted(0.45), 0..3_000),
            deep in 0_usize..1_500,
        ) {
            let choices: Vec<bool> = std::iter::repeat_n(true, deep).chain(choices).collect();
            agrees(&balanced(&choices));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), position in any::<u16>()) {
            if let Some(read) = Parentheses::new(bytes.into()) {
                let position = u64::from(position);
                let _ = (read.top(position), read.end(position), read.node(position), read.rank(position));
                read.line(position, |_| {});
            }
        }
    }
}
