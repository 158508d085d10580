//! Rising numbers in about `2 + log2(range / count)` bits each (Elias 1974, Fano 1971). The low
//! bits of each number are in an array. The high bits are a sequence of ones, one for each number,
//! with a zero for each increment of the high bits.

use super::{BitBuilder, Bits, OFTEN, Packed, Words, to_bytes};

/// The values that a reader requires in addition to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The number of values.
    pub(crate) count: u64,
    /// The greatest possible value.
    pub(crate) greatest: u64,
}

impl Shape {
    fn low_width(self) -> u32 {
        (self.greatest / self.count.max(1)).checked_ilog2().unwrap_or(0)
    }

    fn high_bits(self) -> Option<u64> {
        self.count.checked_add((self.greatest >> self.low_width()).checked_add(1)?)
    }

    fn low_words(self) -> Option<u64> {
        Packed::words_for(self.count, self.low_width())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EliasFano {
    low: Packed,
    high: Bits,
    shape: Shape,
}

impl EliasFano {
    /// Encodes `count` numbers, which never decrease and are at most `greatest`.
    pub(crate) fn build(numbers: impl Iterator<Item = u64> + Clone, count: u64, greatest: u64) -> Vec<u8> {
        let shape = Shape { count, greatest };
        let width = shape.low_width();
        let mask = (1_u64 << width) - 1;
        let mut bytes = to_bytes(&Packed::build(numbers.clone().map(|number| number & mask), width));
        let mut high = BitBuilder::zeros(count + (greatest >> width) + 1);
        for (index, number) in numbers.enumerate() {
            high.set((number >> width) + index as u64);
        }
        bytes.extend(to_bytes(&high.build(OFTEN)));
        bytes
    }

    /// Returns `None` if the number of bytes does not match the shape.
    pub(crate) fn new(bytes: bytes::Bytes, count: u64, greatest: u64) -> Option<Self> {
        let shape = Shape { count, greatest };
        // A missing section has no numbers.
        let is_missing = bytes.is_empty() && shape == Shape::default();
        let bytes = if is_missing { Self::build(std::iter::empty(), 0, 0).into() } else { bytes };
        let low = usize::try_from(shape.low_words()?.checked_mul(8)?).ok()?;
        if low > bytes.len() {
            return None;
        }
        let high = Bits::new(Words::new(bytes.slice(low..)), shape.high_bits()?, count, OFTEN)?;
        Some(Self { low: Packed::new(Words::new(bytes.slice(..low)), shape.low_width()), high, shape })
    }

    pub(crate) fn len(&self) -> u64 {
        self.shape.count
    }

    /// Returns the number at `index`, or the greatest possible number after the last one.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> u64 {
        if index >= self.shape.count {
            return self.shape.greatest;
        }
        let high = self.high.select1(index).saturating_sub(index);
        (high << self.shape.low_width()) | self.low.get(index)
    }

    /// Returns a reader for numbers that are near each other.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor { numbers: self, word: 0, before: 0 }
    }

    /// Returns how many numbers are at most `number`.
    #[inline]
    pub(crate) fn rank(&self, number: u64) -> u64 {
        if number >= self.shape.greatest {
            return self.shape.count;
        }
        let width = self.shape.low_width();
        let (high, low) = (number >> width, number & ((1 << width) - 1));
        let start = if high == 0 { 0 } else { self.high.select0(high - 1) + 1 };
        // The ones from here to the next zero have the same high bits.
        let mut first = start.saturating_sub(high);
        let mut end = first + self.ones_from(start);
        if end - first <= 8 {
            while first < end && self.low.get(first) <= low {
                first += 1;
            }
            return first;
        }
        while first < end {
            let middle = first.midpoint(end);
            if self.low.get(middle) <= low { first = middle + 1 } else { end = middle }
        }
        first
    }

    /// Returns the number of ones from `position` to the next zero.
    #[inline]
    fn ones_from(&self, position: u64) -> u64 {
        let mut at = position;
        while at < self.high.len() {
            let word = self.high.word(at / 64) >> (at % 64);
            let ones = u64::from(word.trailing_ones());
            at += ones;
            if ones < 64 - (at - ones) % 64 {
                break;
            }
        }
        at.min(self.high.len()).saturating_sub(position)
    }
}

/// Reads numbers like [`EliasFano::get`], starting from the number that was read last. The cost grows
/// with their distance, and is a few instructions for the next number.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'n> {
    numbers: &'n EliasFano,
    /// A word of the high bits, and the number of ones before it.
    word: u64,
    before: u64,
}

impl Cursor<'_> {
    pub(crate) fn get(&mut self, index: u64) -> u64 {
        let EliasFano { low, high, shape } = self.numbers;
        if index >= shape.count {
            return shape.greatest;
        }
        while index < self.before && self.word > 0 {
            self.word -= 1;
            self.before -= u64::from(high.word(self.word).count_ones());
        }
        let words = high.len().div_ceil(64);
        let mut word = high.word(self.word);
        while self.word < words && self.before + u64::from(word.count_ones()) <= index {
            self.before += u64::from(word.count_ones());
            self.word += 1;
            word = high.word(self.word);
        }
        for _ in self.before..index {
            word &= word.wrapping_sub(1);
        }
        // Damaged bytes have fewer ones than numbers.
        let position = (self.word * 64 + u64::from(word.trailing_zeros())).min(high.len());
        (position.saturating_sub(index) << shape.low_width()) | low.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agrees(numbers: &[u64], greatest: u64, probes: &[u64]) {
        let bytes = EliasFano::build(numbers.iter().copied(), numbers.len() as u64, greatest);
        let read = EliasFano::new(bytes.into(), numbers.len() as u64, greatest).unwrap();
        for (index, number) in numbers.iter().enumerate() {
            assert_eq!(read.get(index as u64), *number);
        }
        let mut cursor = read.cursor();
        let orders = (0..numbers.len()).chain((0..numbers.len()).rev().step_by(7));
        for index in orders.chain(probes.iter().map(|probe| *probe as usize % (numbers.len() + 1))) {
            assert_eq!(cursor.get(index as u64), numbers.get(index).copied().unwrap_or(greatest));
        }
        let near = numbers.iter().flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]);
        for probe in near.chain(probes.iter().copied()) {
            assert_eq!(read.rank(probe), numbers.partition_point(|n| *n <= probe) as u64, "{probe}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back_and_are_found(
            mut numbers in prop::collection::vec(0_u64..5_000, 0..500),
            slack in 0_u64..100_000,
            probes in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            numbers.sort_unstable();
            let greatest = numbers.last().copied().unwrap_or(0) + slack;
            agrees(&numbers, greatest, &probes);
        }
    }

    #[test]
    fn equal_numbers_may_be_many() {
        let numbers: Vec<u64> = (0..3_000).map(|n| if n < 1_000 { 7 } else { 9_000 + n / 500 }).collect();
        agrees(&numbers, 1 << 40, &[0, 6, 8, 1 << 40, u64::MAX]);
    }
}
