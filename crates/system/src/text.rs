//! Interned texts.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::HashTable;

/// A text of [`Texts`]. Equal texts have equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Text(u32);

impl Text {
    /// The empty text, which means "not known".
    pub const EMPTY: Text = Text(0);

    pub fn is_empty(self) -> bool {
        self == Text::EMPTY
    }
}

/// All texts of a machine: paths, names, command lines. A distinct text takes about 13 bytes in
/// addition to its own.
pub(crate) struct Texts {
    bytes: String,
    /// The end of each text. A text starts at the end of the previous one.
    ends: Vec<usize>,
    by_content: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
    /// The maximum number of bytes of all texts.
    bytes_max: usize,
    /// The number of texts that were not added.
    pub refused: u64,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            bytes: String::new(),
            ends: vec![0],
            by_content: HashTable::new(),
            hasher: foldhash::fast::RandomState::default(),
            bytes_max: usize::MAX,
            refused: 0,
        }
    }
}

/// The new numbers of texts, by their old numbers. Unused texts are mapped to the empty text.
pub(crate) struct Renumbered(Vec<Text>);

impl Renumbered {
    pub fn apply(&self, text: &mut Text) {
        *text = self.0[text.0 as usize];
    }
}

/// Marks the texts of a table that are in use.
pub(crate) struct Used(Vec<bool>);

impl Used {
    pub fn mark(&mut self, text: Text) {
        self.0[text.0 as usize] = true;
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

    /// The number of bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Sets the limit above which no text is added.
    pub fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    /// An empty set of marks for [`forget_unused`](Texts::forget_unused).
    pub fn nothing_used(&self) -> Used {
        Used(vec![false; self.ends.len()])
    }

    /// Forgets texts that are not in use. All numbers change.
    pub fn forget_unused(&mut self, used: &Used) -> Renumbered {
        let mut kept = Texts { bytes_max: self.bytes_max, refused: self.refused, ..Texts::default() };
        let numbers = used.0.iter().zip(0..);
        let renumbered = numbers
            .map(|(&is_used, number)| if is_used { kept.intern(self.get(Text(number))) } else { Text::EMPTY })
            .collect();
        *self = kept;
        Renumbered(renumbered)
    }

    /// The number of a text, or of the empty text if the table is full (2³² texts, or the limit of
    /// bytes).
    pub fn intern(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::EMPTY;
        }
        let Texts { bytes, ends, by_content, hasher, bytes_max, refused } = self;
        let hash = hasher.hash_one(text);
        if let Some(&number) = by_content.find(hash, |&number| slice(bytes, ends, number) == text) {
            return Text(number);
        }
        let has_room = bytes.len().saturating_add(text.len()) <= *bytes_max;
        let Some(number) = u32::try_from(ends.len()).ok().filter(|_| has_room) else {
            *refused += 1;
            return Text::EMPTY;
        };
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

    #[test]
    fn unused_texts_are_forgotten() {
        let mut texts = Texts::default();
        texts.set_bytes_max(12);
        let mut numbers = ["one", "two", "three", "four"].map(|text| texts.intern(text));
        assert_eq!((numbers[3], texts.refused, texts.bytes()), (Text::EMPTY, 1, 11));
        let mut used = texts.nothing_used();
        used.mark(numbers[0]);
        used.mark(numbers[2]);
        let renumbered = texts.forget_unused(&used);
        numbers.iter_mut().for_each(|text| renumbered.apply(text));
        assert_eq!(numbers.map(|text| texts.get(text)), ["one", "", "three", ""]);
        assert_eq!((texts.intern("three"), texts.bytes()), (numbers[2], 8));
        let four = texts.intern("four");
        assert_eq!(texts.get(four), "four");
    }
}
