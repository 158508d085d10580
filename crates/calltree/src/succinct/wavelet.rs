//! A sequence of numbers with fast access both to the number at a position and to the positions of
//! a number (Claude, Navarro, Ordóñez, "The wavelet matrix", 2015). There is one level of bits for
//! each bit of the numbers, highest first. Each level is sorted by the bit of the previous level,
//! zeros first.

use super::{BitBuilder, Bits, SELDOM, Words, to_bytes};

#[derive(Clone, Debug, Default)]
pub(crate) struct Wavelet {
    levels: Vec<Level>,
    length: u64,
}

#[derive(Clone, Debug)]
struct Level {
    bits: Bits,
    zeros: u64,
}

impl Wavelet {
    /// Encodes `numbers`, all below `2^width`: for each level the number of ones and of words, then
    /// the words.
    pub(crate) fn build(mut numbers: Vec<u32>, width: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut ones = Vec::with_capacity(numbers.len());
        for level in (0..width).rev() {
            let mut bits = BitBuilder::default();
            ones.clear();
            let mut zeros = 0;
            let mut from = 0;
            while from < numbers.len() {
                let to = numbers.len().min(from + 64);
                let mut word = 0;
                for index in from..to {
                    let number = numbers[index];
                    let bit = u64::from(number >> level & 1);
                    word |= bit << (index - from);
                    // Without a branch: if the bit is a one, the next number overwrites this one.
                    numbers[zeros] = number;
                    zeros += 1 - bit as usize;
                    if bit == 1 {
                        ones.push(number);
                    }
                }
                bits.extend(word, (to - from) as u32);
                from = to;
            }
            numbers[zeros..].copy_from_slice(&ones);
            let words = bits.build(SELDOM);
            bytes.extend(to_bytes(&[ones.len() as u64, words.len() as u64]));
            bytes.extend(to_bytes(&words));
        }
        bytes
    }

    /// Returns `None` if the bytes do not contain `width` levels of `length` bits.
    pub(crate) fn new(bytes: bytes::Bytes, length: u64, width: u32) -> Option<Self> {
        let mut levels = Vec::with_capacity(width.min(32) as usize);
        let mut at = 0_usize;
        for _ in 0..width {
            let head = Words::new(bytes.get(at..at.checked_add(16)?).map(|head| bytes.slice_ref(head))?);
            let (ones, words) = (head.get(0), head.get(1));
            let end = at.checked_add(16)?.checked_add(usize::try_from(words).ok()?.checked_mul(8)?)?;
            let bits = bytes.get(at + 16..end).map(|bits| bytes.slice_ref(bits))?;
            levels.push(Level {
                bits: Bits::new(Words::new(bits), length, ones, SELDOM)?,
                zeros: length - ones,
            });
            at = end;
        }
        (at == bytes.len()).then_some(Self { levels, length })
    }

    /// Returns the number at `position`.
    pub(crate) fn get(&self, position: u64) -> u32 {
        let mut position = position;
        let mut number = 0;
        for level in &self.levels {
            let bit = level.bits.get(position);
            number = number << 1 | u32::from(bit);
            position = level.follow(position, bit);
        }
        number
    }

    /// Returns the number of occurrences of `number`.
    pub(crate) fn count(&self, number: u32) -> u64 {
        let (start, end) = self.range(number);
        end - start
    }

    /// Returns the position of the nth occurrence of `number`, from 0.
    pub(crate) fn select(&self, number: u32, nth: u64) -> u64 {
        let mut position = self.range(number).0 + nth;
        for (shift, level) in self.levels.iter().rev().enumerate() {
            position = match number >> shift & 1 {
                1 => level.bits.select1(position.saturating_sub(level.zeros)),
                _ => level.bits.select0(position),
            };
        }
        position
    }

    /// Returns the range of the occurrences of `number` on the last level.
    fn range(&self, number: u32) -> (u64, u64) {
        if u64::from(number) >= 1 << self.levels.len().min(32) {
            return (0, 0);
        }
        let (mut start, mut end) = (0, self.length);
        for (index, level) in self.levels.iter().enumerate() {
            let bit = number >> (self.levels.len() - 1 - index) & 1 == 1;
            (start, end) = (level.follow(start, bit), level.follow(end, bit));
        }
        (start, end.max(start))
    }
}

impl Level {
    fn follow(&self, position: u64, bit: bool) -> u64 {
        let ones = self.bits.rank(position);
        if bit { self.zeros + ones } else { position.saturating_sub(ones) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_their_positions_are_found(
            width in 0_u32..12,
            numbers in prop::collection::vec(any::<u32>(), 0..600),
        ) {
            let numbers: Vec<u32> = numbers.iter().map(|n| n & ((1 << width) - 1)).collect();
            let bytes = Wavelet::build(numbers.clone(), width);
            let read = Wavelet::new(bytes.into(), numbers.len() as u64, width).unwrap();
            for (position, number) in numbers.iter().enumerate() {
                prop_assert_eq!(read.get(position as u64), *number);
            }
            for number in 0..1 << width {
                let positions: Vec<u64> = (0..numbers.len()).filter(|p| numbers[*p] == number).map(|p| p as u64).collect();
                prop_assert_eq!(read.count(number), positions.len() as u64);
                for (nth, position) in positions.iter().enumerate() {
                    prop_assert_eq!(read.select(number, nth as u64), *position);
                }
            }
            prop_assert_eq!(read.count(1 << width), 0);
        }
    }
}
