//! A list of numbers that takes one byte for each seven bits of a number. Most differences, types and
//! uncertainties of a stack's changes take one byte.

use crate::varint;

/// Numbers, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Varints {
    bytes: Vec<u8>,
    count: u64,
    greatest: u64,
}

impl Varints {
    pub(super) fn push(&mut self, number: u64) {
        self.count += 1;
        self.greatest = self.greatest.max(number);
        varint::push(&mut self.bytes, number);
    }

    /// The number of numbers.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    /// The greatest number, or 0.
    pub(super) fn greatest(&self) -> u64 {
        self.greatest
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        let mut bytes = self.bytes.iter();
        std::iter::from_fn(move || {
            let mut number = 0_u64;
            for shift in (0..64).step_by(7) {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7F) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            Some(number)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in prop::collection::vec((any::<u64>(), 0..64_u32), 0..200)) {
            let numbers: Vec<u64> = numbers.into_iter().map(|(number, shift)| number >> shift).collect();
            let mut list = Varints::default();
            numbers.iter().for_each(|number| list.push(*number));
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), numbers.clone());
            prop_assert_eq!(list.len(), numbers.len() as u64);
            prop_assert_eq!(list.greatest(), numbers.iter().copied().max().unwrap_or(0));
        }
    }
}
