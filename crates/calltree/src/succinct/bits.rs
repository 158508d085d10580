//! Bits, with the number of ones before a place (rank) and the place of the nth one or zero (select).
//!
//! Beside the bits stands one word for every 512 of them: the ones before. For every 4096th one and zero a word says in
//! which block of 512 it lies, so that select searches a short range of blocks.

use super::Words;

const BLOCK_WORDS: usize = 8;
const BLOCK_BITS: u64 = 64 * BLOCK_WORDS as u64;
const SAMPLE: u64 = 4096;

/// Collects bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitBuilder {
    words: Vec<u64>,
    length: u64,
}

impl BitBuilder {
    /// Zeros, to be set.
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

    /// The bit at `at`, which must be inside.
    pub(crate) fn get(&self, at: u64) -> bool {
        self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bits, then the ranks, then the samples of ones and of zeros.
    pub(crate) fn build(&self) -> Vec<u64> {
        let blocks = self.words.len().div_ceil(BLOCK_WORDS);
        let mut all = self.words.clone();
        all.resize(blocks * BLOCK_WORDS, 0);
        let mut ranks = Vec::with_capacity(blocks + 1);
        let mut samples = [Vec::new(), Vec::new()];
        let mut ones = 0_u64;
        for (block, words) in all.chunks(BLOCK_WORDS).enumerate() {
            ranks.push(ones);
            let before = [ones, block as u64 * BLOCK_BITS - ones];
            ones += words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            let bits = ((block as u64 + 1) * BLOCK_BITS).min(self.length);
            let after = [ones, bits - ones];
            for kind in 0..2 {
                while samples[kind].len() as u64 * SAMPLE < after[kind] {
                    debug_assert!(samples[kind].len() as u64 * SAMPLE >= before[kind]);
                    samples[kind].push(block as u64);
                }
            }
        }
        ranks.push(ones);
        all.extend(ranks);
        all.extend(samples.into_iter().flatten());
        all
    }
}

/// Reads bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits {
    words: Words,
    length: u64,
    ones: u64,
    blocks: u64,
}

impl Bits {
    /// `length` bits with `ones` ones, as [`BitBuilder::build`] laid them out. `None` if the words are too few or many.
    pub(crate) fn new(words: Words, length: u64, ones: u64) -> Option<Self> {
        let zeros = length.checked_sub(ones)?;
        let blocks = length.div_ceil(64).div_ceil(BLOCK_WORDS as u64);
        let samples = ones.div_ceil(SAMPLE) + zeros.div_ceil(SAMPLE);
        let expected = blocks.checked_mul(BLOCK_WORDS as u64 + 1)?.checked_add(1 + samples)?;
        (words.len() as u64 == expected).then_some(Self { words, length, ones, blocks })
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    #[inline]
    pub(crate) fn get(&self, at: u64) -> bool {
        at < self.length && self.word(at / 64) >> (at % 64) & 1 == 1
    }

    /// Ones before `at`.
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

    /// The place of the one with this number; the length if there are not so many.
    #[inline]
    pub(crate) fn select1(&self, number: u64) -> u64 {
        self.select::<true>(number, self.ones, self.blocks * (BLOCK_WORDS as u64 + 1) + 1)
    }

    /// The place of the zero with this number; the length if there are not so many.
    #[inline]
    pub(crate) fn select0(&self, number: u64) -> u64 {
        let samples = self.blocks * (BLOCK_WORDS as u64 + 1) + 1 + self.ones.div_ceil(SAMPLE);
        self.select::<false>(number, self.length - self.ones, samples)
    }

    #[inline]
    fn select<const ONE: bool>(&self, number: u64, count: u64, samples: u64) -> u64 {
        if number >= count {
            return self.length;
        }
        let sample = number / SAMPLE;
        let mut low = self.words.get((samples + sample) as usize).min(self.blocks);
        let mut high = if sample + 1 < count.div_ceil(SAMPLE) {
            self.words.get((samples + sample + 1) as usize).saturating_add(1).min(self.blocks)
        } else {
            self.blocks
        };
        // The last block with at most `number` before it.
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

/// The place of the one with this number in `word`, which has more ones than that.
#[inline]
pub(crate) fn select_in_word(mut word: u64, number: u32) -> u32 {
    let mut left = number;
    let mut place = 0;
    for half in [32, 16, 8] {
        let ones = (word & ((1 << half) - 1)).count_ones();
        if left >= ones {
            left -= ones;
            word >>= half;
            place += half;
        }
    }
    for _ in 0..left {
        word &= word.wrapping_sub(1);
    }
    place + word.trailing_zeros().min(63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::succinct::to_bytes;
    use proptest::prelude::*;

    fn read(bits: &[bool]) -> Bits {
        let mut builder = BitBuilder::default();
        bits.iter().for_each(|bit| builder.push(*bit));
        let ones = bits.iter().filter(|bit| **bit).count() as u64;
        Bits::new(Words::new(to_bytes(&builder.build()).into()), bits.len() as u64, ones).unwrap()
    }

    fn agrees(bits: &[bool]) {
        let read = read(bits);
        let (mut ones, mut zeros) = (0, 0);
        for (place, bit) in bits.iter().enumerate() {
            let place = place as u64;
            assert_eq!(read.get(place), *bit);
            assert_eq!(read.rank(place), ones);
            if *bit {
                assert_eq!(read.select1(ones), place);
                ones += 1;
            } else {
                assert_eq!(read.select0(zeros), place);
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

    #[test]
    fn long_runs_are_no_different() {
        for run in [1_usize, 500, 5_000] {
            let bits: Vec<bool> = (0..30_000).map(|place| place / run % 2 == 0).collect();
            agrees(&bits);
        }
        agrees(&[true; 10_000]);
        agrees(&[false; 10_000]);
    }
}
