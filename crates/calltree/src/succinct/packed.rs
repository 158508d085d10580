//! Numbers of a fixed width, stored without padding.

use super::Words;

/// The number of bits required for the numbers from 0 to `greatest`.
pub(crate) fn width_of(greatest: u64) -> u32 {
    64 - greatest.leading_zeros()
}

/// Reads numbers of `width` bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    words: Words,
    width: u32,
}

impl Packed {
    /// Reads numbers of `width` bits, at most 64, from `words`.
    pub(crate) fn new(words: Words, width: u32) -> Self {
        Self { words, width: width.min(64) }
    }

    /// Encodes `numbers`, each below `2^width`.
    pub(crate) fn build(numbers: impl Iterator<Item = u64>, width: u32) -> Vec<u64> {
        debug_assert!(width <= 64);
        let mut words = Vec::new();
        let (mut word, mut used) = (0_u64, 0);
        for number in numbers {
            debug_assert!(width == 64 || number >> width == 0);
            if width == 0 {
                continue;
            }
            word |= number << used;
            used += width;
            if used >= 64 {
                words.push(word);
                used -= 64;
                word = if used == 0 { 0 } else { number >> (width - used) };
            }
        }
        if used > 0 {
            words.push(word);
        }
        words
    }

    /// The number of words that `count` numbers of `width` bits require.
    pub(crate) fn words_for(count: u64, width: u32) -> Option<u64> {
        Some(count.checked_mul(u64::from(width))?.div_ceil(64))
    }

    /// Whether a number has few enough bits to be stored.
    pub(crate) fn can_store(&self, number: u64) -> bool {
        number.checked_shr(self.width).is_none_or(|rest| rest == 0)
    }

    /// Returns the number at `index`, or zero if it is out of range.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> u64 {
        if self.width == 0 {
            return 0;
        }
        let Some(bit) = index.checked_mul(u64::from(self.width)) else { return 0 };
        let (word, shift) = ((bit / 64) as usize, (bit % 64) as u32);
        let mut number = self.words.get(word) >> shift;
        if shift + self.width > 64 {
            number |= self.words.get(word + 1) << (64 - shift);
        }
        if self.width == 64 { number } else { number & ((1 << self.width) - 1) }
    }
}

impl Packed {
    /// Returns `count` numbers from `index` on.
    pub(crate) fn run(&self, index: u64, count: usize) -> impl ExactSizeIterator<Item = u64> + '_ {
        let mask = if self.width == 64 { u64::MAX } else { (1 << self.width) - 1 };
        let bit = index.saturating_mul(u64::from(self.width));
        let (mut at, mut shift) = ((bit / 64) as usize, (bit % 64) as u32);
        let mut word = self.words.get(at);
        (0..count).map(move |_| {
            let mut number = word >> shift;
            shift += self.width;
            if shift >= 64 {
                at += 1;
                shift -= 64;
                word = self.words.get(at);
                if shift > 0 {
                    number |= word << (self.width - shift);
                }
            }
            number & mask
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::succinct::to_bytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(width in 0_u32..=64, numbers in prop::collection::vec(any::<u64>(), 0..200)) {
            let numbers: Vec<u64> =
                numbers.iter().map(|n| if width == 0 { 0 } else { n >> (64 - width) }).collect();
            let words = Packed::build(numbers.iter().copied(), width);
            prop_assert_eq!(Some(words.len() as u64), Packed::words_for(numbers.len() as u64, width));
            let packed = Packed::new(Words::new(to_bytes(&words).into()), width);
            for (index, number) in numbers.iter().enumerate() {
                prop_assert_eq!(packed.get(index as u64), *number);
            }
            prop_assert_eq!(packed.get(u64::MAX), 0);
            let middle = numbers.len() / 2;
            let run: Vec<u64> = packed.run(middle as u64, numbers.len() - middle).collect();
            prop_assert_eq!(&run, &numbers[middle..]);
        }
    }
}
