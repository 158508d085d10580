//! Text as events carry it: in three encodings, read without a copy.

use std::cmp::Ordering;

use crate::number::Number;

/// Text in one of the encodings of events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'t> {
    Utf8(&'t str),
    /// UTF-16LE code units; units that belong to no character are read as U+FFFD.
    Utf16(&'t [[u8; 2]]),
    /// One character a byte.
    Latin1(&'t [u8]),
}

/// The longest numeral that is read without an allocation.
const NUMERAL_MAX: usize = 64;

impl<'t> Text<'t> {
    /// The characters, from either end.
    pub(crate) fn characters(self) -> Characters<'t> {
        match self {
            Self::Utf8(text) => Characters::Utf8(text.chars()),
            Self::Utf16(units) => Characters::Utf16(units),
            Self::Latin1(bytes) => Characters::Latin1(bytes),
        }
    }

    /// The order of code points.
    pub(crate) fn order(self, other: &str) -> Ordering {
        match self {
            Self::Utf8(text) => text.cmp(other),
            _ => self.characters().cmp(other.chars()),
        }
    }

    /// The number that the text spells. Allocates only for numerals of more than 64 characters.
    pub(crate) fn number(self) -> Option<Number> {
        let byte_at = |index: usize| match self {
            Self::Utf16(units) => u8::try_from(u16::from_le_bytes(units[index])).ok(),
            Self::Utf8(text) => Some(text.as_bytes()[index]),
            Self::Latin1(bytes) => Some(bytes[index]),
        };
        let length = match self {
            Self::Utf8(text) => return Number::parse(text),
            Self::Utf16(units) => units.len(),
            Self::Latin1(bytes) => bytes.len(),
        };
        let mut ascii = (0..length).map(|index| byte_at(index).filter(|byte| byte.is_ascii_graphic()));
        let mut short = [0; NUMERAL_MAX];
        if let Some(copy) = short.get_mut(..length) {
            for byte in copy.iter_mut() {
                *byte = ascii.next()??;
            }
            return Number::parse(str::from_utf8(copy).ok()?);
        }
        Number::parse(&ascii.map(|byte| byte.map(char::from)).collect::<Option<String>>()?)
    }
}

/// Yields the characters of a [`Text`].
#[derive(Clone, Debug)]
pub(crate) enum Characters<'t> {
    Utf8(std::str::Chars<'t>),
    Utf16(&'t [[u8; 2]]),
    Latin1(&'t [u8]),
}

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Utf8(characters) => characters.next(),
            Self::Latin1(bytes) => bytes.split_off_first().map(|byte| char::from(*byte)),
            Self::Utf16(units) => {
                let first = u16::from_le_bytes(*units.split_off_first()?);
                let pair = units.first().and_then(|second| join(first, u16::from_le_bytes(*second)));
                if pair.is_some() {
                    units.split_off_first();
                }
                Some(pair.unwrap_or_else(|| alone(first)))
            }
        }
    }
}

/// A unit and its neighbour make a pair whichever end is read first, so both ends see the same
/// characters.
impl DoubleEndedIterator for Characters<'_> {
    fn next_back(&mut self) -> Option<char> {
        match self {
            Self::Utf8(characters) => characters.next_back(),
            Self::Latin1(bytes) => bytes.split_off_last().map(|byte| char::from(*byte)),
            Self::Utf16(units) => {
                let last = u16::from_le_bytes(*units.split_off_last()?);
                let pair = units.last().and_then(|before| join(u16::from_le_bytes(*before), last));
                if pair.is_some() {
                    units.split_off_last();
                }
                Some(pair.unwrap_or_else(|| alone(last)))
            }
        }
    }
}

/// The character of two surrogates.
fn join(high: u16, low: u16) -> Option<char> {
    let is_pair = (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low);
    let offset = || u32::from(high - 0xd800) << 10 | u32::from(low - 0xdc00);
    is_pair.then(|| char::from_u32(0x1_0000 + offset()))?
}

/// The character of a unit that is not part of a pair.
fn alone(unit: u16) -> char {
    char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn units(units: &[u16]) -> Vec<[u8; 2]> {
        units.iter().map(|unit| unit.to_le_bytes()).collect()
    }

    /// Units of which many are surrogates.
    fn unit() -> impl Strategy<Value = u16> {
        prop_oneof![0xd7fe_u16..0xe002, any::<u16>(), 0x30_u16..0x3a]
    }

    proptest! {
        #[test]
        fn utf16_is_read_as_the_standard_library_reads_it(source in vec(unit(), 0..12)) {
            let bytes = units(&source);
            let expected = String::from_utf16_lossy(&source);
            let text = Text::Utf16(&bytes);
            prop_assert_eq!(text.characters().collect::<String>(), expected.clone());
            prop_assert_eq!(text.characters().rev().collect::<Vec<_>>(), expected.chars().rev().collect::<Vec<_>>());
        }

        #[test]
        fn both_ends_meet_without_a_character_twice(source in vec(unit(), 0..8), from_back: u8) {
            let bytes = units(&source);
            let mut characters = Text::Utf16(&bytes).characters();
            let mut back = Vec::new();
            for _ in 0..from_back % 8 {
                back.extend(characters.next_back());
            }
            let met: String = characters.chain(back.into_iter().rev()).collect();
            prop_assert_eq!(met, String::from_utf16_lossy(&source));
        }

        #[test]
        fn numerals_and_order_are_those_of_the_same_text(text in "[0-9a-fx.-]{0,80}|\\PC{0,6}", other in "\\PC{0,6}") {
            let utf16 = units(&text.encode_utf16().collect::<Vec<_>>());
            prop_assert_eq!(Text::Utf16(&utf16).number(), Number::parse(&text));
            prop_assert_eq!(Text::Utf16(&utf16).order(&other), text.as_str().cmp(&other));
            let latin1: Vec<u8> = text.chars().map(|character| u32::from(character) as u8).collect();
            let read: String = latin1.iter().map(|&byte| char::from(byte)).collect();
            prop_assert_eq!(Text::Latin1(&latin1).number(), Number::parse(&read));
            prop_assert_eq!(Text::Latin1(&latin1).order(&other), read.as_str().cmp(&other));
        }
    }
}
