//! A forest as balanced parentheses: one bit for every beginning (1) and end (0) of a node, in order (Jacobson 1989).
//!
//! For every block of 512 bits there stand beside them
//! - the number of beginnings before the block,
//! - the least depth within it, with the minima of pairs of blocks above, to find ends that lie far away,
//! - the nodes open at its beginning, innermost first, at most [`PATH_MAX`] of them.
//!
//! So a node's whole line of ancestors is found with one look into a block and one into its list. Nodes are numbered in
//! the order of their beginnings.

use super::{BitBuilder, Packed, Words, to_bytes, width_of};

const BLOCK_WORDS: u64 = 8;
const BLOCK_BITS: u64 = 64 * BLOCK_WORDS;
/// How many open nodes a block lists. Ancestors further out are found through the last one listed.
const PATH_MAX: u64 = 64;

/// A node of the forest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) number: u64,
    /// Where its beginning stands.
    pub(crate) position: u64,
}

/// A node that is open somewhere: found by its place, or by its number in a list.
enum Open {
    Here(Node),
    Listed(u64),
}

/// Reads the forest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parentheses {
    bits: Words,
    length: u64,
    blocks: u64,
    leaves: u64,
    /// For each block, the beginnings before it and where its list starts in `paths`.
    heads: Packed,
    /// A binary heap of least depths: leaves from `leaves` on.
    least: Packed,
    paths: Packed,
    paths_length: u64,
}

