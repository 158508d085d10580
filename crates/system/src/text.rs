//! Texts, each kept once.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::HashTable;

/// A text of [`Texts`]. Equal texts have equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Text(u32);

impl Text {
    /// The empty text, which stands for "not known".
    pub const EMPTY: Text = Text(0);

    pub fn is_empty(self) -> bool {
        self == Text::EMPTY
    }
}

/// All texts of a machine: paths, names, command lines. About 13 bytes beside its own for each distinct one.
pub(crate) struct Texts {
    bytes: String,
    /// Where each text ends; it starts where the one before ends.
    ends: Vec<usize>,
    by_content: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            bytes: String::new(),
            ends: vec![0],
            by_content: HashTable::new(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").field("texts", &self.ends.len()).finish()
    }
}

fn slice<'a>(bytes: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..ends[number]]
}

impl Texts {
    pub fn get(&self, text: Text) -> &str {
        slice(&self.bytes, &self.ends, text.0)
    }

    /// The number of a text; of the empty one when the table is full (2³² texts).
    pub fn intern(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::EMPTY;
        }
        let Texts { bytes, ends, by_content, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(&number) = by_content.find(hash, |&number| slice(bytes, ends, number) == text) {
            return Text(number);
        }
        let Ok(number) = u32::try_from(ends.len()) else { return Text::EMPTY };
        bytes.push_str(text);
        ends.push(bytes.len());
        by_content.insert_unique(hash, number, |&number| hasher.hash_one(slice(bytes, ends, number)));
        Text(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let mut texts = Texts::default();
        let given: Vec<String> = (0..100).map(|n| format!("text {}", n % 40)).collect();
        let numbers: Vec<Text> = given.iter().map(|text| texts.intern(text)).collect();
        for (text, &number) in given.iter().zip(&numbers) {
            assert_eq!(texts.get(number), text);
        }
        assert_eq!(numbers[..40], numbers[40..80]);
        assert_eq!(texts.ends.len(), 41);
        assert_eq!(texts.intern(""), Text::EMPTY);
        assert_eq!(texts.get(Text::EMPTY), "");
    }
}
