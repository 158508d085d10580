//! Bits with rank, the number of ones before a position, and select, the position of the nth one or
//! zero.
//!
//! For every 512 bits, the number of ones before them is stored in addition to the bits. For every
//! 4096th one, the number of its block of 512 bits is stored, so that select searches a short range
//! of blocks. For zeros, the positions of every 64th or every 4096th are stored. Lookups in rising
//! numbers select zeros: with every 64th position, the result is usually in the same cache line.

use super::packed::width_of;
use super::{Packed, Words};

const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: u64 = 64 * BLOCK_WORDS as u64;
const SAMPLE: u64 = 4096;
/// The interval of stored positions of zeros, for bits in which zeros are often selected and for
/// others.
pub(crate) const OFTEN: u64 = 64;
pub(crate) const SELDOM: u64 = 4096;
/// The number of words to scan after a stored position before blocks are searched instead.
const NEAR: u64 = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct BitBuilder {
    words: Vec<u64>,
    length: u64,
}

impl BitBuilder {
    /// Creates zeros, to be set later.
    pub(crate) fn zeros(length: u64) -> Self {
        Self { words: vec![0; length.div_ceil(64) as usize], length }
    }

    pub(crate) fn set(&mut self, at: u64) {
        self.words[(at / 64) as usize] |= 1 << (at % 64);
    }

    pub(crate) fn push(&mut self, bit: bool) {
        if self.length.is_multiple_of(64) {
            self.words.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= u64::from(bit) << (self.length % 64);
        }
        self.length += 1;
    }

    /// Appends the lowest `count` bits of `word`, at most 64. The higher bits must be zero.
    pub(crate) fn extend(&mut self, word: u64, count: u32) {
        let used = (self.length % 64) as u32;
        match self.words.last_mut() {
            Some(last) if used > 0 => {
                *last |= word << used;
                if used + count > 64 {
                    self.words.push(word >> (64 - used));
                }
            }
            _ if count > 0 => self.words.push(word),
            _ => {}
        }
        self.length += u64::from(count);
    }