impl Parentheses {
    /// Lays out balanced `bits`: four counts, then bits, heads of blocks, minima, lists.
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
                debug_assert!(closed.is_some(), "an end without a beginning");
            }
            let depth = open.len() as u64;
            minima[block] = minima[block].min(depth);
            greatest = greatest.max(depth);
        }
        debug_assert!(open.is_empty(), "a beginning without an end");
        heads.extend([number, paths.len() as u64]);
        // Unused leaves are deeper than everything.
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

    /// `None` if the bytes do not have the lengths they state.
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

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u64 {
        self.length / 2
    }

    /// Beginnings and ends together.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Whether a node begins at `position`.
    #[inline]
    pub(crate) fn begins(&self, position: u64) -> bool {
        position < self.length && self.bits.get((position / 64) as usize) >> (position % 64) & 1 == 1
    }

    /// Beginnings before `position`: the number of the node that begins there, if one does.
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

    /// How many nodes are open behind `position`.
    pub(crate) fn depth(&self, position: u64) -> u64 {
        (2 * self.rank(position + 1)).saturating_sub(position + 1)
    }

    /// Beginnings before a block.
    #[inline]
    fn before(&self, block: u64) -> u64 {
        self.heads.get(2 * block)
    }

    /// The node with this number; `None` if there are not so many.
    pub(crate) fn node(&self, number: u64) -> Option<Node> {
        if number >= self.nodes() {
            return None;
        }
        // The last block with at most `number` beginnings before it.
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

    /// The innermost node that is open behind `position`.
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

    /// Calls `each` with the numbers of all nodes that are open behind `position`, innermost first.
    pub(crate) fn line(&self, position: u64, mut each: impl FnMut(u64)) {
        self.open(position, |node| {
            each(match node {
                Open::Here(node) => node.number,
                Open::Listed(number) => number,
            });
            true
        });
    }

    /// Calls `found` with the nodes open behind `position`, innermost first, until it answers `false`.
    fn open(&self, position: u64, mut found: impl FnMut(Open) -> bool) {
        let (mut position, mut ended) = (position, 0);
        // Each round goes further out and to the left.
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

    /// The place where the node that begins at `position` ends.
    pub(crate) fn end(&self, position: u64) -> Option<u64> {
        // Behind its end, it is as deep as it was before the beginning.
        let target = self.depth(position).checked_sub(1)?;
        let block = position / BLOCK_BITS;
        let mut depth = target + 1;
        if let Some(end) = self.falls_to(target, &mut depth, position + 1, (block + 1) * BLOCK_BITS) {
            return Some(end);
        }
        let block = self.block_behind(block, target)?;
        let start = block * BLOCK_BITS;
        let mut depth = (2 * self.before(block)).checked_sub(start)?;
        self.falls_to(target, &mut depth, start, start + BLOCK_BITS)
    }

    /// The first place from `from` on, before `to`, behind which the depth is `target`, which is less than `depth`, the
    /// one before `from`.
    fn falls_to(&self, target: u64, depth: &mut u64, from: u64, to: u64) -> Option<u64> {
        let to = to.min(self.length);
        let mut position = from;
        while position < to {
            let word = self.bits.get((position / 64) as usize) >> (position % 64);
            if position.is_multiple_of(8) && position + 8 <= to {
                let byte = usize::from(word as u8);
                if *depth > target + 8 || i64::from(LEAST[byte]) + *depth as i64 > target as i64 {
                    *depth = depth.checked_add_signed(2 * i64::from(BEGUN[byte]) - 8)?;
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

    /// The first block behind `block` in which the depth falls to `target`.
    fn block_behind(&self, block: u64, target: u64) -> Option<u64> {
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

    /// Calls `found` with the nodes that begin in the block of `position`, up to it, and are open behind it, innermost first,
    /// until it answers `false`, then returns `None`. Leaves out the first `ended`. Returns how many of those that were
    /// open before the block have ended by then or are left out.
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
            // Bits behind the place are shifted out; the zeros that come in below are not looked at.
            let mut word = self.bits.get(index as usize) << (64 - left);
            let mut position = index * 64 + left;
            while left > 0 {
                let bits = left.min(8);
                let byte = usize::from((word >> 56) as u8);
                let (mut open, left_over) = OPEN[ended.min(8) as usize][byte];
                while open != 0 {
                    let above = open.leading_zeros();
                    let begun = u64::from(BEGUN[byte >> (7 - above)]);
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
                number = number.saturating_sub(u64::from(BEGUN[byte]));
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

    /// The nodes open before `block`, innermost first.
    fn path(&self, block: u64) -> impl ExactSizeIterator<Item = u64> + '_ {
        let start = self.heads.get(2 * block + 1).min(self.paths_length);
        let end = self.heads.get(2 * block + 3).min(self.paths_length).max(start);
        let length = (end - start).min(PATH_MAX) as usize;
        self.paths.run(start, length)
    }
}

/// Beginnings in a byte.
const BEGUN: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    table
};
/// The least sum of a byte's first bits, from the lowest, a beginning counting 1 and an end -1; at least one bit.
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
/// For so many ends behind a byte, more than eight counting as eight: the beginnings in the byte that are left over when
/// each end takes the nearest beginning before it away, and by how many the ends left over become more.
const OPEN: [[(u8, i8); 256]; 9] = {
    let mut table = [[(0, 0); 256]; 9];
    let mut behind = 0;
    while behind < 9 {
        let mut byte = 0;
        while byte < 256 {
            let (mut open, mut ended, mut bit) = (0, behind as i8, 8);
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
            table[behind][byte] = (open, ended - behind as i8);
            byte += 1;
        }
        behind += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A forest of bits, whatever the choices: an end where nothing is open becomes a beginning.
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
            assert_eq!(read.top(position), open.last().map(|open| open.0), "behind {position}");
            if position % 7 == 0 || bits.len() < 500 {
                let mut line = Vec::new();
                read.line(position, |number| line.push(number));
                let expected: Vec<u64> = open.iter().rev().map(|open| open.0.number).collect();
                assert_eq!(line, expected, "behind {position}");
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
        fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), position in any::<u16>()) {
            if let Some(read) = Parentheses::new(bytes.into()) {
                let position = u64::from(position);
                let _ = (read.top(position), read.end(position), read.node(position), read.rank(position));
                read.line(position, |_| {});
            }
        }
    }
}