    /// Appends all bits of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        for (index, word) in other.words.iter().enumerate() {
            self.extend(*word, (other.length - index as u64 * 64).min(64) as u32);
        }
    }

    /// Returns the bit at `at`, which must be in range.
    pub(crate) fn get(&self, at: u64) -> bool {
        self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    /// Returns the positions of the ones, in order.
    pub(crate) fn ones(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.words.iter().zip(0_u64..).flat_map(|(word, index)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| u64::from(rest.trailing_zeros()))?;
                rest &= rest - 1;
                Some(index * 64 + bit)
            })
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Encodes the bits, then the ranks, the samples of ones, and the positions of zeros.
    pub(crate) fn build(&self, step: u64) -> Vec<u64> {
        let blocks = self.words.len().div_ceil(BLOCK_WORDS);
        let mut all = self.words.clone();
        all.resize(blocks * BLOCK_WORDS, 0);
        let (mut ranks, mut samples) = (Vec::with_capacity(blocks + 1), Vec::new());
        let mut ones = 0_u64;
        for (block, words) in all.chunks(BLOCK_WORDS).enumerate() {
            ranks.push(ones);
            ones += words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            while samples.len() as u64 * SAMPLE < ones {
                samples.push(block as u64);
            }
        }
        ranks.push(ones);
        let hints = Packed::build(self.every_zero(step), width_of(self.length));
        all.extend(ranks);
        all.extend(samples);
        all.extend(hints);
        all
    }

    /// The positions of the zeros with the numbers 0, `step`, twice `step` and so on.
    fn every_zero(&self, step: u64) -> impl Iterator<Item = u64> + '_ {
        let mut sought = 0;
        let mut before = 0;
        self.words.iter().enumerate().filter_map(move |(index, word)| {
            let start = index as u64 * 64;
            let bits = (self.length - start).min(64);
            let zeros = !word & (u64::MAX >> (64 - bits));
            let here = u64::from(zeros.count_ones());
            // A word contains at most one of them, because `step` is at least its number of bits.
            let found = (sought < before + here).then(|| {
                let position = start + u64::from(select_in_word(zeros, (sought - before) as u32));
                sought += step;
                position
            });
            before += here;
            found
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Bits {
    words: Words,
    length: u64,
    ones: u64,
    blocks: u64,
    step: u64,
    hints: Packed,
}

impl Bits {
    /// Reads `length` bits with `ones` ones, as [`BitBuilder::build`] encoded them. Returns `None`
    /// if the number of words does not match.
    pub(crate) fn new(words: Words, length: u64, ones: u64, step: u64) -> Option<Self> {
        let zeros = length.checked_sub(ones)?;
        let blocks = length.div_ceil(64).div_ceil(BLOCK_WORDS as u64);
        let hints = blocks.checked_mul(BLOCK_WORDS as u64 + 1)?.checked_add(1 + ones.div_ceil(SAMPLE))?;
        let width = width_of(length);
        let expected = hints.checked_add(Packed::words_for(zeros.div_ceil(step), width)?)?;
        (words.len() as u64 == expected).then(|| Self {
            hints: Packed::new(words.from(hints as usize), width),
            words,
            length,
            ones,
            blocks,
            step,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    #[inline]
    pub(crate) fn get(&self, at: u64) -> bool {
        at < self.length && self.word(at / 64) >> (at % 64) & 1 == 1
    }

    /// Returns the number of ones before `at`.
    #[inline]
    pub(crate) fn rank(&self, at: u64) -> u64 {
        let at = at.min(self.length);
        let word = at / 64;
        let block = at / BLOCK_BITS;
        let mut ones = self.ones_before_block(block);
        for index in block * BLOCK_WORDS as u64..word {
            ones += u64::from(self.word(index).count_ones());
        }
        if !at.is_multiple_of(64) {
            ones += u64::from((self.word(word) & ((1 << (at % 64)) - 1)).count_ones());
        }
        ones
    }

    /// Returns the position of the one with this number, or the length if there are fewer ones.
    #[inline]
    pub(crate) fn select1(&self, number: u64) -> u64 {
        if number >= self.ones {
            return self.length;
        }
        let samples = self.blocks * (BLOCK_WORDS as u64 + 1) + 1;
        let sample = number / SAMPLE;
        let low = self.words.get((samples + sample) as usize).min(self.blocks);
        let high = match sample + 1 < self.ones.div_ceil(SAMPLE) {
            true => self.words.get((samples + sample + 1) as usize).saturating_add(1).min(self.blocks),
            false => self.blocks,
        };
        self.select_in_blocks::<true>(number, low, high)
    }

    /// Returns the position of the zero with this number, or the length if there are fewer zeros.
    #[inline]
    pub(crate) fn select0(&self, number: u64) -> u64 {
        if number >= self.length - self.ones {
            return self.length;
        }
        let position = self.hints.get(number / self.step);
        let mut left = number % self.step;
        let mut index = position / 64;
        let mut word = !self.word(index) & (u64::MAX << (position % 64));
        for _ in 0..NEAR {
            let here = u64::from(word.count_ones());
            if left < here {
                return (index * 64 + u64::from(select_in_word(word, left as u32))).min(self.length);
            }
            left -= here;
            index += 1;
            word = !self.word(index);
        }
        let next = number / self.step + 1;
        let end = match next < (self.length - self.ones).div_ceil(self.step) {
            true => (self.hints.get(next) / BLOCK_BITS + 1).min(self.blocks),
            false => self.blocks,
        };
        self.select_in_blocks::<false>(number, (position / BLOCK_BITS).min(self.blocks), end)
    }

    fn select_in_blocks<const ONE: bool>(&self, number: u64, mut low: u64, mut high: u64) -> u64 {
        // Find the last block with at most `number` before it.
        while low + 1 < high {
            let middle = low.midpoint(high);
            if self.before_block::<ONE>(middle) <= number { low = middle } else { high = middle }
        }
        let mut left = number.saturating_sub(self.before_block::<ONE>(low));
        for index in low * BLOCK_WORDS as u64..(low + 1) * BLOCK_WORDS as u64 {
            let word = if ONE { self.word(index) } else { !self.word(index) };
            let here = u64::from(word.count_ones());
            if left < here {
                return (index * 64 + u64::from(select_in_word(word, left as u32))).min(self.length);
            }
            left -= here;
        }
        self.length
    }

    #[inline]
    fn before_block<const ONE: bool>(&self, block: u64) -> u64 {
        let ones = self.ones_before_block(block);
        if ONE { ones } else { (block * BLOCK_BITS).saturating_sub(ones) }
    }

    #[inline]
    fn ones_before_block(&self, block: u64) -> u64 {
        self.words.get((self.blocks * BLOCK_WORDS as u64 + block) as usize)
    }

    #[inline]
    pub(crate) fn word(&self, index: u64) -> u64 {
        self.words.get(index as usize)
    }
}

/// Returns the position of the one with this number in `word`, which must have more ones than that.
#[inline]
pub(crate) fn select_in_word(mut word: u64, number: u32) -> u32 {
    let mut left = number;
    let mut position = 0;
    for half in [32, 16, 8] {
        let ones = (word & ((1 << half) - 1)).count_ones();
        if left >= ones {
            left -= ones;
            word >>= half;
            position += half;
        }
    }
    for _ in 0..left {
        word &= word.wrapping_sub(1);
    }
    position + word.trailing_zeros().min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::succinct::to_bytes;
    use proptest::prelude::*;

    fn read(bits: &[bool], step: u64) -> Bits {
        let mut builder = BitBuilder::default();
        bits.iter().for_each(|bit| builder.push(*bit));
        let ones = bits.iter().filter(|bit| **bit).count() as u64;
        Bits::new(Words::new(to_bytes(&builder.build(step)).into()), bits.len() as u64, ones, step).unwrap()
    }

    fn agrees(bits: &[bool]) {
        for step in [OFTEN, SELDOM] {
            agrees_with(bits, step);
        }
    }

    fn agrees_with(bits: &[bool], step: u64) {
        let read = read(bits, step);
        let (mut ones, mut zeros) = (0, 0);
        for (position, bit) in bits.iter().enumerate() {
            let position = position as u64;
            assert_eq!(read.get(position), *bit);
            assert_eq!(read.rank(position), ones);
            if *bit {
                assert_eq!(read.select1(ones), position);
                ones += 1;
            } else {
                assert_eq!(read.select0(zeros), position);
                zeros += 1;
            }
        }
        assert_eq!(read.rank(u64::MAX), ones);
        assert_eq!((read.select1(ones), read.select0(zeros)), (bits.len() as u64, bits.len() as u64));
    }

    proptest! {
        #[test]
        fn rank_and_select_agree_with_counting(bits in prop::collection::vec(any::<bool>(), 0..2000)) {
            agrees(&bits);
        }
    }

    proptest! {
        #[test]
        fn appended_bits_follow(parts in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..200), 0..6)) {
            let (mut whole, mut joined) = (BitBuilder::default(), BitBuilder::default());
            for part in &parts {
                let mut bits = BitBuilder::default();
                part.iter().for_each(|bit| bits.push(*bit));
                part.iter().for_each(|bit| whole.push(*bit));
                joined.append(&bits);
            }
            prop_assert_eq!((joined.words(), joined.len()), (whole.words(), whole.len()));
        }
    }

    #[test]
    fn long_runs_agree_with_counting() {
        for run in [1_usize, 500, 5_000] {
            let bits: Vec<bool> = (0..30_000).map(|position| position / run % 2 == 0).collect();
            agrees(&bits);
        }
        agrees(&[true; 10_000]);
        agrees(&[false; 10_000]);
    }
}
